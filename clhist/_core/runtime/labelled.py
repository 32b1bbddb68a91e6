"""Arrays of xarray and tensors of the CPU: which values they hold, and results of the same kind.

Results keep the dimensions and coordinates of xarray. Neither library is imported here: if it is not, no array is one
of its.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, TypeGuard

import numpy as np

from clhist._core.kinds import are_plain, imported, is_instance


def is_labelled(value: object) -> bool:
    """Whether `value` is a `DataArray` or a `Variable` of xarray."""
    return is_instance(value, "xarray", "DataArray", "Variable")


def unlabelled(value: Any) -> Any:
    """Return the array that xarray's holds, of NumPy or Dask, also in a list or tuple; all else as it is."""
    if isinstance(value, list | tuple) and any(map(is_labelled, value)):
        return type(value)(map(unlabelled, value))
    return value.data if is_labelled(value) else value


def elementwise(function: Callable[[Any], Any], x: Any, dtype: Any) -> Any:
    """Apply `function` to each element of an array of xarray.

    Dimensions and coordinates are those of `x`, attributes by ``xarray.set_options(keep_attrs=...)``. A chunked array
    stays one, of this `dtype`.
    """
    return import_module("xarray").apply_ufunc(function, x, dask="parallelized", output_dtypes=[dtype])


def has_names(axis: object) -> TypeGuard[str | Sequence[str]]:
    """Whether `axis` names dimensions."""
    return isinstance(axis, str) or (isinstance(axis, list | tuple) and any(isinstance(name, str) for name in axis))


def histogram_along(
    histogram: Callable[..., tuple[Any, np.ndarray]],
    a: Any,
    axis: str | Sequence[str],
    *,
    weights: Any,
    where: Any,
    out: Any,
) -> tuple[Any, np.ndarray]:
    """Return the histogram along dimensions that are named, as an array of xarray, and its edges.

    Parameters
    ----------
    histogram : callable
        Gets NumPy arrays, the dimensions to count over last, ``weights=``, ``where=`` and their numbers as ``axis=``.
    a, axis, weights, where, out
        As of `clhist.histogram`.

    Raises
    ------
    TypeError
        If `a` has no names, or there is an `out`.
    ValueError
        If there are no such dimensions, or coordinates differ.
    """
    if not is_labelled(a):
        raise TypeError(f"axis: expected numbers of dimensions, since those of a have no names, got {axis!r}")
    if out is not None:
        raise TypeError("out: expected none, since axis has names and the result is an array of xarray")
    xarray = import_module("xarray")
    names = (axis,) if isinstance(axis, str) else tuple(axis)
    for name in names:
        if name not in a.dims or names.count(name) > 1:
            raise ValueError(f"axis: expected some of {a.dims}, each once, got {axis!r}")
    data_array = xarray.DataArray(a) if isinstance(a, xarray.Variable) else a
    bins = "bin" if data_array.name is None else f"{data_array.name}_bin"
    if bins in data_array.dims or bins in data_array.coords:
        raise ValueError(f"axis: expected an array without {bins!r}, the dimension of the bins, got {data_array.dims}")
    # Weights and masks are broadcast with the data by their names.
    others = {key: value for key, value in (("weights", weights), ("where", where)) if value is not None}
    arrays = [data_array, *(_like(data_array, key, value) for key, value in others.items())]
    # By name and coordinates, as xarray's own functions combine arrays.
    arrays = xarray.broadcast(*xarray.align(*arrays, join="exact", copy=False))
    edges: Any = None

    def counted(*arrays: Any) -> Any:
        nonlocal edges
        options = dict(zip(others, arrays[1:], strict=True))
        hist, edges = histogram(arrays[0], axis=tuple(range(-len(names), 0)), **options)
        return hist

    # The named dimensions become the last ones of each array, and the bins take their place in the result.
    dims = [list(names)] * len(arrays)
    result = xarray.apply_ufunc(counted, *arrays, input_core_dims=dims, output_core_dims=[[bins]])
    if isinstance(a, xarray.Variable):
        return result.variable, edges
    result.name = "histogram" if data_array.name is None else f"histogram_{data_array.name}"
    # Halves are added, since the sum of two large edges could overflow.
    middles = edges[:-1] * 0.5 + edges[1:] * 0.5
    return result.assign_coords({bins: middles}), edges


def _like(a: Any, name: str, value: Any) -> Any:
    """Return `value` as a `DataArray`; an array without named dimensions must have the shape of `a`."""
    xarray = import_module("xarray")
    if is_labelled(value):
        return xarray.DataArray(value) if isinstance(value, xarray.Variable) else value
    value = np.asarray(value)
    if value.shape != a.shape:
        raise ValueError(f"{name}: expected shape {a.shape} as of a, got {value.shape}")
    return xarray.DataArray(value, dims=a.dims)


def any_host_tensor(values: Iterable[Any]) -> bool:
    """Whether one of some arguments, or an entry of one that is a list or tuple, is a PyTorch tensor of the CPU."""
    tensor = imported("torch", "Tensor")
    if tensor is None:
        return False
    for value in values:
        if isinstance(value, tensor):
            if value.is_cpu:
                return True
        elif isinstance(value, list | tuple) and value and isinstance(value[0], tensor) and any_host_tensor(value):
            return True
    return False


def arrays_of_tensors(args: Sequence[Any], options: Mapping[str, Any]) -> Sequence[Any]:
    """Return positional arguments with NumPy arrays of the same memory in the place of PyTorch tensors of the CPU.

    They stay as they are if another argument is not plain: checks of the function say what is wrong.
    """
    tensor, arrays = imported("torch", "Tensor"), []
    if not are_plain(options.values()):
        return args
    for value in args:
        if type(value) is tensor:
            try:
                value = value.numpy()
            except (RuntimeError, TypeError):  # of one with a gradient, or of a dtype that NumPy lacks
                return args
        elif not are_plain((value,)):
            return args
        arrays.append(value)
    return arrays


def as_tensors(result: Any, has_edges: bool = False) -> Any:
    """Return arrays of NumPy in a result as tensors of the same memory; structured ones as dicts of their fields.

    Arrays of dtypes that PyTorch lacks stay as they are, as do all other values, and edges that follow a histogram.
    """
    if has_edges:
        return as_tensors(result[0]), *result[1:]
    if isinstance(result, tuple):
        parts = [as_tensors(entry) for entry in result]
        return type(result)(*parts) if hasattr(result, "_fields") else tuple(parts)
    if not isinstance(result, np.ndarray) or result.dtype.hasobject:
        return result
    if result.dtype.names is not None:
        return {name: as_tensors(np.ascontiguousarray(result[name])) for name in result.dtype.names}
    from clhist._core.cuda.libraries import library  # only calls on tensors need it

    torch: Any = library("torch")
    if not torch.has(result.dtype):
        return result
    # PyTorch warns of read-only arrays and refuses negative strides.
    is_usable = result.flags.writeable and all(step >= 0 for step in result.strides)
    return torch.from_numpy(result if is_usable else result.copy())
