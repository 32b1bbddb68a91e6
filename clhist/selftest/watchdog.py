"""Ending the program where a device hangs: no OpenCL call can be interrupted."""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_GRACE = 5.0  # seconds that printing may take


class Watchdog:
    """Ends the process if something takes longer than it may.

    Parameters
    ----------
    seconds : float
        How long each thing may take.
    report : callable
        Called with the name of what hangs, before the process ends with status 1.
    """

    def __init__(self, seconds: float, report: Callable[[str], None]) -> None:
        self.seconds, self._report = seconds, report

    @contextmanager
    def watch(self, name: str) -> Iterator[None]:
        """End the process if the block takes too long."""
        timer = threading.Timer(self.seconds, self._end, [name])
        timer.daemon = True
        # Should a driver not let any other thread run, this shows where at least.
        faulthandler.dump_traceback_later(self.seconds + _GRACE, exit=True, file=sys.__stderr__ or 2)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            faulthandler.cancel_dump_traceback_later()

    def _end(self, name: str) -> None:
        try:
            self._report(name)
        finally:
            os._exit(1)
