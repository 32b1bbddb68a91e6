"""A minute's look at a device: the self-test's quick checks, and each public function once."""

from __future__ import annotations

import numpy as np
import pyopencl.array as cl_array
from device_checks import each_check, holds

import clhist
from clhist import operators


@each_check(quick=True)
def test_quick_check(check):
    holds(check)


def test_functions(rng):
    x, values = rng.integers(0, 40, 5000), rng.integers(-9, 9, 5000)
    np.testing.assert_array_equal(clhist.bincount(x), np.bincount(x))
    expected = np.bincount(x, values, 40).astype(np.int64)
    found = clhist.reduce_by_index(np.zeros(40, np.int64), np.add, x, values)
    np.testing.assert_array_equal(found, expected)


def test_a_kernel_its_plan_and_its_source(queue, rng):
    x = rng.integers(-2, 45, 5000, np.int32)
    kernel = clhist.HistogramKernel(
        queue.context, operators.add(np.int32), arguments="const int *x", map="EMIT(x[i], 1)"
    )
    result = kernel(cl_array.to_device(queue, x), num_bins=40)
    assert isinstance(result, cl_array.Array)
    np.testing.assert_array_equal(result.get(), np.bincount(x[(x >= 0) & (x < 40)], minlength=40))
    plan = kernel.plan(5000, 40)
    assert (plan.num_elements, plan.num_bins) == (5000, 40)
    assert "clhist_sweep" in kernel.source(plan)


def test_an_accumulator(rng):
    x, values = rng.integers(0, 40, 5000), rng.integers(-9, 9, 5000)
    total = clhist.Accumulator(operators.add(np.int64), 40)
    for part in np.array_split(np.arange(5000), 3):
        total.add(x[part], values[part])
    np.testing.assert_array_equal(total.result(), np.bincount(x, values, 40))


def test_the_device_is_described(queue):
    profile = clhist.device_profile(queue.device)
    assert clhist.named_profile("nvidia-tesla-p100").name != profile.name
    assert clhist.plan(clhist.Problem.of(operators.count(), 100, 10**6), profile).num_bins == 100
