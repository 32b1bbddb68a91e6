"""`clhist warm`: what it says, in this process; tests/slow/test_warm.py runs it in several."""

from __future__ import annotations

import json

import numpy as np
import pytest
from commands import runner

import clhist
from clhist.cli import common_calls
from clhist.cli.warm import caches
from clhist.errors import UnsupportedError
from clhist.selftest.checks import HOLDS, Check

pytestmark = pytest.mark.usefixtures("without_optimizer")

run = runner("warm")


def works():
    pass


def fails():
    raise ValueError("of a driver")


def lacks():
    raise UnsupportedError("the device has no such thing")


@pytest.fixture
def calls(monkeypatch):
    """Return a function that lets these be the calls."""

    def show(*actions):
        checks = [Check("call", "int32", action.__name__, action) for action in actions]
        monkeypatch.setattr(common_calls, "common_calls", lambda queue, quick: iter(checks))

    return show


def test_the_text(calls, queue, monkeypatch):
    calls(works, lacks)
    result = run("--jobs", "1")
    assert result.exit_code == 0, result.output
    text = " ".join(result.stdout.split())
    assert f"2 calls for {queue.device.name.strip()} ({queue.device.platform.name.strip()}, driver" in text
    assert " s, 1 process compiled kernels are stored in clhist " in text
    for where in caches(queue.device).values():
        assert where in text
    monkeypatch.setenv("PYOPENCL_NO_CACHE", "1")
    assert "clhist" not in caches(queue.device)


def test_a_call_that_fails(calls):
    calls(works, fails)
    result = run("--jobs", "1", "--json")
    assert result.exit_code == 1
    values = json.loads(result.stdout)
    assert [call["status"] for call in values["calls"]] == [HOLDS, "wrong"]
    assert values["passed"] is False
    result = run("--jobs", "1")
    assert "call: fails (int32)" in " ".join(result.stdout.split())
    assert "ValueError: of a driver" in " ".join(result.stdout.split())


def test_another_device_measures_no_runtimes(calls, queue, monkeypatch):
    calls(works)
    monkeypatch.setattr("clhist._core.opencl.cpu_runtimes.measure_kernels", lambda devices: pytest.fail("measured"))
    result = run("--platform", queue.device.platform.name.strip(), "--jobs", "1", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["fastest_runtime"] is None


def test_labels_are_unique(queue):
    calls = list(common_calls.common_calls(queue))
    assert len({call.label for call in calls}) == len(calls)
    rows = {call.row for call in calls}
    assert rows >= {"bincount", "histogram", "reduce_by_index", "group_by", "unique", "binned_statistic", "ndimage"}
    quick = {call.label for call in common_calls.common_calls(queue, quick=True)}
    assert len(quick) == 3
    assert quick < {call.label for call in calls}


def test_a_call_runs_on_the_device(queue):
    """The programs of a first count are those that the list has: none is built for it afterwards."""
    from clhist._core.opencl.program import programs_built

    calls = {call.label: call for call in common_calls.common_calls(queue, quick=True)}
    assert calls["bincount: counts (int64)"].run().status == HOLDS
    before = programs_built()
    x = np.arange(900_000) % 950  # planned as those of the list
    np.testing.assert_array_equal(clhist.bincount(x, queue=queue), np.bincount(x))
    assert programs_built() == before
