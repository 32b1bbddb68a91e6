"""`clhist plan` on the device that is here."""

from math import ceil

import numpy as np
import pytest
from commands import as_json, runner
from thresholds import threshold

import clhist
import clhist._core.runtime.build
import clhist._core.runtime.scatter
from clhist import default_queue, device_profile
from clhist._core.runtime import small
from clhist._core.runtime.small import least_size

pytestmark = pytest.mark.usefixtures("without_optimizer")

run = runner("plan")


def plan(*arguments):
    return as_json(run(*arguments, "--json"))


def test_default_device():
    device = default_queue().device
    found = plan("-n", "1M", "-H", "100")
    assert found["profile"] == device_profile(device).name
    assert found["memory_budget"] > 0


def test_few_elements_are_left_to_the_host(monkeypatch):
    monkeypatch.setitem(small.COSTS, "reduce_by_index", threshold(50_000))
    least = ceil(least_size("reduce_by_index", default_queue().device)[0])
    (note,) = plan("-n", str(least - 1), "-H", "100")["notes"]
    assert note.startswith(f"reduce_by_index leaves NumPy arrays of fewer than {least:,} elements to NumPy, ")
    for size, profile in (str(least), ()), ("100", ("--profile", "nvidia-h200")):
        assert "notes" not in plan("-n", size, "-H", "100", *profile)


def test_bins_and_operators_change_what_is_left_to_the_host(monkeypatch):
    monkeypatch.setitem(small.COSTS, "reduce_by_index", threshold(1000)._replace(bins=1000.0))
    for options, least in (
        (("-H", "10"), 1010),
        (("-H", "10", "--histograms", "100"), 2000),
        (("-H", "10", "--op", "add"), 1010),
        (("-H", "10", "--op", "bitwise_or", "--dtype", "int32"), 169),
    ):
        assert "notes" in plan("-n", str(least - 1), *options), options
        assert "notes" not in plan("-n", str(least), *options), options


@pytest.mark.parametrize(
    ("op", "ufunc", "dtype", "bins"),
    [("add", np.add, "float32", 300), ("maximum", np.maximum, "int64", 5000), ("add", np.add, "uint8", 100_000)],
)
def test_the_plan_of_an_operator_is_that_of_a_call(op, ufunc, dtype, bins, monkeypatch):
    executed, plan_sweeps = [], clhist._core.runtime.build.plan_sweeps
    monkeypatch.setattr(
        clhist._core.runtime.build, "plan_sweeps", lambda *given: executed.extend(plan_sweeps(*given)) or executed
    )
    rng, size = np.random.default_rng(3), 20_000
    indices, values = rng.integers(0, bins, size, np.int32), rng.integers(0, 9, size).astype(dtype)
    expected = np.zeros(bins, dtype)
    ufunc.at(expected, indices, values)
    clhist._core.runtime.scatter.scatter_engine.cache_clear()  # its kernels keep the plans that they made
    np.testing.assert_array_equal(clhist.reduce_by_index(np.zeros(bins, dtype), ufunc, indices, values), expected)
    (call,) = executed
    found = plan("-n", str(size), "-H", str(bins), "--op", op, "--dtype", dtype)
    assert found["steps"] == [step._asdict() for step in call.steps]
    for name in ("memory", "update", "copies", "passes", "bins_per_pass", "work_group_size", "work_groups", "seconds"):
        assert found[name] == getattr(call, name), name
