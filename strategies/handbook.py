"""The histograms of the CUDA Handbook: one a grid, one a block, and one of packed 8-bit counters a thread."""

from __future__ import annotations

from math import ceil

from clhist.strategies.problem import COUNTER_BYTES, Local, StrategyProblem, StrategyRecipe, one_launch

LAYOUTS = ("row", "column", "interleaved")
OVERFLOWS = ("check", "avoid", "merge")
WORK_GROUP_SIZE = 64
SHARED_WORK_GROUP_SIZE = 256
_STEP = 4  # elements that a work-item reads at once
# Steps before a counter of 8 bits can overflow.
_MOST_STEPS = 255 // _STEP


def shared(problem: StrategyProblem, per: str, *, work_group_size: int = SHARED_WORK_GROUP_SIZE) -> StrategyRecipe:
    """One histogram for the grid in global memory, or one for each block in local memory; four elements at once."""
    copy = (Local(problem.num_bins * COUNTER_BYTES),) if per == "block" else ()
    return one_launch(
        problem,
        "handbook_shared",
        *copy,
        work_group_size=work_group_size,
        work_groups=problem.limits.work_groups(work_group_size),
        per=per,
    )


def thread(
    problem: StrategyProblem, layout: str, overflow: str, *, work_group_size: int = WORK_GROUP_SIZE
) -> StrategyRecipe:
    """A histogram of 8-bit counters for each work-item, in local memory (Listings 5 to 8).

    Parameters
    ----------
    problem : Problem
        Any number of bins whose counters fit local memory; the Handbook has 256.
    layout : {"row", "column", "interleaved"}
        Figures 4 to 6.
    overflow : {"check", "avoid", "merge"}
        Look at each counter after its increment; launch so many work-groups that no work-item has more than 255
        elements; merge with the result every 252 elements.
    work_group_size : int
        At most 256, so that sums of 16 bits hold a row of counters.
    """
    if not 1 <= work_group_size <= 256:
        raise ValueError(f"work_group_size: expected 1 to 256, got {work_group_size}")
    groups = problem.limits.work_groups(work_group_size)
    if overflow == "avoid":
        groups = ceil(problem.size / (work_group_size * _STEP * _MOST_STEPS))
    counters = Local(ceil(problem.num_bins / 4) * 4 * work_group_size)
    return one_launch(
        problem,
        "handbook_thread",
        counters,
        work_group_size=work_group_size,
        work_groups=groups,
        layout=layout,
        overflow=overflow,
        group=work_group_size,
    )
