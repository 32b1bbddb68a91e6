"""Partitioning: the pairs are grouped by ranges of bins that fit local memory, where one pass does for each range.

Not in the paper, which reads the input once for each pass over local memory or goes to global memory. What it takes,
and when it was measured to win.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from clhist.planning.plan import Draft, Forced, Plan

PARTITION_GROUP, LARGE_TILE_GROUP = 512, 1024  # work-items of a group that partitions one tile
LEAST_GROUP = 64
RANGE_BYTES = 16  # of local memory: which tiles a work-group goes through
FEW_PARTITIONS = 16
MOST_PARTITION_BINS = 2**16 - 1  # a bin's place in its partition has 16 bits, all ones being no bin
MOST_PARTITIONED_ELEMENTS = 2**30  # pairs and what they are rounded up to are counted in 31 bits
MOST_PARTITIONED_BINS = 2**31 - 1

# With as many passes over the input as these, partitioning was ahead on an H200 (docs/performance.md).
PASSES_WORTH_PARTITIONING = {"native": 4, "cas": 2, "lock": 4}
MOST_WORTH = {"native": 256, "cas": 128, "lock": 160}  # partitions
MOST_PREDICTED = 256  # beyond which the segments of a tile get short, and predicted times wrong
MOST_NATIVE_VALUE_BYTES = 4


def cannot_partition(draft: Draft, update: str) -> Exception | None:
    """Return why the pairs cannot be partitioned, if so."""
    if draft.forced.update in ("private", "sort"):
        return ValueError(f"memory: 'partitioned' takes native, cas and lock updates, got {draft.forced.update!r}")
    if draft.most_emits != 1:
        return ValueError("memory: 'partitioned' takes maps that emit one value for an element at most")
    if len(draft.bins) > 1 or draft.num_histograms is not None:
        return ValueError("memory: 'partitioned' makes one histogram, and no batch")
    if draft.num_elements > MOST_PARTITIONED_ELEMENTS or draft.num_bins > MOST_PARTITIONED_BINS:
        return ValueError(
            f"memory: 'partitioned' takes at most {MOST_PARTITIONED_ELEMENTS} elements and {MOST_PARTITIONED_BINS} "
            f"bins, got {draft.num_elements} and {draft.num_bins}"
        )
    size, _ = draft.element_bytes(update)
    if 2 * size + RANGE_BYTES > draft.local_memory(update):
        return ValueError(f"memory: 'partitioned' needs local memory for 2 bins of {size:g} bytes")
    if partition_count(draft, update) > work_items(draft):
        return ValueError(
            f"memory: 'partitioned' makes at most {work_items(draft)} partitions, "
            f"{draft.num_bins} bins need {partition_count(draft, update)}"
        )
    if least_tile_bytes(draft, update) > draft.profile.local_memory:
        return ValueError(
            f"memory: 'partitioned' takes {least_tile_bytes(draft, update)} bytes of local memory for a tile of pairs "
            f"where {draft.profile.name} has {draft.profile.local_memory}"
        )
    if draft.memory_budget is not None and pair_bytes(draft) > draft.memory_budget:
        return MemoryError(
            f"memory_budget: partitioning {draft.num_elements} pairs takes {pair_bytes(draft)} bytes, "
            f"got {draft.memory_budget} bytes"
        )
    return None


def is_worth_partitioning(draft: Draft, update: str, passes: int) -> bool:
    """Whether partitioning is predicted to beat `passes` passes over local memory and updates in global memory."""
    forced = replace(draft.forced, update=None)
    if draft.profile.kind == "cpu" or forced != Forced() or passes < PASSES_WORTH_PARTITIONING.get(update, passes + 1):
        return False
    if cannot_partition(draft, update) is not None:
        return False
    count = partition_count(draft, update)
    if count > MOST_WORTH[update] or (update == "native" and draft.value_bytes > MOST_NATIVE_VALUE_BYTES):
        return False
    cells = (work_groups(draft, update) + count) * ceil(draft.num_bins / count)
    enough = draft.step("N_min", 2 * cells, "", "2 (groups + P) H / P: fewer elements are not worth all copies")
    return draft.num_elements >= enough


def partitioned(draft: Draft, update: str) -> Plan:
    """One copy of each range of bins for each work-group that has pairs of it, in local memory."""
    reason = cannot_partition(draft, update)
    if reason is not None:
        raise reason
    forced = draft.forced
    if forced.copies not in (None, 1):
        raise ValueError(f"copies: expected 1 with memory='partitioned', got {forced.copies}")
    count = int(draft.step("P", partition_count(draft, update), "", "partitions, whose bins fit local memory"))
    width = int(draft.step("H_chk", max(2, ceil(draft.num_bins / count)), "", "ceil(H / P), 2 at least"))
    group = forced.work_group_size or draft.profile.work_group_size
    draft.step("B", group, "III-C", "work-group size")
    groups = int(draft.step("groups", work_groups(draft, update), "", "as many as are resident"))
    draft.step("bytes", pair_bytes(draft), "", "of the pairs, about")
    plan = draft.finish("local", update, 1, 1, group, groups, group)
    return replace(plan, partitions=ceil(draft.num_bins / width), bins_per_pass=width)


def partition_count(draft: Draft, update: str) -> int:
    """Return how many ranges of bins, each of which fits local memory, all bins make; more if passes are forced."""
    size, _ = draft.element_bytes(update)
    room = draft.local_memory(update) - draft.alignment_bytes(update) - RANGE_BYTES
    needed = ceil(draft.num_bins / max(2, min(MOST_PARTITION_BINS, int(room // size))))
    return max(needed, min(draft.forced.passes or 1, ceil(draft.num_bins / 2)))


def work_groups(draft: Draft, update: str) -> int:
    """Return how many work-groups go through the pairs: those that are resident together, by their local memory."""
    group = draft.forced.work_group_size or draft.profile.work_group_size
    groups = ceil(min(draft.profile.hardware_threads, max(1, draft.num_elements)) / group)
    size, _ = draft.element_bytes(update)
    width = ceil(draft.num_bins / partition_count(draft, update))
    return draft.resident(groups, int(width * size))


def work_items(draft: Draft) -> int:
    """Return the work-items of a group that partitions one tile."""
    return min(PARTITION_GROUP, power_of_two(draft.profile.work_group_size))


def power_of_two(number: int) -> int:
    """Return the largest power of two that is not more."""
    return 1 << (number.bit_length() - 1)


def pair_bytes(draft: Draft) -> int:
    """Return the bytes of the pairs, about: 16 bits for the bin, and the value if each pair has its own."""
    return draft.num_elements * (2 + draft.value_bytes) * 9 // 8


def least_tile_bytes(draft: Draft, update: str) -> int:
    """Return the most bytes of local memory that the smallest tile takes; see `clhist.codegen.specs.PartitionSpec`."""
    most = 2 * power_of_two(partition_count(draft, update))
    items = max(min(LEAST_GROUP, work_items(draft)), most)
    return (16 * items + 16 * most) * (2 + draft.value_bytes) + 4 * 9 * most + 32
