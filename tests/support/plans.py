"""Plans of plain numbers, without operators: what the model's own tests ask for."""

from __future__ import annotations

from typing import Any

from clhist._core.devices.profile import Profile
from clhist._core.model.choose import plan_sweep
from clhist._core.model.plan import Plan
from clhist._core.model.problem import FREE, Choices
from clhist._core.model.workload import Workload


def plan(
    num_elements: int, num_bins: int | tuple[int, ...], profile: Profile, *, choices: Choices = FREE, **more: Any
) -> Plan:
    """Return the plan of one sweep; numbers of one histogram may be given as they are rather than in a tuple."""
    for name in ("bin_bytes", "locked"):
        if name in more and not isinstance(more[name], tuple):
            more[name] = (more[name],)
    bins = num_bins if isinstance(num_bins, tuple) else (num_bins,)
    return plan_sweep(Workload(size=num_elements, bins=bins, profile=profile, choices=choices, **more))
