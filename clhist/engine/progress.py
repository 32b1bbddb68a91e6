"""How far a stream has come: a bar on the standard error, or what the caller does with it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_WIDTH = 36

Progress = Callable[[int, int | None], None]


@contextmanager
def reporter(total: int | None, progress: bool | Progress) -> Iterator[Progress]:
    """Give a function to be called after each piece, with the number of elements so far and `total`."""
    if not isinstance(progress, bool):
        yield progress
    elif not progress:
        yield lambda done, total: None
    else:
        try:
            yield _draw
        finally:
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
