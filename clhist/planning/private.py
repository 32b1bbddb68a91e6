"""A copy for each work-item, which needs no atomics (SC'20, Listing 2); what CPUs do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from clhist.planning.plan import GLOBAL_WORK_GROUP, Plan, Trace, make_plan
from clhist.planning.workload import Workload

# On a CPU an update of a shared copy costs four to forty of a private one (PoCL and Intel's runtime, see
# docs/notebook), so a work-item keeps its copy as long as initialising and combining it is not more work than its
# elements are.
ELEMENTS_PER_BIN = 0.25


@dataclass(frozen=True, kw_only=True)
class PrivatePlan(Plan):
    """A copy in global memory for each work-item."""

    strategy: ClassVar[str] = "private"


def private_copies(load: Workload) -> Plan:
    """Listing 2: a copy in global memory for each work-item, as long as they are not more work than the elements."""
    choices, trace = load.choices, Trace()
    group = min(GLOBAL_WORK_GROUP, load.profile.work_group_size)
    group = int(trace.step("B", choices.work_group_size or group, "", "work-group size"))
    threads = int(trace.step("T", load.threads, "Fig. 2", "min(Thw, N)"))
    useful = int(load.size * load.pairs_per_element / (load.num_bins * ELEMENTS_PER_BIN))
    pairs = f"4 N {load.pairs_per_element}" if load.pairs_per_element > 1 else "4 N"
    copies = max(1, min(threads, useful))
    copies = int(trace.step("M", copies, "Listing 2", f"max(1, min(T, {pairs} / H)): one a work-item"))
    if choices.copies is not None:
        copies = int(trace.step("M", min(choices.copies, threads), "", "forced, at most T"))
    copies = load.affordable(copies, "private")
    group = min(group, copies)
    copies -= copies % group  # whole work-groups
    passes = int(trace.step("S", min(choices.passes or 1, max(load.bins)), "", "one, or forced"))
    trace.step("C", 1, "", "no sharing")
    return make_plan(
        PrivatePlan,
        load,
        trace,
        memory="global",
        update="private",
        copies=copies,
        passes=passes,
        group=group,
        groups=copies // group,
        sharers=copies,
    )
