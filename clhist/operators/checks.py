"""Checks of the options of reproducible sums."""

from __future__ import annotations

from clhist.operators.c_types import check_booleans


def check_max_abs(max_abs: float | None, reproducible: bool) -> None:
    """Raise TypeError if `reproducible` is no bool, or if sums that are not so have a largest |value|."""
    check_booleans(reproducible=reproducible)
    if max_abs is not None and not reproducible:
        raise TypeError(f"max_abs: expected none, since the sums are not reproducible; got {max_abs!r}")
