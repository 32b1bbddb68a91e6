"""Queues of several devices, one context each."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import pyopencl as cl

from clhist._core.opencl.device import default_queue, devices, is_processor, known_problem


def queues_of(value: Any, argument: str = "devices") -> list[cl.CommandQueue]:
    """Return the queues that `value` stands for.

    Parameters
    ----------
    value : "all", or sequence of pyopencl.Device or pyopencl.CommandQueue
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
    if isinstance(value, str):
        if value != "all":
            raise ValueError(f"{argument}: expected 'all' or a sequence of devices or queues, got {value!r}")
        gpus = [device for device in devices() if not is_processor(device) and known_problem(device) is None]
        return [_queue_of(gpu) for gpu in gpus] or [default_queue()]
    if not isinstance(value, Sequence):
        raise TypeError(f"{argument}: expected 'all' or a sequence of devices or queues, got {value!r}")
    queues = [_queue_of(item) if isinstance(item, cl.Device) else item for item in value]
    for queue in queues:
        if not isinstance(queue, cl.CommandQueue):
            raise TypeError(f"{argument}: expected pyopencl.Device or pyopencl.CommandQueue, got {queue!r}")
    if not queues:
        raise ValueError(f"{argument}: expected at least one device, got none")
    return queues


@lru_cache(maxsize=64)
def _queue_of(device: cl.Device) -> cl.CommandQueue:
    queue = default_queue()
    # The queue of a context with more devices would share its memory with them.
    if queue.device == device and len(queue.context.devices) == 1:
        return queue
    _contexts.append(cl.Context([device]))  # on Intel's CPU runtime a queue does not keep its own alive
    return cl.CommandQueue(_contexts[-1], device)


_contexts: list[cl.Context] = []


def device_name(queue: cl.CommandQueue) -> str:
    """Return the name of a queue's device in messages."""
    return f"{queue.device.name.strip()} ({queue.device.platform.name.strip()})"
