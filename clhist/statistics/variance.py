"""The variance around the mean, from sums of a second sweep over the data: one formula, on the device and on the host.

The sum of the deviations would be 0 but for the rounding of the mean: with it, the result is as if the mean were exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np

CANCELLED = 1e-10  # of the squares of deviations, where all of these are the same


def deviation_terms(value: str, mean: str, weight: str = "") -> tuple[str, str]:
    """Return C of an element's term of the sum of deviations, and of that of their squares."""
    deviation, factor = f"({value} - {mean})", f"{weight} * " if weight else ""
    return f"({factor}{deviation})", f"({factor}{deviation} * {deviation})"


def sum_of_deviations(number: Any, shift: Any, squares: Any) -> Any:
    """Return the sum of the squared deviations from the exact mean; `number` is that of values, or of their weights."""
    with np.errstate(all="ignore"):
        deviations = np.where(number == 0, squares, squares - shift * (shift / number))
    return np.where(squares > 0, np.maximum(deviations, 0), deviations)  # negative weights have negative ones


def variance(number: Any, shift: Any, squares: Any, ddof: int = 0) -> Any:
    """Return the variance of `number` values whose deviations and their squares have these sums; NaN of too few."""
    real = number.dtype.type
    with np.errstate(all="ignore"):
        deviations = np.maximum(squares - shift * shift / number, real(0))
        return np.where(number > ddof, deviations / (number - real(ddof)), real(np.nan))


def variance_text(real: str, ddof: int, nan: str) -> str:
    """Return C of the body of a function of the same arguments that returns the same."""
    return f"""const {real} deviations = squares - shift * shift / number;
    return number > {ddof} ? (deviations < 0 ? 0 : deviations) / (number - {ddof}) : {nan};"""


def central_moments_text(real: str) -> str:
    """Return C of the sums of the 2nd to the 4th power of deviations from the mean, of those from a number near it.

    Where all values are equal, what rounding leaves of the second is taken for 0.
    """
    return f"""const {real} d = shift / number, all = squares - d * shift;
    const {real} second = all > squares * {CANCELLED}f ? all : 0;
    const {real} third = cubes - 3 * d * squares + 2 * number * d * d * d;
    const {real} fourth = fourths - 4 * d * cubes + 6 * d * d * squares - 3 * number * d * d * d * d;"""


def skewness_text(nan: str) -> str:
    """Return C of the skewness by these, without bias as in pandas: the adjusted Fisher-Pearson coefficient."""
    value = "number * sqrt(number - 1) / (number - 2) * third / (second * sqrt(second))"
    return f"number < 3 || second == 0 ? {nan} : {value}"


def kurtosis_text(nan: str) -> str:
    """Return C of the excess kurtosis by these, without bias as in pandas."""
    least = "number - 1"
    value = f"number * (number + 1) * ({least}) * fourth / (second * second) - 3 * ({least}) * ({least})"
    value = f"({value}) / ((number - 2) * (number - 3))"
    return f"number < 4 || second == 0 ? {nan} : {value}"
