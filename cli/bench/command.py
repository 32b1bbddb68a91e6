"""`clhist bench`: how fast it is, how close to reading the input once, to the best plan, and to others."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import click

import clhist
from clhist.cli.bench import emulated as bench_emulated
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
from clhist.cli.bench.inputs import DISTRIBUTIONS
from clhist.cli.bench.lab import Lab, Row
from clhist.cli.bench.operators import OPERATORS
from clhist.cli.bench.peer_problems import PROBLEMS
from clhist.cli.bench.suite import Request, Suite
from clhist.cli.console import Console, InputError, check_writable, shared_options
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
_DISTRIBUTIONS = {name.partition(" ")[0] if name != "all in one" else "one": name for name in DISTRIBUTIONS}
_ELEMENTS = {"gpu": 50_000_000, "cpu": 10_000_000}


class Size(Number):
    """A number that elements and bins may have: they are counted in an int32."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        found = super().convert(value, param, ctx)
        if not 1 <= found < 2**31:
            self.fail(f"expected a number from 1 to 2^31 - 1, got {value}", param, ctx)
        return found


def _plot_file(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    if path is not None:
        check_writable(context, option, path, bench_plot.FORMATS)
        bench_plot.require_matplotlib()
    return path


@click.command(
    epilog="Operators:\n\n\b\n"
    + "\n".join(f"{name:8} {benched.text}" for name, benched in OPERATORS.items())
    + "\n\nFunctions of --suite peers:\n\n\b\n"
    + "\n".join(f"{name:16} {problem.text}" for name, problem in PROBLEMS.items())
)
@click.option(
    "--suite",
    type=click.Choice(list(SUITES)),
    default="operators",
    show_default=True,
    help="What to measure.",
)
@click.option(
    "-n",
    "--num-elements",
    type=Size(),
    metavar="N",
    help="Elements of the input: 50M, 5e7. [default: 50M on a GPU, 10M on a CPU; peers: 25M; latency: 1000]",
)
@click.option(
    "-H",
    "--num-bins",
    "bins",
    type=Size(),
    multiple=True,
    metavar="BINS",
    help="Bins. Repeatable. [default: the suite's]",
)
@click.option(
    "--op",
    "operations",
    type=click.Choice(list(dict.fromkeys((*OPERATORS, *PROBLEMS)))),
    multiple=True,
    help="What to compute, see below. Repeatable. [default: the suite's]",
)
@click.option(
    "--race-factor",
    "race_factors",
    type=Size(),
    multiple=True,
    metavar="RF",
    help="BINS consecutive elements touch BINS / RF bins, as in SC'20: bin = random % max(1, BINS / RF) * RF. The "
    "plan uses it. Repeatable. [default: 1; model: 1 and 63]",
)
@click.option(
    "--distribution",
    "distributions",
    type=click.Choice(list(_DISTRIBUTIONS)),
    multiple=True,
    help="How elements are spread over the bins: half of them or all in one. Repeatable. [default: uniform; skew: all]",
)
@click.option("--all-plans", is_flag=True, help="A row for each plan that could be taken, the automatic one first.")
@click.option(
    "--emulated",
    metavar="TARGET",
    help="Count what plans cost on an AMD GPU that is not here, such as gfx942, instead of timing them. Needs a clone.",
)
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=_plot_file,
    metavar="FILE",
    help="Draw the times into a .png, .svg or .pdf (needs matplotlib).",
)
@shared_options()
def bench(
    console: Console,
    suite: str,
    num_elements: int | None,
    bins: tuple[int, ...],
    operations: tuple[str, ...],
    race_factors: tuple[int, ...],
    distributions: tuple[str, ...],
    all_plans: bool,
    emulated: str | None,
    plot: Path | None,
) -> None:
    """Time clhist, alone or beside others, on random input made on the device.

    \b
    Suites:
      operators  operators by numbers of bins
      model      the plan against fixed numbers of copies (SC'20, Fig. 7)
      peers      every public function beside NumPy, SciPy, pandas, Numba,
                 boost-histogram, PyTorch, CuPy, JAX, and loops of C
      latency    host time of small calls
      skew       sorted, Zipf and single-bin inputs against uniform ones
      groups     group-by statistics beside pandas and NumPy
      hist       histogram objects beside boost-histogram and cuda-histogram's way
      histogram  histogram functions beside NumPy, SciPy, boost-histogram, CuPy

    Every result is compared with NumPy's before it is timed. "kernel" is the device time from its events; "call" is a
    whole call on device arrays in a pipelined loop. Both are medians; "spread" is (largest - smallest) / median. F is
    the time to read the input once, measured in the same run: a lower bound. Inputs exceed the device's cache.

    \b
    Example: two operators of the paper, and its Fig. 7
      clhist bench --op count --op argmax -H 31 -H 196607 --race-factor 1 --race-factor 63
      clhist bench --suite model -n 50M --plot figure7.png --json figure7.json
    """
    if emulated is not None:
        _check_emulated(suite, num_elements, race_factors, plot)
        bench_emulated.run(console, emulated, operations, bins, distributions)
        return
    chosen = SUITES[suite]
    _check(suite, chosen, operations, race_factors, distributions, all_plans)
    lab = Lab(clhist.default_queue())
    request = Request(
        num_elements or chosen.num_elements or _ELEMENTS[device_kind(lab.device)],
        *(
            tuple(dict.fromkeys(given or default))
            for given, default in (
                (bins, chosen.bins),
                (operations, chosen.default_operations),
                (race_factors, chosen.race_factors or (1,)),
                ([_DISTRIBUTIONS[name] for name in distributions], chosen.distributions or ("uniform",)),
            )
        ),
        all_plans=all_plans,
    )
    if console.prints_text:
        console.echo(bench_report.header(lab, request))
    rows, complete = _measured(console, lab, chosen, request)
    text = ""
    if rows:
        lines = [*bench_report.notes(rows), *bench_report.floors(rows), *chosen.summary(rows)]
        text = "\n".join(["", bench_report.table_text(rows, chosen.columns), *([""] if lines else []), *lines])
    console.report(bench_report.record(suite, lab, request, rows, complete=complete), text)
    panels = chosen.panels(rows)
    if plot and panels:
        title = f"{request.num_elements:,} elements on {lab.device.name.strip()}"
        bench_plot.draw(panels, title, plot)
    if not complete:
        raise KeyboardInterrupt
    failed = sum("failed" in row for row in rows)
    if failed:
        raise click.ClickException(f"{failed} of {len(rows)} rows are wrong or failed: see the notes below the table")


def _measured(console: Console, lab: Lab, chosen: Suite, request: Request) -> tuple[list[Row], bool]:
    """Return the rows, and whether they are all: Ctrl-C keeps what was measured before."""
    rows: list[Row] = []
    try:
        with console.progress("bench", chosen.steps(request)) as bar:
            for what, found in chosen.run(lab, request):
                rows += found
                for row in found:  # as they come: a run that is cut off has shown what it measured
                    bar.note(bench_report.line_text(row, chosen.columns))
                bar.update(1, what)
    except KeyboardInterrupt:
        lab.queue.finish()
        return rows, False
    return rows, True


def _check_emulated(suite: str, num_elements: int | None, race_factors: tuple[int, ...], plot: Path | None) -> None:
    """Refuse what counting has no use for."""
    for given, hint in (
        (suite if suite != "operators" else None, "--suite"),
        (num_elements, "--num-elements"),
        (race_factors or None, "--race-factor"),
        (plot, "--plot"),
    ):
        if given is not None:
            raise click.BadParameter(f"expected none with --emulated, got {given}", param_hint=hint)


def _check(
    suite: str,
    chosen: Suite,
    operations: tuple[str, ...],
    race_factors: tuple[int, ...],
    distributions: tuple[str, ...],
    all_plans: bool,
) -> None:
    """Refuse what the suite has no use for, and a suite without what it needs."""
    if chosen.needs:
        module, extra = chosen.needs
        try:
            import_module(module)
        except ImportError as error:
            raise InputError(f'--suite {suite}: needs {module}: pip install "clhist[{extra}]"') from error
    for given, is_known, hint in (
        (distributions[:1], chosen.distributions, "--distribution"),
        (("it",) * all_plans, chosen.has_all_plans, "--all-plans"),
    ):
        if given and not is_known:
            raise click.BadParameter(f"expected none for --suite {suite}, got {given[0]}", param_hint=hint)
    for operation in operations:
        if operation not in chosen.operations:
            expected = f"one of {', '.join(chosen.operations)}" if chosen.operations else "none"
            raise click.BadParameter(f"expected {expected} for --suite {suite}, got {operation}", param_hint="--op")
    if race_factors and not chosen.race_factors:
        raise click.BadParameter(
            f"expected none for --suite {suite}, got {race_factors[0]}", param_hint="--race-factor"
        )
