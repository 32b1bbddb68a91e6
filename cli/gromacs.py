"""`clhist gromacs`: the loop inl1100 of 435.gromacs, checked against NumPy and timed."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import click
import numpy as np

from clhist.cases.gromacs import PairList
from clhist.cases.gromacs_data import NonbondedInput, load_nonbonded, reference_forces, water_box
from clhist.cli.main import profile_option

_RUNS = 15
# Rounding of float32: so many units in the last place of the sum of absolute contributions of a component. A pair's
# force is a high power of a small difference of coordinates and has lost dozens of units before it is added.
_UNITS = 256
_EXPECTED_TOLERANCE = 1e-3  # relative to max(1, |f|), against another's float32 result


@click.command()
@click.option(
    "--data",
    type=click.Path(dir_okay=False),
    help="A .npz file of jindex, iinr, jjnr, shift, types, ntype, "
    "facel, shiftvec, pos, faction, charge and nbfp. Without it: a box of water of the paper's size.",
)
@click.option(
    "--update",
    type=click.Choice(["auto", "native", "cas", "lock"]),
    default="auto",
    show_default=True,
    help="How a force is added. An AMD GPU under OpenCL has cas where NVIDIA has native.",
)
@click.option(
    "--race-factor",
    type=click.FloatRange(1),
    default=1.0,
    show_default=True,
    help="RF of the neighbours, for the model.",
)
@profile_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def gromacs(data: str | None, update: str, race_factor: float, as_json: bool) -> None:
    """Compute the forces of a pair list: SC'20's case study of a generalized histogram.

    The map (distance, Coulomb and Lennard-Jones force of a pair) runs inside the histogram: three components for each
    side of a pair, nothing else stored. The result is compared with NumPy in float64; exit status 1 if it is off.

    \b
    Example:
        clhist gromacs --update cas --race-factor 79
    """
    pair_list = load_nonbonded(data) if data else water_box()
    options: dict[str, Any] = {"race_factor": race_factor, "update": None if update == "auto" else update}
    device = PairList.upload(pair_list)
    forces = device.forces(**options).get().reshape(-1, 3)
    errors = compare(forces, pair_list)
    seconds = _median(lambda: device.forces(**options).queue.finish())
    stages = [device.timed(**options) for _ in range(_RUNS)]
    kernels = {stage: statistics.median(run[stage] for run in stages) for stage in stages[0]}
    plan = device.plan(**options)
    report = {
        "device": device.queue.device.name.strip(),
        "data": data or "box of SPC water",
        "num_particles": pair_list.num_particles,
        "num_pairs": pair_list.num_pairs,
        "num_bins": plan.num_bins,
        "plan": {key: value for key, value in asdict(plan).items() if key != "steps"},
        "seconds": {"call": seconds, "kernels": sum(kernels.values()), **kernels},
        "errors": errors,
        "passed": all(error["value"] <= error["tolerance"] for error in errors.values()),
    }
    click.echo(json.dumps(report, indent=1) if as_json else _text(report))
    if not report["passed"]:
        raise click.exceptions.Exit(1)


def compare(forces: np.ndarray, data: NonbondedInput) -> dict[str, dict[str, Any]]:
    """Return the errors of `forces` against each reference there is, with the tolerance that each has."""
    reference = reference_forces(data)
    eps = float(np.finfo(np.float32).eps)
    scale = np.maximum(reference.magnitude, np.finfo(np.float32).tiny)
    errors = {
        "float64 reference": {
            "value": _largest(np.abs(forces - reference.forces) / scale),
            "tolerance": _UNITS * eps,
            "of": "the sum of absolute contributions",
        }
    }
    if data.expected_faction is not None:
        expected = data.expected_faction.astype(np.float64)
        errors["expected_faction"] = {
            "value": _largest(np.abs(forces - expected) / np.maximum(1, np.abs(expected))),
            "tolerance": _EXPECTED_TOLERANCE,
            "of": "max(1, |f|)",
        }
    return errors


def _largest(errors: np.ndarray) -> float:
    """Return the largest error; NaN counts as infinite."""
    return float(np.nan_to_num(errors, nan=np.inf, posinf=np.inf).max(initial=0))


def _median(call: Callable[[], Any]) -> float:
    samples = []
    for _ in range(_RUNS):
        start = time.perf_counter()
        call()
        samples.append(time.perf_counter() - start)
    return statistics.median(samples)


def _text(report: dict[str, Any]) -> str:
    plan, seconds = report["plan"], report["seconds"]
    stages = ", ".join(
        f"{stage} {seconds[stage] * 1e3:.3f}" for stage in ("clear", "sweep", "combine") if stage in seconds
    )
    lines = [
        f"{report['data']}: {report['num_particles']:,} particles, {report['num_pairs']:,} pairs",
        f"on {report['device']}",
        f"plan    {plan['update']} updates in {plan['memory']} memory, {plan['num_bins']:,} bins, "
        f"copies M = {plan['copies']}, passes S = {plan['passes']}, race factor {plan['race_factor']:g}",
        f"times   {seconds['call'] * 1e3:.3f} ms a call; on the device {seconds['kernels'] * 1e3:.3f} ms ({stages})",
    ]
    for name, error in report["errors"].items():
        verdict = "ok" if error["value"] <= error["tolerance"] else "TOO LARGE"
        within = f"tolerance {error['tolerance']:.0e}"
        lines.append(f"error   {error['value']:.2e} of {error['of']}, against {name} ({within}): {verdict}")
    return "\n".join(lines)
