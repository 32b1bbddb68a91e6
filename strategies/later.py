"""Strategies published after the papers.

Their public sources are CUB's agent, RAFT's counters of few bits and hash table, and updates by whole warps.
"""

from __future__ import annotations

from math import ceil

from clhist.strategies.problem import COUNTER_BYTES, Local, NotApplicable, StrategyProblem, StrategyRecipe, one_launch

BITS = (16, 8, 4, 2, 1)
CUB_GROUP, CUB_PIXELS = 384, 16
RAFT_GROUP = 256
RAFT_PROBES = 10
# Bytes of local memory: 48 KiB on NVIDIA, less what arguments take after rounding.
_HASH_MEMORY = 47 * 1024


def cub(
    problem: StrategyProblem, *, work_group_size: int = CUB_GROUP, pixels: int = CUB_PIXELS, copies: int = 1
) -> StrategyRecipe:
    """Tiles of `pixels` neighbouring elements for each work-item, whose runs update a copy of the work-group.

    Parameters
    ----------
    problem : Problem
        As many bins as `copies` copies fit local memory.
    work_group_size, pixels : int
        CUB's policy for one channel.
    copies : int
        Copies of a work-group.
    """
    group = min(work_group_size, problem.limits.max_work_group_size)
    cells = Local(copies * (problem.num_bins + 1) * COUNTER_BYTES)
    groups = problem.limits.work_groups(group)
    return one_launch(problem, "tiles", cells, work_group_size=group, work_groups=groups, pixels=pixels, copies=copies)


def raft_bits(problem: StrategyProblem, bits: int, *, work_group_size: int = RAFT_GROUP) -> StrategyRecipe:
    """A copy for each work-group with counters of few bits; one that overflows updates the result."""
    group = min(work_group_size, problem.limits.max_work_group_size)
    cells = Local(ceil(problem.num_bins / (32 // bits)) * COUNTER_BYTES)
    groups = problem.limits.work_groups(group)
    return one_launch(problem, "bits", cells, work_group_size=group, work_groups=groups, bits=bits)


def raft_hash(
    problem: StrategyProblem, *, work_group_size: int = RAFT_GROUP, probes: int = RAFT_PROBES
) -> StrategyRecipe:
    """A hash table of bins in the local memory of each work-group, written to the result when a bin finds no place."""
    group = min(work_group_size, problem.limits.max_work_group_size)
    room = min(_HASH_MEMORY, problem.limits.local_memory - 1024) - COUNTER_BYTES
    places = _prime(room // (2 * COUNTER_BYTES))
    table = Local(places * COUNTER_BYTES)
    groups = problem.limits.work_groups(group)
    return one_launch(
        problem, "hash", table, table, Local(COUNTER_BYTES),
        work_group_size=group, work_groups=groups, places=places, probes=probes,
    )  # fmt: skip


def aggregated(problem: StrategyProblem, per: str, *, work_group_size: int = RAFT_GROUP) -> StrategyRecipe:
    """Work-items of a sub-group with the same bin update it once; the histogram is the grid's or a block's."""
    if not problem.limits.sub_groups:
        raise NotApplicable("the device has no sub-groups")
    group = min(work_group_size, problem.limits.max_work_group_size)
    copy = (Local(problem.num_bins * COUNTER_BYTES),) if per == "block" else ()
    core = problem.limits.sub_groups == "core"
    return one_launch(
        problem,
        "aggregated",
        *copy,
        work_group_size=group,
        work_groups=problem.limits.work_groups(group),
        options=("-cl-std=CL3.0",) if core else ("-cl-std=CL2.0",),
        per=per,
        pragma=not core,
    )


def _prime(most: int) -> int:
    """Return the largest prime up to `most`, or 1."""
    for number in range(most, 1, -1):
        if all(number % divisor for divisor in range(2, int(number**0.5) + 1)):
            return number
    return 1
