"""Rows of values: the rows of a bin are gathered, combined in registers and written once, with no atomic on a value.

Not in the paper, which combines the components of vectors as bins of their own (SC'20, section IV-D). Where a value is
a row of numbers there is far more to read in values than in indices, so that these may as well be sorted: the elements
of each bin are counted, and their numbers placed bin after bin. What is written is the result itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf
from typing import ClassVar

from clhist._core.model.partition import MOST_PARTITIONED_ELEMENTS
from clhist._core.model.plan import GLOBAL_WORK_GROUP, Plan, Trace, make_plan
from clhist._core.model.private import PrivatePlan, PrivateRates
from clhist._core.model.problem import Rows
from clhist._core.model.row_ranges import LEAST_PIECE, RowRanges, cannot_range, placing_group, row_ranges
from clhist._core.model.scaling import rates_of
from clhist._core.model.times import (
    BANDWIDTH,
    CELLS,
    LAUNCH,
    RISK_ON_CPU,
    ROWS_ADDED,
    ROWS_AT_ONCE,
    ROWS_FOUND,
    ROWS_GATHERED,
    ROWS_PLACED,
    ROWS_UPDATED,
)
from clhist._core.model.updates import GATHER
from clhist._core.model.workload import NARROW_BINS, NARROW_ELEMENTS, Workload

FEW_ELEMENTS, FEW_BINS = 2**15, 2**13  # that one work-group of a GPU counts and places, in local memory
_FEW_BYTES = 8192  # of local memory, besides a word for each of these
_MOST_SHARERS, _SHARED_ROWS = 32, 4  # work-items of a bin that share its rows, so many each at least
_MOST_PIECES, _PIECE_LANES = 2**14, 2**16
_LEAST_COMPONENTS = 2  # of a row: one number is a pair, which the other strategies take
_LINE_BYTES = 64  # of memory that are read together, at least
MOST_JOINED = 1024  # work-groups that join pieces
CURSORS = 4  # words: where the next bins begin, and how many pieces and shared bins there are
# Atomics contend below 64 KiB of results, or on hot bins: H200, `red.global.add.v4.f32`; no command was recorded.
_LEAST_ADDED_BYTES, _MOST_RACE_FACTOR = 2**16, 8
LOOKED_AT, LOOKED_CELLS, MOST_ALIKE = 2048, 4096, 16  # rows whose bins are looked at, and how many may be of one
# So few rows are added by atomics without a look at their bins: none waits long.
# Note [Rows of one bin are one atomic], docs/decisions/0018.
_UNGUARDED_ROWS = 2**16
# Rows are gathered on a GPU if their predicted time is below this multiple of the best other plan's. On an H200 updates
# of rows took 1.3 to 2.9 times as long as predicted of plain pairs, gathered rows 0.8 to 1.3 times.
_GAIN = 1.2


@dataclass(frozen=True, kw_only=True)
class RowsPlan(Plan):
    """The rows of each bin gathered by `lanes` work-items of a GPU, or added to it by the work-items of a CPU.

    Attributes
    ----------
    rows : Rows
        What they are.
    lanes : int
        Work-items of a GPU that have the components of one bin.
    row_sharers : int
        How many of these share the rows of one.
    piece : int
        Rows of a bin beyond which its rows are shared out.
    parts : int
        Parts of the elements for each of which a CPU has a copy of all bins; with one, results are filled in place.
    placing_group : int
        Work-items of a work-group that counts and places elements.
    few_bins : int
        Bins that the only one of few elements has room for in local memory.
    ranges_of_bins : RowRanges, optional
        Those by which more elements are grouped, counted and placed.
    in_doubles : bool
        Whether exact sums are tried in double precision.
    at_once : int
        Numbers of a row that an atomic adds to the results, unless a look at some bins shows that a few have very many
        of the rows: `again` computes then. 0 where rows are gathered.
    """

    strategy: ClassVar[str] = "rows"
    takes_fewer: ClassVar[bool] = True
    is_joinable: ClassVar[bool] = False
    why_again: ClassVar[tuple[str, str]] = ("if few bins have many rows", "in their place")

    rows: Rows
    lanes: int
    row_sharers: int
    piece: int
    parts: int
    placing_group: int
    few_bins: int
    ranges_of_bins: RowRanges | None
    in_doubles: bool
    at_once: int

    @property
    def elements(self) -> int:
        """The number of rows."""
        return self.rows.elements(self.num_elements)

    @property
    def row_bins(self) -> int:
        """Bins that a row goes to."""
        return self.num_bins // self.rows.components

    @property
    def is_few(self) -> bool:
        """Whether one work-group of a GPU counts and places all."""
        return self.ranges_of_bins is None and not self.parts

    @property
    def pieces(self) -> int:
        """Most pieces of bins whose rows are shared out."""
        if self.rows.is_sorted:  # two for each piece of the elements: of the bin that began before, and of another
            return 2 * ceil(self.elements / self.piece) if self.elements > self.piece else 0
        # A bin of r > piece rows has ceil(r / piece) <= 2 (r // piece) pieces, which bounds their sum.
        return 2 * (self.elements // self.piece)

    @property
    def writes_results(self) -> bool:
        return True

    @property
    def launches(self) -> int:
        if self.parts:
            return 1 + (self.parts > 1)
        # The kernels `start` and `add`; if guarded, `look` before them and the fallback behind.
        if self.at_once:
            return 2 if self.again is None else 3 + self.again.launches
        # One kernel places rows that are few or sorted, five place others by ranges. Then they are gathered, sums that
        # doubles cannot hold are made again, and pieces are joined.
        return (1 if self.is_few or self.rows.is_sorted else 5) + 1 + self.in_doubles + (self.pieces > 0)

    def how(self) -> str:
        if self.parts:
            return f" of rows of {self.rows.components:,} components"
        if self.at_once:
            return f" of rows of {self.rows.components:,} components by atomics of {self.at_once} numbers"
        return f" of rows of {self.rows.components:,} components by {self.lanes:,} work-items each"

    def way(self) -> str:
        return "gathered rows"

    @property
    def choices(self) -> dict[str, object]:
        return {"update": GATHER}

    def memory_bytes(self, sizes: Sequence[int]) -> tuple[int, int]:
        return 0, next(int(step.value) for step in self.steps if step.symbol == "bytes")

    def in_global_memory(self) -> str:
        return "the numbers of the rows by bin" if not self.parts else super().in_global_memory()

    def own_words(self) -> Mapping[str, Sequence[tuple[str, str]]]:
        words = f"{self.rows.components:,} components, " + (
            "added by the work-items that own the bin" if self.parts == 1 else
            f"added to {self.parts:,} copies" if self.parts else
            f"{self.at_once:,} added by an atomic" if self.at_once else
            f"{self.lanes:,} work-items a bin"
        )  # fmt: skip
        return {"passes (S)": [("rows", words)]}


def cannot_gather(load: Workload) -> Exception | None:
    """Return why rows cannot be gathered, if so."""
    if load.rows is None or len(load.bins) > 1 or not load.one_launch:
        return ValueError(
            "update: 'gather' takes the arrays of clhist.reduce_by_index, with results of one array, and no kernel"
        )
    if load.num_histograms is not None:
        return ValueError("update: 'gather' makes one histogram, and no batch")
    most = NARROW_ELEMENTS if load.on_cpu else MOST_PARTITIONED_ELEMENTS
    if load.rows.elements(load.size) > most or load.num_bins > NARROW_BINS:
        return ValueError(
            f"update: 'gather' takes at most {most} rows and {NARROW_BINS} components of bins, "
            f"got {load.rows.elements(load.size)} and {load.num_bins}"
        )
    if not load.on_cpu and not load.rows.is_sorted and (reason := cannot_range(load)):
        return reason
    for name, value in (("copies", load.choices.copies), ("passes", load.choices.passes)):
        if value not in (None, 1) and not (name == "copies" and load.on_cpu):
            return ValueError(f"{name}: expected 1 with update='gather', got {value}")
    if load.choices.memory not in (None, "global"):
        return ValueError(f"memory: expected 'global' with update='gather', got {load.choices.memory!r}")
    return None


def gathered(load: Workload) -> RowsPlan:
    """Return the plan; raises ValueError or MemoryError where it is impossible."""
    if reason := cannot_gather(load):
        raise reason
    assert load.rows is not None
    trace, rows = Trace(), load.rows
    elements, components = int(trace.step("rows", rows.elements(load.size), "", "N")), rows.components
    trace.step("D", components, "IV-D", "components of a row")
    group = load.choices.work_group_size or (1 if load.on_cpu else min(GLOBAL_WORK_GROUP, load.profile.work_group_size))
    bins = load.num_bins // components
    size = load.bin_bytes[0]
    few_bins = min(FEW_BINS, max(0, load.profile.local_memory - _FEW_BYTES) // 4)
    ranges, parts, lanes, row_sharers, piece, in_doubles = None, 0, 1, 1, 1, load.has_doubles and not load.on_cpu
    if load.on_cpu:
        parts = 1 if rows.is_sorted else _parts(load, elements, bins)
        parts = int(trace.step("M", parts, "", "copies, as long as they are not more work"))
        # Results serve as one of the copies where accumulators are values.
        used = (parts - load.holds_values) * load.num_bins * size
        groups = ceil(max(parts, load.profile.hardware_threads) / group)
        groups = max(1, min(groups, ceil((elements if rows.is_sorted else parts * bins) / group)))
    else:
        # A power of two of lanes, each of which loads 16 bytes of a row at a time.
        vectors = ceil(components / max(1, 16 // max(1, load.value_bytes or size)))
        lanes = min(1 << (group.bit_length() - 1), 1 << (vectors - 1).bit_length())
        # Several rows each, at once.
        while 2 * lanes * row_sharers <= _MOST_SHARERS and 2 * row_sharers * _SHARED_ROWS <= elements / bins:
            row_sharers *= 2
        lanes = int(trace.step("lanes", lanes, "", "work-items of a bin, with 16 bytes of its rows each"))
        # Bins with more rows than a piece are shared out among work-groups. Wide rows have fewer pieces.
        most = max(512, min(_MOST_PIECES, _PIECE_LANES // lanes))
        piece = int(trace.step("piece", max(LEAST_PIECE, ceil(elements / most)), "", "rows that are not shared out"))
        groups = ceil(bins / max(1, group // (lanes * row_sharers)))
        # Bytes of pieces with their accumulators, then words for each bin, and for each row that is placed.
        accumulator_bytes = size + (2 * (load.value_bytes or 8) if in_doubles else 0)  # of a component of a piece
        pieces = 2 * (elements // piece) * (32 + components * accumulator_bytes)
        used = pieces + 4 * (bins if rows.is_sorted else 2 * bins + elements)
        if (elements > FEW_ELEMENTS or bins > few_bins) and not rows.is_sorted:
            ranges = row_ranges(load, elements, bins)
            trace.step("P", ranges.split.ranges, "", "ranges of bins, which are counted and placed in local memory")
            used += ranges.memory_bytes
    trace.step("bytes", used, "", "of numbers of rows, or of copies, and pieces")
    if load.memory_budget is not None and used > load.memory_budget:
        raise MemoryError(f"memory_budget: gathering {elements} rows takes {used}, got {load.memory_budget} bytes")
    return make_plan(
        RowsPlan,
        load,
        trace,
        memory="global",
        update=GATHER,
        copies=max(1, parts),
        passes=1,
        group=group,
        groups=groups,
        sharers=1,
        rows=rows,
        lanes=lanes,
        row_sharers=row_sharers,
        piece=piece,
        parts=parts,
        few_bins=few_bins,
        placing_group=placing_group(load),
        ranges_of_bins=ranges,
        in_doubles=in_doubles,
        at_once=0,
    )


def _added_at_once(plan: RowsPlan, load: Workload, otherwise: Plan) -> RowsPlan | None:
    """Return the plan that adds rows by atomics of several numbers, if it can be; `otherwise` is for skewed bins."""
    numbers, bins_bytes = load.vector_numbers, plan.num_bins * load.bin_bytes[0]
    if load.on_cpu or not numbers or plan.rows.components % numbers or load.race_factor > _MOST_RACE_FACTOR:
        return None
    is_guarded = plan.elements > _UNGUARDED_ROWS
    # The fallback of a guarded sum is combined from copies by a second stage, which one launch has not.
    if bins_bytes < _LEAST_ADDED_BYTES or (is_guarded and otherwise.is_one_launch):
        return None
    return replace(plan, at_once=numbers, again=otherwise.by_copies() if is_guarded else None)


def _parts(load: Workload, elements: int, bins: int) -> int:
    """Return the parts of the elements of a CPU: one for each work-item, if there are enough elements for all bins."""
    threads = load.profile.hardware_threads
    if load.choices.copies is not None:
        return min(load.choices.copies, threads, max(1, elements))
    # A copy of all bins pays off with two rows for each bin.
    parts = max(1, min(threads, int(elements / (2 * bins))))
    return load.affordable(parts, "private")


def seconds(plan: RowsPlan, load: Workload) -> float | None:
    """Return how long `plan` is predicted to take, from measured rates; None if one is not known."""
    rates, rows = rates_of(load.profile).values, plan.rows
    size = load.value_bytes or load.bin_bytes[0]
    read, written = plan.elements * rows.components * size, plan.num_bins * size
    if plan.parts:
        # A CPU finds the bin of each row, adds its numbers, and initialises and combines the copies.
        finding, added, filled = (rates.get(name, 0) for name in (ROWS_FOUND, ROWS_ADDED, CELLS))
        if not finding or not added or not filled:
            return None
        return (plan.elements / finding + read / added + plan.parts * written / 4 / filled) * 1e-9
    if plan.at_once:
        added, bandwidth, launch = (rates.get(name, 0) for name in (ROWS_AT_ONCE, BANDWIDTH, LAUNCH))
        if not added or not bandwidth or not launch:
            return None
        atomics = plan.elements * rows.components / plan.at_once
        lines = _LINE_BYTES * ceil(rows.components * size / _LINE_BYTES)
        # Results beyond the last-level cache: each row reads and writes its lines in memory.
        missed = 2 * plan.elements * lines if written > load.profile.l2_cache else 0
        return (atomics / added + (written + missed) / bandwidth) * 1e-9 + plan.launches * launch * 1e-6
    placed, gathered_, launch = rates.get(ROWS_PLACED, 0), rates.get(ROWS_GATHERED, 0), rates.get(LAUNCH, 0)
    if not placed or not gathered_ or not launch or not rates.get(BANDWIDTH, 0):
        return None
    ranges = plan.ranges_of_bins
    placing = 0.0 if ranges is None else plan.elements / placed + plan.row_bins / placed
    read = _gathered_bytes(plan, size)
    return (placing + (read + written) / gathered_) * 1e-9 + plan.launches * launch * 1e-6


def _gathered_bytes(plan: RowsPlan, size: int) -> int:
    """Return the bytes that a GPU reads where it gathers rows of values of `size` bytes."""
    row_bytes, ranges = plan.rows.components * size, plan.ranges_of_bins
    if plan.rows.is_sorted:
        return plan.elements * (row_bytes + 4)
    if ranges is None or not ranges.carried_bytes:
        return plan.elements * _LINE_BYTES * ceil(row_bytes / _LINE_BYTES)
    return 3 * plan.elements * row_bytes  # read in order, and written and read once more


def most_alike(bins: int) -> int:
    """Return how many of `LOOKED_AT` rows may be of one bin where atomics add them."""
    # Three times the even share of a bin; the constant where that share is small.
    return max(MOST_ALIKE, 3 * LOOKED_AT // bins)


def is_worth_gathering(load: Workload) -> bool:
    """Whether it may be chosen at all: of calls that leave the choice, on rows of several components."""
    if load.rows is None or load.choices.forced or not load.size or cannot_gather(load):
        return False
    if not load.holds_values and (load.on_cpu or not load.has_doubles):
        return False
    return load.rows.components >= _LEAST_COMPONENTS


def or_gathered(chosen: Plan, others: float | None, load: Workload) -> Plan:
    """Return the plan that gathers rows if it is predicted to be faster than `chosen`, which takes `others` seconds.

    Without rates of one or the other, rows of several cache sectors are gathered on a GPU.
    """
    if not is_worth_gathering(load):
        return chosen
    try:
        plan = gathered(load)
    except MemoryError:
        return chosen
    own = seconds(plan, load)
    other = _added_at_once(plan, load, chosen)
    if other is not None and (quick := seconds(other, load)) is not None and (own is None or quick < own):
        plan, own = other, quick
    assert load.rows is not None
    if load.on_cpu:
        if own is None:  # the rule without rates, below, is of GPUs
            return chosen
        others = _updating_seconds(chosen, load) or others
    trace = Trace()
    # Both predictions go into the trace, whichever plan is chosen.
    if own is not None:
        trace.step("t_rows", own * 1e6, "", "predicted from measured rates, us, rows gathered")
    if others is not None:
        trace.step("t_others", others * 1e6, "", "the same of bins updated")
    row_bytes = load.rows.components * (load.value_bytes or load.bin_bytes[0])
    gain = 1 / RISK_ON_CPU if load.on_cpu else _GAIN
    is_wide = plan.at_once > 0 or row_bytes >= _LINE_BYTES
    is_less = own < gain * others if own is not None and others is not None else is_wide
    return replace(plan if is_less else chosen, steps=(*(plan if is_less else chosen).steps, *trace.steps))


def _updating_seconds(chosen: Plan, load: Workload) -> float | None:
    """Return how long a CPU is predicted to take that updates private copies of the components; None if unknown."""
    rates = PrivateRates.of(rates_of(load.profile).values, load.value_bytes, load.bin_bytes[0])
    if rates is None or not isinstance(chosen, PrivatePlan):
        return None
    items, updates = chosen.work_groups * chosen.work_group_size, load.size * load.pairs_per_element
    updating = rates.nanoseconds(updates, load.num_bins, items, chosen.turns)
    # The updates of a row are a loop within that over the elements, which compilers turn into no vectors.
    return 1e-9 * max(updating, updates / rates_of(load.profile).values.get(ROWS_UPDATED, inf))
