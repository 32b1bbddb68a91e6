"""`bincount`: NumPy's function on any OpenCL device."""

from __future__ import annotations

import operator as python_operator
import weakref
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from clhist import operators
from clhist._core.cuda.driver import unheard
from clhist._core.kernels.layout import NARROW_BINS, NARROW_ELEMENTS
from clhist._core.opencl import lost
from clhist._core.opencl.arrays import Array, check_array, check_context, common_kind, is_device_array, zeros
from clhist._core.opencl.cuda_arrays import is_cuda
from clhist._core.opencl.device import default_queue, device_kind
from clhist._core.opencl.masks import mask_of, without_masked
from clhist._core.runtime import small
from clhist._core.runtime.call import Call, queue_for
from clhist._core.runtime.caller import at_caller
from clhist._core.runtime.cuda_repeats import ends_with
from clhist._core.runtime.engine import Engine
from clhist._core.runtime.extremes import extremes
from clhist._core.runtime.peek import evenly_spread, found_words
from clhist._core.runtime.prepare import LargestBin
from clhist._core.runtime.scatter import (
    NUMBERED,
    ScatterSpec,
    as_array,
    check_out,
    check_width,
    checked_values,
    counting_spec,
    into,
    missing_integers,
    native,
    numbers_as_array,
    scatter_engine,
)
from clhist._core.runtime.signature import Remembered
from clhist._core.runtime.small import MOST_BINS, TOO_BIG, counted_by_numpy, no_memory_for_bins
from clhist.operators.c_types import supported_dtype
from clhist.operators.operator import Operator
from clhist.operators.reproducible import reproducible_form
from clhist.typing import Devices

# Sums of weights. -0.0 is the identity of +, and no sum of lifted weights is -0.0: only bins without weights hold it.
_SUM = Operator(np.float64, "a + b", -0.0, "add", lift="v + 0.0", finish="a + 0.0")
_COUNT = operators.count(np.intp)  # ones sum up in 32 bits, as long as there are fewer than 2^32 of them
_LONG_COUNT = operators.add(np.intp)
_FLOAT64 = np.dtype(np.float64)
# How the accumulator `total` of a bin that got a value differs from that of others.
_HAS_COUNTS, _HAS_WEIGHTS = "total != 0", "as_ulong(total) != 0x8000000000000000ul"

# How many elements are looked at to guess the number of bins, and of which part the guess is raised: more uniform data
# than one set in a million stays within.
_SAMPLE_MARGIN = 128
_FEW_BINS = 2**12  # which take a CPU less time, in whatever number, than another plan

_ELEMENTS_PER_BIN = 16  # of uint8 and uint16, from which on there are bins for all values of the type


def bincount(
    x: Any,
    weights: Any = None,
    minlength: int = 0,
    *,
    queue: cl.CommandQueue | None = None,
    out: Any = None,
    reproducible: bool = False,
    devices: Devices | None = None,
) -> Any:
    """Count the occurrences of each value, or sum their weights, like `numpy.bincount`.

    Parameters
    ----------
    x : array of shape (N,) of non-negative integers
        NumPy or PyOpenCL array. Unlike NumPy's function, masked entries are skipped, here and in `weights`.
    weights : array of shape (N,), optional
        Any real dtype; summed in float64.
    minlength : int
        Minimum number of bins.
    queue : pyopencl.CommandQueue, optional
        Defaults to that of `x`, or the default one.
    out : array of shape (max(minlength, max(x) + 1),), optional
        Array for the result.
    reproducible : bool
        Whether sums of weights are bitwise the same in any order, as of `reduce_by_index`. Counts always are.
    devices : "all" or sequence of pyopencl.Device, optional
        Several devices that count parts of NumPy arrays at the same time; see `MultiAccumulator`.

    Returns
    -------
    array of shape (max(minlength, max(x) + 1),)
        Counts as `numpy.intp`, sums of weights as float64; of the kind of `x`.

    Raises
    ------
    TypeError, ValueError
        As NumPy's, of the same text: for negative entries, more dimensions than one, weights of another length, dtypes
        that do not convert safely. Also if `out` is wrong.

    Notes
    -----
    NumPy itself counts its arrays of fewer than 60,000 elements, or 120,000 if the device has two compute units
    (`clhist calibrate` measures how many), and sums their weights, unless a `queue` is given or sums are reproducible.

    The number of bins is guessed from a sample, and entries beyond them are noticed while counting: `x` is read once
    unless there are such, or the sums are `reproducible`. The number of bins is known only then; so unlike
    `reduce_by_index` this function waits for the device.

    Examples
    --------
    >>> clhist.bincount([0, 2, 2], minlength=4)
    array([1, 0, 2, 0])
    >>> clhist.bincount([0, 2, 2], weights=[0.5, 1.0, 2.0])
    array([0.5, 0. , 3. ])
    """
    given = x, weights
    if type(x) is not np.ndarray or not (weights is None or type(weights) is np.ndarray):
        try:
            given, (x, weights) = _as_arrays(x, weights)
        except ValueError:  # rows of different lengths
            return np.bincount(*given, minlength)
    if not _is_countable(x, weights, minlength):
        counts = _by_numpy(given, x, minlength)
        if not reproducible or x is None or weights is None or not x.size:
            return into(out, counts)
        x = x.astype(np.intp)
    if isinstance(x, cl_array.Array):
        _check_device_arrays(x, weights)
        queue = queue_for(queue, x.context, x.queue)
    else:
        if _is_for_numpy(x, queue, reproducible and weights is not None):
            counts = counted_by_numpy(x, weights, minlength)
            return counts if out is None else into(out, counts)
        queue = default_queue() if queue is None else queue_for(queue)
    minlength = python_operator.index(minlength)
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
    values = checked_values(weights, operator, x.shape, ())[0][0]
    if reproducible:
        operator, used = reproducible_form(_SUM, None, x.size), ""
    spec = partial(counting_spec, operator, x.dtype, (native(values.dtype),))
    return into(out, _count(spec, x, values, minlength, queue, used))


def _by_numpy(given: tuple[Any, Any], x: Any, minlength: Any) -> np.ndarray:
    """Let NumPy raise what it raises, count nothing, or count a list of floats, which is deprecated."""
    _check_numbers(given[0], x)
    if isinstance(minlength, int) and not -(2**63) <= minlength < 2**63:
        raise ValueError(f"minlength: expected a number of bins, 0 to {MOST_BINS}, got {minlength}")
    return at_caller(np.bincount, _stand_in(given[0]), _stand_in(given[1]), minlength)


def _as_arrays(x: Any, weights: Any) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """Return both as they are, and as arrays or None; without masked elements, if there are some."""
    given = x, weights
    (x, of_x), (weights, of_weights) = _with_mask("x", x), _with_mask("weights", weights)
    if weights is not None and x is not None:
        common_kind((("x", x), ("weights", weights)))
    if of_x is None and of_weights is None:
        return given, (x, weights)
    present = without_masked(x, weights, (of_x, of_weights))
    return present, present


def _with_mask(name: str, value: Any) -> tuple[Any, np.ndarray | None]:
    """Return `value` as an array, or None, and which of its elements are masked."""
    if value is None or type(value) is np.ndarray or isinstance(value, cl_array.Array):
        return value, None
    return (numbers_as_array if name == "weights" else as_array)(name, value), mask_of(value)


def _is_for_numpy(x: np.ndarray, queue: cl.CommandQueue | None, are_reproducible: bool) -> bool:
    """Whether NumPy counts its array; it refuses numbers that may be too large, and has no reproducible sums."""
    if queue is not None or are_reproducible or (x.dtype.kind == "u" and x.itemsize >= np.dtype(np.intp).itemsize):
        return False
    return not small.pays_off("bincount", x.size)


def _check_numbers(given: Any, x: Any) -> None:
    """Raise TypeError for what is no array, or ValueError for numbers that NumPy would count outside of its memory."""
    if x is None or is_device_array(x):
        return
    if message := missing_integers("x", given, x):
        raise TypeError(message.replace("fill them with -1", "fill them"))
    check_width("x", given, x, NUMBERED)
    if x.ndim == 0 and x.dtype.kind == "O":
        raise TypeError(f"x: expected an array of integers, got {type(x.item()).__name__}")
    if x.size and x.dtype.kind in "iuf" and x.itemsize == 8 and x.max() >= MOST_BINS:
        raise ValueError(TOO_BIG if x.min() >= 0 else "'list' argument must have no negative elements")


def _check_device_arrays(x: Array, weights: Array | None) -> None:
    check_array("x", x, native(x.dtype), written=False)
    if weights is not None:
        check_array("weights", weights, supported_dtype(weights.dtype, "weights"), written=False)
        check_context([("weights", weights)], x.context)


def _is_countable(x: Any, weights: Array | None, minlength: Any) -> bool:
    """Whether NumPy would count this, and there is something to count in an array of NumPy."""
    if x is None or x.ndim != 1 or x.dtype.kind not in "biu" or not (x.size or is_device_array(x)):
        return False
    if type(minlength) is not int:
        if isinstance(minlength, bool | np.bool_):
            return False
        try:
            minlength = python_operator.index(minlength)
        except TypeError:
            return False
    if not 0 <= minlength <= MOST_BINS:
        return False
    if weights is None or weights.shape != x.shape:
        return weights is None
    return weights.dtype == _FLOAT64 or bool(np.can_cast(weights.dtype, _FLOAT64, "safe"))


def _stand_in(given: Any) -> Any:
    """Return for a device array one of NumPy's that it takes for the same, and that takes no memory."""
    return np.broadcast_to(np.zeros((), given.dtype), given.shape) if is_device_array(given) else given


def _every(x: Array) -> int | None:
    """Return how many bins there are for all values of a narrow type, where the elements make up for so many.

    Then none can be beyond them, and a CPU need not compare: comparing took half of the time.
    """
    if x.dtype.kind != "u" or x.dtype.itemsize > 2:
        return None
    every = 1 << 8 * x.dtype.itemsize
    return every if x.size >= _ELEMENTS_PER_BIN * every else None


# The largest entries of device arrays that were counted lately; these are not kept. Of CUDA's, which are described anew
# for each call, the place in memory says which is meant.
_largest: Remembered[tuple[Callable[[], Any], int]] = Remembered(16)


def _note(x: Array, largest: int) -> None:
    if not isinstance(x, np.ndarray):
        _largest.put(_place(x), ((lambda: None) if is_cuda(x) else weakref.ref(x), largest))


def _place(x: Array) -> Hashable:
    return (x.memory.device, x.offset, x.size, x.dtype) if is_cuda(x) else id(x)


def _guess(x: Array, queue: cl.CommandQueue) -> tuple[int, int]:
    """Return about the largest entry, and one that there is: from a sample, or of an array that is counted again.

    What that one holds may have changed since: then the guess is wrong, and no entry is known but 0 or more.
    """
    if isinstance(x, np.ndarray):
        largest = int(evenly_spread(x, queue).max())
        return largest, largest
    known = _largest.get(_place(x))
    if known is not None and (is_cuda(x) or known[0]() is x):
        if is_cuda(x):
            x.check_not_captured()  # what is found is read
        return known[1], 0
    with lost.settled(queue):
        largest = int(evenly_spread(x, queue).max())
    return largest, largest


def _count(
    spec: Callable[..., ScatterSpec], x: Array, values: Any, minlength: int, queue: cl.CommandQueue, used: str
) -> Array:
    """Count into as many bins as a sample suggests, and once more if that was too few.

    `spec` gives what the engine depends on. `used` is a C condition for bins that got a value; if there is none, the
    largest entry is computed first.
    """
    if used:
        if isinstance(x, np.ndarray):
            guessed, known = _guess(x, queue)
        else:
            with unheard():
                guessed, known = _guess(x, queue)
            known = 0 if is_cuda(x) else known  # which is not so of arrays that repeat the call
        # A CPU's second stage sums up the counts, which is N if none was outside: no element need be looked at.
        on_cpu = device_kind(queue.device) == "cpu"
        every, is_summed = _every(x) if on_cpu else None, on_cpu and used == _HAS_COUNTS
        room = max(_room(guessed, minlength, on_cpu), every or 0)
        guard = "checked" if every is None and not is_summed else "covered"
        if guessed >= 0 and room < NARROW_BINS and x.size < NARROW_ELEMENTS:
            engine = scatter_engine(queue.context, spec(guarded=guard))
            known = max(known, minlength - 1)
            call = Call(room, queue=queue, largest=LargestBin(used, "found", known))
            found = _found(engine, (x, values), call, queue, known, is_summed=is_summed)
            if found is not None:
                _note(x, found.size - 1)
                return found
    largest, smallest = extremes(x, queue)
    if smallest < 0 or largest > np.iinfo(np.intp).max:  # NumPy makes negative numbers of those
        raise ValueError("'list' argument must have no negative elements")
    if largest >= MOST_BINS:
        raise ValueError(TOO_BIG)
    _note(x, largest)
    engine = scatter_engine(queue.context, spec())
    try:
        return engine.run([x, values], Call(max(minlength, largest + 1), queue=queue)).results[0]
    except MemoryError as error:
        raise no_memory_for_bins(largest + 1, minlength) from error


def _room(guessed: int, minlength: int, on_cpu: bool) -> int:
    """Return a number of bins, if the largest entry of a sample is `guessed`.

    It is rounded, as samples of arrays alike agree, and others have other plans, which take longer than few bins do.
    """
    room = max(guessed + 1 + guessed // _SAMPLE_MARGIN, minlength if on_cpu else 1)
    step = 1 << max(0, room.bit_length() - (2 if on_cpu and room <= _FEW_BINS else 6))
    return max(minlength, -(-room // step) * step)


def _found(
    engine: Engine, data: tuple[Array, Any], call: Call, queue: cl.CommandQueue, known: int, *, is_summed: bool
) -> Array | None:
    """Return the counts of as many bins as a call has; None if an entry was beyond them."""
    room, size = call.num_bins, data[0].size

    def of_words(counts: Any, largest: int, summed: int) -> tuple[Any, bool]:
        """Return the counts, or None, and whether the guess of their number is as good for other arrays."""
        last = max(known, largest)
        found = counts[: last + 1] if last < room and (not is_summed or summed == size) else None
        return found, found is not None and 2 * last + 2 >= room

    if isinstance(data[0], np.ndarray):
        host = np.zeros(2, np.uint32)
        (counts,) = engine.run((*data, room, host), call).results
        return of_words(counts, *host.tolist())[0]
    with found_words(queue) as words:
        (counts,) = engine.run((*data, room, words.array), call).results
        if is_cuda(words.array):
            ends_with(words.array, counts, of_words)
        return of_words(counts, *words.read())[0]
