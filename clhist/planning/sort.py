"""Sorting in the place of copies (SC'20, Listing 4): what it takes, and when it is predicted to win."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from clhist.planning.equations import global_copies
from clhist.planning.plan import GLOBAL_WORK_GROUP, Draft, Forced, Plan

# Sorting pairs and combining neighbours (Listing 4), measured on an H200 (docs/performance.md): what a pair costs for
# each 8 bits of the number of bins, what one of three launches for each two bits costs, and what an update costs that
# waits for the one before it (2.5 to 10 us). Sorting is taken where locks are predicted to take so many times as long.
SORT_NANOSECONDS = 0.1
SORT_LAUNCH_NANOSECONDS = 35e3
LOCK_NANOSECONDS = 4000.0
SORT_ADVANTAGE = 2
SORT_BITS = 2  # sorted at a time by PyOpenCL
MOST_SORTED_PAIRS = 2**30 - 1  # PyOpenCL's scans count in 32 bits, and beyond the last pair by as many at most
MOST_SORTED_BINS = 2**31 - 1


def global_or_sorted(draft: Draft, update: str) -> Plan:
    """In global memory; by sorting where no copy with its locks fits the budget, or where many wait for few locks."""
    left_to_us = update == "lock" and draft.forced == Forced() and draft.profile.kind != "cpu"
    may_sort = left_to_us and cannot_sort(draft) is None
    try:
        found = global_copies(draft, update)
    except MemoryError:
        if not may_sort:
            raise
        draft.step("M", 0, "", "not even one copy with its locks fits the memory budget: pairs are sorted")
        return sorted_pairs(draft)
    if not may_sort or found.update != "lock":
        return found
    threads = min(draft.profile.hardware_threads, max(1, draft.num_elements))
    distinct = max(1.0, found.copies * draft.num_bins / draft.race_factor)
    if draft.step("X", threads / distinct, "III-A", "T RF / (M H) work-items at each distinct bin") > 1:
        pairs = draft.num_elements * draft.pairs_each
        locked = draft.step(
            "t_lock", 1e-6 * pairs * LOCK_NANOSECONDS / distinct, "", f"ms: {LOCK_NANOSECONDS:g} ns N RF / (M H)"
        )
        bits = draft.sorted_bins.bit_length()
        launches = 3 * ceil(bits / SORT_BITS) * SORT_LAUNCH_NANOSECONDS
        sorting = draft.step(
            "t_sort",
            1e-6 * (pairs * SORT_NANOSECONDS * bits / 8 + launches),
            "",
            f"ms: {SORT_NANOSECONDS:g} ns N bits / 8, and 3 launches of {SORT_LAUNCH_NANOSECONDS:g} ns for 2 bits",
        )
        if locked > SORT_ADVANTAGE * sorting:
            return sorted_pairs(draft)
    return replace(found, steps=tuple(draft.steps))


def cannot_sort(draft: Draft) -> Exception | None:
    """Return why the pairs cannot be sorted, if so."""
    if draft.most_emits is None:
        return ValueError(
            "update: 'sort' needs to know how many values an element has at most: expected a map without loops, goto "
            "and macros of its own, or emits= for the kernel"
        )
    if len(draft.bins) > 1:
        return ValueError(f"update: 'sort' makes one histogram at a time, got {len(draft.bins)}")
    pairs = draft.num_elements * draft.pairs_each
    if pairs > MOST_SORTED_PAIRS:
        return ValueError(f"update: 'sort' takes at most {MOST_SORTED_PAIRS} (bin, value) pairs, got {pairs}")
    if draft.sorted_bins > MOST_SORTED_BINS:
        return ValueError(f"update: 'sort' takes at most {MOST_SORTED_BINS} bins, got {draft.sorted_bins}")
    if draft.memory_budget is not None and draft.sort_bytes > draft.memory_budget:
        return MemoryError(
            f"memory_budget: sorting {pairs} pairs into {draft.sorted_bins} bins takes {draft.sort_bytes} bytes, "
            f"got {draft.memory_budget} bytes"
        )
    return None


def sorted_pairs(draft: Draft) -> Plan:
    """Listing 4: the pairs are sorted by bin, and a segmented scan combines those of each bin."""
    forced, threads = draft.forced, draft.work_items()
    reason = cannot_sort(draft)
    if reason is not None:
        raise reason
    if forced.memory == "local":
        raise ValueError("memory: expected 'global' with update='sort', got 'local'")
    for name, value in (("copies", forced.copies), ("passes", forced.passes)):
        if value not in (None, 1):
            raise ValueError(f"{name}: expected 1 with update='sort', got {value}")
    group = forced.work_group_size or min(GLOBAL_WORK_GROUP, draft.profile.work_group_size)
    draft.step("B", group, "", "work-group size")
    draft.step("pairs", draft.num_elements * draft.pairs_each, "Listing 4", "N, times the values of an element at most")
    draft.step("bits", draft.sorted_bins.bit_length(), "Listing 4", "of a bin, or H for none: sorted 2 at a time")
    draft.step("bytes", draft.sort_bytes, "", "pairs sorted and scanned, and one copy of the bins")
    return draft.finish("global", "sort", 1, 1, group, ceil(threads / group), 1)
