"""Options from the environment that all programs would be built with."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pyopencl as cl
import pytest
from covering import covering, each_value_quick

import clhist
from clhist._core.opencl import build_options, intel
from clhist._core.opencl.build_options import check_environment
from clhist._core.opencl.program import build

pytestmark = pytest.mark.usefixtures("with_optimizer")

SOURCE = "kernel void clhist_options{}(global int *x) {{ x[0] = {}; }}"
WRONG = [
    "-cl-fast-relaxed-math",
    "-cl-finite-math-only",
    "-cl-unsafe-math-optimizations",
    "-cl-no-signed-zeros",
    "-cl-mad-enable",
    "-cl-denorms-are-zero",
    "-cl-single-precision-constant",
    "-Di=3",
    "-D i=3",
    "-DNAN",
    "-Uuint",
    "-include x.h",
    "-ffast-math",
    "-ffp-contract=fast",
]
RIGHT = ["", "-I/tmp", "-Werror", "-cl-std=CL1.2", "-cl-opt-disable", "-w", "-cl-kernel-arg-info", "-g"]


@pytest.mark.parametrize("option", WRONG)
def test_refused(option, queue, monkeypatch):
    monkeypatch.setenv("PYOPENCL_BUILD_OPTIONS", f"-w {option}")
    with pytest.raises(RuntimeError, match=rf"^PYOPENCL_BUILD_OPTIONS: expected .*, got {option.split()[0]}"):
        build(queue.context, SOURCE.format(WRONG.index(option), 1))


@pytest.mark.parametrize("option", RIGHT)
def test_taken(option, queue, monkeypatch):
    monkeypatch.setenv("PYOPENCL_BUILD_OPTIONS", option)
    check_environment(queue.context)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: clhist.bincount(x),
        lambda x: clhist.histogram(x, 10, (0, 9)),
        lambda x: clhist.reduce_by_index(10, "sum", x, np.float32(1)),
        lambda x: clhist.group_by(x).median(x),
        lambda x: clhist.Accumulator("count", 10).add(x, 1),
    ],
)
def test_first_calls(call, queue, monkeypatch):
    x = np.arange(100_000, dtype=np.int32) % 10
    monkeypatch.setenv("PYOPENCL_BUILD_OPTIONS", "-cl-finite-math-only")
    clhist.clear_caches()
    with pytest.raises(RuntimeError, match=r"^PYOPENCL_BUILD_OPTIONS: .* got -cl-finite-math-only; unset it"):
        call(x)
    monkeypatch.delenv("PYOPENCL_BUILD_OPTIONS")
    call(x)


def test_of_runtimes(queue, monkeypatch):
    is_pocl = queue.device.platform.name.startswith("Portable")
    is_intel = queue.device.platform.name.startswith("Intel")
    monkeypatch.setenv("POCL_EXTRA_BUILD_FLAGS", "-cl-fast-relaxed-math")
    monkeypatch.setenv("CL_CONFIG_USE_FAST_RELAXED_MATH", "True")
    context = cl.Context([queue.device])
    if is_pocl or is_intel:
        with pytest.raises(RuntimeError, match=r"^(POCL_EXTRA_BUILD_FLAGS|CL_CONFIG_USE_FAST_RELAXED_MATH): "):
            check_environment(context)
    else:
        check_environment(context)


@pytest.mark.parametrize(
    ("name", "dtype"), each_value_quick(covering(["maximum", "minimum"], ["i2", "i4", "u4", "i8", "u8"]))
)
def test_extremes_of_values_and_their_complements(name, dtype, queue, rng):
    """Intel's compiler is wrong for them where it compiles for AVX-512: clhist has it compile for AVX2."""
    x, c_type = rng.integers(0, 1000, 5000).astype(dtype), clhist.operators.c_types.c_name(np.dtype(dtype))
    operator, ufunc = getattr(clhist.operators, name)(dtype), getattr(np, name)
    expected = [ufunc.reduce(x), ufunc.reduce(~x)]
    pairs = f"EMIT(0, x[i]); EMIT(1, ({c_type})~x[i])"
    kernel = clhist.HistogramKernel(queue.context, operator, arguments=f"const {c_type} *x", map=pairs)
    # A program for each: every operator and every size of numbers have both memories.
    for memory in (None, "local" if (name == "maximum") == dtype.startswith("i") else "global"):
        assert kernel(x, num_bins=2, queue=queue, memory=memory).tolist() == expected
    # The complement alone, by the value as its bin.
    kernel = clhist.HistogramKernel(
        queue.context, operator, arguments=f"const {c_type} *x", map=f"EMIT(x[i] % 7, ({c_type})~x[i])"
    )
    expected = [ufunc.reduce(~x[x % 7 == k]) for k in range(7)]
    assert kernel(x, num_bins=7, queue=queue).tolist() == expected


def test_a_compiler_for_avx512_is_tried_once(queue, monkeypatch):
    assert build_options._are_right(queue.device)

    class Device:
        platform, type = SimpleNamespace(name="Intel(R) OpenCL"), cl.device_type.CPU

    tried, device = [], Device()
    monkeypatch.setattr(build_options, "_are_right", lambda device: tried.append(device))
    monkeypatch.setattr(intel, "_is_safe", True)
    check_environment(SimpleNamespace(devices=[device]))
    assert not tried
    monkeypatch.setattr(intel, "_is_safe", False)
    with pytest.warns(RuntimeWarning, match=r"^CL_CONFIG_CPU_TARGET_ARCH: .* set CL_CONFIG_CPU_TARGET_ARCH=core-avx2$"):
        check_environment(SimpleNamespace(devices=[device]))
    check_environment(SimpleNamespace(devices=[device]))
    assert tried == [device]
