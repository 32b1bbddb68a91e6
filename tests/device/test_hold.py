"""Skewed bins, for which work-items of a GPU hold a bin that many want and update it seldom."""

from __future__ import annotations

import numpy as np
import pytest
from covering import covering, each_value_quick

import clhist
from clhist import operators
from clhist.selftest.inputs import drawn

pytestmark = pytest.mark.usefixtures("with_optimizer")

SIZE = 20_011
RECORD = np.dtype([("key", np.int64), ("position", np.int64)])
LARGEST = clhist.Operator(
    RECORD, "b.key > a.key || (b.key == a.key && b.position < a.position) ? b : a", (-(2**40), 2**40)
)


NAMES = ["uniform, some outside", "all in one", "half in one", "sorted", "zipf", "one of two"]
WAYS = [("cas", "local"), ("cas", "global"), ("cas", "partitioned"), ("lock", "local"), ("lock", "global")]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("way", "bins", "ufunc"), each_value_quick(covering(WAYS, [3, 5000], [np.add, np.maximum])))
def test_sums_and_maxima(name, way, bins, ufunc, gpu_like, queue, rng):
    x, w = drawn(name, rng, SIZE, bins), rng.integers(-9, 9, SIZE).astype(np.float32)
    inside = (x >= 0) & (x < bins)
    operator = operators.as_operator(ufunc, np.float32)
    expected = np.full(bins, 0 if ufunc is np.add else -np.inf, np.float32)
    ufunc.at(expected, x[inside], w[inside])
    kernel = clhist.HistogramKernel(
        queue.context, operator, arguments="const int *x, const float *w", map="EMIT(x[i], w[i])", profile=gpu_like
    )
    update, memory = way
    np.testing.assert_array_equal(kernel(x, w, num_bins=bins, update=update, memory=memory), expected)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("memory", ["local", "global", "partitioned"])
def test_structs_in_passes(name, memory, gpu_like, queue, rng):
    """Of 16 bytes with a lock, of which local memory holds fewer than there are: a pass holds what is in it."""
    bins = 3000
    x, keys = drawn(name, rng, SIZE, bins), rng.integers(-50, 50, SIZE).astype(np.int32)
    kernel = clhist.HistogramKernel(
        queue.context,
        LARGEST,
        arguments="const int *x, const int *keys",
        map="EMIT(x[i], ((value_t){keys[i], i}))",
        profile=gpu_like,
    )
    inside = np.flatnonzero((x >= 0) & (x < bins))
    expected = np.full(bins, np.array((-(2**40), 2**40), RECORD))
    for i in inside[np.lexsort((-inside, keys[inside]))]:  # the last that is written: largest key, then first position
        expected[x[i]] = keys[i], i
    np.testing.assert_array_equal(kernel(x, keys, num_bins=bins, memory=memory), expected)
    if memory == "local":
        assert kernel.plan(SIZE, bins, memory=memory).passes > 1


@pytest.mark.parametrize("name", ["all in one", "half in one"])
def test_one_operator_with_a_name(name, gpu_like, queue, rng):
    x = drawn(name, rng, SIZE, 100)
    kernel = clhist.HistogramKernel(
        queue.context,
        {"sums": operators.add(np.float32)},
        arguments="const int *x",
        map="EMIT_sums(x[i], 2)",
        profile=gpu_like,
    )
    (chosen,) = kernel.plan(SIZE, 100, update="cas")
    assert "clhist_hot_value" in kernel.source(chosen)
    found = kernel(x, num_bins=100, update="cas")["sums"]
    np.testing.assert_array_equal(found, 2 * np.bincount(x, minlength=100))


def test_where_it_is_of_use(gpu_like, cpu_like, queue):
    """Not where an element has several pairs, where nothing is shared, on a CPU, nor where the hardware is fast."""

    def holds(operator=operators.add(np.float32), code="EMIT(x[i], 1)", profile=gpu_like, **choices):
        kernel = clhist.HistogramKernel(queue.context, operator, arguments="const int *x", map=code, profile=profile)
        return "clhist_hot_value" in kernel.source(kernel.plan(10**5, 100, **choices))

    assert holds(update="cas")
    assert holds(update="lock", memory="global")
    assert holds(operators.add(np.int32), memory="global")
    assert not holds(operators.add(np.int32), memory="local")
    assert not holds(code="EMIT(x[i], 1); EMIT(x[i] + 1, 1)", update="cas")
    assert not holds(code="for (int k = 0; k < 2; ++k) EMIT(x[i] + k, 1)", update="cas")
    assert not holds(update="private")
    assert not holds(update="cas", profile=cpu_like)
