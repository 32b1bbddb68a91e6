"""Rows of `clhist bench --emulated`: what the plans of a call cost on a GPU, the one that the model chooses first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import clhist
from benchmarks.operators import OPERATORS, Benched
from clhist._core.model.problem import COUNTER_BITS, PASS_ORDERS
from emulated import alu, device
from emulated.counting import ELEMENTS, counted, whole_plan
from emulated.places import NotPreparedError
from emulated.targets import TARGETS, Target

__all__ = ["ELEMENTS", "TARGETS", "NotPreparedError", "cheaper", "present", "rows"]

_DESCRIBED = ("memory", "update", "copies", "passes", "pass_order", "counter_bits", "partitions", "strategy")
_WAYS: tuple[dict[str, Any], ...] = (
    {},
    *({"memory": "local", "copies": copies} for copies in (1, 4, 16)),
    *({"memory": "local", "pass_order": order, "counter_bits": 32} for order in PASS_ORDERS),
    *({"counter_bits": bits} for bits in reversed(COUNTER_BITS)),
    {"memory": "partitioned"},
    {"memory": "global"},
)
CLEARLY, NO_WORSE = 0.5, 1.1  # times the chosen plan's counts
_LEAST = 0.02  # conflicts of an element below which nobody looks
_WEIGHED = ("instructions", "global_lines", "local_cycles")


def present(name: str) -> Target:
    """Present a GPU to the process.

    Raises
    ------
    emulated.places.NotPreparedError
        If what that needs is not here; the message says how to get it.
    """
    device.present(name)
    return TARGETS[name]


def rows(
    target: Target, operations: Sequence[str], bins: Sequence[int], distributions: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Yield a row for each plan of each operator, number of bins and distribution ("uniform", "half" or "one")."""
    queue = clhist.default_queue()
    for name in operations:
        benched = OPERATORS[name]
        for num_bins in (256,) if benched.image else bins:
            plans = _plans(target, queue, benched, num_bins)
            for distribution in distributions:
                for k, plan in enumerate(plans):
                    yield {
                        "op": name,
                        "num_bins": num_bins,
                        "distribution": distribution,
                        "num_elements": ELEMENTS,
                        "plan": {key: getattr(plan, key, None) for key in _DESCRIBED},
                        "is_chosen": k == 0,
                        "counts": vars(counted(target, queue, benched, plan, num_bins, distribution)),
                    }
                alu.save()


def _plans(target: Target, queue: Any, benched: Benched, num_bins: int) -> list[clhist.Plan]:
    """Return the plans that could be taken, the model's first."""
    found: dict[tuple[Any, ...], clhist.Plan] = {}
    for way in _WAYS:
        try:
            plan = whole_plan(target, queue, benched, num_bins, **way)
        except (ValueError, MemoryError):  # impossible
            continue
        if plan.passes == 1 and "pass_order" in way:
            continue
        found.setdefault(tuple(getattr(plan, key, None) for key in _DESCRIBED), plan)
    return list(found.values())


def cheaper(found: Sequence[dict[str, Any]]) -> list[str]:
    """Return a line for each plan that is clearly cheaper than the one that is chosen.

    It has half the instructions or half the conflicts, and a tenth more at most of instructions, cache lines and cycles
    of local memory.
    """
    lines = []
    for row in found:
        problem = ("op", "num_bins", "distribution")
        chosen = next(r for r in found if r["is_chosen"] and all(r[key] == row[key] for key in problem))
        mine, theirs = row["counts"], chosen["counts"]
        if any(mine[what] > NO_WORSE * theirs[what] for what in _WEIGHED):
            continue
        if row["plan"]["counter_bits"] not in (
            None,
            32,
        ):  # cheap until one overflows: the model knows when that is near
            continue
        for what in ("instructions", "conflicts"):
            if theirs[what] > _LEAST and mine[what] <= CLEARLY * theirs[what]:
                where = ", ".join(f"{row[key]}" for key in problem)
                plan = ", ".join(f"{key} {value}" for key, value in row["plan"].items() if value is not None)
                lines.append(f"{where}: {mine[what]:.3f} {what} instead of {theirs[what]:.3f} by {plan}")
    return lines
