"""CUDA's devices as OpenCL has them, and arrays of CUDA's memory with the queue that stands for their device."""

from __future__ import annotations

import threading
from typing import Any

import pyopencl as cl

from clhist._core.cuda.driver import CudaError, driver
from clhist._core.cuda.recognised import Recognised
from clhist._core.opencl.cuda_arrays import CudaArray, CudaMemory
from clhist._core.opencl.cuda_kinds import NotDirectError, stands_for
from clhist._core.opencl.device import default_queue, platforms

_lock = threading.Lock()
_queues: dict[int, cl.CommandQueue] = {}


def cuda_array(name: str, recognised: Recognised, original: Any) -> CudaArray:
    """Return the array that was recognised.

    Raises
    ------
    TypeError
        If no kernel can take it; it has the `name` of the argument.
    NotDirectError
        If no OpenCL device is its device.
    """
    described = recognised.library.described(name, recognised.array)
    memory = CudaMemory(
        recognised.library, described.device, recognised.array, original, recognised.back, recognised.is_read_only
    )
    return CudaArray.made(memory, described, queue_of_cuda(described.device))


def queue_of_cuda(device: int) -> cl.CommandQueue:
    """Return the queue that stands for a CUDA device.

    Raises
    ------
    NotDirectError
        If OpenCL does not have that device.
    """
    queue = _queues.get(device)
    if queue is None:
        with _lock:  # one queue for a device: `stands_for` takes one that is kept
            queue = _queues.get(device) or _queues.setdefault(device, _new_queue(device))
    return queue


def number_of(device: cl.Device) -> int:
    """Return the number of an OpenCL device among those of CUDA.

    Raises
    ------
    CudaError
        If there is no CUDA.
    NotDirectError
        If CUDA does not have it.
    """
    for number in range(driver().count()):
        if queue_of_cuda(number).device == device:
            return number
    raise NotDirectError(f"CUDA does not have {device.name.strip()}")


def _new_queue(device: int) -> cl.CommandQueue:
    default = default_queue()
    # CUDA and OpenCL may number devices differently: their places on the PCI bus are compared.
    nvidia = [device for platform in platforms() for device in platform.get_devices() if _place(device) is not None]
    place = driver().place(device)
    matching = [candidate for candidate in nvidia if _place(candidate) == place]
    if not matching and len(nvidia) == driver().count() == 1:  # of a virtual machine, perhaps, with places of its own
        matching = nvidia
    if not matching:
        raise NotDirectError(
            f"NVIDIA's OpenCL does not have the CUDA device {device}, {driver().name(device)}: see `clhist info`"
        )
    # What is kept by context is of one CUDA device: two may look alike, as those of several PCI domains do.
    is_default = default.device in matching and all(other.context != default.context for other in _queues.values())
    context = default.context if is_default else cl.Context(matching[:1])
    queue = cl.CommandQueue(context, default.device if is_default else matching[0])
    stands_for(queue, device)
    return queue


def _place(device: cl.Device) -> tuple[int, int] | None:
    """Return the PCI bus and slot of an OpenCL device of NVIDIA; None of others."""
    try:
        return int(device.pci_bus_id_nv), int(device.pci_slot_id_nv) >> 3  # whose lowest bits are a function
    except (cl.Error, AttributeError):
        return None


def cuda_words(device: cl.Device) -> str | None:
    """Return whether arrays of CUDA go directly to an OpenCL device, in words; None of one that is not NVIDIA's."""
    place = _place(device)
    if place is None:
        return None
    try:
        version = driver().version
        numbers = [n for n in range(driver().count()) if driver().place(n) == place]
    except CudaError as error:
        return f"not taken: {error}"
    if not numbers:
        return "not taken: no CUDA device is at the same place on the bus"
    return f"taken without a copy, as CUDA device {numbers[0]} of CUDA {version // 1000}.{version % 1000 // 10}"
