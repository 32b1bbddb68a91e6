"""The command `clhist`: its subcommands, each imported when it is asked for, and what they share."""

from __future__ import annotations

import os
import shutil
import textwrap
import traceback
from collections.abc import Callable, Collection, Sequence
from importlib import import_module
from typing import Any

import click

from clhist import __version__
from clhist.errors import BuildError, DeviceLostError, NoDeviceError, ProfileError, UnsupportedError
from clhist.hardware.profile import named_profile
from clhist.opencl.device import PROFILE_VARIABLE

COMMANDS = {
    "hist": "clhist.cli.hist.command:hist",
    "info": "clhist.cli.info:info",
    "calibrate": "clhist.cli.calibrate:calibrate",
    "plan": "clhist.cli.plan:plan",
    "bench": "clhist.cli.bench.command:bench",
    "strategies": "clhist.cli.strategies:strategies",
    "selftest": "clhist.cli.selftest:selftest",
    "gromacs": "clhist.cli.cases.gromacs:gromacs",
    "kmeans": "clhist.cli.cases.kmeans:kmeans_command",
    "histo": "clhist.cli.cases.histo:histo",
    "image": "clhist.cli.cases.image:image",
    "joint": "clhist.cli.cases.joint:joint",
    "tpacf": "clhist.cli.cases.tpacf:tpacf",
}


class LazyGroup(click.Group):
    """A group that imports a command when it is run or listed, and turns clhist's errors into messages."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name].partition(":")
        return getattr(import_module(module), attribute)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (NoDeviceError, DeviceLostError, ProfileError, UnsupportedError, BuildError, MemoryError) as error:
            raise click.ClickException(str(error) or "out of memory") from error
        except OSError as error:  # of a file; others, such as a closed pipe, are click's
            if error.filename is None:
                raise
            raise click.ClickException(f"{error.filename}: {error.strerror}") from error
        except (TypeError, ValueError) as error:
            if not _raised_by_clhist(error):
                raise
            raise click.ClickException(str(error)) from error


@click.command("clhist", cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s")
def main() -> None:
    """Generalized histograms ("reduce by index") on any OpenCL device.

    \b
    Example: what there is, and how 50 million elements would be counted on it
      clhist info
      clhist plan -n 50M -H 12281
    """


def profile_option(command: Callable) -> Callable:
    """Give a command ``--profile NAME``: while it runs, every kernel is planned with that profile."""
    return click.option(
        "--profile",
        metavar="NAME",
        expose_value=False,
        callback=_use_profile,
        help="Plan for the device of this profile; `clhist info --profiles` lists them. "
        f"[default: {PROFILE_VARIABLE}, or the device's own]",
    )(command)


def _use_profile(context: click.Context, option: click.Parameter, name: str | None) -> None:
    if name is None:
        return
    named_profile(name)  # which refuses names that there are not
    before = os.environ.get(PROFILE_VARIABLE)

    def restore() -> None:
        if before is None:
            del os.environ[PROFILE_VARIABLE]
        else:
            os.environ[PROFILE_VARIABLE] = before

    os.environ[PROFILE_VARIABLE] = name
    context.call_on_close(restore)


def table(rows: Sequence[Sequence[str]], *, indent: int = 2, right: Collection[int] = ()) -> str:
    """Return `rows` as aligned text of at most 100 columns, with the last column wrapped.

    Parameters
    ----------
    rows : sequence of rows of str
        All of one length.
    indent : int
        Spaces before each line.
    right : collection of int
        Columns that are aligned to the right; not the last.
    """
    width = min(max(shutil.get_terminal_size().columns, 80), 100)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for *cells, last in rows:
        aligned = [
            c.rjust(w) if n in right else c.ljust(w) for n, (c, w) in enumerate(zip(cells, widths, strict=False))
        ]
        start = " " * indent + "".join(f"{cell}  " for cell in aligned)
        text = textwrap.wrap(last, max(width - len(start), 20), break_long_words=False, break_on_hyphens=False)
        lines += [start + (text[0] if text else ""), *(" " * len(start) + more for more in text[1:])]
    return "\n".join(line.rstrip() for line in lines)


def bytes_text(number: int) -> str:
    """Return a number of bytes for people, and exactly: ``48 KiB (49,152 B)``."""
    for unit, size in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if number >= size:
            return f"{number / size:.4g} {unit} ({number:,} B)"
    return f"{number:,} B"


def _raised_by_clhist(error: Exception) -> bool:
    """Whether the library refused an argument; any other such error is a mistake and keeps its traceback."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    module = frame.f_globals.get("__name__", "")
    return module.startswith("clhist.") and not module.startswith("clhist.cli.")
