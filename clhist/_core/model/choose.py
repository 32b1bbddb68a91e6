"""The choice of a strategy: by predicted time, or by passes (SC'20, V-A) for kinds of updates without rates.

Pure functions of numbers. Every intermediate is kept, so that a person can read why a plan is as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, cast

from clhist._core.model.feature import WORD_BITS
from clhist._core.model.plan import Plan, Step, after
from clhist._core.model.private import MOST_CPU_BINS, WORK_ITEMS, PrivatePlan, PrivateRates, private_copies
from clhist._core.model.scaling import rates_of, times_of
from clhist._core.model.times import CELLS, LAUNCH, Times
from clhist._core.model.updates import GATHER, SORT
from clhist._core.model.workload import Workload

if TYPE_CHECKING:
    from clhist._core.model.global_memory import GlobalPlan
    from clhist._core.model.rows import RowsPlan

# Strategies are imported where they are used: most plans of CPUs need none but private copies.
_WORD_BYTES = 4  # of a cell, in rates


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
    chosen = _with_fewest_launches(chosen, load, times[chosen.memory])
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


def _with_fewest_launches(plan: Plan, load: Workload, times: Times) -> Plan:
    """Return `plan`, or the same with one work-group in one launch if that is predicted to be sooner.

    For few elements, where a second launch costs more than other work-groups save. Not in the paper, whose inputs are
    large. Note [One launch], docs/decisions/0016.

    Without measured rates only where nothing is lost: there is one work-group anyway, with a work-item for each bin.
    """
    # Other strategies have kernels before or behind the sweep, which one launch has not.
    is_plain = plan.strategy in ("local", "private") and plan.passes == 1 and not plan.is_batch
    if not (is_plain and load.one_launch and load.size and len(load.bins) == 1):
        return plan
    alone = _alone(plan, load)
    parts = _seconds(plan, load, times)
    launch = rates_of(load.profile).values.get(LAUNCH, 0) * 1e-6
    if parts is None or not launch:
        is_free = plan.work_groups == 1 and load.num_bins <= plan.work_group_size
        return alone if alone is not None and is_free else plan
    elements, cells = parts  # of which the others would take their shares, and nearly all of combining
    # The extra time of one work-group, against the launch that is saved.
    more = elements * (1 - 1 / plan.work_groups) + cells
    if alone is None or more > launch:
        return plan
    steps = (
        Step("t_alone", more * 1e6, "", "us that one work-group takes longer than all"),
        Step("t_launch", launch * 1e6, "", "us of the second launch, which is saved"),
    )
    return replace(alone, steps=(*plan.steps, *steps))


def _alone(plan: Plan, load: Workload) -> Plan | None:
    """Return `plan` with one work-group in one launch; None where the caller wants copies that others would have."""
    if plan.work_groups == 1:
        return replace(plan, is_one_launch=True)
    if load.choices.copies is not None:
        return None
    if not isinstance(plan, PrivatePlan):
        return replace(plan, work_groups=1, is_one_launch=True)
    if plan.memory != "global":
        return None
    return replace(plan, work_groups=1, copies=plan.turns * plan.work_group_size, is_one_launch=True)


def _seconds(plan: Plan, load: Workload, times: Times) -> tuple[float, float] | None:
    """Return how long one work-group takes for all elements, and for the cells of its copies; None without rates.

    Rates are of as many work-items as the device has, or that on which they were measured.
    """
    items = load.profile.hardware_threads
    if isinstance(plan, PrivatePlan):
        rates = PrivateRates.of(rates_of(load.profile).values, load.value_bytes, load.bin_bytes[0])
        if rates is None or plan.memory != "global":
            return None
        pairs, bins = load.size * load.pairs_per_element, load.num_bins
        # Work-items share neither cells nor updates, so a work-group has its part of the measured rate.
        share = 1e-9 * rates_of(load.profile).values.get(WORK_ITEMS, items) / plan.work_group_size
        cells = rates.nanoseconds(0, bins, plan.work_group_size, plan.turns)
        return share * rates.nanoseconds(pairs, bins, 0, plan.turns), share * cells
    overhead, whole = times.overhead(plan), times.seconds(plan)
    if overhead is None or whole is None:
        return None
    share = items / plan.work_group_size
    # The overhead of many work-groups is left out: one work-group has the cells of one copy.
    cells = load.copy_bytes(plan.update) / _WORD_BYTES / rates_of(load.profile).values[CELLS] * 1e-9
    return share * (whole - overhead), share * cells
