"""Arithmetic and comparisons of columns as mathematics has them: integers exactly, all else in float64.

A value is a Python number, an array of booleans, integers or floats, or an array of Python's numbers where no dtype
holds the integers. Which of these it is never changes a result.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Operation = Callable[[Any, Any], Any]

_BITS = 1023  # of the largest integer: any such is a float64, too, if rounded
_WHOLE = 1 << 53  # up to here float64 has every integer
_IN_FLOATS: dict[Operation, Operation] = {
    operator.add: np.add,
    operator.sub: np.subtract,
    operator.mul: np.multiply,
    operator.floordiv: np.floor_divide,
    operator.mod: np.remainder,
    operator.pow: np.power,
}
_OF_BITS = (operator.and_, operator.or_)


class DifferentRows(Exception):
    """An operation of integers has integers as its results in some rows only: these are computed by themselves.

    Attributes
    ----------
    in_floats : array of bool
        The other rows, which are computed in float64.
    """

    def __init__(self, in_floats: Array) -> None:
        super().__init__(in_floats)
        self.in_floats = in_floats


def combined(op: Operation, a: Any, b: Any) -> Any:
    """Return `a` op `b` for +, -, *, //, % and ** (of `operator`), element by element.

    Integers give integers, but for a division by zero and a negative power, which are those of float64.

    Raises
    ------
    OverflowError
        If an integer has more than 1,023 bits.
    DifferentRows
        If only some rows divide by zero, or have a negative power.
    """
    a, b = _number(a), _number(b)
    if not isinstance(a, np.ndarray) and not isinstance(b, np.ndarray):
        return _one(op, a, b)
    if _is_float(a) or _is_float(b):
        return _IN_FLOATS[op](as_float(a), as_float(b))
    in_floats = np.asarray(_is_in_floats(op, b), bool)
    # An array has one type, but integers must stay exact in the rows that have them.
    if in_floats.any() and not in_floats.all():
        raise DifferentRows(in_floats)
    if in_floats.any():
        return _IN_FLOATS[op](as_float(a), as_float(b))
    return _of_integers(op, a, b)


def divided(a: Any, b: Any) -> Any:
    """Return `a` / `b` in float64."""
    return np.true_divide(as_float(a), as_float(b))


def negated(a: Any) -> Any:
    """Return -`a`."""
    a = _number(a)
    return np.negative(a) if _is_float(a) else combined(operator.sub, 0, a)


def absolute(a: Any) -> Any:
    """Return the absolute value of `a`."""
    a = _number(a)
    if not isinstance(a, np.ndarray) or _is_mixed(a) or _is_float(a):
        return np.abs(a) if isinstance(a, np.ndarray) else abs(a)
    # The absolute value of the least int64 needs a wider type.
    low, high = _extent(a)
    return np.abs(_cast(a, _holding(low, high, -low)))


def bits(op: Operation, a: Any, b: Any) -> Any:
    """Return `a` & `b` or `a` | `b` (`operator.and_`, `operator.or_`): of conditions, or of the bits of integers.

    Raises
    ------
    TypeError
        If there are floats.
    """
    assert op in _OF_BITS
    if is_condition(a) and is_condition(b):
        return op(np.asarray(a), np.asarray(b))
    a, b = _number(a), _number(b)
    if _is_float(a) or _is_float(b):
        raise TypeError("expected integers or comparisons")
    if not isinstance(a, np.ndarray) and not isinstance(b, np.ndarray):
        return op(a, b)
    dtype = _holding(*_extent(a), *_extent(b))
    return op(_cast(a, dtype), _cast(b, dtype))


def compared(op: Operation, a: Any, b: Any) -> Any:
    """Return `a` op `b` for the comparisons of `operator`: numbers are never rounded to be compared, except that a
    fraction beside a float32 or float16 is taken in its dtype, as NumPy takes it."""
    a, b = _number(a), _number(b)
    if not isinstance(a, np.ndarray) and not isinstance(b, np.ndarray):
        return op(a, b)
    if _is_mixed(a) or _is_mixed(b):
        return np.asarray(op(_mixed(a), _mixed(b)), bool)
    if _is_float(a) and _is_float(b):
        return op(*_floats(a, b))
    if not _is_float(a) and not _is_float(b):
        return _compared_integers(op, a, b)
    return _compared_to_integers(op, a, b)


def is_true(a: Any) -> Any:
    """Return which elements are not zero."""
    return a if is_condition(a) else compared(operator.ne, a, 0)


def as_float(a: Any) -> Any:
    """Return `a` in float64."""
    a = _number(a)
    return a.astype(np.float64, copy=False) if isinstance(a, np.ndarray) else np.float64(a)


def is_condition(a: Any) -> bool:
    """Whether `a` is true or false rather than a number."""
    return isinstance(a, bool | np.bool_) or (isinstance(a, np.ndarray) and a.dtype == np.bool_)


def _one(op: Operation, a: Any, b: Any) -> Any:
    """Return the result of Python's numbers."""
    if isinstance(a, float) or isinstance(b, float) or _is_in_floats(op, b):
        return float(_IN_FLOATS[op](np.float64(a), np.float64(b)))
    # Refuse a large power before it is computed, which could take all memory.
    if op is operator.pow and abs(a) > 1 and (abs(a).bit_length() - 1) * b > _BITS:
        raise OverflowError
    result = op(a, b)
    if result.bit_length() > _BITS:
        raise OverflowError
    return result


def _is_in_floats(op: Operation, b: Any) -> Any:
    """Return where an operation of integers has no integer as its result."""
    if op in (operator.floordiv, operator.mod):
        return b == 0
    return b < 0 if op is operator.pow else False


def _of_integers(op: Operation, a: Any, b: Any) -> Any:
    for extent in (_extent_of_dtype, _extent):  # the second looks at the data
        of_a, of_b = extent(a), extent(b)
        dtype = _holding(*of_a, *of_b, *_extent_of_result(op, of_a, of_b))
        # All results lie in the extent, so fixed-width arithmetic cannot overflow.
        if not dtype.hasobject:
            return _IN_FLOATS[op](_cast(a, dtype), _cast(b, dtype))
    return np.frompyfunc(partial(_one, op), 2, 1)(_mixed(a), _mixed(b))


def _extent_of_result(op: Operation, a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    """Return integers between which all results lie."""
    most_a, most_b = max(map(abs, a)), max(map(abs, b))
    if op is operator.floordiv:
        most = most_a
    elif op is operator.mod:
        most = most_b
    elif op is operator.pow:
        # 2**64 has no dtype; a power beyond it may be too large to compute.
        most = 2**64 if most_a > 1 and most_a.bit_length() * b[1] > 128 else max(1, most_a ** max(0, b[1]))
    else:
        # Sums, differences and products are extreme at the ends of both operands.
        ends = [op(x, y) for x in a for y in b]
        return min(ends), max(ends)
    # Operands of 0 or more give no negative result.
    return (0 if a[0] >= 0 and b[0] >= 0 else -most), most


def _compared_integers(op: Operation, a: Any, b: Any) -> Any:
    of_a, of_b = _extent_of_dtype(a), _extent_of_dtype(b)
    # Disjoint ranges: all comparisons have the same result, as with a constant beyond the dtype.
    if of_a[1] < of_b[0] or of_a[0] > of_b[1]:
        return np.full(np.broadcast(a, b).shape, op(of_a[0], of_b[0]))
    if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray):
        dtype = (a if isinstance(a, np.ndarray) else b).dtype
        return op(_cast(a, dtype), _cast(b, dtype))
    dtype = np.result_type(a, b)
    if dtype.kind == "f":  # uint64 and a signed one
        dtype = _holding(*_extent(a), *_extent(b))
    return op(_cast(a, dtype), _cast(b, dtype))


def _compared_to_integers(op: Operation, a: Any, b: Any) -> Any:
    """Compare integers with floats."""
    floats, integers = (a, b) if _is_float(a) else (b, a)
    # An integer that the floats' dtype has exactly needs no conversion of the array.
    if isinstance(floats, np.ndarray) and not isinstance(integers, np.ndarray):
        there = floats.dtype.type(float(integers))
        if np.isfinite(there) and int(there) == integers:
            return op(floats, there) if floats is a else op(there, floats)
    x, y = as_float(a), as_float(b)
    result = np.array(op(x, y), bool, ndmin=1)
    if max(map(abs, _extent_of_dtype(integers))) > _WHOLE:
        # Rounding keeps the order, so that only numbers that became equal may differ.
        equal = np.broadcast_to(np.asarray(x == y) & (np.abs(x) >= _WHOLE), result.shape)
        if equal.any():
            a, b = (np.broadcast_to(values, result.shape)[equal] for values in (_mixed(a), _mixed(b)))
            result[equal] = op(a, b)
    return result


def _floats(a: Any, b: Any) -> tuple[Any, Any]:
    """Return floats as they are compared: a fraction beside an array in its dtype, if that has numbers near it."""
    for constant, array in ((a, b), (b, a)):
        if not isinstance(array, np.ndarray) or isinstance(constant, np.ndarray):
            continue
        info = np.finfo(array.dtype)
        if not constant.is_integer() and float(info.tiny) <= abs(constant) <= float(info.max):
            there = array.dtype.type(constant)
            return (there, array) if constant is a else (array, there)
    return as_float(a), as_float(b)


def _number(a: Any) -> Any:
    if isinstance(a, bool | np.bool_):
        return int(a)
    if isinstance(a, np.generic):
        return a.item()
    if isinstance(a, np.ndarray):
        return a.view(np.uint8) if a.dtype == np.bool_ else a
    if isinstance(a, int) and a.bit_length() > _BITS:
        raise OverflowError
    return a


def _is_float(a: Any) -> bool:
    return (
        isinstance(a, float)
        or (isinstance(a, np.ndarray) and a.dtype.kind == "f")
        or (_is_mixed(a) and any(isinstance(value, float) for value in a.flat))
    )


def _is_mixed(a: Any) -> bool:
    return isinstance(a, np.ndarray) and a.dtype == object


def _mixed(a: Any) -> Any:
    return np.asarray(a, dtype=object)


def _extent_of_dtype(a: Any) -> tuple[int, int]:
    """Return integers between which those of `a` lie, without a look at them if it is an array."""
    if not isinstance(a, np.ndarray):
        return a, a
    if a.dtype == object:
        return _extent(a)
    info = np.iinfo(a.dtype)
    return int(info.min), int(info.max)


def _extent(a: Any) -> tuple[int, int]:
    """Return the least and the greatest of integers."""
    if not isinstance(a, np.ndarray):
        return a, a
    return (int(a.min()), int(a.max())) if a.size else (0, 0)


def _holding(*integers: int) -> np.dtype:
    low, high = min(integers), max(integers)
    for dtype in (np.int64, np.uint64):
        info = np.iinfo(dtype)
        if info.min <= low and high <= info.max:
            return np.dtype(dtype)
    return np.dtype(object)


def _cast(a: Any, dtype: np.dtype) -> Any:
    return a.astype(dtype, copy=False) if isinstance(a, np.ndarray) else np.asarray(a, dtype)
