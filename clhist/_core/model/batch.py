"""Batches (SC'20, section IV-C): K work-groups for each of N_out histograms, or several histograms in a work-group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor
from typing import ClassVar

from clhist._core.model import private
from clhist._core.model.feature import BatchChunks, Feature, FlatBatch
from clhist._core.model.global_memory import GlobalPlan, global_copies, with_worthwhile_passes
from clhist._core.model.local import local_passes
from clhist._core.model.passes import with_best_order
from clhist._core.model.plan import GLOBAL_WORK_GROUP, Plan, Trace, after, make_plan
from clhist._core.model.problem import IN_TURN
from clhist._core.model.updates import BY_NAME
from clhist._core.model.workload import Workload

# The least work-items that share a batched histogram, and the elements that a work-item of a GPU should have at least
# before several histograms share a work-group: a team of a warp does not wait for others, and clears and flushes less.
# A warp is NVIDIA's: no profile has its size, nor is that of 16 recorded.
LEAST_TEAM = 32
ELEMENTS_PER_WORK_ITEM = 16
# On an H200 a million histograms of 50 elements take 302 us flat and 1081 in teams; of 500 elements 276 and 237.
FEWEST_ELEMENTS = 128


@dataclass(frozen=True, kw_only=True)
class BatchedPlan(Plan):
    """Chunks of each histogram's elements, each for a team of work-items.

    Attributes
    ----------
    groups_per_histogram : int
        K: chunks of one histogram.
    most_tasks : int or None
        For how many chunks of all histograms the memory budget has copies.
    """

    strategy: ClassVar[str] = "batch"

    groups_per_histogram: int
    most_tasks: int | None

    def what(self) -> str:
        bins = " + ".join(f"{bins:,}" for bins in self.bins)
        return (
            f"{self.num_histograms:,} histograms of {bins} bins, {self.groups_per_histogram} chunks each, "
            f"{self.teams} in a work-group,"
        )

    def features(self, value: str | None) -> tuple[Feature, ...]:
        return (BatchChunks(self.equal_shares),)

    def own_words(self) -> Mapping[str, Sequence[tuple[str, str]]]:
        return {
            "bins per pass (H_chk)": [
                ("chunks (K)", f"{self.groups_per_histogram:,} of each histogram's elements"),
                ("teams", f"{self.teams:,} in a work-group, each with one chunk at a time"),
            ]
        }

    @property
    def chunks_each(self) -> int:
        return self.groups_per_histogram

    @property
    def task_limit(self) -> int | None:
        return self.most_tasks

    @property
    def has_table(self) -> bool:
        return not self.equal_shares and self.num_elements > 0

    @property
    def global_copies(self) -> int:
        return self.copies if self.memory == "global" else self.groups_per_histogram


@dataclass(frozen=True, kw_only=True)
class FlattenedPlan(GlobalPlan):
    """A batch of `flattened` histograms of as many elements each, computed as one histogram of all their bins."""

    strategy: ClassVar[str] = "flattened"
    rate: ClassVar[str | None] = None

    flattened: int

    def what(self) -> str:
        return f"{super().what()} of {self.flattened:,} histograms"

    def features(self, value: str | None) -> tuple[Feature, ...]:
        return (FlatBatch(),)

    @property
    def elements_each(self) -> int:
        return self.num_elements // self.flattened


def batched(load: Workload, local_update: str, global_update: str) -> Plan:
    """Section IV-C: K work-groups for each histogram; where they are many and small, several in one work-group."""
    choices = load.choices
    # A CPU has few work-items, so that each can have a copy and needs no atomics.
    if choices.memory != "local" and (
        choices.update == "private" or (choices.update is None and choices.copies is None and load.on_cpu)
    ):
        return _batched_private(load)
    elements = load.size // load.histograms
    if load.equal_shares and not choices.forced and elements < FEWEST_ELEMENTS:
        trace = Trace()
        trace.step(
            "n", elements, "IV-C", f"elements of a histogram: fewer than {FEWEST_ELEMENTS} do not keep a team busy"
        )
        return after(trace.steps, _flat(load, global_update))
    if choices.memory != "global":
        update = choices.update or local_update
        try:
            local = _batched_local(load, update)
        except ValueError:  # what is forced does not fit local memory
            if choices.memory == "local":
                raise
        else:
            # Each pass reads all elements again: beyond so many, updates in global memory are faster (section V-A).
            if choices.memory == "local" or local.passes <= BY_NAME[update].most_local_passes:
                return local
    update = choices.update or global_update
    return _flat(load, update) if load.equal_shares else _batched_global(load, update)


def _flat(load: Workload, update: str) -> Plan:
    """One histogram of N_out H bins: neighbouring work-items are at the same few histograms, whose bins are cached."""
    trace = Trace()
    trace.step("N_out", load.histograms, "IV-C", "histograms, as one of N_out H bins")
    whole = replace(load, bins=tuple(load.histograms * bins for bins in load.bins), num_histograms=None)
    as_one = vars(with_worthwhile_passes(global_copies(whole, update), whole, update))
    return after(trace.steps, FlattenedPlan(**as_one, flattened=load.histograms))


def _batched_local(load: Workload, update: str) -> Plan:
    choices, memory, trace = load.choices, load.local_memory(update), Trace()
    size, _ = load.element_bytes(update)
    group = choices.work_group_size or load.profile.work_group_size
    elements, chunks = _chunks(load, trace, group)
    one = size * load.num_bins
    teams = 1
    # Small histograms share a work-group: one chunk each does not keep it busy.
    if chunks == 1 and choices.passes is None:
        most = memory // (one * (choices.copies or 1))
        teams = _teams(trace, group, elements, int(min(most, load.histograms)))
    team = group // teams
    copies = team
    if update != "private":
        # Equations 1 and 2 for one team, which has its share of local memory and of the work-items.
        fitting = min(memory / teams / size, elements) / load.num_bins
        fitting = trace.step("m'", fitting, "(1)", "min(L / P / elsize, n / K) / H")
        copies = int(trace.step("M", max(1, min(floor(fitting), team)), "(2)", "max(1, min(floor(m'), B / P))"))
        if choices.copies is not None:
            copies = int(trace.step("M", min(choices.copies, team), "", "forced, at most B / P"))
    trace.step("C", ceil(team / copies), "(2)", "ceil(B / P / M)")
    passes = local_passes(load, trace, update, copies * teams)
    # Each chunk leaves a copy without locks in global memory.
    affordable = load.affordable(chunks, "native")
    groups = ceil(load.histograms * affordable / teams)
    plan = _batch(
        load, trace, "local", update, chunks=affordable, copies=copies, passes=passes, group=group, groups=groups,
        sharers=team, teams=teams,
    )  # fmt: skip
    return _with_passes_aside(plan, load, chunks)


def _with_passes_aside(plan: BatchedPlan, load: Workload, chunks: int) -> BatchedPlan:
    """Return the plan with its passes side by side if there is a chunk of each histogram for every pass."""
    resident = load.resident(load.histograms * chunks, plan.copies * load.copy_bytes(plan.update, plan.passes))
    resident_groups = resident // load.histograms
    # Teams of several histograms have one chunk each, which passes cannot divide among them.
    ordered = with_best_order(plan, load, resident_groups) if plan.teams == 1 else plan
    if ordered.pass_order == IN_TURN:
        return ordered
    # The groups that the order was chosen for are those of one histogram.
    return replace(ordered, groups_per_histogram=ordered.work_groups, work_groups=load.histograms * ordered.work_groups)


def _batched_global(load: Workload, update: str) -> Plan:
    choices, trace = load.choices, Trace()
    group = choices.work_group_size or min(GLOBAL_WORK_GROUP, load.profile.work_group_size)
    elements, chunks = _chunks(load, trace, group)
    teams = _teams(trace, group, elements, load.histograms) if chunks == 1 else 1
    # As if each were alone, with the share of the work-items that it gets; in one pass, since few are open at a time.
    threads = chunks * (group // teams)
    alone = replace(
        load,
        size=ceil(load.size / load.histograms),
        profile=replace(load.profile, hardware_threads=threads),
        choices=replace(choices, passes=choices.passes or 1, work_group_size=None),
        memory_budget=None,
        num_histograms=None,
    )
    single = global_copies(alone, update)
    copies = load.affordable(min(single.copies, threads), update)
    groups = ceil(load.histograms * chunks / teams)
    plan = _batch(
        load, trace, "global", update, chunks=chunks, copies=copies, passes=single.passes, group=group, groups=groups,
        sharers=threads, teams=teams,
    )  # fmt: skip
    if plan.update == "private":
        return _batched_private(load)  # where each work-item has not only a copy of its own, but also a chunk
    return replace(plan, steps=(*plan.steps, *single.steps))


def _batched_private(load: Workload) -> Plan:
    """A copy in global memory for each chunk, and a work-item for each."""
    choices, trace = load.choices, Trace()
    group = choices.work_group_size or min(GLOBAL_WORK_GROUP, load.profile.work_group_size)
    elements, chunks = _chunks(load, trace, group, work_items=True)
    # As for one histogram: a copy needs enough pairs for each bin.
    useful = int(elements * chunks * load.pairs_per_element / (load.num_bins * private.ELEMENTS_PER_BIN))
    chunks = max(1, min(chunks, useful))
    if choices.copies is not None:
        chunks = choices.copies
    chunks = int(trace.step("M", load.affordable(chunks, "private"), "", "K, as far as elements and memory go"))
    passes = int(trace.step("S", min(choices.passes or 1, max(load.bins)), "", "one, or forced"))
    tasks = load.histograms * chunks
    # Work-items take tasks from a list, so they may be fewer than these.
    groups = ceil(min(tasks, 4 * max(1, load.profile.hardware_threads)) / group)
    return _batch(
        load, trace, "global", "private", chunks=chunks, copies=chunks, passes=passes, group=group, groups=groups,
        sharers=chunks, teams=group,
    )  # fmt: skip


def _batch(load: Workload, trace: Trace, memory: str, update: str, *, chunks: int, **numbers: int) -> BatchedPlan:
    """Return the plan: with `chunks` of each histogram, and `numbers` of `make_plan` and `BatchedPlan`."""
    # Copies leave local memory without their locks.
    copy = load.copy_bytes("native" if memory == "local" else update)
    most = None if load.memory_budget is None else load.memory_budget // copy
    return make_plan(
        BatchedPlan, load, trace, memory=memory, update=update, groups_per_histogram=chunks, most_tasks=most, **numbers
    )


def _chunks(load: Workload, trace: Trace, group: int, *, work_items: bool = False) -> tuple[int, int]:
    """Return the elements of one chunk, and K, the chunks of one histogram."""
    trace.step("B", group, "III-C", "work-group size")
    threads = int(trace.step("T", load.threads, "Fig. 2", "min(Thw, N)"))
    trace.step("N_out", load.histograms, "IV-C", "histograms")
    if work_items:
        chunks = trace.step("K", ceil(threads / load.histograms), "IV-C", "ceil(T / N_out): a work-item for each")
    else:
        chunks = ceil(ceil(threads / group) / load.histograms)
        trace.step("K", chunks, "IV-C", "ceil(ceil(T / B) / N_out)")
    return ceil(load.size / load.histograms / chunks), int(chunks)


def _teams(trace: Trace, group: int, elements: int, most: int) -> int:
    """Return P, a power of two: how many histograms of `elements` elements one work-group has."""
    wanted = ELEMENTS_PER_WORK_ITEM * group / max(1, elements)
    teams = 1
    # All teams of a work-group must have the same number of work-items.
    while 2 * teams <= min(most, group // LEAST_TEAM) and teams < wanted and group % (2 * teams) == 0:
        teams *= 2
    formula = "histograms in a work-group: the fewest that give a work-item 16 elements, in teams of 32"
    return int(trace.step("P", teams, "", formula))
