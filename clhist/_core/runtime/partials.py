"""Arrays of accumulators: combine them with each other or with values, and finish them into results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np
import pyopencl as cl

from clhist._core.devices.profile import Profile
from clhist._core.opencl.arrays import Array, is_device_array
from clhist._core.opencl.cuda_arrays import CudaArray
from clhist._core.opencl.cuda_kinds import cuda_device_of, results_like
from clhist._core.opencl.device import default_queue, device_profile
from clhist._core.opencl.new_arrays import to_device
from clhist._core.runtime.executable import Executable
from clhist._core.runtime.launcher import executable_of
from clhist._core.runtime.prepare import forms_of, numbered, prepared_combination
from clhist._core.runtime.result_arrays import ResultArrays
from clhist._core.runtime.stages import Limits
from clhist.operators.operator import Operator


def combine_arrays(
    queue: cl.CommandQueue,
    profile: Profile,
    operator: Operator,
    dest: Array | None,
    out: Array,
    *,
    dest_is_partial: bool = False,
    out_is_partial: bool = False,
    more: Array | None = None,
    begun: Callable[[], None] | None = None,
) -> None:
    """Compute ``out = dest ⊕ more`` element by element; with NumPy arrays, wait for the result.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        The queue that computes.
    profile : Profile
        Of its device.
    operator : Operator
        Combines the elements.
    dest : array or None
        Values, or accumulators; None for the identity element. May be `out`.
    out : array
        Receives results, or accumulators.
    dest_is_partial, out_is_partial : bool
        Whether `dest` or `out` holds accumulators, which are neither lifted nor finished.
    more : array, optional
        Accumulators.
    begun : callable, optional
        Called before the first command is enqueued.
    """
    others = [] if more is None else [more]
    dests = None if dest is None else (dest,)
    target = ResultArrays("", operator, out.shape, (), dests, (out,), dest_is_partial, out_is_partial)
    forms, (_, arrays) = forms_of([target], len(others)), numbered([target])
    limits = Limits(queue.device.max_work_group_size, queue.device.max_compute_units)
    bins = prod(out.shape)
    prepared = prepared_combination(profile, limits, operator, bins, forms, has_more=bool(others))
    every = [*others, *arrays]
    on_device = [array for array in every if is_device_array(array)]
    events = [event for array in on_device for event in array.events]
    executable = executable_of(queue, prepared)
    # CUDA's memory is no argument for OpenCL, and arrays of the host have to be copied there first.
    if cuda_device_of(queue) is not None:
        _run_by_cuda(executable, queue, every, out, begun)
        return
    outcome = executable.run(queue, every, (), len(on_device) == len(every), events, begun=begun)
    for array in on_device:
        # All device arrays get the event, also those that are only read: they must not be rewritten before.
        if outcome.event not in array.events:
            array.add_event(outcome.event)


def _run_by_cuda(
    executable: Executable,
    queue: cl.CommandQueue,
    arrays: Sequence[Array],
    out: Array,
    begun: Callable[[], None] | None,
) -> None:
    """Run a call whose arrays are partly NumPy's: copies of these live in memory of the first CUDA array's library."""
    first = next(array for array in arrays if isinstance(array, CudaArray))
    with results_like(first.memory):
        placed = [array if isinstance(array, CudaArray) else to_device(queue, array) for array in arrays]
        executable.run(queue, placed, (), True, begun=begun)
        for array, copy in zip(arrays, placed, strict=True):
            if array is out and copy is not out:
                out[...] = copy.get()


def merge_arrays(operator: Operator, into: np.ndarray, more: np.ndarray) -> None:
    """Combine accumulators on the host in place: ``into ⊕= more``, by NumPy or else by the default device."""
    # NumPy combines parts whose operation it knows. Its logical functions return booleans, so kernels compute those.
    pairs = [(getattr(np, part.operation or "", None), part.accessor) for part in operator.parts]
    if all(isinstance(ufunc, np.ufunc) and not ufunc.__name__.startswith("logical") for ufunc, _ in pairs):
        with np.errstate(all="ignore"):
            for ufunc, accessor in pairs:
                part = _part(into, accessor)
                ufunc(part, _part(more, accessor), out=part)  # type: ignore[misc]
        return
    queue = default_queue()
    combine_arrays(
        queue,
        device_profile(queue.device),
        operator,
        into,
        into,
        dest_is_partial=True,
        out_is_partial=True,
        more=np.ascontiguousarray(more),
    )


def _part(array: np.ndarray, accessor: str) -> np.ndarray:
    """Return a view of the field of accumulators that C accesses by `accessor`, such as ``".sum.x"``."""
    for name in filter(None, accessor.split(".")):
        half = array.dtype.names is None  # of complex numbers
        array = (array.real if name == "x" else array.imag) if half else array[name]
    return array
