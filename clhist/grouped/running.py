"""Running sums, products and extremes of groups: the operators that are combined along a group. Pure."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clhist.operators.c_types import c_name, literal

RUNNING = {"cumsum": "sum", "cumprod": "prod", "cummin": "min", "cummax": "max"}
"""By name the statistic that is computed up to each element."""


# Not a double2: where its parts are stored one by one, to load both at once waits for the stores.
_LONG_SUM = """typedef struct { double x, y; } clhist_long_t;
clhist_long_t clhist_long_sum(const clhist_long_t a, const clhist_long_t b)
{
    const double sum = a.x + b.x, rest = sum - a.x;
    // The errors of `a` come last: they are what the next sum waits for.
    return (clhist_long_t){sum, (a.x - (sum - rest)) + (b.x - rest) + b.y + a.y};
}
"""


class Running(NamedTuple):
    """The operator that is combined along a group.

    Attributes
    ----------
    dtype : numpy.dtype
        Type of the values, with booleans as bytes.
    accumulator, result : numpy.dtype
        Types of the accumulators and of the results. Accumulators of compensated sums are pairs (complex128): a sum
        and its rounding errors.
    combine : str
        C expression that combines `a`, the elements before, with `b`.
    neutral : str
        Identity element, in C.
    missing : str
        C condition on which the value ``{v}`` is left out; empty if none is.
    none : str
        Result of an element that is left out, or in no group, in C.
    ufunc : numpy.ufunc
        Combines them on the host.
    """

    dtype: np.dtype
    accumulator: np.dtype
    result: np.dtype
    combine: str
    neutral: str
    missing: str
    none: str
    ufunc: np.ufunc

    @property
    def is_compensated(self) -> bool:
        """Whether rounding errors are summed as well: for float64, which has no wider type."""
        return self.accumulator.kind == "c"

    @property
    def ufunc_dtype(self) -> np.dtype:
        """The dtype in which the host combines values."""
        return self.result if self.is_compensated else self.accumulator

    def item(self, value: str) -> str:
        """Return C of a value as an accumulator."""
        return f"(clhist_long_t){{{value}, 0}}" if self.is_compensated else f"({self.c_type})({value})"

    def result_of(self, item: str) -> str:
        """Return C of an accumulator as a result; an infinite sum has no rounding errors."""
        if self.is_compensated:
            return f"({item}.y == {item}.y ? {item}.x + {item}.y : {item}.x)"
        return f"({c_name(self.result)}){item}"

    @property
    def c_type(self) -> str:
        """C of the type of accumulators."""
        return "clhist_long_t" if self.is_compensated else c_name(self.accumulator)

    @property
    def preamble(self) -> str:
        """C that `combine` needs."""
        return _LONG_SUM if self.is_compensated else ""


def running(name: str, dtype: np.dtype, result: np.dtype, real: np.dtype, missing: str, none: str) -> Running:
    """Return what cumsum, cumprod, cummin and cummax combine."""
    ufunc = {"cumsum": np.add, "cumprod": np.multiply, "cummin": np.minimum, "cummax": np.maximum}[name]
    # No type is wider than float64, so its rounding errors are summed beside it.
    if name == "cumsum" and result == real == np.float64:
        pair = np.dtype(np.complex128)
        return Running(dtype, pair, result, "clhist_long_sum(a, b)", "0", missing, none, ufunc)
    if name in ("cumsum", "cumprod"):
        # Floats accumulate in the widest type of the device; integers wrap in that of the result.
        accumulator = real if result.kind == "f" else result
        combine, neutral = ("a + b", "0") if name == "cumsum" else ("a * b", "1")
        return Running(dtype, accumulator, result, combine, neutral, missing, none, ufunc)
    sign, is_float = "<" if name == "cummin" else ">", dtype.kind == "f"
    # The identity element: an infinity, or the extreme of the integers.
    limit = (np.inf if name == "cummin" else -np.inf) if is_float else None
    if limit is None:
        limit = getattr(np.iinfo(dtype), "max" if name == "cummin" else "min")
    combine = f"a != a || a {sign} b ? a : b" if is_float else f"a {sign} b ? a : b"  # NaN stays
    return Running(dtype, dtype, dtype, combine, literal(limit, dtype), missing, none, ufunc)
