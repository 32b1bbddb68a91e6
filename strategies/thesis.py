"""The MSc thesis on generalised reductions in Futhark: how many work-items cooperate on one subhistogram."""

from __future__ import annotations

from math import ceil

from clhist.strategies.problem import COUNTER_BYTES, Chosen, NotApplicable, StrategyProblem

ATOMICS = {"add": "native", "cas": "cas", "cas64": "cas", "xchg": "lock"}  # the thesis' names, and ours
# C, as in appendix A; the last is the heuristic of section 4.3.2.
LEVELS = ("1", "4", "16", "64", "256", "1024", "4096", "16384", "all", "H")
LOCAL_LEVELS = (*LEVELS[:6], *LEVELS[-2:])  # up to a work-group
_WORK_GROUP = 1024  # B, of copies in local memory


def cooperation(problem: StrategyProblem, memory: str, atomic: str, level: str) -> Chosen:
    """Copies that C work-items each share (sections 4.2 and 4.3).

    Parameters
    ----------
    problem : Problem
        Any number of bins in global memory.
    memory : {"global", "local"}
        Where the copies are; local ones are a work-group's.
    atomic : {"add", "cas", "cas64", "xchg"}
        The update: ``atomicAdd``, ``atomicCAS`` on 32 or 64 bits, or a lock by ``atomicExch``.
    level : str
        C, of `LEVELS`: a number of work-items, all of them, or the thesis' heuristic, as many as there are bins.
    """
    profile = problem.limits.profile
    if atomic == "cas64" and "int64_base_atomics" not in (profile.features or ()):
        raise NotApplicable("the device has no atomics on 64 bits")
    if memory == "local":
        work_items = min(_WORK_GROUP, profile.work_group_size)
    else:
        work_items = min(profile.hardware_threads, max(1, problem.size))
    together = {"all": work_items, "H": min(problem.num_bins, work_items)}.get(level) or int(level)
    if together > work_items:
        raise NotApplicable(f"C = {together}, but T = {work_items} work-items")
    copies = ceil(work_items / together)
    bin_bytes = (8 if atomic == "cas64" else COUNTER_BYTES) + (COUNTER_BYTES if atomic == "xchg" else 0)
    room = profile.local_memory if memory == "local" else problem.limits.memory_budget
    needed = copies * problem.num_bins * bin_bytes
    if needed > room:
        raise NotApplicable(f"{copies} copies take {needed / 1024:,.4g} KiB of {room / 1024:,.4g} in {memory} memory")
    choices = {"update": ATOMICS[atomic], "memory": memory, "copies": copies}
    return Chosen(choices, dtype="uint64" if atomic == "cas64" else "uint32")
