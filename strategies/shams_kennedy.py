"""The two methods of Shams & Kennedy 2007, for devices without atomics."""

from __future__ import annotations

from math import ceil

from clhist.strategies.problem import (
    COUNTER_BYTES,
    Local,
    NotApplicable,
    StrategyLaunch,
    StrategyProblem,
    StrategyRecipe,
)

WARP = 32
LEAST_WARPS, MOST_WARPS = 3, 16  # equation 1; a block of the 8800 GTX has up to 512 threads
_FLAGS = 2 * COUNTER_BYTES
_SUM_GROUP = 64
_BITS = (32, 16, 8, 4, 2, 1)


def tagged(problem: StrategyProblem, *, warp: int = WARP, most_warps: int = MOST_WARPS) -> StrategyRecipe:
    """Method 1: updates by tags of work-item numbers in local memory, in passes over ranges of bins.

    Parameters
    ----------
    problem : Problem
        Any number of bins.
    warp : int
        Work-items that share a copy; a power of two. The authors' is the hardware's; here barriers keep them together.
    most_warps : int
        Copies of a work-group; as many as fit local memory, from 3 on (equation 1).
    """
    if warp not in (2**k for k in range(9)):
        raise ValueError(f"warp: expected a power of two up to 256, got {warp}")
    limits, bins = problem.limits, problem.num_bins
    most = min(most_warps, limits.max_work_group_size // warp)
    least = min(LEAST_WARPS, most)
    if most < 1:
        raise NotApplicable(f"warps of {warp}; the device has work-groups of {limits.max_work_group_size}")
    room = (limits.local_memory - _FLAGS) // COUNTER_BYTES
    if room < least:
        raise NotApplicable("no local memory for one bin")
    warps = max(least, min(most, room // bins))
    passes = ceil(bins / (room // warps))
    pass_bins = ceil(bins / passes)
    shift = 32 - (warp.bit_length() - 1)
    group = warp * warps
    groups = min(limits.work_groups(group), max(1, ceil(problem.size / group)))
    groups = max(1, min(groups, limits.memory_budget // (COUNTER_BYTES * bins)))
    if ceil(problem.size / (groups * group)) * warp >= 2 ** min(shift, 31):
        raise NotApplicable(f"counters of {shift} bits; a warp has more elements")
    local = Local(warps * pass_bins * COUNTER_BYTES), Local(_FLAGS)
    launches = []
    for first in range(0, bins, pass_bins):
        arguments = ("x", problem.size, bins, first, min(pass_bins, bins - first), "copies", *local)
        launches.append(StrategyLaunch("clhist_strategy", groups, group, arguments))
    launches.append(_sum(problem, groups, bin_stride=1, copy_stride=bins))
    return StrategyRecipe(
        "tagged",
        {"warp": warp, "warps": warps, "tag_shift": min(shift, 31)},
        tuple(launches),
        {"copies": groups * bins * COUNTER_BYTES},
        cleared=(),
    )


def collision_free(problem: StrategyProblem, *, work_group_size: int | None = None) -> StrategyRecipe:
    """Method 2: a copy in global memory for each work-item, behind counters of few bits in local memory (equation 2).

    Parameters
    ----------
    problem : Problem
        As many bins as one work-group's copies fit global memory.
    work_group_size : int, optional
        N_b. The authors tuned it without saying how; by default the largest of 128, 64 and 32 that leaves two bits.
    """
    limits, bins = problem.limits, problem.num_bins
    sizes = [work_group_size] if work_group_size else [128, 64, 32]
    sizes = [size for size in sizes if size <= limits.max_work_group_size] or [limits.max_work_group_size]
    group = next((size for size in sizes if _bits(problem, size) >= 2), sizes[-1])
    bits = _bits(problem, group)
    copy = bins * COUNTER_BYTES
    groups = min(limits.work_groups(group), max(1, ceil(problem.size / group)), limits.memory_budget // (copy * group))
    if groups < 1:
        raise NotApplicable(f"{group} copies take {copy * group / 2**20:,.4g} MiB of global memory")
    packed = (Local(ceil(bins / (32 // bits)) * group * COUNTER_BYTES),) if bits else ()
    items = groups * group
    launches = (
        StrategyLaunch("clhist_strategy", groups, group, ("x", problem.size, bins, "copies", *packed)),
        _sum(problem, items, bin_stride=items, copy_stride=1),
    )
    return StrategyRecipe("collision_free", {"bits": bits}, launches, {"copies": items * copy}, cleared=("copies",))


def _bits(problem: StrategyProblem, group: int) -> int:
    """Return equation 2's bits of a counter, rounded down to a power of two; 0 if not one bit fits."""
    room = problem.limits.local_memory // COUNTER_BYTES
    return next((bits for bits in _BITS if ceil(problem.num_bins / (32 // bits)) * group <= room), 0)


def _sum(problem: StrategyProblem, copies: int, *, bin_stride: int, copy_stride: int) -> StrategyLaunch:
    arguments = ("copies", copies, bin_stride, copy_stride, problem.num_bins, "histogram")
    group = min(_SUM_GROUP, problem.limits.max_work_group_size)
    return StrategyLaunch("clhist_sum", ceil(problem.num_bins / group), group, arguments)
