"""A line of progress on stderr, drawn only on a terminal, and notes that stay."""

from __future__ import annotations

import shutil
import sys
import threading
from time import monotonic
from types import TracebackType

_TICK = 0.25  # seconds between two drawings, also while a call does not return


class Progress:
    """A context manager that shows what is going on, how far it is, and how long it will take.

    Until the first step is done the line says "compiling", which is most of what a first step does; the remaining time
    is estimated from the steps after it.

    Parameters
    ----------
    label : str
        What is going on.
    total : float, optional
        Steps, or units of work, in all; without it only what is done is counted.
    hidden : bool
        Show nothing.
    """

    def __init__(self, label: str, total: float | None = None, *, hidden: bool = False) -> None:
        self.label, self.total, self.done, self.item = label, total, 0.0, ""
        self._hidden = hidden
        self._shown = not hidden and sys.stderr.isatty()
        self._start = monotonic()
        self._first: tuple[float, float] | None = None  # work and time when the first step was done
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Progress:
        if self._shown:
            self._thread = threading.Thread(target=self._draw, daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def update(self, work: float = 1, item: str | None = None) -> None:
        """Count so much more work as done; `item` is what comes next, or was done."""
        self.done += work
        if item is not None:
            self.item = item
        if self._first is None:
            self._first = self.done, monotonic()

    def note(self, text: str) -> None:
        """Print a line that stays, on stderr whatever that is, unless all is hidden."""
        if not self._hidden:
            sys.stderr.write(f"\r\x1b[K{text}\n" if self._shown else f"{text}\n")
            sys.stderr.flush()

    def text(self) -> str:
        """Return the line."""
        parts = [self.label]
        if self._first is None and self.label != "compiling":
            parts.append("compiling" if not self.item else f"{self.item}, compiling")
        elif self.total:
            parts += [f"{min(1.0, self.done / self.total):.0%}", self.item, self._left()]
        else:
            parts += [f"{self.done:,.0f}" if self.done else "", self.item]
        seconds = monotonic() - self._start
        return " · ".join(filter(None, [*parts, f"{_duration(seconds)} so far"]))

    def _left(self) -> str:
        if self._first is None or self.total is None or self.done <= self._first[0]:
            return ""
        work, when = self._first
        rate = (self.done - work) / max(1e-9, monotonic() - when)
        return f"about {_duration((self.total - self.done) / rate)} left" if self.done < self.total else ""

    def _draw(self) -> None:
        while not self._over.wait(_TICK):
            width = shutil.get_terminal_size().columns - 1
            sys.stderr.write("\r\x1b[K" + self.text()[:width])
            sys.stderr.flush()


def _duration(seconds: float) -> str:
    """Return seconds as ``12 s``, ``3:05`` or ``2:03:05``."""
    whole = int(seconds + 0.5)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
