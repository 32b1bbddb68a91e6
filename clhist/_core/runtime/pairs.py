"""Arrays of indices and values, as callers give them, checked: what `clhist.reduce_by_index` combines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from clhist._core.kernels.scalars import scalar
from clhist._core.opencl.arrays import Array, common_kind, is_device_array
from clhist._core.opencl.masks import check_unmasked, leave_out, mask_of, mask_of_values
from clhist._core.runtime.reading import as_array, as_indices, numbers_as_array
from clhist._core.runtime.result_arrays import target
from clhist._core.runtime.values import checked_values, ones, row_shape
from clhist.operators.c_types import integer, same_value, supported_dtype
from clhist.operators.halves import number_of
from clhist.operators.host import combined, of_bins
from clhist.operators.names import COUNT, PAIRS, operator_of_call, operator_on_bins, operator_on_values
from clhist.operators.operator import Operator

_NAMED = (np.ufunc, str)  # what `_named` makes operators of


@dataclass
class Pairs:
    """The arrays of a call, checked.

    Attributes
    ----------
    dests : tuple of array
        The initial contents of the bins, one for each field; nothing if they begin as the identity element.
    fields : bool
        Whether these were given as a tuple.
    shape : tuple of int
        Of the result.
    batched : bool
        Whether its first dimension is that of histograms.
    operator : Operator
        How values are combined.
    indices : array
        Bins.
    values : tuple of array, or scalar
        What they get.
    with_position : bool
        Whether the values lack their index, which is their position then.
    on_device : bool
        Whether the arrays are PyOpenCL's.
    is_plain : bool
        Whether `plain_pairs` made them.
    """

    dests: tuple[Array, ...]
    fields: bool
    shape: tuple[int, ...]
    batched: bool
    operator: Operator
    indices: Array
    values: tuple[Array, ...] | Any
    with_position: bool = False
    on_device: bool = False
    is_plain: bool = False

    @property
    def dest(self) -> Any:
        """`dests` as they were given."""
        return self.dests if self.fields else self.dests[0] if self.dests else None

    @property
    def row(self) -> tuple[int, ...]:
        """The shape of what one index stands for."""
        return row_shape(self.shape, self.batched)

    @property
    def arrays(self) -> list[Array]:
        """All arrays."""
        return [*self.dests, self.indices, *(self.values if isinstance(self.values, tuple) else ())]

    def on_host(self, out: Any) -> Any:
        """Return ``dest[i] = op(dest[i], v)`` for each pair, as kernels compute it, in `out` if there is one.

        Raises
        ------
        TypeError, ValueError
            As kernels do, if `dest`, `out` or the scalar is wrong.
        """
        operator, values = self.operator, self.values
        if self.is_plain and out is None:
            return of_bins(operator, self.dests[0] if self.dests else None, self.indices, values[0], self.shape[0])
        checked = target("", operator, self.shape, self.dest, out)
        if not isinstance(values, tuple):
            dtype = number_of(operator.dtype)
            values = scalar(_Scalar("values", dtype), values)
        dest = None if checked.dest is None else checked.dest[0]
        found = combined(operator, self.shape, self.batched, dest, self.indices, values, self.with_position)
        if checked.out is None:
            return found
        checked.out[0][...] = found
        return out

    def by_parts(self) -> Pairs:
        """Return sums of complex numbers as those of vectors of two, real and imaginary part.

        Raises
        ------
        TypeError
            If values on a device have another dtype.
        """
        dtype, values = self.operator.dtype, self.values
        if not isinstance(values, tuple):
            given = np.full(self.indices.shape + self.row, same_value(values, dtype, "values"), dtype)
            values = (_on_device(given, self.indices.queue) if self.on_device else given,)
        elif self.on_device and values[0].dtype != dtype:
            raise TypeError(f"values: expected {dtype} of reproducible sums on a device, got {values[0].dtype}")
        else:
            values = (values[0].astype(dtype, copy=False) if not self.on_device else values[0],)
        half = Operator(f"f{dtype.itemsize // 2}", "a + b", 0, "add")
        dests = tuple(map(as_parts, self.dests))
        return replace(self, dests=dests, shape=(*self.shape, 2), operator=half, values=tuple(map(as_parts, values)))


class _Scalar(NamedTuple):
    """The scalar of a call, as `scalar` takes it."""

    name: str
    dtype: np.dtype


def _on_device(array: np.ndarray, queue: Any) -> Array:
    from clhist._core.opencl.new_arrays import to_device  # PyOpenCL, which arrays of NumPy do without

    return to_device(queue, array)


def as_parts(array: Array) -> Array:
    """Return complex numbers as vectors of two, which are the same memory if it is contiguous."""
    half = np.dtype(f"f{array.dtype.itemsize // 2}")
    whole = array if array.flags.c_contiguous else array.copy()
    return whole.reshape(-1).view(half).reshape(*array.shape, 2)


def plain_pairs(dest: Any, op: Any, indices: Any, values: Any, out: Any) -> Pairs | None:
    """Return what `checked_pairs` does, of NumPy arrays of one dimension and equal dtypes; None if it has to check."""
    if not (type(indices) is type(values) is np.ndarray and indices.ndim == 1 and indices.shape == values.shape):
        return None
    dtype = values.dtype
    is_number = dtype.kind in "biufc" and dtype.isnative and dtype.char not in "gG"  # of no extended precision
    if not is_number or indices.dtype.kind not in "iu" or not isinstance(op, _NAMED) or op == COUNT:
        return None
    dests: tuple[Array, ...] = ()
    if type(dest) is int and dest > 0:
        number, operator = dest, _named(_without_dtype, op, dtype)
    elif type(dest) is np.ndarray and dest.ndim == 1 and dest.size and dest.dtype == dtype:
        dests, number, operator = (dest,), dest.size, _named(operator_on_bins, op, dtype)
    else:
        return None
    if operator.dtype != dtype and not _widens(operator, dtype, out):
        return None
    return Pairs(dests, False, (number,), False, operator, indices, (values,), is_plain=True)


def _widens(operator: Operator, dtype: np.dtype, out: Any) -> bool:
    """Whether values are converted to the dtype of an operator; an `out` may choose that of narrow values."""
    return out is None and not operator.positional and bool(np.can_cast(dtype, operator.dtype, "same_kind"))


def checked_pairs(
    dest: Any, op: Any, indices: Any, values: Any, batched: bool, offsets: Any, dtype: Any = None, out: Any = None
) -> Pairs:
    """Return the arrays of a call, without what is masked; all but `dest` as of `reduce_by_index`."""
    of_indices, of_values = mask_of(indices), mask_of_values(values)
    indices, given_shape = as_indices(indices), _shape_of(dest)
    fields = isinstance(dest, tuple) and given_shape is None
    dests: tuple[Array, ...] = ()
    if given_shape is None:
        if dtype is not None:
            raise TypeError(f"dtype: expected none, since dest is an array and has its own, got {dtype!r}")
        for array in dest if fields else (dest,):
            _check_dest(array)
        dests = (
            tuple(numbers_as_array("dest", array) for array in dest) if fields else (numbers_as_array("dest", dest),)
        )
        shape = _dest_shape([array.shape for array in dests], batched)
        operator = _operator_of(op, dests, fields)
    else:
        shape = _dest_shape([given_shape], batched)
        operator = _operator_of_values(op, values, dtype, out)
    if batched:
        _check_batched(shape, indices, offsets)
    pairs = Pairs(dests, fields, shape, batched, operator, indices, values)
    if isinstance(op, str) and op == COUNT:
        values = ones(values, indices.shape + pairs.row)
    pairs.values, pairs.with_position = checked_values(values, operator, indices.shape, pairs.row)
    arrays = pairs.values if isinstance(pairs.values, tuple) else ()
    named = [("dest", array) for array in dests] + [("indices", indices)] + [("values", array) for array in arrays]
    pairs.on_device = common_kind(named)
    if of_indices is not None or of_values is not None:
        pairs.indices, pairs.values = leave_out(indices, pairs.values, of_indices, of_values)
    return pairs


def _check_dest(dest: Any) -> None:
    """Raise an exception if `dest` is no array without masked elements."""
    check_unmasked("dest", dest)
    if (
        not isinstance(dest, np.ndarray | np.generic | list | tuple)
        and not is_device_array(dest)
        and np.ndim(dest) == 0
    ):
        hint = "; the order is dest, op, indices, values" if isinstance(dest, np.ufunc | str | Operator) else ""
        raise TypeError(f"dest: expected an array, a shape or a number of bins, got {dest!r}{hint}")


@lru_cache(maxsize=256)
def _named(make: Callable[..., Operator], op: np.ufunc | str, dtype: np.dtype) -> Operator:
    return make(op, dtype)


def _operator_of(op: Operator | np.ufunc | str, dests: tuple[Array, ...], fields: bool) -> Operator:
    if not fields:
        supported_dtype(dests[0].dtype, "dest")
        hashable = isinstance(op, _NAMED)
        return _named(operator_on_bins, op, dests[0].dtype) if hashable else operator_on_bins(op, dests[0].dtype)
    if not isinstance(op, Operator):
        raise TypeError(f"op: expected a clhist.Operator on a structured dtype, since dest is a tuple, got {op!r}")
    return op


def _operator_of_values(op: Operator | np.ufunc | str, values: Any, dtype: Any, out: Any) -> Operator:
    """Return the operator where there is no `dest` to say on which dtype; an `out` of that of narrow values does."""
    if isinstance(op, Operator):
        return operator_of_call(op, op.dtype, dtype)
    if isinstance(op, str) and op in PAIRS and isinstance(values, tuple) and len(values) == 2:
        given, index = (numbers_as_array("values", array).dtype for array in values)
        return operator_of_call(op, given, dtype, index)
    given = supported_dtype(numbers_as_array("values", values).dtype, "values")
    if dtype is None and isinstance(op, np.ufunc | str):
        if getattr(out, "dtype", None) == given and op != COUNT:
            return _named(operator_on_values, op, given)
        return _named(_without_dtype, op, given)
    return operator_of_call(op, given, dtype)


def _without_dtype(op: np.ufunc | str, values: np.dtype) -> Operator:
    return operator_of_call(op, values, None)


def is_number_or_shape(dest: Any) -> bool:
    """Whether `dest` is no array, but a number of bins or a shape; raises as `reduce_by_index` if that is wrong."""
    return _shape_of(dest) is not None


def shape_of(dest: Any) -> tuple[int, ...]:
    """Return the shape of what `dest` is or stands for; of fields that of the first."""
    first = dest[0] if isinstance(dest, tuple) and dest and _shape_of(dest) is None else dest
    if (shape := _shape_of(first)) is None:
        _check_dest(first)
        shape = as_array("dest", first).shape
    return shape


def _shape_of(dest: Any) -> tuple[int, ...] | None:
    """Return the shape that `dest` is, if it is no array."""
    if isinstance(dest, int | np.integer) and not isinstance(dest, bool | np.bool_):
        return (integer("dest", dest, 1),)
    if isinstance(dest, tuple) and dest and all(isinstance(n, int | np.integer) for n in dest):
        return tuple(integer("dest", n, 1) for n in dest)
    return None


def _dest_shape(shapes: Sequence[tuple[int, ...]], batched: bool) -> tuple[int, ...]:
    if not shapes:
        raise ValueError("dest: expected at least one array, got an empty tuple")
    shape = shapes[0]
    for other in shapes[1:]:
        if other != shape:
            raise ValueError(f"dest: expected arrays of one shape, got {shape} and {other}")
    least = 2 if batched else 1
    if len(shape) < least or prod(shape) == 0:
        expected = "two dimensions or more, of histograms and bins," if batched else "one dimension or more"
        raise ValueError(f"dest: expected {expected} and at least one bin, got shape {shape}")
    return shape


def _check_batched(shape: tuple[int, ...], indices: Array, offsets: Any) -> None:
    if offsets is None:
        if indices.ndim != 2 or indices.shape[0] != shape[0]:
            raise ValueError(f"indices: expected shape ({shape[0]}, n), a row for each of dest, got {indices.shape}")
        return
    if indices.ndim != 1:
        raise ValueError(f"indices: expected one dimension, since offsets are given, got shape {indices.shape}")
    rows = int(np.size(offsets)) if not is_device_array(offsets) else offsets.size
    if rows != shape[0] + 1:
        raise ValueError(f"offsets: expected {shape[0] + 1} entries, one more than rows of dest, got {rows}")
