"""Sorting in the place of copies (SC'20, Listing 4): what it takes, and when it is predicted to win."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from typing import ClassVar

from clhist._core.model.feature import BatchChunks, Feature
from clhist._core.model.global_memory import global_copies
from clhist._core.model.plan import GLOBAL_WORK_GROUP, Plan, Trace, after, make_plan
from clhist._core.model.scaling import rates_of
from clhist._core.model.times import BANDWIDTH, LAUNCH, SWEEP_READING, WAIT
from clhist._core.model.workload import Workload

DIGIT_BITS = 8  # sorted at a time
_TILE_PAIRS = 1536  # of one work-group, which are one launch: 6 for each of 256 work-items
_DIGIT_LAUNCHES = 3  # counts, scan and moves of each digit; the scan of the pairs takes as many
_OTHER_LAUNCHES = 3  # that clear the bins, write the pairs, and combine
_PAIR_BYTES = 8  # of a bin and a position
# Share of the bandwidth that a digit's moves reach: 10 M keys of 64 bits with positions take 2.9 ms
# on an H200, 32 bytes for each of 8 digits. Note [Bandwidth of a digit's moves], docs/decisions/0020.
_SORTING_BANDWIDTH = 0.2
_SECTOR_BYTES = 32  # of memory that a single accumulator is fetched in
# Waiting for a lock takes 2.5 to 10 us on an H200: sorting must be predicted to be twice as fast.
# Note [Waiting for a lock], docs/decisions/0009.
SORT_ADVANTAGE = 2
MOST_SORTED_BYTES = 64  # of an accumulator for which sorting is chosen; larger ones have not been measured
MOST_SORTED_PAIRS = 2**30 - 1
MOST_SORTED_BINS = 2**31 - 1


class SortedPlan(Plan):
    """Pairs sorted by bin, those of each bin combined by a segmented scan."""

    strategy: ClassVar[str] = "sort"
    is_joinable: ClassVar[bool] = False
    sorts_pairs: ClassVar[bool] = True

    def way(self) -> str:
        return "sorted pairs"

    def features(self, value: str | None) -> tuple[Feature, ...]:
        return (BatchChunks(equal_shares=True),) if self.is_batch else ()

    def memory_bytes(self, sizes: Sequence[int]) -> tuple[int, int]:
        return 0, sort_bytes(self.num_elements, self.num_bins * self.num_histograms, sizes[0])

    def in_global_memory(self) -> str:
        return f"the pairs and {super().in_global_memory()}"


def global_or_sorted(load: Workload, update: str) -> Plan:
    """Plan updates in global memory, or sorting where no copy with its locks fits, or many wait for few locks."""
    left_to_us = update == "lock" and not load.choices.forced and not load.on_cpu
    may_sort = left_to_us and load.bin_bytes[0] <= MOST_SORTED_BYTES and cannot_sort(load) is None
    trace = Trace()
    try:
        plan = global_copies(load, update)
    except MemoryError:
        if not may_sort:
            raise
        trace.step("M", 0, "", "not even one copy with its locks fits the memory budget: pairs are sorted")
        return after(trace.steps, sorted_pairs(load))
    if not may_sort or plan.update != "lock":
        return plan
    # Locks that are contended are those of bins that occur, in all copies.
    distinct = max(1.0, plan.copies * load.num_bins / load.race_factor)
    # With one work-item or fewer at each of them, updates hardly wait, and sorting does not pay off.
    if trace.step("X", load.threads / distinct, "III-A", "T RF / (M H) work-items at each distinct bin") > 1:
        rates = rates_of(load.profile).values
        wait, bandwidth = rates.get(WAIT, 0), rates.get(BANDWIDTH, 0)
        launches = sort_launches(load.pairs, load.all_bins)
        locked = trace.step("t_lock", 1e-3 * load.pairs * wait / distinct, "", f"ms: {wait:g} us N RF / (M H)")
        text = f"ms: {launches} launches, and what they move at {bandwidth:.0f} GB/s"
        predicted = seconds(load)
        if predicted is not None and locked > SORT_ADVANTAGE * trace.step("t_sort", 1e3 * predicted, "", text):
            return after((*plan.steps, *trace.steps), sorted_pairs(load))
    return replace(plan, steps=(*plan.steps, *trace.steps))


def cannot_sort(load: Workload) -> Exception | None:
    """Return why the pairs cannot be sorted, if so."""
    if load.max_pairs is None:
        return ValueError(
            "update: 'sort' needs to know how many values an element has at most: expected a map without loops, goto "
            "and macros of its own, or emits= for the kernel"
        )
    if len(load.bins) > 1:
        return ValueError(f"update: 'sort' makes one histogram at a time, got {len(load.bins)}")
    if load.pairs > MOST_SORTED_PAIRS:
        return ValueError(f"update: 'sort' takes at most {MOST_SORTED_PAIRS} (bin, value) pairs, got {load.pairs}")
    if load.all_bins > MOST_SORTED_BINS:
        return ValueError(f"update: 'sort' takes at most {MOST_SORTED_BINS} bins, got {load.all_bins}")
    needed = sort_bytes(load.pairs, load.all_bins, load.bin_bytes[0])
    if load.memory_budget is not None and needed > load.memory_budget:
        return MemoryError(
            f"memory_budget: sorting {load.pairs} pairs into {load.all_bins} bins takes {needed} bytes, "
            f"got {load.memory_budget} bytes"
        )
    return None


def sort_launches(pairs: int, bins: int) -> int:
    """Return how many kernels are launched, one after the other."""
    # A single tile: one launch sorts it, and one scans it.
    if pairs <= _TILE_PAIRS:
        return 1 + 1 + _OTHER_LAUNCHES
    return _DIGIT_LAUNCHES * (ceil(bins.bit_length() / DIGIT_BITS) + 1) + _OTHER_LAUNCHES


def seconds(load: Workload) -> float | None:
    """Return how long sorting is predicted to take; None if a rate that this needs is not known."""
    rates = rates_of(load.profile).values
    bandwidth, launch = rates.get(BANDWIDTH, 0), rates.get(LAUNCH, 0)
    if not bandwidth or not launch:
        return None
    accumulator_bytes = _held_bytes(load.bin_bytes[0])
    written = _PAIR_BYTES + accumulator_bytes
    digits = ceil(load.all_bins.bit_length() / DIGIT_BITS)
    sorted_ = digits * (_PAIR_BYTES // 2 + 2 * _PAIR_BYTES)  # keys are counted, then pairs moved
    scanned = 2 * (_PAIR_BYTES + max(accumulator_bytes, _SECTOR_BYTES))  # for totals, then for results
    moved = sorted_ / _SORTING_BANDWIDTH + (written + scanned) / SWEEP_READING
    elements = load.size * load.read_bytes / SWEEP_READING + load.pairs * moved
    cells = 3 * load.all_bins * load.bin_bytes[0]  # cleared, read and written
    return (elements + cells) / bandwidth * 1e-9 + sort_launches(load.pairs, load.all_bins) * launch * 1e-6


def _held_bytes(bin_bytes: int) -> int:
    """Return the bytes of an accumulator of a pair, an odd number of words."""
    # An odd stride spreads neighbouring accumulators over the banks of local memory.
    return 4 * (ceil(bin_bytes / 4) | 1)


def sort_bytes(pairs: int, bins: int, bin_bytes: int) -> int:
    """Return the bytes of global memory that sorting takes at its peak, about.

    For a pair its accumulator, of an odd number of words, and its bin and position twice. And one copy of the bins.
    """
    return pairs * (_held_bytes(bin_bytes) + 2 * _PAIR_BYTES) + bins * bin_bytes


def sorted_pairs(load: Workload) -> Plan:
    """Listing 4: the pairs are sorted by bin, and a segmented scan combines those of each bin."""
    choices, trace = load.choices, Trace()
    threads = int(trace.step("T", load.threads, "Fig. 2", "min(Thw, N)"))
    reason = cannot_sort(load)
    if reason is not None:
        raise reason
    if choices.memory not in (None, "global"):
        raise ValueError(f"memory: expected 'global' with update='sort', got {choices.memory!r}")
    for name, value in (("copies", choices.copies), ("passes", choices.passes)):
        if value not in (None, 1):
            raise ValueError(f"{name}: expected 1 with update='sort', got {value}")
    group = choices.work_group_size or min(GLOBAL_WORK_GROUP, load.profile.work_group_size)
    trace.step("B", group, "", "work-group size")
    trace.step("pairs", load.pairs, "Listing 4", "N, times the values of an element at most")
    bits = f"of a bin, or H for none: sorted {DIGIT_BITS} at a time"
    trace.step("bits", load.all_bins.bit_length(), "Listing 4", bits)
    trace.step("launches", sort_launches(load.pairs, load.all_bins), "", "of kernels, 3 for each digit")
    needed = sort_bytes(load.pairs, load.all_bins, load.bin_bytes[0])
    trace.step("bytes", needed, "", "pairs sorted and scanned, and one copy of the bins")
    return make_plan(
        SortedPlan,
        load,
        trace,
        memory="global",
        update="sort",
        copies=1,
        passes=1,
        group=group,
        groups=ceil(threads / group),
        sharers=1,
    )
