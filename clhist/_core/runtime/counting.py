"""Counts and sums of weights by a device, in as many bins as the largest element needs."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from functools import cache, partial
from typing import Any

import numpy as np
import pyopencl as cl

from clhist import operators
from clhist._core.model.workload import NARROW_BINS, NARROW_ELEMENTS
from clhist._core.opencl import lost
from clhist._core.opencl.arrays import Array, check_array, check_context, is_device_array
from clhist._core.opencl.cuda_kinds import is_cuda
from clhist._core.opencl.device import default_queue, device_kind
from clhist._core.opencl.lost import fetched
from clhist._core.opencl.new_arrays import beginning, zeros
from clhist._core.opencl.program import kept_by_context
from clhist._core.recording import unheard
from clhist._core.runtime.call import Call, queue_for
from clhist._core.runtime.engine import Engine
from clhist._core.runtime.peek import evenly_spread, found_words
from clhist._core.runtime.prepare import LargestBin
from clhist._core.runtime.reading import check_out, into
from clhist._core.runtime.scatter import ScatterSpec, counting_spec, native, scatter_engine
from clhist._core.runtime.signature import call_templates
from clhist._core.runtime.small import MOST_BINS, TOO_BIG, no_memory_for_bins
from clhist.operators.c_types import c_name, supported_dtype
from clhist.operators.operator import Operator

# Sums of weights. -0.0 is the identity of +, and no sum of lifted weights is -0.0: only bins without weights hold it.
_SUM = Operator(np.float64, "a + b", -0.0, "add", lift="v + 0.0", finish="a + 0.0")
_COUNT = operators.count(np.intp)  # ones sum up in 32 bits, as long as there are fewer than 2^32 of them
_LONG_COUNT = operators.add(np.intp)
_FLOAT64 = np.dtype(np.float64)
# How the accumulator `total` of a bin that got a value differs from that of others.
_HAS_COUNTS, _HAS_WEIGHTS = "total != 0", "as_ulong(total) != 0x8000000000000000ul"

# The largest entry of a sample is raised by 1/128: of uniform data, fewer than one set in a million exceeds that.
_SAMPLE_MARGIN = 128
# To count so many elements again after a wrong guess takes no longer than a sample, for which the host waits.
_FEW_ELEMENTS = 2**16
_FEW_BINS = 2**12  # up to here, unused bins cost a CPU less time than another plan
# Arrays of uint8 and uint16 with at least so many elements for each value of the type get a bin for each value.
_ELEMENTS_PER_BIN = 16


def counted(
    x: Array, weights: Array | None, minlength: int, queue: cl.CommandQueue | None, out: Any, reproducible: bool
) -> Array:
    """Return the counts of integers, or the sums of their weights; the parameters are those of `clhist.bincount`."""
    if is_device_array(x):
        _check_device_arrays(x, weights)
        queue = queue_for(queue, x.context, x.queue)
    else:
        queue = default_queue() if queue is None else queue_for(queue)
    if not x.size:  # NumPy's are integers then, with weights as well
        return into(out, zeros(queue, (minlength,), np.dtype(np.intp)))
    x = x.view(np.uint8) if x.dtype.kind == "b" else x
    if weights is None:
        check_out(out, np.dtype(np.intp), x)  # nothing is enqueued yet
        operator = _COUNT if x.size < 2**32 else _LONG_COUNT
        counts = _count(partial(counting_spec, operator, x.dtype, None), x, 1, minlength, queue, _HAS_COUNTS)
        return into(out, counts)
    check_out(out, _FLOAT64, x)
    operator, used = _SUM, _HAS_WEIGHTS
    values = _values().checked_values(weights, operator, x.shape, ())[0][0]
    # Reproducible accumulators have no condition that tells bins with a value: the largest entry is computed first.
    if reproducible:
        from clhist.operators.reproducible import reproducible_form

        operator, used = reproducible_form(_SUM, None, x.size), ""
    spec = partial(counting_spec, operator, x.dtype, (native(values.dtype),))
    return into(out, _count(spec, x, values, minlength, queue, used))


@cache
def _values() -> Any:
    """Return the module that checks weights, which counts do not need."""
    from clhist._core.runtime import values

    return values


def _check_device_arrays(x: Array, weights: Array | None) -> None:
    check_array("x", x, native(x.dtype), written=False)
    if weights is not None:
        check_array("weights", weights, supported_dtype(weights.dtype, "weights"), written=False)
        check_context([("weights", weights)], x.context)


def _every(x: Array) -> int | None:
    """Return the number of values of a narrow type if the elements outweigh as many bins; None otherwise.

    No entry is out of range then, and a CPU need not compare: comparisons took half of the time.
    """
    if x.dtype.kind != "u" or x.dtype.itemsize > 2:
        return None
    every = 1 << 8 * x.dtype.itemsize
    return every if x.size >= _ELEMENTS_PER_BIN * every else None


def _note(x: Array, largest: int, queue: cl.CommandQueue) -> None:
    """Store the largest entry of a device array, by which the next count of it, or of a similar one, estimates."""
    if not isinstance(x, np.ndarray):
        # A weak reference: the cache must not keep the array alive.
        call_templates.put(_place(x), ((lambda: None) if is_cuda(x) else weakref.ref(x), largest))
        if x.size <= _FEW_ELEMENTS and not is_cuda(x):
            call_templates.put(("largest", queue, x.dtype), largest)


def _place(x: Array) -> Hashable:
    """Return what identifies a device array; arrays of CUDA are described anew for each call, so by their memory."""
    return ("largest", *((x.memory.device, x.offset, x.size, x.dtype) if is_cuda(x) else (id(x),)))


def _guess(x: Array, queue: cl.CommandQueue) -> tuple[int, int]:
    """Return an estimate of the largest entry, and a lower bound of it.

    Both come from a sample, or the estimate from the last count of this array, or of another one of few elements. The
    array may have been rewritten since, so the lower bound is 0 then.
    """
    if isinstance(x, np.ndarray):
        largest = int(evenly_spread(x, queue).max())
        return largest, largest
    # An id may belong to a new array by now, so the weak reference must lead to this one.
    cached: tuple[Callable[[], Any], int] | None = call_templates.get(_place(x))
    if cached is not None and (is_cuda(x) or cached[0]() is x):
        if is_cuda(x):
            x.check_not_captured()  # the host reads whether the estimate was right
        return cached[1], 0
    if x.size <= _FEW_ELEMENTS and not is_cuda(x):
        last: int | None = call_templates.get(("largest", queue, x.dtype))
        if last is not None and last < _FEW_BINS:
            return last, 0
    with lost.settled(queue):
        largest = int(evenly_spread(x, queue).max())
    return largest, largest


def _count(
    spec: Callable[..., ScatterSpec], x: Array, values: Any, minlength: int, queue: cl.CommandQueue, used: str
) -> Array:
    """Count into as many bins as a sample suggests, and count again if these are too few.

    `spec` returns the specification of the engine. `used` is a C condition for bins that got a value; without one, the
    largest entry is computed first.
    """
    if used:
        if isinstance(x, np.ndarray):
            guessed, lower_bound = _guess(x, queue)
        else:
            with unheard():
                guessed, lower_bound = _guess(x, queue)
            lower_bound = 0 if is_cuda(x) else lower_bound  # a replay has other arrays, for which it may be wrong
        # A CPU's second stage sums the counts. If the sum is N, no entry was out of range: no element is compared.
        on_cpu = device_kind(queue.device) == "cpu"
        every, is_summed = _every(x) if on_cpu else None, on_cpu and used == _HAS_COUNTS
        room = max(_room(guessed, minlength, on_cpu), every or 0)
        guard = "checked" if every is None and not is_summed else "covered"
        # Kernels of wider plans count in 64 bits, and the largest bin is reported in 32; negative entries raise below.
        if guessed >= 0 and room < NARROW_BINS and x.size < NARROW_ELEMENTS:
            engine = scatter_engine(queue.context, spec(guarded=guard))
            lower_bound = max(lower_bound, minlength - 1)
            call = Call(room, queue=queue, largest=LargestBin(used, "found", lower_bound))
            counts = _found(engine, (x, values), call, queue, lower_bound, is_summed=is_summed)
            if counts is not None:
                _note(x, counts.size - 1, queue)
                return counts

    largest, smallest = extremes(x, queue)
    if smallest < 0 or largest > np.iinfo(np.intp).max:  # NumPy makes negative numbers of those
        raise ValueError("'list' argument must have no negative elements")
    if largest >= MOST_BINS:
        raise ValueError(TOO_BIG)
    _note(x, largest, queue)
    engine = scatter_engine(queue.context, spec())
    try:
        return engine.run([x, values], Call(max(minlength, largest + 1), queue=queue)).results[0]
    except MemoryError as error:
        raise no_memory_for_bins(largest + 1, minlength) from error


def _room(guessed: int, minlength: int, on_cpu: bool) -> int:
    """Return the number of bins to count into if the largest entry is estimated as `guessed`.

    It is rounded up, so that similar arrays share a plan: a new plan takes longer than a few more bins.
    """
    room = max(guessed + 1 + guessed // _SAMPLE_MARGIN, minlength if on_cpu else 1)
    # Rounded up to two leading bits on a CPU if there are few bins, or else to six: then at most 1/32 are spare.
    step = 1 << max(0, room.bit_length() - (2 if on_cpu and room <= _FEW_BINS else 6))
    return max(minlength, -(-room // step) * step)


def _found(
    engine: Engine, data: tuple[Array, Any], call: Call, queue: cl.CommandQueue, lower_bound: int, *, is_summed: bool
) -> Array | None:
    """Count into the bins of a call; return the counts up to the largest entry, or None if one was out of range."""
    room, size = call.num_bins, data[0].size

    def of_words(counts: Any, largest: int, summed: int) -> tuple[Any, bool]:
        """Return the counts, or None, and whether the number of bins also suits other arrays."""
        # An entry out of range stores 2^32 - 1 if indices are checked, or else makes the sum of counts too small.
        last = max(lower_bound, largest)
        result = beginning(counts, last + 1) if last < room and (not is_summed or summed == size) else None
        return result, result is not None and 2 * last + 2 >= room

    if isinstance(data[0], np.ndarray):
        # The two words of the report: the largest bin, and on a CPU the sum of counts.
        host = np.zeros(2, np.uint32)
        (counts,) = engine.run((*data, room, host), call).results
        return of_words(counts, *host.tolist())[0]
    with found_words(queue) as words:
        (counts,) = engine.run((*data, room, words.array), call).results
        # The report decides on the result, so a recording of this call ends with reading it.
        if is_cuda(words.array):
            from clhist._core.runtime.cuda_repeats import ends_with

            ends_with(words.array, counts, of_words)
        return of_words(counts, *words.read())[0]


def extremes(x: Array, queue: cl.CommandQueue) -> tuple[int, int]:
    """Wait for the queue and return the largest and the smallest integer, or boolean, of an array that is not empty."""
    if not is_device_array(x):
        return int(x.max()), int(x.min())
    if not is_cuda(x):
        # An array in Fortran's order is contiguous once transposed.
        x = x.reshape(1) if not x.ndim else x if x.flags.c_contiguous else x.T
    engine = _engine(queue.context, np.dtype(x.dtype).newbyteorder("="))
    result = engine.run([x], Call(2, queue=queue)).results[0]
    largest, complement = result.get() if is_cuda(result) else fetched(result, queue)
    return int(largest), int(~complement)


@kept_by_context
def _engine(context: cl.Context, dtype: np.dtype) -> Engine:
    # The least number has the greatest complement, so that one array of two bins, which is read once, has both.
    c_type = c_name(dtype)
    pairs = f"EMIT(0, x[i]); EMIT(1, ({c_type}){'!' if dtype.kind == 'b' else '~'}x[i])"
    return Engine.of(context, operators.maximum(dtype), f"const {c_type} *x", pairs)
