"""`clhist reproduce`: the measurements and claims of a source on this device, as text, JSON and an HTML page."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import click
import numpy as np

import clhist
from clhist import default_queue
from clhist.cli.console import Console, check_writable, shared_options, writing
from clhist.cli.paper_table import UPDATES
from clhist.cli.plan import NUMBER
from clhist.cli.reproduce import claims, published
from clhist.cli.reproduce.page import VERDICTS, page
from clhist.cli.reproduce.sc20 import Input, Lab, Point, applications, model_table
from clhist.cli.tables import grid
from clhist.strategies import STRATEGIES, Runner

_QUICK_BINS = (31, 2041, 49145, 196607)
_QUICK_SIZES = {"cpu": 200_000, "gpu": 5_000_000}
_LOCAL_BINS = 49145  # the most of Figure 7 in local memory
_LEAST_GLOBAL_BINS = 12281  # the fewest of Table I in global memory


def _html_file(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    if path is not None:
        check_writable(context, option, path, (".html", ".htm"))
    return path


@click.command()
@click.argument("source", type=click.Choice(claims.SOURCES))
@click.option("--quick", is_flag=True, help="Four numbers of bins and few elements: a minute on two cores.")
@click.option(
    "-n",
    "--num-elements",
    type=NUMBER,
    metavar="N",
    help="Elements. [default: the paper's 50M; of --quick 5M on a GPU, 200,000 on a CPU]",
)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=_html_file,
    metavar="FILE",
    help="Write an HTML page with all numbers and pictures.",
)
@shared_options()
def reproduce(console: Console, source: str, quick: bool, num_elements: int | None, output: Path | None) -> None:
    """Measure here what a paper measured, and say which of its claims hold.

    SOURCE is sc20 (Henriksen et al.: Tables I to III and Figure 7), blog, handbook, shams-kennedy or thesis. Every
    result is compared with NumPy's before it is timed. Times are those of the device, medians of 3 to 9 runs.

    \b
    Example:
      clhist reproduce sc20 --quick --output sc20.html
    """
    queue = default_queue()
    lab = Lab(queue.context)
    size = _QUICK_SIZES[lab.profile.kind] if quick else published.SIZE
    if num_elements is not None:
        size = num_elements
    # The argmax of the claims has positions of 32 bits.
    if not 0 < size < 2**31:
        raise click.BadParameter(f"expected 1 to {2**31 - 1:,}, got {size:,}", param_hint="--num-elements")
    results: dict[str, Any] = {
        "source": source,
        "device": queue.device.name.strip(),
        "platform": queue.device.platform.version.strip(),
        "clhist": clhist.__version__,
        "date": datetime.now(UTC).isoformat(timespec="minutes"),
        "num_elements": size,
    }
    if source == "sc20":
        results |= _sc20(console, lab, size, quick=quick)
    else:
        results |= _of_strategies(console, source, size)
    if output:
        with writing(output):
            output.write_text(page(results), encoding="utf-8")
    wrong = results["wrong"]
    console.report({**_plain(results), "path": output and str(output)}, _text(results, output))
    if wrong:
        raise click.exceptions.Exit(1)


def _sc20(console: Console, lab: Lab, size: int, *, quick: bool) -> dict[str, Any]:
    bins = _QUICK_BINS if quick else published.BINS
    model = model_table(lab.profile)
    points: list[Point] = []
    # All inputs take their bins from the same elements, by a remainder.
    elements = np.random.default_rng(20).integers(0, 2**31 - 1, size, np.int32)
    every = [(h, factor, update) for h in bins for factor in published.RACE_FACTORS for update in UPDATES]
    with console.progress("reproduce", len(every) + len(published.TABLE_3)) as bar:
        for num_bins, factor, update in every:
            bar.item = f"{update}, RF {factor}, {num_bins:,} bins"
            memories = [name for name, fits in _memories(num_bins) if fits]
            points += lab.points(Input(elements, num_bins, factor), update, memories)
            bar.update()
        rows = []
        for row in applications(quick=quick):
            rows.append(row)
            bar.update(1, row.name)
    wrong = [f"{point.update}, {point.choice}, {point.num_bins:,} bins: {point.note}" for point in points
             if point.note.startswith("wrong")]  # fmt: skip
    wrong += [f"{row.command}: {row.note}" for row in rows if not row.passed]
    return {
        "model": model,
        "points": points,
        "applications": rows,
        "claims": list(claims.sc20(model, points)),
        "wrong": wrong,
    }


def _memories(num_bins: int) -> Iterator[tuple[str, bool]]:
    yield "local", num_bins <= _LOCAL_BINS
    yield "global", num_bins >= _LEAST_GLOBAL_BINS


def _of_strategies(console: Console, source: str, size: int) -> dict[str, Any]:
    runner = Runner(default_queue().context)
    pairs = dict.fromkeys(
        pair for comparison in claims.COMPARISONS[source] for pair in (comparison.over, comparison.under)
    )
    # Several strategies share an input.
    data = cache(lambda name: claims.data_of(name, size))
    with console.progress("reproduce", len(pairs)) as bar:
        outcomes = {}
        for name, data_name in pairs:
            bar.item = f"{name}, {data_name}"
            outcomes[name, data_name] = runner.outcome(STRATEGIES[name], data(data_name))
            bar.update()
    return {
        "times": [(*pair, outcome.state, outcome.median, outcome.note) for pair, outcome in outcomes.items()],
        "claims": list(claims.compared(source, lambda *pair: outcomes[pair].median)),
        "wrong": [
            f"{name}, {data_name}: {outcome.note}"
            for (name, data_name), outcome in outcomes.items()
            if outcome.state == "wrong"
        ],
    }


def _plain(value: Any) -> Any:
    """Return records by the names of their fields, for JSON."""
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if hasattr(value, "_asdict"):
        return _plain(value._asdict())
    return [_plain(entry) for entry in value] if isinstance(value, list) else value


def _text(results: dict[str, Any], output: Path | None) -> str:
    rows = [("where", "claim", "here", "")]
    for verdict in results["claims"]:
        number = "–" if verdict.found is None else f"{verdict.found:,.3g}"
        rows.append((verdict.where, verdict.claim, number, VERDICTS[verdict.holds]))
    lines = [
        f"{results['source']} on {results['device']}: {results['num_elements']:,} elements",
        "",
        grid(rows, left=(0, 1, 3)),
    ]
    lines += [f"wrong: {text}" for text in results["wrong"]]
    lines += [f"\nwritten to {output}"] if output else ["\n--output FILE.html writes all numbers and pictures"]
    return "\n".join(lines)
