"""The choice of a strategy: by predicted time. The paper's rule (SC'20, V-A) is in `clhist.planning.paper`.

Pure functions of numbers. Every intermediate is kept, so that a person can read why a plan is as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import NamedTuple

from clhist.planning.batch import BatchedPlan, FlattenedPlan, batched
from clhist.planning.global_memory import GlobalPlan, global_copies
from clhist.planning.local import LocalPlan, local_copies, needs_passes
from clhist.planning.one_launch import with_fewest_launches
from clhist.planning.packed import (
    WIDTHS,
    WORTH_NARROWING,
    WORTH_PACKING,
    PackedPlan,
    may_pack,
    packed_counters,
)
from clhist.planning.partition import (
    PartitionedPlan,
    cannot_partition,
    is_worth_tiles,
    partitioned,
    shared_out,
)
from clhist.planning.plan import Plan, Trace, after
from clhist.planning.private import PrivatePlan, private_copies
from clhist.planning.rows import RowsPlan, gathered, or_gathered
from clhist.planning.rows import seconds as gathering_seconds
from clhist.planning.scaling import times_of
from clhist.planning.sort import SortedPlan, global_or_sorted, sorted_pairs
from clhist.planning.sort import seconds as sorting_seconds
from clhist.planning.times import SHORT, Times
from clhist.planning.updates import GATHER, SORT
from clhist.planning.workload import Workload

# Every strategy has one file here, and where it is more than a plain sweep one in engine/ and one in kernels_cl/.
STRATEGIES: dict[str, type[Plan]] = {
    kind.strategy: kind
    for kind in (
        PrivatePlan,
        LocalPlan,
        PackedPlan,
        PartitionedPlan,
        GlobalPlan,
        SortedPlan,
        BatchedPlan,
        FlattenedPlan,
        RowsPlan,
    )
}


class _Candidate(NamedTuple):
    """A way that is compared by predicted time: the symbol of its time, and what plans it."""

    symbol: str
    plan: Callable[[Workload, str, str], Plan]
    is_local: bool  # whether its copies are in local memory, and of all bins
    is_free: bool = False  # whether only callers that force neither copies nor passes nor work-groups can have it


def _counters(load: Workload, update: str, everywhere: str, *, bits: int) -> Plan:
    if not needs_passes(load) or not may_pack(load, update, bits):
        raise ValueError(f"counter_bits: none of {bits} bits")
    return packed_counters(load, update, bits)


CANDIDATES = (
    _Candidate("t_local", lambda load, local, everywhere: local_copies(load, local), True),
    *(_Candidate(f"t_{bits}bit", partial(_counters, bits=bits), True) for bits in WIDTHS),
    _Candidate("t_partitioned", lambda load, local, everywhere: partitioned(load, local), False, True),
    _Candidate("t_shared_out", lambda load, local, everywhere: shared_out(load, local), False, True),
    _Candidate("t_global", lambda load, local, everywhere: global_copies(load, everywhere), False),
)
_GROUPED = ("t_partitioned", "t_shared_out")
WORTH_SKEW = 2 / 3  # how much faster global memory must be
LITTLE = 9  # shortest kernels: what takes less in global memory, its own three among them, takes little time anywhere
LEAST_SKEWED = 2**20  # elements; fewer take little time anywhere
MOST_PASSES = 32  # over the input
PREDICTED = tuple(candidate.symbol for candidate in CANDIDATES)  # steps of a plan that was chosen by its time


@lru_cache(maxsize=4096)
def plan_sweep(load: Workload) -> Plan:
    """Return how one sweep computes its histograms (SC'20, section III, equations 1 to 6).

    The plan is the one that is predicted to be the fastest, by rates of the device (`clhist.planning.scaling`).

    Raises
    ------
    ValueError
        If the forced choices contradict each other or the device.
    MemoryError
        If not even one copy fits the budget.
    """
    times = times_of(load)
    chosen = _chosen(load, times)
    chosen = with_fewest_launches(chosen, load, times[chosen.memory])
    predicted = sorting_seconds(load) if chosen.sorts_pairs else times[chosen.memory].seconds(chosen)
    if load.max_pairs is None:  # a map with a loop may emit any number
        predicted = None
    found = or_gathered(chosen, predicted, load)
    if isinstance(found, RowsPlan):
        predicted = gathering_seconds(found, load)
    return replace(found, seconds=predicted)


def _chosen(load: Workload, times: dict[str, Times]) -> Plan:
    choices = load.choices
    local_update, global_update = choices.update or load.local_update, choices.update or load.global_update
    if choices.counter_bits in WIDTHS:
        return packed_counters(load, local_update, choices.counter_bits)
    if choices.update == GATHER:
        return gathered(load)
    if choices.update == SORT and choices.memory != "partitioned":
        return sorted_pairs(load)
    if load.num_histograms is not None and choices.memory != "partitioned":
        return batched(load, local_update, global_update)
    if choices.memory == "partitioned":
        return partitioned(load, local_update)
    if choices.memory == "local":
        return _fastest(load, local_update, global_update, times) or local_copies(load, local_update)
    if choices.update == "private" or (choices.update is None and choices.copies is None and load.on_cpu):
        return _or_partitioned(load, "private", lambda: _private(load))
    return _or_partitioned(load, local_update, lambda: _by_time(load, times))


def _by_time(load: Workload, times: dict[str, Times]) -> Plan:
    """Return the plan of a GPU, or of shared copies, in whatever memory is faster unless one is forced."""
    choices = load.choices
    local_update, global_update = choices.update or load.local_update, choices.update or load.global_update
    if choices.memory is not None:
        return global_or_sorted(load, global_update)
    fastest = _fastest(load, local_update, global_update, times)
    if fastest is None or fastest.strategy == GlobalPlan.strategy:
        steps = () if fastest is None else tuple(step for step in fastest.steps if step.symbol in PREDICTED)
        return after(steps, global_or_sorted(load, global_update))
    return fastest


def _or_partitioned(load: Workload, update: str, plan: Callable[[], Plan]) -> Plan:
    """Return the plan; where there is no memory for a copy of all bins, one of ranges, which need none."""
    try:
        return plan()
    except MemoryError:
        if load.choices.forced or cannot_partition(load, update) is not None:
            raise
        return partitioned(load, update)


def _private(load: Workload) -> Plan:
    direct = private_copies(load)
    if not load.choices.forced and is_worth_tiles(load, direct):
        return after(direct.steps, partitioned(load, "private"))
    return direct


def _fastest(load: Workload, local_update: str, global_update: str, times: dict[str, Times]) -> Plan | None:
    """Return the plan that is predicted to take the least time; None if none of them is possible."""
    plans = dict(_possible(load, local_update, global_update))
    predicted = {symbol: (times[plan.memory].seconds(plan), plan) for symbol, plan in plans.items()}
    timed = {symbol: (seconds, plan) for symbol, (seconds, plan) in predicted.items() if seconds is not None}
    if not timed:  # of kinds without rates, such as copies that a CPU's work-items share: what is read once
        return next((plan for plan in plans.values() if plan.passes == 1), None)
    trace = Trace()
    for symbol, (seconds, _) in timed.items():
        trace.step(symbol, seconds * 1e6, "", "predicted from the rates of the device, us")
    if _is_better_grouped(load, timed, times):
        timed.pop("t_global", None)
    elif "t_global" in timed:
        for symbol in _GROUPED:
            timed.pop(symbol, None)
    packed = [each for each in timed.values() if isinstance(each[1], PackedPlan)]
    others = [each for each in timed.values() if not isinstance(each[1], PackedPlan)]
    seconds, best = min(others, key=lambda each: each[0])
    least = WORTH_PACKING * seconds
    for seconds, plan in packed:  # the widest first
        if seconds < least:
            least, best = WORTH_NARROWING * seconds, plan
    return replace(best, steps=(*best.steps, *trace.steps))


def _is_better_grouped(load: Workload, timed: Mapping[str, tuple[float, Plan]], times: dict[str, Times]) -> bool:
    """Whether pairs are partitioned rather than updated in global memory, wherever local memory is slower than both.

    By kernels and elements alone: one answer for all numbers of bins. Of many elements bins beyond the cache decide,
    and skew, which slows global memory most; few take little time anywhere.
    """
    grouped = [timed[symbol][1] for symbol in _GROUPED if symbol in timed]
    if not grouped or "t_global" not in timed:
        return bool(grouped)
    regrouping, updating = times[grouped[0].memory], times["global"]
    one, everywhere = regrouping.without_bins(grouped[0], missed=True), timed["t_global"][1]
    few, many = (updating.without_bins(everywhere, missed=missed) for missed in (False, True))
    if one is None or few is None or many is None:
        return False
    risk = 1 / WORTH_SKEW if load.size >= LEAST_SKEWED else 1.0
    return one < risk * (many if many > LITTLE * updating.rates[SHORT] * 1e-6 else few)


def _possible(load: Workload, local_update: str, global_update: str) -> Iterator[tuple[str, Plan]]:
    is_free = load.choices.forced <= {"update", "locks", "counters"} and not load.on_cpu
    for candidate in CANDIDATES:
        if (is_free or not candidate.is_free) and (candidate.is_local or load.choices.memory is None):
            try:
                plan = candidate.plan(load, local_update, global_update)
                if plan.passes <= MOST_PASSES or load.choices.forced:
                    yield candidate.symbol, plan
            except (ValueError, MemoryError):  # what is forced is impossible, or more than the budget allows
                continue
