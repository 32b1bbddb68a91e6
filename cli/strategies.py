"""`clhist strategies`: every published strategy on this device, compared with NumPy and timed."""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from clhist import default_queue
from clhist.calibration.measure import Bench
from clhist.cases.files import read_image
from clhist.cases.image_data import photograph
from clhist.cli.cases.options import figure, messages, plot_option
from clhist.cli.console import Console, completed, shared_options
from clhist.cli.plan import SIZE
from clhist.cli.tables import grid, table
from clhist.cli.timing import read_floor
from clhist.strategies import STRATEGIES, DataSet, Runner, Strategy, StrategyOutcome, datasets, select
from clhist.strategies.registry import OURS

# One cooperation level of the thesis, its heuristic, instead of all.
DEFAULT = ("blog", "handbook", "shams-kennedy", "thesis/*/H", "sc20", "futhark", "cub", "raft", OURS)
_BINS = (256, 4096, 65536)
_SIZES = {"cpu": 1_000_000, "gpu": 50_000_000}
_PHOTOGRAPH = (3000, 4000)

Row = tuple[Strategy, list[StrategyOutcome]]


@click.command()
@click.option(
    "-n",
    "--num-elements",
    type=SIZE,
    metavar="N",
    help="Elements of generated inputs: 20M, 1e6. [default: 50M on a GPU, 1M on a CPU]",
)
@click.option(
    "-H",
    "--num-bins",
    "bins",
    type=SIZE,
    multiple=True,
    metavar="BINS",
    help="Bins, where the input leaves a choice. Repeatable. [default: 256, 4096, 65536; text 5; images 256]",
)
@click.option(
    "--data",
    "inputs",
    multiple=True,
    metavar="INPUT",
    help="uniform, rf63 (every 63rd bin), D1 to D12 of the thesis or thesis for all, photograph (generated), or a "
    "file: .txt for its letters in groups, an image for its intensities. Repeatable. [default: uniform]",
)
@click.option(
    "--strategy",
    "patterns",
    multiple=True,
    metavar="NAME",
    shell_complete=completed(lambda: [*STRATEGIES, "all"]),
    help="A name from --list, its beginning (blog, thesis/global) or a pattern (thesis/*/H); all for all. Repeatable. "
    f"[default: {' '.join(DEFAULT)}]",
)
@click.option(
    "--parameter",
    "parameters",
    multiple=True,
    metavar="NAME=VALUE",
    help="Override the authors' default: work_groups=64.",
)
@click.option("--list", "listed", is_flag=True, help="List the strategies with their sources, needs and parameters.")
@plot_option("the times in multiples of F")
@shared_options()
def strategies(
    console: Console,
    num_elements: int | None,
    bins: tuple[int, ...],
    inputs: tuple[str, ...],
    patterns: tuple[str, ...],
    parameters: tuple[str, ...],
    listed: bool,
    plot: Path | None,
) -> None:
    """Run the published histogram strategies on this device.

    All of them count. Every result is compared with NumPy's before it is timed. Times are median device times in
    multiples of F, the time to read the input once, beside numpy.bincount. * marks the fastest of each input.

    \b
    Example: the data sets of the thesis
      clhist strategies --data thesis --strategy blog --strategy clhist
    """
    chosen = _selected(patterns or DEFAULT)
    if listed:
        shown = select(patterns) if patterns and "all" not in patterns else list(STRATEGIES.values())
        console.report([_record(strategy) for strategy in shown], lambda: _listing(shown))
        return
    settings = _parameters(parameters, chosen)
    runner = Runner(default_queue().context)
    size = _SIZES[runner.limits.profile.kind] if num_elements is None else num_elements
    bench = Bench(runner.context, runner.queue)
    with messages():
        data = [dataset for name in inputs or ("uniform",) for dataset in _data(name, size, bins)]
    rows: list[Row] = [(strategy, []) for strategy in chosen]
    floors: list[float] = []
    numpy: list[float] = []
    with console.progress("strategies", len(data) * len(chosen)) as progress:
        for dataset in data:
            buffers = [runner.elements(dataset).data]
            floors.append(read_floor(bench, buffers, dataset.elements.nbytes).median)
            numpy.append(_numpy_seconds(dataset))
            for strategy, outcomes in rows:
                # A parameter applies to those strategies that have one of its name.
                own: dict[str, Any] = {name: value for name, value in settings.items() if name in strategy.parameters}
                outcomes.append(runner.outcome(strategy, dataset, **own))
                progress.update(1, strategy.name)
    if plot:
        _draw(plot, runner, data, floors, rows)
    console.report(_document(runner, data, floors, numpy, rows), _text(runner, data, floors, numpy, rows))
    if any(outcome.state in ("wrong", "failed") for _, outcomes in rows for outcome in outcomes):
        raise click.exceptions.Exit(1)


def _selected(patterns: Sequence[str]) -> list[Strategy]:
    if "all" in patterns:
        return list(STRATEGIES.values())
    try:
        return select(patterns)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--strategy") from error


def _parameters(texts: Sequence[str], chosen: Sequence[Strategy]) -> dict[str, int]:
    parameters = {}
    names = sorted({name for strategy in chosen for name in strategy.parameters})
    for text in texts:
        name, _, value = text.partition("=")
        if name not in names or not value.isdecimal() or int(value) < 1:
            expected = f"{', '.join(names)} = a whole number of at least 1" if names else "none for these strategies"
            raise click.BadParameter(f"expected {expected}; got {text!r}", param_hint="--parameter")
        parameters[name] = int(value)
    return parameters


def _data(name: str, size: int, bins: Sequence[int]) -> Iterator[DataSet]:
    """Yield the inputs that a word or a file of ``--data`` stands for."""
    factor = re.fullmatch(r"rf(\d+)", name)
    path = Path(name)
    if name == "uniform" or factor:
        for number in bins or _BINS:
            yield datasets.uniform(size, number, int(factor[1]) if factor else 1)
    elif name in (*datasets.THESIS, "thesis"):
        for dataset in datasets.THESIS if name == "thesis" else (name,):
            yield datasets.thesis(dataset, size)
    elif path.suffix.lower() == ".txt":
        text = path.read_bytes()
        for number in bins or (5,):
            yield datasets.letters(path.name, text, number)
    elif name == "photograph" or path.suffix:
        image = photograph(*_PHOTOGRAPH) if name == "photograph" else read_image(path)
        for number in bins or (256,):
            yield datasets.pixels(path.name, image, number)
    else:
        expected = "uniform, rf and a number, D1 to D12, thesis, photograph, or a file"
        raise click.BadParameter(f"expected {expected}, got {name!r}", param_hint="--data")


def _listing(chosen: Sequence[Strategy]) -> str:
    lines = []
    for strategy in chosen:
        defaults = ", ".join(
            f"{name}={'auto' if value is None else value}" for name, value in strategy.parameters.items()
        )
        facts = [("does", strategy.summary), ("source", strategy.source), ("needs", strategy.needs)]
        facts += [("operators", strategy.operators)]
        facts += [("parameters", defaults)] if defaults else []
        lines += [strategy.name, table(facts)]
    return "\n".join(lines)


def _record(strategy: Strategy) -> dict[str, Any]:
    names = ("name", "summary", "source", "needs", "operators")
    return {name: getattr(strategy, name) for name in names} | {"parameters": dict(strategy.parameters)}


def _numpy_seconds(data: DataSet) -> float:
    """Return what `numpy.bincount` takes on one core, the median of three; of inputs with other elements their bins."""
    # Not timed: bincount takes no bins out of range, and would convert other types.
    inside = data.bins[(data.bins >= 0) & (data.bins < data.num_bins)].astype(np.intp)
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        np.bincount(inside, minlength=data.num_bins)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def _times(outcome: StrategyOutcome, floor: float) -> float | None:
    return None if outcome.median is None else outcome.median / floor


def _text(
    runner: Runner, data: Sequence[DataSet], floors: Sequence[float], numpy: Sequence[float], rows: Sequence[Row]
) -> str:
    reasons: dict[str, int] = {}
    heads = [
        (dataset.name, f"{dataset.num_bins:,}", f"{floor * 1e6:,.4g}")
        for dataset, floor in zip(data, floors, strict=True)
    ]
    lines = [("input", *(head[0] for head in heads)), ("bins", *(head[1] for head in heads))]
    lines += [("F, µs", *(head[2] for head in heads)), ("",) * (1 + len(data))]
    fastest = [_fastest(rows, n) for n in range(len(data))]
    for strategy, outcomes in rows:
        cells = []
        for n, outcome in enumerate(outcomes):
            times = _times(outcome, floors[n])
            if times is None:
                reason = f"{outcome.state}: {outcome.note}" if outcome.state != "not applicable" else outcome.note
                # Equal reasons share a number, which the lines below the table explain.
                cells.append(f"({reasons.setdefault(reason, len(reasons) + 1)}) ")
            else:
                cells.append(f"{times:,.2f}{'*' if fastest[n] == strategy.name else ' '}")
        lines.append((strategy.name, *cells))
    lines.append(
        ("numpy.bincount", *(f"{seconds / floor:,.2f} " for seconds, floor in zip(numpy, floors, strict=True)))
    )
    text = [f"{_device(runner)}: {data[0].elements.size:,} elements; times in multiples of F", "", grid(lines)]
    if reasons:
        text += ["", table([(f"({number})", reason) for reason, number in reasons.items()], indent=0)]
    return "\n".join(text)


def _device(runner: Runner) -> str:
    device = runner.queue.device
    return f"{device.name.strip()} ({device.platform.name.strip()})"


def _fastest(rows: Sequence[Row], n: int) -> str | None:
    timed = [(outcomes[n].median, strategy.name) for strategy, outcomes in rows if outcomes[n].median is not None]
    return min(timed)[1] if timed else None


def _document(
    runner: Runner, data: Sequence[DataSet], floors: Sequence[float], numpy: Sequence[float], rows: Sequence[Row]
) -> dict[str, Any]:
    return {
        "device": runner.queue.device.name.strip(),
        "platform": runner.queue.device.platform.version.strip(),
        "inputs": [
            {
                "name": dataset.name,
                "num_elements": dataset.elements.size,
                "num_bins": dataset.num_bins,
                "race_factor": dataset.race_factor,
                "floor": floor,
                "numpy": numpy[n],
                "fastest": _fastest(rows, n),
                "strategies": [
                    {
                        "name": strategy.name,
                        "source": strategy.source,
                        "state": outcomes[n].state,
                        "note": outcomes[n].note,
                        "seconds": outcomes[n].seconds,
                        "times": _times(outcomes[n], floor),
                    }
                    for strategy, outcomes in rows
                ],
            }
            for n, (dataset, floor) in enumerate(zip(data, floors, strict=True))
        ],
    }


def _draw(path: Path, runner: Runner, data: Sequence[DataSet], floors: Sequence[float], rows: Sequence[Row]) -> None:
    """Draw a table of colours: strategies down, inputs across."""
    values = np.array(
        [
            [_times(outcome, floor) or np.nan for outcome, floor in zip(outcomes, floors, strict=True)]
            for _, outcomes in rows
        ]
    )
    with figure(path, figsize=(4 + 0.9 * len(data), 1.5 + 0.25 * len(rows))) as drawing:
        ax = drawing.subplots()
        image = ax.imshow(np.log10(values), aspect="auto", cmap="viridis_r")
        ax.set_xticks(range(len(data)), [f"{dataset.name}\n{dataset.num_bins:,}" for dataset in data], fontsize="small")
        ax.set_yticks(range(len(rows)), [strategy.name for strategy, _ in rows], fontsize="small")
        # Text is white on the darker colours, which are those of longer times.
        middle = float(np.nanmean(np.log10(values))) if np.isfinite(values).any() else 0.0
        for (row, column), value in np.ndenumerate(values):
            text = f"{value:,.3g}" if np.isfinite(value) else "–"
            best = rows[row][0].name == _fastest(rows, column)
            colour = "white" if np.isfinite(value) and np.log10(value) > middle else "black"
            ax.text(column, row, text, ha="center", va="center", fontsize="x-small", color=colour,
                    weight="bold" if best else "normal")  # fmt: skip
        drawing.colorbar(image, label="log10 of the time in multiples of F")
        ax.set_title(_device(runner), fontsize="medium")
