"""Warnings that point at the caller's line, not at the library's."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable

from clhist.planning.plan import Plan


def warn_of_fewer_copies(asked: int | None, plans: Iterable[Plan]) -> None:
    """Warn, if a plan makes fewer copies than were asked for: there are no more work-items, or no more memory."""
    made = min((plan.copies for plan in plans), default=asked)
    if asked is None or made is None or made >= asked:
        return
    warnings.warn(
        f"copies: asked for {asked}, made {made}: there are no more than work-items that share them, nor than "
        "memory_budget allows",
        UserWarning,
        stacklevel=_level_of_caller(),
    )


def _level_of_caller() -> int:
    """Return the `stacklevel`, seen from who calls this, of the innermost frame outside of the package."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "clhist":
        frame, level = frame.f_back, level + 1
    return level
