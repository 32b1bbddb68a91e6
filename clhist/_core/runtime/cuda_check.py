"""Whether launches by CUDA do what they should on a device: a small known input is counted, once."""

from __future__ import annotations

import numpy as np

from clhist import operators
from clhist._core.model.problem import Choices
from clhist._core.opencl.cuda_arrays import CudaArray
from clhist._core.opencl.cuda_kinds import NotDirectError
from clhist._core.opencl.new_arrays import to_device
from clhist._core.runtime.call import Call
from clhist._core.runtime.engine import Engine

_N, _BINS = 5000, 20_000  # more bins than fit shared memory that a program declares

_reasons: dict[int, str] = {}  # by the number of the device: what is wrong, if anything


def prove(array: CudaArray) -> None:
    """Count a known input on the device of `array`, if that has not been done.

    Raises
    ------
    NotDirectError
        If counts were wrong.
    CaptureError
        If the stream is being captured.
    """
    device = array.memory.device
    if device not in _reasons:
        _reasons[device] = _counted(array)
    if _reasons[device]:
        raise NotDirectError(_reasons[device])


def _counted(array: CudaArray) -> str:
    queue = array.queue
    assert queue is not None
    # Local memory is forced: these bins exceed 48 KiB, beyond which CUDA requires it to be dynamic.
    x = np.arange(_N, dtype=np.int32) ** 2 % _BINS
    engine = Engine.of(queue.context, operators.add(np.int32), "const int *x, int step", "EMIT(x[i], step)")
    call = Call(_BINS, choices=Choices(memory="local"))
    try:
        (counts,) = engine.run([to_device(queue, x), 3], call).results
    except NotDirectError as error:
        return str(error)
    expected = 3 * np.bincount(x, minlength=_BINS)
    return "" if np.array_equal(counts.get(), expected) else "known values were counted wrong on this device"
