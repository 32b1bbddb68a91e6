"""Means, variances and standard deviations."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clhist.operators import host
from clhist.operators.arithmetic import add, product
from clhist.operators.c_types import c_name, dtype_of_kind, float_dtype, literal
from clhist.operators.operator import Operator

if TYPE_CHECKING:
    from numpy.typing import DTypeLike


def mean(dtype: DTypeLike, accumulator: DTypeLike = np.float64) -> Operator:
    """The mean of the values, NaN for empty bins; sum and count are updated by separate atomics.

    Parameters
    ----------
    dtype : dtype-like
        A float or a complex number: type of the values and of the result.
    accumulator : dtype-like
        Type of the sum. A device without double precision needs float32, which is accurate for thousands of values per
        bin, not for millions.

    Notes
    -----
    A `dest` counts as one value per bin; pass a shape instead to start from the identity element.

    Examples
    --------
    >>> operator = clhist.operators.mean(np.float32)
    >>> clhist.reduce_by_index(2, operator, [0, 0, 1], np.array([3, 1, 2], np.float32))
    array([2., 2.], dtype=float32)
    """
    value_dtype, accumulator_dtype = (
        dtype_of_kind(dtype, "fc", "a float or a complex number", "dtype"),
        float_dtype(accumulator, "accumulator"),
    )
    number = add(np.uint64)
    if value_dtype.kind == "c":
        # OpenCL converts vectors by functions only, and the divisor must have the type of their components.
        sums, convert = np.dtype(f"c{2 * accumulator_dtype.itemsize}"), f"convert_{c_name(value_dtype)}"
        lift, finish = (
            f"(accumulator_t){{convert_{c_name(sums)}(v), 1}}",
            f"{convert}(a.sum / ({c_name(accumulator_dtype)})a.number)",
        )
        means = product({"sum": add(sums), "number": number}, value_dtype, lift=lift, finish=finish, name="mean")
    else:
        parts = {"sum": add(accumulator_dtype), "number": number}
        means = product(parts, value_dtype, lift="(accumulator_t){v, 1}", finish="a.sum / a.number", name="mean")
    return means.changed(host=partial(host.mean))


class SumAndNumber(NamedTuple):
    """The two operators that a mean consists of."""

    sum: Operator
    number: Operator


@lru_cache(maxsize=64)
def sum_and_number(operator: Operator) -> SumAndNumber | None:
    """Return the sum and the number that `operator` consists of if it is a `mean`, else None."""
    fields = operator.accumulator
    if operator.name != "mean" or fields.names != ("sum", "number"):
        return None
    dtype, sums = operator.dtype, fields["sum"]
    # A custom operator may be called "mean", too.
    if operator != mean(dtype, f"f{sums.itemsize // 2}" if sums.kind == "c" else sums):
        return None
    return SumAndNumber(add(sums), add(np.uint64))


# With so few values, any pivot costs at most as many rounding units.
_FEW = 64


def variance(dtype: DTypeLike, ddof: int = 0, accumulator: DTypeLike = np.float64) -> Operator:
    """The variance of the values, NaN for bins with at most `ddof` of them.

    Parameters
    ----------
    dtype : dtype-like
        float32 or float64: type of the values and of the result.
    ddof : int
        Delta degrees of freedom, as in `numpy.var`.
    accumulator : dtype-like
        Type of the computation; see `mean`.

    Notes
    -----
    A bin holds one of its values as a pivot, and sums of the deviations from it and of their squares, so that an offset
    of all values does not cancel digits. From 64 values on, the pivot moves to the mean whenever their number has
    doubled, so that an outlier does not either. Shared copies need a lock; `product` of sums is faster where the mean
    is small. The relative error is a few rounding units of `accumulator`, and with outliers some hundred.

    Examples
    --------
    >>> operator = clhist.operators.variance(np.float32)
    >>> clhist.reduce_by_index(2, operator, [0, 0, 1], np.array([3, 1, 2], np.float32))
    array([1., 0.], dtype=float32)
    """
    value_dtype, real_dtype = float_dtype(dtype), float_dtype(accumulator, "accumulator")
    if not isinstance(ddof, int | np.integer) or ddof < 0:
        raise ValueError(f"ddof: expected a non-negative integer, got {ddof!r}")
    fields = [("number", np.uint64), *((name, real_dtype) for name in ("pivot", "shift", "squares"))]
    accumulator_dtype = np.dtype(fields, align=True)
    real, function = c_name(real_dtype), f"combine_variances_{real_dtype.name}"
    nan = literal(np.nan, real_dtype)
    return Operator(
        value_dtype,
        f"{function}(a, b)",
        (0, 0, 0, 0),
        "variance",
        accumulator=accumulator_dtype,
        lift="(accumulator_t){1, v, 0, 0}",
        finish=f"{function}_finish(a, {ddof})",
        preamble=f"""accumulator_t {function}_moved(const accumulator_t a, const accumulator_t b)
{{
    // Around the pivot of the side with more values, then around their mean: any value may be an outlier.
    const bool is_less = a.number < b.number;
    const accumulator_t most = is_less ? b : a, few = is_less ? a : b;
    const {real} d = few.number ? few.pivot - most.pivot : 0;
    accumulator_t sum = {{a.number + b.number, most.pivot, most.shift + (few.shift + d * few.number),
        most.squares + (few.squares + d * (2 * few.shift + d * few.number))}};
    sum.pivot += sum.shift / sum.number;
    const {real} moved = sum.pivot - most.pivot;
    sum.squares -= moved * (2 * sum.shift - moved * sum.number);
    sum.shift -= moved * sum.number;
    return sum;
}}
accumulator_t {function}(const accumulator_t a, const accumulator_t b)
{{
    const ulong number = a.number + b.number;
    if ((number ^ a.number) > (a.number | {_FEW - 1}))  // another power of two of values
        return {function}_moved(a, b);
    const {real} pivot = a.number ? a.pivot : b.pivot, d = b.pivot - pivot;
    accumulator_t sum = {{number, pivot, a.shift + (b.shift + d * b.number),
        a.squares + (b.squares + d * (2 * b.shift + d * b.number))}};
    return sum;
}}
{real} {function}_finish(const accumulator_t a, const ulong ddof)
{{
    // NaN of a pivot that is not finite, whose own deviation is 0.
    const {real} sum = a.squares - a.shift * (a.shift / a.number) + (a.pivot - a.pivot);
    return a.number > ddof ? (sum < 0 ? 0 : sum) / (a.number - ddof) : {nan};
}}""",
        verified=True,
    ).changed(host=partial(host.variance, int(ddof), False))


def standard_deviation(dtype: DTypeLike, ddof: int = 0, accumulator: DTypeLike = np.float64) -> Operator:
    """The square root of `variance`, with its parameters.

    Examples
    --------
    >>> operator = clhist.operators.standard_deviation(np.float32)
    >>> clhist.reduce_by_index(2, operator, [0, 0, 1], np.array([3, 1, 2], np.float32))
    array([1., 0.], dtype=float32)
    """
    root = with_finish(variance(dtype, ddof, accumulator), "sqrt({})", "standard_deviation")
    return root.changed(host=partial(host.variance, int(ddof), True))


def with_finish(operator: Operator, finish: str, name: str) -> Operator:
    """Return `operator`, lifted forms included, with the C expression `finish` of its result, written as ``{}``."""
    # Each form finishes its own accumulator: the new expression goes around all of them.
    lifted = tuple(form._replace(operator=with_finish(form.operator, finish, name)) for form in operator.equivalents)
    finished = finish.format(f"({operator.finish})")
    return operator.changed(finish=finished, name=name, equivalents=lifted, host=None)
