"""The model exactly as SC'20 prints it: all copies that fit, where our own plans keep those that pay off."""

from __future__ import annotations

from dataclasses import replace

from clhist.hardware.profile import Profile
from clhist.planning.choose import plan_sweep
from clhist.planning.plan import Plan
from clhist.planning.problem import Choices
from clhist.planning.workload import Workload


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
        profile=replace(profile, kind="gpu", rates={}),  # the paper has no copies for each work-item of a CPU
        local_update=update,
        global_update=update,
        bin_bytes=(bin_bytes,),
        race_factor=race_factor,
        choices=Choices(memory=memory),
        memory_budget=memory_budget,
    )
    return plan_sweep(load)
