"""Few elements: one work-group sweeps and combines in one launch, where a second would cost more than the others save.

Not in the paper, whose inputs are large.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from clhist.planning.local import LocalPlan
from clhist.planning.plan import Plan, Step
from clhist.planning.private import PrivatePlan
from clhist.planning.private_rates import PrivateRates
from clhist.planning.times import CELLS, SHORT, Times
from clhist.planning.workload import Workload

_WORD_BYTES = 4  # of a cell that is filled and combined, in rates


def with_fewest_launches(plan: Plan, load: Workload, times: Times) -> Plan:
    """Return `plan`, or the same with one work-group in one launch if that is predicted to take no more time.

    Without measured rates a GPU does so where the plan has one work-group anyway, which goes over all bins.
    """
    is_plain = type(plan) in (LocalPlan, PrivatePlan) and plan.passes == 1 and not plan.is_batch
    if not (is_plain and load.one_launch and load.size):
        return plan
    alone = _alone(plan, load)
    if alone is None:
        return plan
    costs = _of_private(plan, load) if isinstance(plan, PrivatePlan) else _of_local(plan, load, times)
    if costs is None:
        return alone if plan.work_groups == 1 and not load.on_cpu else plan
    more, launch = costs
    if more > launch:
        return plan
    steps = (
        Step("t_alone", more * 1e6, "", "us that one work-group takes longer than all"),
        Step("t_launch", launch * 1e6, "", "us of a launch, which is saved: one work-group, one launch"),
    )
    return replace(alone, steps=(*plan.steps, *steps))


def _alone(plan: Plan, load: Workload) -> Plan | None:
    """Return `plan` with one work-group; None where copies are forced that others would have."""
    if plan.work_groups == 1:
        return replace(plan, is_one_launch=True)
    if not isinstance(plan, PrivatePlan):
        return replace(plan, work_groups=1, is_one_launch=True)
    if load.choices.copies is not None or plan.memory != "global":
        return None
    return replace(plan, work_groups=1, copies=plan.turns * plan.work_group_size, is_one_launch=True)


def _of_local(plan: Plan, load: Workload, times: Times) -> tuple[float, float] | None:
    """Return by how many seconds one work-group takes longer, and those of a launch; None without rates."""
    overhead, whole, cells = times.overhead(plan), times.seconds(plan), load.profile.rates.get(CELLS, 0)
    if overhead is None or whole is None:
        return None
    groups = ceil(load.profile.hardware_threads / plan.work_group_size)  # which rates are of
    filled = load.copy_bytes(plan.update) / _WORD_BYTES / cells * 1e-9
    launch = load.profile.rates[SHORT] * 1e-6
    alone = (whole - overhead + filled) * groups
    return alone - (whole - overhead + plan.work_groups * filled), launch


def _of_private(plan: PrivatePlan, load: Workload) -> tuple[float, float] | None:
    """Return the same of private copies on a CPU."""
    rates = PrivateRates.of(load.profile.rates, not load.value_bytes, max(load.bin_bytes))
    launch = load.profile.rates.get(SHORT, 0) * 1e-6
    if rates is None or not launch:
        return None
    elements = ceil(load.size * load.pairs_per_element) * len(load.bins)
    items, own = load.profile.hardware_threads, plan.work_group_size
    whole = rates.nanoseconds(elements, load.num_bins, plan.copies // plan.turns, plan.turns)
    alone = rates.nanoseconds(elements, load.num_bins, own, plan.turns) * items / own
    return (alone - whole) * 1e-9, launch
