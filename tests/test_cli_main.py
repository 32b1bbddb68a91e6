"""The command group: lazy commands, and errors as messages."""

import os
import re

import click
import pytest
from click.testing import CliRunner

import clhist
from clhist import errors
from clhist.cli import main as cli
from clhist.hardware.profile_files import PARAMETERS
from clhist.opencl.device import device_profile


def run(*arguments):
    return CliRunner().invoke(cli.main, arguments)


@pytest.fixture
def failing(monkeypatch):
    """Return a function that makes `clhist plan` raise."""

    def prepare(raising):
        command = click.Command("plan", callback=raising)
        monkeypatch.setattr("clhist.cli.plan.plan", command)

    return prepare


def test_help_lists_the_commands_with_an_example():
    result = run("--help")
    assert result.exit_code == 0
    assert "clhist plan -n 50M" in result.output
    assert "  info " in result.output
    assert "  plan " in result.output


@pytest.mark.parametrize("command", [name for name in cli.COMMANDS if name in cli.main.list_commands(None)])
def test_every_command_has_help_with_an_example(command):
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"clhist {command}" in result.output.partition("Example")[2]


@pytest.fixture
def profiles(tmp_path, monkeypatch, gpu_like):
    """Profiles of the user's: "small", which this device has, and "large", which it has not."""
    monkeypatch.setenv("CLHIST_PROFILES", str(tmp_path))
    for name, memory in (("small", 2048), ("large", 2**40)):
        numbers = {key: getattr(gpu_like, key) for key in PARAMETERS} | {"local_memory": memory}
        text = "".join(f"[{key}]\nvalue = {number}\nsource = 'for a test'\n" for key, number in numbers.items())
        (tmp_path / f"{name}.toml").write_text(f"name = '{name}'\nkind = 'gpu'\nmatch = ['no device']\n{text}")


@pytest.mark.parametrize("before", [None, "large"])
@pytest.mark.parametrize(
    "command", [["gromacs", "--quick", "--json"], ["bench", "-n", "1000", "-H", "10", "--op", "count"]]
)
def test_a_profile_for_a_command(profiles, monkeypatch, command, before):
    if before:
        monkeypatch.setenv("CLHIST_PROFILE", before)
    used = []
    monkeypatch.setattr("clhist.engine.build.device_profile", lambda dev: used.append(device_profile(dev)) or used[-1])
    result = run(*command, "--profile", "small")
    assert result.exit_code == 0, result.output
    assert {profile.name for profile in used} == {"small"}
    assert os.environ.get("CLHIST_PROFILE") == before
    result = run(*command, "--profile", "large")
    assert result.exit_code == 1
    assert re.search(
        rf"Error: profile 'large': local_memory: expected at most the \d+ bytes of .*, got {2**40}$", result.output
    )
    result = run(*command, "--profile", "no such")
    assert result.exit_code == 1
    assert result.output.startswith(
        "Error: profile 'no such': there is none; known are large, small, amd-instinct-mi100"
    )


def test_version():
    assert run("--version").output == f"clhist {clhist.__version__}\n"


def test_unknown_command_is_a_usage_error():
    result = run("histogram")
    assert result.exit_code == 2
    assert "No such command 'histogram'" in result.output


@pytest.mark.parametrize(
    "error",
    [
        errors.NoDeviceError("there is none"),
        errors.ProfileError("x.toml: l2_line: missing"),
        errors.UnsupportedError("no fp64"),
        errors.BuildError("refused"),
        MemoryError("too much"),
    ],
)
def test_errors_of_clhist_are_messages(failing, error):
    def raising():
        raise error

    failing(raising)
    result = run("plan")
    assert result.exit_code == 1
    assert result.output == f"Error: {error}\n"


def test_refused_argument_is_a_message(failing):
    failing(lambda: clhist.operators.add("float32x"))
    result = run("plan")
    assert result.exit_code == 1
    assert result.output.startswith("Error: dtype: ")


@pytest.mark.parametrize("expression", ["int('x')", "1 + None"])
def test_mistake_in_the_program_keeps_its_traceback(failing, expression):
    failing(lambda: eval(expression, {"__name__": "clhist.cli.plan"}))
    assert isinstance(run("plan").exception, TypeError | ValueError)


def test_table_wraps_its_last_column(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = cli.table([("a", "12", "word " * 30), ("long", "3", "")], right=(1,))
    first, second, *_, last = text.splitlines()
    assert first.startswith("  a     12  word word")
    assert second.startswith("            word")
    assert last == "  long   3"
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (64, "64 B"),
        (49152, "48 KiB (49,152 B)"),
        (5767168, "5.5 MiB (5,767,168 B)"),
        (2**32, "4 GiB (4,294,967,296 B)"),
    ],
)
def test_bytes_are_written_with_their_unit_and_exactly(number, text):
    assert cli.bytes_text(number) == text
