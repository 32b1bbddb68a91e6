"""Queues of several devices, one context each."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import pyopencl as cl

from clhist._core.opencl.device import default_queue, devices, is_processor, known_problem


def queues_of(given: Any, argument: str = "devices") -> list[cl.CommandQueue]:
    """Return the queues that `given` stands for.

    Parameters
    ----------
    given : "all", or sequence of pyopencl.Device or pyopencl.CommandQueue
        "all" is every GPU that works or, where there is none, the default device.
    argument : str
        What errors call it.

    Raises
    ------
    TypeError, ValueError
        If it is none of these, or empty.
    NoDeviceError
        If there is no device.
    """
    if isinstance(given, str):
        if given != "all":
            raise ValueError(f"{argument}: expected 'all' or a sequence of devices or queues, got {given!r}")
        gpus = [each for each in devices() if not is_processor(each) and known_problem(each) is None]
        return [_queue_of(each) for each in gpus] or [default_queue()]
    if not isinstance(given, Sequence):
        raise TypeError(f"{argument}: expected 'all' or a sequence of devices or queues, got {given!r}")
    found = [_queue_of(each) if isinstance(each, cl.Device) else each for each in given]
    for each in found:
        if not isinstance(each, cl.CommandQueue):
            raise TypeError(f"{argument}: expected pyopencl.Device or pyopencl.CommandQueue, got {each!r}")
    if not found:
        raise ValueError(f"{argument}: expected at least one device, got none")
    return found


@lru_cache(maxsize=64)
def _queue_of(device: cl.Device) -> cl.CommandQueue:
    queue = default_queue()
    if queue.device == device and len(queue.context.devices) == 1:
        return queue
    _contexts.append(cl.Context([device]))  # on Intel's CPU runtime a queue does not keep its own alive
    return cl.CommandQueue(_contexts[-1], device)


_contexts: list[cl.Context] = []


def device_name(queue: cl.CommandQueue) -> str:
    """Return what to call the device of a queue in messages."""
    return f"{queue.device.name.strip()} ({queue.device.platform.name.strip()})"
