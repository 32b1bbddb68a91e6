"""Pieces of the input: where the pairs of all elements do not fit, those of a part of them at a time may."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, inf

from clhist._core.devices.profile import Profile
from clhist._core.model.partition import MOST_PARTITIONED_ELEMENTS, PartitionedPlan
from clhist._core.model.problem import Problem
from clhist._core.model.sweeps import plan_sweeps
from clhist.operators.operator import Operator

MOST_PIECES = 64  # times as many as are needed: more are not tried
_MULTIPLE = 2**10  # elements: pieces begin where loads are as wide as at the beginning


def elements_of_piece(problem: Problem, profile: Profile, least: int = 1) -> int | None:
    """Return how many elements at a time are computed where that is predicted to beat the plan of all at once.

    None where the pairs of all elements fit, as they mostly do, and on CPUs, of whose memory pairs are a small part.
    `least` is the number of pieces that the elements themselves need: more than one where not all fit.
    """
    operators, bins = zip(*((histogram.operator, histogram.bins) for histogram in problem.histograms), strict=True)
    budget, accumulator_bytes = problem.memory_budget, kept_bytes(operators, bins)
    # Accumulators that stay on the device from piece to piece take their part of the budget.
    in_pieces = problem
    if accumulator_bytes:
        in_pieces = replace(
            problem, memory_budget=None if budget is None else budget - accumulator_bytes, one_launch=False
        )
    whole = problem if least == 1 else _piece(in_pieces, least)
    best = None if least == 1 else whole.size
    pairs = _pairs_bytes(whole)
    fits = whole.size <= MOST_PARTITIONED_ELEMENTS and (budget is None or 4 * pairs <= budget)
    if fits or profile.kind == "cpu" or problem.choices.forced or not (budget is None or accumulator_bytes < budget):
        return best
    # Try ever smaller pieces: only those that let more results be partitioned can be faster.
    fewest, seconds = _planned(whole, profile)
    for pieces in (least * 2**k for k in range(1, MOST_PIECES.bit_length())):
        # All results are partitioned already: smaller pieces only add launches.
        if fewest == len(operators):
            break
        piece = _piece(in_pieces, pieces)
        partitioned, piece_seconds = _planned(piece, profile)
        if partitioned <= fewest:
            continue
        if seconds is None or piece_seconds is None:
            return piece.size  # by the rule that does without rates
        # Both predictions are of one piece: compare them for all elements.
        if pieces * piece_seconds < seconds * least:
            best, least, seconds = piece.size, pieces, piece_seconds
        fewest = partitioned
    return best


def kept_bytes(operators: Sequence[Operator], bins: Sequence[int]) -> int:
    """Return the bytes of the accumulators that are kept from piece to piece; 0 where results hold the same."""
    if all(operator.holds_values for operator in operators):
        return 0
    return sum(operator.accumulator.itemsize * count for operator, count in zip(operators, bins, strict=True))


def _piece(problem: Problem, pieces: int) -> Problem:
    return replace(problem, size=ceil(problem.size / pieces / _MULTIPLE) * _MULTIPLE)


def _pairs_bytes(problem: Problem) -> int:
    return problem.size * (2 + max(0 if h.value is not None else h.operator.dtype.itemsize for h in problem.histograms))


def _planned(problem: Problem, profile: Profile) -> tuple[int, float | None]:
    """Return how many results are partitioned, and the predicted seconds; -1 and infinity if one does not fit."""
    try:  # one by one: what a joint sweep takes is not predicted
        plans = [plan for k in range(len(problem.histograms)) for plan in plan_sweeps(problem, profile, [k])]
    except MemoryError:
        return -1, inf
    predicted = [plan.seconds for plan in plans if plan.seconds is not None]
    return sum(isinstance(plan, PartitionedPlan) for plan in plans), sum(predicted) if len(predicted) == len(
        plans
    ) else None
