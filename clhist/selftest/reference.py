"""References: histograms by brute force on the host, and comparison with them. Nothing here uses clhist."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from math import hypot, lcm
from typing import Any

import numpy as np

Group = list[Any]  # the values of one bin, as Python's own numbers
Rational = tuple[Fraction, Fraction]  # a complex number without error


def groups_of(bins: np.ndarray, values: Sequence[Any] | np.ndarray, num_bins: int) -> list[Group]:
    """Return the values of each bin; those of bins that do not exist are dropped."""
    groups: list[Group] = [[] for _ in range(num_bins)]
    listed = values.tolist() if isinstance(values, np.ndarray) else values
    for k, value in zip(bins.tolist(), listed, strict=True):
        if 0 <= k < num_bins:
            groups[k].append(value)
    return groups


def folded(ufunc: np.ufunc, bins: np.ndarray, values: Any, start: np.ndarray) -> np.ndarray:
    """Return the result of NumPy's `ufunc` on `start` and the values of each bin; for values exact in any order."""
    result = start.copy()
    inside = (bins >= 0) & (bins < len(start))
    with np.errstate(invalid="ignore"):  # NaN
        ufunc.at(result, bins[inside], values[inside] if np.ndim(values) else values)
    return result


def counts_of(bins: np.ndarray, num_bins: int) -> np.ndarray:
    """Return how many of `bins` are each of [0, num_bins)."""
    inside = bins[(bins >= 0) & (bins < num_bins)]
    return np.bincount(inside.astype(np.intp), minlength=num_bins)


def exact(value: complex | Fraction) -> Rational:
    """Return `value` as a rational number, with its imaginary part."""
    return Fraction(value.real), Fraction(value.imag)


def exact_sum(group: Group) -> Rational:
    """Return the sum of the values without any rounding."""
    return _total([v.real for v in group]), _total([v.imag for v in group])


def _total(numbers: Sequence[float | Fraction]) -> Fraction:
    """Return the sum of numbers as integers over their common denominator: sums of fractions are reduced each time."""
    ratios = [v.as_integer_ratio() for v in numbers]
    common = lcm(*{below for _, below in ratios})
    return Fraction(sum(above * (common // below) for above, below in ratios), common)


def nearest(number: Fraction, dtype: Any) -> Any:
    """Return the float of `dtype` nearest to a rational number, of two the even one; +0 of 0."""
    info, dtype = np.finfo(dtype), np.dtype(dtype).type
    if number == 0:
        return dtype(0)
    unit = Fraction(2) ** (info.minexp - info.nmant)  # of subnormal numbers
    # Bits beyond those of the significand make the unit larger: that of the last place.
    excess = int(abs(number) / unit).bit_length() - (info.nmant + 1)
    unit *= 1 << max(0, excess)
    rounded = round(number / unit) * unit  # Python rounds half to even
    # Rounded beyond the largest float, a number is infinite.
    with np.errstate(over="ignore"):
        return (
            dtype(np.copysign(np.inf, float(number > 0) - 0.5))
            if abs(rounded) > Fraction(float(info.max))
            else dtype(rounded)
        )


def exact_product(group: Group) -> Rational:
    """Return the product of the values without any rounding."""
    real, imag, scale = 1, 0, 1  # whole numbers over one scale: fractions would be reduced at every step
    for a, b in map(exact, group):
        common = max(a.denominator, b.denominator)  # powers of two, as of all floats
        x, y = int(a * common), int(b * common)
        real, imag, scale = real * x - imag * y, real * y + imag * x, scale * common
    return Fraction(real, scale), Fraction(imag, scale)


def sum_bound(group: Group, eps: float) -> float:
    """Return what the rounding of one addition after another, in any order, comes to at most (Higham 2002, 4.2)."""
    return len(group) * eps * sum(abs(v) for v in group)


def product_bound(group: Group, eps: float) -> float:
    """Return the same for products (Higham 2002, sections 3.1 and 3.6: a complex one rounds by less than 1.5 eps)."""
    return 1.5 * len(group) * eps * float(np.prod([abs(v) for v in group]))


def assert_close(result: np.ndarray, expected: Sequence[Rational], bounds: Sequence[float]) -> None:
    """Check that each element lies within its bound of what is expected."""
    pairs = zip(map(exact, result.tolist()), expected, strict=True)
    errors = [hypot(float(got[0] - wanted[0]), float(got[1] - wanted[1])) for got, wanted in pairs]
    wrong = [k for k, (error, bound) in enumerate(zip(errors, bounds, strict=True)) if not error <= bound]
    if wrong:
        raise AssertionError(f"bins {wrong}: errors {[errors[k] for k in wrong]} exceed {[bounds[k] for k in wrong]}")


def same_as(expected: np.ndarray) -> Callable[[np.ndarray], None]:
    """Return the check that a result equals `expected`."""
    return partial(assert_same, expected=expected)


def assert_same(result: np.ndarray, expected: np.ndarray) -> None:
    """Check that both are equal, NaN to NaN, in shape and dtype; one line says what is not."""
    if result.shape != expected.shape or result.dtype != expected.dtype:
        raise AssertionError(
            f"expected shape {expected.shape} of {expected.dtype}, got {result.shape} of {result.dtype}"
        )
    names = result.dtype.names or ()
    parts = [(result[name], expected[name]) for name in names] or [(result, expected)]
    wrong = np.zeros(result.shape, bool)
    for got, wanted in parts:
        wrong |= ~((got == wanted) | ((got != got) & (wanted != wanted)))
    if wrong.any():
        where = tuple(int(k) for k in np.argwhere(wrong)[0])
        bin_number = where[0] if len(where) == 1 else where
        raise AssertionError(
            f"{np.count_nonzero(wrong)} of {wrong.size} bins are wrong, the first {bin_number}: "
            f"expected {expected[where]}, got {result[where]}"
        )
