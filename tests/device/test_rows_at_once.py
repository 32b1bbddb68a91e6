"""Rows that atomics of several numbers add to the results: right with them, and where few bins have very many rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyopencl.array as cl_array
import pytest

import clhist
from clhist._core.devices.vendors import NativeAtomic
from clhist._core.kernels import rows as codegen_rows
from clhist._core.model import sweeps
from clhist._core.model.times import BANDWIDTH, LAUNCH, ROWS_AT_ONCE
from clhist._core.opencl.device import device_profile, profile_context

_ADD = """
    volatile __global uint *words = (volatile __global uint *)p;
    const float parts[4] = {v.x, v.y, v.z, v.w};
    for (int k = 0; k < 4; ++k) {
        uint before = words[k], now = before;
        do {
            before = now;
            now = atomic_cmpxchg(words + k, before, as_uint(as_float(before) + parts[k]));
        } while (now != before);
    }
"""
ATOMIC = NativeAtomic("add", np.dtype(np.float32), "global", _ADD, "float4", numbers=4)


@pytest.fixture(autouse=True)
def with_the_atomic(queue, monkeypatch):
    """As on a GPU that has such an atomic, and has measured it."""

    def vector_atomic(operation, dtype, features):
        return ATOMIC if operation == "add" and dtype == np.float32 else None

    monkeypatch.setattr(sweeps, "vector_atomic", vector_atomic)
    monkeypatch.setattr(codegen_rows, "vector_atomic", vector_atomic)
    profile = device_profile(queue.device)
    rates = {ROWS_AT_ONCE: 1e6, LAUNCH: 1.0, BANDWIDTH: 1e6}
    with profile_context(replace(profile, kind="gpu", hardware_threads=2048, work_group_size=64, rates=rates)):
        yield


def _expected(dest, bins, values):
    inside = (bins >= 0) & (bins < len(dest))
    sums = [np.bincount(bins[inside], column[inside], len(dest)) for column in values.T]
    return (dest + np.stack(sums, axis=1)).astype(np.float32)  # in float64


@pytest.mark.parametrize("kind", ["uniform", "sorted", "half", "outside"])
@pytest.mark.parametrize(
    ("n", "h", "d"),
    [(90_011, 5000, 4), (70_001, 9001, 8), (40_011, 40_000, 12), (99, 9000, 4), (40_011, 4096, 4), (9_003, 600, 64)],
)
def test_as_numpy(kind, n, h, d, queue, rng):
    bins = rng.integers(-h if kind == "outside" else 0, 2 * h if kind == "outside" else h, n, dtype=np.int32)
    bins = np.sort(bins) if kind == "sorted" else np.where(rng.random(n) < 0.5, 7, bins) if kind == "half" else bins
    bins, values = bins.astype(np.int32), rng.integers(-9, 10, (n, d)).astype(np.float32)
    zeros, dest = np.zeros((h, d), np.float32), rng.integers(-9, 10, (h, d)).astype(np.float32)
    given = cl_array.to_device(queue, bins), cl_array.to_device(queue, values)
    for _ in range(3):  # the last one is known
        found = clhist.reduce_by_index((h, d), "sum", *given)
        np.testing.assert_array_equal(found.get(), _expected(zeros, bins, values))
    on_device, out = cl_array.to_device(queue, dest), cl_array.empty(queue, (h, d), np.float32)
    clhist.reduce_by_index(on_device, "sum", *given, out=out)
    np.testing.assert_array_equal(out.get(), _expected(dest, bins, values))
    np.testing.assert_array_equal(on_device.get(), dest)
    clhist.reduce_by_index(on_device, "sum", *given, out=on_device)
    np.testing.assert_array_equal(on_device.get(), _expected(dest, bins, values))
    np.testing.assert_array_equal(clhist.reduce_by_index(dest, "sum", bins, values, queue=queue), out.get())


@pytest.mark.parametrize(
    ("op", "dtype", "shape"),
    [("max", np.float32, (6000, 4)), ("sum", np.float64, (6000, 4)), ("sum", np.float32, (6000, 3))],
)
def test_what_others_add(op, dtype, shape, queue, rng):
    """Other operators, dtypes and rows that no such atomic has."""
    bins, values = rng.integers(0, shape[0], 40_000, dtype=np.int32), rng.normal(size=(40_000, shape[1])).astype(dtype)
    dest = np.full(shape, -np.inf if op == "max" else 0, dtype)
    expected = dest.copy()
    (np.maximum if op == "max" else np.add).at(expected, bins, values)
    np.testing.assert_allclose(
        clhist.reduce_by_index(shape, op, bins, values, queue=queue), expected, rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("bins", ["one", "two", "first differs", "none"])
def test_rows_of_one_bin_are_one_atomic(bins, queue, rng):
    """Work-groups of 48, with twelve rows at a time."""
    n, h, d = 5001, 1024, 16
    of_kind = {
        "one": np.full(n, 9),
        "two": np.arange(n) % 2 * 1023,
        "first differs": np.where(np.arange(n) % 96 < 12, np.arange(n) % h, 5),
        "none": np.full(n, h),
    }
    number, values = of_kind[bins].astype(np.int32), rng.integers(-9, 10, (n, d)).astype(np.float32)
    profile = device_profile(queue.device)
    with profile_context(replace(profile, work_group_size=48)):
        found = clhist.reduce_by_index((h, d), "sum", *(cl_array.to_device(queue, each) for each in (number, values)))
    np.testing.assert_array_equal(found.get(), _expected(np.zeros((h, d), np.float32), number, values))


def test_rows_that_begin_anywhere(queue, rng):
    """Sixteen bytes at once need arrays that begin at multiples of them: else PoCL crashes."""
    bins, values = (
        rng.integers(0, 5000, 40_000, dtype=np.int32),
        rng.integers(-9, 10, 40_000 * 16 + 1).astype(np.float32),
    )
    shifted = cl_array.to_device(queue, values)[1:].reshape(40_000, 16)
    found = clhist.reduce_by_index((5000, 16), "sum", cl_array.to_device(queue, bins), shifted)
    expected = _expected(np.zeros((5000, 16), np.float32), bins, values[1:].reshape(40_000, 16))
    np.testing.assert_array_equal(found.get(), expected)
