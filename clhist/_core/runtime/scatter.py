"""The engines of plain arrays: a value for each index, a vector for each index, a value with its position."""

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
from clhist.operators.c_types import c_name, shown_dtype
from clhist.operators.halves import number_of
from clhist.operators.operator import Operator, checked_by

_TAKEN = (np.ndarray, cl_array.Array, int, float, np.generic)


@dataclass(frozen=True)
class ScatterSpec:
    """The parameters of the engine of plain arrays.

    Attributes
    ----------
    operator : Operator
        How values are combined.
    index : numpy.dtype
        Of the indices.
    values : tuple of numpy.dtype, or None
        Of the values: one array, or one for each field; None for one value for all.
    vector : int
        Components of the value of one index, each a bin of its own.
    by_rows : bool
        Whether an element is an index with all its components, rather than one component.
    with_position : bool
        Whether the values lack their index, which is their position then.
    from_first : bool
        Whether positions begin at the last argument, a scalar called `first`, rather than at 0.
    guarded : {"", "checked", "covered"}
        Whether there are two further arguments, `limit` and an array, `found`. Of "checked" indices one
        that is not below `limit` is reported: `found` is then 2^32 - 1. "covered" ones are not looked at.
    read_as : numpy.dtype, optional
        What the values are converted to before they become those of the operator.
    checked_by : hashable
        That of the operator.
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
        """The names of the arrays of values."""
        number = len(self.values or ())
        return ("values",) if number == 1 else tuple(f"values{k}" for k in range(number))


@kept_by_context
def scatter_engine(context: cl.Context, spec: ScatterSpec) -> Engine:
    """Return the engine; its arguments are the indices, the values, and the number of rows if these are vectors."""
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
        # Negative indices, and those of more than 32 bits, are the largest unsigned numbers. The branch is the one
        # around the update, which costs nothing: `min`, or a further bin for these, took up to twice the time on CPUs.
        otherwise = "CLHIST_RELAXED_STORE(atomic_xchg, found, 0xffffffffu)"
        is_outside = "(uint)CLHIST_BIN(indices[i]) >= limit"
        code = f"if (CLHIST_IN_PASS(indices[i], limit)) {code}; else if ({is_outside}) {otherwise}"
    emits = spec.vector if spec.by_rows else 1
    rows = None
    if not spec.guarded and not spec.from_first:
        loads = (
            "values" if spec.values == (spec.operator.dtype,) and number_of(spec.operator.dtype).kind in "iuf" else ""
        )
        rows = RowText(Rows(spec.vector, spec.by_rows), "indices[i]", value_text(spec, "(element)"), loads)
    return Engine.of(context, spec.operator, ", ".join(arguments), code, emits=emits, rows=rows)


def pair_spec(
    operator: Operator, indices: Array, values: Any, vector: int, device: cl.Device, with_position: bool
) -> ScatterSpec:
    """Return what the engine for these arrays depends on; `values` is a tuple of arrays, or a scalar."""
    dtypes = tuple(native(array.dtype) for array in values) if isinstance(values, tuple) else None
    by_rows = vector > 1 and planning_profile(device).kind == "cpu"
    given = operator, native(indices.dtype), dtypes, vector, by_rows, with_position
    return _spec(*given, checked_by=checked_by(operator))


# The same object for the same calls: it is a key, and compares sooner so.
_spec = lru_cache(maxsize=1024)(ScatterSpec)


@lru_cache(maxsize=1024)
def counting_spec(
    operator: Operator, index: np.dtype, values: tuple[np.dtype, ...] | None, guarded: str = ""
) -> ScatterSpec:
    """Return what the engine of `clhist.bincount` depends on."""
    return _spec(operator, native(index), values, guarded=guarded)


def arguments_of(spec: ScatterSpec, indices: Array, values: Any, dest_rows: int) -> tuple[Any, ...]:
    """Return what the engine of `spec` takes."""
    given = values if isinstance(values, tuple) else (values,)
    return (indices, *given, *([dest_rows] if spec.vector > 1 else []))


def elements(spec: ScatterSpec, indices: Array) -> int:
    """Return N: the indices, or the components of all."""
    return int(prod(indices.shape)) * (1 if spec.by_rows else spec.vector)


def native(dtype: np.dtype) -> np.dtype:
    """Return `dtype` in the byte order of the host."""
    return dtype.newbyteorder("=") if dtype.names is None else dtype


def arguments_of_call(arguments: Sequence[Argument], args: Sequence[Any], num_bins: Any) -> tuple[Any, ...]:
    """Return `with_arrays`; raise TypeError if `num_bins`, a keyword of calls of kernels, is missing."""
    if num_bins is None:
        raise TypeError(
            "num_bins: expected the number of bins, or a shape, got none; it is a keyword: kernel(x, num_bins=10)"
        )
    return tuple(with_arrays(arguments, args))


def with_arrays(arguments: Sequence[Argument], args: Sequence[Any]) -> Sequence[Any]:
    """Return the arguments of a map with NumPy's arrays in the place of lists and of whatever else NumPy reads.

    Raises
    ------
    TypeError, ValueError
        If the numbers of a list do not fit what the map declares; the argument is named.
    """
    for value in args:
        if not isinstance(value, _TAKEN):
            break
    else:
        return args
    if len(args) != len(arguments):
        return args
    return [_read(a, value) if a.is_array and a.is_const else value for a, value in zip(arguments, args, strict=True)]


def _read(argument: Argument, value: Any) -> Any:
    readable = isinstance(value, list | tuple | range) or hasattr(value, "__array__")
    if is_array(value) or isinstance(value, np.generic) or not readable:
        return value
    array = as_array(argument.name, value)
    if array.dtype == argument.dtype or hasattr(value, "dtype"):  # a dtype that somebody chose is not changed
        return array
    if array.size and not np.can_cast(array.dtype, argument.dtype, "same_kind"):
        check_width(argument.name, value, array, f"declare another type than {c_name(argument.dtype)}")
        raise TypeError(f"{argument.name}: expected {shown_dtype(argument.dtype)}, got a list of {array.dtype}")
    converted = array.astype(argument.dtype)
    if argument.dtype.kind in "iu" and not np.array_equal(converted, array):
        raise ValueError(f"{argument.name}: expected numbers that fit {argument.dtype}, got a list with others")
    return converted


def value_text(spec: ScatterSpec, element: str) -> str:
    """Return C of the value of one element."""
    dtype, given = spec.operator.dtype, spec.values
    if given is None:
        return "values"
    values = [f"{name}[{element}]" for name in spec.names]
    if spec.with_position:
        return f"((value_t){{{values[0]}, {f'first + {element}' if spec.from_first else element}}})"
    if dtype.names is None or given == (dtype,):
        read = spec.read_as or dtype
        value = _as_complex(values[0], given[0], read)
        return value if read == dtype else _as_complex(f"({c_name(number_of(read))})({value})", read, dtype)
    fields = map(_as_complex, values, given, (dtype[name] for name in dtype.names))
    return f"((value_t){{{', '.join(fields)}}})"


def _as_complex(value: str, given: np.dtype, dtype: np.dtype) -> str:
    """Return C of `value` as a complex number if `dtype` is one: of a real, C would make both parts."""
    if dtype.kind != "c" or given == dtype:
        return value
    return f"convert_{c_name(dtype)}({value})" if given.kind == "c" else f"({c_name(dtype)})({value}, 0)"
