"""Ready-made operators, and the ones that NumPy's ufuncs and written expressions stand for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import DTypeLike

from clhist.dtypes import c_name, literal, same_value, supported_dtype
from clhist.operator import Operator
from clhist.recognition import recognise


def add(dtype: DTypeLike) -> Operator:
    """Sums, as `numpy.add`: modulo 2^bits for integers, logical or for booleans."""
    found = _number(dtype)
    return logical_or(found) if found.kind == "b" else Operator(found, "a + b", 0, "add")


def count(dtype: DTypeLike = np.int64) -> Operator:
    """Sums of ones, held in 32 bits while they are counted: for fewer than 2^32 values and no `dest`."""
    return Operator(_integer(dtype), "a + b", 0, "count", accumulator=np.uint32)


def multiply(dtype: DTypeLike) -> Operator:
    """Products, as `numpy.multiply`: modulo 2^bits for integers, logical and for booleans."""
    found = _number(dtype)
    if found.kind == "b":
        return logical_and(found)
    if found.kind == "c":
        product = f"({c_name(found)})(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x)"
        return Operator(found, product, 1, "multiply")
    return Operator(found, "a * b", 1, "multiply")


def minimum(dtype: DTypeLike) -> Operator:
    """Smallest value, as `numpy.minimum`: a NaN makes its bin NaN. Which zero wins, +0 or -0, is not defined."""
    found = _real(dtype)
    combine = "b != b ? b : (b < a ? b : a)" if found.kind == "f" else "min(a, b)"
    return Operator(found, combine, _largest(found), "minimum")


def maximum(dtype: DTypeLike) -> Operator:
    """Largest value, as `numpy.maximum`: a NaN makes its bin NaN. Which zero wins, +0 or -0, is not defined."""
    found = _real(dtype)
    combine = "b != b ? b : (b > a ? b : a)" if found.kind == "f" else "max(a, b)"
    return Operator(found, combine, _smallest(found), "maximum")


def fmin(dtype: DTypeLike) -> Operator:
    """Smallest value that is not NaN, as `numpy.fmin`; a bin that gets none holds NaN, if its type has it."""
    found = _real(dtype)
    return Operator(found, "fmin(a, b)", np.nan, "fmin") if found.kind == "f" else minimum(found)


def fmax(dtype: DTypeLike) -> Operator:
    """Largest value that is not NaN, as `numpy.fmax`; a bin that gets none holds NaN, if its type has it."""
    found = _real(dtype)
    return Operator(found, "fmax(a, b)", np.nan, "fmax") if found.kind == "f" else maximum(found)


def bitwise_and(dtype: DTypeLike) -> Operator:
    """Bits that all values have, as `numpy.bitwise_and`."""
    found = _integer(dtype)
    if found.kind == "b":
        return logical_and(found)
    return Operator(found, "a & b", -1 if found.kind == "i" else np.iinfo(found).max, "bitwise_and")


def bitwise_or(dtype: DTypeLike) -> Operator:
    """Bits that any value has, as `numpy.bitwise_or`."""
    found = _integer(dtype)
    return logical_or(found) if found.kind == "b" else Operator(found, "a | b", 0, "bitwise_or")


def bitwise_xor(dtype: DTypeLike) -> Operator:
    """Bits that an odd number of values has, as `numpy.bitwise_xor`."""
    found = _integer(dtype)
    return logical_xor(found) if found.kind == "b" else Operator(found, "a ^ b", 0, "bitwise_xor")


def logical_and(dtype: DTypeLike = np.bool_) -> Operator:
    """Whether all values are non-zero, as 0 or 1 of `dtype` (`dest` counts as a value of every bin)."""
    return _logical(dtype, "a & b", 1, "logical_and")


def logical_or(dtype: DTypeLike = np.bool_) -> Operator:
    """Whether any value is non-zero, as 0 or 1 of `dtype` (`dest` counts as a value of every bin)."""
    return _logical(dtype, "a | b", 0, "logical_or")


def logical_xor(dtype: DTypeLike = np.bool_) -> Operator:
    """Whether an odd number of values is non-zero, as 0 or 1 of `dtype` (`dest` counts as a value of every bin)."""
    return _logical(dtype, "a ^ b", 0, "logical_xor")


def saturating_add(dtype: DTypeLike, maximum: float) -> Operator:
    """Sums of non-negative values that stop at `maximum`: 255 in Parboil's histo, 2^24 - 1 in SC'20, section V-A.

    Parameters
    ----------
    dtype : dtype-like
        An integer or a float.
    maximum : int or float
        The largest sum; must be positive and fit `dtype`.

    Notes
    -----
    With negative values saturation depends on the order of the terms, so the result is not defined for them.
    """
    found = _real(dtype)
    if found.kind == "b":
        raise TypeError("dtype: expected an integer or a float for saturating_add, got bool")
    limit = literal(same_value(maximum, found, "maximum"), found)
    if not maximum > 0:
        raise ValueError(f"maximum: expected a positive number, got {maximum!r}")
    # Written so that nothing can wrap: a + b is formed only where it stays within the limit.
    return Operator(
        found, f"(b >= {limit} || a >= {limit} - b) ? {limit} : ({c_name(found)})(a + b)", 0, "saturating_add"
    )


def argmin(dtype: DTypeLike, index_dtype: DTypeLike = np.int32) -> Operator:
    """The (value, index) pair of the smallest value; see `argmax`."""
    return _arg("argmin", dtype, index_dtype, "<")


def argmax(dtype: DTypeLike, index_dtype: DTypeLike = np.int32) -> Operator:
    """The (value, index) pair of the largest value; of equal values the one of the lowest index, as `numpy.argmax`.

    Parameters
    ----------
    dtype : dtype-like
        Type of a value: an integer or a float. A NaN counts as larger than every number, as in NumPy.
    index_dtype : dtype-like
        Type of an index: an integer.

    Returns
    -------
    Operator
        Over the structured dtype with fields ``value`` and ``index``. A bin that gets no pair holds the value that
        every other beats (or equals) and the largest index of its type.
    """
    return _arg("argmax", dtype, index_dtype, ">")


_UFUNCS: dict[np.ufunc, Callable[[DTypeLike], Operator]] = {
    np.add: add,
    np.multiply: multiply,
    np.minimum: minimum,
    np.maximum: maximum,
    np.fmin: fmin,
    np.fmax: fmax,
    np.bitwise_and: bitwise_and,
    np.bitwise_or: bitwise_or,
    np.bitwise_xor: bitwise_xor,
    np.logical_and: logical_and,
    np.logical_or: logical_or,
    np.logical_xor: logical_xor,
}
_BY_NAME = {ufunc.__name__: ready for ufunc, ready in _UFUNCS.items()}


def as_operator(op: object, dtype: DTypeLike, argument: str = "op") -> Operator:
    """Return the operator on `dtype` that `op` stands for.

    Parameters
    ----------
    op : Operator, numpy.ufunc or str
        An operator on `dtype`; one of NumPy's associative and commutative ufuncs; or a C expression of `a` and `b`
        that is known, such as ``"max(a, b)"``.
    dtype : dtype-like
        Type of the bins.
    argument : str
        What to call `op` in an error.

    Raises
    ------
    TypeError
        If `op` stands for no operator on `dtype`.
    """
    found = supported_dtype(dtype)
    if isinstance(op, Operator):
        if op.dtype != found:
            raise TypeError(f"{argument}: expected an operator on {found}, got one on {op.dtype} ({op.name})")
        return op
    ready = _UFUNCS.get(op) if isinstance(op, np.ufunc) else None
    if isinstance(op, str):
        ready = _BY_NAME.get(recognise(op, found) or "")
    if ready is None:
        names = ", ".join(f"np.{name}" for name in _BY_NAME)
        raise TypeError(
            f"{argument}: expected a clhist.Operator, a C expression of a and b that is known, or one of "
            f"{names}; got {op!r}. Others are written as clhist.Operator(dtype, combine, neutral)"
        )
    try:
        return ready(found)
    except TypeError as error:
        raise TypeError(f"{argument}: {error}") from error


def _logical(dtype: DTypeLike, combine: str, neutral: int, name: str) -> Operator:
    found = _real(dtype)
    return Operator(found, combine, neutral, name, accumulator=np.uint32, lift="v != 0", finish="a != 0")


def _arg(name: str, dtype: DTypeLike, index_dtype: DTypeLike, better: str) -> Operator:
    value = _real(dtype)
    index = _integer(index_dtype, "index_dtype")
    worst = _smallest(value) if better == ">" else _largest(value)
    same = "a.value == b.value"
    wins = f"b.value {better} a.value"
    if value.kind == "f":
        a_nan, b_nan = "a.value != a.value", "b.value != b.value"  # PoCL's isnan is slow
        same = f"({same} || ({a_nan} && {b_nan}))"
        wins = f"(a.value == a.value && ({wins} || {b_nan}))"
    pair = np.dtype([("value", value), ("index", index)], align=True)
    return Operator(pair, f"({wins} || ({same} && b.index < a.index)) ? b : a", (worst, np.iinfo(index).max), name)


def _largest(dtype: np.dtype) -> object:
    return np.inf if dtype.kind == "f" else True if dtype.kind == "b" else np.iinfo(dtype).max


def _smallest(dtype: np.dtype) -> object:
    return -np.inf if dtype.kind == "f" else False if dtype.kind == "b" else np.iinfo(dtype).min


def _number(dtype: DTypeLike) -> np.dtype:
    return _of_kind(dtype, "biufc", "a number", "dtype")


def _real(dtype: DTypeLike) -> np.dtype:
    return _of_kind(dtype, "biuf", "an integer or a float", "dtype")


def _integer(dtype: DTypeLike, argument: str = "dtype") -> np.dtype:
    return _of_kind(dtype, "biu", "an integer", argument)


def _of_kind(dtype: DTypeLike, kinds: str, expected: str, argument: str) -> np.dtype:
    found = supported_dtype(dtype, argument)
    if found.kind not in kinds:
        raise TypeError(f"{argument}: expected {expected}, got {found}")
    return found
