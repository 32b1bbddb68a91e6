"""Few elements: one work-group sweeps and combines in one launch, where a second would cost more than the others save.

Not in the paper, whose inputs are large.
"""

from __future__ import annotations

from dataclasses import replace

from clhist.planning.local import LocalPlan
from clhist.planning.plan import Plan, Step
from clhist.planning.private import PrivatePlan
from clhist.planning.private_rates import PrivateRates
from clhist.planning.times import CELLS, LAUNCH, Times
from clhist.planning.workload import Workload

_WORD_BYTES = 4  # of a cell, in rates


def with_fewest_launches(plan: Plan, load: Workload, times: Times) -> Plan:
    """Return `plan`, or the same with one work-group in one launch if that is predicted to be sooner.

    Without measured rates only where nothing is lost: there is one work-group anyway, with a work-item for each bin.
    """
    is_plain = type(plan) in (LocalPlan, PrivatePlan) and plan.passes == 1 and not plan.is_batch
    if not (is_plain and load.one_launch and load.size and len(load.bins) == 1):
        return plan
    alone = _alone(plan, load)
    parts = _seconds(plan, load, times)
    launch = load.profile.rates.get(LAUNCH, 0) * 1e-6
    if parts is None or not launch:
        is_free = plan.work_groups == 1 and load.num_bins <= plan.work_group_size
        return alone if alone is not None and is_free else plan
    elements, cells = parts
    share = load.profile.hardware_threads / plan.work_group_size  # of the device, of which rates are
    more = share * (elements + cells) - (elements + plan.work_groups * cells)
    if alone is None or more > launch:
        return plan
    steps = (
        Step("t_alone", more * 1e6, "", "us that one work-group takes longer than all"),
        Step("t_launch", launch * 1e6, "", "us of the second launch, which is saved"),
    )
    return replace(alone, steps=(*plan.steps, *steps))


def _alone(plan: Plan, load: Workload) -> Plan | None:
    """Return `plan` with one work-group in one launch; None where the caller wants copies that others would have."""
    if plan.work_groups == 1 or not isinstance(plan, PrivatePlan):
        return replace(plan, work_groups=1, is_one_launch=True)
    if load.choices.copies is not None or plan.memory != "global":
        return None
    return replace(plan, work_groups=1, copies=plan.turns * plan.work_group_size, is_one_launch=True)


def _seconds(plan: Plan, load: Workload, times: Times) -> tuple[float, float] | None:
    """Return how long the whole device takes for all elements, and for the cells of one work-group; None if unknown."""
    if isinstance(plan, PrivatePlan):
        rates = PrivateRates.of(load.profile.rates, not load.value_bytes, load.bin_bytes[0])
        if rates is None or plan.memory != "global":
            return None
        pairs, bins = load.size * load.pairs_per_element, load.num_bins
        cells = rates.nanoseconds(0, bins, plan.work_group_size, plan.turns)
        return rates.nanoseconds(pairs, bins, 0, plan.turns) * 1e-9, cells * 1e-9
    overhead, whole = times.overhead(plan), times.seconds(plan)
    if overhead is None or whole is None:
        return None
    return whole - overhead, load.copy_bytes(plan.update) / _WORD_BYTES / load.profile.rates[CELLS] * 1e-9
