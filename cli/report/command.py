"""`clhist report`: what is known, checked, measured and planned on a device, as one self-contained HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from clhist.cli.console import Console, check_writable, shared_options, writing
from clhist.cli.report import findings
from clhist.cli.report.page import page

_OPERATIONS = ("count", "add")


def _html_file(context: click.Context, option: click.Parameter, path: Path) -> Path:
    check_writable(context, option, path, (".html", ".htm"))
    return path


@click.command()
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default="clhist-report.html",
    show_default=True,
    callback=_html_file,
    metavar="FILE",
    help="The HTML file to write.",
)
@click.option("--quick", is_flag=True, help="Fewer checks and smaller inputs: about 40 s on two cores.")
@shared_options()
def report(console: Console, output: Path, quick: bool) -> None:
    """Write a page about a device.

    The page shows the device, its profile with the source of each number, the self-test, times over bins beside
    NumPy's, and which plan is taken for which number of bins and race factor. It is one HTML file without
    references to others. Attach it to a bug report or to a new profile.

    \b
    Example:
      clhist report --output gpu.html
    """
    steps: list[tuple[str, Any]] = [
        ("device", findings.device),
        ("self-test", lambda: findings.checks(quick=quick)),
        *((f"times of {name}", lambda name=name: findings.times(name, quick=quick)) for name in _OPERATIONS),
        ("plans", findings.plans),
    ]
    results: dict[str, Any] = {}
    with console.progress("report", len(steps)) as bar:
        for name, step in steps:
            bar.item = name
            results[name] = step()
            bar.update()
    with writing(output):
        output.write_text(page(results), encoding="utf-8")
    values = {"path": str(output), "passed": not results["self-test"]["wrong"], **results}
    wrong = f"\n{len(results['self-test']['wrong'])} checks of the self-test are wrong" if not values["passed"] else ""
    console.report(values, f"written to {output}{wrong}")
