"""Wrong arguments of histograms and binned statistics of device arrays: refused by name, with nothing enqueued."""

from __future__ import annotations

from decimal import Decimal
from functools import partial

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import clhist
from clhist import histogram, histogram2d, histogram_bin_edges, histogramdd, reduce_by_index, stats

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("without_optimizer")]

SIZE = 70_001
EDGES = np.linspace(0, 1, 6)
NAN_EDGES = np.array([0, np.nan, 1])

BINS = {
    "descending": EDGES[::-1],
    "neither": np.array([0, 2, 1.0]),
    "infinity inside": np.array([0, np.inf, 1]),
    "NaN": NAN_EDGES,
    "one edge": [1.0],
    "no edge": np.zeros(0),
    "0": 0,
    "negative": -3,
    "fraction": 2.5,
    "a matrix": np.zeros((2, 2)),
    "no rule": "no rule",
    "texts": ["a", "b"],
    "none": None,
    "complex": np.array([0, 1j]),
}
RANGES = {
    "reversed": (1, 0),
    "NaN": (np.nan, 1),
    "infinite": (0, np.inf),
    "three": (0, 1, 2),
    "a number": 3,
    "a text": "ab",
    "texts": ("a", "b"),
}


@pytest.fixture
def enqueued(monkeypatch):
    """Return a list that gets the name of each command that is enqueued."""
    names = []

    def watched(name, command, *args, **options):
        names.append(name)
        return command(*args, **options)

    for module in (cl, cl._cl):
        for name in dir(module):
            if name.lstrip("_").startswith("enqueue_"):
                monkeypatch.setattr(module, name, partial(watched, name, getattr(module, name)))
    return names


@pytest.fixture(scope="module")
def arrays(queue):
    x = np.random.default_rng(3).random(SIZE)
    columns = {"x": x.astype("f4"), "y": x[::-1].astype("f4"), "w": np.ones(SIZE, "f4"), "bytes": (x * 9).astype("u1")}
    found = {name: cl_array.to_device(queue, np.ascontiguousarray(column)) for name, column in columns.items()}
    return found | {"rows": cl_array.to_device(queue, np.stack([columns["x"], columns["y"]], 1))}


def check_refused(call, enqueued, **wrong):
    """Check that a call raises an error before anything is enqueued; return its text."""
    del enqueued[:]
    with pytest.raises((TypeError, ValueError, AttributeError)) as caught:  # the last is SciPy's
        call(**wrong)
    assert not enqueued, (wrong, caught.value)
    return str(caught.value)


def one_dimension(arrays):
    return {
        "histogram": partial(histogram, arrays["x"]),
        "of weights": partial(histogram, arrays["x"], weights=arrays["w"]),
        "of densities": partial(histogram, arrays["x"], density=True),
        "of bytes": partial(histogram, arrays["bytes"]),
        "of rows": partial(histogram, arrays["rows"], axis=1),
        "edges": partial(histogram_bin_edges, arrays["x"]),
        "mean": partial(stats.binned_statistic, arrays["x"], arrays["w"], "mean"),
        "median": partial(stats.binned_statistic, arrays["x"], arrays["w"], "median"),
    }


def two_dimensions(arrays):
    x, y, w = arrays["x"], arrays["y"], arrays["w"]
    return {
        "histogram2d": partial(histogram2d, x, y),
        "histogramdd": partial(histogramdd, [x, y]),
        "of weights": partial(histogramdd, [x, y], weights=w),
        "of rows": partial(histogramdd, arrays["rows"]),
        "mean": partial(stats.binned_statistic_2d, x, y, w, "mean"),
        "median": partial(stats.binned_statistic_dd, [x, y], w, "median"),
    }


# NumPy and SciPy take these.
ALLOWED = {("edges", name) for name in ("NaN", "one edge", "no edge", "texts", "complex")}
ALLOWED |= {("of bytes", name) for name in ("NaN", "one edge", "no edge", "texts", "complex")}
ALLOWED |= {(name, wrong) for name in ("mean", "median") for wrong in ("fraction", "one edge")}
HISTOGRAMS = ("histogram", "of weights", "of densities", "of rows")  # empty ones without a bin
ALLOWED |= {(name, wrong) for name in HISTOGRAMS for wrong in ("one edge", "no edge")}


@pytest.mark.parametrize("wrong", BINS)
def test_bins(wrong, arrays, enqueued):
    for name, call in one_dimension(arrays).items():
        if (name, wrong) not in ALLOWED:
            check_refused(call, enqueued, bins=BINS[wrong])
    for name, call in two_dimensions(arrays).items():
        for bins in ([BINS[wrong], 5], [5, BINS[wrong]]):
            if wrong == "one edge" and name not in ("mean", "median"):
                assert 0 in call(bins=bins)[0].shape
            elif (name, wrong) not in ALLOWED or wrong in ("one edge", "no edge"):
                check_refused(call, enqueued, bins=bins)


@pytest.mark.parametrize("wrong", RANGES)
def test_ranges(wrong, arrays, enqueued):
    for call in one_dimension(arrays).values():
        assert "range" in check_refused(call, enqueued, range=RANGES[wrong])
    for call in two_dimensions(arrays).values():
        for ranges in ([RANGES[wrong], (0, 1)], [(0, 1), RANGES[wrong]], RANGES[wrong], [None] * 3):
            assert "range" in check_refused(call, enqueued, range=ranges)


def test_bins_of_another_number_of_dimensions(arrays, enqueued):
    for name, call in two_dimensions(arrays).items():
        if name not in ("histogram2d", "mean"):
            message = check_refused(call, enqueued, bins=[2, 3, 4])
            assert message == "The dimension of bins must be equal to the dimension of the sample x."


@pytest.mark.parametrize(
    ("bins", "message"),
    [
        ([NAN_EDGES, 5], "bins[0]: expected one edge or more, none of them NaN, got array([ 0., nan,  1.])"),
        ([5, []], "bins[1]: expected one edge or more, none of them NaN, got []"),
        ([5, "auto"], "bins[1]: expected a number of bins or edges, got 'auto'"),
        (None, "bins[0]: expected a number of bins or edges, got None"),
        ([np.arange(2**16 + 1), 2**15], "bins: expected fewer than 2**31 in all dimensions together, got shape "),
    ],
)
def test_the_dimension_is_named(bins, message, arrays, enqueued):
    assert check_refused(partial(histogramdd, arrays["rows"]), enqueued, bins=bins).startswith(message)


@pytest.mark.parametrize("size", [SIZE, 9])
def test_a_device_array_beside_few_of_numpy(size, queue, enqueued):
    """However few there are: NumPy would read a device array one element after the other, or not at all."""
    x, k = np.linspace(0, 1, size, dtype="f4"), np.zeros(size, int)
    on_device, mask = cl_array.to_device(queue, x), cl_array.to_device(queue, x > 0.5)
    # The first choice between host and device measures the device's launches.
    histogram(x, 5)
    for call in (
        partial(histogram, x, where=mask),
        partial(histogram, x, weights=on_device),
        partial(histogram_bin_edges, x, 5, where=mask),
        partial(histogram2d, x, x, where=mask),
        partial(histogram2d, x, x, weights=on_device),
        partial(stats.binned_statistic, x, x, "mean", where=mask),
        partial(stats.binned_statistic, x, on_device, "mean"),
        partial(reduce_by_index, 5, "sum", k, x, out=cl_array.zeros(queue, 5, "f4")),
    ):
        assert "clhist copies nothing between host and device unasked" in check_refused(call, enqueued)


@pytest.mark.parametrize("on_device", [False, True])
def test_edges_on_a_device(on_device, queue, enqueued):
    x, edges = np.linspace(0, 1, 9), cl_array.to_device(queue, np.array([0.0, 0.5, 1.0]))
    x = cl_array.to_device(queue, x) if on_device else x
    for call in (
        partial(histogram, x),
        partial(histogram_bin_edges, x),
        partial(histogram2d, x, x),
        partial(stats.binned_statistic, x, x),
    ):
        assert check_refused(call, enqueued, bins=edges).startswith("bins: expected edges on the host")
    for call in (partial(histogramdd, [x, x]), partial(histogram2d, x, x), partial(stats.binned_statistic_2d, x, x, x)):
        assert check_refused(call, enqueued, bins=[3, edges]).startswith("bins: expected edges on the host")


def test_edges_of_another_sign(queue, enqueued):
    x = cl_array.to_device(queue, np.arange(9))
    message = check_refused(partial(histogramdd, [x, x]), enqueued, bins=[np.arange(3, dtype="u8"), 3])
    assert message == "bins[0]: expected edges of int64 as of the sample, got uint64"


BYTES = np.arange(256, dtype="u1").repeat(9)
LARGE = np.array([2**63 + 5, 2**53 + 1, 5, 7, 2**64 - 1, 2**53] * 9, "u8")
SIGNED = np.array([-5, 6, 2**53 + 1], "i8")


@pytest.mark.parametrize(
    ("x", "edges"),
    [
        (BYTES, [[-1, 64, 255], [0, 128, 300]]),
        (BYTES.astype("i2"), [np.array([0, 64, 40_000], "u2"), np.array([0, 9], "u4")]),
        # No integer type has both: on the host NumPy's own comparison decides, whatever the other dimension has.
        (LARGE, [SIGNED, np.array([0.0, 5.0, 2.0**63])]),
        (LARGE, [SIGNED, SIGNED.view("u8")[1:]]),
    ],
    ids=["bytes", "short", "mixed and float", "mixed"],
)
def test_edges_of_another_integer_type(x, edges, queue):
    expected = np.histogram2d(x, x, edges)[0]
    np.testing.assert_array_equal(histogram2d(x, x, edges, queue=queue)[0], expected)
    if x.dtype != np.uint64:
        on_device = cl_array.to_device(queue, x)
        np.testing.assert_array_equal(histogram2d(on_device, on_device, edges)[0].get(), expected)


@pytest.fixture(scope="module")
def wrong_weights(queue, other_queue):
    to_device = partial(cl_array.to_device, queue)
    return {
        "shape": to_device(np.ones(9, "f4")),
        "array of NumPy": np.ones(SIZE, "f4"),
        "a list": [1.0] * SIZE,
        "byte order": to_device(np.ones(SIZE, ">f4")),
        "struct": to_device(np.zeros(SIZE, [("a", "i4")])),
        "booleans": to_device(np.ones(SIZE, bool)),
        "another context": cl_array.to_device(other_queue, np.ones(SIZE, "f4")),
    }


def test_weights(arrays, wrong_weights, enqueued):
    x, y = arrays["x"], arrays["y"]
    calls = [partial(histogram, x), partial(histogram, x, density=True), partial(histogram, arrays["bytes"])]
    calls += [partial(histogram2d, x, y), partial(histogramdd, [x, y]), partial(histogramdd, arrays["rows"])]
    for weights in wrong_weights.values():
        for call in calls:
            assert "weights" in check_refused(call, enqueued, weights=weights)
    complex_weights = wrong_weights["shape"].astype("c8")
    assert "weights" in check_refused(calls[-1], enqueued, weights=complex_weights)


def wrong_outputs(queue, other_queue, shape, dtype):
    """Return outputs none of which takes a result of this shape and dtype."""
    gaps = cl_array.zeros(queue, (2 * shape[0], *shape[1:]), dtype)[::2]
    return {
        "shape": cl_array.zeros(queue, tuple(size + 1 for size in shape), dtype),
        "dimensions": cl_array.zeros(queue, (*shape, 1), dtype),
        "dtype": cl_array.zeros(queue, shape, np.int8),
        "gaps": gaps,
        "array of NumPy": np.zeros(shape, dtype),
        "a list": [0],
        "another context": cl_array.zeros(other_queue, shape, dtype),
    }


def test_outputs(arrays, queue, other_queue, enqueued):
    x, y, w = arrays["x"], arrays["y"], arrays["w"]
    complex_weights = w.astype("c8")
    calls = [
        (partial(histogram, x), (10,), np.intp),
        (partial(histogram, x, EDGES), (5,), np.intp),
        (partial(histogram, x, range=(0, 1)), (10,), np.intp),
        (partial(histogram, x, weights=w), (10,), np.float32),
        (partial(histogram, x, weights=complex_weights), (10,), np.complex64),
        (partial(histogram, x, density=True), (10,), np.float64),
        (partial(histogram, x, weights=complex_weights, density=True), (10,), np.complex128),
        (partial(histogram, arrays["bytes"]), (10,), np.intp),
        (partial(histogram, arrays["rows"], axis=1), (SIZE, 10), np.intp),
        (partial(histogram2d, x, y), (10, 10), np.float64),
        (partial(histogramdd, [x, y], (3, EDGES)), (3, 5), np.float64),
        (partial(histogramdd, [x, y], 3, weights=w), (3, 3), np.float64),
        (partial(histogramdd, arrays["rows"], 3, density=True), (3, 3), np.float64),
    ]
    for call, shape, dtype in calls:
        for out in wrong_outputs(queue, other_queue, shape, dtype).values():
            assert check_refused(call, enqueued, out=out).startswith("out: expected ")
    for rule in (partial(histogram, x, "sqrt"), partial(histogram, x, "auto", density=True)):
        assert check_refused(rule, enqueued, out=cl_array.zeros(queue, 5, "i2")).startswith("out: expected an ")


def test_outputs_that_are_right(arrays, queue):
    """Outputs of the dtypes that the checks expect take the results."""
    x, w = arrays["x"], arrays["w"].astype("c8")
    for options, dtype in (
        ({"density": True}, np.float64),
        ({"weights": w}, np.complex64),
        ({"weights": w, "density": True}, np.complex128),
        ({"weights": w.real.astype("i2"), "density": True}, np.float64),
    ):
        out = cl_array.zeros(queue, 5, dtype)
        hist, _ = histogram(x, EDGES, out=out, **options)
        expected = np.histogram(x.get(), EDGES, **{k: v.get() if k == "weights" else v for k, v in options.items()})[0]
        assert hist is out
        np.testing.assert_allclose(out.get(), expected, rtol=1e-6)


def test_outputs_of_a_repeated_call(arrays, queue, enqueued):
    x, out = arrays["x"], cl_array.zeros(queue, 5, np.intp)
    points, sums = [x, x], cl_array.zeros(queue, (5, 5), np.float64)
    for _ in range(2):
        histogram(x, EDGES, out=out)
        histogramdd(points, [EDGES, EDGES], out=sums)
    assert "float64" in check_refused(partial(histogram, x, EDGES, density=True), enqueued, out=out)


def test_digitize_names_bins(arrays, queue, enqueued):
    for bins, message in (
        (3, "bins: expected edges of one dimension, got array(3)"),
        (np.zeros((2, 2)), "bins: expected edges of one dimension, got array"),
        (["a", "b"], "bins: expected edges that are real numbers on the host, got array(['a', 'b']"),
        ([Decimal(0), Decimal(1)], "bins: expected edges that are real numbers on the host, got array([Decimal('0'),"),
    ):
        for x in (arrays["x"], [0.5]):
            assert check_refused(partial(clhist.digitize, x), enqueued, bins=bins).startswith(message)
            # The message shows the edges, which the host reads for it.
            with pytest.raises(TypeError, match=r"^bins: expected edges that are real numbers on the host, got cl\."):
                clhist.digitize(x, cl_array.to_device(queue, EDGES))


@pytest.mark.parametrize("size", [1, 100_000])
def test_integer_edges_that_float64_rounds(size, queue):
    """NumPy compares edges in float64: to it these neither rise nor fall."""
    falling = [2**62 + 3, 2**62 + 1, 2**62 + 1]
    x = np.resize(np.arange(2**62, 2**62 + 5), size)
    for right in (False, True):
        expected = [sum(edge >= int(value) if right else edge > int(value) for edge in falling) for value in x[:5]]
        for options in ({}, {"queue": queue}):
            np.testing.assert_array_equal(clhist.digitize(x, falling, right, **options), np.resize(expected, size))
            with pytest.raises(ValueError, match=r"^bins must be monotonically increasing or decreasing"):
                clhist.digitize(x, [2**62 + 2, 2**62 + 3, 2**62 + 1], right, **options)


def test_a_scalar_has_a_scalar_as_its_bin(queue):
    for bins in ([0, 1], []):
        found = clhist.digitize(0.3, bins, queue=queue)
        assert type(found) is np.intp
        assert found == np.digitize(0.3, bins)


def test_wrong_axes_and_data_after_a_call_on_the_device(queue):
    clhist.histogram(np.ones(3), queue=queue)
    for axis in (1.5, [1.5]):
        with pytest.raises(TypeError, match=r"^axis: expected the number of a dimension, or several, got \[?1\.5"):
            clhist.histogram(np.ones((2, 3)), 3, axis=axis)
    with pytest.raises(TypeError, match="isfinite"):  # NumPy's error
        clhist.histogram(None)


class _Tensor:
    """An array of another library, whose size is a method, as that of PyTorch."""

    def __init__(self, array):
        self._array = array

    def __array__(self, dtype=None, copy=None):
        return self._array if dtype is None else self._array.astype(dtype)

    def size(self):
        return self._array.shape


@pytest.mark.parametrize("length", [100, 40_000])
def test_arrays_whose_size_is_a_method(length, queue, rng):
    x, weights = rng.random((2, length))
    for options in ({}, {"queue": queue}):
        for _ in range(2):
            np.testing.assert_array_equal(clhist.histogram(_Tensor(x), 9, **options)[0], np.histogram(x, 9)[0])
            sums = clhist.histogram(_Tensor(x), 9, (0, 1), weights=_Tensor(weights), **options)[0]
            np.testing.assert_allclose(sums, np.histogram(x, 9, (0, 1), weights=weights)[0])
            counts = clhist.histogram2d(_Tensor(x), _Tensor(weights), 5, **options)[0]
            np.testing.assert_array_equal(counts, np.histogram2d(x, weights, 5)[0])
            np.testing.assert_array_equal(
                clhist.digitize(_Tensor(x), [0.2, 0.7], **options), np.digitize(x, [0.2, 0.7])
            )
            np.testing.assert_array_equal(clhist.unique(_Tensor(x), **options), np.unique(x))
