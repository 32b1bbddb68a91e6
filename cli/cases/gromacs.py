"""`clhist gromacs`: the loop inl1100 of 435.gromacs, checked against NumPy and timed beside the paper's table."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import numpy as np

from clhist.cases.gromacs import PairList
from clhist.cases.gromacs_data import NonbondedInput, Reference
from clhist.cli.cases import gromacs_plot, gromacs_table
from clhist.cli.cases.gromacs_input import CUTOFF, QUICK_MOLECULES, GromacsSource
from clhist.cli.cases.options import DATA, messages, output_option, plan_text, plot_option, times_text
from clhist.cli.console import Console, InputError, shared_options
from clhist.cli.tables import folded

_UNITS = {"length": "nm", "charge": "e", "energy": "kJ/mol", "force": "kJ/(mol nm)", "time": "s"}


class _RaceFactor(click.ParamType):
    """A number from 1 on, or "sample"."""

    name = "RF"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if value == "sample" else click.FloatRange(1).convert(value, param, ctx)


@click.command()
@click.option(
    "--data",
    type=DATA,
    help="Pair list: an .npz file of jindex, iinr, jjnr, shift, types, ntype, facel, shiftvec, pos, faction, charge "
    "and nbfp.  [default: a generated box of water of the paper's size]",
)
@click.option(
    "--structure",
    type=DATA,
    help="A .gro file, whose pairs are found on the device. Knows water (SOL, HOH) and ions (NA, CL, K, MG, CA, ZN).",
)
@click.option("--cutoff", type=float, help=f"Cut-off distance for --structure, in nm.  [default: {CUTOFF}]")
@click.option(
    "--types",
    type=DATA,
    help="More atom types for --structure: lines of residue, atom, charge (e), c6 (kJ nm^6/mol), c12 (kJ nm^12/mol).",
)
@click.option(
    "--scale", type=click.IntRange(1, 1000), default=1, show_default=True, help="Multiple of the paper's box of water."
)
@click.option("--quick", is_flag=True, help=f"Use a box of {QUICK_MOLECULES} molecules.")
@click.option(
    "--update",
    type=click.Choice(["auto", "native", "cas", "lock"]),
    default="auto",
    show_default=True,
    help="How forces are added. auto measures the model's choice and both scenarios of the paper.",
)
@click.option(
    "--race-factor",
    type=_RaceFactor(),
    default="sample",
    show_default=True,
    help="Race factor for the model; sample measures it on the device.",
)
@plot_option("the distributions of forces and of updates per particle")
@output_option("the pair list and the forces, or the structure", ".gro")
@shared_options()
def gromacs(console: Console, update: str, race_factor: float | str, plot: Path | None, **source: Any) -> None:
    """Compute the nonbonded forces of a pair list, a case study of SC'20.

    The map (distance, Coulomb and Lennard-Jones force of a pair) runs inside the histogram; it adds three components to
    each particle of a pair, and nothing else is stored. The table compares the paper's scenarios: hardware atomics
    (native) and compare-exchange (cas); a flat version, where every pair updates one array in global memory; the
    model's plan for uniform data (RF = 1); its plan for the race factor of this data; and exact sums (exact), the same
    bits on every device. Every result is checked against NumPy in float64, exact ones also against Python's exact
    sums. Units: nm, e, kJ/mol; forces in kJ/(mol nm).

    \b
    Example: the paper's case with ten times as many particles, and the forces of a structure
        clhist gromacs --scale 10
        clhist gromacs --structure water.gro --cutoff 0.9 --output forces.npz --plot forces.png
    """
    data_source = GromacsSource(**source)
    begin = time.perf_counter()
    console.stage(f"reading {data_source.data}" if data_source.data else "finding the pairs")
    with messages():
        pair_list, structure = data_source.read()
        built = time.perf_counter() - begin
        console.stage("reference forces by NumPy")
        if not pair_list.num_pairs:
            raise InputError(f"{data_source.name}: {data_source.why_no_pairs(structure)}")
        references = data_source.references(pair_list, structure)
    console.stage("race factor")
    device = PairList.upload(pair_list)
    if race_factor == "sample":
        # Build the kernels first: the time of sampling is without it.
        device.race_factor()
    sampled = device.race_factor() if race_factor == "sample" else None
    chosen = float(race_factor if sampled is None else sampled)
    rows, forces = _measured(console, device, pair_list, references, gromacs_table.versions(device, update, chosen))
    # The plan and times of the requested update are at the top level of the JSON.
    headline = next(row for row in rows if row["update"] == update and row["version"] == gromacs_table.SAMPLED)
    values = {
        "device": device.queue.device.name.strip(),
        "data": data_source.name,
        "units": _UNITS,
        "num_particles": pair_list.num_particles,
        "num_pairs": pair_list.num_pairs,
        "num_bins": headline["plan"]["num_bins"],
        "input_seconds": built,
        "race_factor": {"value": chosen} if sampled is None else asdict(sampled),
        "plan": headline["plan"],
        "seconds": headline["seconds"],
        "errors": headline["errors"],
        "passed": all(row["passed"] for row in rows),
        "native_missing_in": sorted(gromacs_table.missing_atomics(device)),
        "table": rows,
        "speedups": gromacs_table.speedups(rows),
    }
    data_source.write(pair_list, structure, forces)
    if plot:
        title = f"{data_source.name}: {pair_list.num_particles:,} particles, {pair_list.num_pairs:,} pairs"
        gromacs_plot.draw(plot, forces, device.partners().get(), title)
    console.report(values, _text(values, update))


def _measured(
    console: Console,
    device: PairList,
    data: NonbondedInput,
    references: tuple[Reference, ...],
    versions: list[gromacs_table.Version],
) -> tuple[list[gromacs_table.Row], np.ndarray]:
    """Return a row for each version, and the forces by the first."""
    rows, all_forces = [], []
    with console.progress("versions", len(versions)) as bar:
        for version in versions:
            row, forces = gromacs_table.measure(device, version, data, *references)
            rows.append(row)
            all_forces.append(forces)
            bar.update(1, f"{version.update}, {version.kind}")
    return rows, all_forces[0]


def _text(values: dict[str, Any], update: str) -> str:
    plan, factor = values["plan"], values["race_factor"]
    origin = f", sampled in {factor['seconds'] * 1e3:.1f} ms" if "seconds" in factor else ""
    lines = [
        f"{values['data']}: {values['num_particles']:,} particles, {values['num_pairs']:,} pairs; "
        f"read or made in {values['input_seconds']:.2f} s",
        f"on {values['device']}; nm, e, kJ/mol, forces in kJ/(mol nm)",
        plan_text(plan),
        f"        race factor {plan['race_factor']:.3g}{origin}",
        times_text(values["seconds"]),
    ]
    errors = [item for row in values["table"] for item in row["errors"].items()]
    for name in dict.fromkeys(name for name, _ in errors):
        # The worst error of all versions is shown.
        error = max((error for other, error in errors if other == name), key=lambda error: error["value"])
        verdict = "ok" if error["value"] <= error["tolerance"] else "TOO LARGE"
        within = f"tolerance {error['tolerance']:.0e}"
        lines.append(f"error   {error['value']:.2e} of {error['of']}, against {name} ({within}): {verdict}")
    lines = [folded(line) if "\n" not in line else line for line in lines]
    lines += ["", "Milliseconds; the paper's are of an RTX 2080 Ti (SC'20, Table III):"]
    lines[-1] = folded(lines[-1], indent=0)
    lines += [gromacs_table.text(values["table"])]
    lines += [folded("  speed-up: over the flat version; ~: computed from the paper's factor of 1.6", indent=4)]
    if update == "auto" and "global" in values["native_missing_in"]:
        lines.append(
            folded("  native  not here: this device has no atomic addition of float32 in global memory (clhist info)")
        )
    return "\n".join([*lines, *map(folded, gromacs_table.findings(values["table"], values["num_pairs"]))])
