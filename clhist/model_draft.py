"""What a plan is made of: its steps, what the caller forces, and the draft that the equations work on.

The paper's letters: N elements, H bins, T work-items, L bytes of local memory, B work-items of a work-group,
C work-items that cooperate on one copy, M copies, S passes of H_chk bins each, RF the race factor. Of several
histograms that one sweep fills together, H is the sum and elsize the mean: what counts is the memory of a copy of all.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil
from typing import Any

from clhist.profile import Profile

GLOBAL_WORK_GROUP = 256  # section V-A: "block sizes 1024 and 256 for shared and global memory"
LOCK_BYTES = 4
# Bytes of local memory up to which a compute unit often has more than one work-group may use.
SHARED_LOCAL_MEMORY = 48 * 1024
ALIGNMENT = 16  # where each of several arrays begins in local memory


@dataclass(frozen=True)
class Step:
    """One intermediate of a plan: its letter, its value, where the paper defines it, and the formula."""

    symbol: str
    value: float
    equation: str
    formula: str


@dataclass(frozen=True)
class Plan:
    """How a histogram is computed.

    Attributes
    ----------
    memory : {"local", "global"}
        Where the copies are.
    update : {"private", "native", "cas", "lock", "sort"}
        How a bin is updated; "sort" if the pairs are sorted instead (Listing 4).
    copies : int
        M: copies of a work-group in local memory, of the device in global memory.
    cooperation : int
        C: work-items that share one copy.
    passes, bins_per_pass : int
        S and H_chk.
    work_group_size, work_groups : int
        B, and how many groups are launched in each pass.
    num_elements, num_bins : int
        N, and H: of several histograms that one sweep fills, the sum.
    race_factor : float
        RF.
    profile : str
        Name of the device that it is for.
    steps : tuple of Step
        How it came about.
    bins : tuple of int
        H of each of the histograms that one sweep fills together.
    num_histograms, groups_per_histogram, teams : int
        N_out and K of a batch, and how many teams, each with a chunk of one histogram's elements, a work-group has.
    locks : int or None
        How many locks all bins share; None for one a bin.
    is_batch : bool
        Whether it is for a batch, which may be of one histogram.
    outputs : tuple of str
        Names of the histograms, where a kernel has several.
    flat : int
        N_out, if a batch of as many elements each is computed as one histogram of all bins, which `bins` are then.
    partitions : int
        P, if the pairs are first grouped by so many ranges of H_chk bins, each of which is then filled in local memory.
    packed : bool
        Whether two counters of 16 bits share a word of local memory.
    most_tasks : int or None
        For how many chunks of a batch the memory budget has copies.
    refused : tuple of str
        Updates that were to be taken, and that the device's compiler refused: "native in global".
    seconds : float or None
        How long it is predicted to take on the device (`clhist.model_times`); None without measured rates.
    """

    memory: str
    update: str
    copies: int
    cooperation: int
    passes: int
    bins_per_pass: int
    work_group_size: int
    work_groups: int
    num_elements: int
    num_bins: int
    race_factor: float
    profile: str
    steps: tuple[Step, ...]
    bins: tuple[int, ...] = ()
    num_histograms: int = 1
    groups_per_histogram: int = 1
    teams: int = 1
    locks: int | None = None
    is_batch: bool = False
    outputs: tuple[str, ...] = ()
    most_tasks: int | None = None
    flat: int = 0
    partitions: int = 0
    packed: bool = False
    seconds: float | None = None
    refused: tuple[str, ...] = ()

    def __str__(self) -> str:
        bins = " + ".join(f"{bins:,}" for bins in self.bins or (self.num_bins,))
        batch = (
            f"{self.num_histograms:,} histograms of {bins} bins, {self.groups_per_histogram} chunks each, "
            f"{self.teams} in a work-group,"
            if self.is_batch
            else f"{bins} bins" + (f" of {self.flat:,} histograms" if self.flat else "")
        )
        outputs = f"{', '.join(self.outputs)}: " if self.outputs else ""
        partitions = f" of pairs in {self.partitions:,} partitions" if self.partitions else ""
        partitions += " of 16-bit counters" if self.packed else ""
        refused = f" (the compiler refused {', '.join(self.refused)} memory)" if self.refused else ""
        return (
            f"{outputs}{self.num_elements:,} elements into {batch} on {self.profile}: {self.update} updates in "
            f"{self.memory} memory{partitions}{refused}, copies M = {self.copies}, cooperation C = {self.cooperation}, "
            f"passes S = {self.passes} of {self.bins_per_pass:,} bins, {self.work_groups} work-groups "
            f"of {self.work_group_size}" + (f", predicted {self.seconds * 1e6:.0f} us" if self.seconds else "")
        )

    @property
    def global_copies(self) -> int:
        """Copies of all bins of one histogram that lie in global memory, to be combined in the end."""
        if self.memory == "global":
            return self.copies
        if self.partitions:  # of each partition: one for each work-group that has pairs of it
            return ceil(self.work_groups / self.partitions) + 1
        if self.packed:  # the last one takes what counters have no room for
            return self.work_groups + 1
        return self.groups_per_histogram if self.is_batch else self.work_groups

    @property
    def team_size(self) -> int:
        """Work-items that go through the same elements together."""
        return self.work_group_size // self.teams

    @property
    def tasks(self) -> int:
        """Chunks of a batch: K of each histogram."""
        return self.num_histograms * self.groups_per_histogram

    @property
    def choices(self) -> dict[str, Any]:
        """What forces memory, copies and passes to be those of this plan, as arguments of a call."""
        if self.partitions:
            return {"memory": "partitioned", "passes": self.partitions}
        if self.packed:
            return {"memory": self.memory}
        return {"memory": self.memory, "copies": self.copies, "passes": self.passes}

    @property
    def copy_bins(self) -> tuple[int, ...]:
        """How many bins of each histogram a copy in global memory has."""
        return self.chunks() if self.partitions else self.bins

    def chunks(self) -> tuple[int, ...]:
        """Return how many bins of each histogram one pass has."""
        if self.partitions:
            return (self.bins_per_pass,)
        return tuple(ceil(bins / self.passes) for bins in self.bins)


def sort_bytes(pairs: int, bins: int, bin_bytes: int) -> int:
    """Return the bytes of global memory that sorting takes at its peak, about.

    For a pair its accumulator, of an odd number of words, and, while it is sorted, bin and position three times and 16
    bytes of PyOpenCL's scan; or, while it is scanned, bin and position twice and another accumulator. And one copy of
    the bins.
    """
    held = 4 * (ceil(bin_bytes / 4) | 1)
    return pairs * (held + max(40, 16 + held)) + bins * bin_bytes


@dataclass(frozen=True)
class Forced:
    """Choices that the caller makes instead of the model; None leaves one to it."""

    update: str | None = None
    memory: str | None = None
    copies: int | None = None
    passes: int | None = None
    work_group_size: int | None = None
    locks: int | None = None


@dataclass
class Draft:
    """The inputs of a plan, and the steps as they are taken."""

    num_elements: int
    bins: tuple[int, ...]
    profile: Profile
    bin_bytes: tuple[int, ...]
    arrays: int
    locked: tuple[int, ...]
    race_factor: float
    forced: Forced
    memory_budget: int | None
    num_histograms: int | None
    emits: int
    steps: list[Step] = field(default_factory=list)
    most_emits: int | None = None
    even: bool = True
    enough_copies: int | None = None
    value_bytes: int = 4
    counts: bool = False

    @property
    def num_bins(self) -> int:
        return sum(self.bins)

    def step(self, symbol: str, value: float, equation: str, formula: str) -> float:
        self.steps.append(Step(symbol, value, equation, formula))
        return value

    def sizes(self, update: str) -> tuple[int, ...]:
        """Return the bytes of one bin of each histogram, with its locks."""
        if update != "lock" or self.forced.locks is not None:
            return self.bin_bytes
        return tuple(size + LOCK_BYTES * n for size, n in zip(self.bin_bytes, self.locked, strict=True))

    def element_bytes(self, update: str) -> tuple[float, float]:
        """Return elsize, the bytes of a bin with its lock, and avg, its share of each array that it is laid out in."""
        sizes = self.sizes(update)
        size = sizes[0] if len(sizes) == 1 else self.copy_bytes(update) / self.num_bins
        return size, size / (self.arrays + (max(self.locked) if update == "lock" else 0))

    def copy_bytes(self, update: str, passes: int = 1) -> int:
        """Return the bytes of one copy of the bins of one pass."""
        return sum(ceil(n / passes) * size for n, size in zip(self.bins, self.sizes(update), strict=True))

    def local_memory(self, update: str) -> int:
        """Return the bytes of local memory that copies may take."""
        room = self.profile.local_memory // ALIGNMENT * ALIGNMENT
        if update == "lock" and self.forced.locks is not None:
            room -= LOCK_BYTES * self.forced.locks * sum(self.locked)
            if room <= 0:
                raise ValueError(
                    f"locks: {self.forced.locks * sum(self.locked)} locks of {LOCK_BYTES} bytes leave nothing of local "
                    f"memory where {self.profile.name} has {self.profile.local_memory}"
                )
        return room

    def alignment_bytes(self, update: str) -> int:
        """Return the most bytes of local memory that are lost between the arrays of one copy or many."""
        arrays = self.arrays * len(self.bins)
        odd = update == "lock" and any(size % LOCK_BYTES for size in self.bin_bytes)
        return ALIGNMENT * (arrays - 1) + (LOCK_BYTES if odd else 0)

    @property
    def pairs_each(self) -> int:
        """How many pairs of an element are sorted, of which some may be of no bin."""
        return self.most_emits or 1

    @property
    def sorted_bins(self) -> int:
        """How many bins pairs are sorted into: of all histograms of a batch."""
        return self.num_bins * (self.num_histograms or 1)

    @property
    def sort_bytes(self) -> int:
        return sort_bytes(self.num_elements * self.pairs_each, self.sorted_bins, self.bin_bytes[0])

    def work_items(self) -> int:
        threads = min(self.profile.hardware_threads, max(1, self.num_elements))
        return int(self.step("T", threads, "Fig. 2", "min(Thw, N)"))

    def resident(self, blocks: int, used: int) -> int:
        """Return how many of `blocks` work-groups, each with `used` bytes of local memory, are worth launching.

        Where a work-group may use nearly all local memory of a compute unit, those that use over half of it are alone.
        """
        alone = self.profile.kind != "cpu" and self.profile.local_memory > SHARED_LOCAL_MEMORY
        if not alone or 2 * used <= self.profile.local_memory or self.forced.work_group_size is not None:
            return blocks
        return max(1, blocks // 2)

    def affordable(self, copies: int, update: str) -> int:
        """Return how many of `copies` copies of all bins in global memory the budget allows."""
        if self.memory_budget is None:
            return copies
        one = self.copy_bytes(update) * (self.num_histograms or 1)
        if one > self.memory_budget:
            raise MemoryError(
                f"memory_budget: one copy of {self.num_bins * (self.num_histograms or 1)} bins takes {one} bytes, "
                f"got {self.memory_budget} bytes"
            )
        return min(copies, self.memory_budget // one)

    def finish(
        self,
        memory: str,
        update: str,
        copies: int,
        passes: int,
        work_group_size: int,
        work_groups: int,
        sharers: int,
        *,
        groups_per_histogram: int = 1,
        teams: int = 1,
    ) -> Plan:
        """Return the plan; `sharers` work-items share `copies` copies."""
        cooperation = ceil(sharers / copies)
        # A GPU's own atomics on local memory are faster than a load and a store (measured, docs/performance.md).
        native_on_gpu = update == "native" and self.profile.kind != "cpu"
        if cooperation == 1 and self.forced.update is None and update != "sort" and not native_on_gpu:
            update = "private"
        return Plan(
            memory,
            update,
            copies,
            cooperation,
            passes,
            sum(ceil(bins / passes) for bins in self.bins),
            work_group_size,
            work_groups,
            self.num_elements,
            self.num_bins,
            self.race_factor,
            self.profile.name,
            tuple(self.steps),
            self.bins,
            self.num_histograms or 1,
            groups_per_histogram,
            teams,
            self.forced.locks if update == "lock" else None,
            self.num_histograms is not None,
            most_tasks=self.most_tasks("native" if memory == "local" else update),
        )

    def most_tasks(self, update: str) -> int | None:
        """Return how many copies of one histogram of a batch the budget allows."""
        if self.memory_budget is None or self.num_histograms is None:
            return None
        return self.memory_budget // self.copy_bytes(update)
