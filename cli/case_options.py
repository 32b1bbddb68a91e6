"""What the commands of the case studies share: --json, --plot, --output, errors of files as messages, and times."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pyopencl as cl

from clhist.cli.bench_plot import FORMATS, require_matplotlib
from clhist.cli.bench_timing import pipelined

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


def output_option(what: str) -> Callable:
    """Give a command ``--output FILE.npz``, as `output`: a path that can be written, or None.

    Parameters
    ----------
    what : str
        The arrays that are saved, for the help.
    """
    return click.option(
        "--output", type=DATA, callback=_file_of((".npz",)), metavar="FILE.npz", help=f"Save {what} as NumPy's arrays."
    )


def _plot_file(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    path = _file_of(FORMATS)(context, option, path)
    if path is not None:
        require_matplotlib()
    return path


def _file_of(endings: tuple[str, ...]) -> Callable[[click.Context, click.Parameter, Path | None], Path | None]:
    """Return the callback that refuses a path of another ending, or in a folder that there is not."""

    def check(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
        if path is not None and path.suffix.lower() not in endings:
            raise click.BadParameter(f"expected a file {', '.join(endings)}, got {str(path)!r}", context, option)
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


def measure(call: partial[Any]) -> dict[str, Any]:
    """Return the device, the plan and the median seconds of a `clhist.HistogramKernel` with its arguments bound.

    Parameters
    ----------
    call : functools.partial
        Of a kernel of one operator; its first argument is an array whose elements are the kernel's, its `queue` is
        given. It was called before, so that all is built.
    """
    kernel, queue, num_bins = call.func, call.keywords["queue"], call.keywords["num_bins"]
    whole = pipelined(call, lambda _: queue.finish()).whole
    profiling = cl.CommandQueue(queue.context, queue.device, cl.command_queue_properties.PROFILING_ENABLE)
    timed = partial(kernel.timed, *call.args, **call.keywords | {"queue": profiling})  # type: ignore[attr-defined]
    stages = [timed()[1] for _ in whole.seconds]
    kernels = {stage: statistics.median(run[stage] for run in stages) for stage in stages[0]}
    plan = asdict(kernel.plan(call.args[0].size, num_bins, queue=queue))  # type: ignore[attr-defined]
    return {
        "device": queue.device.name.strip(),
        "plan": {key: value for key, value in plan.items() if key != "steps"},
        "seconds": {"call": whole.median, "kernels": sum(kernels.values()), **kernels},
    }


def measured_text(measured: dict[str, Any]) -> str:
    """Return what `measure` gives, in words."""
    plan, seconds = measured["plan"], measured["seconds"]
    milliseconds = {name: f"{value * 1e3:.3f}" for name, value in seconds.items()}
    call, kernels = milliseconds.pop("call"), milliseconds.pop("kernels")
    stages = ", ".join(f"{name} {value}" for name, value in milliseconds.items())
    return (
        f"on {measured['device']}\n"
        f"plan    {plan['update']} updates in {plan['memory']} memory, {plan['num_bins']:,} bins, "
        f"copies M = {plan['copies']}, passes S = {plan['passes']}\n"
        f"times   {call} ms a call; on the device {kernels} ms ({stages})"
    )


def report(values: dict[str, Any], text: str, *, as_json: bool) -> None:
    """Print `values` as one JSON object, or `text`."""
    click.echo(json.dumps(values, indent=1) if as_json else text)
