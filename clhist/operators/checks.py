"""Checks of the options of reproducible sums."""

from __future__ import annotations

import numpy as np


def check_reproducible(value: object) -> None:
    """Raise TypeError if `value` is not what the option ``reproducible`` of a public function may be."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"reproducible: expected a bool, got {value!r}")


def check_max_abs(max_abs: float | None, reproducible: bool) -> None:
    """Raise TypeError if `reproducible` is no bool, or if sums that are not so have a largest |value|."""
    check_reproducible(reproducible)
    if max_abs is not None and not reproducible:
        raise TypeError(f"max_abs: expected none, since the sums are not reproducible; got {max_abs!r}")
