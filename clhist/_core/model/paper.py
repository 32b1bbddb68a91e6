"""The model exactly as SC'20 prints it: all copies that fit, where our own plans keep those that pay off."""

from __future__ import annotations

from dataclasses import replace

from clhist._core.devices.profile import Profile
from clhist._core.model.global_memory import global_copies
from clhist._core.model.local import local_copies
from clhist._core.model.plan import Plan, Trace, after
from clhist._core.model.problem import Choices
from clhist._core.model.updates import BY_NAME
from clhist._core.model.workload import Workload


def paper_plan(
    size: int,
    num_bins: int,
    profile: Profile,
    update: str,
    memory: str | None = None,
    *,
    bin_bytes: int = 4,
    race_factor: float = 1.0,
    memory_budget: int | None = None,
) -> Plan:
    """Return the paper's plan: M and S by equations 1 to 6 (Table I).

    Parameters
    ----------
    size, num_bins : int
        N and H.
    profile : Profile
        The device; measured rates are not used.
    update : {"native", "cas", "lock"}
        HDW, CAS or XCG.
    memory : {"local", "global"}, optional
        Where the copies are; by default as the switching point of section V-A says.
    bin_bytes : int
        Bytes of a bin without its lock.
    race_factor : float
        RF.
    memory_budget : int, optional
        Bytes that copies may take in global memory.
    """
    load = Workload(
        size=size,
        bins=(num_bins,),
        profile=replace(profile, kind="gpu"),  # the paper has no copies for each work-item of a CPU
        local_update=update,
        global_update=update,
        bin_bytes=(bin_bytes,),
        race_factor=race_factor,
        choices=Choices(memory=memory),
        memory_budget=memory_budget,
    )
    return plan_by_passes(load, update)


def plan_by_passes(load: Workload, update: str) -> Plan:
    """Return the plan by the switching point of section V-A: local memory, unless that takes too many passes."""
    if load.choices.memory == "global":
        return global_copies(load, update)
    local = local_copies(load, update)
    limit = BY_NAME[update].most_local_passes
    # Each pass reads the whole input again: beyond the limit, updates in global memory are faster.
    if load.choices.memory == "local" or local.passes <= limit:
        return local
    # The steps of the rejected local plan stay in the trace, since they explain the switch.
    tried = Trace()
    tried.extend(local.steps)
    tried.step("S_max", limit, "V-A", "3, 4, 6 passes in local memory for native, cas, lock")
    return after(tried.steps, global_copies(load, update))
