"""The table of `clhist gromacs`: SC'20, Table III, measured here beside what the paper measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from clhist import device_profile
from clhist.cases.gromacs import PairList
from clhist.cases.gromacs_data import NonbondedInput, Reference, pair_forces
from clhist.cli.cases.options import digest, places_off, plan_values, timed_calls
from clhist.cli.tables import grid

Row = dict[str, Any]

FLAT, UNIFORM, SAMPLED, EXACT = "flat", "RF = 1", "with RF", "exact"
_FLAT_OPTIONS = {"memory": "global", "copies": 1, "passes": 1}
# Microseconds on an RTX 2080 Ti (SC'20, Table III and V-C); the time without the race factor is 1.6 x that with it.
PAPER = {
    ("native", FLAT): 333.0,
    ("native", SAMPLED): 362.0,
    ("cas", FLAT): 2432.0,
    ("cas", UNIFORM): 1.6 * 919,
    ("cas", SAMPLED): 919.0,
}
_SAME = ("update", "memory", "copies", "cooperation", "passes")  # what makes plans the same
PAPER_PAIRS = 1_380_160
# Rounding of float32: so many units in the last place of the sum of absolute contributions of a component. A pair's
# force is a high power of a distance and has lost dozens of units before it is added, wherever the particles are.
_UNITS = 256
# Relative to the same sum, for positions of a structure that were rounded to float32.
_POSITIONS_TOLERANCE = 1e-3
_CHECKED = 100  # particles whose exact forces are compared with exact sums
_EXPECTED_TOLERANCE = 1e-3  # relative to max(1, |f|), against another's float32 result


@dataclass(frozen=True)
class Version:
    """One way to compute the forces.

    Attributes
    ----------
    update : str
        "auto", or how a bin is updated: a scenario of the paper's.
    kind : str
        FLAT, the straightforward one: every pair updates one array in global memory. UNIFORM and SAMPLED: the model's
        plan, given a race factor of 1, or its true value. EXACT: the latter with exact sums.
    options : dict
        Of `PairList.forces`.
    """

    update: str
    kind: str
    options: dict[str, Any]


def versions(pairs: PairList, update: str, race_factor: float) -> list[Version]:
    """Return the versions for ``--update``; with "auto" the model's own choice and both scenarios of the paper.

    The last are the exact forces, where the device has the double precision that they need.
    """
    wanted = [Version("auto", SAMPLED, {"race_factor": race_factor})] if update == "auto" else []
    for scenario in ("native", "cas") if update == "auto" else (update,):
        options: dict[str, Any] = {"update": scenario}
        if scenario == "native":
            missing = missing_atomics(pairs)
            if "global" in missing and update == "auto":
                # Not even the flat version runs.
                continue
            # Without atomics in local memory the model must not choose it for this update.
            if "local" in missing and "global" not in missing:
                options["memory"] = "global"
        wanted += [
            Version(scenario, FLAT, options | _FLAT_OPTIONS),
            Version(scenario, UNIFORM, options | {"race_factor": 1.0}),
            Version(scenario, SAMPLED, options | {"race_factor": race_factor}),
        ]
    if pairs.queue.device.double_fp_config:
        wanted.append(Version("auto", EXACT, {"race_factor": race_factor, "reproducible": True}))
    return wanted


def missing_atomics(pairs: PairList) -> set[str]:
    """Return in which memories the device has no atomic addition of float32."""
    atomics = device_profile(pairs.queue.device).atomics
    return {memory for memory in ("local", "global") if ("add", "float32", memory) not in atomics}


def measure(
    pairs: PairList, version: Version, data: NonbondedInput, reference: Reference, unrounded: Reference | None = None
) -> tuple[Row, np.ndarray]:
    """Check and time one version; return its row and the forces. The references are those of `compare`."""
    options = version.options
    forces, bound = pairs.forces(**options).get().reshape(-1, 3), pairs.bind(**options)
    # The first call of a new queue also creates its resources.
    bound.timed()
    errors = compare(forces, data, reference, unrounded)
    if version.kind == EXACT:
        errors["exact sums"] = {"value": exact_error(forces, data), "tolerance": 0.5, "of": "a unit in the last place"}
    row = {
        "update": version.update,
        "version": version.kind,
        "plan": plan_values(bound.plan),
        "seconds": timed_calls(lambda: bound.timed()[0]),
        "errors": errors,
        "passed": all(error["value"] <= error["tolerance"] for error in errors.values()),
        "paper_seconds": None if (paper := PAPER.get((version.update, version.kind))) is None else paper * 1e-6,
    } | ({"digest": digest(forces)} if version.kind == EXACT else {})
    return row, forces


def exact_error(forces: np.ndarray, data: NonbondedInput) -> float:
    """Return how far the exact forces on some particles are from Python's exact sums, in units in the last place."""
    some = np.unique(np.linspace(0, data.num_particles - 1, _CHECKED).astype(np.int32))
    owner = data.iinr[data.owner]
    pairs = np.flatnonzero(np.isin(owner, some) | np.isin(data.jjnr, some))
    owner, other, terms = owner[pairs], data.jjnr[pairs], pair_forces(data, pairs)
    return max(
        places_off(forces[p, axis], (data.faction[p, axis], *terms[owner == p, axis], *-terms[other == p, axis]))
        for p in some
        for axis in range(3)
    )


def compare(
    forces: np.ndarray, data: NonbondedInput, reference: Reference, unrounded: Reference | None = None
) -> dict[str, dict[str, Any]]:
    """Return the errors of `forces` against each reference there is, with the tolerance that each has.

    `unrounded` is the reference for positions that were not rounded to float32. No tolerance depends on the data.
    """
    tolerance = _UNITS * float(np.finfo(np.float32).eps)
    references = {"float64 reference": (reference, tolerance)}
    if unrounded is not None:
        references["float64 positions"] = unrounded, _POSITIONS_TOLERANCE
    # The smallest normal number avoids a division by 0 for particles without contributions.
    errors: dict[str, dict[str, Any]] = {
        name: {
            "value": _largest((forces - reference.forces) / np.maximum(reference.magnitude, np.finfo(np.float32).tiny)),
            "tolerance": limit,
            "of": "the sum of absolute contributions",
        }
        for name, (reference, limit) in references.items()
    }
    if data.expected_faction is not None:
        expected = data.expected_faction.astype(np.float64)
        errors["expected_faction"] = {
            "value": _largest((forces - expected) / np.maximum(1, np.abs(expected))),
            "tolerance": _EXPECTED_TOLERANCE,
            "of": "max(1, |f|)",
        }
    return errors


def _largest(values: np.ndarray) -> float:
    """Return the largest absolute value; NaN counts as infinite."""
    return float(np.nan_to_num(np.abs(values), nan=np.inf, posinf=np.inf).max(initial=0))


def speedups(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """Return for each scenario how many times faster than the flat version, and than with RF = 1, the kernels are."""
    seconds = {(row["update"], row["version"]): row["seconds"]["kernels"] for row in rows}
    ratios: dict[str, dict[str, float]] = {}
    for update in dict.fromkeys(update for update, kind in seconds if kind == FLAT):
        flat, uniform, sampled = (seconds[update, kind] for kind in (FLAT, UNIFORM, SAMPLED))
        ratios[update] = {"over_flat": flat / sampled, "by_race_factor": uniform / sampled}
    return ratios


def text(rows: Sequence[Row]) -> str:
    """Return the table for people: kernels' and calls' milliseconds, and multiples of the flat version's speed."""
    flat = {row["update"]: row["seconds"]["kernels"] for row in rows if row["version"] == FLAT}
    lines = [("update", "version", "RF", "copies", "memory", "kernels", "call", "speed-up", "paper", "speed-up")]
    for row in rows:
        plan, seconds, paper = row["plan"], row["seconds"], row["paper_seconds"]
        base = flat.get(row["update"])
        paper_flat = PAPER.get((row["update"], FLAT), 0) * 1e-6
        lines.append(
            (
                row["update"] if row["update"] == plan["update"] else f"{row['update']} ({plan['update']})",
                row["version"],
                f"{plan['race_factor']:.3g}" if row["version"] != FLAT else "",
                f"{plan['copies']}",
                plan["memory"],
                f"{seconds['kernels'] * 1e3:.3f}",
                f"{seconds['call'] * 1e3:.3f}",
                f"{base / seconds['kernels']:.2f}" if base else "",
                f"{'~' * (row['version'] == UNIFORM)}{paper * 1e3:.3f}" if paper else "",
                f"{paper_flat / paper:.2f}" if paper else "",
            )
        )
    return grid(lines, left=(0, 1, 4), indent=2, keys=2)


def findings(rows: Sequence[Row], num_pairs: int) -> list[str]:
    """Return sentences: what was found here, beside what the paper found."""
    ratios = speedups(rows)
    lines = []
    if "native" in ratios:
        lines.append(f"native  {ratios['native']['over_flat']:.2f} x the flat version's speed; the paper 0.91 x")
    if "cas" in ratios:
        # The last two versions of a scenario differ in the race factor alone.
        plans = [[row["plan"][key] for key in _SAME] for row in rows if row["update"] == "cas"]
        same = " (which does not change the plan here)" if plans[-1] == plans[-2] else ""
        lines.append(
            f"cas     {ratios['cas']['over_flat']:.2f} x the flat version's speed, of which "
            f"{ratios['cas']['by_race_factor']:.2f} x by the race factor{same}; the paper 2.65 x and 1.6 x"
        )
    if lines and abs(num_pairs / PAPER_PAIRS - 1) > 0.1:
        lines.append(f"The paper measured {PAPER_PAIRS:,} pairs, these are {num_pairs:,}.")
    plain, last = next(row for row in rows if row["version"] == SAMPLED), rows[-1]
    if last["version"] == EXACT:
        times, digits = last["seconds"]["kernels"] / plain["seconds"]["kernels"], last["digest"]
        lines.append(
            f"exact   {times:.1f} x the time of plain sums, with the same bits on every device: SHA-256 {digits}"
        )
    return lines
