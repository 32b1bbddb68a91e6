"""Counters narrower than a word in local memory, two to a word: twice the bins in one pass."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import ClassVar

from clhist.planning.local import resident_groups
from clhist.planning.plan import Plan, Trace, make_plan
from clhist.planning.problem import FREE
from clhist.planning.times import PACKED
from clhist.planning.workload import Workload

COUNTER_BITS = 16
# Each of these atomics returns what it found, and waits for those before it: three times as long in one bin.
MOST_RACE_FACTOR = 256


@dataclass(frozen=True, kw_only=True)
class PackedPlan(Plan):
    """Packed counters in local memory; what they have no room for is counted in one more copy in global memory."""

    strategy: ClassVar[str] = "packed"
    rate: ClassVar[str | None] = PACKED
    fills_local_memory: ClassVar[bool] = True

    counter_bits: int = COUNTER_BITS

    def how(self) -> str:
        return f" of {self.counter_bits}-bit counters"

    @property
    def global_copies(self) -> int:
        return self.work_groups + 1

    @property
    def choices(self) -> dict[str, object]:
        return {"memory": self.memory}


def packed_bytes(load: Workload) -> int:
    """Return the bytes of one packed counter for each bin."""
    return load.num_bins * COUNTER_BITS // 8


def can_pack(load: Workload, update: str) -> bool:
    """Whether packed counters are possible and fit local memory in one pass."""
    free = load.choices.memory in (None, "local") and replace(load.choices, update=None, memory=None) == FREE
    plain = free and len(load.bins) == 1 and not load.on_cpu
    fits = packed_bytes(load) <= load.local_memory("native") - 4
    return load.counts and update == "native" and plain and fits and load.race_factor <= MOST_RACE_FACTOR


def packed_counters(load: Workload) -> Plan:
    """One copy of packed counters in each work-group."""
    trace = Trace()
    used = packed_bytes(load)
    trace.step("bytes", used, "", f"of {COUNTER_BITS}-bit counters, two to a word, fit local memory")
    group = int(trace.step("B", load.profile.work_group_size, "III-C", "work-group size"))
    threads = int(trace.step("T", load.threads, "Fig. 2", "min(Thw, N)"))
    blocks = resident_groups(load, trace, ceil(threads / group), used)
    return make_plan(
        PackedPlan,
        load,
        trace,
        memory="local",
        update="native",
        copies=1,
        passes=1,
        group=group,
        groups=max(1, load.affordable(blocks + 1, "native") - 1),
        sharers=group,
    )
