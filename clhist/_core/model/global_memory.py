"""Copies in global memory that work-items share through the last-level cache (SC'20, equations 4 to 6)."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, floor
from typing import ClassVar

from clhist._core.model.plan import GLOBAL_WORK_GROUP, Plan, Trace, make_plan
from clhist._core.model.times import EVERYWHERE, SWEEP_READING
from clhist._core.model.updates import BY_NAME
from clhist._core.model.workload import Workload

# The paper's constants (section III-D): weight of the race factor, share of the L2 cache that the copies of one pass
# may take, bins of a copy for each work-item that shares it.
K_RF = 0.75
F_L2 = 0.4
K_CT_MIN = 2

MOST_PASSES = 32  # over the input, unless a caller forces more


class GlobalPlan(Plan):
    """Copies in global memory."""

    strategy: ClassVar[str] = "global"
    takes_fewer: ClassVar[bool] = True
    rate: ClassVar[str | None] = EVERYWHERE


def global_copies(load: Workload, update: str, most_passes: int | None = None) -> GlobalPlan:
    """Equations 4 to 6: as many copies as the last-level cache holds, in passes if not even the fewest fit."""
    trace = Trace()
    group = load.choices.work_group_size or min(GLOBAL_WORK_GROUP, load.profile.work_group_size)
    trace.step("B", group, "V-A", "work-group size")
    threads = int(trace.step("T", load.threads, "Fig. 2", "min(Thw, N)"))
    copies, passes = shared_copies(load, trace, update, threads, most_passes)
    groups = ceil(threads / group)
    return make_plan(
        GlobalPlan,
        load,
        trace,
        memory="global",
        update=update,
        copies=copies,
        passes=passes,
        group=group,
        groups=groups,
        sharers=groups * group,
    )


def with_worthwhile_passes(plan: GlobalPlan, load: Workload, update: str) -> GlobalPlan:
    """Return the plan in one pass unless further passes are predicted to save more memory traffic than they add.

    Equation 5 makes as many passes as keep bins in the cache, whatever it costs to read the input again.
    """
    if load.choices.passes is not None or plan.passes == 1:
        return plan
    # Only the extremes are compared: one pass, and as many as equation 5 makes, up to `MOST_PASSES`.
    one = _with_passes(plan, load, update, 1)
    few = plan if plan.passes <= MOST_PASSES else _with_passes(plan, load, update, MOST_PASSES)
    # Bytes that further passes read again. A sweep reaches only a part of the bandwidth.
    added = (few.passes - 1) * load.size * load.read_bytes / SWEEP_READING
    is_worth = missed_bytes(one, load, update) - missed_bytes(few, load, update) > added
    # A line of the cache that is touched once is missed in any number of passes.
    lines = load.num_bins * load.element_bytes(update)[1] / load.profile.l2_line
    return few if is_worth and load.pairs > lines else one


def missed_bytes(plan: GlobalPlan, load: Workload, update: str) -> float:
    """Return how many bytes updates move whose bin is not in the cache: a line each, read and written, at most."""
    _, average = load.element_bytes(update)
    # The share of one pass's cells that stays in the cache: more passes have fewer cells each.
    cached = min(1.0, plan.passes * _cache(load, average) / (plan.copies * load.num_bins * average))
    return (1 - cached) * load.pairs * 2 * load.profile.l2_line


def _with_passes(plan: GlobalPlan, load: Workload, update: str, passes: int) -> GlobalPlan:
    """Return the plan in fewer passes, with the steps of both."""
    fewer = global_copies(load, update, passes)
    # Steps before the last S are those of `plan`, which has no limit of passes.
    last = max(k for k, step in enumerate(fewer.steps) if step.symbol == "S")
    return replace(fewer, steps=(*plan.steps, *fewer.steps[last:]))


def _race_expansion(load: Workload, average: float) -> float:
    # Equation 4. The text of the paper prints min for the inner max, which contradicts its Table I.
    return max(1.0, K_RF * load.race_factor / max(1.0, load.profile.l2_line / average))


def _cache(load: Workload, average: float) -> float:
    """Return the bytes of bins that the last-level cache holds."""
    return F_L2 * load.profile.l2_cache * _race_expansion(load, average)


def shared_copies(
    load: Workload, trace: Trace, update: str, threads: int, most_passes: int | None = None
) -> tuple[int, int]:
    """Return M and S for `threads` work-items."""
    bins, choices = load.num_bins, load.choices
    size, average = load.element_bytes(update)
    trace.step("RACE_exp", _race_expansion(load, average), "(4)", "max(1, k_RF RF / max(1, L2_line / avg))")
    cache = _cache(load, average)
    # Equation 5: the passes in which even the fewest copies stay in the cache.
    most_sharers = trace.step("C_max", min(threads, bins / K_CT_MIN), "(5)", "min(T, H / k_ct_min)")
    fewest = int(
        trace.step("M_min", min(threads, max(1, floor(threads / most_sharers))), "(5)", "max(1, floor(T / C_max))")
    )
    needed = max(1, min(max(load.bins), ceil(fewest * bins * average / cache)))
    passes = int(trace.step("S", needed, "(5)", "ceil(M_min H avg / (F_L2 L2 RACE_exp))"))
    if most_passes is not None and most_passes < passes:
        passes = int(trace.step("S", most_passes, "", "fewer: reading again costs more than misses, or bins are many"))
    if choices.passes is not None:
        passes = int(trace.step("S", min(choices.passes, max(load.bins)), "", "forced, at most H"))
    chunk = trace.step("H_chk", ceil(bins / passes), "(5)", "ceil(H / S)")
    # Equation 6: as many copies as the cache holds in each pass. An empty input counts as one element,
    # since C divides by `per_item`.
    per_item = trace.step(
        "k_max", min(cache / size, max(1, load.size)) / threads, "(6)", "min(F_L2 L2 RACE_exp / elsize, N) / T"
    )
    factor = BY_NAME[update].cooperation_factor
    factor = int(trace.step("u", factor, "(6)", "2 for native, 1 for cas and lock"))
    sharers = trace.step("C", min(threads, factor * chunk / per_item), "(6)", "min(T, u H_chk / k_max)")
    copies = int(trace.step("M", min(threads, max(1, floor(threads / sharers))), "(6)", "max(1, floor(T / C))"))
    if choices.copies is not None:
        copies = int(trace.step("M", min(choices.copies, threads), "", "forced, at most T"))
    # Fewer copies are slower but always right: the budget limits even a forced number.
    allowed = load.affordable(copies, update)
    if allowed < copies:
        copies = int(trace.step("M", allowed, "", "what the memory budget allows"))
    return copies, passes
