"""The order of passes over local memory: one after the other, or side by side in one launch. Not in the paper.

Side by side, the work-groups that are resident share the ranges of bins and walk through the same tiles
at the same time: the last-level cache serves all reads but the first, and each range has fewer copies to be combined.
In turn, each range has all work-groups. Where updates of one bin wait for each other, passes side by side have bins
that are assigned to passes cyclically: hot neighbours, as in Zipf's law, are then spread over all passes.
Note [Passes side by side], docs/decisions/0007.
"""

from __future__ import annotations

from dataclasses import replace

from clhist._core.model import updates
from clhist._core.model.plan import P, Plan, Trace
from clhist._core.model.problem import IN_TURN, SIDE_BY_SIDE
from clhist._core.model.scaling import times_of
from clhist._core.model.workload import NARROW_BINS, NARROW_ELEMENTS, Workload


def with_best_order(plan: P, load: Workload, resident: int) -> P:
    """Return a plan, whose passes are in turn, with them in the better order.

    Parameters
    ----------
    plan : Plan
        In local memory.
    load : Workload
        What it is for.
    resident : int
        Work-groups that are on the device at a time.
    """
    if plan.passes == 1:
        return plan
    trace = Trace()
    aside = replace(
        plan,
        pass_order=SIDE_BY_SIDE,
        cyclic_passes=waits(load, plan.update) and may_be_cyclic(load),
        work_groups=groups_side_by_side(load, plan.passes, resident),
    )
    times = times_of(load)["local"]
    seconds = times.seconds(plan), times.seconds(aside)
    for symbol, predicted in zip(("t_turn", "t_side"), seconds, strict=True):
        if predicted is not None:
            trace.step(symbol, predicted * 1e6, "", "passes in turn, or side by side: predicted from rates, us")
    order, reason = _best_order(plan, load, resident, *seconds)
    chosen = plan if order == IN_TURN else aside
    trace.step("groups", chosen.work_groups, "", f"of each pass, passes {order}: {reason}")
    return replace(chosen, steps=(*plan.steps, *trace.steps))


def groups_side_by_side(load: Workload, passes: int, resident: int) -> int:
    """Return how many work-groups each pass has if all passes share those that are resident."""
    return load.affordable(max(1, resident // passes), "native")


def _best_order(
    plan: Plan, load: Workload, resident: int, in_turn: float | None, aside: float | None
) -> tuple[str, str]:
    """Return the order, and the reason for it; `in_turn` and `aside` are the predicted seconds."""
    if load.choices.pass_order is not None:
        return load.choices.pass_order, "forced"
    # Side by side pays off only if all passes read a tile while the cache has it.
    if load.on_cpu:
        return IN_TURN, "the cores of a CPU do not start together"
    # Passes without a resident work-group would start after the others, and read everything again.
    if plan.passes > resident:
        return IN_TURN, f"only {resident} work-groups are resident"
    if updates.waits(plan.update):
        return IN_TURN, f"{plan.update} updates of a hot bin wait, and would keep only its range busy"
    if in_turn is not None and aside is not None:
        return (SIDE_BY_SIDE if aside < in_turn else IN_TURN), "predicted to be faster"
    if in_turn is not None:
        return IN_TURN, "side by side has not been measured on this device (clhist calibrate)"
    return SIDE_BY_SIDE, "the cache serves all reads but the first"


def may_be_cyclic(load: Workload) -> bool:
    """Whether passes may be cyclic: kernels divide bins by the number of passes in 32 bits."""
    # Beyond these limits bins have 64 bits, which the magic number does not divide.
    return load.num_histograms is None and load.size <= NARROW_ELEMENTS and max(load.bins) <= NARROW_BINS


def waits(load: Workload, update: str) -> bool:
    """Whether updates of a bin of a shared copy in local memory wait for each other."""
    return updates.waits(update) or (update == "native" and load.loops)
