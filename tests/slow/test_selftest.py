"""`clhist selftest`: that it holds here, notices what is wrong, and does not wait for a device for ever."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest
from commands import runner
from processes import LONGEST, crash, hang, no_checks, three_checks

import clhist._core.runtime.stages
from clhist import device_profile
from clhist._core.devices import vendors
from clhist._core.opencl.device import profile_context
from clhist.errors import BuildError, NoDeviceError
from clhist.selftest.checks import HOLDS, UNAVAILABLE, WRONG, Check, NotAvailableError, advice
from clhist.selftest.reference import assert_same
from clhist.selftest.updates import COLUMNS, QUICK, ROWS, needed_features, row_name
from clhist.selftest.workers import HangError, default_jobs, run_in_processes

run = runner("selftest")


@pytest.fixture(scope="module")
def in_processes():
    """What two processes find."""
    return run("--quick", "--json", "--jobs", "2")


def test_this_device_holds(in_processes):
    values = json.loads(in_processes.stdout)
    assert values["counts"]["wrong"] == 0, [check for check in values["checks"] if check["status"] == WRONG]
    assert in_processes.exit_code == 0
    assert values["counts"]["holds"] > 25
    assert values["features_that_hold"] is None
    assert {check["row"] for check in values["checks"]} >= {row_name(*row) for row in ROWS}


def test_one_process_finds_what_two_find(in_processes):
    def without_times(result):
        return [{**check, "seconds": None} for check in json.loads(result.stdout)["checks"]]

    assert without_times(run("--quick", "--json", "--jobs", "1")) == without_times(in_processes)


@pytest.fixture
def only_uint64(monkeypatch):
    """Leave of the checks those of sums of uint64 in local memory."""
    monkeypatch.setattr("clhist.selftest.updates.ROWS", [("native", "local"), ("cas", "local"), ("lock", "local")])
    monkeypatch.setattr("clhist.selftest.updates.QUICK", {update: ["add uint64"] for update in QUICK})
    monkeypatch.setattr("clhist.selftest.forms.QUICK_FORMS", ())


@pytest.fixture
def broken_atomic(monkeypatch, queue):
    """Let the hardware atomic of these sums count one too many."""
    if "int64_base_atomics" not in device_profile(queue.device).features:
        pytest.fail("the tests need a device with 64-bit atomics")
    key = ("add", "uint64", "local")
    monkeypatch.setenv("PYOPENCL_NO_CACHE", "1")  # no stored source: the specification does not have vendors' C
    (row,) = vendors._BY_KEY[key]
    monkeypatch.setitem(vendors._BY_KEY, key, [row._replace(code="atom_add(p, v + 1);")])
    clhist._core.runtime.stages.sweep_code.cache_clear()
    yield
    clhist._core.runtime.stages.sweep_code.cache_clear()


@pytest.mark.usefixtures("only_uint64", "broken_atomic")
def test_a_broken_atomic_is_noticed(queue):
    result = run("--quick", "--jobs", "1")
    assert result.exit_code == 1
    assert re.search(r"native, local +FAILS", result.output)
    assert re.search(r"lock, local +1", result.output)
    assert "add uint64" in result.output.partition("wrong:")[2]
    assert "expected" in result.output
    better = json.loads(run("--quick", "--jobs", "1", "--json").stdout)["features_that_hold"]
    own = device_profile(queue.device)
    assert set(better) == own.features - {"int64_base_atomics"}
    assert "features = [" in result.output

    # The profile that it asks for.
    fewer = dataclasses.replace(own, features=frozenset(better))
    with profile_context(fewer):
        result = run("--quick", "--jobs", "1")
    assert result.exit_code == 0
    assert re.search(r"native, local +-", result.output)
    assert "1 hold, 0 wrong, 2 not available" in result.output


@pytest.mark.usefixtures("only_uint64")
def test_a_broken_template_is_noticed(monkeypatch):
    """A lock whose holder overwrites."""
    original = clhist._core.runtime.stages.render_sweep

    def broken(spec):
        return original(spec).replace("held.value = clhist_combine0(held.value, value)", "held.value = value")

    monkeypatch.setattr("clhist._core.runtime.stages.render_sweep", broken)
    clhist._core.runtime.stages.sweep_code.cache_clear()
    try:
        result = run("--quick", "--jobs", "1")
    finally:
        clhist._core.runtime.stages.sweep_code.cache_clear()
    assert result.exit_code == 1
    assert re.search(r"native, local +1", result.output)
    assert re.search(r"lock, local +FAILS", result.output)
    assert "No entry of a profile avoids this" in result.output


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_hanging_device_ends_the_command(jobs):
    code = f"""
        from functools import partial
        from processes import hang, three_checks
        from clhist.cli.main import main
        from clhist.selftest import suite
        suite.checks = lambda queue, quick: three_checks(hang)
        suite.checks_elsewhere = lambda device, quick, cuda: partial(three_checks, hang)
        main(["selftest", "--limit", "2", "--jobs", "{jobs}"])
    """
    result = subprocess.run(
        [sys.executable, "-c", dedent(code)], env=with_these_paths(), capture_output=True, text=True, timeout=LONGEST
    )
    assert result.returncode == 1
    assert "hangs: row: second (column) has taken 2 s" in result.stderr


def with_these_paths():
    """Return the environment of a process that imports what these tests do."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}


def test_a_process_that_crashes_is_a_wrong_check():
    checks = three_checks(crash)
    found = dict(run_in_processes(checks, partial(three_checks, crash), 1, LONGEST))
    assert [found[number].status for number in range(3)] == [HOLDS, WRONG, HOLDS]
    assert found[1].check is checks[1]
    assert found[1].words == "the process ended with signal 11 (SIGSEGV)"
    assert multiprocessing.active_children() == []


def test_a_check_that_hangs_is_named_and_its_process_ended():
    with pytest.raises(HangError, match=r"^row: second \(column\)$"):
        list(run_in_processes(three_checks(hang), partial(three_checks, hang), 2, 3))
    assert multiprocessing.active_children() == []


def test_processes_that_cannot_begin():
    with pytest.raises(NoDeviceError, match="the process ended with status 3 before it ran a check"):
        list(run_in_processes(three_checks(hang), no_checks, 2, LONGEST))
    assert multiprocessing.active_children() == []


def test_no_process_outlives_a_command_that_is_killed():
    code = """
        from functools import partial
        from processes import hang, three_checks
        from clhist.selftest.workers import run_in_processes
        list(run_in_processes(three_checks(hang), partial(three_checks, hang), 2, 1000))
    """
    with subprocess.Popen(
        [sys.executable, "-c", dedent(code)], stdout=subprocess.PIPE, text=True, env=with_these_paths()
    ) as command:
        assert command.stdout.readline() == "hangs\n"
        command.kill()
        command.communicate(timeout=LONGEST)  # until nobody can write any more


def test_number_of_processes():
    assert 1 <= default_jobs() <= 8


def test_every_type_and_update_is_there():
    assert len(COLUMNS) == 17
    assert len(ROWS) == 15


def raising(error):
    def action():
        raise error

    return action


@pytest.mark.parametrize(
    ("action", "status", "words", "doubts"),
    [
        (lambda: None, HOLDS, "", False),
        (raising(NotAvailableError("no such thing")), UNAVAILABLE, "no such thing", False),
        (raising(AssertionError("1 of\n2")), WRONG, "1 of 2", True),
        (raising(BuildError("words", "the source", "a log")), WRONG, "BuildError: words", True),
        (raising(ValueError("x: wrong")), WRONG, "ValueError: x: wrong", False),
    ],
)
def test_outcomes(action, status, words, doubts):
    outcome = Check("row", "column", "name", action, frozenset({"a"})).run()
    assert (outcome.status, outcome.words) == (status, words)
    assert advice([outcome], ["a", "b"]) == (["b"] if doubts else None)


def test_features_of_an_update():
    add, argmax = clhist.operators.add(np.uint64), clhist.operators.argmax(np.float32)
    every = {"int64_base_atomics", "int64_extended_atomics"}
    assert needed_features(add, "native", "local", every) == {"int64_base_atomics"}
    assert needed_features(add, "native", "local", ()) is None
    assert needed_features(add, "cas", "local", every) == {"int64_base_atomics"}
    assert needed_features(add, "lock", "local", ()) == frozenset()
    assert needed_features(argmax, "native", "local", every) == {"int64_extended_atomics"}  # of the lifted form


def test_what_is_said_of_wrong_bins():
    good = np.array([1, np.nan, 3])
    assert_same(good, good.copy())
    with pytest.raises(AssertionError, match=r"1 of 3 bins are wrong, the first 2: expected 3.0, got 4.0"):
        assert_same(np.array([1, np.nan, 4]), good)
    with pytest.raises(AssertionError, match="expected shape"):
        assert_same(good[:2], good)
    pair = np.zeros(2, [("a", "i4"), ("b", "f8")])
    other = pair.copy()
    other["b"][1] = 5
    with pytest.raises(AssertionError, match="the first 1"):
        assert_same(other, pair)


@pytest.mark.parametrize("arguments", [["--soak", "0"], ["--limit", "-1"], ["--seed", "-1"], ["--device", "no such"]])
def test_bad_arguments(arguments):
    assert run(*arguments).exit_code != 0
