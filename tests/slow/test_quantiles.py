"""Quantiles of groups and bins, weighted or not, against NumPy's of the values of each."""

import warnings

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import clhist
from clhist._core.opencl.device import device_kind
from clhist.statistics import selection
from clhist.stats import binned_statistic, binned_statistic_dd

PROBABILITIES = (0, 0.1, 0.25, 0.5, 1 / 3, 0.9, 1)
WAYS = {"digits": 1 << 40, "sorted by group": 0}


@pytest.fixture(params=WAYS)
def way(request, monkeypatch, queue):
    """Both ways to select; GPUs have one."""
    if request.param != "digits" and device_kind(queue.device) != "cpu":
        pytest.skip("values are sorted by group on CPUs only")
    monkeypatch.setattr(selection, "_MANY_GROUPS", WAYS[request.param])
    return request.param


def expected(keys, values, groups, q, weights=None):
    """The quantile of each group by NumPy in double precision; NaN of none, and of no weight."""
    found = np.full(groups, np.nan)
    for group in range(groups):
        chosen = values[keys == group].astype(np.float64)
        if weights is None and chosen.size:
            found[group] = np.quantile(chosen, q)
        elif weights is not None and weights[keys == group].sum() > 0:
            found[group] = np.quantile(chosen, q, weights=weights[keys == group], method="inverted_cdf")
    return found


def same(found, reference):
    """Whether results are those of NumPy, rounded once."""
    np.testing.assert_array_equal(found, reference.astype(found.dtype))


@pytest.mark.parametrize("dtype", ["f4", "f8", "i1", "u2", "i8", "?"])
@pytest.mark.parametrize(("groups", "size"), [(1, 1), (3, 41), (37, 3001), (800, 700)])
def test_of_groups(way, groups, size, dtype, rng):
    keys = rng.integers(-1, groups + 1, size).astype(np.int32)
    values = (rng.normal(size=size) * 40).astype(dtype)
    of = clhist.group_by(keys, groups)
    for q in PROBABILITIES:
        same(of.quantile(values, q), expected(keys, values, groups, q))


@pytest.mark.parametrize("dtype", ["f4", "f8", "i2"])
@pytest.mark.parametrize("of_weights", ["f4", "f8", "u1", "?"])
def test_of_weighted_groups(dtype, of_weights, rng):
    """Weights whose sums are exact: none, of most, and of one element."""
    keys = rng.integers(-1, 38, 3001).astype(np.int32)
    values = rng.integers(-100, 100, keys.size).astype(dtype)
    weights = rng.integers(0, 4, keys.size).astype(of_weights)
    weights[keys == 5] = 0
    weights[keys == 6] = np.arange((keys == 6).sum()) == 1
    of = clhist.group_by(keys, 37)
    for q in PROBABILITIES:
        same(of.quantile(values, q, weights=weights), expected(keys, values, 37, q, weights))


@pytest.mark.parametrize(
    "values",
    [
        np.zeros(5000),
        np.arange(5000.0),
        np.arange(5000.0)[::-1],
        np.repeat([1.0, -0.0, 0.0, 3.0], 1250),
        np.r_[np.arange(0, 5000, 2.0), np.arange(1, 5000, 2.0)],
        2.0 ** np.arange(-1000, 1000, 0.4),
        np.tile(np.r_[np.arange(50.0), np.arange(50.0)[::-1]], 50),
        np.r_[np.full(2500, -np.inf), np.full(2499, np.inf), 1.0],
    ],
)
def test_one_large_group_in_hard_orders(way, values):
    """What makes a bad pivot of the first, the last and the one in the middle, and many that are equal."""
    of = clhist.group_by(np.zeros(values.size, np.int8), 1)
    ordered = np.sort(values)
    for k in (0, 1, 1249, 2500, 4998, 4999):
        # Half a step away nothing is interpolated, so that infinite neighbours do not meet.
        share = k / (values.size - 1)
        if share * (values.size - 1) == k:
            assert of.quantile(values, share)[0] == ordered[k]
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(of.median(values)[0], np.median(values))


def test_nan(way, rng):
    keys = rng.integers(0, 10, 2000)
    values = rng.normal(size=2000)
    values[(keys < 3) & (rng.random(2000) < 0.3)] = np.nan
    values[keys == 2] = np.nan
    of, kept = clhist.group_by(keys, 10), ~np.isnan(values)
    same(of.quantile(values, 0.3), expected(keys[kept], values[kept], 10, 0.3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        same(of.quantile(values, 0.3, skipna=False), expected(keys, values, 10, 0.3))
    weights = np.ones(2000)
    weights[keys == 4] = np.where(rng.random((keys == 4).sum()) < 0.5, np.nan, 1)
    kept &= ~np.isnan(weights)
    same(of.quantile(values, 0.3, weights=weights), expected(keys[kept], values[kept], 10, 0.3, weights[kept]))
    missing = np.isnan(of.quantile(values, 0.3, weights=weights, skipna=False))
    np.testing.assert_array_equal(missing, np.isin(np.arange(10), [0, 1, 2, 4]))


def test_device_arrays(way, queue: cl.CommandQueue, rng):
    """Views that begin within their memory, too."""
    keys, values = rng.integers(0, 300, 5001).astype(np.int32), rng.normal(size=5001).astype(np.float32)
    weights = rng.integers(0, 9, 5001).astype(np.float32)
    on_device = [cl_array.to_device(queue, array)[1:] for array in (keys, values, weights)]
    of = clhist.group_by(on_device[0], 300)
    for weighting in ({}, {"weights": on_device[2]}):
        found = of.quantile(on_device[1], 0.7, **weighting)
        assert isinstance(found, cl_array.Array)
        same(found.get(), expected(keys[1:], values[1:], 300, 0.7, weights[1:] if weighting else None))


def test_no_elements():
    of = clhist.group_by(np.zeros(0, np.int32), 3)
    assert np.isnan(of.quantile(np.zeros(0), 0.5)).all()
    assert np.isnan(of.quantile(np.zeros(0), 0.5, weights=np.zeros(0))).all()


@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_of_bins(way, on_device, weighted, queue, rng):
    x, y, values = rng.random(4000), rng.random(4000).astype(np.float32), rng.normal(size=4000).astype(np.float32)
    weights = rng.integers(0, 5, 4000)
    given = [cl_array.to_device(queue, each) if on_device else each for each in (x, values, weights)]
    weighting = {"weights": given[2]} if weighted else {}
    found = binned_statistic(given[0], given[1], ["quantile", "median", "mean"], [0, 0.1, 0.7, 0.9], q=0.3, **weighting)
    assert isinstance(found.statistic["quantile"], cl_array.Array) == on_device
    results = {name: each.get() if on_device else each for name, each in found.statistic.items()}
    places = np.digitize(x, [0, 0.1, 0.7, 0.9]) - 1
    reference = expected(places, values, 3, 0.3, weights if weighted else None)
    np.testing.assert_array_equal(results["quantile"], reference.astype(np.float32))
    np.testing.assert_array_equal(results["median"], [np.median(values[places == n]) for n in range(3)])
    if not on_device:
        chosen = rng.random(4000) < 0.5
        options = {"weights": weights} if weighted else {}
        rows = np.stack([values, -values])
        found = binned_statistic_dd([x, y], rows, "quantile", [3, 4], [(0, 1)] * 2, q=0.3, where=chosen, **options)
        at = np.where(chosen, np.int64(x * 3) * 4 + np.int64(y * 4), -1)
        for row, each in zip(rows, found.statistic, strict=True):
            reference = expected(at, row, 12, 0.3, weights if weighted else None)
            np.testing.assert_array_equal(each, reference.reshape(3, 4).astype(np.float32))


def test_of_few_elements_and_nan_in_bins():
    found = binned_statistic([1, 1, 2, 4], [1.0, 2.0, np.nan, 4.0], "quantile", [0, 1.5, 3, 3.5, 5], q=0.5)
    np.testing.assert_array_equal(found.statistic, [1.5, np.nan, np.nan, 4.0])


BINS = {
    "no q": (TypeError, "q: ", {}),
    "q beyond 1": (ValueError, "q: ", {"q": 1.5}),
    "q of NaN": (ValueError, "q: ", {"q": np.nan}),
    "q of text": (TypeError, "q: ", {"q": "half"}),
    "q of several": (TypeError, "q: ", {"q": [0.25, 0.75]}),
    "q of a boolean": (TypeError, "q: ", {"q": True}),
    "q for a mean": (TypeError, "q: ", {"q": 0.5, "statistic": "mean"}),
    "weights for a mean": (TypeError, "weights: ", {"weights": np.ones(4), "statistic": "mean"}),
    "negative weights": (ValueError, "weights: ", {"q": 0.5, "weights": np.array([1, 1, -1, 1])}),
    "complex weights": (TypeError, "weights: ", {"q": 0.5, "weights": np.ones(4, complex)}),
    "fewer weights": (ValueError, "weights: ", {"q": 0.5, "weights": np.ones(3)}),
    "an earlier result": (TypeError, "q: ", {"q": 0.5, "again": True}),
}


@pytest.mark.parametrize("case", BINS)
def test_wrong_arguments_of_bins(case):
    error, name, options = BINS[case]
    options = dict(options)
    x = np.array([1.0, 2, 3, 4])
    if options.pop("again", False):
        options["binned_statistic_result"] = binned_statistic_dd([x], x, "mean", 2)
    with pytest.raises(error, match=f"^{name}"):
        binned_statistic_dd([x], x, options.pop("statistic", "quantile"), 2, **options)


def test_wrong_arguments_of_groups(queue):
    of, x = clhist.group_by(np.arange(4) % 2), np.arange(4.0)
    for q, error in ((None, TypeError), (-0.1, ValueError), ("half", TypeError)):
        with pytest.raises(error, match=r"^q: "):
            of.quantile(x, q)
    for weights, error in ((-x, ValueError), (x[:3], ValueError), (x.astype(complex), TypeError)):
        with pytest.raises(error, match=r"^weights: "):
            of.quantile(x, 0.5, weights=weights)
    keys, values = (cl_array.to_device(queue, each) for each in (np.arange(4) % 2, x))
    with pytest.raises(ValueError, match=r"^weights: expected no negative"):
        clhist.group_by(keys, 2).quantile(values, 0.5, weights=-values)
    with pytest.raises(TypeError, match=r"^x: expected statistics without arguments, got 'quantile'; write"):
        of.agg(x=(x, "quantile"))
    with pytest.raises(ValueError, match=r"^x: expected statistics of complex128"):
        of.quantile(x.astype(complex), 0.5)
