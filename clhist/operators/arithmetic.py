"""Sums, products, extremes, bitwise and logical operators, saturating and reproducible sums, several side by side."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from clhist.operators import host
from clhist.operators.c_types import (
    c_name,
    float_dtype,
    integer_dtype,
    largest_of,
    literal,
    number_dtype,
    real_dtype,
    same_value,
    smallest_of,
    struct_of,
)
from clhist.operators.halves import number_of
from clhist.operators.operator import Equivalent, Operator

if TYPE_CHECKING:
    from numpy.typing import DTypeLike


@cache
def _lifts() -> Any:
    """Return the module of equivalent forms, which counts and sums do not need."""
    from clhist.operators import equivalents

    return equivalents


@cache
def _fixed_point() -> Any:
    """Return the module of long integers, which exact sums need."""
    from clhist.operators import fixed_point

    return fixed_point


@cache
def _narrow() -> Any:
    """Return the module of exact sums with their narrow forms."""
    from clhist.operators import narrow

    return narrow


def product(
    operators: Mapping[str, Operator],
    dtype: DTypeLike | None = None,
    *,
    lift: str = "",
    finish: str = "",
    name: str = "",
) -> Operator:
    """Several operators side by side, each field updated with its own atomic (SC'20, section IV-D).

    Parameters
    ----------
    operators : mapping of str to Operator
        An operator for each field of the accumulator.
    dtype : dtype-like, optional
        Type of values and results. Defaults to a structured dtype of the operators' own, by the same names.
    lift, finish : str, optional
        C expressions that make the accumulator of a value `v`, and the result of an accumulator `a`, whose fields are
        the accumulators of `operators`. They take the place of the conversions of these. Must be given if `dtype` is no
        structured dtype of these fields.
    name : str, optional
        What to call it.

    Examples
    --------
    >>> add = clhist.operators.add(np.float32)
    >>> spread = clhist.operators.product({"sum": add, "squares": add}, np.float32,
    ...     lift="(accumulator_t){v, v * v}", finish="a.squares - a.sum * a.sum")
    >>> clhist.reduce_by_index(2, spread, np.array([0, 0, 1]), np.array([1.0, 2.0, 3.0], np.float32))
    array([-4.,  0.], dtype=float32)
    """
    if not isinstance(operators, Mapping) or not operators:
        raise TypeError(f"operators: expected a mapping of at least one field to its operator, got {operators!r}")
    for field, operator in operators.items():
        if not isinstance(operator, Operator):
            raise TypeError(f"operators[{field!r}]: expected a clhist.Operator, got {operator!r}")
    if dtype is None:
        dtype = struct_of({field: operator.dtype for field, operator in operators.items()})
    # A product of lifted fields: those without a limit, since one limit would be that of the whole product.
    lifted = {
        field: next((other.operator for other in operator.equivalents if other.most_values is None), operator)
        for field, operator in operators.items()
    }
    better = Operator(dtype, lifted, name=name) if not (lift or finish) and lifted != dict(operators) else ()
    combined = Operator(dtype, operators, name=name, lift=lift, finish=finish, equivalents=better)
    # The host combines fields as they are, without conversions in C.
    return combined if lift or finish else combined.changed(host=host.of_fields(operators))


def add(dtype: DTypeLike) -> Operator:
    """Sums, as `numpy.add`: modulo 2^bits for integers, logical or for booleans; complex ones part by part.

    Examples
    --------
    >>> operator = clhist.operators.add(np.float32)
    >>> clhist.reduce_by_index(2, operator, [0, 0, 1], np.array([3, 1, 2], np.float32))
    array([4., 2.], dtype=float32)
    """
    value_dtype = number_dtype(dtype)
    if value_dtype.kind == "b":
        return logical_or(value_dtype)
    # Where additions of float32 are loops of compare-exchange, exact sums are faster by skew.
    better = []
    if value_dtype == np.float32:
        better.append(Equivalent(_narrow().exact(value_dtype), _fixed_point().MOST_EXACT_VALUES))
    return _by_ufunc(np.add, Operator(value_dtype, "a + b", 0, "add", equivalents=better))


def count(dtype: DTypeLike = np.int64) -> Operator:
    """Sums of ones, held in 32 bits while they are counted: for fewer than 2^32 values and no `dest`.

    Examples
    --------
    >>> operator = clhist.operators.count()
    >>> clhist.reduce_by_index(2, operator, [0, 0, 1], np.array([3, 1, 2], np.int32))
    array([4, 2])
    """
    counts = Operator(integer_dtype(dtype), "a + b", 0, "count", accumulator=np.uint32, most_values=2**32 - 1)
    return _by_ufunc(np.add, counts)


def reproducible_add(
    dtype: DTypeLike, max_abs: float | None = None, *, bits: int | None = None, count: int | None = None
) -> Operator:
    """Sums of floats that are bitwise the same in any order, by any plan and on any device.

    Without `max_abs` they are exact: each is the sum of its values as `math.fsum` has it, rounded once to `dtype`,
    whatever the other bins hold. Values are added to long integers that are as wide as the range of `dtype`, subnormal
    numbers included: 10 words of 32 bits for float32 and 67 for float64.

    With `max_abs` a bin takes two to four words. Values are then added as multiples of 2^(e - bits), where 2^e is the
    least power of 16 above `max_abs`, or what makes this multiple the least number of `dtype`, if that is more.
    With n values (and `dest` as one more) the error is at most
    ``n * 2^(e - bits - 1)``, which is at most ``n * max_abs * 2^(3 - bits)``, and that of rounding the sum once.

    Parameters
    ----------
    dtype : dtype-like
        A float. Sums of half precision are of floats, which are rounded once.
    max_abs : float, optional
        Upper bound of ``abs(value)`` over all finite values, `dest` included. One of 2^e or more
        makes its bin NaN; with NumPy arrays the call raises OverflowError.
    bits : int, optional
        32 or 64; defaults to those of `dtype`. Only with `max_abs`.
    count : int, optional
        Upper bound of the values per bin, with `dest`: less than 2^47, by default 2^31 - 1. Only with `max_abs`; exact
        sums take 2^42 - 2 values.

    Raises
    ------
    TypeError
        If `dtype` is no float, `max_abs` is a bool, or `bits` or `count` is given without `max_abs`.
    ValueError
        If `max_abs`, `bits` or `count` is out of range; no `max_abs` is between 0 and the least number of `dtype`.

    Notes
    -----
    A bin with a NaN, or with infinities of both signs, is NaN; with infinities of one sign it is that. Sums of zero are
    +0. A sum is infinite if and only if it is so when rounded: no part of it overflows before. Subnormal numbers are as
    good as others, also on devices that take them for zero.

    With `max_abs` a program is compiled for each power of 16 that occurs: mostly one or two, at most 64 for float32.

    Examples
    --------
    >>> operator = clhist.operators.reproducible_add(np.float64)
    >>> clhist.reduce_by_index(1, operator, [0, 0, 0], np.array([1e16, 1.0, -1e16]))
    array([1.])
    """
    value_dtype = float_dtype(dtype)
    if max_abs is None:
        if bits is not None or count is not None:
            name, value = ("bits", bits) if bits is not None else ("count", count)
            raise TypeError(f"{name}: expected none without max_abs, since the sums are exact; got {value!r}")
        exact_sum: Operator = _narrow().exact(value_dtype)
        return exact_sum
    bits = 8 * number_of(value_dtype).itemsize if bits is None else bits
    count = 2**31 - 1 if count is None else count
    if bits not in (32, 64):
        raise ValueError(f"bits: expected 32 or 64, got {bits!r}")
    # True would pass for the number 1.
    if isinstance(max_abs, bool | np.bool_):
        raise TypeError(f"max_abs: expected a finite number that is not negative, got {max_abs!r}")
    limit = same_value(max_abs, np.dtype(np.float64), "max_abs")
    if not 0 <= limit < np.inf:  # type: ignore[operator]
        raise ValueError(f"max_abs: expected a finite number that is not negative, got {max_abs!r}")
    fixed_point = _fixed_point()
    least = fixed_point.least_of(value_dtype)
    if 0 < limit < least:  # type: ignore[operator]  # no value but 0 is as small: it is meant for another dtype
        raise ValueError(
            f"max_abs: expected 0, or {least:g} or more, the least number of {value_dtype}; got {max_abs!r}"
        )
    if not isinstance(count, int | np.integer) or not 0 < count <= fixed_point.MOST_VALUES:
        raise ValueError(f"count: expected an integer in [1, {fixed_point.MOST_VALUES}], got {count!r}")
    # Rounded up to 2^k - 1, so that similar bounds share an operator.
    count = max(2**31 - 1, 2 ** int(count).bit_length() - 1)
    exponent = fixed_point.exponent_of(float(limit), value_dtype, bits)  # type: ignore[arg-type]
    windowed: Operator = _narrow().window(value_dtype, exponent, bits, count)
    return windowed


def multiply(dtype: DTypeLike) -> Operator:
    """Products, as `numpy.multiply`: modulo 2^bits for integers, logical and for booleans.

    Examples
    --------
    >>> operator = clhist.operators.multiply(np.float32)
    >>> clhist.reduce_by_index(2, operator, [0, 0, 1], np.array([3, 1, 2], np.float32))
    array([3., 2.], dtype=float32)
    """
    value_dtype = number_dtype(dtype)
    if value_dtype.kind == "b":
        return logical_and(value_dtype)
    if value_dtype.kind == "c":
        # OpenCL multiplies two-vectors component by component.
        product = f"({c_name(value_dtype)})(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x)"
        return _by_ufunc(np.multiply, Operator(value_dtype, product, 1, "multiply", verified=True))
    return _by_ufunc(np.multiply, Operator(value_dtype, "a * b", 1, "multiply"))


def minimum(dtype: DTypeLike) -> Operator:
    """Smallest value, as `numpy.minimum`: a NaN makes its bin NaN. Which zero wins, +0 or -0, is not defined.

    Examples
    --------
    >>> operator = clhist.operators.minimum(np.float32)
    >>> clhist.reduce_by_index(2, operator, [0, 0, 1], np.array([3, np.nan, 2], np.float32))
    array([nan,  2.], dtype=float32)
    """
    value_dtype = real_dtype(dtype)
    if number_of(value_dtype).kind == "f":
        # A NaN in b is taken, and one in a stays, since all comparisons with it are false.
        combine, lifted = "b != b ? b : (b < a ? b : a)", _lifts().minimum(value_dtype)
        least = Operator(value_dtype, combine, largest_of(value_dtype), "minimum", equivalents=lifted, verified=True)
    else:
        least = Operator(value_dtype, "min(a, b)", largest_of(value_dtype), "minimum")
    return _by_ufunc(np.minimum, least)


def maximum(dtype: DTypeLike) -> Operator:
    """Largest value, as `numpy.maximum`: a NaN makes its bin NaN. Which zero wins, +0 or -0, is not defined.

    Examples
    --------
    >>> operator = clhist.operators.maximum(np.float32)
    >>> clhist.reduce_by_index(2, operator, [0, 0, 1], np.array([3, np.nan, 2], np.float32))
    array([nan,  2.], dtype=float32)
    """
    value_dtype = real_dtype(dtype)
    if number_of(value_dtype).kind == "f":
        combine, lifted = "b != b ? b : (b > a ? b : a)", _lifts().maximum(value_dtype)
        largest = Operator(value_dtype, combine, smallest_of(value_dtype), "maximum", equivalents=lifted, verified=True)
    else:
        largest = Operator(value_dtype, "max(a, b)", smallest_of(value_dtype), "maximum")
    return _by_ufunc(np.maximum, largest)


def fmin(dtype: DTypeLike) -> Operator:
    """Smallest value that is not NaN, as `numpy.fmin`; a bin that gets none holds NaN, if its type has it.

    Examples
    --------
    >>> operator = clhist.operators.fmin(np.float32)
    >>> clhist.reduce_by_index(2, operator, [0, 0, 1], np.array([3, np.nan, 2], np.float32))
    array([3., 2.], dtype=float32)
    """
    value_dtype = real_dtype(dtype)
    if number_of(value_dtype).kind != "f":
        return minimum(value_dtype)
    return _by_ufunc(
        np.fmin, Operator(value_dtype, "fmin(a, b)", np.nan, "fmin", equivalents=_lifts().fmin(value_dtype))
    )


def fmax(dtype: DTypeLike) -> Operator:
    """Largest value that is not NaN, as `numpy.fmax`; a bin that gets none holds NaN, if its type has it.

    Examples
    --------
    >>> operator = clhist.operators.fmax(np.float32)
    >>> clhist.reduce_by_index(2, operator, [0, 0, 1], np.array([3, np.nan, 2], np.float32))
    array([3., 2.], dtype=float32)
    """
    value_dtype = real_dtype(dtype)
    if number_of(value_dtype).kind != "f":
        return maximum(value_dtype)
    return _by_ufunc(
        np.fmax, Operator(value_dtype, "fmax(a, b)", np.nan, "fmax", equivalents=_lifts().fmax(value_dtype))
    )


def bitwise_and(dtype: DTypeLike) -> Operator:
    """Bits that all values have, as `numpy.bitwise_and`.

    Examples
    --------
    >>> operator = clhist.operators.bitwise_and(np.int32)
    >>> clhist.reduce_by_index(2, operator, [0, 0, 1], np.array([3, 1, 2], np.int32))
    array([1, 2], dtype=int32)
    """
    value_dtype = integer_dtype(dtype)
    if value_dtype.kind == "b":
        return logical_and(value_dtype)
    all_bits = -1 if value_dtype.kind == "i" else np.iinfo(value_dtype).max
    return _by_ufunc(np.bitwise_and, Operator(value_dtype, "a & b", all_bits, "bitwise_and"))


def bitwise_or(dtype: DTypeLike) -> Operator:
    """Bits that any value has, as `numpy.bitwise_or`.

    Examples
    --------
    >>> operator = clhist.operators.bitwise_or(np.int32)
    >>> clhist.reduce_by_index(2, operator, [0, 0, 1], np.array([3, 1, 2], np.int32))
    array([3, 2], dtype=int32)
    """
    value_dtype = integer_dtype(dtype)
    if value_dtype.kind == "b":
        return logical_or(value_dtype)
    return _by_ufunc(np.bitwise_or, Operator(value_dtype, "a | b", 0, "bitwise_or"))


def bitwise_xor(dtype: DTypeLike) -> Operator:
    """Bits that an odd number of values has, as `numpy.bitwise_xor`.

    Examples
    --------
    >>> operator = clhist.operators.bitwise_xor(np.int32)
    >>> clhist.reduce_by_index(2, operator, [0, 0, 1], np.array([3, 1, 2], np.int32))
    array([2, 2], dtype=int32)
    """
    value_dtype = integer_dtype(dtype)
    if value_dtype.kind == "b":
        return logical_xor(value_dtype)
    return _by_ufunc(np.bitwise_xor, Operator(value_dtype, "a ^ b", 0, "bitwise_xor"))


def logical_and(dtype: DTypeLike = np.bool_) -> Operator:
    """Whether all values are non-zero, as 0 or 1 of `dtype` (`dest` counts as a value of every bin).

    Examples
    --------
    >>> operator = clhist.operators.logical_and()
    >>> clhist.reduce_by_index(2, operator, [0, 0, 1], np.array([True, False, True]))
    array([False,  True])
    """
    return _logical(dtype, "a & b", 1, "logical_and")


def logical_or(dtype: DTypeLike = np.bool_) -> Operator:
    """Whether any value is non-zero, as 0 or 1 of `dtype` (`dest` counts as a value of every bin).

    Examples
    --------
    >>> operator = clhist.operators.logical_or()
    >>> clhist.reduce_by_index(2, operator, [0, 0, 1], np.array([True, False, True]))
    array([ True,  True])
    """
    return _logical(dtype, "a | b", 0, "logical_or")


def logical_xor(dtype: DTypeLike = np.bool_) -> Operator:
    """Whether an odd number of values is non-zero, as 0 or 1 of `dtype` (`dest` counts as a value of every bin).

    Examples
    --------
    >>> operator = clhist.operators.logical_xor()
    >>> clhist.reduce_by_index(2, operator, [0, 0, 1], np.array([True, False, True]))
    array([ True,  True])
    """
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

    Examples
    --------
    >>> operator = clhist.operators.saturating_add(np.int32, 3)
    >>> clhist.reduce_by_index(2, operator, [0, 0, 1], np.array([3, 1, 2], np.int32))
    array([3, 2], dtype=int32)
    """
    value_dtype = real_dtype(dtype)
    if value_dtype.kind == "b":
        raise TypeError("dtype: expected an integer or a float for saturating_add, got bool")
    limit = literal(same_value(maximum, value_dtype, "maximum"), value_dtype)
    if not maximum > 0:
        raise ValueError(f"maximum: expected a positive number, got {maximum!r}")
    # Written so that nothing can wrap: a + b is formed only where it stays within the limit.
    combine = f"(b >= {limit} || a >= {limit} - b) ? {limit} : ({c_name(value_dtype)})(a + b)"
    exact = _lifts().exact_sums(value_dtype, int(maximum)) if value_dtype.kind in "iu" else ()
    return Operator(value_dtype, combine, 0, "saturating_add", equivalents=exact, verified=True)


def _logical(dtype: DTypeLike, combine: str, neutral: int, name: str) -> Operator:
    value_dtype = real_dtype(dtype)
    # Lifted values are 0 or 1, of which the neutral element is the identity.
    lifted = {"accumulator": np.uint32, "lift": "v != 0", "finish": "a != 0"}
    operator = Operator(value_dtype, combine, neutral, name, verified=True, **lifted)  # type: ignore[arg-type]
    return operator.changed(host=partial(host.by_logic, getattr(np, name)))


def _by_ufunc(ufunc: np.ufunc, operator: Operator) -> Operator:
    return operator.changed(host=partial(host.by_ufunc, ufunc))
