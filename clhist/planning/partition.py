"""Partitioning: the pairs are grouped by ranges of bins that fit local memory, where one pass does for each range.

Not in the paper, which reads the input once for each pass over local memory or goes to global memory. What it takes,
and when it was measured to win.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import ClassVar

from clhist.planning.feature import Feature, Parameter, Sweep, buffers, uints
from clhist.planning.plan import Plan, Trace, make_plan
from clhist.planning.times import PARTITIONED, PARTITIONED_BYTES
from clhist.planning.updates import BY_NAME
from clhist.planning.workload import Workload

PARTITION_GROUP, LARGE_TILE_GROUP = 512, 1024  # work-items of a group that partitions one tile
USUAL_GROUP = 64
LEAST_GROUP = 16  # where large values leave no room for more, and partitions are asked for
# The pairs of a partition in one tile cost as much as so many more: where they begin is looked up, and lanes are left.
SEGMENT_COST = 128
RANGE_BYTES = 16  # of local memory: which tiles a work-group goes through
FEW_PARTITIONS = 16
MOST_PARTITION_BINS = 2**16 - 1  # a bin's place in its partition has 16 bits, all ones being no bin
MOST_PARTITIONED_ELEMENTS = 2**30  # pairs and what they are rounded up to are counted in 31 bits
MOST_PARTITIONED_BINS = 2**31 - 1

MOST_PREDICTED = 256  # beyond which the segments of a tile get short, and predicted times wrong
MOST_NATIVE_VALUE_BYTES = 4


@dataclass(frozen=True)
class PartitionedPairs(Feature):
    """The elements are pairs that kernels before grouped by partition."""

    template: ClassVar[str] = "partitioned.mako"
    sections: ClassVar[tuple[str, ...]] = ("helpers", "shares", "initialise_more", "find", "walk")

    def parameters(self, sweep: Sweep) -> tuple[Parameter, ...]:
        return (
            *buffers("__global const uint *", "starts", "sums", "totals"),
            *buffers("__global ulong *", "whose"),
            *uints("partitions", "tiles", "region", "span"),
        )

    def comment(self) -> str:
        return "the pairs of each range of bins are together, in tiles"


@dataclass(frozen=True, kw_only=True)
class PartitionedPlan(Plan):
    """Pairs grouped by `partitions` (P) ranges of `bins_per_pass` bins, each of which is filled in local memory."""

    strategy: ClassVar[str] = "partitioned"
    is_joinable: ClassVar[bool] = False
    rate: ClassVar[str | None] = PARTITIONED
    kernels: ClassVar[int] = 4
    more_local_bytes: ClassVar[int] = RANGE_BYTES

    partitions: int

    def how(self) -> str:
        return f" of pairs in {self.partitions:,} partitions"

    def way(self) -> str:
        return "partitioned pairs"

    @property
    def ranges(self) -> int:
        return self.partitions

    def own_words(self) -> Mapping[str, Sequence[tuple[str, str]]]:
        words = f"{self.partitions:,}: the pairs are grouped by ranges of bins first"
        return {"passes (S)": [("partitions (P)", words)]}

    def memory_bytes(self, sizes: Sequence[int]) -> tuple[int, int]:
        local, everywhere = super().memory_bytes(sizes)
        return local, everywhere + next((int(step.value) for step in self.steps if step.symbol == "bytes"), 0)

    def in_global_memory(self) -> str:
        return f"the pairs, and {super().in_global_memory()}"

    @property
    def global_copies(self) -> int:
        """Copies of each partition: one for each work-group that has pairs of it."""
        return ceil(self.work_groups / self.partitions) + 1

    @property
    def filled_cells(self) -> int:
        return self.partitions * super().filled_cells

    @property
    def choices(self) -> dict[str, object]:
        return {"memory": "partitioned", "passes": self.partitions}

    @property
    def copy_bins(self) -> tuple[int, ...]:
        return self.chunks()

    def chunks(self) -> tuple[int, ...]:
        return (self.bins_per_pass,)


def cannot_partition(load: Workload, update: str) -> Exception | None:
    """Return why the pairs cannot be partitioned, if so."""
    if load.choices.update in ("private", "sort"):
        return ValueError(f"memory: 'partitioned' takes native, cas and lock updates, got {load.choices.update!r}")
    if load.max_pairs != 1:
        return ValueError("memory: 'partitioned' takes maps that emit one value for an element at most")
    if len(load.bins) > 1 or load.num_histograms is not None:
        return ValueError("memory: 'partitioned' makes one histogram, and no batch")
    if load.size > MOST_PARTITIONED_ELEMENTS or load.num_bins > MOST_PARTITIONED_BINS:
        return ValueError(
            f"memory: 'partitioned' takes at most {MOST_PARTITIONED_ELEMENTS} elements and {MOST_PARTITIONED_BINS} "
            f"bins, got {load.size} and {load.num_bins}"
        )
    size, _ = load.element_bytes(update)
    if 2 * size + RANGE_BYTES > load.local_memory(update):
        return ValueError(f"memory: 'partitioned' needs local memory for 2 bins of {size:g} bytes")
    if partition_count(load, update) > work_items(load):
        hint = "; update='private' makes as many as it takes" if load.profile.kind == "cpu" else ""
        return ValueError(
            f"memory: 'partitioned' makes at most {work_items(load)} partitions, "
            f"{load.num_bins} bins need {partition_count(load, update)}{hint}"
        )
    if least_tile_bytes(load, update) > load.profile.local_memory:
        return ValueError(
            f"memory: 'partitioned' takes {least_tile_bytes(load, update)} bytes of local memory for a tile of pairs "
            f"where {load.profile.name} has {load.profile.local_memory}"
        )
    taken = pair_bytes(load) + int(copied_cells(load, update) * size)
    if load.memory_budget is not None and taken > load.memory_budget:
        return MemoryError(
            f"memory_budget: partitioning {load.size} pairs takes {taken} bytes, got {load.memory_budget} bytes"
        )
    return None


def is_worth_partitioning(load: Workload, trace: Trace, update: str, passes: int) -> bool:
    """Whether partitioning is predicted to beat `passes` passes over local memory and updates in global memory."""
    known, forced = BY_NAME[update], load.choices.forced - {"update", "counters"}
    least = known.passes_worth_partitioning
    if load.on_cpu or forced or least is None or passes < least:
        return False
    if cannot_partition(load, update) is not None:
        return False
    count = partition_count(load, update)
    most_bytes = load.profile.rates.get(PARTITIONED_BYTES, MOST_NATIVE_VALUE_BYTES)
    if count > known.most_partitions or (update == "native" and load.value_bytes > most_bytes):
        return False
    enough = trace.step(
        "N_min", 2 * copied_cells(load, update), "", "2 (groups + P) H / P: fewer elements are not worth all copies"
    )
    return load.size >= enough


def partitioned(load: Workload, update: str) -> PartitionedPlan:
    """One copy of each range of bins for each work-group that has pairs of it, in local memory."""
    reason = cannot_partition(load, update)
    if reason is not None:
        raise reason
    choices, trace = load.choices, Trace()
    if choices.copies not in (None, 1):
        raise ValueError(f"copies: expected 1 with memory='partitioned', got {choices.copies}")
    count = int(trace.step("P", partition_count(load, update), "", "partitions, whose bins fit local memory"))
    width = int(trace.step("H_chk", max(2, ceil(load.num_bins / count)), "", "ceil(H / P), 2 at least"))
    group = choices.work_group_size or load.profile.work_group_size
    trace.step("B", group, "III-C", "work-group size")
    groups = int(trace.step("groups", work_groups(load, update), "", "as many as are resident"))
    trace.step("bytes", pair_bytes(load), "", "of the pairs, about")
    plan = make_plan(
        PartitionedPlan,
        load,
        trace,
        memory="local",
        update=update,
        copies=1,
        passes=1,
        group=group,
        groups=groups,
        sharers=group,
        partitions=ceil(load.num_bins / width),
    )
    return replace(plan, bins_per_pass=width)


def partition_count(load: Workload, update: str) -> int:
    """Return how many ranges of bins, each of which fits local memory, all bins make; more if passes are forced."""
    size, _ = load.element_bytes(update)
    room = load.local_memory(update) - load.alignment_bytes(update) - RANGE_BYTES
    needed = ceil(load.num_bins / max(2, min(MOST_PARTITION_BINS, int(room // size))))
    return max(needed, min(load.choices.passes or 1, ceil(load.num_bins / 2)))


def work_groups(load: Workload, update: str) -> int:
    """Return how many work-groups go through the pairs: those that are resident together, by their local memory."""
    group = load.choices.work_group_size or load.profile.work_group_size
    groups = ceil(min(load.profile.hardware_threads, max(1, load.size)) / group)
    size, _ = load.element_bytes(update)
    width = ceil(load.num_bins / partition_count(load, update))
    return load.resident(groups, int(width * size))


def copied_cells(load: Workload, update: str) -> int:
    """Return the cells of all copies: one of each range for each work-group that has pairs of it."""
    count = partition_count(load, update)
    return (work_groups(load, update) + count) * ceil(load.num_bins / count)


def work_items(load: Workload) -> int:
    """Return the work-items of a group that partitions one tile."""
    return min(PARTITION_GROUP, power_of_two(load.profile.work_group_size))


def power_of_two(number: int) -> int:
    """Return the largest power of two that is not more."""
    return 1 << (number.bit_length() - 1)


def pair_bytes(load: Workload) -> int:
    """Return the bytes of the pairs, about: 16 bits for the bin, and the value if each pair has its own."""
    return load.size * (2 + load.value_bytes) * 9 // 8


def least_tile_bytes(load: Workload, update: str) -> int:
    """Return the most bytes of local memory that the smallest tile takes; see `clhist.codegen.specs.PartitionSpec`."""
    most = 2 * power_of_two(partition_count(load, update))
    fewest = LEAST_GROUP if load.choices.memory == "partitioned" else USUAL_GROUP
    items = max(min(fewest, work_items(load)), most)
    return (16 * items + 16 * most) * (2 + load.value_bytes) + 4 * 9 * most + 32
