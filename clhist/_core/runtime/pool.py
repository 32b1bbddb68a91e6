"""A pool of devices: each takes the next piece when it is free; the pieces of a device that fails go to another.

A worker accumulates its pieces until it gives the result away. If it fails before, that result is lost, so its pieces
are stored until then, and computed again elsewhere: each piece is in the result exactly once.
"""

from __future__ import annotations

import threading
import warnings
from _thread import start_new_thread
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

import pyopencl as cl

from clhist.errors import BuildError, DeviceLostError, UnsupportedError

P = TypeVar("P")  # a piece
R = TypeVar("R")  # what a worker gives away

# What a device answers, rather than what is wrong with a call.
_FAILURES = (cl.Error, DeviceLostError, BuildError, UnsupportedError, MemoryError)

_MOST_KEPT = 16  # pieces, until a worker gives away what it has made of them


class Worker(Generic[P, R]):
    """One device, used by one thread at a time.

    Parameters
    ----------
    name : str
        Of the device.
    compute : callable
        Adds a piece to what the worker holds.
    give : callable
        Returns what the worker holds, which is nothing then.
    """

    def __init__(self, name: str, compute: Callable[[P], None], give: Callable[[], R]) -> None:
        self.name, self.compute, self.give = name, compute, give


class Pool(Generic[P, R]):
    """Workers with a thread each.

    Parameters
    ----------
    workers : sequence of Worker
        One for each device.
    collect : callable
        Gets what workers give away, and the pieces that it was made of; one at a time.

    Attributes
    ----------
    failed : dict of Worker to BaseException
        Devices that are not used any more, and why.
    """

    def __init__(self, workers: Sequence[Worker[P, R]], collect: Callable[[R, Sequence[P]], None]) -> None:
        self.workers = tuple(workers)
        self.failed: dict[Worker[P, R], BaseException] = {}
        self._collect = collect
        # The thread that runs the pool takes the lock itself: Ctrl-C may end a method of the condition with it held.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._progress: SimpleQueue[None] = SimpleQueue()
        self._ready: deque[P] = deque()
        self._unfinished = 0  # pieces that are not in what has been collected
        self._closed = self._ended = True  # no more pieces come; none is unfinished
        self._error: BaseException | None = None
        self._starting: set[object] = set()  # threads that are to work, and those that do
        self._working: set[object] = set()

    @property
    def alive(self) -> list[Worker[P, R]]:
        """The workers that have not failed."""
        return [worker for worker in self.workers if worker not in self.failed]

    def run(self, pieces: Iterable[P], on_accepted: Callable[[P], None] = lambda piece: None) -> None:
        """Compute all pieces, which this thread draws from the iterable as workers become free.

        Parameters
        ----------
        pieces : iterable
            If it raises, what came before is computed and collected.
        on_accepted : callable
            Called in this thread with each piece, once the queue has room for another.

        Raises
        ------
        Exception
            What a piece raised that is no device's fault, or the last device's failure; what was finished before is
            collected.

        Warns
        -----
        RuntimeWarning
            If a device failed and others did its work.
        """
        self.join()
        self._closed = self._ended = False
        # Devices that failed in an earlier run are not reported again.
        self._error, self._unfinished, failed = None, 0, len(self.failed)
        wrong: list[Exception] = []  # what the iterable raised
        self._ready.clear()
        try:
            for worker in self.alive:
                self._starting.add(key := object())
                start_new_thread(self._work, (worker, key))  # `Thread.start` may wait for ever after Ctrl-C
            for piece in self._checked(pieces, wrong):
                with self._lock:
                    self._unfinished += 1
                    self._ready.append(piece)
                    self._changed.notify_all()
                # At most two pieces wait for each device: drawing more would only keep their data in memory.
                self._wait(lambda: len(self._ready) < 2 * len(self.alive))
                on_accepted(piece)
            with self._lock:
                self._closed = True
                self._changed.notify_all()
            # A failing device may queue its pieces again, so an empty queue is not the end.
            self._wait(lambda: self._unfinished == 0)
        except BaseException as error:  # of a piece, or Ctrl-C: what waits is left out, what was begun is finished
            with self._lock:
                self._unfinished -= len(self._ready)
                self._ready.clear()
                self._error = self._error or error
            raise
        finally:
            self.join()
        for worker, reason in list(self.failed.items())[failed:]:
            others = f"{len(self.alive)} other device{'s' * (len(self.alive) != 1)}"
            text = f"{worker.name} failed and is not used any more; {others} did its work: {reason}"
            warnings.warn(text, RuntimeWarning, stacklevel=3)
        if wrong:
            raise wrong[0]

    def join(self) -> None:
        """Wait until no worker computes any more, should Ctrl-C have ended `run` before."""
        with self._lock:
            self._closed = self._ended = True
            self._starting.clear()  # those that have not begun do nothing
            self._changed.notify_all()
        while self._working:
            self._rest()

    def _rest(self) -> None:
        """Wait until a worker has done something, in the thread that runs the pool, which Ctrl-C can end."""
        with suppress(Empty):
            self._progress.get(timeout=0.1)

    def _checked(self, pieces: Iterable[P], wrong: list[Exception]) -> Iterator[P]:
        """Yield pieces until the iterable raises, which is noted in `wrong`, or no worker is left."""
        iterator = iter(pieces)
        while True:
            try:
                piece = next(iterator)
                if not self.alive:
                    raise next(reversed(self.failed.values()))
            except StopIteration:
                return
            except Exception as error:
                wrong.append(error)
                return
            yield piece

    def _wait(self, ready: Callable[[], bool]) -> None:
        while True:
            with self._lock:
                if self._error is not None:
                    raise self._error
                if ready():
                    return
            self._rest()

    def _work(self, worker: Worker[P, R], key: object) -> None:
        """Compute pieces until there are no more, in the worker's thread, if `run` has not ended before it began."""
        with self._changed:
            # `join` may have ended the run before this thread got to work; then nobody waits for it.
            if key not in self._starting:
                return
            self._working.add(key)
        try:
            self._compute(worker)
        finally:
            # Only now: `join` returns when no worker is left, and its caller may then use the devices.
            self._working.discard(key)
            self._tell()

    def _compute(self, worker: Worker[P, R]) -> None:
        pieces: list[P] = []
        while True:
            with self._changed:
                # None: the run is over, or what is accumulated is to be collected.
                piece = self._next(pieces)
            if piece is None and not pieces:
                return
            done = len(pieces)  # pieces that stay if the next one raises
            try:
                if piece is not None:
                    pieces.append(piece)
                    worker.compute(piece)
                if piece is None or len(pieces) >= _MOST_KEPT:
                    done = 0  # an error from here on concerns all of them
                    result = worker.give()
                    with self._changed:
                        # Collected and counted under one lock, so that no piece is lost or collected twice.
                        self._collect(result, pieces)
                        self._unfinished -= len(pieces)
                        self._changed.notify_all()
                        self._tell()
                    pieces = []
            except _FAILURES as error:
                with self._changed:
                    self._fail(worker, error, pieces)
                return
            except BaseException as error:  # which `run` raises; the piece is left out, and what came before is not
                with self._changed:
                    self._error = self._error or error
                    del pieces[done:]
                    self._changed.notify_all()
                    self._tell()

    def _tell(self) -> None:
        """Let the thread that runs the pool look again."""
        if self._progress.empty():
            self._progress.put(None)

    def _next(self, pieces: Sequence[P]) -> P | None:
        """Return the next piece for a worker; None if it should give its result away, or end without one."""
        while True:
            # After an error no worker begins another piece.
            if self._error is None and self._ready:
                piece = self._ready.popleft()
                self._changed.notify_all()
                self._tell()
                return piece
            if (self._closed or self._error is not None) and (pieces or self._ended or self._error is not None):
                return None
            # With a timeout: a notification that an exception cut short must not keep a worker waiting for ever.
            self._changed.wait(0.1)

    def _fail(self, worker: Worker[P, R], error: BaseException, pieces: Sequence[P]) -> None:
        """Queue the pieces of a failed worker again; `run` raises the error if no other worker is left."""
        self.failed[worker] = error
        # In front and in order: these pieces have waited longest.
        self._ready.extendleft(reversed(pieces))
        if not self.alive:
            self._error = self._error or error
        self._changed.notify_all()
        self._tell()
