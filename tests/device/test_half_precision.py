"""Half precision: values are read as they are, added up as floats and rounded once, wherever values are taken."""

import math
import pickle
from fractions import Fraction

import ml_dtypes
import numpy as np
import pyopencl.array as cl_array
import pytest
from covering import covering, each_value_quick

import clhist
from clhist import ndimage, operators, stats

DTYPES = [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]
EPS = {np.dtype(np.float16): 2.0**-11, np.dtype(ml_dtypes.bfloat16): 2.0**-8}
N, BINS = 20_011, 97

both = pytest.mark.parametrize("dtype", DTYPES, ids=str)
places = pytest.mark.parametrize("place", ["host", "device"])


@pytest.fixture
def put(place, queue):
    """Return what puts an array where a test has its arrays, and what reads one."""
    if place == "host":
        return (lambda array: array), np.asarray
    return (lambda array: cl_array.to_device(queue, array)), lambda array: array.get()


def every(dtype):
    """Return all numbers of a dtype, NaN of all sorts among them."""
    return np.arange(1 << 16, dtype=np.uint16).view(dtype)


def finite(dtype):
    """Return all numbers of a dtype that are neither infinite nor NaN."""
    values = every(dtype)
    with np.errstate(invalid="ignore"):
        return values[np.isfinite(values.astype(np.float32))]


def drawn(dtype, shape=N, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, BINS, shape if isinstance(shape, int) else shape[0]), rng.normal(size=shape).astype(dtype)


def assert_rounded(found, exact, dtype):
    """Assert that sums are what float32 has of the exact ones, rounded to `dtype`."""
    assert found.dtype == dtype
    close = EPS.get(np.dtype(dtype), 0.0) + 1e-5
    np.testing.assert_allclose(found.astype(np.float64), exact, rtol=close, atol=1e-4)


@pytest.mark.parametrize(("dtype", "op", "reproducible"), covering(DTYPES, ["sum", "min", "max"], [False, True]))
def test_every_number_comes_back(dtype, op, reproducible):
    values = every(dtype)
    found = clhist.reduce_by_index(
        values.size, op, np.arange(values.size), values, dtype=dtype, reproducible=reproducible
    )
    assert found.dtype == dtype
    number = ~np.isnan(values.astype(np.float32))
    np.testing.assert_array_equal(found.astype(np.float32)[number], values.astype(np.float32)[number])
    assert np.isnan(found.astype(np.float32)[~number]).all()
    if op != "sum":  # of which +0 is the identity
        np.testing.assert_array_equal(found.view(np.uint16)[number], values.view(np.uint16)[number])


@both
@pytest.mark.parametrize("op", ["min", "max"])
def test_extremes_are_exact(dtype, op, queue):
    values = finite(dtype)
    bins = np.random.default_rng(3).integers(0, BINS, values.size)
    expected = np.full(BINS, np.inf if op == "min" else -np.inf)
    (np.minimum if op == "min" else np.maximum).at(expected, bins, values.astype(np.float64))
    found = clhist.reduce_by_index(BINS, op, bins, values)
    np.testing.assert_array_equal(found.astype(np.float64), expected)


@both
@places
@pytest.mark.parametrize("of_dest", ["none", "half", "float32", "float64"])
def test_sums_with_dest_and_out(dtype, put, of_dest):
    to, read = put
    bins, values = drawn(dtype)
    exact = np.bincount(bins, values.astype(np.float64), BINS)
    if of_dest == "none":
        assert_rounded(read(clhist.reduce_by_index(BINS, "sum", to(bins), to(values), dtype=dtype)), exact, dtype)
        return
    result = {"half": dtype, "float32": np.dtype(np.float32), "float64": np.dtype(np.float64)}[of_dest]
    before = np.linspace(-3, 5, BINS).astype(result)
    dest = to(before.copy())
    assert clhist.reduce_by_index(dest, "sum", to(bins), to(values), out=dest) is dest
    assert_rounded(read(dest), exact + before.astype(np.float64), result)


@both
def test_wider_values_for_a_narrow_dest(dtype):
    bins, values = drawn(np.float32)
    found = clhist.reduce_by_index(np.zeros(BINS, dtype), "sum", bins, values)
    assert_rounded(found, np.bincount(bins, values.astype(np.float64), BINS), dtype)


@pytest.mark.parametrize(
    ("dtype", "place", "width", "op"),
    each_value_quick(covering(DTYPES, ["host", "device"], [1, 3, 8, 33], ["sum", "mean", "max"])),
)
def test_rows(dtype, put, width, op):
    to, read = put
    bins, values = drawn(dtype, (N // 8, width))
    whole = values.astype(np.float64)
    expected = np.full((BINS, width), -np.inf if op == "max" else 0.0)
    (np.maximum if op == "max" else np.add).at(expected, bins, whole)
    if op == "mean":
        expected /= np.bincount(bins, minlength=BINS)[:, None]
    given = (BINS, width), op, to(bins), to(values)
    assert_rounded(read(clhist.reduce_by_index(*given, dtype=dtype)), expected, dtype)
    out = to(np.zeros((BINS, width), dtype))
    clhist.reduce_by_index(*given, out=out)
    assert_rounded(read(out), expected, dtype)


WAYS = [
    {"update": "private"}, {"update": "cas"}, {"update": "lock"}, {"update": "sort"}, {"memory": "global"},
    {"memory": "local"}, {"memory": "partitioned"}, {"memory": "local", "passes": 3}, {"work_group_size": 1},
    {"work_group_size": 48}, {"copies": 2},
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "options", "op"), each_value_quick(covering(DTYPES, WAYS, ["sum", "max"])), ids=str)
def test_every_way(dtype, options, op):
    bins, values = drawn(dtype)
    exact = np.full(BINS, 0.0 if op == "sum" else -np.inf)
    (np.add if op == "sum" else np.maximum).at(exact, bins, values.astype(np.float64))
    assert_rounded(clhist.reduce_by_index(BINS, op, bins, values, dtype=dtype, **options), exact, dtype)


@both
@pytest.mark.parametrize("size", [0, 1, 2, 63])
@pytest.mark.parametrize("bins", [1, 1000])
def test_few_elements(dtype, size, bins):
    values = np.arange(size).astype(dtype)
    for order in (np.zeros(size, np.int32), np.arange(size), np.arange(size) - 5, np.full(size, bins)):
        exact, inside = np.zeros(bins), (order >= 0) & (order < bins)
        np.add.at(exact, order[inside], values.astype(np.float64)[inside])
        found = clhist.reduce_by_index(bins, "sum", order, values, dtype=dtype)
        np.testing.assert_array_equal(found, exact.astype(dtype))


def nearest_of(exact, numbers):
    """Return the numbers that are nearest to an exact one, of a sorted list of all finite ones."""
    at = np.searchsorted(numbers, float(exact))
    near = numbers[max(at - 2, 0) : at + 2]
    distances = [abs(Fraction(float(each)) - exact) for each in near]
    return [float(each) for each, distance in zip(near, distances, strict=True) if distance == min(distances)]


@both
def test_exact_sums_are_rounded_once(dtype):
    rng, numbers = np.random.default_rng(5), np.unique(finite(dtype).astype(np.float64))
    least = float(numbers[numbers > 0][0])
    step = numbers[rng.integers(1000, numbers.size - 1000, 2000)]
    between = np.stack([step, np.spacing(step.astype(np.float32)), rng.choice([-1.0, 0.0, 1.0], 2000) * least / 4], 1)
    ties = np.stack([step, (np.nextafter(step, np.inf) - step), np.zeros(2000)], 1)
    small = np.array([[k * least / 4, 0, 0] for k in range(-12, 13)])
    values = np.concatenate([between, ties, small]).astype(np.float32)
    bins = np.repeat(np.arange(len(values)), 3)
    found = clhist.reduce_by_index(np.zeros(len(values), dtype), "sum", bins, values.ravel(), reproducible=True)
    for k, each in enumerate(values):
        exact = sum(map(Fraction, map(float, each)), Fraction(0))
        near = nearest_of(exact, numbers)
        assert float(found[k]) in near
        assert len(near) == 1 or found[k : k + 1].view(np.uint16)[0] % 2 == 0  # of two the even one


@both
@pytest.mark.parametrize("max_abs", [None, 8.0])
def test_sums_that_no_order_changes(dtype, max_abs):
    bins, values = drawn(dtype)
    order = np.random.default_rng(9).permutation(N)
    options = {"reproducible": True, "max_abs": max_abs}
    one = clhist.reduce_by_index(BINS, "sum", bins, values, **options)
    assert one.tobytes() == clhist.reduce_by_index(BINS, "sum", bins[order], values[order], **options).tobytes()
    exact = [math.fsum(values[bins == k].astype(np.float64).tolist()) for k in range(BINS)]
    np.testing.assert_allclose(one.astype(np.float64), exact, rtol=EPS[dtype])


@both
def test_sums_beyond_what_there_is(dtype):
    values = np.array([np.inf, np.inf, -np.inf, np.nan, 1], dtype)
    for options in ({}, {"reproducible": True}):
        found = clhist.reduce_by_index(4, "sum", np.array([0, 1, 1, 2, 3]), values, **options).astype(np.float64)
        np.testing.assert_array_equal(found, [np.inf, np.nan, np.nan, 1])
    largest = finite(dtype).astype(np.float64).max()
    largest, options = np.array([largest, largest], dtype), {"reproducible": True, "dtype": dtype}
    found = clhist.reduce_by_index(1, "sum", np.zeros(2, int), largest, **options)
    assert np.isposinf(found.astype(np.float64)).all()
    with pytest.raises(OverflowError, match=r"^max_abs: expected no less than the largest"):
        clhist.reduce_by_index(1, "sum", np.zeros(2, int), np.array([3, 3], dtype), reproducible=True, max_abs=0.5)


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
