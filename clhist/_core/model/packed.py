"""Counters narrower than a word in local memory, several to a word: two, four or eight times the bins in one pass.

They are for input that is spread over its bins: a work-group that finds, when it looks at a few elements ahead, that
it is not, or that spills too often, raises a flag, all stop, and a robust plan, which is enqueued behind and else
leaves at once, counts again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, expm1
from typing import ClassVar

from clhist._core.model.feature import (
    CALL_WORDS,
    SAMPLE,
    SPILLS_BYTES,
    WORD_BITS,
    Feature,
    PackedCounters,
)
from clhist._core.model.local import local_copies, resident_groups
from clhist._core.model.partition import cannot_partition, partitioned
from clhist._core.model.passes import groups_side_by_side
from clhist._core.model.plan import Output, Plan, Trace, make_plan
from clhist._core.model.problem import COUNTER_BITS, SIDE_BY_SIDE
from clhist._core.model.scaling import times_of
from clhist._core.model.times import PACKED, RISK_PACKED
from clhist._core.model.updates import BY_NAME
from clhist._core.model.workload import Workload

WIDTHS = tuple(bits for bits in reversed(COUNTER_BITS) if bits < WORD_BITS)
# Bins that a work-group may spill, a power of two, before whole counters are taken. No measurement is recorded.
SPILLED_BINS = 16
# Work-groups may spill as if this share of their elements went to few bins, which takes about three
# times as long as spread input: H200, no command was recorded. Note [Hot share of spills], docs/decisions/0006.
HOT_SHARE = 0.08
# Fetching atomics serialise on a hot bin: three times as long if all values hit one bin. So input must be
# spread as for 8 bits, even where wider counters would hold it.
# Note [A look before packed counters], docs/decisions/0006.
MOST_RACE_FACTOR, SPREAD_BITS = 256, 8
# A counter holds so many times what it is expected to count: spread input then hardly spills. Not recorded as measured.
HEADROOM = 4


@dataclass(frozen=True, kw_only=True)
class PackedPlan(Plan):
    """Packed counters in local memory; each work-group adds up what they have no room for in a small table, by bin.

    Attributes
    ----------
    counter_bits : int
        W.
    robust : Plan
        What counts again if the counters raise their flag.
    """

    strategy: ClassVar[str] = "packed"
    takes_fewer: ClassVar[bool] = True
    fills_local_memory: ClassVar[bool] = True

    counter_bits: int
    robust: Plan

    @property
    def rate(self) -> str | None:  # type: ignore[override]
        return PACKED[self.counter_bits]

    @property
    def kernels(self) -> int:  # type: ignore[override]
        return 1 + self.robust.kernels

    def how(self) -> str:
        return f" of {self.counter_bits}-bit counters, with {self.robust.strategy} copies behind"

    def features(self, value: str | None) -> tuple[Feature, ...]:
        return (PackedCounters(self.counter_bits),)

    @property
    def behind(self) -> Plan:
        return self.robust

    def filling(self, outputs: tuple[Output, ...], indices: tuple[int, ...]) -> Plan:
        robust = self.robust.filling(outputs, indices)
        return replace(self, outputs=outputs, output_indices=indices, robust=robust)

    def own_words(self) -> Mapping[str, Sequence[tuple[str, str]]]:
        return {
            "update": [("counters", f"{self.counter_bits} bits, {self.fields} to a word")],
            "work-groups": [("if input is skewed", f"counted again: {self.robust}")],
        }

    def memory_bytes(self, sizes: Sequence[int]) -> tuple[int, int]:
        words = self.record_words + self.work_groups * self.row_words
        # The base class has a whole word for each counter.
        local, _ = super().memory_bytes(sizes)
        return local * self.counter_bits // WORD_BITS, 4 * (words + self.global_copies * self.num_bins)

    def in_global_memory(self) -> str:
        return "all copies"

    @property
    def fields(self) -> int:
        """Counters of a word."""
        return WORD_BITS // self.counter_bits

    @property
    def row_words(self) -> int:
        """Words of one copy of all bins."""
        return ceil(self.num_bins / self.fields)

    @property
    def record_words(self) -> int:
        """Words in front of these copies: the flag, and the tables of what was spilled."""
        return record_words(self.work_groups * self.passes)

    @property
    def table_size(self) -> int:
        """The number of bins that a work-group may spill."""
        return SPILLED_BINS

    @property
    def most_spills(self) -> int:
        """The number of spills of a work-group: as if it counted `HOT_SHARE` of its elements in one bin."""
        return ceil(HOT_SHARE * self.num_elements / self.work_groups / (1 << self.counter_bits))

    @property
    def global_copies(self) -> int:
        """Copies of whole bins: those of the robust plan."""
        return self.robust.global_copies

    @property
    def copy_bins(self) -> tuple[int, ...]:
        return self.robust.copy_bins

    @property
    def filled_cells(self) -> int:
        return self.work_groups * self.row_words

    @property
    def choices(self) -> dict[str, object]:
        return {"memory": self.memory, "counter_bits": self.counter_bits, "passes": self.passes}

    def chunks(self) -> tuple[int, ...]:
        return (self.bins_per_pass,)

    @property
    def least_distinct(self) -> int:
        """How many of 65,536 sampled pairs must be the first of their bin, or whole counters are taken at once.

        So many would be if the pairs of a work-group were spread evenly over just as many bins as leave counters room
        for half of `HEADROOM` times their number, and at least over one in `MOST_RACE_FACTOR`.
        """
        fewest = HEADROOM / 2 * self.num_elements / self.work_groups / (1 << min(self.counter_bits, SPREAD_BITS))
        fewest = max(1.0, fewest, self.num_bins / MOST_RACE_FACTOR)
        # Expected distinct bins of the sample. `expm1` keeps the digits of small exponents, which many bins have.
        return int(fewest * -expm1(-SAMPLE / fewest) / SAMPLE * 65536)

    @property
    def most_alike(self) -> int:
        """The limit of repetitions of one bin in the sample: half of what would cause too many spills."""
        return int(HOT_SHARE * SAMPLE / 2)


def why_not_packed(load: Workload, update: str) -> str:
    """Return why counters cannot share words, or nothing."""
    if not load.counts or update != "native":
        return "only 32-bit integers that are added, each of them 1, have packed counters"
    if len(load.bins) > 1 or load.num_histograms is not None:
        return "one histogram, and no batch, has packed counters"
    if load.on_cpu:
        return "the work-items of a CPU share no counters"
    return ""


def may_pack(load: Workload, update: str, bits: int) -> bool:
    """Whether counters of so many bits are possible, and left to us."""
    free = load.choices.memory in (None, "local") and load.choices.forced <= {"update", "memory"}
    if not free or why_not_packed(load, update) or packed_passes(load, bits) > resident(load):
        return False
    return load.race_factor <= MOST_RACE_FACTOR and HEADROOM * expected(load, bits) <= 1 << bits


def expected(load: Workload, bits: int) -> float:
    """Return how many elements a work-group is expected to count in a bin that occurs."""
    # The work-groups of each pass share all elements.
    ranks = max(1, resident(load) // packed_passes(load, bits))
    return load.pairs_per_element * load.size / ranks * load.race_factor / load.num_bins


def packed_passes(load: Workload, bits: int) -> int:
    """Return how many passes over local memory all bins take."""
    words = (load.local_memory("native") - SPILLS_BYTES) // 4
    return ceil(load.num_bins / (words * (WORD_BITS // bits)))


def resident(load: Workload) -> int:
    """Return how many work-groups, which take all local memory, are on the device at a time."""
    blocks = ceil(load.threads / load.profile.work_group_size)
    return load.resident(blocks, load.local_memory("native"))


def packed_counters(load: Workload, update: str, bits: int) -> PackedPlan:
    """One copy of packed counters in each work-group, in passes side by side where one has no room for all.

    Raises
    ------
    ValueError
        If there can be none.
    """
    if reason := why_not_packed(load, update):
        raise ValueError(f"counter_bits: {reason}; got {bits}")
    trace, fields, choices = Trace(), WORD_BITS // bits, load.choices
    trace.step("W", bits, "", f"bits of a counter, {fields} to a word")
    trace.step("m", expected(load, bits), "", "RF N / (groups of a pass) / H: expected in a counter")
    least = packed_passes(load, bits)
    if choices.passes is not None and min(choices.passes, load.num_bins) < least:
        raise ValueError(f"passes: expected at least {least} for counters of {bits} bits, got {choices.passes}")
    passes = int(trace.step("S", min(choices.passes or least, load.num_bins), "", "ceil(H W / 32 / words that fit)"))
    # A pass has whole words, so that no word is in two passes; this may leave fewer passes.
    chunk = ceil(ceil(load.num_bins / passes) / fields) * fields
    passes = int(trace.step("S", ceil(load.num_bins / chunk), "", "of whole words")) if passes > 1 else 1
    group = int(trace.step("B", choices.work_group_size or load.profile.work_group_size, "III-C", "work-group size"))
    threads = int(trace.step("T", load.threads, "Fig. 2", "min(Thw, N)"))
    groups = resident_groups(load, trace, ceil(threads / group), load.local_memory("native"))
    groups = groups_side_by_side(load, passes, groups)
    if passes > 1:
        trace.step("groups", groups, "", "of each pass, passes side by side")
    # The fallback is allocated at the same time: it gets what the counters leave of the budget.
    behind = beside_counters(load, bits, groups, passes)
    plan = make_plan(
        PackedPlan,
        load,
        trace,
        memory="local",
        update="native",
        copies=1,
        passes=passes,
        group=group,
        groups=groups,
        sharers=group,
        counter_bits=bits,
        robust=robust_plan(behind, update),
    )
    # The even share of bins that `make_plan` computes may end within a word.
    return replace(plan, bins_per_pass=chunk, pass_order=SIDE_BY_SIDE if passes > 1 else plan.pass_order)


def beside_counters(load: Workload, bits: int, groups: int, passes: int) -> Workload:
    """Return the workload with the memory that packed counters of so many work-groups leave of the budget.

    Raises
    ------
    MemoryError
        If there is none.
    """
    if load.memory_budget is None:
        return load
    size = WORD_BITS // 8 * (record_words(groups * passes) + groups * ceil(load.num_bins * bits / WORD_BITS))
    if size >= load.memory_budget:
        raise MemoryError(f"memory_budget: packed counters take {size} bytes, got {load.memory_budget} bytes")
    return replace(load, memory_budget=load.memory_budget - size)


def record_words(groups: int) -> int:
    """Return the words of the flag, and of the tables of what so many work-groups may spill: bins and amounts."""
    # For each work-group the number of spills, and a bin and an amount for each place of its table.
    return ceil((CALL_WORDS + groups * (1 + 2 * SPILLED_BINS)) / 8) * 8


def robust_plan(load: Workload, update: str) -> Plan:
    """Return the plan in whole counters, as fast whatever the input: in passes, or by partitioning the pairs."""
    # Forced memory, passes and width are those of the packed counters; the size of work-groups is common.
    free = replace(load, choices=load.choices.only("work-groups"), one_launch=False)
    local = local_copies(free, update)
    if cannot_partition(free, update) is not None:
        return local
    other, times = partitioned(free, update), times_of(load)["local"]
    passes, partitions = times.seconds(local), times.seconds(other)
    # Without rates the paper's limit of passes decides.
    if passes is None or partitions is None:
        return local if local.passes <= BY_NAME[update].most_local_passes else other
    # Partitioning is more kernels, which uniform input waits for as well.
    return other if RISK_PACKED * partitions < passes else local
