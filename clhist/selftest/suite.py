"""All checks of a device, in the order in which they are run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial

import pyopencl as cl

from clhist._core.devices.profile import Profile
from clhist._core.opencl.cuda_queues import queue_of_cuda
from clhist._core.opencl.device import device_profile, devices
from clhist.errors import NoDeviceError
from clhist.selftest.checks import Check
from clhist.selftest.forms import WITHOUT_PROFILE, form_checks
from clhist.selftest.inputs import as_gpu
from clhist.selftest.places import HOST, Cuda, Host, cuda_of
from clhist.selftest.updates import update_checks

OWN, LIKE_A_GPU = "as planned", "as a GPU"


def checks(queue: cl.CommandQueue, *, quick: bool = False, place: Host = HOST) -> Iterator[Check]:
    """Yield the checks of the queue's device; on a CPU also as if it were a GPU, whose kernels others are built from.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        Of the device.
    quick : bool
        Whether some types and forms must do, for which two cores compile for half a minute.
    place : Host
        Where the arrays are.
    """
    own = device_profile(queue.device)
    shared = as_gpu(own) if own.kind == "cpu" else own
    size = "quick" if quick else "full"
    yield from update_checks(queue, shared, size=size, place=place)
    profiles: dict[str, Profile | None] = {OWN: None}
    if own.kind == "cpu":
        profiles[LIKE_A_GPU] = shared
    yield from form_checks(queue, profiles, size=size, place=place)


def tiny_checks(queue: cl.CommandQueue, profiles: dict[str, Profile]) -> Iterator[Check]:
    """Yield small checks of every form of each of the profiles, and of updates, for a simulator of a device."""
    for name, profile in profiles.items():
        for check in update_checks(queue, profile, size="tiny"):
            yield replace(check, row=f"{check.row}, {name}")
    yield from form_checks(queue, dict(profiles), size="tiny")
    yield from (check for check in form_checks(queue, {OWN: None}, size="tiny") if check.row in WITHOUT_PROFILE)


def cuda_checks(device: cl.Device, *, quick: bool = False) -> Iterator[Check]:
    """Yield the checks of an OpenCL device with arrays in CUDA's memory, launched by CUDA.

    Raises
    ------
    NoDeviceError
        If CUDA does not have it, or nothing makes such arrays.
    """
    number, library = cuda_of(device)
    queue = queue_of_cuda(number)  # of whose context arrays of CUDA are
    yield from checks(cl.CommandQueue(queue.context, queue.device), quick=quick, place=Cuda(library, number))


def checks_elsewhere(device: cl.Device, *, quick: bool, cuda: bool = False) -> Callable[[], list[Check]]:
    """Return what gives the same checks of the same device in another process with the same environment."""
    return partial(_checks_of, devices().index(device), device.name, quick, cuda)


def _checks_of(number: int, name: str, quick: bool, cuda: bool) -> list[Check]:
    every = devices()
    # Devices may be numbered otherwise there, so the name has to agree as well.
    if len(every) <= number or every[number].name != name:
        raise NoDeviceError(f"device {number} was {name.strip()}; now there are {[d.name.strip() for d in every]}")
    device = every[number]
    return list(cuda_checks(device, quick=quick) if cuda else checks(queue_of(device), quick=quick))


def queue_of(device: cl.Device) -> cl.CommandQueue:
    """Return a queue of `device` in a context that stays, which a queue on Intel's CPU runtime does not see to."""
    return cl.CommandQueue(_context_of(device))


@cache
def _context_of(device: cl.Device) -> cl.Context:
    return cl.Context([device])
