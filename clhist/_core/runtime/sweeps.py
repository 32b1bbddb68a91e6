"""Makes the `Sweep` of a plan: that of its strategy, with the fallback that it may need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from clhist._core.kernels.from_plan import Programs
from clhist._core.model.plan import Plan
from clhist._core.runtime.stages import Look, Sweep, sweep_code

if TYPE_CHECKING:
    from clhist._core.model.packed import PackedPlan


def _other_sweep(strategy: str) -> Callable[[Plan, Programs, tuple[str, ...]], Sweep] | None:
    """Return the constructor for a strategy of several kernels, imported when needed; None for all others."""
    if strategy == "sort":
        from clhist._core.runtime.sort import sorted_sweep

        return sorted_sweep
    if strategy == "partitioned":
        from clhist._core.runtime.partition import partitioned_sweep

        return partitioned_sweep
    if strategy == "rows":
        from clhist._core.runtime.rows import rows_sweep

        return rows_sweep
    return None


def sweep_of(plan: Plan, programs: Programs, options: tuple[str, ...]) -> Sweep:
    """Return the sweep of a plan, with the fallback that computes again if its flag is raised.

    Raises
    ------
    ValueError
        If the strategy does not take the batch.
    """
    # Narrow sums and rows: a fallback with a second stage of its own.
    if plan.again is not None and programs.behind is not None:
        first = sweep_of(replace(plan, again=None), replace(programs, behind=None), options)
        again = sweep_of(plan.again, programs.behind, options)
        look = None if programs.look is None else Look.of(programs.look, options)
        return replace(first, plan=plan, look=look, again=again)
    if make := _other_sweep(plan.strategy):
        return make(plan, programs, options)
    kernel = sweep_code(programs.sweep, options)
    if plan.behind is None or programs.behind is None:
        return Sweep(plan=plan, spec=programs.sweep, kernel=kernel)
    # Packed counters: the fallback shares their second stage.
    from clhist._core.runtime.packed import PackedSweep

    behind = sweep_of(plan.behind, programs.behind, options)
    return PackedSweep(plan=cast("PackedPlan", plan), spec=programs.sweep, kernel=kernel, robust=behind)
