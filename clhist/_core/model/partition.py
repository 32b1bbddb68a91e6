"""Partitioning: the pairs are grouped by ranges of bins that fit local memory, where one pass does for each range.

Not in the paper, which reads the input once for each pass over local memory or goes to global memory. What it takes,
and when it was measured to win.
Notes [A range for each compute unit] and [Shares by cost], docs/decisions/0008.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import ClassVar, NamedTuple

from clhist._core.model.plan import Plan, Trace, make_plan
from clhist._core.model.private import MOST_CPU_BINS, PrivateRates
from clhist._core.model.scaling import rates_of
from clhist._core.model.times import PARTITIONED, RISK_ON_CPU
from clhist._core.model.workload import SHARED_LOCAL_MEMORY, Workload

PARTITION_GROUP, LARGE_TILE_GROUP = 512, 1024  # work-items of a group that partitions one tile
INDEX_GROUPS = 128, 1024  # work-items of a group that looks at one partition, at least and at most
INDEXED_TILES = 4  # by each of them, at least
USUAL_GROUP = 64  # least work-items of a group, unless the caller forces partitioning
LEAST_GROUP = 16  # where large values leave no room for more, and partitions are asked for
# Largest fixed cost of one segment (offset lookup, idle lanes), in pairs. Zipf's law, 64 / 128 / 256 / 512: 148 / 86 to
# 107 / 119 / 136 us of an H200's gather; the command was not recorded.
SEGMENT_COST = 128
RANGE_BYTES = 16  # of local memory: which task a work-group has
MOST_PARTITION_BINS = 2**16 - 1  # a bin's place in its partition has 16 bits, all ones being no bin
MOST_PARTITIONS = 2**15  # each has a word of local memory where a tile is grouped
PARTITION_STEP = 2**12  # to a multiple of which more are rounded up, and fewer to a power of two
LEAST_WIDTH = 1024  # bins of a range, at least, where there are more than local memory needs; not recorded as measured
CURSORS = 2  # words: how many tasks there are besides whole ranges, and how many are taken
ROUNDS = 4  # in which the pairs of a segment are read
# Bytes of pairs of a range in a tile, which eight lanes read together: tiles are larger where they would have fewer.
# And tiles of a compute unit, where ranges are so few that tiles may be small: four take 193 us, two 235 (H200).
SEGMENT_BYTES, TILES_AT_A_TIME = 128, 4
MOST_TILE = 2**17  # elements
# Of a work-item of a CPU, at least: few partitions have many each. And of each partition, at least, up to so many in
# all: a processor that guesses whether a counter is the one it has just changed is often wrong where a few are hot.
# Zen 5, PoCL 3.1, 31 to 43 ranges: 58 to 31 ms; Zipf's law 24 to 11 with four counters, as with eight.
ALONE_COUNTERS, LEAST_COUNTERS, MOST_COUNTERS = 256, 4, 2**14
# Elements whose pairs stay in a core's second-level cache (1 MiB) with their values, as cells of `MOST_CPU_BINS` do.
# Half or twice as many of both are within a tenth: Zen 5, PoCL 3.1, 20 M int32. No profile has the size of that cache:
# Intel's runtime reports it as the cache of global memory, PoCL as local memory.
CPU_TILE = 2**16
MOST_PARTITIONED_ELEMENTS = 2**30  # pairs and what they are rounded up to are counted in 31 bits
MOST_PARTITIONED_BINS = 2**31 - 1  # bins are counted in 31 bits as well


@dataclass(frozen=True, kw_only=True)
class PartitionedPlan(Plan):
    """Pairs grouped by `partitions` (P) ranges of `bins_per_pass` bins, each of which is filled in local memory.

    Attributes
    ----------
    partitions : int
        P.
    is_dense : bool
        Whether the bins of a range that one work-group fills are written at once, and others by a kernel behind.
    """

    strategy: ClassVar[str] = "partitioned"
    takes_fewer: ClassVar[bool] = True
    is_joinable: ClassVar[bool] = False
    rate: ClassVar[str | None] = PARTITIONED
    kernels: ClassVar[int] = 4
    more_local_bytes: ClassVar[int] = RANGE_BYTES

    partitions: int
    is_dense: bool

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
    def writes_results(self) -> bool:
        return self.is_dense

    def by_copies(self) -> Plan:
        return replace(self, is_dense=False)

    @property
    def slots(self) -> int:
        """Copies of a range that there are at most."""
        return self.split.slots

    @property
    def global_copies(self) -> int:
        """Copies of each partition, about."""
        return ceil(self.slots / self.partitions)

    @property
    def filled_cells(self) -> int:
        """Bins that are filled: of all ranges, and of their pieces; where results are made of copies, more."""
        copies = self.split.even_pieces if self.is_dense else self.work_groups
        return (self.partitions + copies) * self.bins_per_pass

    @property
    def split(self) -> Split:
        """The grouping of the pairs."""
        slots = shared_pieces(PIECES * self.work_groups) + (0 if self.is_dense else self.partitions)
        width, most_cost = self.bins_per_pass, SEGMENT_COST if self.update == "native" else 0
        return Split(self.num_elements, self.partitions, width, self.work_groups, slots, most_cost)

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
    if load.choices.update == "sort" or ("private" in (update, load.choices.update) and not _is_alone(load)):
        update = load.choices.update or update
        return ValueError(f"memory: 'partitioned' takes native, cas and lock updates, got {update!r}")
    if not load.has_single_pairs:
        return ValueError("memory: 'partitioned' takes maps that emit one value for an element at most")
    if len(load.bins) > 1 or load.num_histograms is not None:
        return ValueError("memory: 'partitioned' makes one histogram, and no batch")
    if load.size > MOST_PARTITIONED_ELEMENTS or load.num_bins > MOST_PARTITIONED_BINS:
        return ValueError(
            f"memory: 'partitioned' takes at most {MOST_PARTITIONED_ELEMENTS} elements and {MOST_PARTITIONED_BINS} "
            f"bins, got {load.size} and {load.num_bins}"
        )
    size, _ = load.element_bytes(update)
    # Ranges have at least two bins: `division` takes no width of 1.
    if 2 * size + RANGE_BYTES > load.local_memory(update):
        return ValueError(f"memory: 'partitioned' needs local memory for 2 bins of {size:g} bytes")
    if partition_count(load, update) > most_partitions(load):
        hint = "; update='private' makes as many as it takes" if load.profile.kind == "cpu" else ""
        return ValueError(
            f"memory: 'partitioned' makes at most {most_partitions(load)} partitions, "
            f"{load.num_bins} bins need {partition_count(load, update)}{hint}"
        )
    if least_tile_bytes(load, update) > load.profile.local_memory:
        return ValueError(
            f"memory: 'partitioned' takes {least_tile_bytes(load, update)} bytes of local memory for a tile of pairs "
            f"where {load.profile.name} has {load.profile.local_memory}"
        )
    needed_bytes = pair_bytes(load) + int(_stored_cells(load, update) * size)
    if load.memory_budget is not None and needed_bytes > load.memory_budget:
        return MemoryError(
            f"memory_budget: partitioning {load.size} pairs takes {needed_bytes} bytes, got {load.memory_budget} bytes"
        )
    return None


def is_worth_tiles(load: Workload, direct: Plan) -> bool:
    """Whether a CPU is predicted, by its rates, to be faster by tiles than by the private copies of `direct`."""
    if cannot_partition(load, "private") is not None:
        return False
    rates = PrivateRates.of(rates_of(load.profile).values, load.value_bytes, load.bin_bytes[0])
    if rates is None or not rates.tiles:
        return False
    # Nanoseconds in which one copy of all bins is initialised and combined.
    cells = load.copy_bytes("private") / 4 / rates.filling
    # The bins that occur, rather than all bins, decide how well the caches hold a private copy.
    private = load.size / rates.rate(ceil(load.num_bins / load.race_factor)) + direct.copies * cells
    private *= max(1, load.profile.hardware_threads / direct.work_groups)  # few elements have few work-items
    # Tiles fill each bin once, since ranges are not copied for each work-item.
    # Skewed bins are in the cache anyway, and lose.
    return private > RISK_ON_CPU * (load.size / rates.tiles + cells)


def partitioned(load: Workload, update: str) -> PartitionedPlan:
    """One copy of each range of bins for each work-group that has pairs of it, in local memory."""
    reason = cannot_partition(load, update)
    if reason is not None:
        raise reason
    choices, trace = load.choices, Trace()
    if choices.copies not in (None, 1):
        raise ValueError(f"copies: expected 1 with memory='partitioned', got {choices.copies}")
    count = int(trace.step("P", partition_count(load, update), "", "partitions, whose bins fit local memory"))
    width = max(2, ceil(load.num_bins / count))
    if _is_alone(load):  # a division by a power of two is a shift
        width = 1 << (width - 1).bit_length()
    width = int(trace.step("H_chk", width, "", "ceil(H / P), 2 at least; on a CPU a power of two"))
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
        # A width that was rounded up may need fewer ranges than P.
        partitions=ceil(load.num_bins / width),
        is_dense=load.one_launch and load.size > 0,
    )
    # `make_plan` divides the bins by the passes, of which there is one.
    return replace(plan, bins_per_pass=width)


def partition_count(load: Workload, update: str) -> int:
    """Return how many ranges of bins, each of which fits local memory, all bins make; more if passes are forced.

    A multiple of the compute units, each of which fills one range at a time in all of its local memory, has equal
    shares where all are equally full, so that none need be shared out.
    """
    size, _ = load.element_bytes(update)
    room = load.local_memory(update) - load.alignment_bytes(update) - RANGE_BYTES
    # Whatever a CPU reports as local memory, the cells of a range must stay in a second-level cache.
    if _is_alone(load):
        room = int(size * min(MOST_CPU_BINS, power_of_two(max(2, int(room // size)))))
    least = _ranges(load, room, size)
    if load.choices.passes is not None:
        return max(least, min(load.choices.passes, ceil(load.num_bins / 2)))
    # Equal shares matter where a work-group has all local memory of a compute unit.
    if load.on_cpu or load.profile.local_memory <= SHARED_LOCAL_MEMORY or room < 4 * RANGE_BYTES:
        return least
    groups = _groups(load, load.profile.local_memory)
    equal = ceil(least / groups) * groups
    return equal if load.num_bins >= LEAST_WIDTH * equal and equal <= most_partitions(load) else least


def _ranges(load: Workload, room: float, size: float) -> int:
    return ceil(load.num_bins / max(2, min(MOST_PARTITION_BINS, int(room // size))))


def _is_alone(load: Workload) -> bool:
    """Whether work-groups are single work-items, of a CPU."""
    return load.on_cpu and (load.choices.work_group_size or load.profile.work_group_size) == 1


def _groups(load: Workload, used: float) -> int:
    """Return how many work-groups are resident at a time with so many bytes of local memory each."""
    group = load.choices.work_group_size or load.profile.work_group_size
    return load.resident(ceil(min(load.profile.hardware_threads, max(1, load.size)) / group), int(used))


def work_groups(load: Workload, update: str) -> int:
    """Return how many work-groups go through the pairs: those that are resident together, by their local memory."""
    size, _ = load.element_bytes(update)
    count = partition_count(load, update)
    # Where there is a range for each compute unit, a second work-group of one would take that of another.
    alone = max(count, _groups(load, load.profile.local_memory))
    return min(alone, _groups(load, ceil(load.num_bins / count) * size))


def copied_cells(load: Workload, update: str) -> int:
    """Return the cells of all copies, about: of each range one for each work-group that has pairs of it."""
    count = partition_count(load, update)
    return (work_groups(load, update) + count) * ceil(load.num_bins / count)


def _stored_cells(load: Workload, update: str) -> int:
    """Return the cells of those copies that are in global memory, about."""
    # Where the sweep may write results, whole ranges do so, and only pieces of shared ranges have copies.
    every, count = copied_cells(load, update), partition_count(load, update)
    shared = shared_pieces(PIECES * work_groups(load, update))
    return min(every, shared * ceil(load.num_bins / count)) if load.one_launch else every


def work_items(load: Workload) -> int:
    """Return the work-items of a group that partitions one tile."""
    return min(PARTITION_GROUP, power_of_two(load.profile.work_group_size))


def tile_elements(ranges: int, value_bytes: int) -> int:
    """Return of how many elements a tile should be, so that it has enough pairs of each range."""
    return ceil(ranges * SEGMENT_BYTES / (2 + value_bytes))


def power_of_two(number: int) -> int:
    """Return the largest power of two that is not more."""
    return 1 << (number.bit_length() - 1)


def pair_bytes(load: Workload) -> int:
    """Return the bytes of the pairs, about: 16 bits for the bin, and the value if each pair has its own."""
    return load.size * (2 + load.value_bytes) * 9 // 8


def most_partitions(load: Workload) -> int:
    """Return how many partitions a tile is grouped by at most: their counters take half of local memory."""
    most = load.profile.local_memory // 8
    rounded = most // PARTITION_STEP * PARTITION_STEP or power_of_two(max(1, most))
    return max(work_items(load), min(MOST_PARTITIONS, rounded))


def counted_partitions(count: int) -> int:
    """Return for how many partitions kernels are made that group pairs by so many, for others alike as well."""
    if count > PARTITION_STEP:
        return ceil(count / PARTITION_STEP) * PARTITION_STEP
    return 1 << (count - 1).bit_length()


def least_tile_bytes(load: Workload, update: str) -> int:
    """Return the bytes of local memory that the smallest tile takes; see `PartitionSpec` of `clhist._core.kernels`."""
    fewest = LEAST_GROUP if load.choices.memory == "partitioned" else USUAL_GROUP
    items = min(fewest, work_items(load))
    return tile_bytes(16 * items, items, counted_partitions(partition_count(load, update)), load.value_bytes)


def tile_bytes(tile: int, group: int, most: int, value_bytes: int) -> int:
    """Return the bytes of local memory that a tile takes, with so many work-items and `most` partitions."""
    # Staged bins of 16 bits with their values, then words: all counters, and one for each work-item.
    return tile * (2 + value_bytes) + 4 * (most * counters(most) + group) + 32


def counters(most: int) -> int:
    """Return how many counters a partition has: several, so that neighbouring work-items collide less."""
    return max(1, min(4, 2048 // most))


# A range is shared out if it costs more than 1.5 fair shares of a work-group: 3 of 2 pieces. No record of figures.
SHARED = 3  # pieces
PIECES = 2  # for each work-group
_LEAST_PIECE = 1024  # least cost of a piece, in pairs


class Split(NamedTuple):
    """A grouping of pairs by ranges of bins.

    Attributes
    ----------
    elements : int
        Of the map, each of which emits one pair at most.
    ranges : int
        Of `width` bins each.
    width : int
        Bins of a range.
    work_groups : int
        Among which ranges with many pairs are shared out.
    slots : int
        Tasks that are listed, at most: pieces of ranges that are shared out, and where results are made of copies
        whole ranges.
    segment_cost : int
        What the pairs of a range in one tile cost besides, in pairs, at most.
    most_pairs : int
        Pairs of a range that is not shared out, all others being; 0 if that is as `work_groups` says.
    """

    elements: int
    ranges: int
    width: int
    work_groups: int
    slots: int
    segment_cost: int
    most_pairs: int = 0

    @property
    def even_pieces(self) -> int:
        """Pieces of all ranges, if they have equally many pairs: none where each is one task."""
        (piece, _), pairs = self._replace(segment_cost=0).piece(1), self.elements / self.ranges
        return self.ranges * ceil(pairs / piece) if pairs > SHARED * piece else 0

    def piece(self, tile: int) -> tuple[int, int]:
        """Return the cost of a piece, and that of a segment besides its pairs, with tiles of so many elements."""
        # A range beyond `most_pairs` is shared out whatever its share is, since it exceeds local memory.
        if self.most_pairs:
            return self.most_pairs // SHARED, 0
        segments = self.ranges * ceil(self.elements / tile)
        # A segment costs no more than the mean number of its pairs.
        cost = min(self.segment_cost, max(1, self.elements // segments))
        # With fewer elements than segments, most segments are empty and cost nothing.
        whole = self.elements + cost * min(self.elements, segments)
        return max(_LEAST_PIECE, ceil(whole / (PIECES * self.work_groups))), cost


def shared_pieces(pieces: int) -> int:
    """Return how many pieces ranges make that are shared out, at most, where all pairs make so many."""
    # A shared range has c > SHARED pieces. Rounded up these are less than c + 1 < (1 + 1 / SHARED) c.
    return ceil((1 + 1 / SHARED) * pieces) + 1
