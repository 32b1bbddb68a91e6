"""Arrays of accumulators: combined with others, begun from values, and finished into results."""

from __future__ import annotations

from math import prod

import pyopencl as cl

from clhist.engine.launch import combine_partials
from clhist.engine.stages import Result
from clhist.hardware.profile import Profile
from clhist.opencl import lost
from clhist.opencl.arrays import Array, is_device_array, operand
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
) -> None:
    """Write to `out` what `dest` and the accumulators `more` are together; NumPy arrays are waited for.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        Where it runs.
    profile : Profile
        Of its device.
    operator : Operator
        How they are combined.
    dest : array or None
        Values, or accumulators; None for nothing. May be `out`.
    out : array
        Gets results, or accumulators.
    dest_is_partial, out_is_partial : bool
        Whether these are accumulators, neither lifted nor finished.
    more : array, optional
        Accumulators.
    """
    arrays = [array for array in (dest, out, more) if array is not None]
    into = operand(out, queue, written=True, read=dest is out)
    held = None if dest is None else into if dest is out else operand(dest, queue, written=False)
    added = None if more is None else operand(more, queue, written=False)
    result = Result(None if held is None else (held,), (into,), (), dest_is_partial, out_is_partial)
    wait_for = [event for array in arrays if is_device_array(array) for event in array.events]
    try:
        event = combine_partials(queue, profile, operator, prod(out.shape), result, added, wait_for)
        if not all(is_device_array(array) for array in arrays):
            event.wait()
    except BaseException as error:  # the memory of NumPy arrays must not go while a kernel may use it
        lost.settle(queue, error)
        raise
    into.retrieve()
    for array in arrays:
        if is_device_array(array):
            array.add_event(event)
