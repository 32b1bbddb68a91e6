"""Ending the program where a device hangs: no OpenCL call can be interrupted."""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

_TICK = 0.25  # seconds
_GRACE = 10.0


class Watchdog:
    """Ends the process if something takes longer than it may, in whatever thread; a context, while which it looks.

    Parameters
    ----------
    seconds : float
        How long each thing may take.
    report : callable
        Called with the name of what hangs, before the process ends with status 1.
    """

    def __init__(self, seconds: float, report: Callable[[str], None]) -> None:
        self.seconds, self.report = seconds, report
        self._watched: dict[int, tuple[float, str]] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Watchdog:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self._thread.join()

    @contextmanager
    def watch(self, name: str) -> Iterator[None]:
        """End the process if the block takes too long."""
        thread = threading.get_ident()
        self._watched[thread] = monotonic() + self.seconds, name
        try:
            yield
        finally:
            del self._watched[thread]

    def _look(self) -> None:
        while not self._over.wait(_TICK):
            # Should a driver not let this thread run again, that shows where at least.
            faulthandler.dump_traceback_later(self.seconds + _GRACE, exit=True, file=sys.__stderr__ or 2)
            # A copy, since other threads add and remove entries meanwhile.
            for deadline, name in list(self._watched.values()):
                if monotonic() > deadline:
                    try:
                        self.report(name)
                    finally:
                        # `sys.exit` would end this thread alone.
                        os._exit(1)
        faulthandler.cancel_dump_traceback_later()
