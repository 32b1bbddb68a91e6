"""The random calls of `clhist selftest --soak`, in processes: what crashes, hangs or loses the device is reported.

A call that fails is made again, alone in a new process. A process whose call failed by anything but wrong bins ends.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import os
import re
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from time import monotonic
from typing import Any

import pyopencl as cl

from clhist._core.opencl.device import default_queue, device_features, devices
from clhist._core.opencl.memory import scratch_bytes
from clhist._core.opencl.program import programs_built
from clhist.errors import NoDeviceError, UnsupportedError
from clhist.selftest.suite import queue_of
from clhist.selftest.workers import CheckWorker
from soak.calls import SAME_KERNELS, Setting, draw
from soak.program import IMPORTS, Program, program

HOLDS, REFUSED = "holds", "refused"
WRONG, LOST, ERROR, ENDED, HANGS, INVALID = (
    "wrong bins", "device lost", "error", "process ended", "hangs", "invalid program")  # fmt: skip
# The choices that a refusal names; it is one only where something was forced.
_REFUSED = re.compile(r"(update|memory|copies|passes|locks|work_group_size|memory_budget)\b")
_LOST = re.compile(r"INVALID_COMMAND_QUEUE|OUT_OF_RESOURCES|OUT_OF_HOST_MEMORY|device (was|is) lost|clFinish", re.I)
_NEW_CALLS, _CALLS_AGAIN = 0.75, 1000  # of the time; then each process makes its last calls again, which must not grow
_MOST_GROWTH = 64 * 2**20
_MOST_WORDS = 500
_START, _GRACE = 60.0, 10.0
_MEMORY_EACH = 40  # calls
_made = itertools.count(1)


@dataclass(frozen=True)
class Calls:
    """The random calls of a seed on a queue; each is made by so many threads at once."""

    queue: cl.CommandQueue
    seed: int
    threads: int = 1

    def setting(self, number: int) -> Setting:
        """Return what the call of this number is."""
        return draw(self.seed, number, "fp64" in device_features(self.queue.device))

    def run(self, number: int) -> tuple[str, str]:
        """Make the call; return a status and words."""
        text = program(self.setting(number))
        if self.threads == 1:
            return self._run(text)
        with ThreadPoolExecutor(self.threads) as pool:
            found = list(pool.map(self._run, [text] * self.threads))
        return next((each for each in found if each[0] not in (HOLDS, REFUSED)), found[0])

    def _run(self, text: Program) -> tuple[str, str]:
        names: dict[str, Any] = {}
        exec(IMPORTS, names)
        names["queue"] = self.queue
        try:
            exec(compile(text.prepare, "data", "exec"), names)
        except Exception as error:
            lost = isinstance(error, cl.Error) and _LOST.search(str(error))
            return LOST if lost else INVALID, _words(error)
        try:
            exec(compile(text.call, "call", "exec"), names)
            self.queue.finish()
            exec(compile(text.check, "check", "exec"), names)
        except UnsupportedError as error:
            return REFUSED, _words(error)
        except AssertionError as error:
            return WRONG, _words(error)
        except Exception as error:  # of a driver, anything may come
            if isinstance(error, ValueError | MemoryError) and _REFUSED.match(str(error)):
                return REFUSED, _words(error)
            chain = f"{error} {error.__cause__} {error.__context__}"
            return LOST if _LOST.search(chain) else ERROR, _words(error)
        return HOLDS, ""


def calls_elsewhere(queue: cl.CommandQueue, seed: int, threads: int = 1) -> Callable[[], Calls]:
    """Return what gives the calls on the same device in another process with the same environment."""
    return partial(_calls_of, devices().index(queue.device), queue.device.name, seed, threads)


def _calls_of(number: int, name: str, seed: int, threads: int) -> Calls:
    every = devices()
    if len(every) <= number or every[number].name != name:
        raise NoDeviceError(f"device {number} was {name.strip()}; now there are {[d.name.strip() for d in every]}")
    queue = default_queue()
    return Calls(queue if queue.device == every[number] else queue_of(every[number]), seed, threads)


def run_call(calls: Calls, number: int) -> tuple[str, str, dict[str, int]]:
    """Make the call of this number in a worker: a status, words, and now and then the memory of the process."""
    found = calls.run(number)
    return *found, memory_now() if next(_made) % _MEMORY_EACH == 0 else {}


@dataclass
class Failure:
    """A call that went wrong.

    Attributes
    ----------
    number : int
        Which call it is.
    status, words : str
        What went wrong.
    seconds : float
        How long after the start.
    before : tuple of int
        The last calls before it in the same process.
    alone : bool or None
        Whether it also fails alone in a new process; None if others of its like do, and it was not tried.
    """

    number: int
    status: str
    words: str
    seconds: float
    before: tuple[int, ...]
    alone: bool | None = None


@dataclass
class Totals:
    """The outcome of a soak."""

    counts: Counter[str] = field(default_factory=Counter)
    covered: Counter[tuple[str, str]] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    memory: list[dict[str, dict[str, int]]] = field(default_factory=list)
    stopped: str = ""

    @property
    def problems(self) -> list[str]:
        """Why it stopped early, and which processes grew while they built nothing new."""
        found = [words for marks in self.memory for words in _growth(marks["warm"], marks["end"])]
        return [self.stopped, *found] if self.stopped else found


class _Process:
    """A worker, the calls that it made, and its memory before it made them again."""

    def __init__(self, worker: CheckWorker) -> None:
        self.worker = worker
        self.started = False
        self.calls = 0
        self.numbers: deque[int] = deque()  # what it makes next
        self.made: deque[int] = deque(maxlen=_CALLS_AGAIN)
        self.again = -1
        self.marks: dict[str, dict[str, int]] = {}

    @property
    def is_late(self) -> bool:
        """Whether it has taken longer than it may."""
        return monotonic() > self.worker.deadline

    def begin(self, number: int) -> None:
        """Let it make a call."""
        self.calls += 1
        self.worker.begin(number)


class Soak:
    """Random calls in processes.

    Parameters
    ----------
    make : callable
        Returns the `Calls` in a process.
    setting_of : callable
        Returns the setting of a number.
    jobs : int
        How many processes there are.
    limit : float
        Seconds that a call may take.
    """

    def __init__(
        self, make: Callable[[], Calls], setting_of: Callable[[int], Setting], jobs: int, limit: float
    ) -> None:
        self.make, self.setting_of, self.jobs, self.limit = make, setting_of, jobs, limit
        self.totals = Totals()
        self.last = "", ""  # status and words
        self._suspects: deque[Failure] = deque()
        self._tried: dict[int, Failure] = {}
        self._seen: set[tuple] = set()
        self._left: deque[deque[int]] = deque()  # of processes that ended
        self._next = 0

    def one(self, number: int) -> tuple[str, str]:
        """Make one call in a new process; return its status and words."""
        self._suspects.append(Failure(number, "", "", 0, ()))
        for _ in self.run(0):
            pass
        return self.last

    def run(self, seconds: float) -> Iterator[Failure | None]:
        """Make calls for so many seconds; yield each failure when it was tried again, and now and then None."""
        start: float | None = None  # when the first process is ready
        processes: list[_Process] = []
        try:
            while True:
                if start is None and any(process.started for process in processes):
                    start = monotonic()
                elapsed = 0.0 if start is None else monotonic() - start
                over, again = elapsed >= seconds, elapsed >= _NEW_CALLS * seconds
                while len(processes) < (min(self.jobs, len(self._suspects)) if over else self.jobs):
                    processes.append(_Process(CheckWorker(self.make, self.limit, run_call)))
                if not processes:
                    break
                yield None
                for process in self._ready(processes):
                    yield from self._take(process, elapsed)
                    number = None
                    if not process.worker.connection.closed:
                        number = self._choose(process, over, again)
                    if number is not None:
                        process.begin(number)
                    else:
                        process.worker.end(_GRACE)
                        processes.remove(process)
                        self._left += [process.numbers] if process.numbers else []
                        if len(process.marks) == 2:
                            self.totals.memory.append(process.marks)
        except NoDeviceError as error:
            self.totals.stopped = f"no process can use the device any more: {error}"
        finally:
            for process in processes:
                process.worker.end(0)

    def _ready(self, processes: list[_Process]) -> list[_Process]:
        """Return the processes that have an answer, or should have."""
        found = wait([process.worker.connection for process in processes], 0.5)
        return [process for process in processes if process.worker.connection in found or process.is_late]

    def _take(self, process: _Process, elapsed: float) -> Iterator[Failure]:
        """Count what came of a call, and yield a failure that is done with."""
        number = process.worker.number
        if not process.started:
            if not process.worker.connection.poll():
                raise NoDeviceError(f"a process took more than {_START:g} s to open the device")
            process.worker.answer()
            process.started = True
            return
        assert number is not None
        status, words, memory = self._answer(process)
        self.last = status, words
        self.totals.counts[status] += 1
        suspect = self._tried.pop(number, None)
        if status in (HOLDS, REFUSED):
            # Allocators waste less once all has been made again.
            if memory:
                process.marks["end" if process.again > len(process.made) else "warm"] = memory
            if process.again < 0:
                process.made.append(number)
                if status == HOLDS:
                    self.totals.covered.update(set(self.setting_of(number).covers()))
            if suspect is not None and suspect.status:
                suspect.alone = False
                if suspect.before:  # whose fault it may be
                    self._suspects.append(Failure(suspect.before[-1], "", "", elapsed, ()))
                self.totals.failures.append(suspect)
                yield suspect
            return
        if status != WRONG:
            process.worker.end(0)
        failure = Failure(number, status, words, elapsed, tuple(process.made)[-SAME_KERNELS:])
        like = _likeness(self.setting_of(number), status)
        if suspect is not None:
            failure.alone = True
        elif like not in self._seen:
            self._seen.add(like)
            self._suspects.append(failure)
            process.worker.end(_GRACE)  # a new process takes its place, for this call first
            return
        self.totals.failures.append(failure)
        yield failure

    def _answer(self, process: _Process) -> tuple[str, str, dict[str, int]]:
        worker = process.worker
        if not worker.connection.poll():
            worker.end(0)
            return HANGS, f"the call has taken more than {self.limit:g} s", {}
        found = worker.answer()
        return (ENDED, found[1], {}) if worker.connection.closed else (found[0], found[1], found[2])

    def _choose(self, process: _Process, over: bool, again: bool) -> int | None:
        """Return the number of the next call of a process; None if there is none for it."""
        if self._suspects and process.calls == 0:
            suspect = self._suspects.popleft()
            self._tried[suspect.number] = suspect
            return suspect.number
        if over:
            return None
        if again and process.made:
            process.again += 1
            return process.made[process.again % len(process.made)]
        if not process.numbers and self._left:
            process.numbers = self._left.popleft()
        elif not process.numbers:  # all that share kernels go to one process, which builds them once
            process.numbers = deque(range(self._next, self._next + SAME_KERNELS))
            self._next += SAME_KERNELS
        return process.numbers.popleft()


def _likeness(setting: Setting, status: str) -> tuple:
    """Return what failures of one cause will mostly have in common."""
    forced = dict(setting.choices)
    small = forced.get("work_group_size", 64) < 16
    shape = tuple(sorted({("struct" if op.is_struct else op.kind) for op in setting.operators}))
    return status, setting.form, forced.get("update"), forced.get("memory"), small, shape


def report_text(number: int, seed: int, setting: Setting, status: str, words: str, threads: int = 1) -> str:
    """Return the program of a call, under what came of it."""
    head = [f"# {setting}", f"# {status}: {words}", f"# clhist selftest --seed {seed} --only {number}"]
    if threads > 1:
        head.append(f"# failed when {threads} threads made it at once")
    return "\n".join([*head, str(program(setting))])


def _words(error: BaseException) -> str:
    kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
    words = " ".join(str(error).split())
    cut = words if len(words) <= _MOST_WORDS else f"{words[: _MOST_WORDS // 2]} ... {words[-_MOST_WORDS // 2 :]}"
    return kind + cut


def memory_now() -> dict[str, int]:
    """Return the bytes that this process has in memory and in pools on the device, and how many programs it built."""
    gc.collect()  # cycles may hold arrays
    with suppress(OSError, AttributeError):  # of glibc: else what is free counts as used
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    return {"rss": _resident(), "scratch": scratch_bytes(), "programs": programs_built()}


def _resident() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # what macOS has: bytes, and the most ever
        return peak if sys.platform == "darwin" else 1024 * peak


def _growth(warm: dict[str, int], end: dict[str, int]) -> Iterator[str]:
    rss = warm["rss"] + _MOST_GROWTH + max(0, end["scratch"] - warm["scratch"])
    scratch = 2 * warm["scratch"] + _MOST_GROWTH
    for what, key, bound in (("memory of the host", "rss", rss), ("scratch memory", "scratch", scratch)):
        if end[key] > bound:
            yield f"{what} grew to {end[key] / 2**20:,.0f} MiB, more than {bound / 2**20:,.0f} MiB"
