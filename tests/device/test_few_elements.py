"""Few plain elements, which NumPy, SciPy and pandas compute, and the same elements on the device."""

from importlib import import_module

import numpy as np
import pytest

import clhist
from clhist._core.keys import key_of, keys_of
from clhist.binned.host import even_edges
from clhist.grouped.keys import numbered

pytestmark = pytest.mark.usefixtures("without_optimizer")

stats = pytest.importorskip("scipy.stats")
pandas = pytest.importorskip("pandas")  # is in use then, so that sparse integers are hashed by it
RNG = np.random.default_rng(20)
SPECIAL = [np.nan, -np.nan, 0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, -1.5]


def keys(dtype, size):
    """Return sparse keys with the extremes of their type."""
    if np.dtype(dtype).kind == "f":
        return np.concatenate([SPECIAL, RNG.integers(0, 50, size)]).astype(dtype)
    info = np.iinfo(dtype)
    found = RNG.integers(0, 60, size).astype(dtype) * dtype(info.max // 64)
    return np.concatenate([np.array([info.max, info.min], dtype), found])


@pytest.mark.parametrize("dtype", [np.int32, np.uint64, np.float32, np.float64])
def test_different_values(dtype, queue):
    for size in (0, 1, 700, 5000):
        x = keys(dtype, size)
        for given in (x, x[::2], x.reshape(1, -1)):
            few, many = clhist.unique(given), clhist.unique(given, queue=queue)
            assert few.dtype == many.dtype == dtype
            np.testing.assert_array_equal(few, many)
            np.testing.assert_array_equal(few, np.unique(given))
            assert not np.signbit(few[few == 0]).any() or np.dtype(dtype).kind == "u"
        for few, many in zip(clhist.factorize(x), clhist.factorize(x, queue=queue), strict=True):
            assert few.dtype == many.dtype
            np.testing.assert_array_equal(few, many)


@pytest.mark.parametrize("dtype", [np.int16, np.int64, np.uint32, bool])
def test_numbers_of_integers_are_in_their_order(dtype):
    for size in (0, 5, 3000):
        x = RNG.integers(0, 2, size).astype(bool) if dtype is bool else keys(dtype, size)
        labels, codes = numbered(x)
        np.testing.assert_array_equal(labels, np.unique(x))
        np.testing.assert_array_equal(labels[codes], x)


@pytest.mark.parametrize("dtype", [np.float64, np.int32])
def test_statistics_are_those_of_scipy(dtype):
    x, y, values = (RNG.random((3, 200)) * 9).astype(dtype)
    values = values.astype(np.float64)
    for statistic in ("mean", "median", "count", "sum", "min", "max", "std"):
        for given in (5,), (1, (2, 7)), (5, [(0.5, 4)]):
            ours, theirs = (each.binned_statistic(x, values, statistic, *given) for each in (clhist.stats, stats))
            for one, other in zip(ours, theirs, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-13)
        ours, theirs = (each.binned_statistic_2d(x, y, values, statistic, 3) for each in (clhist.stats, stats))
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-13)


def test_statistics_raise_on_the_host_what_they_raise_on_the_device(queue):
    x, values = RNG.random((2, 50))
    bad = np.where(np.arange(50) == 7, np.nan, x)
    cases = [
        ((bad, values, "mean", 5), "contains non-finite values"),
        ((x, values, "mean", 5, (3, 2)), "start must be <= stop"),
        ((x, values, "mean", 5, (0.0, 5e-324)), "numerically 0"),
        ((x, values[:9], "mean", 5), "must match the length"),
    ]
    for given, text in cases:
        for where in (None, queue):
            with pytest.raises((ValueError, AttributeError), match=text):
                clhist.stats.binned_statistic(*given, queue=where)
    for bins in (0, -1, 2**31):
        messages = []
        for where in (None, queue):
            with pytest.raises(ValueError) as caught:  # noqa: PT011  # the two messages are compared
                clhist.histogram(x, bins, queue=where)
            messages.append(str(caught.value))
        assert messages[0] == messages[1]


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.uint32])
def test_histograms_are_those_of_the_device(dtype, queue):
    x, y = (RNG.random((2, 300)) * 50).astype(dtype)
    for bins, range_ in (7, None), (7, (3, 20.5)), (np.array([0.0, 1, 5, 40]), None):
        few, many = (clhist.histogram(x, bins, range_, density=True, queue=where) for where in (None, queue))
        for one, other in zip(few, many, strict=True):
            np.testing.assert_array_equal(one, other)
            assert one.dtype == other.dtype
    for one, other in zip(clhist.histogram2d(x, y, 6), clhist.histogram2d(x, y, 6, queue=queue), strict=True):
        np.testing.assert_array_equal(one, other)


def test_edges_of_a_range_are_those_of_numpy():
    ends = [(0.0, 5e-324), (-1e308, 1e308), (1.0, 1.0), (2.0, 1.0), (0.0, np.inf), (np.nan, 1.0), (-0.0, 1.0)]
    ends += [(0, 1), [-7, 3.5], (0, 2**53 + 2), (False, 5), (np.float64(0.1), 3), (np.float32(0.1), 3)]
    ends += [tuple(sorted((10.0 ** RNG.integers(-300, 300, 2) * RNG.normal(size=2)).tolist())) for _ in range(100)]

    def outcome(function):
        with np.errstate(all="ignore"):
            try:
                return function().tobytes()
            except ValueError as error:
                return str(error)

    for pair in ends:
        for bins in (1, 3, 1000):
            expected = outcome(lambda: np.histogram_bin_edges(np.empty(0), bins, pair))  # noqa: B023
            assert outcome(lambda: even_edges(bins, pair, np.dtype(np.float64))) == expected  # noqa: B023


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_key_of_a_scalar_is_that_of_an_array(dtype):
    for value in np.array([1.5, -1.5, np.inf, -np.inf, 6e-8, -6e-8], dtype):
        assert key_of(value, after_zero=False) == keys_of(value.reshape(1))[0]
    for zero in (0.0, -0.0):
        for after in (False, True):
            assert key_of(dtype(zero), after_zero=after) == keys_of(np.array([0.0 if after else -0.0], dtype))[0]


def test_few_elements_look_for_no_repeated_call(monkeypatch):
    module = import_module("clhist.histogram")
    monkeypatch.setattr(module._on_device(), "repeated_call", lambda *args: pytest.fail("looked for a repeated call"))
    x = np.linspace(0, 1, 100)
    for more in ({"bins": [0.0, 0.5, 1.0]}, {"bins": 4, "weights": x}, {"bins": 4, "where": x > 0.5}):
        expected = {"a": x[x > 0.5], "bins": 4} if "where" in more else {"a": x, **more}
        np.testing.assert_allclose(clhist.histogram(x, **more)[0], np.histogram(**expected)[0])
