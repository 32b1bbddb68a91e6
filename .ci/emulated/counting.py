"""Counted costs of calls on a GPU: instructions, transactions, conflicts and repeated atomics for each element.

A plan is taken as the model chooses it for the whole GPU and 50 million elements, and executed on a slice of it: a few
compute units, with as many elements for each work-item as time allows. Two sizes are run, and what the larger one takes
more is divided by its further elements: starting, clearing and combining copies cancel.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl

import clhist
from benchmarks.operators import OPERATORS, Benched
from clhist._core.opencl.device import device_profile
from emulated.cases.case import bins_of
from emulated.launch import settings, totals
from emulated.places import HERE
from emulated.places import replace as written
from emulated.tables import COUNTED
from emulated.targets import Target

ELEMENTS = 50_000_000  # of the call whose plan is counted
UNITS = 4  # compute units of the slice
_STEPS = 6, 12  # elements of each work-item
TABLES = HERE / "instructions"
CHANGE = 0.10  # of the instructions of an element, which is noticed


@dataclass(frozen=True)
class Counts:
    """The costs of one element.

    Attributes
    ----------
    instructions : float
        Wave instructions: one for all lanes of a wave.
    global_lines : float
        Cache lines that instructions touched.
    local_cycles, conflicts : float
        Cycles of the 32 banks of local memory, and those of them that better addresses would save.
    atomics, repeated : float
        Atomic operations of lanes, and those on an address that another lane of the same instruction had.
    """

    instructions: float
    global_lines: float
    local_cycles: float
    conflicts: float
    atomics: float
    repeated: float


def whole_plan(target: Target, queue: cl.CommandQueue, benched: Benched, bins: int, **choices: Any) -> clhist.Plan:
    """Return the plan for the whole GPU; the device must claim all its compute units then.

    Raises
    ------
    ValueError, MemoryError
        If the choices are impossible.
    """
    kernel = _kernel(benched, queue, None)
    return kernel.plan(ELEMENTS, bins, queue=queue, **{"update": benched.update, **choices})


def counted(
    target: Target, queue: cl.CommandQueue, benched: Benched, plan: clhist.Plan, bins: int, distribution: str
) -> Counts:
    """Execute a plan on a slice of the GPU, check its results, and return what an element costs.

    Raises
    ------
    AssertionError
        If a result is not NumPy's.
    """
    whole = device_profile(queue.device)
    threads = max(plan.work_group_size, whole.hardware_threads * UNITS // target.compute_units)
    slice_ = replace(whole, hardware_threads=threads)
    kernel = _kernel(benched, queue, slice_)
    choices = {**plan.choices, "update": plan.update, "counter_bits": getattr(plan, "counter_bits", None)}
    if plan.passes > 1 and plan.strategy == "local":
        choices["pass_order"] = plan.pass_order
    found = []
    for each in _STEPS:
        n = each * threads
        rng = np.random.default_rng(n)
        keys = bins_of(distribution, rng, n, bins)
        weights = rng.integers(-99, 99, n).astype(np.float32)
        given = [keys.astype(np.uint8) if benched.image else keys, weights][: len(benched.arrays)]
        before = dict(totals)
        settings.counts = True
        settings.restart(1)
        try:
            result = kernel(*given, num_bins=bins, queue=queue, **{k: v for k, v in choices.items() if v is not None})
        finally:
            settings.counts = False
        _check(benched, result, keys, weights, bins)
        found.append((n, [totals[name] - before[name] for name in COUNTED]))
    (n1, one), (n2, two) = found
    return Counts(*((b - a) / (n2 - n1) for a, b in zip(one, two, strict=True)))


def _kernel(benched: Benched, queue: cl.CommandQueue, profile: clhist.Profile | None) -> clhist.HistogramKernel:
    return clhist.HistogramKernel(
        queue.context, benched.operator, arguments=benched.arguments, map=benched.map, profile=profile
    )


def _check(benched: Benched, result: np.ndarray, keys: np.ndarray, weights: np.ndarray, bins: int) -> None:
    """Compare with NumPy what adds or takes the largest; records are compared by the cases."""
    if benched.name in ("argmax", "lock"):
        return
    expected = np.full(bins, benched.operator.neutral, result.dtype)
    values = weights if benched.weighted else np.ones(keys.size, result.dtype)
    (np.maximum if benched.name == "maximum" else np.add).at(expected, keys, values.astype(result.dtype))
    np.testing.assert_array_equal(result, expected)


# Of the stored table: operator, bins, distribution, forced choices. Each stands for one of the main kernels.
MAIN: Mapping[str, tuple[str, int, str, dict[str, Any]]] = {
    "counts, 500 bins": ("count", 500, "uniform", {}),
    "counts, skewed": ("count", 500, "half", {}),
    "counts, 12281 bins": ("count", 12281, "uniform", {}),
    "counts, 16-bit, 24569 bins": ("count", 24569, "uniform", {"counter_bits": 16}),
    "counts, partitioned": ("count", 196607, "uniform", {"memory": "partitioned"}),
    "counts, global": ("count", 196607, "uniform", {"memory": "global"}),
    "pixels": ("count8", 256, "uniform", {}),
    "float32 sums, 500 bins": ("add", 500, "uniform", {}),
    "compare-exchange, 500 bins": ("sat", 500, "uniform", {"memory": "local"}),
    "argmax, 500 bins": ("argmax", 500, "uniform", {}),
    "locks, 500 bins": ("lock", 500, "uniform", {"memory": "local"}),
}


def compared(target: Target, queue: cl.CommandQueue, *, update: bool) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield each of the main kernels, and what compares its instructions with the stored ones, or stores them."""
    stored = stored_counts(target)
    for name in MAIN:

        def action(name: str = name) -> None:
            found = main_counts(target, queue, name)
            print(f"    {target.name} {name}: {line_of(found)}", flush=True)
            if update:
                store(target, name, found)
                return
            if name not in stored:
                raise AssertionError(f"{name} is not in {table_of(target)}; --part counts --update stores it")
            was, now = stored[name], found.instructions
            assert abs(now - was) <= CHANGE * was, (
                f"{now:.4f} wave instructions an element, stored are {was:.4f}: {now / was - 1:+.0%}. If that is "
                f"meant, python .ci/emulated {target.name} --part counts --update"
            )

        yield name, action


def main_counts(target: Target, queue: cl.CommandQueue, name: str) -> Counts:
    """Return what an element of one of the main kernels costs."""
    operation, bins, distribution, choices = MAIN[name]
    plan = whole_plan(target, queue, OPERATORS[operation], bins, **choices)
    return counted(target, queue, OPERATORS[operation], plan, bins, distribution)


def line_of(found: Counts) -> str:
    """Return all counts in a line."""
    return ", ".join(f"{name.replace('_', ' ')} {value:.3f}" for name, value in vars(found).items())


def table_of(target: Target) -> Path:
    """Return the file with the counts of a target."""
    return TABLES / f"{target.name}.toml"


def stored_counts(target: Target) -> dict[str, float]:
    """Return the wave instructions of an element that are stored, by the names of `MAIN`."""
    return tomllib.loads(table_of(target).read_text()) if table_of(target).exists() else {}


def store(target: Target, name: str, found: Counts) -> None:
    """Put the wave instructions of an element into the table, and leave out what is no longer counted."""
    table = stored_counts(target) | {name: round(found.instructions, 4)}
    lines = [
        "# Wave instructions of an element of the main kernels; one is of all lanes of a wave.",
        "# Written by `python .ci/emulated --part counts --update`, with Debian's clang 19.",
        *(f'"{key}" = {table[key]}' for key in MAIN if key in table),
    ]
    written(table_of(target), ("\n".join(lines) + "\n").encode())
