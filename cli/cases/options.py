"""What the commands of the case studies share: options, errors of files as messages, plans and times, and reports."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from clhist import Bound, Plan
from clhist.cli.bench.plot import FORMATS, require_matplotlib
from clhist.cli.bench.timing import pipelined

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DATA = click.Path(dir_okay=False, path_type=Path)


def json_option(command: Callable) -> Callable:
    """Give a command ``--json``, as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")(command)


def plot_option(what: str) -> Callable:
    """Give a command ``--plot FILE``, as `plot`: a path that matplotlib can write, or None.

    Parameters
    ----------
    what : str
        What is drawn, for the help.
    """
    return click.option(
        "--plot", type=DATA, callback=_plot_file, help=f"Draw {what} into this .png, .svg or .pdf (needs matplotlib)."
    )


def output_option(what: str, *endings: str) -> Callable:
    """Give a command ``--output FILE``, as `output`: a path that can be written, or None.

    Parameters
    ----------
    what : str
        The arrays that are saved in an .npz file, for the help; and what else is.
    *endings : str
        Of other files that may be written.
    """
    return click.option(
        "--output",
        type=DATA,
        callback=_file_of((".npz", *endings)),
        metavar="|".join(f"FILE{ending}" for ending in (".npz", *endings)),
        help=f"Save {what}.",
    )


def only_generated(quick: bool, data: object) -> None:
    """Refuse ``--quick`` where there are data, which it would not change."""
    if quick and data:
        raise click.UsageError("--quick: expected only where data are generated, got files")


def _plot_file(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    path = _file_of(FORMATS)(context, option, path)
    if path is not None:
        require_matplotlib()
    return path


def _file_of(endings: tuple[str, ...]) -> Callable[[click.Context, click.Parameter, Path | None], Path | None]:
    """Return the callback that refuses a path of another ending, or in a folder that there is not."""

    def check(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
        if path is not None and path.suffix.lower() not in endings:
            raise click.BadParameter(f"expected a file {' or '.join(endings)}, got {str(path)!r}", context, option)
        if path is not None and not path.parent.is_dir():
            raise click.BadParameter(f"expected a file in a folder that exists, got {str(path)!r}", context, option)
        return path

    return check


@contextmanager
def figure(path: Path, **options: Any) -> Iterator[Figure]:
    """A figure of matplotlib, without a window, that is written into `path` at the end."""
    from matplotlib.figure import Figure

    drawing = Figure(layout="constrained", **options)
    yield drawing
    drawing.savefig(path, dpi=150)


@contextmanager
def messages(name: object = None) -> Iterator[None]:
    """Turn what readers of files raise into click's errors: they name the file and the reason.

    What the library says of a file's content does not: then `name` is put before it.
    """
    try:
        yield
    except (ValueError, ImportError) as error:
        raise click.ClickException(str(error) if name is None else f"{name}: {error}") from error


def save(path: Path, **arrays: Any) -> None:
    """Write `arrays` into the .npz file `path`, whatever the case of its ending."""
    with open(path, "wb") as file:
        np.savez_compressed(file, **arrays)


def plan_values(plan: Plan) -> dict[str, Any]:
    """Return what a plan says for ``--json``: all but how it was found."""
    return {key: value for key, value in asdict(plan).items() if key != "steps"}


def plan_text(plan: dict[str, Any]) -> str:
    """Return what `plan_values` gives, in words."""
    return (
        f"plan    {plan['update']} updates in {plan['memory']} memory, {plan['num_bins']:,} bins, "
        f"copies M = {plan['copies']}, passes S = {plan['passes']}"
    )


def times_text(seconds: dict[str, float]) -> str:
    """Return the seconds of a ``call``, of its ``kernels`` together, and of each, in words."""
    milliseconds = {name: f"{value * 1e3:,.3f}" for name, value in seconds.items()}
    call, kernels = milliseconds.pop("call"), milliseconds.pop("kernels")
    stages = ", ".join(f"{name} {value}" for name, value in milliseconds.items())
    return f"times   {call} ms a call; on the device {kernels} ms ({stages})"


def measure(bound: Bound) -> dict[str, Any]:
    """Return the device, the plan and the median seconds of a bound call of one operator, on device arrays.

    It was called before, so that all is built.
    """
    whole = pipelined(bound, lambda _: bound.queue.finish()).whole
    stages = bound.timed(len(whole.seconds))
    kernels = {stage: statistics.median(run[stage] for run in stages) for stage in stages[0]}
    return {
        "device": bound.queue.device.name.strip(),
        "plan": plan_values(bound.plan),
        "seconds": {"call": whole.median, "kernels": sum(kernels.values()), **kernels},
    }


def measured_text(measured: dict[str, Any]) -> str:
    """Return what `measure` gives, in words."""
    return f"on {measured['device']}\n{plan_text(measured['plan'])}\n{times_text(measured['seconds'])}"


def report(values: dict[str, Any], text: str, *, as_json: bool) -> None:
    """Print `values` as one JSON object, or `text`; if the result did not pass its check, exit with status 1."""
    click.echo(json.dumps(values, indent=1) if as_json else text)
    if not values.get("passed", True):
        raise click.exceptions.Exit(1)
