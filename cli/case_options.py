"""What the commands of the case studies share: --json, --plot, --output, and errors of files as messages."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clhist.cli.bench_plot import FORMATS, require_matplotlib

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
def messages() -> Iterator[None]:
    """Turn what readers of files raise into click's errors: they name the file and the reason."""
    try:
        yield
    except (ValueError, ImportError) as error:
        raise click.ClickException(str(error)) from error


def report(values: dict[str, Any], text: str, *, as_json: bool) -> None:
    """Print `values` as one JSON object, or `text`."""
    click.echo(json.dumps(values, indent=1) if as_json else text)
