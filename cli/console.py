"""Output of all commands, and the options ``--json``, ``--device``, ``--profile`` and ``-q``."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import update_wrapper
from pathlib import Path
from time import perf_counter
from typing import Any

import click

from clhist._core.devices.profile import named_profile
from clhist._core.devices.profile_files import load_profiles
from clhist._core.opencl.device import PROFILE_VARIABLE, default_device, devices
from clhist.cli.progress import Progress, quiet_terminal
from clhist.cli.tables import escaped

_KEY = "clhist.console"
_SILENCE = 1.0  # seconds after which a command says that it runs
STDOUT = "-"


class InputError(click.ClickException):
    """Something is wrong with the input or the machine, not with a result: exit status 2."""

    exit_code = 2


@dataclass
class Console:
    """The output options of a command, and the device that it was asked to run on.

    Attributes
    ----------
    json : str or None
        Where JSON goes: a file, "-" for stdout in the place of the text, None for nowhere.
    device, platform : str or None
        Parts of the names of the device and of its platform.
    profile : str or None
        Name of a device profile to plan with.
    quiet : bool
        Whether progress is hidden.
    verbose : int
        How much more than the result is shown.
    line : Progress or None
        What is shown where the command is silent.
    """

    json: str | None = None
    device: str | None = None
    platform: str | None = None
    profile: str | None = None
    quiet: bool = False
    verbose: int = 0
    line: Progress | None = None

    @classmethod
    def of(cls, context: click.Context) -> Console:
        """Return the console of the command that runs in `context`."""
        # Nested contexts share `meta`, so that options of a group and of its command set one console.
        return context.meta.setdefault(_KEY, cls())

    @property
    def prints_text(self) -> bool:
        """Whether the text of the result goes to stdout."""
        return self.json != STDOUT

    def progress(self, label: str, total: float | None = None) -> Progress:
        """Return a line of progress on stderr, shown only on a terminal."""
        return Progress(label, total, hidden=self.quiet)

    def stage(self, label: str) -> None:
        """Say what is going on, where no other line of progress is shown for a second."""
        if self.line is not None:
            self.line.stage(label, compiles=False)

    @contextmanager
    def compiling(self) -> Iterator[FirstCall]:
        """Show that kernels are compiled, and measure how long the block takes."""
        first = FirstCall()
        with self.progress("compiling"):
            start = perf_counter()
            yield first
            first.seconds = perf_counter() - start

    def echo(self, text: str) -> None:
        """Print text, in which there may be some of files."""
        with quiet_terminal():
            click.echo(escaped(text, keep="\n"))

    def report(self, values: Any, text: str | Callable[[], str]) -> None:
        """Print the text, or write `values` as JSON, or both; exit with status 1 if ``values["passed"]`` is false."""
        if self.json is not None:
            written = _as_json(values)
            if self.json == STDOUT:
                self.echo(written)
            else:
                with writing(Path(self.json)):
                    Path(self.json).write_text(written + "\n", encoding="utf-8")
        if self.prints_text:
            self.echo(text if isinstance(text, str) else text())
        if isinstance(values, dict) and not values.get("passed", True):
            raise click.exceptions.Exit(1)


def _as_json(value: Any, indent: str = "") -> str:
    """Return JSON with a line for each entry, and one for each list of numbers or words."""
    deeper = indent + " "
    if isinstance(value, dict) and value:
        lines = [f"{deeper}{json.dumps(str(key))}: {_as_json(entry, deeper)}" for key, entry in value.items()]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    if isinstance(value, list | tuple) and any(isinstance(entry, dict | list | tuple) for entry in value):
        return "[\n" + ",\n".join(deeper + _as_json(entry, deeper) for entry in value) + f"\n{indent}]"
    # NaN and infinities are no JSON: a document has null in their place.
    return json.dumps(value, allow_nan=False)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Name the file in the message if it cannot be written: a full disk does not say whose it is."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error


@dataclass
class FirstCall:
    """The seconds of a first call, with the compilation of its kernels."""

    seconds: float = 0.0


def shared_options(
    *, device: bool = True, profile: bool = True, applied: bool = True
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the options that all have, and a `Console` as its first argument.

    Parameters
    ----------
    device, profile : bool
        Whether it takes ``--device`` and ``--platform``, and ``--profile``.
    applied : bool
        Whether these choose the default device and its profile while the command runs; else it reads the console's.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @click.pass_context
        def command(context: click.Context, *args: Any, **kwargs: Any) -> Any:
            console = Console.of(context)
            console.line = Progress(context.info_name or "", hidden=console.quiet, compiles=False, delay=_SILENCE)
            context.with_resource(console.line)
            if applied:
                _apply(context, console)
            return context.invoke(function, console, *args, **kwargs)

        update_wrapper(command, function)
        # The first two options choose the device, the third the profile. Decorators apply from the last one on.
        for option in reversed([*_RUN[: 2 * device], *_RUN[2:] * profile, *_OUTPUT]):
            command = option(command)
        return command

    return decorate


def _apply(context: click.Context, console: Console) -> None:
    if console.profile is not None:
        # Raises for an unknown name.
        named_profile(console.profile)
        # Processes that a command starts inherit the environment.
        context.with_resource(_environment(PROFILE_VARIABLE, console.profile))
    if console.device is not None or console.platform is not None:
        context.with_resource(default_device(devices(console.platform, console.device)[0]))


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _kept(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def keep(context: click.Context, option: click.Parameter, value: Any) -> None:
        if value is not None:
            setattr(Console.of(context), name, value)

    return keep


def _json_file(context: click.Context, option: click.Parameter, value: str | None) -> None:
    """Refuse a file that could be data: after ``--json`` the next word is taken for its file."""
    if value not in (None, STDOUT):
        check_writable(context, option, Path(str(value)), (".json",))
    Console.of(context).json = value


def check_writable(context: click.Context, option: click.Parameter, path: Path, endings: tuple[str, ...]) -> None:
    """Refuse, before anything is computed, a file of another ending or one that cannot be written afterwards."""
    if path.suffix.lower() not in endings:
        raise click.BadParameter(f"expected a file {' or '.join(endings)}, got {str(path)!r}", context, option)
    if not path.absolute().parent.is_dir():
        raise click.BadParameter(f"expected a file in a folder that exists, got {str(path)!r}", context, option)
    # A new file needs a folder that can be written, an existing one only its own permission.
    if not os.access(path if path.exists() else path.absolute().parent, os.W_OK) or path.is_dir():
        raise click.BadParameter(f"expected a file that can be written, got {str(path)!r}", context, option)


def _option(*names: str, **settings: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    name = names[-1].lstrip("-")
    return click.option(*names, **{"expose_value": False, "callback": _kept(name), **settings})


def completed(names: Callable[[], Iterable[str]]) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Return the shell completion of an option that takes one of these names, in any case."""

    def complete(context: click.Context, option: click.Parameter, begun: str) -> list[str]:
        return [name for name in names() if name.lower().startswith(begun.lower())]

    return complete


_RUN = [
    _option("--device", metavar="NAME", help="Run on the device whose name contains NAME."),
    _option("--platform", metavar="NAME", help="Run on a platform whose name contains NAME."),
    _option(
        "--profile",
        metavar="NAME",
        shell_complete=completed(lambda: [profile.key for profile in load_profiles(broken=lambda path, error: None)]),
        help="Plan with this profile (see clhist info --profiles).",
    ),
]
_OUTPUT = [
    _option(
        "--json",
        metavar="[FILE]",
        is_flag=False,
        flag_value=STDOUT,
        callback=_json_file,
        help="Print JSON instead of text, or write it to FILE (.json).",
    ),
    _option("-q", "--quiet", is_flag=True, help="Show no progress."),
    _option("-v", "--verbose", count=True, help="Show more detail; tracebacks of errors."),
]
