"""Pieces of the input: where the pairs of all elements do not fit, those of a part of them at a time may."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from clhist.hardware.profile import Profile
from clhist.operators.operator import Operator
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
    size, budget, kept = problem.size, problem.memory_budget, kept_bytes(histogram.operator, histogram.bins)
    pairs = size * (2 + (0 if histogram.value is not None else histogram.operator.dtype.itemsize))
    fits = size <= MOST_PARTITIONED_ELEMENTS and (budget is None or 4 * pairs <= budget)
    if fits or profile.kind == "cpu" or problem.choices.forced:
        return None
    (whole,) = plan_sweeps(problem, profile)
    if kept:
        problem = replace(problem, memory_budget=None if budget is None else budget - kept, one_launch=False)
    pieces = 2 if budget is None or kept < budget else MOST_PIECES + 1
    while pieces <= MOST_PIECES and not isinstance(whole, PartitionedPlan):
        step = ceil(size / pieces / _MULTIPLE) * _MULTIPLE
        try:
            (piece,) = plan_sweeps(replace(problem, size=step), profile)
        except MemoryError:  # no copy of all bins fits beside what is kept
            return None
        if isinstance(piece, PartitionedPlan):
            if whole.seconds is None or piece.seconds is None:
                return step  # by the rule that does without rates
            return step if pieces * piece.seconds < whole.seconds else None
        pieces *= 2
    return None


def kept_bytes(operator: Operator, bins: int) -> int:
    """Return the bytes of the accumulators that are kept from piece to piece; 0 where a result holds the same."""
    return 0 if operator.holds_values else bins * operator.accumulator.itemsize
