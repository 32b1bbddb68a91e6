"""Checks in several processes at once: most of their time is a compiler's, which has one thread.

A process of its own also takes a driver's crash: the check is wrong, and others go on in a new process.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from time import monotonic
from typing import Any

from clhist.errors import NoDeviceError
from clhist.selftest.checks import WRONG, Check, CheckOutcome

_MOST_JOBS = 8  # by default: each has a context on the device, and hundreds of MiB
_START, _GRACE = 60.0, 10.0  # seconds that a process has to open the device, and to end
_SPAWN = get_context("spawn")  # OpenCL does not survive a fork

Make = Callable[[], Sequence[Check]]
Run = Callable[[Any, int], tuple]


class HangError(Exception):
    """A check, whose label is the message, has taken longer than it may."""


def default_jobs() -> int:
    """Return how many processes are worth while: one for each core that this one may use, up to a few."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(_MOST_JOBS, cores)


def run_in_processes(
    checks: Sequence[Check], make: Make, jobs: int, limit: float
) -> Iterator[tuple[int, CheckOutcome]]:
    """Run all of `checks`, and yield the number and the outcome of each when it has ended; no process is left then.

    Parameters
    ----------
    checks : sequence of Check
        What is run; only their labels are used here.
    make : callable
        Returns the same checks in another process, to which it is pickled.
    jobs : int
        How many processes there are at most.
    limit : float
        Seconds that a check may take.

    Raises
    ------
    HangError
        If one takes longer.
    NoDeviceError
        If a process ends, or waits, before it has run anything: some devices are for one process alone.
    """
    waiting = list(range(len(checks)))  # the last first: forms, which have more kernels than updates
    workers: list[CheckWorker] = []
    try:
        workers += [CheckWorker(make, limit) for _ in range(min(jobs, len(checks)))]
        while open_ones := [worker for worker in workers if not worker.connection.closed]:
            # Wait no longer than until the next deadline, at which a check counts as hanging.
            next_deadline = min(worker.deadline for worker in open_ones)
            ready = wait([worker.connection for worker in open_ones], max(0.0, next_deadline - monotonic()))
            for worker in open_ones:
                number = worker.number
                if worker.connection in ready:
                    answer = worker.answer()
                    if number is not None:
                        yield number, CheckOutcome(checks[number], *answer)
                    # A process that ended with its check is replaced as long as others wait.
                    if waiting and worker.connection.closed:
                        workers.append(CheckWorker(make, limit))
                    elif waiting:
                        worker.begin(waiting.pop())
                    else:
                        # The end of the connection ends the process.
                        worker.connection.close()
                elif monotonic() > worker.deadline:
                    if number is None:
                        raise NoDeviceError(f"a process took more than {_START:g} s to open the device")
                    raise HangError(checks[number].label)
    finally:
        for worker in workers:
            # Processes that have done their part end by themselves; after an error the others are killed at once.
            worker.end(_GRACE if worker.connection.closed else 0)


class CheckWorker:
    """A process, and what it does: nothing yet, or the check of this number, until the deadline.

    `run` gets what `make` returned in the process, and a number; it returns the answer.
    """

    def __init__(self, make: Callable[[], Any], limit: float, run: Run | None = None) -> None:
        self.connection, its_own = _SPAWN.Pipe()
        self.number: int | None = None
        self.deadline, self._limit = monotonic() + _START, limit
        self._process = _SPAWN.Process(target=_work, args=(its_own, make, run or _run_check), daemon=True)
        self._process.start()
        its_own.close()  # so that the end of the process is the end of the connection

    def begin(self, number: int) -> None:
        """Let it run the check of this number."""
        self.number, self.deadline = number, monotonic() + self._limit
        with suppress(OSError):  # of a process that has ended; the answer, which is none, says so
            self.connection.send(number)

    def answer(self) -> tuple:
        """Return the fields of a `CheckOutcome` but for the check that was run; an empty tuple after the start."""
        try:
            answer = self.connection.recv()
        # The other end of the pipe is closed: the process has ended, perhaps by a crash of the driver.
        except (EOFError, OSError):
            words = self.end(_GRACE)
            if self.number is None:
                raise NoDeviceError(f"{words} before it ran a check; jobs=1 takes none") from None
            return WRONG, words, self._limit + monotonic() - self.deadline
        self.number = None
        return answer

    def end(self, grace: float) -> str:
        """Return how the process ended, which is killed if it takes longer than `grace` seconds."""
        self.connection.close()
        self._process.join(grace)
        # No effect on a process that has ended; a hanging driver ignores any request to end.
        self._process.kill()
        self._process.join(_GRACE)
        code = self._process.exitcode
        if code is None or code >= 0:
            return f"the process ended with status {code}"
        return f"the process ended with signal {-code} ({signal.Signals(-code).name})"


def _work(connection: Connection, make: Callable[[], Any], run: Run) -> None:
    """Run the checks whose numbers come, in a process of its own."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this
    # A parent that is killed closes nothing, so a thread waits for its end.
    threading.Thread(target=_end_with_parent, daemon=True).start()
    made = make()
    # The empty answer says that the device is open.
    connection.send(())
    with suppress(EOFError):
        while True:
            connection.send(run(made, connection.recv()))


def _run_check(checks: Sequence[Check], number: int) -> tuple:
    outcome = checks[number].run()
    return outcome.status, outcome.words, outcome.seconds, outcome.doubts


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
