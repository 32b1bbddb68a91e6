"""`clhist calibrate`: measure a device, and let the model use what was found."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import click

from clhist.cli.main import table
from clhist.hardware.profile_files import PARAMETERS


@click.command()
@click.option("--device", metavar="NAME", help="A part of the device's name. [default: the best device]")
@click.option("--platform", metavar="NAME", help="A part of its platform's name.")
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where the profile goes. [default: the user's directory of profiles, where it is used from then on]",
)
@click.option("--quick", is_flag=True, help="Fewer runs over smaller arrays.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def calibrate(device: str | None, platform: str | None, output: Path | None, quick: bool, as_json: bool) -> None:
    """Measure a device and write its profile: local memory, caches, resident work-items, rates of updates.

    Takes a minute or two on a GPU and ten seconds on a CPU; the device should have nothing else to do. A number that
    cannot be right is refused in favour of the shipped or the driver's one, and the profile says so.

    \b
    Example:
      clhist calibrate --device H200 --output my-h200.toml
    """
    import clhist.calibration.calibrate as calibration
    from clhist.opencl.device import default_queue, devices

    chosen = default_queue().device if platform is None and device is None else devices(platform, device)[0]
    name = chosen.name.strip()
    with click.progressbar(length=len(calibration.stages_of(chosen)), label=name, file=sys.stderr) as bar:
        begun: list[str] = []

        def progress(stage: str) -> None:
            bar.label = f"{name}: {stage}"
            bar.update(1 if begun else 0)
            begun.append(stage)

        found = calibration.calibrate(chosen, quick=quick, progress=progress)
        bar.update(1)
    path = found.write(output)
    if as_json:
        record = {
            "name": found.name,
            "kind": found.kind,
            "driver": found.driver,
            "numbers": {finding.key: asdict(finding) for finding in found.findings},
            "rates": {name: asdict(rate) for name, rate in found.rates.items()},
            "path": str(path),
        }
        click.echo(json.dumps(record, indent=1))
        return
    rows = []
    for finding in found.findings:
        measured = "-" if finding.measured is None else f"{finding.measured.value:,.0f}"
        letter = PARAMETERS[finding.key].partition(":")[0]
        rows.append(
            (
                letter,
                f"{finding.value:,}",
                measured,
                f"refused: {finding.refused}" if finding.refused else finding.source,
            )
        )
    click.echo(f"{found.name}, {found.driver}\n")
    click.echo(table([("", "used", "measured", ""), *rows], right=(1, 2)))
    rates = [
        (name, f"{rate.value:,.4g}", rate.unit, f"+-{rate.spread / 2:.0%}" if rate.spread else "")
        for name, rate in found.rates.items()
    ]
    click.echo("\n" + table(rates, right=(1,)))
    click.echo(f"\nwritten to {path}")
