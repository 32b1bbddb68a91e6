"""Copies in global memory that work-items share through the last-level cache (SC'20, equations 4 to 6)."""

from __future__ import annotations

from math import ceil, floor
from typing import ClassVar

from clhist.planning.plan import GLOBAL_WORK_GROUP, Plan, Trace, make_plan
from clhist.planning.times import EVERYWHERE
from clhist.planning.updates import BY_NAME
from clhist.planning.workload import Workload

# The paper's constants (section III-D).
K_RF = 0.75
F_L2 = 0.4
K_CT_MIN = 2


class GlobalPlan(Plan):
    """Copies in global memory."""

    strategy: ClassVar[str] = "global"
    takes_fewer: ClassVar[bool] = True
    rate: ClassVar[str | None] = EVERYWHERE


def global_copies(load: Workload, update: str) -> Plan:
    """Equations 4 to 6: as many copies as the last-level cache holds, in passes if not even the fewest fit."""
    trace = Trace()
    group = load.choices.work_group_size or min(GLOBAL_WORK_GROUP, load.profile.work_group_size)
    trace.step("B", group, "V-A", "work-group size")
    threads = int(trace.step("T", load.threads, "Fig. 2", "min(Thw, N)"))
    copies, passes = shared_copies(load, trace, update, threads)
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


def shared_copies(load: Workload, trace: Trace, update: str, threads: int) -> tuple[int, int]:
    """Return M and S for `threads` work-items."""
    bins, choices, profile = load.num_bins, load.choices, load.profile
    size, average = load.element_bytes(update)
    expansion = trace.step(
        "RACE_exp",
        max(1.0, K_RF * load.race_factor / max(1.0, profile.l2_line / average)),
        "(4)",
        "max(1, k_RF RF / max(1, L2_line / avg))",
    )
    cache = F_L2 * profile.l2_cache * expansion
    most_sharers = trace.step("C_max", min(threads, bins / K_CT_MIN), "(5)", "min(T, H / k_ct_min)")
    fewest = int(
        trace.step("M_min", min(threads, max(1, floor(threads / most_sharers))), "(5)", "max(1, floor(T / C_max))")
    )
    needed = max(1, min(max(load.bins), ceil(fewest * bins * average / cache)))
    passes = int(trace.step("S", needed, "(5)", "ceil(M_min H avg / (F_L2 L2 RACE_exp))"))
    if choices.passes is not None:
        passes = int(trace.step("S", min(choices.passes, max(load.bins)), "", "forced, at most H"))
    chunk = trace.step("H_chk", ceil(bins / passes), "(5)", "ceil(H / S)")
    per_item = trace.step(
        "k_max", min(cache / size, max(1, load.size)) / threads, "(6)", "min(F_L2 L2 RACE_exp / elsize, N) / T"
    )
    factor = BY_NAME[update].cooperation_factor
    factor = int(trace.step("u", factor, "(6)", "2 for native, 1 for cas and lock"))
    sharers = trace.step("C", min(threads, factor * chunk / per_item), "(6)", "min(T, u H_chk / k_max)")
    copies = int(trace.step("M", min(threads, max(1, floor(threads / sharers))), "(6)", "max(1, floor(T / C))"))
    if choices.copies is not None:
        copies = int(trace.step("M", min(choices.copies, threads), "", "forced, at most T"))
    allowed = load.affordable(copies, update)
    if allowed < copies:
        copies = int(trace.step("M", allowed, "", "what the memory budget allows"))
    return copies, passes
