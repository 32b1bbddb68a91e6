"""Exceptions wherever the interpreter may raise that of Ctrl-C: as a function begins, after a call, in a loop."""

from __future__ import annotations

import dis
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pyopencl as cl

import clhist
from clhist._core.opencl import lost

ROOT = str(Path(clhist.__file__).parent) + "/"
# Pure packages keep nothing of a call but by lru_cache.
PURE = ("_core/kernels/", "_core/model/", "_core/devices/", "axes/", "operators/", "files/")
# After these the interpreter looks for signals.
_CHECKED = ("RESUME", "CALL", "CALL_KW", "CALL_FUNCTION_EX", "JUMP_BACKWARD")

Place = tuple[str, int]


@cache
def _checks(code: CodeType) -> dict[int, bool]:
    """Return of each instruction whether signals are looked for before it, by the one that is before it in the code.

    Not where other handlers apply to that one, to which the interpreter ascribes the exception: locks are released.
    """
    handlers = {n: each.target for each in dis._parse_exception_table(code) for n in range(each.start, each.end, 2)}
    every = [*dis.get_instructions(code)]
    found = {each.offset: False for each in every}
    for before, each in pairwise(every):
        after = before.argval if before.opname == "JUMP_BACKWARD" else each.offset
        if before.opname in _CHECKED and handlers.get(before.offset) == handlers.get(after):
            found[after] = True
    return found


@cache
def _name(code: CodeType) -> str | None:
    """Return the file of the library that code is of, if it is to be interrupted."""
    name = code.co_filename
    return name[len(ROOT) :] if name.startswith(ROOT) and not name[len(ROOT) :].startswith(PURE) else None


def _is_of_destructor(frame: FrameType | None) -> bool:
    """Whether a destructor of the library runs, directly or by what it calls: Python ignores what that raises."""
    while frame is not None and frame.f_code.co_filename.startswith(ROOT):
        if frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False


class _At:
    """Notes the places where signals are looked for, and raises at the one of a number, counted from 0."""

    def __init__(self, files: Collection[str], number: int | None, error: Callable[[], BaseException]) -> None:
        self.seen: list[Place] = []
        self._files, self._number, self._error = files, number, error

    def of_frame(self, frame: FrameType, event: str, _: object) -> Any:
        name = _name(frame.f_code)
        if name is None or (self._files and name not in self._files) or _is_of_destructor(frame):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        checks = _checks(frame.f_code)

        def trace(frame: FrameType, event: str, _: object) -> Any:
            if event == "opcode" and checks.get(frame.f_lasti):
                self.seen.append((name, frame.f_lineno))
                if len(self.seen) - 1 == self._number:
                    sys.settrace(None)
                    raise self._error()
            return trace

        return trace


def _traced(call: Callable[[], object], at: _At) -> BaseException | None:
    before = sys.gettrace()
    sys.settrace(at.of_frame)
    try:
        call()
    except BaseException as error:  # whatever comes of it
        return error.with_traceback(None)
    finally:
        sys.settrace(before)
    return None


def places(call: Callable[[], object], files: Collection[str] = ()) -> list[Place]:
    """Return where signals are looked for in a call, in order, as often as that is."""
    at = _At(files, None, KeyboardInterrupt)
    _traced(call, at)
    return at.seen


def interrupted(
    call: Callable[[], object],
    number: int,
    error: Callable[[], BaseException] = KeyboardInterrupt,
    files: Collection[str] = (),
) -> BaseException | None:
    """Make a call, with an error at the place of this number; return what it raised."""
    return _traced(call, _At(files, number, error))


def lost_device() -> BaseException:
    """Return what a driver answers whose device is lost."""
    return cl.LogicError(cl._cl._ErrorRecord("clFinish", cl.status_code.INVALID_COMMAND_QUEUE, ""))


@contextmanager
def launches() -> Iterator[list[cl.Event]]:
    """Give the events of all kernels that are enqueued."""
    events: list[cl.Event] = []
    enqueue = cl.enqueue_nd_range_kernel

    def noted(*args: Any, **options: Any) -> cl.Event:
        events.append(enqueue(*args, **options))
        return events[-1]

    cl.enqueue_nd_range_kernel = noted  # type: ignore[assignment]
    try:
        yield events
    finally:
        cl.enqueue_nd_range_kernel = enqueue


def sweep(
    make: Callable[[], Callable[[], object]],
    check: Callable[[BaseException | None], None],
    error: Callable[[], BaseException] = KeyboardInterrupt,
    *,
    files: Collection[str] = (),
    step: int = 1,
    waited: bool = True,
) -> int:
    """Make a call once for each place where signals are looked for, with an error there; `check` what comes after.

    Parameters
    ----------
    make : callable
        Returns the call, of a state of its own.
    check : callable
        Gets what the call raised.
    error : callable
        Returns what is raised.
    files : collection of str
        In which files of the library; all if there are none.
    step : int
        Take one place of so many.
    waited : bool
        Whether no kernel may run any more when the call has raised.

    Returns
    -------
    int
        How many errors were raised.
    """
    seen = places(make(), files)
    for number in range(0, len(seen), step):
        call = make()
        with launches() as events:
            raised = interrupted(call, number, error, files)
            running = [event for event in events if event.command_execution_status > 0]
        where = "{}:{}".format(*seen[number])
        assert not (raised is not None and waited and running), f"a kernel runs after an error at {where}"
        lost.reasons.clear()
        try:
            check(raised)
        except BaseException as wrong:
            wrong.add_note(f"after {raised!r} at {where}, place {number} of {len(seen)}")
            raise
    return len(range(0, len(seen), step))


def signals(case: Any, number: int, rng: np.random.Generator) -> int:
    """Interrupt the calls of a case by a signal at any time, so many times, and check the next ones each time.

    Returns
    -------
    int
        How many signals came while the call ran.
    """
    before, raised = signal.signal(signal.SIGALRM, signal.default_int_handler), 0
    try:
        for n in range(number):
            call = case.first() if n % 2 else getattr(case, "again", case.first)()
            start = time.perf_counter()
            delay, error = max(1e-6, rng.uniform(0, 1.2) * case.seconds), None
            try:
                signal.setitimer(signal.ITIMER_REAL, delay)
                call()
                signal.setitimer(signal.ITIMER_REAL, 0)
                case.seconds = 0.9 * case.seconds + 0.1 * (time.perf_counter() - start)
            except KeyboardInterrupt as interrupt:
                error, raised = interrupt.with_traceback(None), raised + 1
            case.check(error)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return raised
