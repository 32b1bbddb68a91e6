"""A line of progress on stderr, drawn only on a terminal, and notes that stay."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from types import TracebackType

from clhist.cli.tables import escaped

_TICK = 0.25  # seconds between two drawings, also while a call does not return
_drawing = threading.RLock()  # held while something is written to the terminal
_lines: list[Progress] = []  # of which the last is shown


class Progress:
    """A context manager that shows what is going on, how far it is, and how long it will take.

    Until the first step is done the line says "compiling", which is most of what a first step does, and for whom; the
    remaining time is estimated from the steps after it.

    Parameters
    ----------
    label : str
        What is going on.
    total : float, optional
        Steps, or units of work, in all; without it only what is done is counted.
    hidden : bool
        Show nothing.
    compiles : bool
        Whether the first step compiles.
    delay : float
        Seconds of silence before the line is drawn.
    """

    def __init__(
        self, label: str, total: float | None = None, *, hidden: bool = False, compiles: bool = True, delay: float = 0.0
    ) -> None:
        self.label, self.total, self.done, self.item = label, total, 0.0, ""
        self._compiles, self._delay, self._silent = compiles, delay, monotonic()
        self._hidden = hidden
        self._shown = not hidden and sys.stderr.isatty()
        self._start = monotonic()
        # Work and time at the end of the first step: rates exclude it, since it compiles.
        self._first: tuple[float, float] | None = None
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Progress:
        if self._shown:
            _lines.append(self)
            self._thread = threading.Thread(target=self._draw, daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._over.set()
        if self._thread is not None:
            # The thread must not draw the line after it was removed.
            self._thread.join()
            with quiet_terminal():
                _lines.remove(self)

    def stage(self, label: str, total: float | None = None, *, compiles: bool = True) -> None:
        """Go on to something else; `label`, `total` and `compiles` are those of a line of its own."""
        self.label, self.total, self.done, self.item, self._first = label, total, 0.0, "", None
        self._compiles = compiles

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
            text = escaped(text, keep="\n")
            with quiet_terminal():
                sys.stderr.write(f"{text}\n")
                sys.stderr.flush()

    def text(self) -> str:
        """Return the line."""
        parts = [self.label]
        if self.label == "compiling":
            parts = [_compiling()]
        elif self._first is None and self._compiles:
            parts.append(_compiling() if not self.item else f"{self.item}, {_compiling()}")
        elif self.total:
            parts += [f"{min(1.0, self.done / self.total):.0%}", self.item, self._left()]
        else:
            parts += [f"{self.done:,.0f}" if self.done else "", self.item]
        seconds = monotonic() - self._start
        return escaped(" · ".join(filter(None, [*parts, f"{_duration(seconds)} so far"])))

    def _left(self) -> str:
        if self._first is None or self.total is None or self.done <= self._first[0]:
            return ""
        work, when = self._first
        rate = (self.done - work) / max(1e-9, monotonic() - when)
        return f"about {_duration((self.total - self.done) / rate)} left" if self.done < self.total else ""

    def rest(self) -> None:
        """Leave the terminal to something else until nothing was written for a while."""
        self._silent = monotonic()

    def _draw(self) -> None:
        while not self._over.wait(_TICK):
            with _drawing:
                # Only the innermost of nested lines is drawn.
                if _lines[-1:] == [self] and monotonic() - self._silent >= self._delay:
                    width = shutil.get_terminal_size().columns - 1
                    sys.stderr.write("\r\x1b[K" + self.text()[:width])
                    sys.stderr.flush()


@contextmanager
def quiet_terminal() -> Iterator[None]:
    """Clear the line of progress, if one is shown, while something else is written."""
    with _drawing:
        if _lines:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
        yield
        for line in _lines:
            line.rest()


def _compiling() -> str:
    """Return "compiling", for whom if anything has been compiled, and that this is not for every run."""
    module = sys.modules.get("clhist._core.opencl.program")  # which takes long to import
    name = module.compiler() if module is not None else ""
    once = "" if os.environ.get("PYOPENCL_NO_CACHE") else ", once per machine"
    return f"compiling for {name}{once}" if name else "compiling"


def _duration(seconds: float) -> str:
    """Return seconds as ``12 s``, ``3:05`` or ``2:03:05``."""
    whole = int(seconds + 0.5)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
