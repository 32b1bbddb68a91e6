"""Warnings that point at the caller's line, not at the library's."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def warn_caller(message: Warning | str, category: type[Warning]) -> None:
    """Warn of the innermost line outside of the package."""
    warnings.warn(message, category, stacklevel=_level_of_caller())


def at_caller(function: Callable[P, R], *args: P.args, **options: P.kwargs) -> R:
    """Call a function of another library so that its warnings point at the caller's line.

    Use it only for calls that are expected to warn: recording warnings takes time and is not thread-safe.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = function(*args, **options)
    for warning in caught:
        warn_caller(warning.message, warning.category)
    return result


def _level_of_caller() -> int:
    """Return the `stacklevel`, seen from who calls this, of the innermost frame outside of the package."""
    # Frames of the package are skipped by the name of their module, however deep the call.
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "clhist":
        frame, level = frame.f_back, level + 1
    return level
