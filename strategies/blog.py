"""The five kernels of the blog post "Histogram in CUDA": from global atomics to run lengths."""

from __future__ import annotations

from typing import Any

from clhist.strategies.problem import COUNTER_BYTES, Local, NotApplicable, StrategyProblem, StrategyRecipe, one_launch

WORK_GROUP_SIZE, WORK_GROUPS = 32, 2048  # BLOCKDIM and GRIDDIM
MOST_REGISTERS = 256  # bins; the post has 5, and warns of more than fit registers


def naive(
    problem: StrategyProblem, *, work_group_size: int = WORK_GROUP_SIZE, work_groups: int = WORK_GROUPS
) -> StrategyRecipe:
    """A section of neighbouring elements for each work-item; atomics on the result in global memory."""
    return one_launch(problem, "naive", work_group_size=work_group_size, work_groups=work_groups)


def interleaved(
    problem: StrategyProblem, *, work_group_size: int = WORK_GROUP_SIZE, work_groups: int = WORK_GROUPS
) -> StrategyRecipe:
    """Neighbouring work-items read neighbouring elements; atomics on the result in global memory."""
    return one_launch(problem, "interleaved", work_group_size=work_group_size, work_groups=work_groups)


def local(
    problem: StrategyProblem, *, work_group_size: int = WORK_GROUP_SIZE, work_groups: int = WORK_GROUPS
) -> StrategyRecipe:
    """A copy in local memory for each work-group, added to the result at the end."""
    return _with_copy(problem, "local", work_group_size, work_groups)


def registers(
    problem: StrategyProblem,
    *,
    work_group_size: int = WORK_GROUP_SIZE,
    work_groups: int = WORK_GROUPS,
    most_bins: int = MOST_REGISTERS,
) -> StrategyRecipe:
    """A copy in the registers of each work-item, added to one in local memory (set to zero, unlike the post's)."""
    if problem.num_bins > most_bins:
        raise NotApplicable(f"at most {most_bins} bins in registers")
    return _with_copy(problem, "registers", work_group_size, work_groups, num_bins=problem.num_bins)


def runs(
    problem: StrategyProblem, *, work_group_size: int = WORK_GROUP_SIZE, work_groups: int = WORK_GROUPS
) -> StrategyRecipe:
    """Equal bins that a work-item meets one after the other make one update of the copy in local memory."""
    return _with_copy(problem, "runs", work_group_size, work_groups)


def _with_copy(problem: StrategyProblem, template: str, group: int, groups: int, **constants: Any) -> StrategyRecipe:
    copy = Local(problem.num_bins * COUNTER_BYTES)
    return one_launch(problem, template, copy, work_group_size=group, work_groups=groups, **constants)
