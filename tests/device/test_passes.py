"""Passes over local memory side by side: their work-groups share the device, and may have bins dealt out one by one."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import numpy as np
import pytest

from clhist import HistogramKernel, operators
from clhist.selftest.inputs import drawn
from clhist.selftest.reference import folded


def reference(ufunc, bins, values, num_bins, dest=None, dtype=np.int32):
    return folded(ufunc, bins, values, np.zeros(num_bins, dtype) if dest is None else dest)


NUMBER = 20_011
DISTRIBUTIONS = ("uniform, some outside", "zipf", "half in one", "all in the last bin", "sorted", "few inside")


@pytest.fixture(scope="module")
def profile(gpu_like):
    """Room for 1024 bins of 4 bytes, and eight work-groups."""
    return dataclasses.replace(gpu_like, local_memory=4096)


def kernel_of(operator, profile, code="EMIT(x[i], w[i])", value="value_t"):
    arguments = f"const int *x, const {value} *w"
    return HistogramKernel(None, operator, arguments=arguments, map=code, profile=profile)


@pytest.mark.parametrize(
    ("operator", "update", "deals"),
    [
        (operators.add(np.int32), "native", False),
        (operators.add(np.float32), "cas", True),
        (operators.saturating_add(np.int32, 1000), "cas", True),
        (operators.maximum(np.int64), "lock", True),
    ],
    ids=lambda of: str(of),
)
def test_results(operator, update, deals, profile, rng):
    kernel = kernel_of(operator, profile)
    ufunc = {"maximum": np.maximum}.get(operator.name, np.add)
    for bins in (3001, 5120):
        asked = {"memory": "local", "update": update, "pass_order": "side by side"}
        found = kernel.plan(NUMBER, bins, **asked)
        assert found.passes > 2
        assert (found.pass_order, found.cyclic_passes) == ("side by side", deals)
        for name in DISTRIBUTIONS:
            x, w = drawn(name, rng, NUMBER, bins), rng.integers(0, 9, NUMBER).astype(operator.dtype)
            dest = rng.integers(0, 9, bins).astype(operator.dtype)
            expected = reference(ufunc, x, w, bins, dest, dtype=operator.dtype)
            if operator.name == "saturating_add":
                expected = np.minimum(expected, 1000)
            np.testing.assert_array_equal(kernel(x, w, num_bins=bins, dest=dest, **asked), expected, name)


@pytest.mark.parametrize("order", ["in turn", "side by side"])
def test_several_outputs(order, profile, rng):
    """Products, too: their parts share the ranges; outputs of different numbers of bins do not."""
    both = {"n": operators.add(np.int32), "mean": operators.mean(np.float32)}
    kernel = kernel_of(both, profile, "EMIT_n(x[i], 1); EMIT_mean(x[i] / 2, w[i])", "float")
    x, w = drawn("zipf", rng, NUMBER, 900), rng.integers(0, 9, NUMBER).astype(np.float32)
    shapes = {"n": 900, "mean": 451}
    found = kernel(x, w, num_bins=shapes, memory="local", pass_order=order)
    inside = (x >= 0) & (x < 900)
    np.testing.assert_array_equal(found["n"], np.bincount(x[inside], minlength=900))
    inside = (x >= 0) & (x // 2 < 451)
    number, total = (np.bincount(x[inside] // 2, each, 451) for each in (None, w[inside]))
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(found["mean"], (total / number).astype(np.float32), rtol=1e-6)


def test_batches(profile, rng):
    """Each histogram of a batch has a work-group for every pass, if they are enough."""
    profile = dataclasses.replace(profile, hardware_threads=64 * 24)
    kernel, bins, each = kernel_of(operators.add(np.int32), profile, value="int"), 2500, 4001
    asked = {"memory": "local", "num_histograms": 3}
    assert kernel.plan(3 * each, bins, **asked).pass_order == "side by side"
    x, w = rng.integers(-2, bins + 2, 3 * each, np.int32), rng.integers(0, 9, 3 * each, np.int32)
    expected = np.stack([reference(np.add, *(a[k * each :][:each] for a in (x, w)), bins) for k in range(3)])
    for order in ("in turn", "side by side", None):
        np.testing.assert_array_equal(kernel(x, w, num_bins=bins, pass_order=order, **asked), expected)
    offsets, expected = [0, 11, 11, x.size], []
    for first, last in pairwise(offsets):
        expected.append(reference(np.add, x[first:last], w[first:last], bins))
    found = kernel(x, w, num_bins=bins, offsets=offsets, memory="local", pass_order="side by side")
    np.testing.assert_array_equal(found, np.stack(expected))


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65])
def test_short_inputs(size, profile, rng):
    kernel = kernel_of(operators.add(np.int32), profile, value="int")
    x, w = rng.integers(0, 5000, size, np.int32), rng.integers(0, 9, size, np.int32)
    for update in ("native", "cas"):
        asked = {"memory": "local", "pass_order": "side by side", "update": update}
        np.testing.assert_array_equal(kernel(x, w, num_bins=5000, **asked), reference(np.add, x, w, 5000))
