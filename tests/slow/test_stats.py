"""Statistics by bins against SciPy's: random data, device arrays, several statistics at once."""

from __future__ import annotations

import numpy as np
import pyopencl.array as cl_array
import pytest

from clhist import stats
from clhist.binned.by_scipy import SCIPY_STATISTICS
from clhist.statistics.table import BINNED, TABLE, Statistic
from clhist.stats import binned_statistic, binned_statistic_2d, binned_statistic_dd

scipy_stats = pytest.importorskip("scipy.stats", reason="SciPy is not installed")

pytestmark = pytest.mark.usefixtures("on_the_device")
EVERY = ["mean", "std", "median", "count", "sum", "min", "max"]


def assert_same(found, expected, name):
    tolerance = 0 if name in ("median", "count", "min", "max") else 1e-12
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize("any_profile", ["own profile", "as a GPU"], indirect=True)
@pytest.mark.parametrize("dtype", ["f8", "f4", "i4"])
def test_every_statistic_at_once(any_profile, dtype, queue, rng):
    x, values = rng.normal(size=4001), (1000 * rng.normal(size=4001)).astype(dtype)
    values[::7] = values[3]  # equal ones
    for bins, range_ in ((10, None), ([-9, -1, 0, 0.5, 40], None), (300, (-1, 1))):
        ours = binned_statistic(x, values, EVERY, bins, range_)
        device = binned_statistic(*(cl_array.to_device(queue, a) for a in (x, values)), EVERY, bins, range_)
        for name in EVERY:
            theirs = scipy_stats.binned_statistic(x, values, name, bins, range_)
            assert_same(ours.statistic[name], theirs.statistic, name)
            assert isinstance(device.statistic[name], cl_array.Array)
            assert_same(device.statistic[name].get(), theirs.statistic, name)
        np.testing.assert_array_equal(ours.bin_edges, theirs.bin_edges)
        np.testing.assert_array_equal(ours.binnumber, theirs.binnumber)
        np.testing.assert_array_equal(device.binnumber.get(), theirs.binnumber)


SPREAD = Statistic(  # an invented one
    TABLE["max"].dtype, parts=("fmin", "maximum"), finish=lambda parts: parts["maximum"] - parts["fmin"], of_none=-1
)
FUNCTIONS = {"spread": np.ptp, "quantile": lambda values: np.quantile(values, 0.3)}
NO_BINS = {"spread": -1.0, "quantile": np.nan}


@pytest.mark.parametrize("size", [40, 100_000])
@pytest.mark.parametrize("name", ["spread", *BINNED])
def test_every_statistic_of_the_table_however_few_elements(name, size, monkeypatch, rng):
    """One that SciPy does not have by name is left to kernels."""
    monkeypatch.undo()  # so that small arrays are left to SciPy
    monkeypatch.setitem(TABLE, "spread", SPREAD)
    monkeypatch.setattr(stats, "BINNED", ("spread", *BINNED))
    assert (name in SCIPY_STATISTICS) == (name not in FUNCTIONS)
    x, values = rng.random(size), rng.integers(0, 100, size).astype(float)
    q = 0.3 if name == "quantile" else None
    expected = scipy_stats.binned_statistic(x, values, FUNCTIONS.get(name, name), 3, (0, 1)).statistic
    assert_same(binned_statistic(x, values, name, 3, (0, 1), q=q).statistic, expected, name)
    nothing = binned_statistic(x[:0], values[:0], name, 3, (0, 1), q=q).statistic
    empty = NO_BINS.get(name, 0.0 if name in ("sum", "count") else np.nan)
    np.testing.assert_array_equal(nothing, [empty] * 3)
    earlier = binned_statistic_dd([x], values, "count", 3)
    if name not in SCIPY_STATISTICS:
        with pytest.raises(TypeError, match=r"^(q|statistic): expected none for what SciPy computes"):
            binned_statistic_dd([x], values, name, binned_statistic_result=earlier, q=q)


def test_values_that_are_not_finite(rng):
    x, values = np.repeat(np.arange(6), 4), np.zeros(24)
    values[:16] = [1, np.nan, 3, 2, *[np.nan] * 4, np.inf, 1, -np.inf, 0, -0.0, 0.0, 5, -np.nan]
    for name in ("median", "min", "max", "count"):
        with np.errstate(invalid="ignore"):
            expected = scipy_stats.binned_statistic(x, values, name, 6).statistic
        assert_same(binned_statistic(x, values, name, 6).statistic, expected, name)


@pytest.mark.parametrize("dtype", ["u1", "i2", "u4", "i8", "u8", "f2", "?"])
def test_medians_of_each_dtype(dtype, rng):
    x, values = rng.random(500), (100 * rng.random(500)).astype(dtype)
    expected = scipy_stats.binned_statistic(x, values.astype("f8"), "median", 20).statistic
    assert_same(binned_statistic(x, values, "median", 20).statistic, expected, "median")


@pytest.mark.usefixtures("any_profile")
@pytest.mark.parametrize("any_profile", ["own profile", "as a GPU"], indirect=True)
def test_deviations_beside_large_means(rng):
    x, values = rng.random(3001), 1e9 + rng.random(3001)
    values[x > 0.5] -= 2e9
    found = binned_statistic(x, values, "std", 8, (0, 1.2)).statistic
    theirs = scipy_stats.binned_statistic(x, values, "std", 8, (0, 1.2)).statistic
    np.testing.assert_allclose(found, theirs, rtol=1e-10)  # SciPy's means are rounded


def test_two_dimensions_and_rows_of_values(rng):
    x, y, values = rng.random(3000), rng.random(3000).astype("f4"), rng.normal(size=(2, 3000))
    for bins in (7, [[0, 0.2, 1], 3]):
        for name in EVERY:
            for v in (values[0], values):
                ours = binned_statistic_2d(x, y, v, name, bins, expand_binnumbers=True)
                theirs = scipy_stats.binned_statistic_2d(x, y, v, name, bins, expand_binnumbers=True)
                assert_same(ours.statistic, theirs.statistic, name)
        np.testing.assert_array_equal(ours.binnumber, theirs.binnumber)
        np.testing.assert_array_equal(ours.x_edge, theirs.x_edge)


def test_what_rounds_to_the_last_edge():
    x = np.array([0, 1, 1 + 1e-9, 1 + 1e-7, 1 + 1e-5, 2, -1e-9])
    for dtype in ("f8", "f4"):
        for bins in ([0, 0.5, 1], [0, 1e-3, 1], 3):
            ours, theirs = (
                f(x.astype(dtype), x, "count", bins) for f in (binned_statistic, scipy_stats.binned_statistic)
            )
            np.testing.assert_array_equal(ours.statistic, theirs.statistic)
            np.testing.assert_array_equal(ours.binnumber, theirs.binnumber)


def test_masks_and_reproducible_sums(rng):
    x, values, where = rng.random(2000), rng.normal(size=2000), rng.random(2000) < 0.5
    found = binned_statistic(x, values, "sum", 5, (0, 1), where=where, reproducible=True)
    expected = scipy_stats.binned_statistic(x[where], values[where], "sum", 5, (0, 1))
    assert_same(found.statistic, expected.statistic, "sum")
    order = rng.permutation(2000)
    again = binned_statistic(x[order], values[order], "sum", 5, (0, 1), where=where[order], reproducible=True)
    assert found.statistic.tobytes() == again.statistic.tobytes()


def test_many_bins_are_selected_by_fewer_bits(rng):
    x, values = rng.random(30_000), rng.normal(size=30_000)
    expected = scipy_stats.binned_statistic(x, values, "median", 20_000).statistic
    assert_same(binned_statistic(x, values, "median", 20_000, binnumber=False).statistic, expected, "median")


@pytest.mark.parametrize(
    ("args", "error", "says"),
    [
        (([1, 2], [1, 2], "mode"), ValueError, "invalid statistic 'mode'"),
        (([1, 2], [1], "mean"), AttributeError, "The number of `values` elements must match"),
        (([1, np.nan], [1, 2]), ValueError, "contains non-finite values"),
        (([1, 2], [1, 2], "mean", 3, (2, 1)), ValueError, "In range, start must be <= stop"),
        (([1, 2], [1, 2], "mean", [1, 1, 2]), ValueError, "The smallest edge difference is numerically 0"),
    ],
)
def test_errors_are_scipys(args, error, says):
    for function in (binned_statistic, scipy_stats.binned_statistic):
        with pytest.raises(error, match=says):
            function(*args)


def test_other_callables_are_scipys(queue, rng):
    x = rng.random(50)
    expected = scipy_stats.binned_statistic(x, x, np.ptp, 4).statistic
    np.testing.assert_array_equal(binned_statistic(x, x, np.ptp, 4).statistic, expected)
    on_device = cl_array.to_device(queue, x)
    with pytest.raises(TypeError, match=r"statistic: expected one of sum, mean, .* for device arrays"):
        binned_statistic_dd([on_device], on_device, np.ptp)


@pytest.mark.parametrize("bins", [4, [4], [0.0, 0.5, 1.0]])
def test_no_point_that_counts(bins):
    x, none = np.linspace(3, 5, 1000), np.zeros(1000, bool)
    means = binned_statistic(x, x, "mean", bins, where=none)
    expected = [0.0, 0.5, 1.0] if np.ndim(bins) and len(bins) > 1 else [0, 0.25, 0.5, 0.75, 1]
    np.testing.assert_array_equal(means.bin_edges, expected)
    assert np.isnan(means.statistic).all()
    counts = binned_statistic(x, x, "count", bins, where=none)
    assert counts.statistic.tolist() == [0] * (len(expected) - 1)
