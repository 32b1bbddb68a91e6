"""The operators that devices are tested with, each with input for it and with what its bins should hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache, partial, reduce
from math import gcd, sqrt
from operator import itemgetter, xor
from typing import Any

import numpy as np
import pyopencl as cl

from clhist import HistogramKernel, Operator, Profile, operators
from clhist._core.model.updates import available_updates
from clhist._core.opencl.device import device_features
from clhist.selftest.reference import (
    Group,
    Rational,
    assert_close,
    assert_same,
    exact_product,
    exact_sum,
    groups_of,
    nearest,
    product_bound,
    same_as,
    sum_bound,
)

NUM_ELEMENTS = 3001
NUM_BINS = 37


@dataclass(frozen=True)
class Case:
    """One operator and how to test it.

    Attributes
    ----------
    operator : Operator
        The operator.
    draw : callable
        Draws n random values.
    fold : callable
        Gives what a bin should hold, of the values that it gets; with a bound None for NaN.
    bound : callable, optional
        Gives how far off rounding may leave it. Without one the result is exact.
    """

    operator: Operator
    draw: Callable[[np.random.Generator, int], np.ndarray]
    fold: Callable[[Group], Any]
    bound: Callable[[Group, float], float] | None = None

    def check(self, groups: list[Group]) -> Callable[[np.ndarray], None]:
        """Return the check of a result whose bins get these values."""
        dtype, expected = self.operator.dtype, [self.fold(group) for group in groups]
        if self.bound is None:
            return same_as(np.array(expected, dtype))
        eps = float(np.finfo(dtype).eps)
        numbers = [k for k, number in enumerate(expected) if number is not None]
        bounds = [self.bound(groups[k], eps) for k in numbers]

        def check(result: np.ndarray) -> None:
            # NaN has no error bound, so check first which bins are NaN.
            assert_same(np.isnan(result), np.array([number is None for number in expected], bool))
            if result.dtype != dtype:
                raise AssertionError(f"expected {dtype}, got {result.dtype}")
            assert_close(result[numbers], [expected[k] for k in numbers], bounds)

        return check


def ufunc_case(ufunc: np.ufunc, dtype: Any) -> Case:
    """Return the case of an operator that NumPy has; sums and products of floats are checked against exact ones."""
    dtype = np.dtype(dtype)
    operator = operators.as_operator(ufunc, dtype)
    if dtype.kind in "fc" and ufunc is np.add:
        return Case(operator, partial(random_values, dtype=dtype), exact_sum, sum_bound)
    if dtype.kind in "fc" and ufunc is np.multiply:
        return Case(operator, partial(_near_one, dtype=dtype), exact_product, product_bound)

    def fold(group: Group) -> Any:
        result_dtype = np.bool_ if "logical" in ufunc.__name__ else dtype
        return ufunc.reduce(
            np.array(group, dtype), dtype=result_dtype, initial=neutral_of(ufunc, np.dtype(result_dtype))
        )

    return Case(operator, partial(random_values, dtype=dtype), fold)


def neutral_of(ufunc: np.ufunc, dtype: np.dtype) -> Any:
    """Return the neutral element of `ufunc` on `dtype`."""
    # These ignore NaN, so NaN is their identity element.
    if dtype.kind == "f" and ufunc in (np.fmin, np.fmax):
        return np.nan
    if ufunc in (np.minimum, np.maximum, np.fmin, np.fmax):
        largest = ufunc in (np.minimum, np.fmin)
        if dtype.kind == "b":
            return largest
        if dtype.kind == "f":
            return np.inf if largest else -np.inf
        return np.iinfo(dtype).max if largest else np.iinfo(dtype).min
    return np.bitwise_not(dtype.type(0)) if ufunc is np.bitwise_and else dtype.type(ufunc.identity)


def random_values(rng: np.random.Generator, n: int, dtype: Any) -> np.ndarray:
    """Draw from the whole range of an integer dtype, and floats of very different sizes."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return rng.random(n) < 0.5
    if dtype.kind in "iu":
        return rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, n, dtype, endpoint=True)
    size = 10.0 ** rng.integers(-3, 4, n)
    return (size * (rng.normal(size=n) + (1j * rng.normal(size=n) if dtype.kind == "c" else 0))).astype(dtype)


def _near_one(rng: np.random.Generator, n: int, dtype: np.dtype) -> np.ndarray:
    """Draw factors whose products neither overflow nor vanish."""
    sign = np.exp(2j * np.pi * rng.random(n)) if dtype.kind == "c" else rng.choice([-1, 1], n)
    return (rng.uniform(0.8, 1.25, n) * sign).astype(dtype)


ARGMAX = operators.argmax(np.float32)
ARGMIN = operators.argmin(np.int64, np.int64)
TWO = np.dtype([("first", np.int64), ("second", np.int64)], align=True)
MIXED = operators.product({"bits": operators.bitwise_xor(np.uint16), "product": operators.multiply(np.float64)})
LEAST, LARGEST = int(np.iinfo(np.int64).min), int(np.iinfo(np.int64).max)


def _pairs(rng: np.random.Generator, n: int, dtype: np.dtype) -> np.ndarray:
    """Draw (value, index) with few distinct values, so that ties are common, and all indices different."""
    pairs = np.zeros(n, dtype)
    pairs["value"], pairs["index"] = rng.integers(-3, 4, n), rng.permutation(n)
    return pairs


def _singles(rng: np.random.Generator, n: int) -> np.ndarray:
    # A single value has no second largest, which is the least number then.
    singles = np.full(n, LEAST).repeat(2).view(TWO)
    singles["first"] = random_values(rng, n, np.int64)
    return singles


def _mixed(rng: np.random.Generator, n: int) -> np.ndarray:
    """Draw values of the product above; its floats are powers of two, whose products are exact."""
    values = np.zeros(n, MIXED.dtype)
    values["bits"] = random_values(rng, n, np.uint16)
    values["product"] = rng.choice([0.5, 1, 1, 1, 2, -1], n)
    return values


def _mixed_fold(group: Group) -> tuple[Any, ...]:
    return reduce(xor, (bits for bits, _ in group), 0), float(np.prod([factor for _, factor in group]))


def _positioned(rng: np.random.Generator, n: int, dtype: np.dtype) -> np.ndarray:
    """Draw (value, index) whose indices all differ."""
    pairs = np.zeros(n, dtype)
    pairs["value"], pairs["index"] = random_values(rng, n, dtype["value"]), rng.permutation(n)
    return pairs


def _mean(group: Group) -> Rational | None:
    return (exact_sum(group)[0] / len(group), Fraction(0)) if group else None


def _mean_bound(group: Group, eps: float) -> float:
    return (len(group) + 1) * eps * sum(abs(v) for v in group) / len(group)


def _variance(group: Group) -> Rational | None:
    if not group:
        return None
    numbers = [Fraction(v) for v in group]
    mean = sum(numbers, Fraction(0)) / len(group)
    return sum(((v - mean) ** 2 for v in numbers), Fraction(0)) / len(group), Fraction(0)


def _variance_bound(group: Group, eps: float) -> float:
    """Return n eps times the condition number (Chan, Golub, LeVeque 1983, Table 1), twice, for its lower orders."""
    exact = _variance(group)
    assert exact is not None
    variance, squares = float(exact[0]), float(np.mean(np.square(group)))
    return 2 * len(group) * eps * sqrt(variance * squares)


def _exact(dtype: Any) -> Case:
    """Sums of numbers of all sizes, which are rounded once."""
    info = np.finfo(dtype)

    def draw(rng: np.random.Generator, n: int) -> np.ndarray:
        # Exponents end far below the greatest one, so that no sum overflows.
        with np.errstate(under="ignore"):
            return np.ldexp(rng.normal(size=n), rng.integers(info.minexp - info.nmant, info.maxexp - 20, n)).astype(
                dtype
            )

    def fold(group: Group) -> Any:
        return nearest(sum(map(Fraction, group), Fraction(0)), dtype)

    return Case(operators.reproducible_add(dtype), draw, fold)


FIRST = operators.first(np.float32)

CASES = {
    "add int32": ufunc_case(np.add, np.int32),
    "add uint64": ufunc_case(np.add, np.uint64),
    "add float32": ufunc_case(np.add, np.float32),
    "add float64": ufunc_case(np.add, np.float64),
    "add complex64": ufunc_case(np.add, np.complex64),
    "multiply complex128": ufunc_case(np.multiply, np.complex128),
    "maximum int8": ufunc_case(np.maximum, np.int8),
    "logical_or bool": ufunc_case(np.logical_or, np.bool_),
    "reproducible_add float32": _exact(np.float32),
    "saturating_add uint8": Case(
        operators.saturating_add(np.uint8, 200),
        lambda rng, n: rng.integers(0, 6, n, np.uint8),
        lambda group: min(200, sum(group)),
    ),
    "gcd int8": Case(
        Operator(
            np.int8,
            "greatest_divisor(a, b)",
            0,
            "gcd",
            preamble="char greatest_divisor(char a, char b) { while (b) { char c = a % b; a = b; b = c; } return a; }",
            samples=np.arange(0, 121, 12).astype(np.int8),  # of negative numbers the sign depends on the order
        ),
        lambda rng, n: (12 * rng.integers(1, 11, n)).astype(np.int8),
        lambda group: gcd(*group),
    ),
    "argmax float32": Case(
        ARGMAX,
        partial(_pairs, dtype=ARGMAX.dtype),
        lambda group: max(group, key=lambda pair: (pair[0], -pair[1]), default=(-np.inf, 2**31 - 1)),
    ),
    "argmin int64": Case(ARGMIN, partial(_pairs, dtype=ARGMIN.dtype), partial(min, default=(LARGEST, LARGEST))),
    "two largest": Case(
        Operator(
            TWO,
            "(value_t){max(a.first, b.first), max(min(a.first, b.first), max(a.second, b.second))}",
            (LEAST, LEAST),
            "two_largest",
        ),
        _singles,
        lambda group: tuple(sorted((LEAST, LEAST, *(first for first, _ in group)), reverse=True)[:2]),
    ),
}


# Operators of several parts, or with several forms.
PRODUCTS = {
    "first float32": Case(
        FIRST, partial(_positioned, dtype=FIRST.dtype), partial(min, key=itemgetter(1), default=(0, 2**31 - 1))
    ),
    "mixed product": Case(MIXED, _mixed, _mixed_fold),
    "mean float32": Case(operators.mean(np.float32), partial(random_values, dtype=np.float32), _mean, _mean_bound),
    "variance float64": Case(
        operators.variance(np.float64), partial(random_values, dtype=np.float64), _variance, _variance_bound
    ),
}


def _with_nan(case: Case) -> Case:
    def draw(rng: np.random.Generator, n: int) -> np.ndarray:
        return np.where(rng.random(n) < 0.02, case.operator.dtype.type(np.nan), case.draw(rng, n))

    return replace(case, draw=draw)


# For `clhist selftest`, so that every type is there, and NaN.
MORE = {
    "add int8": ufunc_case(np.add, np.int8),
    "add uint8": ufunc_case(np.add, np.uint8),
    "add int16": ufunc_case(np.add, np.int16),
    "add uint16": ufunc_case(np.add, np.uint16),
    "add uint32": ufunc_case(np.add, np.uint32),
    "add int64": ufunc_case(np.add, np.int64),
    "add float16": ufunc_case(np.add, np.float16),
    "maximum float16": _with_nan(ufunc_case(np.maximum, np.float16)),
    "reproducible_add float16": _exact(np.float16),
    "maximum float32": _with_nan(ufunc_case(np.maximum, np.float32)),
    "fmin float32": _with_nan(ufunc_case(np.fmin, np.float32)),
    "fmin float64": _with_nan(ufunc_case(np.fmin, np.float64)),
}


@lru_cache(maxsize=64)
def problem(name: str) -> tuple[np.ndarray, np.ndarray, Callable[[np.ndarray], None]]:
    """Return bins, some of which do not exist, values for them, and the check of their histogram."""
    rng = np.random.default_rng(len(name))
    # A skewed distribution that reaches from below the first bin to behind the last one.
    bins = (1.2 * NUM_BINS * rng.beta(1, 3, NUM_ELEMENTS) - 2).astype(np.int32)
    case = (CASES | PRODUCTS)[name]
    values = case.draw(rng, NUM_ELEMENTS)
    return bins, values, case.check(groups_of(bins, values, NUM_BINS))


def pair_kernel(
    operator: Operator, profile: Profile | None = None, *, index: str = "int", context: cl.Context | None = None
) -> HistogramKernel:
    """Return the kernel of plain (bin, value) pairs, the same source wherever it is used."""
    return HistogramKernel(
        context,
        operator,
        arguments=f"const {index} *bins, const value_t *values",
        map="EMIT(bins[i], values[i])",
        profile=profile,
    )


def is_available(case: Case, update: str, memory: str, queue: cl.CommandQueue) -> bool:
    """Return whether some form of the case's operator can have `update` on the queue's device."""
    forms = [case.operator, *(other.operator for other in case.operator.equivalents)]
    features = device_features(queue.device)
    return any(update in ("private", *available_updates(operator, memory, features)) for operator in forms)
