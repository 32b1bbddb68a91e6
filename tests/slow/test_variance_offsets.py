"""Variances of values with large offsets, of constants, and of what is not finite, against extended precision."""

from __future__ import annotations

import boost_histogram as bh
import numpy as np
import pytest

import clhist
import clhist.hist
from clhist import operators, stats

SIZE = 100_000
OFFSETS = [0.0, 1e8, 1e15 / 3, 1.6e15]


def reference(x, weights=None):
    """Return the mean and the sum of squared deviations in extended precision."""
    weights = np.ones(len(x), np.longdouble) if weights is None else weights.astype(np.longdouble)
    moved = x.astype(np.longdouble) - np.longdouble(x[0])
    mean = (weights * moved).sum() / weights.sum()
    return float(mean + x[0]), float((weights * (moved - mean) ** 2).sum())


@pytest.mark.parametrize("offset", OFFSETS)
def test_storages_of_means(offset, rng):
    x, weights, place = offset + rng.normal(size=SIZE), 3 * rng.random(SIZE), rng.random(SIZE)
    for storage, given in ((bh.storage.Mean(), None), (bh.storage.WeightedMean(), weights)):
        h = bh.Histogram(bh.axis.Regular(1, 0, 1), storage=storage)
        clhist.hist.fill(h, place, sample=x, weight=given)
        mean, deviations = reference(x, given)
        name = "_sum_of_deltas_squared" if given is None else "_sum_of_weighted_deltas_squared"
        np.testing.assert_allclose(h.view()[name], deviations, rtol=1e-12)
        np.testing.assert_allclose(h.view()["value"], mean, rtol=1e-15, atol=1e-12)
        clhist.hist.fill(h, place, sample=x, weight=given)  # joined with the same
        np.testing.assert_allclose(h.view()[name], 2 * deviations, rtol=1e-12)


@pytest.mark.parametrize("offset", OFFSETS)
def test_operators_and_groups(offset, rng):
    x, bins = offset + rng.normal(size=SIZE), rng.integers(0, 3, SIZE)
    expected = [reference(x[bins == k])[1] / (bins == k).sum() for k in range(3)]
    np.testing.assert_allclose(clhist.reduce_by_index(3, "var", bins, x), expected, rtol=1e-12)
    np.testing.assert_allclose(clhist.group_by(bins, 3).var(x, ddof=0), expected, rtol=1e-12)
    stream = clhist.Accumulator(operators.variance(np.float64), 3)
    for begin in range(0, SIZE, 30_000):
        stream.add(bins[begin : begin + 30_000], x[begin : begin + 30_000])
    np.testing.assert_allclose(stream.result(), expected, rtol=1e-12)


@pytest.mark.parametrize("offset", [0.0, 1e8])
@pytest.mark.parametrize("outlier", [1e7, -1e12, 1e15])
def test_outliers_first_in_each_group(outlier, offset, rng):
    """One that is a pivot costs no digit, in whichever function."""
    bins = np.arange(SIZE, dtype=np.int32) % 3
    x = offset + rng.normal(size=SIZE)
    x[:3] = outlier
    number = np.bincount(bins)
    expected = np.array([reference(x[bins == k])[1] for k in range(3)]) / number
    stream, filler = clhist.Accumulator(operators.variance(np.float64), 3), clhist.hist.Filler(means_of_bins())
    for begin in range(0, SIZE, 30_000):
        stream.add(bins[begin : begin + 30_000], x[begin : begin + 30_000])
        filler.fill(bins[begin : begin + 30_000], sample=x[begin : begin + 30_000])
    filled = clhist.hist.fill(means_of_bins(), bins, sample=x)
    found = {
        "var": clhist.reduce_by_index(3, "var", bins, x),
        "std": clhist.reduce_by_index(3, "std", bins, x) ** 2,
        "sort": clhist.reduce_by_index(3, "var", bins, x, update="sort"),
        "stream": stream.result(),
        "groups": clhist.group_by(bins, 3).var(x, ddof=0),
        "regions": clhist.ndimage.variance(x, bins, [0, 1, 2]),
        "bins": stats.binned_statistic(bins, x, "std", 3).statistic ** 2,
        "fill": filled.view()["_sum_of_deltas_squared"] / number,
        "filler": filler.result().view()["_sum_of_deltas_squared"] / number,
    }
    for name, variances in found.items():
        np.testing.assert_allclose(variances, expected, rtol=2e-12, err_msg=name)


def test_outliers_of_float32_and_in_merged_parts(rng):
    x = rng.normal(size=SIZE).astype(np.float32)
    x[0] = x[60_000] = 1e6
    zeros, parts = np.zeros(SIZE, np.int32), []
    for begin, end in ((0, 1), (1, 40), (40, 60_000), (60_000, SIZE)):
        stream = clhist.Accumulator(operators.variance(np.float32), 1)
        parts.append(stream.add(zeros[begin:end], x[begin:end]).partial())
    for order in (parts, parts[::-1]):
        total = clhist.Accumulator(operators.variance(np.float32), 1)
        for part in order:
            total.merge(part)
        np.testing.assert_allclose(total.result(), reference(x)[1] / SIZE, rtol=1e-7)


def means_of_bins():
    return bh.Histogram(bh.axis.Integer(0, 3), storage=bh.storage.Mean())


@pytest.mark.parametrize("constant", [0.1, 1e15 / 3, 12345.6789])
def test_constants(constant):
    x, zeros = np.full(SIZE, constant), np.zeros(SIZE, int)
    unit = np.spacing(constant) ** 2
    h = bh.Histogram(bh.axis.Regular(1, 0, 1), storage=bh.storage.WeightedMean())
    clhist.hist.fill(h, zeros, sample=x, weight=np.linspace(0.1, 1, SIZE))
    assert h.view()["_sum_of_weighted_deltas_squared"][0] / SIZE <= unit
    assert clhist.group_by(zeros, 1).var(x)[0] <= unit
    assert clhist.reduce_by_index(1, "var", zeros, x)[0] == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite(bad, rng):
    x = rng.normal(size=9000)
    for place in (0, 4500, 8999):
        given = x.copy()
        given[place] = bad
        assert np.isnan(clhist.reduce_by_index(1, "var", np.zeros(9000, int), given)).all()
    for size in (100, 20_000):  # boost-histogram's, and ours
        h = bh.Histogram(bh.axis.Regular(2, 0, 1), storage=bh.storage.Mean())
        clhist.hist.fill(h, rng.random(size), sample=bad)
        assert np.isnan(h.view()["_sum_of_deltas_squared"]).all()


@pytest.mark.parametrize("offset", [1e15, np.array([0.0, 1e15])], ids=["one", "by bin"])
def test_small_binned_deviations_have_no_error_of_an_offset(offset):
    rng = np.random.default_rng(3)
    points, spread = rng.integers(0, 2, 500), rng.integers(0, 8, 500)
    values = spread + (offset if np.ndim(offset) == 0 else offset[points])
    expected = [spread[points == each].std() for each in (0, 1)]
    for statistic in ("std", np.std):
        result = stats.binned_statistic(points, values, statistic, bins=[0, 0.5, 1.5])
        np.testing.assert_allclose(result.statistic, expected, rtol=1e-12)
        np.testing.assert_array_equal(result.binnumber, points + 1)
