"""`clhist bench`: how fast it is, how close to reading the input once, to the best plan, and to others."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import click

import clhist
from benchmarks import emulated as bench_emulated
from benchmarks import engines as bench_engines
from benchmarks import groups as bench_groups
from benchmarks import hist as bench_hist
from benchmarks import histogram as bench_histogram
from benchmarks import latency as bench_latency
from benchmarks import model as bench_model
from benchmarks import peers as bench_peers
from benchmarks import plot as bench_plot
from benchmarks import report as bench_report
from benchmarks import sizes as bench_sizes
from benchmarks import skew as bench_skew
from benchmarks import table as bench_table
from benchmarks.inputs import DISTRIBUTIONS
from benchmarks.lab import Lab, Row
from benchmarks.operators import OPERATORS
from benchmarks.peer_problems import PROBLEMS
from benchmarks.suite import Request, Suite
from clhist._core.opencl.device import device_kind
from clhist.cli.cases.options import plot_option
from clhist.cli.console import Console, InputError, shared_options
from clhist.cli.plan import SIZE

SUITES: dict[str, Suite] = {
    "operators": bench_table.SUITE,
    "model": bench_model.SUITE,
    "peers": bench_peers.SUITE,
    "latency": bench_latency.SUITE,
    "skew": bench_skew.SUITE,
    "groups": bench_groups.SUITE,
    "hist": bench_hist.SUITE,
    "histogram": bench_histogram.SUITE,
    "engines": bench_engines.SUITE,
    "sizes": bench_sizes.SUITE,
}
_OPERATIONS = dict.fromkeys(name for suite in SUITES.values() for name in (*suite.operations, *suite.of_rows))
_DISTRIBUTIONS = {name.partition(" ")[0] if name != "all in one" else "one": name for name in DISTRIBUTIONS}
_ELEMENTS = {"gpu": 50_000_000, "cpu": 10_000_000}


def _option(name: str) -> str:
    return "num-bins" if name == "bins" else name


@click.command(
    context_settings={"token_normalize_func": _option},
    epilog="Operators:\n\n\b\n"
    + "\n".join(f"{name:8} {benched.text}" for name, benched in OPERATORS.items())
    + "\n\nFunctions of --suite peers:\n\n\b\n"
    + "\n".join(f"{name:16} {problem.text}" for name, problem in PROBLEMS.items()),
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
    type=SIZE,
    metavar="N",
    help="Elements of the input: 50M, 5e7. [default: 50M on a GPU, 10M on a CPU; peers: 25M; latency: 1000; "
    "sizes: 10M, the largest]",
)
@click.option(
    "-H",
    "--num-bins",
    "bins",
    type=SIZE,
    multiple=True,
    metavar="BINS",
    help="Bins, also --bins: 2041, 100M. Repeatable. [default: the suite's]",
)
@click.option(
    "--rows",
    "components",
    type=SIZE,
    multiple=True,
    metavar="D",
    help="Each value is a row of D float32 numbers, of suites operators and peers: add or maximum, and add or mean. "
    "Repeatable.",
)
@click.option(
    "--op",
    "operations",
    type=click.Choice(list(_OPERATIONS)),
    multiple=True,
    help="What to compute, see below. Repeatable. [default: the suite's]",
)
@click.option(
    "--race-factor",
    "race_factors",
    type=SIZE,
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
@plot_option("the times")
@shared_options()
def bench(  # noqa: PLR0913  # an option each
    console: Console,
    suite: str,
    num_elements: int | None,
    bins: tuple[int, ...],
    components: tuple[int, ...],
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
      engines    in the places of other packages' engines
      sizes      functions on 100 to N elements beside NumPy, SciPy, pandas

    Every result is compared with NumPy's before it is timed. "kernel" is the device time from its events; "call" is a
    whole call on device arrays in a pipelined loop. Both are medians; "spread" is (largest - smallest) / median. F is
    the time to read the input once, measured in the same run: a lower bound. Inputs exceed the device's cache.

    \b
    Example: two operators of the paper, its Fig. 7, and rows of values
      clhist bench --op count --op argmax -H 31 -H 196607 --race-factor 1 --race-factor 63
      clhist bench --suite model -n 50M --plot figure7.png --json figure7.json
      clhist bench --rows 64 -n 2M -H 100k
    """
    if emulated is not None:
        _check_emulated(suite, num_elements, race_factors, components, plot)
        bench_emulated.run(console, emulated, operations, bins, distributions)
        return
    chosen = SUITES[suite]
    _check(suite, chosen, operations, components, race_factors, distributions, all_plans)
    lab = Lab(clhist.default_queue())

    def once(values: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(dict.fromkeys(values))

    usual = chosen.num_elements or _ELEMENTS[device_kind(lab.device)]
    request = Request(
        num_elements or max(1, usual // max(components, default=1)),  # as many numbers as without rows
        once(bins or chosen.bins),
        once(operations or (chosen.of_rows[:1] if components else chosen.default_operations)),
        once(race_factors or chosen.race_factors or (1,)),
        once([_DISTRIBUTIONS[name] for name in distributions] or chosen.distributions or ("uniform",)),
        all_plans=all_plans,
        rows=once(components or (1,)),
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
        bench_plot.draw(panels, title, plot, chosen.x_label)
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
            for what, new_rows in chosen.run(lab, request):
                rows += new_rows
                for row in new_rows:  # as they come: a run that is cut off has shown what it measured
                    bar.note(bench_report.line_text(row, chosen.columns))
                bar.update(1, what)
    except KeyboardInterrupt:
        lab.queue.finish()
        return rows, False
    return rows, True


def _check_emulated(
    suite: str, num_elements: int | None, race_factors: tuple[int, ...], rows: tuple[int, ...], plot: Path | None
) -> None:
    """Refuse what counting has no use for."""
    for value, hint in (
        (suite if suite != "operators" else None, "--suite"),
        (num_elements, "--num-elements"),
        (race_factors or None, "--race-factor"),
        (rows or None, "--rows"),
        (plot, "--plot"),
    ):
        if value is not None:
            raise click.BadParameter(f"expected none with --emulated, got {value}", param_hint=hint)


def _check(
    suite: str,
    chosen: Suite,
    operations: tuple[str, ...],
    rows: tuple[int, ...],
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
    for values, is_known, hint in (
        (distributions[:1], chosen.distributions, "--distribution"),
        (("it",) * all_plans, chosen.has_all_plans, "--all-plans"),
        (rows[:1], chosen.of_rows, "--rows"),
    ):
        if values and not is_known:
            raise click.BadParameter(f"expected none for --suite {suite}, got {values[0]}", param_hint=hint)
    allowed, where = (chosen.of_rows, " with --rows") if rows else (chosen.operations, "")
    for operation in operations:
        if operation not in allowed:
            expected = f"one of {', '.join(allowed)}" if allowed else "none"
            message = f"expected {expected} for --suite {suite}{where}, got {operation}"
            raise click.BadParameter(message, param_hint="--op")
    if race_factors and not chosen.race_factors:
        raise click.BadParameter(
            f"expected none for --suite {suite}, got {race_factors[0]}", param_hint="--race-factor"
        )
