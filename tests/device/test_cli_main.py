"""The command group: lazy commands, and errors as messages."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from commands import refused, runner
from covering import covering, each_value_quick

import clhist
from clhist import Profile, errors
from clhist._core.devices.profile_files import PARAMETERS
from clhist._core.opencl.device import planning_profile
from clhist.cli import main as cli
from clhist.cli import tables
from clhist.selftest.checks import Check

pytestmark = pytest.mark.usefixtures("without_optimizer")

run = runner()


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
    listed = [line.split()[0] for line in result.output.splitlines() if line.startswith("  ") and "  " in line.strip()]
    assert set(cli.COMMANDS) <= set(listed)
    for section in cli.SECTIONS:
        assert f"\n{section}:\n" in result.output
    assert "..." not in result.output.partition("Histograms:")[2]  # summaries fit


def test_help_fits_a_narrow_terminal():
    text = CliRunner().invoke(cli.main, ["--help"], terminal_width=60).output
    assert max(map(len, text.splitlines())) <= 60


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_every_command_has_help_with_an_example(command):
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"clhist {command}" in result.output.partition("Example")[2]
    for option in ("--json [FILE]", "-q, --quiet", "-v, --verbose", "--device NAME", "--platform NAME"):
        assert option in result.output


@pytest.fixture
def profiles(tmp_path, monkeypatch, gpu_like):
    """Profiles of the user's: "small", which this device has, and "large", which it has not."""
    monkeypatch.setenv("CLHIST_PROFILES", str(tmp_path))
    for name, memory in (("small", 2048), ("large", 2**40)):
        numbers = {key: getattr(gpu_like, key) for key in PARAMETERS} | {"local_memory": memory}
        text = "".join(f"[{key}]\nvalue = {number}\nsource = 'for a test'\n" for key, number in numbers.items())
        (tmp_path / f"{name}.toml").write_text(f"name = '{name}'\nkind = 'gpu'\nmatch = ['no device']\n{text}")


COMMANDS = [["image", "--quick", "--json"], ["bench", "-n", "1000", "-H", "10", "--op", "count"]]


@pytest.mark.parametrize(("before", "command"), each_value_quick(covering([None, "large"], COMMANDS)))
def test_a_profile_for_a_command(profiles, monkeypatch, command, before):
    if before:
        monkeypatch.setenv("CLHIST_PROFILE", before)
    used = []
    monkeypatch.setattr(
        "clhist._core.runtime.build.planning_profile", lambda dev: used.append(planning_profile(dev)) or used[-1]
    )
    result = run(*command, "--profile", "small")
    assert result.exit_code == 0, result.output
    assert {profile.name for profile in used} == {"small"}
    assert os.environ.get("CLHIST_PROFILE") == before
    result = run(*command, "--profile", "large")
    assert result.exit_code == 2
    assert re.search(
        rf"Error: profile 'large': local_memory: expected at most the \d+ bytes of .*, got {2**40}$", result.output
    )
    result = run(*command, "--profile", "no such")
    assert result.exit_code == 2
    assert result.output.startswith("Error: profile 'no such': there is none; known are large, small, amd-")


def test_version():
    assert run("--version").output == f"clhist {clhist.__version__}\n"


def test_unknown_command_is_a_usage_error():
    result = refused(run("no_such"), "No such command 'no_such'")
    assert "Did you mean" not in result.output
    assert "No such command 'inof'. Did you mean info?" in run("inof").output


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
    assert result.exit_code == 2
    assert result.output == f"Error: {error}\n"


def test_refused_argument_is_a_message(failing):
    failing(lambda: clhist.operators.add("float32x"))
    result = run("plan")
    assert result.exit_code == 2
    assert result.output.startswith("Error: dtype: ")


@pytest.mark.parametrize("expression", ["int('x')", "1 + None"])
def test_mistake_in_the_program_keeps_its_traceback(failing, expression):
    failing(lambda: eval(expression, {"__name__": "clhist.cli.plan"}))
    assert isinstance(run("plan").exception, TypeError | ValueError)


def test_table_wraps_its_last_column(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = tables.table([("a", "12", "word " * 30), ("long", "3", "")], right=(1,))
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
    assert tables.bytes_text(number) == text


def test_a_table_folds_where_the_last_column_has_no_room(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    text = tables.table([("a" * 50, "word " * 10), ("b", "short")])
    assert text.splitlines()[0] == "  " + "a" * 50
    assert all(len(line) <= 60 for line in text.splitlines())
    assert text.split() == ["a" * 50, *["word"] * 10, "b", "short"]


def test_a_grid_goes_on_below(monkeypatch):
    rows = [("key", *(f"column{n}" for n in range(8))), ("x", *(str(n) for n in range(8)))]
    monkeypatch.setenv("COLUMNS", "60")
    first, second = tables.grid(rows).split("\n\n")
    assert first.split()[0] == second.split()[0] == "key"
    assert [word for part in (first, second) for word in part.splitlines()[1].split() if word != "x"] == list(
        "01234567"
    )
    assert max(map(len, [*first.splitlines(), *second.splitlines()])) <= 60
    monkeypatch.delenv("COLUMNS")
    assert len(tables.grid(rows).splitlines()) == 2  # a pipe is as wide as it has to be


@pytest.mark.parametrize("name", ["points.csv", "picture.png", "absent/x.json"])
def test_json_is_never_written_over_data(name, tmp_path):
    path = tmp_path / name
    if "/" not in name:
        path.write_bytes(b"data")
    refused(run("histo", "--json", str(path)), "Invalid value for '--json': expected a file")
    assert not path.exists() or path.read_bytes() == b"data"


def test_json_goes_to_stdout_or_into_a_file(tmp_path):
    arguments = ("plan", "-n", "1000", "-H", "10", "--profile", "nvidia-h200")
    text, instead = run(*arguments).output, run(*arguments, "--json").output
    path = tmp_path / "plan.json"
    assert run(*arguments, "--json", str(path)).output == text
    assert json.loads(path.read_text()) == json.loads(instead)


def test_nothing_but_the_result_where_stderr_is_no_terminal(tmp_path):
    command = [sys.executable, "-m", "clhist", "image", "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert done.stderr == ""
    assert done.stdout.startswith("generated clouds: 800 x 600 pixels")


def test_a_device_for_a_command():
    name = clhist.default_queue().device.name.strip()
    result = run("image", "--quick", "--json", "--device", name[:8])
    assert json.loads(result.output)["images"][0]["device"] == name
    refused(
        run("image", "--quick", "--device", "no such device"),
        "no OpenCL device matches device 'no such device'; there are: ",
    )


IN_C = "library.pthread_mutex_lock(lock), library.pthread_mutex_lock(lock)"


def wait_until_asleep(process):
    """Return when all of its threads wait for something: a signal between two steps of Python's own wait is lost."""
    threads, deadline = Path(f"/proc/{process}/task"), time.monotonic() + 60
    while any(" S " not in (each / "stat").read_text() for each in threads.iterdir()):
        assert time.monotonic() < deadline, "it does not wait"
        time.sleep(0.001)


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="what threads do is asked of Linux")
@pytest.mark.parametrize(
    ("busy", "patience", "status"),
    [("while True: pass", 100, -signal.SIGINT), ("threading.Event().wait()", 100, -signal.SIGINT), (IN_C, 0.7, 130)],
)
def test_ctrl_c_ends_a_command(busy, patience, status):
    """In Python, in a wait that signals wake, and in C code that no signal wakes, as a call that waits for a device."""
    program = (
        "import ctypes, threading\n"
        "from clhist.cli import interrupt\n"
        "lock, library = ctypes.create_string_buffer(64), ctypes.CDLL(None)\n"
        f"interrupt._PATIENCE = {patience}\n"  # for Python, which notices however busy the machine is
        "with interrupt.interruptible(130):\n"
        "    print('begun', flush=True)\n"
        f"    {busy}\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        try:
            assert running.stdout.readline() == b"begun\n"
            if "while" not in busy:
                wait_until_asleep(running.pid)
            running.send_signal(signal.SIGINT)
            running.wait(timeout=100)
        finally:
            running.kill()
        assert running.returncode == status


def test_version_of_the_module():
    done = subprocess.run([sys.executable, "-m", "clhist", "--version"], capture_output=True, text=True, timeout=100)
    assert done.stdout == f"clhist {clhist.__version__}\n"


@pytest.mark.parametrize("kind", ["gpu", "cpu"])
def test_the_self_test_asks_for_results_of_a_gpu_that_nobody_has_measured(kind, monkeypatch):
    check = Check("private, local", "int32", "add int32", lambda: None)
    monkeypatch.setattr("clhist.selftest.suite.checks", lambda queue, quick: iter([check]))
    monkeypatch.setattr("clhist._core.opencl.device.device_kind", lambda device: kind)
    bare = Profile("nothing measured", "gpu", 32768, 2**20, 64, 512, 64, {})
    monkeypatch.setattr("clhist._core.opencl.device.device_profile", lambda device: bare)
    output = run("selftest", "--jobs", "1").output
    assert "1 hold, 0 wrong" in output
    assert ("/issues/new/choose" in output) == (kind == "gpu")


PLAN = "plan -n 1000 -H 10 --profile nvidia-h200"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device that is always full is Linux's")
@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("--help > /dev/full", "output: No space left on device"),
        ("--version > /dev/full", "output: No space left on device"),
        (f"{PLAN} > /dev/full", "output: No space left on device"),
        (f"{PLAN} --json > /dev/full", "output: No space left on device"),
        (f"{PLAN} --json full.json > /dev/null", "full.json: No space left on device"),
        (f"{PLAN} >&-", "output: the standard output is closed"),
        (f"{PLAN} | true", "output: Broken pipe"),
        ("hist t.csv --plot full.png > /dev/null", "full.png: No space left on device"),
        ("image --quick --output full.npz > /dev/null", "full.npz: No space left on device"),
        ("no_such 2> /dev/full", None),
    ],
)
def test_output_that_cannot_be_written(given, says, tmp_path):
    for ending in ("json", "png", "npz"):
        (tmp_path / f"full.{ending}").symlink_to("/dev/full")
    (tmp_path / "t.csv").write_text("a\n1\n2\n")
    command = f"set -o pipefail; {sys.executable} -m clhist {given}"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2
    assert done.stderr == ("" if says is None else f"Error: {says}\n")


def test_ctrl_c_while_libraries_are_imported():
    program = (
        "import os, signal, sys, time\n"
        "from clhist.__main__ import run\n"
        "class Slow:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'click':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "            time.sleep(60)\n"
        "sys.meta_path.insert(0, Slow())\n"
        "run()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "\ninterrupted\n")


EVIL = "a\x1b]0;owned\x07\x9b31m\u202e"


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (["hist", "{file}", "-c", "no such"], 2),
        (["hist", "{file}"], 2),
        (["hist", "{file}", "-c", EVIL, "-b", "2"], 0),
        (["hist", "{file}", "-c", EVIL, "-b", "2", "--by", "key"], 0),
        (["hist", "{file}", "-c", EVIL, "-s", "mean", "--by", "key"], 0),
        (["hist", "{file}", "-c", EVIL, "-s", "mean", "--by", "key", "--by", "other"], 0),
        (["hist", "{file}", "-c", "key"], 2),
        (["hist", "{file}", "-c", EVIL, "--json"], 0),
        (["hist", "{file}.gone", "-c", "x"], 2),
        (["image", "{file}"], 2),
        (["kmeans", "{file}"], 2),
    ],
)
def test_text_of_files_is_escaped(given, code, tmp_path):
    path = tmp_path / f"{EVIL}.csv"
    path.write_text(f'"{EVIL}",key,other\n1,"{EVIL}",x\n2,b,"{EVIL}\nline"\n', encoding="utf-8", newline="")
    result = run(*(each.replace("{file}", str(path)) for each in given))
    assert result.exit_code == code, result.output
    assert result.stdout + result.stderr
    assert not set(result.stdout + result.stderr) & set("\x1b\x07\x9b\u202e\r")


def test_json_has_a_line_for_each_list(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n1,2\n2,3\n3,9\n")
    lines = run("hist", str(tmp_path / "t.csv"), "-c", "a", "-c", "b", "-b", "3", "--json").output.splitlines()
    assert ' "columns": ["a", "b"],' in lines
    assert "  [1, 0, 0]," in lines
    assert json.loads("\n".join(lines))["counts"] == [[1, 0, 0], [1, 0, 0], [0, 0, 1]]
