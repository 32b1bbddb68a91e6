"""The race factor of an input, measured on the device by sampling (SC'20, section III-D and its footnote 8).

Of windows of H consecutive (bin, value) pairs the distinct bins are counted, with a bit for each; the race factor is
the pairs over the distinct bins among them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from clhist._core.runtime.call import Call, CheckedCall, Outcome
from clhist._core.runtime.engine import Engine

_MOST_WINDOWS = 16
_MOST_CELLS = 1 << 20  # of all windows together


@dataclass(frozen=True)
class RaceFactor:
    """A measured race factor.

    Attributes
    ----------
    value : float
        Bins divided by the distinct bins that as many consecutive pairs touch; at least 1.
    pairs, distinct : int
        What was counted in all windows: pairs of bins that exist, and the distinct bins of each window.
    windows : int
        How many windows of consecutive elements were looked at.
    seconds : float
        What it took, waiting included.

    Examples
    --------
    >>> kernel = clhist.HistogramKernel(
    ...     None, "count", arguments="const int *bin", map="EMIT(bin[i], 1)"
    ... )
    >>> kernel.race_factor(np.zeros(10_000, np.int32), num_bins=10).value
    10.0
    """

    value: float
    pairs: int
    distinct: int
    windows: int
    seconds: float

    def __float__(self) -> float:
        return self.value


def run(engine: Engine, args: Sequence[Any], call: Call) -> Outcome:
    """Run a call; its race factor is measured first if it asks for that."""
    if not isinstance(call.race_factor, str):
        return engine.run(args, call)
    checked = engine.check(args, call)
    return engine.run(args, with_race_factor(engine, checked, call))


def with_race_factor(engine: Engine, checked: CheckedCall, call: Call) -> Call:
    """Return `call` with a number for its race factor: "sample" measures it, "sample once" for each number of bins.

    Raises
    ------
    TypeError
        If it is another str.
    ProfileError
        If the device cannot have the engine's profile.
    ValueError, MemoryError
        If the call cannot be planned.
    """
    how = call.race_factor
    if not isinstance(how, str):
        return call
    if how not in ("sample", "sample once"):
        raise TypeError(f"race_factor: expected a number, 'sample' or 'sample once', got {how!r}")
    # A plan is refused here, before anything is enqueued.
    engine.check_plan(checked, call)
    key = tuple(prod(shape) for shape in checked.shapes)
    if how == "sample" or key not in engine.race_factors:
        engine.race_factors[key] = sample_race_factor(engine, checked).value
    return replace(call, race_factor=engine.race_factors[key])


def sample_race_factor(engine: Engine, checked: CheckedCall) -> RaceFactor:
    """Return the race factor of an engine's map on these arguments; the queue is waited for.

    Of several histograms it is that of all their bins together; batches do not matter.
    """
    start = time.perf_counter()
    size = checked.size
    if size == 0:
        return RaceFactor(1.0, 0, 0, 0, 0.0)
    bins = sum(prod(shape) for shape in checked.shapes)
    # A window has about H pairs: fewer elements if each of them emits several.
    length = min(size, max(1, bins // engine.emits))
    # The flags of all windows share a budget, so many bins allow fewer windows.
    windows = max(1, min(_MOST_WINDOWS, _MOST_CELLS // bins, size - length + 1))
    pairs, distinct = engine.sampler.count_distinct(engine.profile_of(checked.queue.device), checked, length, windows)
    value = max(1.0, pairs / distinct) if distinct else 1.0
    return RaceFactor(value, pairs, distinct, windows, time.perf_counter() - start)
