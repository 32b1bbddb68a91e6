"""Functions, streams and bound calls that take half precision: the results of their kernels, in their dtypes."""

import pickle

import numpy as np
import pyopencl.array as cl_array
import pytest
from halves import BINS, N, assert_rounded, both, drawn, places

import clhist
from clhist import ndimage, operators, stats

pytestmark = pytest.mark.usefixtures("without_optimizer")


@both
@places
def test_weights(dtype, put):
    to, read = put
    bins, values = drawn(dtype, 40_000)
    x, exact = bins.astype(np.float32), values.astype(np.float64)
    expected = np.bincount(bins, exact)
    np.testing.assert_allclose(read(clhist.bincount(to(bins), to(values))), expected, rtol=1e-12)
    hist, _ = clhist.histogram(to(x), BINS, weights=to(values))
    assert_rounded(read(hist), np.histogram(x, BINS, weights=exact)[0], dtype)
    once, _ = clhist.histogram(to(x), BINS, weights=to(values), reproducible=True)
    assert_rounded(read(once), np.histogram(x, BINS, weights=exact)[0], dtype)
    several, _ = clhist.histogramdd((to(x), to(x)), 5, weights=to(values))
    np.testing.assert_allclose(read(several), np.histogramdd((x, x), 5, weights=exact)[0], rtol=1e-6, atol=1e-9)
    mean = stats.binned_statistic(to(x), to(values), "mean", bins=9).statistic
    whole = stats.binned_statistic(to(x), to(values.astype(np.float32)), "mean", bins=9).statistic
    np.testing.assert_array_equal(read(mean), read(whole))
    sums = ndimage.sum_labels(to(values), to(bins), np.arange(BINS))
    assert_rounded(read(sums).astype(np.float64), ndimage.sum_labels(exact, bins, np.arange(BINS)), np.float64)


@both
@places
def test_groups(dtype, put):
    to, read = put
    bins, values = drawn(dtype)
    values[::50] = np.nan
    groups, whole = clhist.group_by(to(bins)), to(values.astype(np.float32))
    names = "sum", "mean", "var", "min", "max", "argmin", "first", "prod", "any", "count"
    found = groups.agg(x=(to(values), *names), y=(to(values), "median", "sum"))
    expected = groups.agg(x=(whole, *names), y=(whole, "median", "sum"))
    for column, of in expected.items():
        for name, each in of.items():
            assert found[column][name].dtype == each.dtype
            np.testing.assert_array_equal(read(found[column][name]), read(each), err_msg=name)
    for call in (
        lambda x: groups.sum(x, reproducible=True),
        lambda x: groups.quantile(x, 0.3),
        lambda x: groups.weighted_mean(x, x),
        lambda x: groups.agg(x=(x, "sum", "median"), reproducible=True)["x"]["sum"],
    ):
        np.testing.assert_array_equal(read(call(to(values))), read(call(whole)))
    with pytest.raises(TypeError, match=r"^dtype: expected a float, got"):
        groups.sum(to(values), dtype=dtype)


@both
@pytest.mark.parametrize("op", ["sum", "max", "mean"])
def test_streams(dtype, op):
    bins, values = drawn(dtype)
    expected = np.full(BINS, -np.inf if op == "max" else 0.0)
    (np.maximum if op == "max" else np.add).at(expected, bins, values.astype(np.float64))
    if op == "mean":
        expected /= np.bincount(bins, minlength=BINS)
    accumulator = clhist.Accumulator(op, BINS, dtype=dtype)
    for part in np.array_split(np.arange(N), 7):
        accumulator.add(bins[part], values[part])
    assert_rounded(accumulator.result(), expected, dtype)
    spec = clhist.Spec(op, BINS, dtype=dtype)
    parts = [spec.partial(bins[:5], values[:5]), spec.partial(bins[5:], values[5:])]
    whole = clhist.merge(pickle.loads(pickle.dumps(parts)))
    assert_rounded(spec.result(whole), expected, dtype)
    several = clhist.MultiAccumulator(op, BINS, dtype=dtype)
    several.add(bins, values)
    assert_rounded(several.result(), expected, dtype)


@both
@pytest.mark.parametrize("scale", ["value_t scale", "const {} scale", "const {} &scale"])
def test_kernels_and_bound_calls(dtype, queue, scale):
    bins, values = drawn(dtype)
    c_type = "half" if dtype == np.float16 else "bfloat16"
    kernel = clhist.HistogramKernel(
        queue.context,
        operators.add(dtype),
        arguments=f"const long *b, const {c_type} *x, {scale.format(c_type)}",
        map="if (x[i] > 0) EMIT(b[i], scale * x[i])",
    )
    exact = np.bincount(bins, np.maximum(values.astype(np.float64), 0) * 1.5, BINS)
    factor = np.full(1, 1.5, dtype) if "&" in scale else 1.5
    assert_rounded(kernel(bins, values, factor, num_bins=BINS), exact, dtype)
    given = [cl_array.to_device(queue, each) if np.ndim(each) else each for each in (bins, values, factor)]
    assert_rounded(kernel.bind(*given, num_bins=BINS)().get(), exact, dtype)
    with pytest.raises(TypeError, match=r"^x: expected .*float"):
        kernel(bins, values.astype(np.float32), factor, num_bins=BINS)


@both
def test_pairs_hold_floats(dtype):
    bins, values = drawn(dtype)
    found = clhist.reduce_by_index(BINS, "argmax", bins, values)
    expected = clhist.reduce_by_index(BINS, "argmax", bins, values.astype(np.float32))
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@both
def test_batches(dtype):
    bins, values = drawn(dtype, 300)
    found = clhist.reduce_by_index(
        (3, BINS), "sum", bins.reshape(3, 100), values.reshape(3, 100), batched=True, dtype=dtype
    )
    exact = [np.bincount(bins[k : k + 100], values[k : k + 100].astype(np.float64), BINS) for k in (0, 100, 200)]
    assert_rounded(found, np.array(exact), dtype)


def test_a_dest_of_integers_is_refused():
    with pytest.raises(TypeError, match=r"^values: expected what converts to int32 of dest, got float16"):
        clhist.reduce_by_index(np.zeros(3, np.int32), "sum", np.zeros(2, int), np.ones(2, np.float16))


@both
def test_parts_of_the_data_over_devices(dtype, queue):
    bins, values = drawn(dtype)
    exact, devices = np.bincount(bins, values.astype(np.float64), BINS), [queue.device]
    assert_rounded(clhist.reduce_by_index(BINS, "sum", bins, values, dtype=dtype, devices=devices), exact, dtype)
    np.testing.assert_allclose(clhist.bincount(bins, values, devices=devices), exact, rtol=1e-12)
    hist, _ = clhist.histogram(bins.astype(float), BINS, (0, BINS), weights=values, devices=devices)
    assert_rounded(hist, exact, dtype)


@both
def test_own_operators_and_lists(dtype, queue):
    bins, values = drawn(dtype)
    expected = clhist.reduce_by_index(BINS, "max", bins, values)
    own = clhist.Operator(dtype, "(a > b) ? a : b", -np.inf, "larger")
    for put in (np.asarray, lambda array: cl_array.to_device(queue, array)):
        found = clhist.reduce_by_index(BINS, own, put(bins), put(values))
        np.testing.assert_array_equal(found if isinstance(found, np.ndarray) else found.get(), expected)
    halves = clhist.reduce_by_index(np.zeros(2, dtype), "sum", [0, 1, 1], 0.5)
    np.testing.assert_array_equal(halves.astype(np.float32), [0.5, 1])


@both
@pytest.mark.parametrize("step", [1, 2])
def test_arrays_that_are_left_to_numpy_and_scipy(dtype, step):
    bins, values = (array[:60:step] for array in drawn(dtype))
    exact = values.astype(np.float64)
    np.testing.assert_allclose(clhist.bincount(bins, values), np.bincount(bins, exact))
    found = stats.binned_statistic(bins.astype(float), values, "sum", bins=4).statistic
    np.testing.assert_allclose(found, stats.binned_statistic(bins.astype(float), exact, "sum", bins=4).statistic)
    assert_rounded(clhist.histogram(bins, 4, weights=values)[0], np.histogram(bins, 4, weights=exact)[0], dtype)


def test_numbers_of_the_other_byte_order():
    bins, values = drawn(np.float16)
    found = clhist.reduce_by_index(BINS, "sum", bins, values.astype(">f2"), reproducible=True)
    np.testing.assert_array_equal(found, clhist.reduce_by_index(BINS, "sum", bins, values, reproducible=True))
