"""Hardware atomics that are only promised: they are used when they have shown that they are right."""

from __future__ import annotations

import numpy as np
import pytest

from clhist import HistogramKernel, Operator, operators
from clhist._core.devices.vendors import (
    ALL_FEATURES,
    MEMORIES,
    NATIVE_ATOMICS,
    PROVEN_FENCE,
    NativeAtomic,
    native_atomic,
    to_prove,
)
from clhist._core.kernels.render import render_sweep
from clhist._core.kernels.specs import SweepSpec
from clhist._core.model.plan import Output
from clhist._core.opencl import device, probe
from clhist._core.opencl.device import device_features, features_of
from clhist._core.opencl.probe import proven_features
from clhist._core.opencl.program import kernel_of
from clhist._core.runtime.stages import sweep_code

pytestmark = pytest.mark.usefixtures("with_optimizer")

# What every device can do: the words of floats are exchanged.
EXCHANGE = """volatile __MEMORY uint *word = (volatile __MEMORY uint *)p;
    uint seen;
    do {
        seen = *word;
    } while (atomic_cmpxchg(word, seen, as_uint(VALUE)) != seen);"""


def promised(memory: str, code: str, guard: str = "1", operation: str = "add", options=()) -> NativeAtomic:
    return NativeAtomic(operation, np.dtype(np.float32), memory, code, "float", "amd_builtins", guard, options)


def by_exchange(memory: str, value: str) -> str:
    return EXCHANGE.replace("MEMORY", memory).replace("VALUE", value)


@pytest.fixture
def table(monkeypatch):
    """Return a function that lets these be the atomics that a device may have."""

    def show(*rows):
        monkeypatch.setattr(probe, "to_prove", lambda features: rows)

    return show


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize(
    ("operation", "value"),
    [("add", "as_float(seen) + v"), ("fmin", "fmin(as_float(seen), v)"), ("fmax", "fmax(as_float(seen), v)")],
)
def test_a_right_one_is_proven(table, queue, memory, operation, value):
    row = promised(memory, by_exchange(memory, value), operation=operation)
    table(row)
    assert proven_features(queue.context, queue.device, {"amd_builtins"}) == {"amd_builtins", row.feature}


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize(
    ("operation", "code"),
    [
        ("add", ";"),  # as AMD's does on some memory
        ("add", "by exchange: as_float(seen) + 2 * v"),
        ("fmin", "by exchange: v < as_float(seen) ? v : as_float(seen)"),  # keeps a NaN that it begins with
        ("fmax", "by exchange: max(as_float(seen), isnan(v) ? 0.0f : v)"),
    ],
)
def test_a_wrong_one_is_not(table, queue, memory, operation, code):
    how, _, value = code.partition(": ")
    table(promised(memory, by_exchange(memory, value) if value else how, operation=operation))
    assert proven_features(queue.context, queue.device, {"amd_builtins"}) == {"amd_builtins"}


def test_what_does_not_compile_takes_no_other_with_it(table, queue):
    good = promised("global", by_exchange("global", "as_float(seen) + v"))
    table(promised("local", "no_such_builtin(p, v);"), good, promised("local", ";", guard="defined(NO_SUCH_MACRO)"))
    assert proven_features(queue.context, queue.device, {"amd_builtins"}) == {"amd_builtins", good.feature}


def test_doubles_need_double_precision(table, queue):
    row = promised("global", "no matter")._replace(word="double", dtype=np.dtype(np.float64))
    table(row)
    assert proven_features(queue.context, queue.device, {"amd_builtins"}) == {"amd_builtins"}


def test_a_fence_that_the_compiler_lacks(queue, monkeypatch):
    monkeypatch.setattr(probe, "PROVEN_FENCE", PROVEN_FENCE._replace(fence_options=("-cl-std=CL1.2",)))
    monkeypatch.setattr(probe, "probe_code", lambda atomics: "__kernel void other(void) {}")
    assert proven_features(queue.context, queue.device, {"device_fence"}) == set()


def test_this_device_has_what_it_has_shown(queue):
    """Each vendor's way that is promised here and passes is used by kernels; what was not promised is not there."""
    found = device_features(queue.device)
    said = features_of(queue.device.extensions, queue.device.platform.name, queue.device.opencl_c_version)
    assert found <= ALL_FEATURES
    assert found - {row.feature for row in to_prove(said)} <= said
    assert device_features(queue.device) is found
    for row in to_prove(said):
        if row.feature in found:
            native = native_atomic(row.operation, row.dtype, row.memory, found)
            assert native is not None
            spec = sweep_spec(getattr(operators, row.operation)(row.dtype), row.memory, found)
            kernel_of(queue.context, sweep_code(spec, ()))
            assert native != row or set(row.options) <= set(spec.options)


def sweep_spec(operator: Operator, memory: str, features, update: str = "native") -> SweepSpec:
    outputs = (Output(operator, (update,) * len(operator.parts)),)
    room = 1024 * (memory == "local")
    return SweepSpec(outputs, (), "EMIT(i, 1)", memory, "blocked", 1, room, device_features=features)


def test_a_first_call_proves_what_it_needs(queue, monkeypatch):
    has_native = native_atomic("add", np.dtype("f4"), "global", device_features(queue.device)) is not None
    x = np.arange(7000, dtype=np.int32) % 7
    for update in (None, "native" if has_native else "cas"):
        monkeypatch.setattr(device, "_features", {})  # as in a new process
        kernel = HistogramKernel(None, operators.add(np.float32), arguments="const int *x", map="EMIT(x[i], 1)")
        assert (kernel(x, num_bins=7, memory="global", copies=1, update=update) == 1000).all()


def test_options_follow_the_atomics_used():
    """OpenCL C 3.0 is asked for where its functions are used, and only there."""
    ext = frozenset(f for f in ALL_FEATURES if f.startswith("ext_float_atomics")) | {"device_fence"}
    add, pair = operators.add(np.float32), operators.argmax(np.int64, np.int64)
    assert sweep_spec(add, "local", ext).options == ("-cl-std=CL3.0",)
    assert sweep_spec(add, "local", ext, "cas").options == ()
    assert sweep_spec(operators.add(np.int32), "local", ext).options == ()
    assert sweep_spec(pair, "local", ext, "lock").options == ()
    in_global = sweep_spec(pair, "global", ext, "lock")
    assert in_global.options == ("-cl-std=CL3.0",)
    assert PROVEN_FENCE.fence in render_sweep(in_global)
    assert sweep_spec(pair, "global", ext | {"nvidia_ptx"}, "lock").options == ()


def test_what_is_tried_is_what_is_used():
    for row in NATIVE_ATOMICS:
        if row.guard:
            tried = probe.probe_code([row])
            assert f"#if {row.guard}\n" in tried
            assert row.code in tried
            if row.numbers == 1:  # those of rows of values are in test_rows_at_once.py
                operator = getattr(operators, row.operation)(row.dtype)
                assert row.code in render_sweep(sweep_spec(operator, row.memory, frozenset({row.feature})))
