"""SC'20 (Henriksen et al.): its updates in both memories with the paper's M and S, and sorting."""

from __future__ import annotations

from clhist._core.model.paper import paper_plan
from clhist.strategies.problem import COUNTER_BYTES, Chosen, NotApplicable, StrategyProblem

ATOMICS = {"hdw": "native", "cas": "cas", "xcg": "lock"}  # the paper's names, and ours


def copies(problem: StrategyProblem, atomic: str, memory: str | None) -> Chosen:
    """Copies and passes by equations 1 to 6; in the memory that V-A's switching point chooses if `memory` is None.

    Parameters
    ----------
    problem : Problem
        Any number of bins.
    atomic : {"hdw", "cas", "xcg"}
        A hardware atomic, a loop of compare and exchange, or a spinlock for each bin.
    memory : {"local", "global"} or None
        Where the copies are.
    """
    update = ATOMICS[atomic]
    try:
        plan = paper_plan(
            problem.size,
            problem.num_bins,
            problem.limits.profile,
            update,
            memory,
            bin_bytes=COUNTER_BYTES,
            race_factor=problem.race_factor,
            memory_budget=problem.limits.memory_budget,
        )
    except (ValueError, MemoryError) as error:
        raise NotApplicable(str(error)) from error
    return Chosen({"update": update, "memory": plan.memory, "copies": plan.copies, "passes": plan.passes})


def sort(problem: StrategyProblem) -> Chosen:
    """Pairs sorted by bin, then a segmented scan (Listing 4); also the thesis' sort-reduce composition."""
    return Chosen({"update": "sort"})
