"""Options that the commands of the case studies share: files, errors of files as messages, plans and times."""

from __future__ import annotations

import hashlib
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from clhist import Bound, Plan
from clhist.cli.console import FirstCall, InputError, check_writable, writing
from clhist.cli.tables import folded

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DATA = click.Path(dir_okay=False, path_type=Path)
_SECONDS = 0.5  # about what is spent on timing one thing
_PICTURES = (".png", ".svg", ".pdf")


def plot_option(what: str) -> Callable:
    """Give a command ``--plot FILE``, as `plot`: a path that matplotlib can write, or None.

    Parameters
    ----------
    what : str
        Noun phrase for the help.
    """
    return click.option(
        "--plot",
        type=DATA,
        callback=_plot_file,
        metavar="FILE",
        help=f"Draw {what} into a .png, .svg or .pdf (needs matplotlib).",
    )


def output_option(what: str, *endings: str) -> Callable:
    """Give a command ``--output FILE``, as `output`: a path that can be written, or None.

    Parameters
    ----------
    what : str
        The saved arrays, for the help.
    *endings : str
        File types besides .npz.
    """
    return click.option(
        "--output",
        type=DATA,
        callback=_file_of((".npz", *endings)),
        metavar="|".join(f"FILE{ending}" for ending in (".npz", *endings)),
        help=f"Save {what}.",
    )


def only_generated(quick: bool, data: object) -> None:
    """Refuse ``--quick`` together with files."""
    if quick and data:
        raise click.UsageError("--quick: expected only with generated data, got files")


def _plot_file(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    path = _file_of(_PICTURES)(context, option, path)
    if path is not None:
        try:
            # Checked before anything is computed.
            import matplotlib  # noqa: F401
        except ImportError as error:
            raise InputError('--plot: needs matplotlib: pip install "clhist[plot]"') from error
    return path


def _file_of(endings: tuple[str, ...]) -> Callable[[click.Context, click.Parameter, Path | None], Path | None]:
    """Return the callback that refuses a path of another ending, or one that cannot be written."""

    def check(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
        if path is not None:
            check_writable(context, option, path, endings)
        return path

    return check


@contextmanager
def figure(path: Path, **options: Any) -> Iterator[Figure]:
    """A figure of matplotlib, without a window, that is written into `path` at the end."""
    from matplotlib.figure import Figure

    drawing = Figure(layout="constrained", **options)
    yield drawing
    with writing(path):
        drawing.savefig(path, dpi=150)


@contextmanager
def messages(name: object = None) -> Iterator[None]:
    """Turn the errors of file readers, which name the file, into messages.

    The library's errors about a file's content do not name it: `name` is put before them.
    """
    try:
        yield
    except (ValueError, ImportError) as error:
        raise InputError(str(error) if name is None else f"{name}: {error}") from error


def save(path: Path, **arrays: Any) -> None:
    """Write `arrays` into the .npz file `path`, whatever the case of its ending."""
    with writing(path), open(path, "wb") as file:
        np.savez_compressed(file, **arrays)


def plan_values(plan: Plan) -> dict[str, Any]:
    """Return what a plan says for ``--json``: all but how it was found."""
    values = {field.name: getattr(plan, field.name) for field in fields(plan) if field.name not in ("steps", "outputs")}
    # The plan of a part, such as exact sums of few bins, is a field.
    values = {name: plan_values(value) if isinstance(value, Plan) else value for name, value in values.items()}
    return {"strategy": plan.strategy, **values}


def plan_text(plan: dict[str, Any]) -> str:
    """Return the values of `plan_values` as text."""
    return folded(
        f"plan    {plan['update']} updates in {plan['memory']} memory, {plan['num_bins']:,} bins, "
        f"copies M = {plan['copies']}, passes S = {plan['passes']}"
    )


def times_text(seconds: dict[str, float]) -> str:
    """Return the seconds of a ``call``, of its ``kernels`` together, of each, and of ``compiling``, in words."""
    milliseconds = {name: f"{value * 1e3:,.3f}" for name, value in seconds.items()}
    call, kernels = milliseconds.pop("call"), milliseconds.pop("kernels")
    compiling = f"; compiling {seconds['compiling']:.2f} s" if milliseconds.pop("compiling", None) else ""
    stages = ", ".join(f"{name} {value}" for name, value in milliseconds.items())
    return folded(f"times   {call} ms per call, {kernels} ms of it in kernels ({stages}){compiling}")


def timed_calls(timed: Callable[[], dict[str, float]]) -> dict[str, float]:
    """Return the median seconds of a ``call`` until its result is there, of its ``kernels``, and of each of them.

    Call and kernels are of the same runs, so that a call is never shorter than its kernels.

    Parameters
    ----------
    timed : callable
        Makes the call, waits for it, and returns the seconds of each kernel by the device's clock.
    """
    calls, stages = list[float](), list[dict[str, float]]()
    # 3 to 15 runs: short calls are repeated until the time is spent.
    while len(calls) < 3 or (len(calls) < 15 and sum(calls) < _SECONDS):
        start = time.perf_counter()
        stages.append(timed())
        calls.append(time.perf_counter() - start)
    kernels = {stage: statistics.median(run[stage] for run in stages) for stage in stages[0]}
    # Sum each run before the median: medians of stages may be of different runs.
    together = statistics.median(sum(run.values()) for run in stages)
    return {"call": statistics.median(calls), "kernels": together, **kernels}


def digest(array: np.ndarray) -> str:
    """Return the first eight hexadecimal digits of the SHA-256 of an array's bytes."""
    return hashlib.sha256(array.tobytes()).hexdigest()[:8]


def places_off(total: np.floating, terms: Iterable[float]) -> float:
    """Return how many units in its last place `total` is from the exact sum of `terms`: 0.5 at most if rounded once."""
    if not np.isfinite(total):
        return math.inf
    # fsum rounds its exact sum once, so the difference keeps its digits.
    return abs(math.fsum((*terms, -float(total)))) / float(np.spacing(abs(total)))


def measure(bound: Bound, first: FirstCall | None = None) -> dict[str, Any]:
    """Return the device, the plan and the median seconds of a bound call of one operator, on device arrays.

    It was called before, so that all is built; `first` is how long that took.
    """
    seconds = timed_calls(lambda: bound.timed()[0])
    if first is not None:
        seconds["compiling"] = max(0.0, first.seconds - seconds["call"])
    return {"device": bound.queue.device.name.strip(), "plan": plan_values(bound.plan), "seconds": seconds}


def measured_text(measured: dict[str, Any]) -> str:
    """Return the values of `measure` as text."""
    return f"on {measured['device']}\n{plan_text(measured['plan'])}\n{times_text(measured['seconds'])}"
