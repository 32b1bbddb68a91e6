"""Faults of drivers that end the process: tried in a child process, once, and only where a record says so."""

from types import SimpleNamespace

import numpy as np
import pytest

import clhist
from clhist._core.devices import vendors
from clhist._core.devices.vendors import Fault
from clhist._core.opencl import device as devices
from clhist._core.opencl import faults
from clhist._core.opencl.device import default_queue
from clhist.files import sealed
from clhist.selftest.cases import CASES, problem

pytestmark = pytest.mark.usefixtures("with_optimizer")

SOURCE = "kernel void clhist_fault(global int *words) { words[1] = words[0] + 1; }"
RIGHT = Fault("it is tested", "Nothing is left out", "", SOURCE, 3, 4)
WRONG = RIGHT._replace(second=5)


@pytest.fixture(autouse=True)
def caches(monkeypatch, tmp_path):
    monkeypatch.setattr(sealed, "platformdirs", SimpleNamespace(user_cache_path=lambda name: tmp_path / name))


@pytest.fixture
def no_child(monkeypatch):
    def run(*_, **__):
        raise AssertionError("a child process was started")

    monkeypatch.setattr(faults.subprocess, "run", run)


def test_a_right_kernel_shows_no_fault_and_runs_once(monkeypatch, request):
    device = default_queue().device
    assert not faults._is_shown(device, RIGHT)
    request.getfixturevalue("no_child")
    assert not faults._is_shown(device, RIGHT)


def test_a_wrong_kernel_is_reported_once(request):
    device = default_queue().device
    with pytest.warns(RuntimeWarning, match=r"it is tested; a kernel in another process was wrong\. Nothing is left"):
        assert faults._is_shown(device, WRONG)
    request.getfixturevalue("no_child")
    assert faults._is_shown(device, WRONG)  # without a warning, which would be an error


@pytest.mark.parametrize(
    ("end", "words"),
    [
        ("import os; os.abort()", r"ended another process with status -6"),
        ("raise SystemExit(8)", r"ended another process with status 8"),
        ("import time; time.sleep(60)", r"took more than 2 s"),
    ],
)
def test_a_child_that_ends_or_hangs_behind_its_begin(monkeypatch, end, words):
    monkeypatch.setattr(faults, "_CHILD", f"print('begins', flush=True)\n{end}")
    monkeypatch.setattr(faults, "_SECONDS", 2)
    with pytest.warns(RuntimeWarning, match=words):
        assert faults._is_shown(default_queue().device, RIGHT)


@pytest.mark.parametrize("end", ["raise SystemExit(1)", "import time; time.sleep(60)"])
def test_a_child_that_cannot_try_says_nothing_of_the_device(monkeypatch, tmp_path, end):
    monkeypatch.setattr(faults, "_CHILD", end)
    monkeypatch.setattr(faults, "_SECONDS", 2)
    assert not faults._is_shown(default_queue().device, WRONG)
    assert not list(tmp_path.rglob("*"))  # the next process tries again


def test_an_interrupt_leaves_nothing_behind(monkeypatch, tmp_path):
    def run(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(faults.subprocess, "run", run)
        with pytest.raises(KeyboardInterrupt):
            faults._is_shown(default_queue().device, RIGHT)
    assert not list(tmp_path.rglob("*"))
    assert not faults._is_shown(default_queue().device, RIGHT)


def test_an_embedded_interpreter_is_not_started(monkeypatch, no_child):
    monkeypatch.setattr(faults.sys, "executable", "/usr/bin/blender")
    assert not faults._is_shown(default_queue().device, WRONG)


def test_devices_without_a_record_start_no_child(no_child):
    device = default_queue().device
    if device.platform.name.strip() == "rusticl":
        pytest.skip("has a record")
    faults.faults_of.cache_clear()
    assert faults.faults_of(device) == ()


@pytest.fixture
def forgetful():
    kept = (devices.device_kind, devices.own_profile, devices._claimed_profile)
    for function in kept:
        function.cache_clear()
    yield
    for function in kept:
        function.cache_clear()


def test_a_device_with_the_fault_is_planned_for_as_a_gpu(monkeypatch, forgetful):
    """What it computes stays right, and work-groups of one raise before anything is enqueued."""
    for module in ("clhist._core.opencl.device", "clhist._core.runtime.build"):
        monkeypatch.setattr(f"{module}.faults_of", lambda device: (WRONG,))
    queue = default_queue()
    assert devices.device_kind(queue.device) == "gpu"
    kernel = clhist.HistogramKernel(
        queue.context, clhist.operators.add(np.int32), arguments="const int *bins", map="EMIT(bins[i], 1)"
    )
    bins = np.array([1 << 30, 5, -3, 5], np.int32)
    for choices in ({"copies": 1}, {"work_group_size": 1}):
        with pytest.raises(clhist.UnsupportedError, match="runs no work-groups of one work-item, since it is tested"):
            kernel(bins, num_bins=7, update="private", memory="global", **choices)
    np.testing.assert_array_equal(kernel(bins, num_bins=7), [0, 0, 0, 0, 0, 2, 0])


@pytest.fixture(params=["of the platform", "of rusticl"])
def text_of_programs(request, monkeypatch):
    """Text that Mesa's compiler needs is right on other devices, too."""
    if request.param == "of rusticl":
        if default_queue().device.platform.name == "NVIDIA CUDA":
            pytest.skip("NVIDIA's compiler has no attributes for all functions")
        monkeypatch.setattr(vendors, "_platform", lambda name: vendors._PLATFORMS["rusticl"])
    clhist.clear_caches()
    yield
    clhist.clear_caches()


@pytest.mark.usefixtures("text_of_programs")
@pytest.mark.parametrize("columns", [None, 3])
@pytest.mark.parametrize("ufunc", [np.multiply, np.minimum])
def test_bytes_of_dest(ufunc, columns, rng):
    """A branch that chooses between a byte of `dest` and a constant ends the process on llvmpipe of Mesa 25.0.7."""
    bins = rng.integers(-1, 40, 40_001, np.int32)
    shape = () if columns is None else (columns,)
    values = rng.integers(-3, 4, (bins.size, *shape)).astype(np.int8)
    dest = np.full((37, *shape), 2, np.int8)
    result = clhist.reduce_by_index(dest, ufunc, bins, values, queue=default_queue())
    inside = (bins >= 0) & (bins < 37)
    expected = dest.copy()
    ufunc.at(expected, bins[inside], values[inside])
    np.testing.assert_array_equal(result, expected, strict=True)


@pytest.mark.usefixtures("text_of_programs")
def test_fields_of_bytes_of_dest(rng):
    operator = clhist.operators.argmax(np.int8)
    bins = rng.integers(-1, 40, 40_001, np.int32)
    values = np.zeros(bins.size, operator.dtype)
    values["value"], values["index"] = rng.integers(-128, 128, bins.size), np.arange(bins.size)
    dest = values[:37].copy()
    result = clhist.reduce_by_index(dest, operator, bins, values, queue=default_queue())
    expected = np.maximum(dest["value"], [values["value"][bins == k].max() for k in range(37)])
    np.testing.assert_array_equal(result["value"], expected)


@pytest.mark.usefixtures("text_of_programs")
def test_structs_that_are_updated_again_and_again():
    """llvmpipe of Mesa 25.0.7 loads what was there before the last store, where the struct was stored as a whole."""
    bins, values, check = problem("two largest")
    operator = CASES["two largest"].operator
    dest = np.full(37, np.array(operator.neutral).astype(operator.dtype))
    check(clhist.reduce_by_index(dest, operator, bins, values, queue=default_queue()))


@pytest.mark.usefixtures("text_of_programs")
@pytest.mark.parametrize("size", [601, 40_001])
def test_structs_of_mixed_types(size, rng):
    """Mesa 25.0.7 loses updates of a float64 beside an integer in unrolled loops over blocks of elements."""
    bins, values = rng.integers(-1, 6, size, np.int32), rng.integers(-99, 99, size).astype(np.float32)
    result = clhist.reduce_by_index(5, "mean", bins, values, queue=default_queue())
    expected = [values[bins == k].mean(dtype=np.float64) for k in range(5)]
    np.testing.assert_array_equal(result, np.array(expected, result.dtype))


@pytest.mark.usefixtures("text_of_programs")
def test_structs_of_arrays_that_are_updated(rng):
    value = np.dtype([("sums", np.int64, (2, 2)), ("count", np.int16)], align=True)
    code = "value_t r = a; for (int i = 0; i < 2; ++i) for (int j = 0; j < 2; ++j) r.sums[i][j] += b.sums[i][j]; "
    operator = clhist.Operator(
        value,
        "add_all(a, b)",
        np.zeros((), value),
        preamble=f"value_t add_all(value_t a, value_t b) {{ {code}r.count += b.count; return r; }}",
    )
    bins = rng.integers(-1, 7, 5001, np.int32)
    values = np.zeros(bins.size, value)
    values["sums"], values["count"] = rng.integers(-99, 99, (bins.size, 2, 2)), 1
    result = clhist.reduce_by_index(np.zeros(7, value), operator, bins, values, queue=default_queue())
    np.testing.assert_array_equal(result["count"], [(bins == k).sum() for k in range(7)])
    np.testing.assert_array_equal(result["sums"], [values["sums"][bins == k].sum(0) for k in range(7)])
