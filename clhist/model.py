"""The model: how many copies, how many passes, in which memory (SC'20, section III, equations 1 to 6).

Pure functions of numbers. Every intermediate is kept, so that a person can read why a plan is as it is.

The paper's letters: N elements, H bins, T work-items, L bytes of local memory, B work-items of a work-group,
C work-items that cooperate on one copy, M copies, S passes of H_chk bins each, RF the race factor. Of several
histograms that one sweep fills together, H is the sum and elsize the mean: what counts is the memory of a copy of all.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import ceil, floor, inf

from clhist.atomics import MEMORIES, STRATEGIES
from clhist.profile import Profile

# The paper's constants (section III-D).
K_RF = 0.75
F_L2 = 0.4
K_CT_MIN = 2
COOPERATION_FACTOR = {"native": 2, "cas": 1, "lock": 1}  # u
GLOBAL_WORK_GROUP = 256  # section V-A: "block sizes 1024 and 256 for shared and global memory"
MAX_LOCAL_PASSES = {"native": 3, "cas": 4, "lock": 6}  # section V-A, the switching point between the two memories
LOCK_BYTES = 4
ALIGNMENT = 16  # where each of several arrays begins in local memory

# The least work-items that share a batched histogram, and the elements that a work-item of a GPU should have at least
# before several histograms share a work-group: a team of a warp does not wait for others, and clears and flushes less.
LEAST_TEAM = 32
ELEMENTS_PER_WORK_ITEM = 16

# On a CPU an update of a shared copy costs four to forty of a private one (PoCL and Intel's runtime, see
# docs/performance.md), so a work-item keeps its copy as long as initialising and combining it is not more work than its
# elements are.
PRIVATE_ELEMENTS_PER_BIN = 0.25

# Sorting pairs and combining neighbours (Listing 4). First guesses of what a pair costs for each 8 bits of the number of
# bins; of what one of the three launches for each two bits costs; and of what an update costs that waits for the one
# before it. Sorting is taken where locks are predicted to take so many times as long.
SORT_NANOSECONDS = 1.0
SORT_LAUNCH_NANOSECONDS = 40e3
LOCK_NANOSECONDS = 300.0
SORT_ADVANTAGE = 2
SORT_BITS = 2  # sorted at a time by PyOpenCL
MOST_SORTED_PAIRS = 2**30 - 1  # PyOpenCL's scans count in 32 bits, and beyond the last pair by as many at most
MOST_SORTED_BINS = 2**31 - 1


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

    def __str__(self) -> str:
        bins = " + ".join(f"{bins:,}" for bins in self.bins or (self.num_bins,))
        batch = (
            f"{self.num_histograms:,} histograms of {bins} bins, {self.groups_per_histogram} chunks each, "
            f"{self.teams} in a work-group,"
            if self.is_batch
            else f"{bins} bins"
        )
        outputs = f"{', '.join(self.outputs)}: " if self.outputs else ""
        return (
            f"{outputs}{self.num_elements:,} elements into {batch} on {self.profile}: {self.update} updates in "
            f"{self.memory} memory, copies M = {self.copies}, cooperation C = {self.cooperation}, "
            f"passes S = {self.passes} of {self.bins_per_pass:,} bins, {self.work_groups} work-groups "
            f"of {self.work_group_size}"
        )

    @property
    def global_copies(self) -> int:
        """Copies of all bins of one histogram that lie in global memory, to be combined in the end."""
        if self.memory == "global":
            return self.copies
        return self.groups_per_histogram if self.is_batch else self.work_groups

    @property
    def team_size(self) -> int:
        """Work-items that go through the same elements together."""
        return self.work_group_size // self.teams

    @property
    def tasks(self) -> int:
        """Chunks of a batch: K of each histogram."""
        return self.num_histograms * self.groups_per_histogram

    def chunks(self) -> tuple[int, ...]:
        """Return how many bins of each histogram one pass has."""
        return tuple(ceil(bins / self.passes) for bins in self.bins)


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
class _Draft:
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
        room = self.profile.local_memory
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
        """Return the bytes of global memory that sorting takes at its peak, about.

        For a pair its accumulator and, while it is sorted, bin and position three times and 16 bytes of PyOpenCL's
        scan; or, while it is scanned, bin and position twice and another accumulator.
        """
        size = max(4, self.bin_bytes[0])
        pairs = self.num_elements * self.pairs_each
        return pairs * (size + max(40, 16 + size)) + self.sorted_bins * self.bin_bytes[0]

    def work_items(self) -> int:
        threads = min(self.profile.hardware_threads, max(1, self.num_elements))
        return int(self.step("T", threads, "Fig. 2", "min(Thw, N)"))

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
        )


@lru_cache(maxsize=4096)
def plan(
    num_elements: int,
    num_bins: int | tuple[int, ...],
    profile: Profile,
    *,
    local_update: str = "native",
    global_update: str = "native",
    bin_bytes: int | tuple[int, ...] = 4,
    arrays: int = 1,
    locked: int | tuple[int, ...] = 1,
    race_factor: float = 1.0,
    forced: Forced = Forced(),
    memory_budget: int | None = None,
    num_histograms: int | None = None,
    emits: int = 1,
    most_emits: int | None = None,
) -> Plan:
    """Return how to compute a histogram (SC'20, section III, equations 1 to 6 and the switching point of V-A).

    Parameters
    ----------
    num_elements : int
        N, at least 0.
    num_bins : int, or tuple of int
        H, at least 1; one for each of the histograms that one sweep fills together.
    profile : Profile
        The device's numbers.
    local_update, global_update : {"native", "cas", "lock"}
        The update that work-items which share a copy would use, in each memory.
    bin_bytes : int, or tuple of int
        Bytes of one bin's accumulator, without a lock; one for each of the histograms.
    arrays : int
        Number of arrays that an accumulator is laid out in: 1 for a scalar or an array of structs, q for q arrays.
    locked : int, or tuple of int
        How many locks a bin has, where the update is a lock: one for each part that is updated by itself.
    race_factor : float
        RF, at least 1: H consecutive elements touch H / RF distinct bins.
    forced : Forced
        Choices made by the caller. A forced update takes the place of `local_update` and `global_update`. More copies
        than work-items are not made, nor more passes than bins.
    memory_budget : int, optional
        Bytes that the copies may take in global memory.
    num_histograms : int, optional
        N_out, for a batch: the elements are those of so many histograms, one after the other (section IV-C).
    emits : int
        How many (bin, value) pairs an element has.
    most_emits : int, optional
        How many it has at most, if that is known: only then can the pairs be sorted.

    Raises
    ------
    ValueError
        If an argument is out of range, or the forced choices contradict each other or the device.
    MemoryError
        If not even one copy fits the budget.
    """
    bins, bytes_each, locks = _tuple(num_bins), _tuple(bin_bytes), _tuple(locked)
    if len(bytes_each) != len(bins):
        raise ValueError(f"bin_bytes: expected one for each of {len(bins)} histograms, got {bin_bytes}")
    locks = locks * (len(bins) // len(locks))
    _check(num_elements, bins, bytes_each, arrays, race_factor, forced, memory_budget, num_histograms, most_emits)
    draft = _Draft(
        num_elements,
        bins,
        profile,
        bytes_each,
        arrays,
        locks,
        float(race_factor),
        forced,
        memory_budget,
        num_histograms,
        emits,
        most_emits=most_emits,
    )
    if forced.update == "sort":
        return _sorted(draft)
    if num_histograms is not None:
        return _batched(draft, local_update, global_update)
    if forced.memory == "local":
        return _local(draft, forced.update or local_update)
    if forced.update == "private" or (forced.update is None and forced.copies is None and profile.kind == "cpu"):
        return _private(draft)
    if forced.memory is None:
        try:
            local = _local(draft, forced.update or local_update)
        except ValueError:  # what is forced does not fit local memory
            draft.steps.clear()
        else:
            limit = MAX_LOCAL_PASSES[forced.update or local_update]
            draft.step("S_max", limit, "V-A", "3, 4, 6 passes in local memory for native, cas, lock")
            if local.passes <= limit:
                return replace(local, steps=tuple(draft.steps))
    return _global_or_sorted(draft, forced.update or global_update)


def _local(draft: _Draft, update: str) -> Plan:
    """Equations 1 to 3: as many copies as fit local memory; more passes where not even one fits."""
    bins, forced = draft.num_bins, draft.forced
    size, _ = draft.element_bytes(update)
    memory = draft.local_memory(update)
    group = int(draft.step("B", forced.work_group_size or draft.profile.work_group_size, "III-C", "work-group size"))
    if update == "private" and forced.work_group_size is None:  # as many work-items as copies fit
        group = int(
            draft.step("B", max(1, min(group, int(memory // (size * bins)))), "", "one copy for each work-item")
        )
    threads = draft.work_items()
    blocks = int(draft.step("blocks", ceil(threads / group), "(1)", "ceil(T / B)"))
    copies = group
    if update != "private":
        fitting = draft.step(
            "m'",
            min(memory / size, ceil(draft.num_elements / blocks)) / bins,
            "(1)",
            "min(L / elsize, ceil(N / blocks)) / H",
        )
        copies = int(draft.step("M", max(1, min(floor(fitting), group)), "(2)", "max(1, min(floor(m'), B))"))
        if forced.copies is not None:
            copies = int(draft.step("M", min(forced.copies, group), "", "forced, at most B"))
    draft.step("C", ceil(group / copies), "(2)", "ceil(B / M)")
    passes = _local_passes(draft, update, copies)
    groups = draft.affordable(blocks, "native")
    return draft.finish("local", update, copies, passes, group, groups, group)


def _local_passes(draft: _Draft, update: str, copies: int) -> int:
    """Equation 3: as many passes as it takes for `copies` copies to fit local memory."""
    bins, forced, memory = draft.num_bins, draft.forced, draft.local_memory(update)
    size, _ = draft.element_bytes(update)
    length = int(draft.step("len", memory // (size * copies), "(3)", "floor(L / (elsize M))"))
    if length == 0:
        raise ValueError(
            f"copies: {copies} copies of one bin take {copies * size:g} bytes of local memory where "
            f"{draft.profile.name} has {memory}"
        )
    passes = min(ceil(bins / length), max(draft.bins))
    lost = draft.alignment_bytes(update)
    if copies * draft.copy_bytes(update, passes) + lost > memory:  # several histograms, each of which rounds up
        one = sum(draft.sizes(update))
        length = floor((memory - lost - copies * one) / (size * copies))
        passes = ceil(bins / length) if length > 0 else max(draft.bins)
        if copies * draft.copy_bytes(update, passes) + lost > memory:
            raise ValueError(
                f"copies: {copies} copies of one bin of each histogram take {copies * one + lost} bytes of local "
                f"memory where {draft.profile.name} has {memory}"
            )
    draft.step("S", passes, "(3)", "ceil(H / len)")
    if forced.passes is not None:
        if min(forced.passes, bins) < passes:
            raise ValueError(
                f"passes: expected at least {passes}, since {copies} copies of {bins} bins take "
                f"{copies * draft.copy_bytes(update)} bytes of local memory where {draft.profile.name} has {memory}; "
                f"got {forced.passes}"
            )
        passes = int(draft.step("S", min(forced.passes, max(draft.bins)), "", "forced, at most H"))
    draft.step("H_chk", ceil(bins / passes), "(3)", "ceil(H / S)")
    return passes


def _global(draft: _Draft, update: str) -> Plan:
    """Equations 4 to 6: as many copies as the last-level cache holds, in passes if not even the fewest fit."""
    bins, forced, profile = draft.num_bins, draft.forced, draft.profile
    size, average = draft.element_bytes(update)
    group = int(
        draft.step(
            "B", forced.work_group_size or min(GLOBAL_WORK_GROUP, profile.work_group_size), "V-A", "work-group size"
        )
    )
    threads = draft.work_items()
    expansion = draft.step(
        "RACE_exp",
        max(1.0, K_RF * draft.race_factor / max(1.0, profile.l2_line / average)),
        "(4)",
        "max(1, k_RF RF / max(1, L2_line / avg))",
    )
    cache = F_L2 * profile.l2_cache * expansion
    most_sharers = draft.step("C_max", min(threads, bins / K_CT_MIN), "(5)", "min(T, H / k_ct_min)")
    fewest = int(
        draft.step("M_min", min(threads, max(1, floor(threads / most_sharers))), "(5)", "max(1, floor(T / C_max))")
    )
    needed = max(1, min(max(draft.bins), ceil(fewest * bins * average / cache)))
    passes = int(draft.step("S", needed, "(5)", "ceil(M_min H avg / (F_L2 L2 RACE_exp))"))
    if forced.passes is not None:
        passes = int(draft.step("S", min(forced.passes, max(draft.bins)), "", "forced, at most H"))
    chunk = draft.step("H_chk", ceil(bins / passes), "(5)", "ceil(H / S)")
    per_item = draft.step(
        "k_max", min(cache / size, max(1, draft.num_elements)) / threads, "(6)", "min(F_L2 L2 RACE_exp / elsize, N) / T"
    )
    factor = draft.step("u", COOPERATION_FACTOR.get(update, 1), "(6)", "2 for native, 1 for cas and lock")
    sharers = draft.step("C", min(threads, factor * chunk / per_item), "(6)", "min(T, u H_chk / k_max)")
    copies = int(draft.step("M", min(threads, max(1, floor(threads / sharers))), "(6)", "max(1, floor(T / C))"))
    if forced.copies is not None:
        copies = int(draft.step("M", min(forced.copies, threads), "", "forced, at most T"))
    allowed = draft.affordable(copies, update)
    if allowed < copies:
        copies = int(draft.step("M", allowed, "", "what the memory budget allows"))
    groups = ceil(threads / group)
    return draft.finish("global", update, copies, passes, group, groups, groups * group)


def _global_or_sorted(draft: _Draft, update: str) -> Plan:
    """In global memory; by sorting where no copy with its locks fits the budget, or where many wait for few locks."""
    may_sort = (
        update == "lock" and draft.forced == Forced() and draft.profile.kind != "cpu" and not _cannot_sort(draft)
    )
    try:
        found = _global(draft, update)
    except MemoryError:
        if not may_sort:
            raise
        draft.step("M", 0, "", "not even one copy with its locks fits the memory budget: pairs are sorted")
        return _sorted(draft)
    if not may_sort or found.update != "lock":
        return found
    threads = min(draft.profile.hardware_threads, max(1, draft.num_elements))
    distinct = max(1.0, found.copies * draft.num_bins / draft.race_factor)
    if draft.step("X", threads / distinct, "III-A", "T RF / (M H) work-items at each distinct bin") > 1:
        pairs = draft.num_elements * draft.pairs_each
        locked = draft.step("t_lock", 1e-6 * pairs * LOCK_NANOSECONDS / distinct, "", "ms: 300 ns N RF / (M H)")
        bits = draft.sorted_bins.bit_length()
        launches = 3 * ceil(bits / SORT_BITS) * SORT_LAUNCH_NANOSECONDS
        sorting = draft.step(
            "t_sort",
            1e-6 * (pairs * SORT_NANOSECONDS * bits / 8 + launches),
            "",
            "ms: 1 ns N bits / 8, and 40 us for each of 3 launches for 2 bits",
        )
        if locked > SORT_ADVANTAGE * sorting:
            return _sorted(draft)
    return replace(found, steps=tuple(draft.steps))


def _cannot_sort(draft: _Draft) -> Exception | None:
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


def _sorted(draft: _Draft) -> Plan:
    """Listing 4: the pairs are sorted by bin, and a segmented scan combines those of each bin."""
    forced, threads = draft.forced, draft.work_items()
    reason = _cannot_sort(draft)
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


def _private(draft: _Draft) -> Plan:
    """Listing 2: a copy in global memory for each work-item, as long as they are not more work than the elements."""
    bins, forced = draft.num_bins, draft.forced
    group = int(
        draft.step(
            "B", forced.work_group_size or min(GLOBAL_WORK_GROUP, draft.profile.work_group_size), "", "work-group size"
        )
    )
    threads = draft.work_items()
    useful = int(draft.num_elements * draft.emits / (bins * PRIVATE_ELEMENTS_PER_BIN))
    pairs = f"4 N {draft.emits}" if draft.emits > 1 else "4 N"
    copies = max(1, min(threads, useful))
    copies = int(draft.step("M", copies, "Listing 2", f"max(1, min(T, {pairs} / H)): one a work-item"))
    if forced.copies is not None:
        copies = int(draft.step("M", min(forced.copies, threads), "", "forced, at most T"))
    copies = draft.affordable(copies, "private")
    group = min(group, copies)
    copies -= copies % group  # whole work-groups
    passes = int(draft.step("S", min(forced.passes or 1, max(draft.bins)), "", "one, or forced"))
    draft.step("C", 1, "", "no sharing")
    return draft.finish("global", "private", copies, passes, group, copies // group, copies)


def _batched(draft: _Draft, local_update: str, global_update: str) -> Plan:
    """Section IV-C: K work-groups for each histogram; where they are many and small, several in one work-group."""
    forced = draft.forced
    if forced.memory != "local" and (
        forced.update == "private" or (forced.update is None and forced.copies is None and draft.profile.kind == "cpu")
    ):
        return _batched_private(draft)
    if forced.memory != "global":
        update = forced.update or local_update
        try:
            local = _batched_local(draft, update)
        except ValueError:  # what is forced does not fit local memory
            if forced.memory == "local":
                raise
            draft.steps.clear()
        else:
            if forced.memory == "local" or local.passes <= MAX_LOCAL_PASSES.get(update, 1):
                return local
            draft.steps.clear()
    return _batched_global(draft, forced.update or global_update)


def _batched_local(draft: _Draft, update: str) -> Plan:
    forced, memory = draft.forced, draft.local_memory(update)
    size, _ = draft.element_bytes(update)
    group, each, chunks = _chunks(draft, forced.work_group_size or draft.profile.work_group_size)
    one = size * draft.num_bins
    teams = 1
    if chunks == 1 and forced.passes is None:
        most = memory // (one * (forced.copies or 1))
        teams = _teams(draft, group, each, int(min(most, draft.num_histograms or 1)))
    team = group // teams
    copies = team
    if update != "private":
        fitting = draft.step(
            "m'", min(memory / teams / size, each) / draft.num_bins, "(1)", "min(L / P / elsize, n / K) / H"
        )
        copies = int(draft.step("M", max(1, min(floor(fitting), team)), "(2)", "max(1, min(floor(m'), B / P))"))
        if forced.copies is not None:
            copies = int(draft.step("M", min(forced.copies, team), "", "forced, at most B / P"))
    draft.step("C", ceil(team / copies), "(2)", "ceil(B / P / M)")
    passes = _local_passes(draft, update, copies * teams)
    affordable = draft.affordable(chunks, "native")
    groups = ceil((draft.num_histograms or 1) * affordable / teams)
    return draft.finish(
        "local", update, copies, passes, group, groups, team, groups_per_histogram=affordable, teams=teams
    )


def _batched_global(draft: _Draft, update: str) -> Plan:
    histograms = draft.num_histograms or 1
    group, each, chunks = _chunks(
        draft, draft.forced.work_group_size or min(GLOBAL_WORK_GROUP, draft.profile.work_group_size)
    )
    teams = _teams(draft, group, each, histograms) if chunks == 1 else 1
    # As if each were alone, with the share of the work-items that it gets; in one pass, since few are open at a time.
    threads = chunks * (group // teams)
    one = replace(draft.profile, hardware_threads=threads)
    alone = _Draft(
        ceil(draft.num_elements / histograms),
        draft.bins,
        one,
        draft.bin_bytes,
        draft.arrays,
        draft.locked,
        draft.race_factor,
        replace(draft.forced, passes=draft.forced.passes or 1, work_group_size=None),
        None,
        None,
        draft.emits,
        draft.steps,
    )
    found = _global(alone, update)
    copies = draft.affordable(min(found.copies, threads), update)
    groups = ceil(histograms * chunks / teams)
    return draft.finish(
        "global", update, copies, found.passes, group, groups, threads, groups_per_histogram=chunks, teams=teams
    )


def _batched_private(draft: _Draft) -> Plan:
    """A copy in global memory for each chunk, and a work-item for each."""
    group, each, chunks = _chunks(
        draft,
        draft.forced.work_group_size or min(GLOBAL_WORK_GROUP, draft.profile.work_group_size),
        work_items=True,
    )
    useful = int(each * chunks * draft.emits / (draft.num_bins * PRIVATE_ELEMENTS_PER_BIN))
    chunks = max(1, min(chunks, useful))
    if draft.forced.copies is not None:
        chunks = draft.forced.copies
    chunks = int(draft.step("M", draft.affordable(chunks, "private"), "", "K, as far as elements and memory go"))
    passes = int(draft.step("S", min(draft.forced.passes or 1, max(draft.bins)), "", "one, or forced"))
    tasks = (draft.num_histograms or 1) * chunks
    groups = ceil(min(tasks, 4 * max(1, draft.profile.hardware_threads)) / group)
    return draft.finish(
        "global", "private", chunks, passes, group, groups, chunks, groups_per_histogram=chunks, teams=group
    )


def _chunks(draft: _Draft, group: int, *, work_items: bool = False) -> tuple[int, int, int]:
    """Return B, the elements of one chunk, and K, the chunks of one histogram."""
    histograms = draft.num_histograms or 1
    draft.step("B", group, "III-C", "work-group size")
    threads = draft.work_items()
    draft.step("N_out", histograms, "IV-C", "histograms")
    if work_items:
        chunks = int(draft.step("K", ceil(threads / histograms), "IV-C", "ceil(T / N_out): a work-item for each"))
    else:
        chunks = int(draft.step("K", ceil(ceil(threads / group) / histograms), "IV-C", "ceil(ceil(T / B) / N_out)"))
    return group, ceil(draft.num_elements / histograms / chunks), chunks


def _teams(draft: _Draft, group: int, each: int, most: int) -> int:
    """Return P, a power of two: how many histograms of `each` elements one work-group has."""
    wanted = ELEMENTS_PER_WORK_ITEM * group / max(1, each)
    teams = 1
    while 2 * teams <= min(most, group // LEAST_TEAM) and teams < wanted and group % (2 * teams) == 0:
        teams *= 2
    return int(
        draft.step(
            "P", teams, "", "histograms in a work-group: the fewest that give a work-item 16 elements, in teams of 32"
        )
    )


def _tuple(value: int | tuple[int, ...]) -> tuple[int, ...]:
    return value if isinstance(value, tuple) else (value,)


def _check(
    num_elements: int,
    bins: tuple[int, ...],
    bin_bytes: tuple[int, ...],
    arrays: int,
    race_factor: float,
    forced: Forced,
    memory_budget: int | None,
    num_histograms: int | None,
    most_emits: int | None,
) -> None:
    for name, value, least in (
        ("num_elements", num_elements, 0),
        *(("num_bins", bins_each, 1) for bins_each in bins),
        *(("bin_bytes", size, 1) for size in bin_bytes),
        ("copies", forced.copies, 1),
        ("passes", forced.passes, 1),
        ("work_group_size", forced.work_group_size, 1),
        ("locks", forced.locks, 1),
        ("arrays", arrays, 1),
        ("memory_budget", memory_budget, 1),
        ("num_histograms", num_histograms, 1),
        ("most_emits", most_emits, 1),
    ):
        if value is not None and value < least:
            raise ValueError(f"{name}: expected at least {least}, got {value}")
    if not 1 <= race_factor < inf:
        raise ValueError(f"race_factor: expected a finite number of at least 1, got {race_factor}")
    if forced.memory not in (None, *MEMORIES):
        raise ValueError(f"memory: expected one of {', '.join(MEMORIES)}, got {forced.memory!r}")
    if forced.update not in (None, *STRATEGIES):
        raise ValueError(f"update: expected one of {', '.join(STRATEGIES)}, got {forced.update!r}")
