"""Copies in global memory that work-items share through the last-level cache (SC'20, equations 4 to 6)."""

from __future__ import annotations

from math import ceil, floor
from typing import ClassVar

from clhist.planning.plan import GLOBAL_WORK_GROUP, Plan, Trace, make_plan
from clhist.planning.times import EVERYWHERE, F_L2, MISSED_BYTES, SWEEP_READING, race_expansion
from clhist.planning.updates import BY_NAME
from clhist.planning.workload import Workload

# The paper's constant (section III-D); the others are in `clhist.planning.times`.
K_CT_MIN = 2


class GlobalPlan(Plan):
    """Copies in global memory."""

    strategy: ClassVar[str] = "global"
    takes_fewer: ClassVar[bool] = True
    rate: ClassVar[str | None] = EVERYWHERE


def global_copies(load: Workload, update: str, *, literal: bool = False) -> Plan:
    """Equations 4 to 6: as many copies as the last-level cache holds, in passes if not even the fewest fit.

    Unless `literal`, passes are made only where reading the input again costs less than the misses that they save.
    """
    trace = Trace()
    group = load.choices.work_group_size or min(GLOBAL_WORK_GROUP, load.profile.work_group_size)
    trace.step("B", group, "V-A", "work-group size")
    threads = int(trace.step("T", load.threads, "Fig. 2", "min(Thw, N)"))
    copies, passes = shared_copies(load, trace, update, threads, literal=literal)
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


def shared_copies(load: Workload, trace: Trace, update: str, threads: int, *, literal: bool) -> tuple[int, int]:
    """Return M and S for `threads` work-items."""
    bins, choices, profile = load.num_bins, load.choices, load.profile
    size, average = load.element_bytes(update)
    expansion = trace.step(
        "RACE_exp",
        race_expansion(load.race_factor, profile.l2_line, average),
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
    if passes > 1 and not literal:
        passes = int(trace.step("S", _worth_passes(load, passes, cache / (bins * size)), "", _WORTH))
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


_WORTH = f"or 1 where reading again costs more than the {MISSED_BYTES} bytes that a miss moves"


def _worth_passes(load: Workload, passes: int, cached: float) -> int:
    """Return so many passes, or 1; `cached` is the part of one copy of all bins that the cache holds."""
    # Elements that are fewer than the lines of the cache miss once each, in however many passes.
    if load.pairs * load.profile.l2_line <= F_L2 * load.profile.l2_cache:
        return 1
    saved = max(0.0, 1 - cached) * MISSED_BYTES * (load.max_pairs or load.pairs_per_element)
    return passes if (passes - 1) * load.read_bytes / SWEEP_READING < saved else 1
