"""The choice of a strategy: by predicted time, or by passes (SC'20, V-A) for kinds of updates without rates.

Pure functions of numbers. Every intermediate is kept, so that a person can read why a plan is as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, cast

from clhist._core.model.feature import WORD_BITS
from clhist._core.model.one_launch import with_fewest_launches
from clhist._core.model.plan import Plan, after
from clhist._core.model.private import MOST_CPU_BINS, private_copies
from clhist._core.model.scaling import times_of
from clhist._core.model.times import Times
from clhist._core.model.updates import GATHER, SORT
from clhist._core.model.workload import Workload

if TYPE_CHECKING:
    from clhist._core.model.global_memory import GlobalPlan
    from clhist._core.model.rows import RowsPlan

# Strategies are imported where they are used: most plans of CPUs need none but private copies.


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
    plan = chosen
    if load.rows is not None:
        from clhist._core.model.rows import or_gathered

        plan = or_gathered(chosen, predicted, load)
    # The times of `times` are of bins that are updated: gathered and sorted pairs have rates of their own.
    if plan.strategy == "rows":
        from clhist._core.model import rows

        predicted = rows.seconds(cast("RowsPlan", plan), load)
    elif plan.strategy == "sort":
        from clhist._core.model import sort

        predicted = sort.seconds(load)
    elif plan.strategy == "global":
        from clhist._core.model.shared import with_fewer_passes

        plan, predicted = with_fewer_passes(cast("GlobalPlan", plan), load, times["global"], predicted)
    return replace(plan, seconds=predicted)


def _chosen(load: Workload, times: dict[str, Times]) -> Plan:
    choices = load.choices
    local_update, global_update = choices.update or load.local_update, choices.update or load.global_update
    # Forced choices first: each of them leaves one strategy.
    if choices.counter_bits is not None and choices.counter_bits < WORD_BITS:
        return _local(load, local_update)
    if choices.update == GATHER:
        from clhist._core.model.rows import gathered

        return gathered(load)
    if choices.update == SORT and choices.memory != "partitioned":
        from clhist._core.model.sort import sorted_pairs

        return sorted_pairs(load)
    # Partitioning takes no batches; forced, it refuses them with an error of its own.
    if load.num_histograms is not None and choices.memory != "partitioned":
        from clhist._core.model.batch import batched

        return batched(load, local_update, global_update)
    if choices.memory == "partitioned":
        from clhist._core.model.partition import partitioned

        return partitioned(load, local_update)
    if choices.memory == "local":
        return _local(load, local_update)
    # A CPU has few work-items, so that each can have a copy and needs no atomics.
    if choices.update == "private" or (choices.update is None and choices.copies is None and load.on_cpu):
        return _or_partitioned(load, "private", lambda: _private(load))
    from clhist._core.model.shared import by_time

    return _or_partitioned(load, local_update, lambda: by_time(load, times))


def _local(load: Workload, update: str) -> Plan:
    from clhist._core.model.shared import local_counters

    return local_counters(load, update)


def _or_partitioned(load: Workload, update: str, plan: Callable[[], Plan]) -> Plan:
    """Return the plan; where there is no memory for a copy of all bins, one of ranges, which need none."""
    try:
        return plan()
    except MemoryError:
        from clhist._core.model.partition import cannot_partition, partitioned

        if load.choices.forced or cannot_partition(load, update) is not None:
            raise
        return partitioned(load, update)


def _private(load: Workload) -> Plan:
    direct = private_copies(load)
    # Fewer bins stay in a core's second-level cache without tiles.
    if not load.choices.forced and load.num_bins > MOST_CPU_BINS:
        from clhist._core.model.partition import is_worth_tiles, partitioned

        if is_worth_tiles(load, direct):
            return after(direct.steps, partitioned(load, "private"))
    return direct
