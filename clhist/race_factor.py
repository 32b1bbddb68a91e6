"""The race factor of an input, measured on the device by sampling (SC'20, section III-D and its footnote 8).

Windows of H consecutive (bin, value) pairs are counted, each into a histogram of its own; the race factor is the pairs
over the distinct bins among them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl as cl

from clhist.engine.batch import Batch
from clhist.opencl.arrays import is_device_array
from clhist.opencl.lost import fetched
from clhist.opencl.program import kept_by_context
from clhist.operators.operator import Operator

if TYPE_CHECKING:
    from clhist.kernel import HistogramKernel

_MOST_WINDOWS = 16
_MOST_CELLS = 1 << 22  # of all windows together


@dataclass(frozen=True)
class RaceFactor:
    """A measured race factor.

    Attributes
    ----------
    value : float
        RF, at least 1: H consecutive pairs touch about H / RF distinct bins.
    pairs, distinct : int
        What was counted in all windows: pairs of bins that exist, and the distinct bins of each window.
    windows : int
        How many windows of consecutive elements were looked at.
    seconds : float
        What it took, waiting included.
    """

    value: float
    pairs: int
    distinct: int
    windows: int
    seconds: float

    def __float__(self) -> float:
        return self.value


def sample_race_factor(
    kernel: HistogramKernel,
    args: Sequence[Any],
    size: int,
    shapes: Sequence[tuple[int, ...]],
    queue: cl.CommandQueue,
    wait_for: Sequence[cl.Event] = (),
) -> RaceFactor:
    """Return the race factor of `kernel` on `args`; of several histograms, that of all their bins together.

    Parameters
    ----------
    kernel : HistogramKernel
        Whose map emits the pairs.
    args : sequence of array or scalar
        The map's arguments, checked.
    size : int
        N, the elements to sample from.
    shapes : sequence of tuple of int
        Of each result.
    queue : pyopencl.CommandQueue
        Waited for.
    wait_for : sequence of pyopencl.Event
        What `args` wait for.
    """
    start = time.perf_counter()
    if size == 0:
        return RaceFactor(1.0, 0, 0, 0, 0.0)
    bins = sum(prod(shape) for shape in shapes)
    length = min(size, max(1, bins // kernel.emits))
    windows = max(1, min(_MOST_WINDOWS, _MOST_CELLS // bins, size - length + 1))
    begins = np.linspace(0, size - length, windows).astype(np.int64)
    counts = kernel.count_ranges(args, shapes, Batch(windows, begins, begins + length), size, queue, wait_for)
    totals = [_totals(array, queue) for array in counts]
    pairs, distinct = sum(total[0] for total in totals), sum(total[1] for total in totals)
    value = max(1.0, pairs / distinct) if distinct else 1.0
    return RaceFactor(value, pairs, distinct, windows, time.perf_counter() - start)


def counting(operator: Operator) -> Operator:
    """Return an operator on the same values that counts them, whatever they are."""
    # A map may use functions of the operator's own; those on its accumulators would not compile.
    preamble = "" if "accumulator_t" in operator.preamble else operator.preamble
    return Operator(
        operator.dtype,
        "a + b",
        0,
        "count",
        accumulator=np.uint32,
        lift="((void)(v), 1u)",
        finish="a",  # never used: what is counted is read as it is
        preamble=preamble,
    )


def _totals(counts: Any, queue: cl.CommandQueue) -> tuple[int, int]:
    """Return the sum of `counts`, and how many of them are not zero."""
    if not is_device_array(counts):
        return int(counts.sum()), int(np.count_nonzero(counts))
    both = fetched(_summing(queue.context)(counts, num_bins=2, queue=queue), queue)
    return int(both[0]), int(both[1])


@kept_by_context
def _summing(context: cl.Context) -> HistogramKernel:
    from clhist.kernel import HistogramKernel
    from clhist.operators import add

    return HistogramKernel(
        context, add(np.int64), arguments="const uint *counts", map="EMIT(0, counts[i]); EMIT(1, counts[i] != 0)"
    )
