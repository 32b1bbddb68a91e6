"""What the commands of the case studies have in common."""

import json
import time

import click
import numpy as np
import pyopencl as cl
import pytest
from commands import refused, runner
from covering import mostly_slow

import clhist.cases
from clhist.cli.cases.options import plan_values, timed_calls
from clhist.cli.console import Console

# Without optimization, kernels of water and of images take more time than their builds save.
pytestmark = pytest.mark.usefixtures("with_optimizer")

# The arguments that make each compute little.
COMMANDS = {
    "gromacs": ("--quick", "--update", "cas", "--race-factor", "1"),
    "kmeans": ("--quick", "-k", "3", "--iterations", "2"),
    "histo": ("-n", "1000", "--bins", "20"),
    "image": ("--quick",),
    "joint": ("--quick", "--shifts", "0"),
    "tpacf": ("--quick", "--points", "200", "--random-sets", "2"),
}
FILES = {"gromacs": ("--structure", "{}"), "joint": ("{}", "{}"), "tpacf": ("{}", "{}")}


run = runner()


@pytest.fixture(params=mostly_slow(list(COMMANDS), 2))
def command(request):
    return request.param


def with_file(command, path):
    return [argument.format(path) for argument in FILES.get(command, ("{}",))]


def test_generated_data_pass_and_are_saved_under_the_name_given(command, tmp_path):
    path = tmp_path / "found.NPZ"  # to which NumPy would add .npz
    result = run(command, *COMMANDS[command], "--output", path, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["passed"]
    for part in found.get("images", [found]):
        assert part["device"]
        assert part["seconds"]["call"] > 0
        assert "update" in (part["plan"][0] if command == "kmeans" else part["plan"])
    assert [file.name for file in tmp_path.iterdir()] == ["found.NPZ"]
    with np.load(path) as arrays:
        assert arrays.files


@pytest.mark.parametrize("name", ["absent.csv", "here.csv/below.csv", "x" * 300 + ".csv"])
def test_files_that_cannot_be_opened_are_named(command, tmp_path, name):
    (tmp_path / "here.csv").write_text("0,0\n")
    result = run(command, *with_file(command, tmp_path / name))
    assert result.exit_code == 2
    assert result.output.splitlines()[-1].startswith(f"Error: {tmp_path / name}: ")
    assert isinstance(result.exception, SystemExit)


@pytest.mark.parametrize("content", [b"", b"no numbers, no image\n", b"\x89PNG\r\n\x1a\n\0\xff", b"PK\3\4\0\0\0"])
def test_files_of_something_else_are_named(command, tmp_path, content):
    for ending in (".csv", ".npy", ".npz", ".png"):
        path = tmp_path / f"bad{ending}"
        path.write_bytes(content)
        result = refused(run(command, *with_file(command, path)), f"bad{ending}: ")
        assert isinstance(result.exception, SystemExit)


def test_quick_is_for_generated_data(command, tmp_path):
    if "--quick" in COMMANDS[command]:
        refused(run(command, "--quick", *with_file(command, tmp_path / "points.csv")), "--quick: expected only")


@pytest.mark.parametrize("option", ["--plot", "--output"])
def test_files_that_cannot_be_written_are_refused_first(command, tmp_path, option):
    for name, says in (("x.txt", "expected a file ."), ("absent/x", "in a folder that exists")):
        ending = {"--plot": ".png", "--output": ".npz"}[option] if name.startswith("absent") else ""
        refused(run(command, option, tmp_path / f"{name}{ending}"), f"Invalid value for '{option}'", says)


def test_a_failed_check_is_exit_status_1(capsys):
    console = Console()
    console.report({"passed": True}, "well")
    console.report({}, "unchecked")
    with pytest.raises(click.exceptions.Exit) as caught:
        console.report({"passed": False}, "wrong")
    assert caught.value.exit_code == 1
    assert capsys.readouterr().out == "well\nunchecked\nwrong\n"


def test_a_call_is_never_shorter_than_its_kernels(command):
    result = run(command, *COMMANDS[command], "--json")
    found = json.loads(result.stdout)
    for part in found.get("images", [found]):
        seconds = part["seconds"]
        assert seconds.get("iteration", seconds["call"]) >= seconds["kernels"] > 0


def test_times_of_a_call_and_its_kernels_are_of_the_same_runs():
    runs = iter([{"sweep": 1e-9, "combine": 3e-9}, {"sweep": 2e-9, "combine": 1e-9}, {"sweep": 3e-9, "combine": 2e-9}])

    def timed():
        time.sleep(0.2)
        return next(runs)

    found = timed_calls(timed)
    assert found["call"] >= 0.2
    assert (found["sweep"], found["combine"]) == (2e-9, 2e-9)
    assert found["kernels"] == pytest.approx(4e-9)


def test_what_the_cases_export_is_documented():
    for name in clhist.cases.__all__:
        assert getattr(clhist.cases, name).__doc__
    functions = [name for name in clhist.cases.__all__ if name[0].islower()]
    assert all(f"`{name}`" in clhist.cases.__doc__ for name in functions)


def test_plans_with_plans_of_parts_are_json():
    """On CPUs, exact sums of many elements are tried in few words, with the plan for those that do not fit."""
    queue = clhist.default_queue()
    arguments = {"arguments": "const float *x", "map": "EMIT(i % 100, x[i])"}
    kernel = clhist.HistogramKernel(queue.context, clhist.operators.reproducible_add(np.float32), **arguments)
    values = json.loads(json.dumps(plan_values(kernel.plan(50_000_000, 100, queue=queue))))
    if queue.device.type == cl.device_type.CPU:
        assert values["again"]["strategy"]
