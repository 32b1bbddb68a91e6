"""Copies in the local memory of each work-group, in passes where not one fits (SC'20, equations 1 to 3)."""

from __future__ import annotations

from math import ceil, floor
from typing import Any, ClassVar

from clhist._core.model.feature import CyclicPasses, Feature
from clhist._core.model.passes import with_best_order
from clhist._core.model.plan import Plan, Trace, make_plan
from clhist._core.model.times import ONE_PASS
from clhist._core.model.workload import Workload


class LocalPlan(Plan):
    """Copies in local memory."""

    strategy: ClassVar[str] = "local"
    takes_fewer: ClassVar[bool] = True
    rate: ClassVar[str | None] = ONE_PASS
    kernels: ClassVar[int] = 2

    @property
    def choices(self) -> dict[str, Any]:
        return {**super().choices, **({"pass_order": self.pass_order} if self.passes > 1 else {})}

    def features(self, value: str | None) -> tuple[Feature, ...]:
        return (CyclicPasses(),) if self.cyclic_passes else ()


def local_copies(load: Workload, update: str) -> Plan:
    """Equations 1 to 3: as many copies as fit local memory; more passes where not even one fits."""
    bins, choices, trace = load.num_bins, load.choices, Trace()
    size, _ = load.element_bytes(update)
    memory = load.local_memory(update)
    group = int(trace.step("B", choices.work_group_size or load.profile.work_group_size, "III-C", "work-group size"))
    if update == "private" and choices.work_group_size is None:  # as many work-items as copies fit
        fitting = max(1, min(group, int(memory // (size * bins))))
        group = int(trace.step("B", fitting, "", "one copy for each work-item"))
    threads = int(trace.step("T", load.threads, "Fig. 2", "min(Thw, N)"))
    blocks = int(trace.step("blocks", ceil(threads / group), "(1)", "ceil(T / B)"))
    # Private copies: one for each work-item, so equations 1 and 2 do not apply.
    copies = group
    if update != "private":
        most = min(memory / size, ceil(load.size / blocks)) / bins
        most = trace.step("m'", most, "(1)", "min(L / elsize, ceil(N / blocks)) / H")
        copies = int(trace.step("M", max(1, min(floor(most), group)), "(2)", "max(1, min(floor(m'), B))"))
        if load.useful_copies is not None:
            # Other numbers of copies meet in the banks of local memory.
            # Note [Useful copies in local memory], docs/decisions/0007.
            useful = 2 ** (min(copies, load.useful_copies).bit_length() - 1)
            formula = f"a power of two, {load.useful_copies} being enough"
            copies = int(trace.step("M", useful, "", formula))
        if choices.copies is not None:
            copies = int(trace.step("M", min(choices.copies, group), "", "forced, at most B"))
    trace.step("C", ceil(group / copies), "(2)", "ceil(B / M)")
    # The passes decide how much local memory a work-group takes, hence how many are resident.
    passes = local_passes(load, trace, update, copies)
    resident = resident_groups(load, trace, blocks, copies * load.copy_bytes(update, passes))
    plan = make_plan(
        LocalPlan,
        load,
        trace,
        memory="local",
        update=update,
        copies=copies,
        passes=passes,
        group=group,
        # Each work-group stores its copy in global memory, without locks: the budget limits the groups.
        groups=load.affordable(resident, "native"),
        sharers=group,
    )
    return with_best_order(plan, load, resident)


def resident_groups(load: Workload, trace: Trace, blocks: int, used: int) -> int:
    """Return how many of `blocks` work-groups are launched, each with `used` bytes of local memory."""
    groups = load.resident(blocks, used)
    if groups < blocks:
        trace.step("groups", groups, "", "blocks / 2: one at a time has room in local memory")
    return groups


def needs_passes(load: Workload) -> bool:
    """Whether one copy of whole counters does not fit local memory."""
    return load.copy_bytes("native") > load.local_memory("native")


def local_passes(load: Workload, trace: Trace, update: str, copies: int) -> int:
    """Equation 3: as many passes as it takes for `copies` copies to fit local memory."""
    bins, choices, memory = load.num_bins, load.choices, load.local_memory(update)
    size, _ = load.element_bytes(update)
    length = int(trace.step("len", memory // (size * copies), "(3)", "floor(L / (elsize M))"))
    if length == 0:
        raise ValueError(
            f"copies: {copies} copies of one bin take {copies * size:g} bytes of local memory where "
            f"{load.profile.name} has {memory}"
        )
    # A pass has at least one bin of the largest histogram: further passes would be empty.
    passes = min(ceil(bins / length), max(load.bins))
    lost = load.alignment_bytes(update)
    if copies * load.copy_bytes(update, passes) + lost > memory:  # several histograms, each of which rounds up
        # Reserve a bin of each histogram for rounding up, and the alignment, and divide what is left.
        one = sum(load.bins_bytes(update))
        length = floor((memory - lost - copies * one) / (size * copies))
        passes = ceil(bins / length) if length > 0 else max(load.bins)
        # The reserve makes any plan fit but that of one bin of each histogram in a pass.
        if copies * load.copy_bytes(update, passes) + lost > memory:
            raise ValueError(
                f"copies: {copies} copies of one bin of each histogram take {copies * one + lost} bytes of local "
                f"memory where {load.profile.name} has {memory}"
            )
    trace.step("S", passes, "(3)", "ceil(H / len)")
    if choices.passes is not None:
        if min(choices.passes, bins) < passes:
            raise ValueError(
                f"passes: expected at least {passes}, since {copies} copies of {bins} bins take "
                f"{copies * load.copy_bytes(update)} bytes of local memory where {load.profile.name} has {memory}; "
                f"got {choices.passes}"
            )
        passes = int(trace.step("S", min(choices.passes, max(load.bins)), "", "forced, at most H"))
    trace.step("H_chk", ceil(bins / passes), "(3)", "ceil(H / S)")
    return passes
