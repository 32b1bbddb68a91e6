"""How far a stream has come: a bar on the standard error, or what the caller does with it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from clhist.operators.c_types import integer

_WIDTH = 36

Progress = Callable[[int, int | None], None]


@contextmanager
def reported(
    iterable: Iterable[Any], total: int | None, progress: bool | Progress
) -> Iterator[tuple[Iterator[tuple[Any, ...]], Callable[[int], None]]]:
    """Give the arguments of each chunk, and a function to be called with the number of elements so far.

    Parameters
    ----------
    iterable, total, progress
        As of `clhist.Accumulator.extend`.

    Raises
    ------
    TypeError, ValueError
        If one of these is wrong; it is named.
    """
    is_flag = isinstance(progress, bool | np.bool_)
    number = None if total is None else integer("total", total, 0)
    if not is_flag and not callable(progress):
        raise TypeError(f"progress: expected a bool or a callable, got {progress!r}")
    is_bar = is_flag and bool(progress)
    try:
        iterator = iter(iterable)
    except TypeError:
        raise TypeError(f"iterable: expected chunks, each what add takes, got {iterable!r}") from None
    # An iterable may yield single arrays or tuples of arguments.
    chunks = (chunk if isinstance(chunk, tuple) else (chunk,) for chunk in iterator)
    report = _draw if is_bar else progress if callable(progress) else (lambda done, total: None)
    try:
        yield chunks, lambda done: report(done, number)
    finally:
        if is_bar:
            sys.stderr.write("\n")


def _draw(done: int, total: int | None) -> None:
    """Draw the bar over the one before, or the number of elements where nobody knows how many there will be."""
    text = f"elements  {done:,}"
    if total:
        part = min(1.0, done / total)
        filled = round(part * _WIDTH)
        text = f"elements  [{'#' * filled}{'-' * (_WIDTH - filled)}]  {part:4.0%}"
    sys.stderr.write(f"\r{text}")
    sys.stderr.flush()
