"""The choice of a strategy: by predicted time, or by passes (SC'20, V-A) for kinds of updates without rates.

Pure functions of numbers. Every intermediate is kept, so that a person can read why a plan is as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from typing import NamedTuple

from clhist._core.model.batch import BatchedPlan, FlattenedPlan, batched
from clhist._core.model.global_memory import GlobalPlan, global_copies, missed_bytes, with_worthwhile_passes
from clhist._core.model.local import LocalPlan, local_copies, needs_passes
from clhist._core.model.one_launch import with_fewest_launches
from clhist._core.model.packed import (
    WIDTHS,
    WORTH_NARROWING,
    WORTH_PACKING,
    PackedPlan,
    may_pack,
    packed_counters,
    packed_passes,
)
from clhist._core.model.partition import (
    PartitionedPlan,
    cannot_partition,
    is_worth_partitioning,
    is_worth_tiles,
    partitioned,
)
from clhist._core.model.plan import Plan, Trace, after
from clhist._core.model.private import PrivatePlan, private_copies
from clhist._core.model.rows import RowsPlan, gathered, or_gathered
from clhist._core.model.rows import seconds as gathering_seconds
from clhist._core.model.scaling import times_of
from clhist._core.model.sort import SortedPlan, global_or_sorted, sorted_pairs
from clhist._core.model.sort import seconds as sorting_seconds
from clhist._core.model.times import BANDWIDTH, Times
from clhist._core.model.updates import BY_NAME, GATHER, SORT
from clhist._core.model.workload import Workload

# A strategy has one file here; with several kernels also one in runtime/, with sections of its own one in kernels_cl/.
# docs/architecture/extending.md has the steps.
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
    is_needed: bool  # to compare at all


def _counters(load: Workload, update: str, everywhere: str, *, bits: int) -> Plan:
    if not needs_passes(load) or not may_pack(load, update, bits):
        raise ValueError(f"counter_bits: none of {bits} bits")
    return packed_counters(load, update, bits)


CANDIDATES = (
    _Candidate("t_local", lambda load, local, everywhere: local_copies(load, local), True),
    *(_Candidate(f"t_{bits}bit", partial(_counters, bits=bits), False) for bits in WIDTHS),
    _Candidate("t_partitioned", lambda load, local, everywhere: partitioned(load, local), False),
    _Candidate("t_global", lambda load, local, everywhere: global_copies(load, everywhere), True),
)
WORTH_SKEW = 2 / 3  # how much faster global memory must be
LEAST_SKEWED = 2**20  # elements; fewer take little time anywhere
PREDICTED = tuple(candidate.symbol for candidate in CANDIDATES)  # steps of a plan that was chosen by its time


@lru_cache(maxsize=4096)
def plan_sweep(load: Workload) -> Plan:
    """Return how one sweep computes its histograms (SC'20, section III, equations 1 to 6 and V-A's switching point).

    Where the device has rates of these kinds of updates, measured or scaled, the plan takes the least predicted time.

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
    predicted = times[chosen.memory].seconds(chosen)
    plan = or_gathered(chosen, predicted, load)
    # The times of `times` are of bins that are updated: gathered and sorted pairs have rates of their own.
    if isinstance(plan, RowsPlan):
        predicted = gathering_seconds(plan, load)
    elif plan.strategy == SortedPlan.strategy:
        predicted = sorting_seconds(load)
    elif type(plan) is GlobalPlan:
        update = load.choices.update or load.global_update
        fewer = with_worthwhile_passes(plan, load, update)
        # Rates do not include the cache misses that fewer passes add.
        if fewer.passes < plan.passes and predicted is not None:
            missed = missed_bytes(fewer, load, update) / times["global"].rates[BANDWIDTH] * 1e-9
            predicted = (times["global"].seconds(fewer) or 0.0) + missed
        plan = fewer
    return replace(plan, seconds=predicted)


def _chosen(load: Workload, times: dict[str, Times]) -> Plan:
    choices = load.choices
    local_update, global_update = choices.update or load.local_update, choices.update or load.global_update
    # Forced choices first: each of them leaves one strategy.
    if choices.counter_bits in WIDTHS:
        return _local(load, local_update)
    if choices.update == GATHER:
        return gathered(load)
    if choices.update == SORT and choices.memory != "partitioned":
        return sorted_pairs(load)
    # Partitioning takes no batches; forced, it refuses them with an error of its own.
    if load.num_histograms is not None and choices.memory != "partitioned":
        return batched(load, local_update, global_update)
    if choices.memory == "partitioned":
        return partitioned(load, local_update)
    if choices.memory == "local":
        return _local(load, local_update)
    # A CPU has few work-items, so that each can have a copy and needs no atomics.
    if choices.update == "private" or (choices.update is None and choices.copies is None and load.on_cpu):
        return _or_partitioned(load, "private", lambda: _private(load))
    return _or_partitioned(load, local_update, lambda: _by_time(load, times))


def _by_time(load: Workload, times: dict[str, Times]) -> Plan:
    """Return the plan of a GPU, or of shared copies, in whatever memory is faster unless one is forced."""
    choices, tried = load.choices, Trace()
    local_update, global_update = choices.update or load.local_update, choices.update or load.global_update
    if choices.memory is None:
        # Rates are of plans of GPUs without further forced choices; all others go by the number of passes.
        free = choices.forced <= {"update", "locks", "counters"} and not load.on_cpu
        fastest = _fastest(load, local_update, global_update, times) if free else None
        plan = fastest or _by_passes(load, local_update, tried)
        if plan is not None and plan.memory == "local":
            return plan
        if fastest is not None:
            tried.extend(step for step in fastest.steps if step.symbol in PREDICTED)
    return after(tried.steps, global_or_sorted(load, global_update))


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


def _local(load: Workload, update: str) -> Plan:
    """Return the plan in local memory: narrow counters where they save passes, the widest that fit in one."""
    forced = load.choices.counter_bits
    if forced in WIDTHS:
        return packed_counters(load, update, forced)
    fitting = (bits for bits in WIDTHS if may_pack(load, update, bits) and packed_passes(load, bits) == 1)
    if needs_passes(load) and (bits := next(fitting, None)):
        try:
            return packed_counters(load, update, bits)
        except MemoryError:  # the budget has room for whole counters, but not for both
            pass
    return local_copies(load, update)


def _fastest(load: Workload, local_update: str, global_update: str, times: dict[str, Times]) -> Plan | None:
    """Return the plan that is predicted to take the least time; None where that of a possible one is not known."""
    candidates: dict[str, tuple[float, Plan]] = {}
    for candidate in CANDIDATES:
        try:
            plan = candidate.plan(load, local_update, global_update)
        except (ValueError, MemoryError):  # impossible, or more than the budget allows
            if candidate.is_needed:
                return None
            continue
        seconds = times[plan.memory].seconds(plan)
        # A candidate without a rate must not drop out: Note [A plan without a rate], docs/decisions/0004.
        if seconds is None:
            if isinstance(plan, PackedPlan):  # of a width that was not measured
                continue
            return None
        candidates[candidate.symbol] = seconds, plan
    trace = Trace()
    for symbol, (seconds, _) in candidates.items():
        trace.step(symbol, seconds * 1e6, "", "predicted from the rates of the device, us")
    packed = [timed for timed in candidates.values() if isinstance(timed[1], PackedPlan)]
    others = [timed for timed in candidates.values() if not isinstance(timed[1], PackedPlan)]
    # Rates are measured with uniform bins.
    risk = 1.0
    if load.size >= LEAST_SKEWED:
        risk = trace.step("risk", 1 / WORTH_SKEW, "", "multiplies t_global: skewed bins slow global memory most")
    seconds, best = min(others, key=lambda timed: timed[0] * (risk if timed[1].memory == "global" else 1))
    least = WORTH_PACKING * seconds
    # Each narrower width must beat the choice so far by a margin, since skew makes it count again.
    for seconds, plan in packed:  # the widest first
        if seconds < least:
            least, best = WORTH_NARROWING * seconds, plan
    return replace(best, steps=(*best.steps, *trace.steps))


def _by_passes(load: Workload, update: str, tried: Trace) -> Plan | None:
    """Return the plan in local memory unless that takes too many passes: the paper's rule, and one for partitioning.

    Strategies that do not fit are noted in `tried`.
    """
    try:
        local = _local(load, update)
    except ValueError:  # what is forced does not fit local memory
        return None
    # The paper's limit is of several passes over whole counters.
    if local.strategy == PackedPlan.strategy:  # in one pass
        return local
    tried.extend(local.steps)
    if is_worth_partitioning(load, tried, update, local.passes):
        return after(tried.steps, partitioned(load, update))
    limit = BY_NAME[update].most_local_passes
    tried.step("S_max", limit, "V-A", "3, 4, 6 passes in local memory for native, cas, lock")
    return replace(local, steps=tried.steps) if local.passes <= limit else None
