"""Batches (SC'20, section IV-C): K work-groups for each of N_out histograms, or several histograms in a work-group."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, floor

from clhist.planning.equations import MAX_LOCAL_PASSES, PRIVATE_ELEMENTS_PER_BIN, global_copies, local_passes
from clhist.planning.plan import GLOBAL_WORK_GROUP, Draft, Forced, Plan

# The least work-items that share a batched histogram, and the elements that a work-item of a GPU should have at least
# before several histograms share a work-group: a team of a warp does not wait for others, and clears and flushes less.
LEAST_TEAM = 32
ELEMENTS_PER_WORK_ITEM = 16
# On an H200 a million histograms of 50 elements take 302 us flat and 1081 in teams; of 500 elements 276 and 237.
FEWEST_ELEMENTS = 128


def batched(draft: Draft, local_update: str, global_update: str) -> Plan:
    """Section IV-C: K work-groups for each histogram; where they are many and small, several in one work-group."""
    forced = draft.forced
    if forced.memory != "local" and (
        forced.update == "private" or (forced.update is None and forced.copies is None and draft.profile.kind == "cpu")
    ):
        return _batched_private(draft)
    each = draft.num_elements // (draft.num_histograms or 1)
    if draft.even and forced == Forced() and each < FEWEST_ELEMENTS:
        draft.step("n", each, "IV-C", f"elements of a histogram: fewer than {FEWEST_ELEMENTS} do not keep a team busy")
        return _flat(draft, global_update)
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
    update = forced.update or global_update
    return _flat(draft, update) if draft.even else _batched_global(draft, update)


def _flat(draft: Draft, update: str) -> Plan:
    """One histogram of N_out H bins: neighbouring work-items are at the same few histograms, whose bins are cached."""
    histograms = draft.num_histograms or 1
    draft.step("N_out", histograms, "IV-C", "histograms, as one of N_out H bins")
    whole = replace(draft, bins=tuple(histograms * bins for bins in draft.bins), num_histograms=None)
    return replace(global_copies(whole, update), flat=histograms)


def _batched_local(draft: Draft, update: str) -> Plan:
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
    passes = local_passes(draft, update, copies * teams)
    affordable = draft.affordable(chunks, "native")
    groups = ceil((draft.num_histograms or 1) * affordable / teams)
    return draft.finish(
        "local", update, copies, passes, group, groups, team, groups_per_histogram=affordable, teams=teams
    )


def _batched_global(draft: Draft, update: str) -> Plan:
    histograms = draft.num_histograms or 1
    group, each, chunks = _chunks(
        draft, draft.forced.work_group_size or min(GLOBAL_WORK_GROUP, draft.profile.work_group_size)
    )
    teams = _teams(draft, group, each, histograms) if chunks == 1 else 1
    # As if each were alone, with the share of the work-items that it gets; in one pass, since few are open at a time.
    threads = chunks * (group // teams)
    one = replace(draft.profile, hardware_threads=threads)
    alone = Draft(
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
    found = global_copies(alone, update)
    copies = draft.affordable(min(found.copies, threads), update)
    groups = ceil(histograms * chunks / teams)
    plan = draft.finish(
        "global", update, copies, found.passes, group, groups, threads, groups_per_histogram=chunks, teams=teams
    )
    if plan.update != "private":
        return plan
    draft.steps.clear()
    return _batched_private(draft)  # where each work-item has not only a copy of its own, but also a chunk


def _batched_private(draft: Draft) -> Plan:
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


def _chunks(draft: Draft, group: int, *, work_items: bool = False) -> tuple[int, int, int]:
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


def _teams(draft: Draft, group: int, each: int, most: int) -> int:
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
