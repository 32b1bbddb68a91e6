"""`clhist hist`: histograms and statistics of columns of files."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from glob import glob, has_magic
from itertools import pairwise
from pathlib import Path
from typing import Any

import click

from clhist._core.opencl.several import queues_of
from clhist.cli.cases.options import DATA, plot_option
from clhist.cli.console import Console, shared_options
from clhist.cli.hist import report
from clhist.cli.hist.compute import STATISTICS, Bins, compute, quantile_of
from clhist.cli.hist.condition import EXAMPLE, Condition
from clhist.cli.hist.object_options import check_no_object, fill_object, input_errors, object_options
from clhist.cli.hist.objects import AxisSpec
from clhist.cli.hist.rows import TableRows
from clhist.cli.hist.tables import STDIN, open_table
from clhist.cli.tables import escaped
from clhist.files.table import Table, TableError

RULES = ("auto", "fd", "scott", "doane", "stone", "rice", "sturges", "sqrt")


class _BinsType(click.ParamType):
    name = "bins"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        # Click also converts defaults, which may be numbers already.
        if value in RULES or not isinstance(value, str):
            return value
        try:
            if "," in value:
                edges = tuple(float(edge) for edge in value.split(","))
                if any(not low <= high for low, high in pairwise(edges)):
                    self.fail(f"expected edges that rise, got {value!r}", param, ctx)
                return edges
            number = int(value)
        except ValueError:
            number = 0
        # No more than `compute` takes in all.
        if not 0 < number < 2**27:
            expected = f"expected a number, edges such as 0,1,2.5 or one of {', '.join(RULES)}"
            self.fail(f"{expected}; got {value!r}", param, ctx)
        return number


class _StatisticType(click.Choice):
    """One of the statistics, or a quantile such as q90."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and quantile_of(value) is not None:
            return value
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            self.fail(f"{error.message.rstrip('.')}, or a quantile such as 'q90'.", param, ctx)


def _each_file(context: click.Context, parameter: click.Parameter, paths: Sequence[Path]) -> tuple[Path, ...]:
    """Return the files, those of patterns such as ``"data/*.parquet"`` that no shell has expanded in order."""
    files: list[Path] = []
    for path in paths:
        # A file may have * or ? in its name: only what does not exist is a pattern.
        matches = sorted(glob(str(path))) if has_magic(str(path)) and not path.exists() else [str(path)]
        if not matches:
            raise click.BadParameter(f"expected files, got {path}, which matches none", context, parameter)
        files += map(Path, matches)
    return tuple(files)


@click.command("hist")
@click.argument("files", nargs=-1, required=True, type=DATA, metavar="FILE...", callback=_each_file)
@click.option(
    "-c",
    "--column",
    "columns",
    multiple=True,
    metavar="NAME",
    help="What is binned: a column's name, or its number from 0. Twice for two dimensions. [default: the only one]",
)
@click.option(
    "-b",
    "--bins",
    "bins",
    type=_BinsType(),
    multiple=True,
    metavar="BINS",
    help=f"How many (10), their edges (0,1,2.5), or a rule: {', '.join(RULES)}. Twice for two columns. [default: 10]",
)
@click.option(
    "-r",
    "--range",
    "ranges",
    type=(float, float),
    multiple=True,
    metavar="LOW HIGH",
    help="What the bins cover; rows outside are left out. Twice for two columns. [default: least to greatest number]",
)
@click.option("--log", "is_log", is_flag=True, help="Bins that are even in the logarithm.")
@click.option(
    "-w", "--weights", "--weight", metavar="NAME", help="Add up this column in each bin instead of counting rows."
)
@click.option(
    "--by",
    multiple=True,
    metavar="NAME",
    help="A histogram, or statistics, for each value of this column, text included. Again for more columns.",
)
@click.option(
    "-s",
    "--stat",
    "statistics",
    type=_StatisticType(STATISTICS),
    multiple=True,
    help="A statistic of the column for each value of --by, or of --values for each bin; also a quantile such as q90. "
    "Several times for more.",
)
@click.option("--values", metavar="NAME", help="The column whose statistics are computed in each bin.")
@click.option("--where", metavar="CONDITION", help=f"Rows that count: {EXAMPLE!r}.")
@click.option("--density", is_flag=True, help="Divide counts by the width of their bin and by their total.")
@click.option("--devices", type=click.Choice(["all"]), help="Count by all GPUs at the same time.")
@click.option(
    "--scheduler", metavar="ADDRESS", help="Count by the workers of a Dask cluster, a file each: tcp://host:8786."
)
@object_options
@plot_option("the result")
@shared_options()
def hist(  # noqa: PLR0913  # an option each
    console: Console,
    files: tuple[Path, ...],
    columns: tuple[str, ...],
    bins: tuple[Any, ...],
    ranges: tuple[tuple[float, float], ...],
    is_log: bool,
    weights: str | None,
    by: tuple[str, ...],
    statistics: tuple[str, ...],
    values: str | None,
    where: str | None,
    density: bool,
    devices: str | None,
    scheduler: str | None,
    axes: tuple[AxisSpec, ...],
    storage: str | None,
    sample: str | None,
    output: Path | None,
    plot: Path | None,
) -> None:
    """Histogram of columns of FILE...: .csv, .npy, .npz, .parquet; .csv.gz, .bz2 or .xz; - is the standard input.

    Counts are those of numpy.histogram on all rows of all files. Files are read in chunks and may be larger than
    memory, except for medians, quantiles and the rules for the number of bins, which hold the columns they need. Rows
    are left out in which a number is missing (NaN, null, an empty field).

    With --stat and without --bins only the statistics are printed.

    With --axis it is a histogram object of hist, with the bins and storages of boost-histogram, which has bins for what
    lies outside. It needs: pip install boost-histogram hist uhi.

    \b
    Examples:
      clhist hist data.parquet --column pt --bins 100 --range 0 200 --by charge --plot out.png
      clhist hist "data/*.parquet" --column pt --bins 100 --range 0 200 --devices all
      clhist hist data.csv --column pt --by charge --stat mean --stat count
      clhist hist data.csv --column eta --bins 20 --values pt --stat median
      clhist hist data.npz --column x --column y --bins 50 --where "abs(x) < 3" --json
      clhist hist events.parquet --axis "pt=reg(100,0,200)" --axis "eta=var(-2.5,-1,0,1,2.5)" \\
        --weight w --storage weight --output h.json
    """
    if axes:
        others = {
            "--column": columns,
            "--bins": bins,
            "--range": ranges,
            "--log": is_log,
            "--by": by,
            "--stat": statistics,
            "--values": values,
            "--density": density,
            "--devices": devices,
            "--scheduler": scheduler,
        }
        fill_object(console, files, axes, storage or "double", weights, sample, where, output, plot, others)
        return
    check_no_object(storage=storage, sample=sample, output=output)
    _check(columns, bins, ranges, statistics, weights, values, density)
    _check_several(devices, scheduler, bins, statistics, files)
    with input_errors():
        tables = [open_table(path) for path in files]
        columns = columns or (_only_column(tables[0]),)
        requested = _bins(len(columns), bins, ranges, is_log) if bins or values or not statistics else None
        with console.progress("reading", 1.0) as line:
            condition = Condition(where) if where else None
            rows = TableRows(
                tables, columns, weights, values, by, condition, lambda part: line.update(part - line.done)
            )
            counting = _counting(rows, devices, scheduler)
            result = compute(rows, requested, statistics, density=density, by_bin=values is not None, **counting)
    if plot is not None:
        from clhist.cli.hist.plot import draw

        draw(rows, result, plot, density=density, is_log=is_log)
    document = report.document(rows, result, density=density) if console.json is not None else None
    console.report(document, lambda: report.text(rows, result, density=density))


def _check(
    columns: tuple[str, ...],
    bins: tuple[Any, ...],
    ranges: tuple[tuple[float, float], ...],
    statistics: tuple[str, ...],
    weights: str | None,
    values: str | None,
    density: bool,
) -> None:
    """Raise the usage error of options that do not go together."""
    if len(columns) > 2:
        raise click.UsageError(f"--column: expected one or two, got {len(columns)}")
    for name, occurrences in (("--bins", bins), ("--range", ranges)):
        if len(occurrences) > max(1, len(columns)):
            raise click.UsageError(f"{name}: expected at most one for each column, got {len(occurrences)}")
    if values is not None and not statistics:
        raise click.UsageError("--values: expected --stat as well")
    if statistics and (weights is not None or density):
        raise click.UsageError(f"--stat: expected no {'--weights' if weights is not None else '--density'} beside it")
    if statistics and values is None and len(columns) > 1:
        raise click.UsageError("--stat: expected one --column, or --values")
    for low, high in ranges:
        if not float("-inf") < low <= high < float("inf"):
            raise click.UsageError(f"--range: expected finite numbers, the lower one first; got {low:g} {high:g}")


def _check_several(
    devices: str | None,
    scheduler: str | None,
    bins: tuple[Any, ...],
    statistics: tuple[str, ...],
    files: tuple[Path, ...],
) -> None:
    """Raise the usage error of what several devices, or workers, do not compute."""
    name = "--devices" if devices is not None else "--scheduler"
    if devices is not None and scheduler is not None:
        raise click.UsageError("--devices: expected no --scheduler beside it")
    if (devices is not None or scheduler is not None) and statistics:
        raise click.UsageError(f"{name}: expected counts or sums of weights, got --stat")
    if scheduler is not None and Path(STDIN) in files:
        raise click.UsageError("--scheduler: expected files that the workers can open, got the standard input")
    rule = next((item for item in bins if isinstance(item, str)), None)
    if scheduler is not None and rule is not None:
        raise click.UsageError(f"--scheduler: expected a number or edges as --bins, got {rule}, which needs all rows")


def _counting(rows: TableRows, devices: str | None, scheduler: str | None) -> dict[str, Any]:
    """Return the options of `compute` for counting by several devices or processes."""
    if devices is None and scheduler is None:
        return {}
    from clhist.cli.hist import several

    if devices is not None:
        return {"count": partial(several.count_by_devices, queues_of(devices))}
    client = several.connect(scheduler or "")
    # The connection closes when the command ends, after an error as well.
    click.get_current_context().call_on_close(client.close)
    workers = several.Workers(client)
    return {"count": lambda counts, pieces: workers.count(rows, counts), "extents": workers.extents}


def _bins(count: int, bins: tuple[Any, ...], ranges: tuple[tuple[float, float], ...], is_log: bool) -> list[Bins]:
    """Return the bins of each column; what is given once holds for both."""
    chosen = bins or (10,)
    every: list[Any] = list(chosen) * (count if len(chosen) == 1 else 1)
    within: list[Any] = list(ranges) if ranges else [None]
    within *= count if len(within) == 1 else 1
    return [Bins(number, ends, is_log) for number, ends in zip(every, within, strict=True)]


def _only_column(table: Table) -> str:
    names = [name for name, dtype in table.dtypes.items() if not isinstance(dtype, str)]
    if not names:
        columns = ", ".join(f"{escaped(name)} ({dtype})" for name, dtype in table.dtypes.items())
        raise TableError(f"{table.path}: expected a column of real numbers, got {columns or 'no columns'}")
    if len(names) != 1:
        raise TableError(f"{table.path}: expected --column, one of {', '.join(map(escaped, names))}")
    return names[0]
