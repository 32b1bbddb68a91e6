"""The command `clhist`: a group that imports a subcommand only when it is asked for, and turns errors into messages."""

from __future__ import annotations

import errno
import os
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NamedTuple

import click

from clhist import __version__
from clhist.cli.console import Console, InputError
from clhist.cli.interrupt import interruptible
from clhist.cli.tables import escaped
from clhist.errors import BuildError, DeviceLostError, NoDeviceError, ProfileError, UnsupportedError

INTERRUPTED = 130  # exit status: 128 + SIGINT, as shells report it


class Subcommand(NamedTuple):
    """A subcommand: where it is, and its line in `clhist --help`, which imports none of them."""

    target: str
    summary: str


SECTIONS: dict[str, dict[str, Subcommand]] = {
    "Histograms": {
        "demo": Subcommand("clhist.cli.demo:demo", "Draw, check and time one histogram"),
        "hist": Subcommand("clhist.cli.hist.command:hist", "Histograms and statistics of columns of files"),
        "bench": Subcommand("clhist.cli.bench:bench", "Time clhist, alone or beside others (in a clone)"),
    },
    "Device": {
        "info": Subcommand("clhist.cli.info:info", "Show the OpenCL devices"),
        "warm": Subcommand("clhist.cli.warm:warm", "Compile what common calls need"),
        "selftest": Subcommand("clhist.cli.selftest:selftest", "Check that a device computes right"),
        "calibrate": Subcommand("clhist.cli.calibrate:calibrate", "Measure a device and write its profile"),
        "report": Subcommand("clhist.cli.report.command:report", "Write an HTML page about a device"),
    },
    "Model": {
        "plan": Subcommand("clhist.cli.plan:plan", "Show how a histogram is computed"),
        "strategies": Subcommand("clhist.cli.strategies:strategies", "Run the published strategies"),
        "reproduce": Subcommand("clhist.cli.reproduce.command:reproduce", "Measure what a paper did, here"),
    },
    "Case studies": {
        "gromacs": Subcommand("clhist.cli.cases.gromacs:gromacs", "Forces of a pair list"),
        "kmeans": Subcommand("clhist.cli.cases.kmeans:kmeans_command", "k-means clustering"),
        "histo": Subcommand("clhist.cli.cases.histo:histo", "Saturating 2-D histogram of points"),
        "image": Subcommand("clhist.cli.cases.image:image", "Histograms of 8-bit images"),
        "joint": Subcommand("clhist.cli.cases.joint:joint", "Mutual information of two images"),
        "tpacf": Subcommand("clhist.cli.cases.tpacf:tpacf", "Two-point angular correlation"),
    },
}
COMMANDS = {name: entry for section in SECTIONS.values() for name, entry in section.items()}

# What a user can mend, or the machine lacks; any other error is a defect and keeps its traceback.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EPIPE, errno.EBADF, errno.EIO)  # of what is written to
_EXPECTED = (NoDeviceError, DeviceLostError, ProfileError, UnsupportedError, BuildError, MemoryError)


class LazyGroup(click.Group):
    """A group that imports a command when it is run, and turns clhist's errors into messages."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name].target.partition(":")
        return getattr(import_module(module), attribute)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches

            name = args[0]
            close = get_close_matches(name, COMMANDS, n=2)
            hint = f" Did you mean {' or '.join(close)}?" if close else ""
            raise click.UsageError(f"No such command {name!r}.{hint}", ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, entries in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, entry.summary) for name, entry in entries.items()])

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with _messages(None):  # of what --help and --version print
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        with _messages(ctx):
            return super().invoke(ctx)


@contextmanager
def _messages(ctx: click.Context | None) -> Iterator[None]:
    """Turn what a user can mend, and what becomes of the output, into messages that a terminal may show."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo("\ninterrupted", err=True)
        raise click.exceptions.Exit(INTERRUPTED) from None
    except click.ClickException as error:
        # A message may quote a file, whose control characters a terminal must not get.
        vars(error)["message"] = escaped(error.message, keep="\n")
        raise
    except _EXPECTED as error:
        raise _message(ctx, str(error) or "out of memory") from error
    except OSError as error:
        reason = error.strerror or str(error)
        if error.filename is not None:
            raise _message(ctx, f"{error.filename}: {reason}") from error
        raise _message(ctx, f"output: {reason}" if error.errno in _FULL else reason) from error
    except (TypeError, ValueError) as error:
        if not _raised_by_clhist(error):
            raise
        raise _message(ctx, str(error)) from error


def _message(ctx: click.Context | None, text: str) -> InputError:
    if ctx is not None and Console.of(ctx).verbose:
        click.echo(escaped(traceback.format_exc(), keep="\n"), err=True)
    return InputError(escaped(text, keep="\n"))


@click.command("clhist", cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s")
def main() -> None:
    """Generalized histograms ("reduce by index") on any OpenCL device.

    Results go to stdout, progress and errors to stderr. Exit status: 0 right, 1 a wrong result, 2 wrong usage or input.

    \b
    Examples:
      clhist info
      clhist plan -n 50M -H 12281
    """


def run() -> None:
    """Run the command and end the process: the entry point of the script and of ``python -m clhist``."""
    # Intel's and NVIDIA's compilers always have something to say, also about PyOpenCL's own kernels.
    warnings.filterwarnings("ignore", "Non-empty compiler output encountered")
    status: Any = 0
    with interruptible(INTERRUPTED):
        try:
            if sys.stdout is None:
                raise InputError("output: the standard output is closed")
            # Characters that the encoding lacks become escapes instead of errors.
            sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
            main(prog_name="clhist")
        except SystemExit as end:
            status = end.code
        except click.ClickException as error:
            error.show()
            status = error.exit_code
        except OSError:
            # Not even the message can be written.
            status = InputError.exit_code
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except OSError:
            status = status or InputError.exit_code
            # Python flushes the stream again at its end, which would raise.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(status)


def _raised_by_clhist(error: Exception) -> bool:
    """Whether the library refused an argument; any other such error is a mistake and keeps its traceback."""
    # The innermost frame is the one that raised.
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    module = frame.f_globals.get("__name__", "")
    return module.startswith("clhist.") and not module.startswith("clhist.cli.")
