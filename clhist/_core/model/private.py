"""A copy for each work-item, which needs no atomics (SC'20, Listing 2), and its rates; what CPUs do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import log2
from typing import Any, ClassVar, NamedTuple

from clhist._core.kernel_code import Parameter
from clhist._core.model.feature import UINT, ULONG, Feature, SweepView, buffers
from clhist._core.model.plan import GLOBAL_WORK_GROUP, Output, Plan, Trace, make_plan
from clhist._core.model.scaling import rates_of
from clhist._core.model.times import CELLS, COUNT
from clhist._core.model.workload import Workload

# On a CPU an update of a shared copy costs 4 to 40 updates of a private one. So a work-item keeps a
# copy while initialising and combining it is no more work than its elements.
# Note [Private copies on CPUs], docs/decisions/0001.
ELEMENTS_PER_BIN = 0.25


# Most copies that a work-item of a CPU updates in turn: elements of one round of its loop. Four hide the addition of an
# integer: 20 M counts, half of them in one bin, take 8.4 / 4.4 / 2.8 / 2.4 ms with 1 / 2 / 4 / 8 copies, uniform ones
# 2.0 / 2.0 / 2.2 / 2.4; float sums, all in one bin, 28 / 14 / 7 / 4 (Zen 5, PoCL 3.1, kernels).
MOST_TURNS, _MOST_TURNS_OF_COUNTS = 8, 4
# Accept so much loss on uniform bins, with which rates are measured: more copies help skewed bins more. On the Xeon of
# those rates smooth images gain three quarters (0001).
_LOST_TO_SKEW = 1.05
_LINES = 2  # of the cache that are fetched together
# Bytes of a page, which prefetchers do not leave, and of the first-level cache of a core, as x86 has them.
PAGE, FIRST_CACHE = 4096, 32 * 1024
MOST_CPU_BINS = 2**15  # a power of two; the cells of so many stay in the second-level cache of a core
_WORD_BYTES = 4  # of which a cell is one or more


class PaddedCopies(Feature):
    """Copies begin further apart than they have bins."""

    def parameters(self, sweep: SweepView) -> tuple[Parameter, ...]:
        bins = ULONG if sweep.wide else UINT
        return tuple(Parameter("const clhist_bin_t", f"clhist_stride{output.suffix}", bins) for output in sweep.outputs)

    def comment(self) -> str:
        return "copies are padded, so that none shares cache lines with another"


@dataclass(frozen=True)
class InterleavedCopies(Feature):
    """A work-item may have several copies, to which neighbouring elements go in turn."""

    may_use_fewer: bool  # unless the caller asked for so many

    def comment(self) -> str:
        return "neighbouring elements go to several copies of a work-item in turn"


@dataclass(frozen=True)
class SumsOfSums(Feature):
    """Sums of float64 have few terms when they are added to longer ones, whose rounding errors are summed as well."""

    template: ClassVar[str] = "long_sums.mako"
    sections: ClassVar[tuple[str, ...]] = ("helpers",)
    scratch: ClassVar[str] = "clhist_sums"
    pairs: int  # of an element

    def parameters(self, sweep: SweepView) -> tuple[Parameter, ...]:
        return buffers("__global double *", "sums")

    def scratch_bytes(self, plan: Any, sweep: SweepView) -> int:
        # Two numbers of eight bytes for each sum: the longer sum and its rounding error.
        cells = zip(sweep.outputs, plan.copy_bins, strict=True)
        numbers = sum(bins * float64_sums(output) for output, bins in cells)
        return 2 * 8 * plan.work_groups * plan.work_group_size * numbers

    def comment(self) -> str:
        return "sums have few terms before they are added to others"


def float64_sums(output: Output) -> int:
    """Return how many numbers of float64 an operator sums."""
    return sum(len(part.float64_sums) for part in output.operator.parts)


@dataclass(frozen=True, kw_only=True)
class PrivatePlan(Plan):
    """Copies in global memory for each work-item: `turns` of them, to which neighbouring elements go in turn."""

    strategy: ClassVar[str] = "private"
    takes_fewer: ClassVar[bool] = True

    turns: int = 1
    may_take_turns: bool = False  # whatever their number is, which is not part of a kernel's text
    may_use_fewer: bool = False  # of these copies, where a sample shows that this is faster
    strides: tuple[int, ...] = ()  # of a CPU: cells from one copy of each histogram to the next
    has_room_for_sums: bool = False  # of a CPU: two more copies for each work-item are affordable
    pairs: int = 1  # of an element

    @property
    def copy_bins(self) -> tuple[int, ...]:
        return self.strides or self.bins

    def features(self, value: str | None) -> tuple[Feature, ...]:
        padded: list[Feature] = [PaddedCopies()] if self.strides else []
        if self.has_room_for_sums and any(map(float64_sums, self.outputs)):
            padded.append(SumsOfSums(self.pairs))
        return (*padded, InterleavedCopies(self.may_use_fewer)) if self.may_take_turns else tuple(padded)

    @property
    def owns_copies(self) -> bool:
        return True

    def how(self) -> str:
        return f", {self.turns} copies for each work-item in turn" if self.turns > 1 else ""


def private_copies(load: Workload) -> Plan:
    """Listing 2: a copy in global memory for each work-item, as long as they are not more work than the elements."""
    choices, trace = load.choices, Trace()
    group = min(GLOBAL_WORK_GROUP, load.profile.work_group_size)
    group = int(trace.step("B", choices.work_group_size or group, "", "work-group size"))
    threads = int(trace.step("T", load.threads, "Fig. 2", "min(Thw, N)"))
    # With fewer pairs for each bin, initialising and combining a copy costs more than it saves.
    useful = int(load.size * load.pairs_per_element / (load.num_bins * ELEMENTS_PER_BIN))
    pairs = f"4 N {load.pairs_per_element}" if load.pairs_per_element > 1 else "4 N"
    copies = max(1, min(threads, useful))
    copies = int(trace.step("M", copies, "Listing 2", f"max(1, min(T, {pairs} / H)): one a work-item"))
    if choices.copies is not None:
        copies = int(trace.step("M", min(choices.copies, threads), "", "forced, at most T"))
    copies = load.affordable(copies, "private")
    group = min(group, copies)  # fewer copies than a group has work-items
    copies -= copies % group  # whole work-groups
    turns = _turns(load, trace, copies)
    passes = int(trace.step("S", min(choices.passes or 1, max(load.bins)), "", "one, or forced"))
    trace.step("C", 1, "", "no sharing")
    return make_plan(
        PrivatePlan,
        load,
        trace,
        memory="global",
        update="private",
        copies=copies * turns,
        passes=passes,
        group=group,
        groups=copies // group,
        sharers=copies,
        turns=turns,
        may_take_turns=_may_take_turns(load),
        may_use_fewer=choices.copies is None,
        strides=_strides(load, copies * turns, passes),
        pairs=load.pairs_per_element,
        # Longer sums and their rounding errors are as large as two more copies.
        has_room_for_sums=_has_room_for_sums(load, copies * (turns + 2)),
    )


def _strides(load: Workload, copies: int, passes: int) -> tuple[int, ...]:
    """Return how many cells copies are apart, so that no work-item of a CPU fetches lines that another one writes to.

    Work-items that write to one line wait for each other, and so does one that writes to a line with one whose
    prefetcher has just fetched that: 64 bins took twice as long. Between copies there are at least as many cells as
    passes, each of which has one for what is not in it; no budget counts these few.
    Note [Copies lie two pages apart], docs/decisions/0002.
    """
    if not load.on_cpu or load.num_histograms is not None:
        return ()
    # In cells of four bytes: larger cells are further apart than they need be.
    line, gap = max(1, _LINES * load.profile.l2_line // _WORD_BYTES), 2 * PAGE // _WORD_BYTES
    strides = tuple(-(-(bins + max(gap, passes)) // line) * line for bins in load.bins)
    total_bytes = copies * sum(cells * size for cells, size in zip(strides, load.bin_bytes, strict=True))
    # The gap is optional, the spare cell of each pass is not.
    is_affordable = load.memory_budget is None or total_bytes <= load.memory_budget
    return strides if is_affordable else tuple(bins + passes for bins in load.bins)


def _has_room_for_sums(load: Workload, copies: int) -> bool:
    """Whether a CPU may have so many copies; those of a batch have few elements each."""
    return load.on_cpu and load.num_histograms is None and load.affordable(copies, "private") == copies


def _may_take_turns(load: Workload) -> bool:
    """Whether elements can go to several copies of a work-item in turn: of one histogram, one pair at a time."""
    return load.on_cpu and len(load.bins) == 1 and load.has_single_pairs


def _turns(load: Workload, trace: Trace, work_items: int) -> int:
    """Return how many copies each work-item updates in turn: a power of two.

    An update waits for the one before it if that is of the same bin, so with few bins several copies are faster: K
    copies of H bins about as fast as one of K H bins. Which that is, rates say.
    """
    if not _may_take_turns(load):
        return 1
    # The budget is for the copies of all work-items.
    most = min(MOST_TURNS, load.affordable(work_items * MOST_TURNS, "private") // work_items)
    if load.choices.copies is not None:
        # Kernels find the copy of an element by a mask, hence a power of two.
        turns = 1 << (min(most, max(1, load.choices.copies // work_items)).bit_length() - 1)
        return int(trace.step("K", turns, "", "forced: M / T"))
    rates = PrivateRates.of(rates_of(load.profile).values, load.value_bytes, load.bin_bytes[0])
    if rates is None:
        return 1
    most = most if load.value_bytes else min(most, _MOST_TURNS_OF_COUNTS)
    # All turns of a work-item must stay in the first-level cache, beyond which more gain nothing.
    most = max(1, min(most, FIRST_CACHE // (load.num_bins * load.bin_bytes[0])))
    candidates = [1 << k for k in range(MOST_TURNS.bit_length()) if 1 << k <= most]
    # Rates are of uniform bins. More copies help skewed bins, so the most that lose little are taken.
    times = [rates.nanoseconds(load.size, load.num_bins, work_items, turns) for turns in candidates]
    turns = max(turns for turns, time in zip(candidates, times, strict=True) if time <= _LOST_TO_SKEW * min(times))
    source = load.profile.sources.get("rates", "measured rates")
    return int(trace.step("K", turns, "", f"copies of a work-item in turn, by {source}"))


# Kinds of cells that are measured: counts in 32 bits, and accumulators of at most so many bytes, of values in memory.
KINDS = (COUNT, "4 bytes", "8 bytes", "16 bytes")
_MOST_BYTES = 16  # of a cell, of the largest of these
# Cells that all copies of a work-item have together.
GRID = tuple(8**k for k in range(1, 8))
WORK_ITEMS = "work-items of private copies"  # with which they were measured


def cells_name(kind: str, cells: int) -> str:
    """Return the name of a rate in a profile, such as "count, private, 512 cells"."""
    return f"{kind}, private, {cells} cells"


def tiles_name(kind: str) -> str:
    """Return the name of the rate of pairs that are split by tiles first: `clhist._core.model.partition`."""
    return f"{kind}, private, by tiles"


def kind_of(counts: bool, bin_bytes: int) -> str:
    """Return which of `KINDS` accumulators of `bin_bytes` are; `counts` says that no values are read."""
    return (
        COUNT
        if counts and bin_bytes <= 4
        else next((f"{size} bytes" for size in (4, 8) if bin_bytes <= size), KINDS[-1])
    )


class PrivateRates(NamedTuple):
    """Measured rates of one kind of cells on one CPU.

    Attributes
    ----------
    updates : tuple of (int, float)
        Cells of a work-item, ascending, and updates of the device in a nanosecond.
    filling : float
        Cells of 4 bytes that the device initialises and combines in a nanosecond.
    cell_bytes : int
        Of a cell.
    tiles : float
        Updates in a nanosecond of many cells where pairs are split by tiles first; 0 if not known. Splitting moves
        values, accumulation touches cells: where their sizes differ it is the harmonic mean of both rates.
    """

    updates: tuple[tuple[int, float], ...]
    filling: float
    cell_bytes: int
    tiles: float = 0.0

    @classmethod
    def of(cls, rates: Mapping[str, float], value_bytes: int, bin_bytes: int) -> PrivateRates | None:
        """Return the rates of a profile for values of so many bytes (counts: 0); None if one is missing."""
        kind = kind_of(not value_bytes, bin_bytes)
        grid_rates = tuple((cells, rates.get(cells_name(kind, cells), 0.0)) for cells in GRID)
        filling = rates.get(CELLS, 0.0)
        # Accumulation depends on the size of a bin, splitting on that of a value.
        tile_rates = [rates.get(tiles_name(of), 0.0) for of in (kind, kind_of(not value_bytes, value_bytes))]
        tiles = 2 / sum(1 / rate for rate in tile_rates) if all(tile_rates) else 0.0
        return cls(grid_rates, filling, bin_bytes, tiles) if filling and all(rate for _, rate in grid_rates) else None

    def rate(self, cells: float) -> float:
        """Return the updates in a nanosecond with so many cells.

        Larger cells than those that were measured count as so many of those as take the same memory. Between measured
        numbers rates change with the logarithm. Beyond the last one it is the time of an update that goes on growing
        as it did before: more and more of it is spent on caches and pages that miss.
        """
        cells = cells * max(1.0, self.cell_bytes / _MOST_BYTES)
        if cells <= self.updates[0][0]:
            return self.updates[0][1]
        for (few, fast), (many, slow) in zip(self.updates, self.updates[1:], strict=False):
            if cells <= many:
                return fast + (slow - fast) * log2(cells / few) / log2(many / few)
        # A rate that rises at the end of the grid is noise: extrapolated, times would become negative.
        (few, fast), (many, slow) = self.updates[-2:]
        growth = max(0.0, 1 / slow - 1 / fast) / log2(many / few)
        return 1 / (1 / slow + growth * log2(cells / many))

    def nanoseconds(self, elements: int, bins: int, work_items: int, turns: int) -> float:
        """Return how long a sweep takes where each work-item updates `turns` copies of `bins` bins in turn."""
        # Turns divide the updates of a bin, but enlarge the memory of a work-item: its cells decide the rate.
        cells = turns * bins
        return elements / self.rate(cells) + work_items * cells * self.cell_bytes / 4 / self.filling
