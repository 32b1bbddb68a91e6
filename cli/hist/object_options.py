"""The options of `clhist hist --axis`, and what they do together."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from clhist.cli.cases.options import DATA
from clhist.cli.console import Console, InputError, check_writable, writing
from clhist.cli.hist import objects
from clhist.cli.hist.condition import Condition
from clhist.cli.hist.objects import AxisSpec
from clhist.cli.hist.tables import open_table


class _AxisType(click.ParamType):
    name = "axis"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, AxisSpec):
            return value
        try:
            return AxisSpec.of(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _object_file(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    if path is not None:
        check_writable(context, option, path, objects.ENDINGS)
    return path


def object_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of histogram objects."""
    options = (
        click.option(
            "-a",
            "--axis",
            "axes",
            type=_AxisType(),
            multiple=True,
            metavar="NAME=KIND(...)",
            help=f"An axis of a histogram object, in place of --column: {objects.EXAMPLES}.",
        ),
        click.option("--storage", type=click.Choice(objects.STORAGES), help="What bins hold. [default: double]"),
        click.option("--sample", metavar="NAME", help="Average this column, for --storage mean and weighted_mean."),
        click.option(
            "--output",
            type=DATA,
            callback=_object_file,
            metavar="FILE",
            help=f"Save the object as UHI has it: {', '.join(objects.ENDINGS)}.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def check_no_object(**options: Any) -> None:
    """Refuse options of histogram objects without an axis."""
    for name, value in options.items():
        if value is not None:
            raise click.UsageError(f"--{name}: expected --axis as well")


def fill_object(
    console: Console,
    files: tuple[Path, ...],
    axes: tuple[AxisSpec, ...],
    storage: str,
    weight: str | None,
    sample: str | None,
    where: str | None,
    output: Path | None,
    plot: Path | None,
    others: Mapping[str, Any],
) -> None:
    """Fill a histogram object, write it and say what it is; `others` are options that do not go with it."""
    for name, value in others.items():
        if value:
            raise click.UsageError(f"{name}: expected none beside --axis")
    # Storages of means need a sample, and no others take one.
    if ("mean" in storage) != (sample is not None):
        expected = "expected a column" if sample is None else "expected --storage mean or weighted_mean"
        raise click.UsageError(f"--sample: {expected} for --storage {storage}")
    with input_errors():
        try:
            # Checked before any file is opened.
            import hist as _  # noqa: F401
        except ImportError as error:
            raise ImportError(f"--axis: needs {error.name}; pip install boost-histogram hist uhi") from error
        tables = [open_table(path) for path in files]
        with console.progress("reading", 1.0) as line:
            condition = Condition(where) if where else None
            h, missing = objects.filled(
                tables, axes, storage, weight, sample, condition, lambda part: line.update(part - line.done)
            )
        if output is not None:
            with writing(output):
                objects.write(h, output)
    what = f"mean of {sample}" if sample else f"sum of {weight}" if weight else "count"
    if plot is not None:
        objects.draw(h, plot, what, axes)
    document = json.loads(objects.as_json(h)) if console.json is not None else None
    console.report(document, lambda: objects.report(h, missing, what))


@contextmanager
def input_errors() -> Iterator[None]:
    """Turn what is wrong with files, or with what is asked of them, into messages."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{error.filename}: {error.strerror}" if error.filename else str(error)) from error
    except (ValueError, ImportError) as error:
        raise InputError(str(error)) from error
