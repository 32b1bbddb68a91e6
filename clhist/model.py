"""The model: how many copies, how many passes, in which memory (SC'20, section III, equations 1 to 6).

Pure functions of numbers. Every intermediate is kept, so that a person can read why a plan is as it is.

The paper's letters: N elements, H bins, T work-items, L bytes of local memory, B work-items of a work-group,
C work-items that cooperate on one copy, M copies, S passes of H_chk bins each, RF the race factor.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import ceil, floor, inf

from clhist.atomics import MEMORIES, UPDATES
from clhist.profile import Profile

# The paper's constants (section III-D).
K_RF = 0.75
F_L2 = 0.4
K_CT_MIN = 2
COOPERATION_FACTOR = {"native": 2, "cas": 1, "lock": 1}  # u
GLOBAL_WORK_GROUP = 256  # section V-A: "block sizes 1024 and 256 for shared and global memory"
MAX_LOCAL_PASSES = {"native": 3, "cas": 4, "lock": 6}  # section V-A, the switching point between the two memories
LOCK_BYTES = 4

# On a CPU an update of a shared copy costs four to forty of a private one (PoCL and Intel's runtime, see
# docs/performance.md), so a work-item keeps its copy as long as initialising and combining it is not more work than its
# elements are.
PRIVATE_ELEMENTS_PER_BIN = 0.25


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
    update : {"private", "native", "cas", "lock"}
        How a bin is updated.
    copies : int
        M: copies of a work-group in local memory, of the device in global memory.
    cooperation : int
        C: work-items that share one copy.
    passes, bins_per_pass : int
        S and H_chk.
    work_group_size, work_groups : int
        B, and how many groups are launched in each pass.
    num_elements, num_bins : int
        N and H.
    race_factor : float
        RF.
    profile : str
        Name of the device that it is for.
    steps : tuple of Step
        How it came about.
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

    def __str__(self) -> str:
        return (
            f"{self.num_elements:,} elements into {self.num_bins:,} bins on {self.profile}: {self.update} updates in "
            f"{self.memory} memory, copies M = {self.copies}, cooperation C = {self.cooperation}, "
            f"passes S = {self.passes} of {self.bins_per_pass:,} bins, {self.work_groups} work-groups "
            f"of {self.work_group_size}"
        )

    @property
    def global_copies(self) -> int:
        """Copies of all bins that lie in global memory, to be combined in the end."""
        return self.work_groups if self.memory == "local" else self.copies


@dataclass(frozen=True)
class Forced:
    """Choices that the caller makes instead of the model; None leaves one to it."""

    update: str | None = None
    memory: str | None = None
    copies: int | None = None
    passes: int | None = None
    work_group_size: int | None = None


@dataclass
class _Draft:
    """The inputs of a plan, and the steps as they are taken."""

    num_elements: int
    num_bins: int
    profile: Profile
    bin_bytes: int
    arrays: int
    race_factor: float
    forced: Forced
    memory_budget: int | None
    steps: list[Step] = field(default_factory=list)

    def step(self, symbol: str, value: float, equation: str, formula: str) -> float:
        self.steps.append(Step(symbol, value, equation, formula))
        return value

    def element_bytes(self, update: str) -> tuple[int, float]:
        """Return elsize, the bytes of a bin with its lock, and avg, its share of each array that it is laid out in."""
        if update != "lock":
            return self.bin_bytes, self.bin_bytes / self.arrays
        size = self.bin_bytes + LOCK_BYTES
        return size, size / (self.arrays + 1)

    def work_items(self) -> int:
        threads = min(self.profile.hardware_threads, max(1, self.num_elements))
        return int(self.step("T", threads, "Fig. 2", "min(Thw, N)"))

    def affordable(self, copies: int, element_bytes: int) -> int:
        """Return how many of `copies` copies of all bins in global memory the budget allows."""
        if self.memory_budget is None:
            return copies
        one = self.num_bins * element_bytes
        if one > self.memory_budget:
            raise MemoryError(
                f"memory_budget: one copy of {self.num_bins} bins takes {one} bytes, got {self.memory_budget} bytes"
            )
        return min(copies, self.memory_budget // one)

    def finish(
        self, memory: str, update: str, copies: int, passes: int, work_group_size: int, work_groups: int, sharers: int
    ) -> Plan:
        """Return the plan; `sharers` work-items share `copies` copies."""
        cooperation = ceil(sharers / copies)
        # A GPU's own atomics on local memory are faster than a load and a store (measured, docs/performance.md).
        if cooperation == 1 and self.forced.update is None and (update != "native" or self.profile.kind == "cpu"):
            update = "private"
        return Plan(
            memory,
            update,
            copies,
            cooperation,
            passes,
            ceil(self.num_bins / passes),
            work_group_size,
            work_groups,
            self.num_elements,
            self.num_bins,
            self.race_factor,
            self.profile.name,
            tuple(self.steps),
        )


@lru_cache(maxsize=4096)
def plan(
    num_elements: int,
    num_bins: int,
    profile: Profile,
    *,
    local_update: str = "native",
    global_update: str = "native",
    bin_bytes: int = 4,
    arrays: int = 1,
    race_factor: float = 1.0,
    forced: Forced = Forced(),
    memory_budget: int | None = None,
) -> Plan:
    """Return how to compute a histogram (SC'20, section III, equations 1 to 6 and the switching point of V-A).

    Parameters
    ----------
    num_elements, num_bins : int
        N, at least 0, and H, at least 1.
    profile : Profile
        The device's numbers.
    local_update, global_update : {"native", "cas", "lock"}
        The update that work-items which share a copy would use, in each memory.
    bin_bytes : int
        Bytes of one bin's accumulator, without a lock.
    arrays : int
        Number of arrays that an accumulator is laid out in: 1 for a scalar or an array of structs, q for q arrays.
    race_factor : float
        RF, at least 1: H consecutive elements touch H / RF distinct bins.
    forced : Forced
        Choices made by the caller. A forced update takes the place of `local_update` and `global_update`. More copies
        than work-items are not made, nor more passes than bins.
    memory_budget : int, optional
        Bytes that the copies may take in global memory.

    Raises
    ------
    ValueError
        If an argument is out of range, or the forced choices contradict each other or the device.
    MemoryError
        If not even one copy fits the budget.
    """
    _check(num_elements, num_bins, bin_bytes, arrays, race_factor, forced, memory_budget)
    draft = _Draft(num_elements, num_bins, profile, bin_bytes, arrays, float(race_factor), forced, memory_budget)
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
    return _global(draft, forced.update or global_update)


def _local(draft: _Draft, update: str) -> Plan:
    """Equations 1 to 3: as many copies as fit local memory; more passes where not even one fits."""
    bins, memory, forced = draft.num_bins, draft.profile.local_memory, draft.forced
    size, _ = draft.element_bytes(update)
    group = int(draft.step("B", forced.work_group_size or draft.profile.work_group_size, "III-C", "work-group size"))
    if update == "private" and forced.work_group_size is None:  # as many work-items as copies fit
        group = int(draft.step("B", max(1, min(group, memory // (size * bins))), "", "one copy for each work-item"))
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
    length = int(draft.step("len", memory // (size * copies), "(3)", "floor(L / (elsize M))"))
    if length == 0:
        raise ValueError(
            f"copies: {copies} copies of one bin take {copies * size} bytes of local memory where "
            f"{draft.profile.name} has {memory}"
        )
    passes = int(draft.step("S", ceil(bins / length), "(3)", "ceil(H / len)"))
    if forced.passes is not None:
        if min(forced.passes, bins) < passes:
            raise ValueError(
                f"passes: expected at least {passes}, since {copies} copies of {bins} bins take "
                f"{copies * bins * size} bytes of local memory where {draft.profile.name} has {memory}; "
                f"got {forced.passes}"
            )
        passes = int(draft.step("S", min(forced.passes, bins), "", "forced, at most H"))
    draft.step("H_chk", ceil(bins / passes), "(3)", "ceil(H / S)")
    groups = draft.affordable(blocks, draft.bin_bytes)
    return draft.finish("local", update, copies, passes, group, groups, group)


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
    needed = max(1, min(bins, ceil(fewest * bins * average / cache)))
    passes = int(draft.step("S", needed, "(5)", "ceil(M_min H avg / (F_L2 L2 RACE_exp))"))
    if forced.passes is not None:
        passes = int(draft.step("S", min(forced.passes, bins), "", "forced, at most H"))
    chunk = draft.step("H_chk", ceil(bins / passes), "(5)", "ceil(H / S)")
    per_item = draft.step(
        "k_max", min(cache / size, max(1, draft.num_elements)) / threads, "(6)", "min(F_L2 L2 RACE_exp / elsize, N) / T"
    )
    factor = draft.step("u", COOPERATION_FACTOR.get(update, 1), "(6)", "2 for native, 1 for cas and lock")
    sharers = draft.step("C", min(threads, factor * chunk / per_item), "(6)", "min(T, u H_chk / k_max)")
    copies = int(draft.step("M", min(threads, max(1, floor(threads / sharers))), "(6)", "max(1, floor(T / C))"))
    if forced.copies is not None:
        copies = int(draft.step("M", min(forced.copies, threads), "", "forced, at most T"))
    allowed = draft.affordable(copies, size)
    if allowed < copies:
        copies = int(draft.step("M", allowed, "", "what the memory budget allows"))
    groups = ceil(threads / group)
    return draft.finish("global", update, copies, passes, group, groups, groups * group)


def _private(draft: _Draft) -> Plan:
    """Listing 2: a copy in global memory for each work-item, as long as they are not more work than the elements."""
    bins, forced = draft.num_bins, draft.forced
    group = int(
        draft.step(
            "B", forced.work_group_size or min(GLOBAL_WORK_GROUP, draft.profile.work_group_size), "", "work-group size"
        )
    )
    threads = draft.work_items()
    useful = int(draft.num_elements / (bins * PRIVATE_ELEMENTS_PER_BIN))
    copies = int(draft.step("M", max(1, min(threads, useful)), "Listing 2", "max(1, min(T, 4 N / H)): one a work-item"))
    if forced.copies is not None:
        copies = int(draft.step("M", min(forced.copies, threads), "", "forced, at most T"))
    copies = draft.affordable(copies, draft.bin_bytes)
    group = min(group, copies)
    copies -= copies % group  # whole work-groups
    passes = int(draft.step("S", min(forced.passes or 1, bins), "", "one, or forced"))
    draft.step("C", 1, "", "no sharing")
    return draft.finish("global", "private", copies, passes, group, copies // group, copies)


def _check(
    num_elements: int,
    num_bins: int,
    bin_bytes: int,
    arrays: int,
    race_factor: float,
    forced: Forced,
    memory_budget: int | None,
) -> None:
    for name, value, least in (
        ("num_elements", num_elements, 0),
        ("num_bins", num_bins, 1),
        ("bin_bytes", bin_bytes, 1),
        ("copies", forced.copies, 1),
        ("passes", forced.passes, 1),
        ("work_group_size", forced.work_group_size, 1),
        ("arrays", arrays, 1),
        ("memory_budget", memory_budget, 1),
    ):
        if value is not None and value < least:
            raise ValueError(f"{name}: expected at least {least}, got {value}")
    if not 1 <= race_factor < inf:
        raise ValueError(f"race_factor: expected a finite number of at least 1, got {race_factor}")
    if forced.memory not in (None, *MEMORIES):
        raise ValueError(f"memory: expected one of {', '.join(MEMORIES)}, got {forced.memory!r}")
    if forced.update not in (None, *UPDATES):
        raise ValueError(f"update: expected one of {', '.join(UPDATES)}, got {forced.update!r}")
