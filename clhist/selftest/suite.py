"""All checks of a device, in the order in which they are run."""

from __future__ import annotations

from collections.abc import Iterator

import pyopencl as cl

from clhist.device import device_profile
from clhist.profile import Profile
from clhist.selftest.checks import Check
from clhist.selftest.forms import form_checks
from clhist.selftest.inputs import as_gpu
from clhist.selftest.updates import update_checks

OWN, LIKE_A_GPU = "as planned", "as a GPU"


def checks(queue: cl.CommandQueue, *, quick: bool = False) -> Iterator[Check]:
    """Yield the checks of the queue's device; on a CPU also as if it were a GPU, whose kernels others are built from.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        Of the device.
    quick : bool
        Whether ten seconds must do.
    """
    own = device_profile(queue.device)
    shared = as_gpu(own) if own.kind == "cpu" else own
    yield from update_checks(queue, shared, quick=quick)
    profiles: dict[str, Profile | None] = {OWN: None}
    if own.kind == "cpu":
        profiles[LIKE_A_GPU] = shared
    yield from form_checks(queue, profiles, quick=quick)
