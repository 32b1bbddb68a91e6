"""`clhist bench`: how fast it is, how close to reading the input once, to the best plan, and to others."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import click

import clhist
from clhist.cli.bench import groups as bench_groups
from clhist.cli.bench import hist as bench_hist
from clhist.cli.bench import histogram as bench_histogram
from clhist.cli.bench import latency as bench_latency
from clhist.cli.bench import model as bench_model
from clhist.cli.bench import peers as bench_peers
from clhist.cli.bench import plot as bench_plot
from clhist.cli.bench import report as bench_report
from clhist.cli.bench import skew as bench_skew
from clhist.cli.bench import table as bench_table
from clhist.cli.bench.lab import Lab, Row
from clhist.cli.bench.operators import OPERATORS
from clhist.cli.bench.suite import Request, Suite
from clhist.cli.main import profile_option
from clhist.cli.plan import Number
from clhist.opencl.device import device_kind

SUITES: dict[str, Suite] = {
    "operators": bench_table.SUITE,
    "model": bench_model.SUITE,
    "peers": bench_peers.SUITE,
    "latency": bench_latency.SUITE,
    "skew": bench_skew.SUITE,
    "groups": bench_groups.SUITE,
    "hist": bench_hist.SUITE,
    "histogram": bench_histogram.SUITE,
}
_ELEMENTS = {"gpu": 50_000_000, "cpu": 10_000_000}


class Size(Number):
    """A number that elements and bins may have: they are counted in an int32."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        found = super().convert(value, param, ctx)
        if not 1 <= found < 2**31:
            self.fail(f"expected a number from 1 to 2^31 - 1, got {value}", param, ctx)
        return found


def _file(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    """Refuse before anything is measured what could not be written afterwards."""
    if path is not None and not os.access(path.absolute().parent, os.W_OK):
        raise click.BadParameter(
            f"expected a file in a directory that can be written, got {str(path)!r}", context, option
        )
    if path is not None and option.name == "plot" and path.suffix.lower() not in bench_plot.FORMATS:
        raise click.BadParameter(f"expected a file {', '.join(bench_plot.FORMATS)}, got {str(path)!r}", context, option)
    return path


_PATH = click.Path(dir_okay=False, writable=True, path_type=Path)


@click.command(
    epilog="Operators:\n\n\b\n" + "\n".join(f"{name:8} {benched.text}" for name, benched in OPERATORS.items())
)
@click.option(
    "--suite",
    type=click.Choice(list(SUITES)),
    default="operators",
    show_default=True,
    help="What to measure; docs/bench.md says how.",
)
@click.option(
    "-n",
    "--num-elements",
    type=Size(),
    metavar="N",
    help="Elements of the input: 50M, 5e7. [default: 50M on a GPU, 10M on a CPU; latency: 1000]",
)
@click.option(
    "-H",
    "--num-bins",
    "bins",
    type=Size(),
    multiple=True,
    metavar="BINS",
    help="Bins. Several times for more. [default: those of the suite]",
)
@click.option(
    "--op",
    "operations",
    type=click.Choice(list(OPERATORS)),
    multiple=True,
    help="What to compute: see below. Several times for more. [default: those of the suite]",
)
@click.option(
    "--race-factor",
    "race_factors",
    type=Size(),
    multiple=True,
    metavar="RF",
    help="BINS elements in a row touch BINS / RF bins, made as in SC'20: bin = random % max(1, BINS / RF) * RF; and "
    "the plan is told so. Several times for more. [default: 1; model: 1 and 63]",
)
@profile_option
@click.option(
    "--json", "json_file", type=_PATH, callback=_file, help="Also write everything, in seconds, into this file."
)
@click.option(
    "--plot", type=_PATH, callback=_file, help="Also draw it into this .png, .svg or .pdf (needs matplotlib)."
)
def bench(
    suite: str,
    num_elements: int | None,
    bins: tuple[int, ...],
    operations: tuple[str, ...],
    race_factors: tuple[int, ...],
    json_file: Path | None,
    plot: Path | None,
) -> None:
    """Time clhist on random input, which is made on the device.

    \b
    Suites:
      operators  a table of operators and numbers of bins
      model      the automatic plan against fixed numbers of copies: SC'20, Fig. 7
      peers      beside NumPy, Numba, boost-histogram, PyTorch, CuPy, JAX as far as installed
      latency    calls on few elements: what the host spends
      skew       bins that are sorted, Zipf, half or all in one, against uniform ones
      groups     statistics of groups beside pandas and NumPy
      hist       histogram objects beside boost-histogram with threads, and CuPy as cuda-histogram uses it
      histogram  histogram, histogram2d, binned_statistic beside NumPy, SciPy, boost-histogram, CuPy

    Every result is compared with NumPy's before it is timed. "kernel" is the device's time by its events, "call" that
    of a whole call on device arrays in a pipelined loop, both medians of several; "spread" is the largest less the
    smallest of these, relative to the median. F is the time to read the input once, measured in the same run: nothing
    can be faster. The input is larger than the device's cache, or there are several to take turns.

    \b
    Example: two operators of the paper, and its figure 7
      clhist bench --op count --op argmax -H 31 -H 196607 --race-factor 1 --race-factor 63
      clhist bench --suite model -n 50M --plot figure7.png --json figure7.json
    """
    chosen = SUITES[suite]
    _check(suite, chosen, operations, race_factors)
    if plot:
        bench_plot.require_matplotlib()
    lab = Lab(clhist.default_queue())
    request = Request(
        num_elements or chosen.num_elements or _ELEMENTS[device_kind(lab.device)],
        *(
            tuple(dict.fromkeys(given or default))
            for given, default in (
                (bins, chosen.bins),
                (operations, chosen.default_operations),
                (race_factors, chosen.race_factors or (1,)),
            )
        ),
    )
    click.echo(bench_report.header(lab, request))
    rows, complete = _measured(lab, chosen, request)
    if rows:
        lines = [*bench_report.notes(rows), *bench_report.floors(rows), *chosen.summary(rows)]
        click.echo("\n".join(["", bench_report.table_text(rows, chosen.columns), *([""] if lines else []), *lines]))
    if json_file:
        record = bench_report.record(suite, lab, request, rows, complete=complete)
        json_file.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    panels = chosen.panels(rows)
    if plot and panels:
        title = f"{request.num_elements:,} elements on {lab.device.name.strip()}"
        bench_plot.draw(panels, title, plot)
    if not complete:
        raise click.Abort
    failed = sum("failed" in row for row in rows)
    if failed:
        raise click.ClickException(f"{failed} of {len(rows)} rows are wrong or failed: see the notes below the table")


def _measured(lab: Lab, chosen: Suite, request: Request) -> tuple[list[Row], bool]:
    """Return the rows, and whether they are all: Ctrl-C keeps what was measured before."""
    rows: list[Row] = []
    try:
        with click.progressbar(
            length=chosen.steps(request), file=sys.stderr, show_pos=True, item_show_func=lambda item: item
        ) as bar:
            for what, found in chosen.run(lab, request):
                rows += found
                bar.update(1, what)
    except KeyboardInterrupt:
        lab.queue.finish()
        return rows, False
    return rows, True


def _check(suite: str, chosen: Suite, operations: tuple[str, ...], race_factors: tuple[int, ...]) -> None:
    """Refuse what the suite has no use for."""
    for operation in operations:
        if operation not in chosen.operations:
            expected = f"one of {', '.join(chosen.operations)}" if chosen.operations else "none"
            raise click.BadParameter(f"expected {expected} for --suite {suite}, got {operation}", param_hint="--op")
    if race_factors and not chosen.race_factors:
        raise click.BadParameter(
            f"expected none for --suite {suite}, got {race_factors[0]}", param_hint="--race-factor"
        )
