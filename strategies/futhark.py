"""Futhark as its compiler plans `reduce_by_index` today, which is not quite as SC'20 prints it."""

from __future__ import annotations

from math import ceil

from clhist.strategies.problem import COUNTER_BYTES, Chosen, NotApplicable, StrategyProblem

UPDATES = {"hdw": "native", "cas": "cas", "xcg": "lock"}  # its AtomicPrim, AtomicCAS and AtomicLocking
MOST_PASSES = {"hdw": 3, "cas": 4, "xcg": 6}  # in local memory, from where on it takes global memory
_LINE = 64  # bytes of a cache line, as it assumes of every device
_LEAST_WORK = 2  # elements of a work-item for each of its bins


def segmented_histogram(problem: StrategyProblem, atomic: str) -> Chosen:
    """Copies and passes as Futhark's code generator computes them: in local memory in few passes, or in global memory.

    Unlike the paper's model it never keeps more than one copy in global memory for a hardware atomic, knows lines
    of 64 bytes only, and decides for local memory by the number of passes.

    Parameters
    ----------
    problem : Problem
        Any number of bins.
    atomic : {"hdw", "cas", "xcg"}
        A hardware atomic, a loop of compare and exchange, or a spinlock.
    """
    return _in_local_memory(problem, atomic) or _in_global_memory(problem, atomic)


def _in_local_memory(problem: StrategyProblem, atomic: str) -> Chosen | None:
    size, bins, profile = problem.size, problem.num_bins, problem.limits.profile
    room, group = profile.local_memory, profile.work_group_size
    cell = COUNTER_BYTES * (2 if atomic == "xcg" else 1)
    work_groups = ceil(profile.hardware_threads / group)
    fitting = min(room // cell, ceil(size / work_groups)) // bins
    copies = min(max(1, min(fitting, group)), size // (_LEAST_WORK * work_groups * bins))
    passes = ceil((bins * cell * copies + 1) / room)
    if size < bins or copies == 0 or passes > MOST_PASSES[atomic]:
        return None
    # As many passes as equation 3 gives, which leaves room for what our kernels keep besides.
    return Chosen({"update": UPDATES[atomic], "memory": "local", "copies": copies})


def _in_global_memory(problem: StrategyProblem, atomic: str) -> Chosen:
    size, bins, profile = problem.size, problem.num_bins, problem.limits.profile
    threads = profile.hardware_threads
    least_copies = max(1, int(threads / min(threads, bins / 2)))
    race = max(1.0, 0.75 * problem.race_factor / (_LINE / COUNTER_BYTES))
    cached = 0.4 * profile.l2_cache * race
    passes = 1 if size < bins else ceil(least_copies * bins * COUNTER_BYTES / int(cached))
    copies = 1
    if atomic != "hdw":
        cell = COUNTER_BYTES * (2 if atomic == "xcg" else 1)
        elements = min(cached / cell, max(1, size)) / threads  # of a work-item, whose updates stay in the cache
        together = min(threads, ceil(bins / passes) / elements)
        copies = max(least_copies, int(threads / together))
    needed = copies * bins * COUNTER_BYTES
    if needed > problem.limits.memory_budget:
        raise NotApplicable(f"{copies} copies take {needed / 2**20:,.4g} MiB of global memory")
    return Chosen({"update": UPDATES[atomic], "memory": "global", "copies": copies, "passes": passes})
