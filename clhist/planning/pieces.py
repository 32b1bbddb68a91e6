"""Pieces of the input: where the pairs of all elements do not fit, those of a part of them at a time may."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from clhist.hardware.profile import Profile
from clhist.planning.partition import MOST_PARTITIONED_ELEMENTS, PartitionedPlan
from clhist.planning.problem import Problem
from clhist.planning.sweeps import plan_sweeps

MOST_PIECES = 64
_MULTIPLE = 2**10  # elements: pieces begin where loads are as wide as at the beginning


def elements_of_piece(problem: Problem, profile: Profile) -> int | None:
    """Return how many elements at a time are partitioned where that is predicted to beat the plan of all at once.

    That is None where the pairs of all of them fit, as they mostly do, and on CPUs, of whose memory they are a small
    part.
    """
    (histogram,) = problem.histograms
    size, budget = problem.size, problem.memory_budget
    pairs = size * (2 + (0 if histogram.value is not None else histogram.operator.dtype.itemsize))
    fits = size <= MOST_PARTITIONED_ELEMENTS and (budget is None or 4 * pairs <= budget)
    if fits or profile.kind == "cpu" or problem.choices.forced:
        return None
    (whole,) = plan_sweeps(problem, profile)
    pieces = 2
    while pieces <= MOST_PIECES and not isinstance(whole, PartitionedPlan):
        step = ceil(size / pieces / _MULTIPLE) * _MULTIPLE
        (piece,) = plan_sweeps(replace(problem, size=step), profile)
        if isinstance(piece, PartitionedPlan):
            if whole.seconds is None or piece.seconds is None:
                return step  # by the rule that does without rates
            return step if pieces * piece.seconds < whole.seconds else None
        pieces *= 2
    return None
