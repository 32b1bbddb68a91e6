"""Equations 1 to 6 of SC'20, section III: copies and passes in each memory; and a copy for each work-item."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, floor

from clhist.planning.plan import GLOBAL_WORK_GROUP, Draft, Forced, Plan

# The paper's constants (section III-D).
K_RF = 0.75
F_L2 = 0.4
K_CT_MIN = 2
COOPERATION_FACTOR = {"native": 2, "cas": 1, "lock": 1}  # u
MAX_LOCAL_PASSES = {"native": 3, "cas": 4, "lock": 6}  # section V-A, the switching point between the two memories

MOST_PACKED_RACE_FACTOR = 256

# On a CPU an update of a shared copy costs four to forty of a private one (PoCL and Intel's runtime, see
# docs/performance.md), so a work-item keeps its copy as long as initialising and combining it is not more work than its
# elements are.
PRIVATE_ELEMENTS_PER_BIN = 0.25


def local_copies(draft: Draft, update: str) -> Plan:
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
        if draft.enough_copies is not None:
            useful = 2 ** (min(copies, draft.enough_copies).bit_length() - 1)
            formula = f"a power of two, {draft.enough_copies} being enough"
            copies = int(draft.step("M", useful, "", formula))
        if forced.copies is not None:
            copies = int(draft.step("M", min(forced.copies, group), "", "forced, at most B"))
    draft.step("C", ceil(group / copies), "(2)", "ceil(B / M)")
    passes = local_passes(draft, update, copies)
    groups = draft.affordable(_resident(draft, blocks, copies * draft.copy_bytes(update, passes)), "native")
    return draft.finish("local", update, copies, passes, group, groups, group)


def _resident(draft: Draft, blocks: int, used: int) -> int:
    groups = draft.resident(blocks, used)
    if groups < blocks:
        draft.step("groups", groups, "", "blocks / 2: one at a time has room in local memory")
    return groups


def needs_passes(draft: Draft) -> bool:
    """Whether one copy of whole counters does not fit local memory."""
    return draft.copy_bytes("native") > draft.local_memory("native")


def can_pack(draft: Draft, update: str) -> bool:
    """Whether counters of 16 bits, two to a word, are possible and fit local memory in one pass."""
    free = draft.forced.memory in (None, "local") and replace(draft.forced, update=None, memory=None) == Forced()
    plain = free and len(draft.bins) == 1 and draft.profile.kind != "cpu"
    fits = 2 * draft.num_bins <= draft.local_memory("native") - 4
    # Each of these atomics gives back what it found, and waits for those before it: three times as long in one bin.
    return draft.counts and update == "native" and plain and fits and draft.race_factor <= MOST_PACKED_RACE_FACTOR


def packed_counters(draft: Draft) -> Plan:
    """One copy of 16-bit counters in each work-group; what they have no room for is counted in global memory."""
    draft.step("bytes", 2 * draft.num_bins, "", "of 16-bit counters, two to a word, fit local memory")
    group = int(draft.step("B", draft.profile.work_group_size, "III-C", "work-group size"))
    blocks = _resident(draft, ceil(draft.work_items() / group), 2 * draft.num_bins)
    groups = max(1, draft.affordable(blocks + 1, "native") - 1)
    return replace(draft.finish("local", "native", 1, 1, group, groups, group), packed=True)


def local_passes(draft: Draft, update: str, copies: int) -> int:
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


def global_copies(draft: Draft, update: str) -> Plan:
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


def private_copies(draft: Draft) -> Plan:
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
