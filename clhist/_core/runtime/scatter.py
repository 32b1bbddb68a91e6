"""Engines for plain arrays: scatter a value, a vector, or a (value, position) pair to each index."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from clhist._core.kernels.maps import Argument, RowText
from clhist._core.model.problem import Rows
from clhist._core.opencl.arrays import Array, is_array
from clhist._core.opencl.device import planning_profile
from clhist._core.opencl.program import kept_by_context
from clhist._core.runtime.engine import Engine
from clhist._core.runtime.reading import as_array, check_width
from clhist.operators.c_types import c_name, native, shown_dtype
from clhist.operators.halves import number_of
from clhist.operators.operator import Operator, checked_by

_ARRAYS_AND_NUMBERS = (np.ndarray, cl_array.Array, int, float, np.generic)  # arguments that need no conversion


@dataclass(frozen=True)
class ScatterSpec:
    """The parameters that the source of a scatter engine depends on.

    Attributes
    ----------
    operator : Operator
        Combines the values of a bin.
    index : numpy.dtype
        The dtype of the indices.
    values : tuple of numpy.dtype, or None
        The dtypes of the values, one for an array or one for each field; None for a scalar for all indices.
    vector : int
        Components of the value of an index; each component has a separate bin.
    by_rows : bool
        Whether an element of the map is a row with all its components, rather than one component.
    with_position : bool
        Whether the operator takes (value, index) and the position of an element is its index.
    from_first : bool
        Whether positions count from the last argument, a scalar `first`, rather than from 0.
    guarded : {"", "checked", "covered"}
        Whether the map has two further arguments, a scalar `limit` and an array `found` of uint32. A "checked" map
        stores 2^32 - 1 in `found` if an index is not below `limit`. A "covered" one does not check its indices.
    read_as : numpy.dtype, optional
        Values are converted to this dtype before they are converted to the operator's.
    checked_by : hashable
        `checked_by` of the operator, which its equality ignores.
    """

    operator: Operator
    index: np.dtype
    values: tuple[np.dtype, ...] | None
    vector: int = 1
    by_rows: bool = False
    with_position: bool = False
    from_first: bool = False
    guarded: str = ""
    read_as: np.dtype | None = None
    checked_by: Hashable = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the value arrays in the map."""
        number = len(self.values or ())
        return ("values",) if number == 1 else tuple(f"values{k}" for k in range(number))


@kept_by_context
def scatter_engine(context: cl.Context, spec: ScatterSpec) -> Engine:
    """Return the engine of `spec`; its arguments are indices, values, and the number of rows if values are vectors."""
    arguments = [f"const {c_name(spec.index)} *indices"]
    if spec.values is None:
        arguments.append("const value_t values")
    elif spec.values == (spec.operator.dtype,):
        arguments.append("const value_t *values")
    else:
        arguments += [f"const {c_name(dtype)} *{name}" for name, dtype in zip(spec.names, spec.values, strict=True)]
    code = f"EMIT(indices[i], {value_text(spec, 'i')})"
    if spec.vector > 1:
        arguments.append("const long rows")
        d = spec.vector
        # The row is checked before the product, which could wrap to the bin of another row.
        if spec.by_rows:
            code = (
                "const long row = (long)indices[i]; if (row >= 0 && row < rows) "
                f"for (int j = 0; j < {d}; ++j) EMIT(row * {d} + j, {value_text(spec, f'(size_t)i * {d} + j')})"
            )
        else:
            code = (
                f"const long row = (long)indices[i / {d}]; "
                f"EMIT(row >= 0 && row < rows ? row * {d} + i % {d} : -1, {value_text(spec, 'i')})"
            )
    if spec.from_first:
        arguments.append("const long first")
    if spec.guarded:
        arguments += ["const uint limit", "uint *found"]
    if spec.guarded == "checked":
        # CLHIST_BIN makes negative indices, and those beyond 32 bits, larger than every limit. The check is the else
        # branch of the update, which costs nothing. `min`, or a spare bin, took up to twice the time on CPUs.
        otherwise = "CLHIST_RELAXED_STORE(atomic_xchg, found, 0xffffffffu)"
        is_outside = "(uint)CLHIST_BIN(indices[i]) >= limit"
        code = f"if (CLHIST_IN_PASS(indices[i], limit)) {code}; else if ({is_outside}) {otherwise}"
    emits = spec.vector if spec.by_rows else 1
    rows = None
    # Text for the strategy "rows", whose kernels call no map. It has neither of these arguments.
    if not spec.guarded and not spec.from_first:
        loads = (
            "values" if spec.values == (spec.operator.dtype,) and number_of(spec.operator.dtype).kind in "iuf" else ""
        )
        rows = RowText(Rows(spec.vector, spec.by_rows), "indices[i]", value_text(spec, "(element)"), loads)
    return Engine.of(context, spec.operator, ", ".join(arguments), code, emits=emits, rows=rows)


def pair_spec(
    operator: Operator, indices: Array, values: Any, vector: int, device: cl.Device, with_position: bool
) -> ScatterSpec:
    """Return the specification for these arrays; `values` is a tuple of arrays, or a scalar."""
    dtypes = tuple(native(array.dtype) for array in values) if isinstance(values, tuple) else None
    by_rows = vector > 1 and planning_profile(device).kind == "cpu"
    # A CPU's work-item takes a whole row; a GPU's takes one component, so that loads of neighbours are coalesced.
    parameters = operator, native(indices.dtype), dtypes, vector, by_rows, with_position
    return _spec(*parameters, checked_by=checked_by(operator))


# Equal calls get the same object, which compares faster as a key of caches.
_spec = lru_cache(maxsize=1024)(ScatterSpec)


@lru_cache(maxsize=1024)
def counting_spec(
    operator: Operator, index: np.dtype, values: tuple[np.dtype, ...] | None, guarded: str = ""
) -> ScatterSpec:
    """Return the specification of `clhist.bincount`."""
    return _spec(operator, native(index), values, guarded=guarded)


def arguments_of(spec: ScatterSpec, indices: Array, values: Any, dest_rows: int) -> tuple[Any, ...]:
    """Return the arguments of the engine of `spec`."""
    value_arguments = values if isinstance(values, tuple) else (values,)
    return (indices, *value_arguments, *([dest_rows] if spec.vector > 1 else []))


def elements(spec: ScatterSpec, indices: Array) -> int:
    """Return N, the elements of the map: rows if `by_rows`, or else all components."""
    return int(prod(indices.shape)) * (1 if spec.by_rows else spec.vector)


def arguments_of_call(arguments: Sequence[Argument], args: Sequence[Any], num_bins: Any) -> tuple[Any, ...]:
    """Convert the arguments of a kernel's call as `with_arrays`; raise TypeError if `num_bins` is missing."""
    if num_bins is None:
        raise TypeError(
            "num_bins: expected the number of bins, or a shape, got none; it is a keyword: kernel(x, num_bins=10)"
        )
    return tuple(with_arrays(arguments, args))


def with_arrays(arguments: Sequence[Argument], args: Sequence[Any]) -> Sequence[Any]:
    """Convert lists, and other objects that NumPy reads, to NumPy arrays; return all other arguments unchanged.

    Raises
    ------
    TypeError, ValueError
        If the numbers of a list do not fit the declaration of the map.
    """
    # The usual case returns the same sequence: nothing has to be converted.
    for value in args:
        if not isinstance(value, _ARRAYS_AND_NUMBERS):
            break
    else:
        return args
    if len(args) != len(arguments):
        return args
    return [_read(a, value) if a.is_array and a.is_const else value for a, value in zip(arguments, args, strict=True)]


def _read(argument: Argument, value: Any) -> Any:
    """Return one argument as an array, in the declared dtype if the caller chose none."""
    readable = isinstance(value, list | tuple | range) or hasattr(value, "__array__")
    if is_array(value) or isinstance(value, np.generic) or not readable:
        return value
    array = as_array(argument.name, value)
    if array.dtype == argument.dtype or hasattr(value, "dtype"):  # a dtype that the caller chose is not changed
        return array
    # Numbers of a list have no dtype that the caller chose, so they are converted if they fit.
    if array.size and not np.can_cast(array.dtype, argument.dtype, "same_kind"):
        check_width(argument.name, value, array, f"declare another type than {c_name(argument.dtype)}")
        raise TypeError(f"{argument.name}: expected {shown_dtype(argument.dtype)}, got a list of {array.dtype}")
    converted = array.astype(argument.dtype)
    if argument.dtype.kind in "iu" and not np.array_equal(converted, array):
        raise ValueError(f"{argument.name}: expected numbers that fit {argument.dtype}, got a list with others")
    return converted


def value_text(spec: ScatterSpec, element: str) -> str:
    """Return the C expression of the value at index `element`, as `value_t`."""
    dtype, dtypes = spec.operator.dtype, spec.values
    if dtypes is None:
        return "values"
    values = [f"{name}[{element}]" for name in spec.names]
    # The pair is (value, position): the position is the number of the element, or of the one in its stream.
    if spec.with_position:
        return f"((value_t){{{values[0]}, {f'first + {element}' if spec.from_first else element}}})"
    if dtype.names is None or dtypes == (dtype,):
        read = spec.read_as or dtype
        value = _as_complex(values[0], dtypes[0], read)
        return value if read == dtype else _as_complex(f"({c_name(number_of(read))})({value})", read, dtype)
    fields = map(_as_complex, values, dtypes, (dtype[name] for name in dtype.names))
    return f"((value_t){{{', '.join(fields)}}})"


def _as_complex(value: str, source: np.dtype, dtype: np.dtype) -> str:
    """Return the C expression that converts `value` from `source` to `dtype`, if that is complex.

    OpenCL's own conversion of a scalar to a vector would also set the imaginary part.
    """
    if dtype.kind != "c" or source == dtype:
        return value
    return f"convert_{c_name(dtype)}({value})" if source.kind == "c" else f"({c_name(dtype)})({value}, 0)"
