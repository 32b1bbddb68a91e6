"""The variance around the mean, from sums of a second sweep over the data: one formula, on the device and on the host.

The sum of the deviations would be 0 but for the rounding of the mean: with it, the result is as if the mean were exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def deviation_terms(value: str, mean: str, weight: str = "") -> tuple[str, str]:
    """Return C of an element's term of the sum of deviations, and of that of their squares."""
    deviation, factor = f"({value} - {mean})", f"{weight} * " if weight else ""
    return f"({factor}{deviation})", f"({factor}{deviation} * {deviation})"


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
