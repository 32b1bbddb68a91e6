"""Few elements: one work-group sweeps and combines in one launch, where a second would cost more than the others save.

Not in the paper, whose inputs are large. Note [One launch], docs/decisions/0016.
"""

from __future__ import annotations

from dataclasses import replace

from clhist._core.model.plan import Plan, Step
from clhist._core.model.private import WORK_ITEMS, PrivatePlan, PrivateRates
from clhist._core.model.scaling import rates_of
from clhist._core.model.times import CELLS, LAUNCH, Times
from clhist._core.model.workload import Workload

_WORD_BYTES = 4  # of a cell, in rates


def with_fewest_launches(plan: Plan, load: Workload, times: Times) -> Plan:
    """Return `plan`, or the same with one work-group in one launch if that is predicted to be sooner.

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
