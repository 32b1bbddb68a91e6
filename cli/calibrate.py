"""`clhist calibrate`: measure a device, and let the model use what was found."""

from __future__ import annotations

from dataclasses import asdict
from errno import EACCES
from pathlib import Path

import click

from clhist._core.devices.profile_files import PARAMETERS, user_directory
from clhist.cli.console import Console, shared_options, writing
from clhist.cli.tables import table


@click.command()
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where to write the profile. [default: your profile directory, where clhist finds it from then on]",
)
@click.option("--quick", is_flag=True, help="Fewer runs over smaller arrays.")
@shared_options(profile=False)
def calibrate(console: Console, output: Path | None, quick: bool) -> None:
    """Measure a device and write its profile.

    Measures local memory, caches, resident work-items and rates of updates. Takes half a minute on an idle GPU, ten
    seconds on a CPU. A measurement that cannot be right is replaced by the shipped or the driver's number, and the
    profile says so.

    \b
    Example:
      clhist calibrate --device H200 --output my-h200.toml
    """
    import clhist.calibration.calibrate as calibration
    from clhist._core.opencl.caches import is_writable
    from clhist._core.opencl.device import default_queue

    chosen = default_queue().device
    target = output or user_directory()
    with writing(target):  # before anything is measured
        folder = user_directory() if output is None else output.absolute().parent
        folder.mkdir(parents=True, exist_ok=True)
        if output is not None and output.exists():
            if not output.is_file():
                raise OSError(EACCES, "expected a regular file")
            # Opening to append shows whether the file can be written, and leaves its content.
            with output.open("ab"):
                pass
        elif not is_writable(folder):
            raise PermissionError(EACCES, "the folder cannot be written")
    with console.progress(chosen.name.strip(), len(calibration.stages_of(chosen))) as bar:
        begun: list[str] = []

        def progress(stage: str) -> None:
            # A stage is announced when it begins, so the one before is done then.
            bar.update(1 if begun else 0, stage)
            begun.append(stage)

        result = calibration.calibrate(chosen, quick=quick, progress=progress)
    with writing(target):
        path = result.write(output)
    record = {
        "name": result.name,
        "kind": result.kind,
        "driver": result.driver,
        "numbers": {finding.key: asdict(finding) for finding in result.findings},
        "rates": {name: asdict(rate) for name, rate in result.rates.items()},
        "path": str(path),
    }
    rows = []
    for finding in result.findings:
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
    numbers = table([("", "used", "measured", ""), *rows], right=(1, 2))
    rates = [
        (name, f"{rate.value:,.4g}", rate.unit, f"+-{rate.spread / 2:.0%}" if rate.spread else "")
        for name, rate in result.rates.items()
    ]
    text = [f"{result.name}, {result.driver}", numbers, table(rates, right=(1,)), f"written to {path}"]
    console.report(record, "\n\n".join(text))
