"""The numbers of one sweep on one device, and the bytes of bins, locks and copies that follow from them.

The paper's letters: N elements, H bins, T work-items, L bytes of local memory, B work-items of a work-group, C
work-items that cooperate on one copy, M copies, S passes of H_chk bins each, RF the race factor. For several histograms
that one sweep fills together, H is the sum and elsize the mean: what counts is the memory of a copy of all.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from clhist._core.devices.profile import Profile
from clhist._core.model.problem import BIN_NUMBER_BYTES, FREE, Choices, Rows, check_numbers
from clhist._core.model.updates import check_update

LOCK_BYTES = 4  # of a lock: an int that is exchanged
ALIGNMENT = 16  # bytes: where each of several arrays begins in local memory
# Below these, elements and bins are counted in 32 bits; a work-item's next element must not overflow either.
NARROW_ELEMENTS = 2**31 - 2**24
NARROW_BINS = 2**31 - 1
# Bytes of local memory up to which a compute unit often has more than one work-group may use, and from which on kernels
# that need little take half, for two resident work-groups: 227,328 on an H100, where 10 million rows of 4 are placed.
SHARED_LOCAL_MEMORY, LARGE_LOCAL_MEMORY = 48 * 1024, 2**17


@dataclass(frozen=True, kw_only=True)
class Workload:
    """The work of one sweep over the input, on one device.

    Attributes
    ----------
    size : int
        N, at least 0.
    bins : tuple of int
        H, at least 1; one for each of the histograms that the sweep fills together.
    profile : Profile
        The device.
    local_update, global_update : {"native", "cas", "lock"}
        The update of a copy that work-items share, in each memory.
    bin_bytes : tuple of int
        Bytes of one bin's accumulator, without a lock; one for each of the histograms.
    arrays : int
        Number of arrays that an accumulator is laid out in: 1 for a scalar or an array of structs, q for q arrays.
    locked : tuple of int
        Locks of a bin where the update is a lock: one for each part with its own update.
    race_factor : float
        RF, at least 1.
    choices : Choices
        Made by the caller. A forced update takes the place of `local_update` and `global_update`.
    memory_budget : int, optional
        Bytes of global memory that the copies may take.
    num_histograms : int, optional
        N_out, for a batch (section IV-C).
    equal_shares : bool
        Whether each histogram of a batch has the same number of elements.
    pairs_per_element : int
        (bin, value) pairs of an element, as far as that is known.
    max_pairs : int, optional
        Upper bound on them; only where there is one can the pairs be sorted or partitioned.
    may_exceed : bool
        Whether an element may have more than that, which the caller states.
    useful_copies : int, optional
        Copies of a work-group in local memory beyond which none is faster. By default as many as fit, as in the paper.
    value_bytes : int
        Bytes of a value where pairs are written to memory; 0 if all have the same.
    counts : bool
        Whether 32-bit integers are added of which each is 1: narrower counters may then share a word.
    rate_kinds : tuple of two tuples of str
        `clhist._core.model.updates.rate_kind` of each update of a pair, in local and in global memory; empty if not
        known.
    read_bytes : int
        Bytes that the map reads for an element.
    loops : bool
        Whether a native update in local memory is a loop itself: see `clhist._core.model.updates.part_loops`.
    one_launch : bool
        Whether sweep and combine may be one launch.
    rows : Rows, optional
        If values are rows.
    holds_values : bool
        Whether an accumulator is a value.
    vector_numbers : int
        How many numbers of a row an atomic adds to results at once; 0 where none does.
    has_doubles : bool
        Whether exact sums may be tried in double precision (`clhist.operators.doubles`).

    Raises
    ------
    ValueError
        If a number is out of range or a choice does not exist.
    """

    size: int
    bins: tuple[int, ...]
    profile: Profile
    local_update: str = "native"
    global_update: str = "native"
    bin_bytes: tuple[int, ...] = (4,)
    arrays: int = 1
    locked: tuple[int, ...] = (1,)
    race_factor: float = 1.0
    choices: Choices = FREE
    memory_budget: int | None = None
    num_histograms: int | None = None
    equal_shares: bool = True
    pairs_per_element: int = 1
    max_pairs: int | None = None
    may_exceed: bool = False
    useful_copies: int | None = None
    value_bytes: int = 4
    counts: bool = False
    rate_kinds: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    read_bytes: int = BIN_NUMBER_BYTES
    loops: bool = False
    one_launch: bool = True
    rows: Rows | None = None
    holds_values: bool = False
    vector_numbers: int = 0
    has_doubles: bool = False

    def __post_init__(self) -> None:
        if len(self.bin_bytes) != len(self.bins):
            raise ValueError(f"bin_bytes: expected one for each of {len(self.bins)} histograms, got {self.bin_bytes}")
        numbers = (
            ("num_elements", self.size, 0),
            *(("num_bins", bins, 1) for bins in self.bins),
            *(("bin_bytes", size, 1) for size in self.bin_bytes),
            ("arrays", self.arrays, 1),
            ("memory_budget", self.memory_budget, 1),
            ("num_histograms", self.num_histograms, 1),
            ("max_pairs", self.max_pairs, 1),
            ("useful_copies", self.useful_copies, 1),
        )
        check_numbers(numbers, self.race_factor, self.choices)
        check_update(self.choices.update)

    @property
    def on_cpu(self) -> bool:
        """Whether the device is a CPU."""
        return self.profile.kind == "cpu"

    @property
    def num_bins(self) -> int:
        """H: of several histograms the sum."""
        return sum(self.bins)

    @property
    def histograms(self) -> int:
        """N_out; 1 where this is no batch."""
        return self.num_histograms or 1

    @property
    def threads(self) -> int:
        """T: work-items that have work."""
        return min(self.profile.hardware_threads, max(1, self.size))

    @property
    def pairs(self) -> int:
        """The largest number of pairs, some of which may be of no bin."""
        return self.size * (self.max_pairs or 1)

    @property
    def has_single_pairs(self) -> bool:
        """Whether no element emits more than one pair."""
        return self.max_pairs == 1 and not self.may_exceed

    @property
    def all_bins(self) -> int:
        """Bins of all histograms of a batch."""
        return self.num_bins * self.histograms

    @property
    def locks_each(self) -> tuple[int, ...]:
        """Locks of a bin of each histogram."""
        # A single entry, such as the default, stands for all histograms.
        return self.locked * (len(self.bins) // len(self.locked))

    def bins_bytes(self, update: str) -> tuple[int, ...]:
        """Return the bytes of one bin of each histogram, with its locks."""
        # A forced number of locks is a table that all bins share, which `local_memory` subtracts.
        if update != "lock" or self.choices.locks is not None:
            return self.bin_bytes
        return tuple(size + LOCK_BYTES * n for size, n in zip(self.bin_bytes, self.locks_each, strict=True))

    def element_bytes(self, update: str) -> tuple[float, float]:
        """Return elsize, the bytes of a bin with its lock, and avg, its share of each array that it is laid out in."""
        sizes = self.bins_bytes(update)
        size = sizes[0] if len(sizes) == 1 else self.copy_bytes(update) / self.num_bins
        # Locks are in arrays of their own, which count as well.
        return size, size / (self.arrays + (max(self.locked) if update == "lock" else 0))

    def copy_bytes(self, update: str, passes: int = 1) -> int:
        """Return the bytes of one copy of the bins of one pass."""
        return sum(ceil(n / passes) * size for n, size in zip(self.bins, self.bins_bytes(update), strict=True))

    def local_memory(self, update: str) -> int:
        """Return the bytes of local memory that copies may take."""
        # The kernel's local array is a multiple of the alignment (`kernels.from_plan`): the rest cannot be used.
        room = self.profile.local_memory // ALIGNMENT * ALIGNMENT
        if update == "lock" and self.choices.locks is not None:
            locks = self.choices.locks * sum(self.locks_each)
            room -= LOCK_BYTES * locks
            if room <= 0:
                raise ValueError(
                    f"locks: {locks} locks of {LOCK_BYTES} bytes leave nothing of local memory where "
                    f"{self.profile.name} has {self.profile.local_memory}"
                )
        return room

    def alignment_bytes(self, update: str) -> int:
        """Return the most bytes of local memory that are lost between the arrays of the copies."""
        arrays = self.arrays * len(self.bins)
        # Locks follow the cells. Cells of an odd size are rounded up to a word before them.
        odd = update == "lock" and any(size % LOCK_BYTES for size in self.bin_bytes)
        return ALIGNMENT * (arrays - 1) + (LOCK_BYTES if odd else 0)

    def resident(self, blocks: int, used: int) -> int:
        """Return how many of `blocks` work-groups, each with `used` bytes of local memory, can be resident at once.

        Two for each compute unit, unless one uses more than half of its local memory.
        """
        # Below that size a compute unit often has room for a second work-group, whatever one may use.
        # With a forced work-group size, `blocks` is not two for each compute unit.
        alone = not self.on_cpu and self.profile.local_memory > SHARED_LOCAL_MEMORY
        if not alone or 2 * used <= self.profile.local_memory or self.choices.work_group_size is not None:
            return blocks
        return max(1, blocks // 2)

    def affordable(self, copies: int, update: str) -> int:
        """Return how many of `copies` copies of all bins in global memory the budget allows."""
        if self.memory_budget is None:
            return copies
        # A batch needs a copy for each of its histograms.
        one = self.copy_bytes(update) * self.histograms
        if one > self.memory_budget:
            raise MemoryError(
                f"memory_budget: one copy of {self.all_bins} bins takes {one} bytes, got {self.memory_budget} bytes"
            )
        return min(copies, self.memory_budget // one)
