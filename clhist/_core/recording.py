"""The recording of the driver calls of CUDA that a call makes, which those that repeat it replay."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class _Heard(threading.local):
    calls: list[Any] | None = None


heard = _Heard()
"""The driver calls of this thread, by name, while `calls` is a list; `note` adds what they are for."""

listeners: set[int] = set()
"""The identifiers of threads that record; mostly empty, and cheaper than a threading.local."""


def note(entry: Any) -> None:
    """Add an entry to the recording of this thread, if there is one."""
    if listeners and heard.calls is not None:
        heard.calls.append(entry)


def note_last(make: Callable[[], Any]) -> None:
    """Replace the name of the last driver call by what `make` returns, if there is a recording."""
    if listeners and heard.calls is not None:
        heard.calls[-1] = make()


@contextmanager
def listening() -> Iterator[list[Any]]:
    """Record the driver calls of a ``with`` block: yield a list that gets them as they are made."""
    calls = list[Any]()
    try:
        listeners.add(threading.get_ident())
        heard.calls = calls
        yield calls
    finally:
        heard.calls = None
        listeners.discard(threading.get_ident())


class unheard:  # as a function; a generator would take three times as long
    """Suspends the recording of driver calls in a ``with`` block."""

    __slots__ = ("_calls",)

    def __enter__(self) -> None:
        self._calls, heard.calls = heard.calls, None

    def __exit__(self, *error: object) -> None:
        heard.calls = self._calls
