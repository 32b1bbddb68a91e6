"""Probabilities and methods of quantiles, as callers give them."""

from __future__ import annotations

from typing import Any, Literal, cast, get_args

import numpy as np

from clhist.operators.names import name_hint

Method = Literal["linear", "lower", "higher", "nearest", "midpoint"]
METHODS: tuple[Method, ...] = get_args(Method)


def probability(q: object) -> float:
    """Return the probability of a quantile; raise TypeError or ValueError if it is none."""
    if isinstance(q, bool | np.bool_) or not isinstance(q, int | float | np.integer | np.floating):
        raise TypeError(f"q: expected a number from 0 to 1, got {q!r:.60}")
    if not 0 <= q <= 1:
        raise ValueError(f"q: expected a number from 0 to 1, got {q}")
    return float(q)


def fraction_of(q: float) -> tuple[int, int]:
    """Return a probability as the nearest fraction of integers up to 10^9, so that 0.29 is 29 / 100."""
    from fractions import Fraction  # which most programs do without

    return Fraction(q).limit_denominator(10**9).as_integer_ratio()


def checked_method(method: Any) -> Method:
    """Return the method of a quantile; raise ValueError if there is none of that name."""
    if method not in METHODS:
        raise ValueError(
            f"method: expected one of {', '.join(METHODS)}, got {method!r:.60}{name_hint(method, [*METHODS])}"
        )
    return cast(Method, method)
