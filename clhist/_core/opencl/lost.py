"""Losses of a process: OpenCL, to a fork, after which calls would wait for ever, and a device, to a fault.

The driver of a lost device refuses whatever comes next in this process, with errors that mislead. The first call that
sees it says so, and every later one on that device.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from clhist.errors import DeviceLostError

if TYPE_CHECKING:  # PyOpenCL is imported after an error alone: small NumPy arrays need no device
    import pyopencl as cl

    from clhist._core.model.plan import Plan

# The operators and the plans of the call that was enqueued last, of whatever device.
last_calls: deque[tuple[str, tuple[Plan, ...]]] = deque(maxlen=1)

_forked = False
# Whether `check_process` has something to do: until OpenCL is used, and in forks of a process that used it. What is
# called again and again asks this, and `reasons` before `check_queue`: it takes less than to call them.
unchecked = True

reasons: dict[cl.Device, tuple[str, cl.Error]] = {}


def check_process() -> None:
    """Raise RuntimeError in a process that was forked after its parent had used OpenCL."""
    global unchecked
    if _forked:
        raise RuntimeError(
            "OpenCL was used before this process was forked, and does not work in it; start processes by "
            'multiprocessing.get_context("spawn"), or use OpenCL only in the children'
        )
    unchecked = False


def is_forked() -> bool:
    """Whether this process was forked after its parent had used OpenCL: what is left of that is not to be touched."""
    return _forked


def check_queue(queue: cl.CommandQueue) -> None:
    """Raise DeviceLostError if the device of `queue` is known to be lost."""
    if reasons:
        check_devices([queue.device])


def check_devices(devices: Sequence[cl.Device]) -> None:
    """Raise DeviceLostError if one of `devices` is known to be lost."""
    for device in devices:
        if device in reasons:
            message, cause = reasons[device]
            raise DeviceLostError(f"{message} This call came later, and was not tried.") from cause


def fetched(array: Any, queue: cl.CommandQueue) -> np.ndarray:
    """Return a copy of a device array on the host; raises DeviceLostError if the device is lost meanwhile."""
    with settled(queue):
        copy: np.ndarray = array.get(queue)
    return copy


class settled:  # as a function; a generator would take three times as long
    """Settle `queue` after OpenCL's errors, and others if they are named; raises DeviceLostError as `settle`."""

    __slots__ = ("_errors", "_queue")

    def __init__(self, queue: cl.CommandQueue, *errors: type[BaseException]) -> None:
        self._queue, self._errors = queue, errors

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if error is not None and isinstance(error, (_error_class(), *self._errors)):
            settle(self._queue, error)


def settle(queue: cl.CommandQueue, error: BaseException | None = None) -> None:
    """Wait for `queue`, after `error` if there was one, so that the memory of a call may go.

    Raises
    ------
    DeviceLostError
        If `error` or the waiting shows that the device is lost.
    """
    # Only some errors prove a fault; after others, a queue that cannot finish does.
    cause: Any = error if _is_fault(error) else None
    try:
        queue.finish()
    except _error_class() as fault:
        cause = error if isinstance(error, _error_class()) else fault
    if cause is not None:
        raise DeviceLostError(_lose(queue.device, cause)) from cause


def _error_class() -> type[cl.Error]:
    """Return the class of OpenCL's errors."""
    import pyopencl as cl

    error: type[cl.Error] = cl.Error
    return error


def _is_fault(error: BaseException | None) -> bool:
    import pyopencl as cl

    # No working queue answers these; the last is NVIDIA's for an illegal access.
    faults = (cl.status_code.INVALID_COMMAND_QUEUE, cl.status_code.DEVICE_NOT_AVAILABLE, -9999)
    try:
        return isinstance(error, cl.Error) and error.code in faults
    except AttributeError:  # of an error that is not OpenCL's own
        return False


def _lose(device: cl.Device, cause: cl.Error) -> str:
    """Note that `device` is lost and return what to say."""
    called = "before any call"
    for operators, plans in last_calls:
        called = f"the last call enqueued was {operators}: {'; '.join(map(str, plans))}"
    message = (
        f"the device {device.name.strip()} was lost: a kernel failed on it ({cause}), and its driver refuses all work "
        "of this process from now on. Restart the process. The fault is of the last call, or of one before that had "
        f"not been waited for; {called}. `clhist selftest` tells whether the device computes right."
    )
    if device not in reasons:
        reasons[device] = message, type(cause)(*cause.args)  # another, since the traceback keeps arrays alive
    return message


def _after_fork() -> None:
    global _forked, unchecked
    # `unchecked` is false once the parent has used OpenCL; a fork of a fork is no better.
    _forked = _forked or not unchecked
    unchecked = True


if hasattr(os, "register_at_fork"):  # Windows has no forks
    os.register_at_fork(after_in_child=_after_fork)
