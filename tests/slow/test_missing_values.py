"""Missing elements: every public function skips or refuses them, and the page says which."""

from __future__ import annotations

import re
from fnmatch import fnmatch

import boost_histogram as bh
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.ndimage
import scipy.stats
from documents import ROOT

import clhist
import clhist.hist
from clhist import ndimage, stats

PAGE = ROOT / "docs/howto/missing-values.md"
RECORD = ROOT / ".ci/public_api.txt"
DATA = {
    "a", "args", "arrays", "collections", "data", "gradients", "indices", "input", "keys", "points", "positions",
    "query_points", "raw", "sample", "src", "system", "values", "weights", "x", "y", "zones", "fills", "X_binned",
}  # fmt: skip
NO_DATA = {  # parameters of such names that are no arrays of the caller's elements
    "Bound", "BuildError", "Histogram", "KernelCall", "Partial", "Plan", "Problem", "Accumulator.piece",
    "MultiAccumulator.piece", "default_queue", "plan_sweeps", "hist.Filler.plan", "HistogramKernel.bind",
    "HistogramKernel.timed", "HistogramKernel.race_factor",
}  # fmt: skip
SIZE = 300
RNG = np.random.default_rng(5)
MISSING = RNG.random(SIZE) < 0.3
PRESENT = ~MISSING
FLOATS, WHOLE, OTHER = RNG.random(SIZE), RNG.integers(0, 9, SIZE), RNG.random(SIZE)


def filled(values, other):
    """Return a copy with something else where elements are missing."""
    return np.where(MISSING, values.dtype.type(other), values)


KINDS = {
    "masked": lambda x: np.ma.array(filled(x, 7), mask=MISSING),
    "pandas": lambda x: pd.Series(x).astype(str(x.dtype).capitalize()).mask(MISSING),
    "pyarrow": lambda x: pa.array(x, mask=MISSING),
    "polars": lambda x: pytest.importorskip("polars").Series(
        [None if gone else one for one, gone in zip(x.tolist(), MISSING, strict=True)]
    ),
}


def fill(storage, **options):
    return clhist.hist.fill(bh.Histogram(bh.axis.Regular(5, 0, 1), storage=storage), **options).view(flow=True)


def filler(x, w):
    return clhist.hist.Filler(bh.Histogram(bh.axis.Regular(5, 0, 1))).fill(x, weight=w).result().view(flow=True)


def many(x, w):
    h = bh.Histogram(bh.axis.Regular(5, 0, 1))
    clhist.hist.fill_many([(h, (x,), {"weight": w})])
    return h.view(flow=True)


EDGES = [0, 0.2, 0.5, 1]
# By argument: a call with it, and what has to be given in its place. `k` chooses the elements of the other arguments.
SKIPPED = {
    "histogram a": (FLOATS, lambda v, k: clhist.histogram(v, 5)[0]),
    "histogram weights": (FLOATS, lambda v, k: clhist.histogram(OTHER[k], EDGES, weights=v)[0]),
    "histogram integers": (WHOLE, lambda v, k: clhist.histogram(v, np.arange(5))[0]),
    "histogram_bin_edges": (FLOATS, lambda v, k: clhist.histogram_bin_edges(v, "fd")),
    "histogram2d x": (FLOATS, lambda v, k: clhist.histogram2d(v, OTHER[k], 4)[0]),
    "histogram2d weights": (FLOATS, lambda v, k: clhist.histogram2d(OTHER[k], OTHER[k], 4, weights=v)[0]),
    "histogramdd": (FLOATS, lambda v, k: clhist.histogramdd([OTHER[k], v, OTHER[k]], 2)[0]),
    "binned_statistic x": (FLOATS, lambda v, k: stats.binned_statistic(v, OTHER[k], "mean", 3).statistic),
    "binned_statistic values": (FLOATS, lambda v, k: stats.binned_statistic(OTHER[k], v, "std", 3).statistic),
    "binned_statistic_2d": (FLOATS, lambda v, k: stats.binned_statistic_2d(v, OTHER[k], v, "sum", 2).statistic),
    "ndimage input": (FLOATS, lambda v, k: ndimage.mean(v, WHOLE[k], [1, 2, 3])),
    "ndimage labels": (WHOLE, lambda v, k: ndimage.maximum(OTHER[k], v, [1, 2, 8, 0])),
    "ndimage without labels": (FLOATS, lambda v, k: ndimage.median(v)),
    "ndimage.histogram": (FLOATS, lambda v, k: ndimage.histogram(v, 0, 1, 4, WHOLE[k])),
    "fill args": (FLOATS, lambda v, k: clhist.hist.fill(bh.Histogram(bh.axis.Regular(5, 0, 1)), v).view(flow=True)),
    "Filler.fill weight": (FLOATS, lambda v, k: filler(OTHER[k], v)),
    "fill_many args": (FLOATS, lambda v, k: many(v, OTHER[k])),
    "group_by keys": (WHOLE, lambda v, k: clhist.group_by(v).sum(OTHER[k])),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", SKIPPED)
def test_missing_elements_are_skipped(case, kind):
    data, call = SKIPPED[case]
    given = KINDS[kind](data)
    found, expected = call(given, slice(None)), call(data[PRESENT], PRESENT)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_fields_of_zones(kind):
    zonal = pytest.importorskip("clhist.zonal")
    for zones, values in ((KINDS[kind](WHOLE), OTHER), (WHOLE, KINDS[kind](OTHER))):
        found = zonal.zonal_stats(zones, values, stats_funcs=["mean", "count"])
        expected = pd.Series(OTHER[PRESENT]).groupby(WHOLE[PRESENT]).agg(["mean", "count"])
        np.testing.assert_allclose(found.to_numpy(), expected.reset_index().to_numpy())


def test_digitize_has_masked_numbers():
    for kind in KINDS.values():
        found = clhist.digitize(kind(FLOATS), EDGES)
        np.testing.assert_array_equal(found.mask, MISSING)
        np.testing.assert_array_equal(found.compressed(), np.digitize(FLOATS[PRESENT], EDGES))


def test_numbers_of_bins_where_coordinates_are_missing():
    found = stats.binned_statistic(KINDS["masked"](FLOATS), OTHER, bins=EDGES)
    expected = scipy.stats.binned_statistic(FLOATS, OTHER, bins=EDGES)
    np.testing.assert_array_equal(found.binnumber.mask, MISSING)
    np.testing.assert_array_equal(found.binnumber.compressed(), expected.binnumber[PRESENT])
    found = stats.binned_statistic(FLOATS, KINDS["masked"](OTHER), bins=EDGES)
    np.testing.assert_array_equal(found.binnumber, expected.binnumber)  # the places are there


def test_large_arrays_and_nullable_integers():
    x = np.arange(70_000) + 2**60
    missing = x % 3 == 0
    column = pd.Series(x).astype("Int64").mask(missing)
    edges = 2**60 + np.array([0, 1, 5, 70_000])
    np.testing.assert_array_equal(clhist.histogram(column, edges)[0], np.histogram(x[~missing], edges)[0])
    masked = np.ma.array(x.astype(float), mask=missing).reshape(7, -1)
    rows, _ = clhist.histogram(masked, 4, (2**60, 2**60 + 70_000), axis=1, weights=np.ma.ones(masked.shape))
    expected = [np.histogram(row.compressed(), 4, (2**60, 2**60 + 70_000))[0] for row in masked]
    np.testing.assert_array_equal(rows, expected)


def numbers(results):
    """Return a number, or numbers and places, in one array."""
    return np.concatenate([np.ravel(each) for each in (results if isinstance(results, tuple) else (results,))])


def test_regions_as_scipy_has_them_without_missing_cells():
    image, labels = FLOATS.reshape(20, 15), WHOLE.reshape(20, 15)
    gone = MISSING.reshape(20, 15)
    given = np.ma.array(np.where(gone, 99, image), mask=gone)
    for name in ("minimum_position", "extrema", "variance", "sum"):
        function, of_scipy = getattr(ndimage, name), getattr(scipy.ndimage, name)
        for found, expected in (
            (function(given, labels, 3), of_scipy(image, np.where(gone, -1, labels), 3)),
            (function(given), of_scipy(image, ~gone, 1)),
        ):
            np.testing.assert_allclose(numbers(found), numbers(expected))


REFUSED = {
    "bins": lambda v: clhist.histogram(OTHER, np.ma.sort(v)),
    "index": lambda v: ndimage.sum(OTHER, WHOLE, v),
    "dest": lambda v: clhist.reduce_by_index(v, np.add, WHOLE, OTHER),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_skipped_is_refused_by_name(name):
    with pytest.raises(ValueError, match=rf"^{name}: expected .* without (masked|missing) elements"):
        REFUSED[name](KINDS["masked"](FLOATS))


NULLABLE = {
    "pandas": pd.Series([1, None, 2], dtype="Int64"),
    "floats": pd.array([1.0, None, 2.0], dtype="Float64"),
    "booleans": pd.array([True, None, False], dtype="boolean"),
    "arrow": pa.array([1, None, 2]),
    "chunked": pa.chunked_array([[1.0], [None, 2.0]]),
    "in pandas": pd.Series([1, None, 2], dtype="int64[pyarrow]"),
}
SUM = clhist.operators.add(np.float64)
TAKES_NUMBERS = {
    "sum": lambda v: clhist.reduce_by_index(2, "sum", [0, 1, 0], v),
    "max": lambda v: clhist.reduce_by_index(np.zeros(2), np.maximum, [0, 1, 0], v),
    "count": lambda v: clhist.reduce_by_index(2, "count", [0, 1, 0], v),
    "bincount": lambda v: clhist.bincount([0, 1, 0], v),
    "Accumulator": lambda v: clhist.Accumulator(SUM, 2).add([0, 1, 0], v),
    "MultiAccumulator": lambda v: clhist.MultiAccumulator(SUM, 2).add([0, 1, 0], v),
    "partial": lambda v: clhist.Spec(SUM, 2).partial([0, 1, 0], v),
}


@pytest.mark.parametrize("name", TAKES_NUMBERS)
@pytest.mark.parametrize("kind", NULLABLE)
def test_nulls_are_no_numbers(name, kind):
    with pytest.raises(TypeError, match=r"^(values|weights): expected numbers without missing values, got .+ with"):
        TAKES_NUMBERS[name](NULLABLE[kind])


def test_nullable_columns_without_nulls_are_numbers():
    for column in (pd.array([1, 2, 3], dtype="Int64"), pa.array([1, 2, 3])):
        np.testing.assert_array_equal(clhist.reduce_by_index(2, "sum", [0, 1, 0], column), [4, 2])
        np.testing.assert_array_equal(clhist.bincount([0, 1, 0], column), [4, 2])
    np.testing.assert_array_equal(clhist.reduce_by_index(2, "sum", [0, 1], pd.Series([np.nan, 2.0])), [np.nan, 2])


def test_an_unknown_condition_is_not_fulfilled():
    where = np.ma.array(OTHER > 0.5, mask=MISSING)
    found, _ = clhist.histogram(FLOATS, EDGES, where=where)
    np.testing.assert_array_equal(found, np.histogram(FLOATS[(OTHER > 0.5) & PRESENT], EDGES)[0])


def functions():
    """Return the public functions and methods that take elements, without the package's name."""
    found = set()
    for line in RECORD.read_text().splitlines():
        name, _, parameters = line.removeprefix("class ").removeprefix("clhist.").partition("(")
        names = {part.strip(" *)").partition("=")[0] for part in parameters.split(",")}
        if names & DATA and not name.startswith("operators."):
            found.add(re.sub(r"^(\w+)\.\1$", r"\1", name))  # modules of one function
    return {each for each in found if not any(each == no or each.startswith(f"{no}.") for no in NO_DATA)}


def test_the_page_has_a_row_for_each_public_function():
    rows = [line.split("|")[1:-1] for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    patterns = [pattern for row in rows for pattern in re.findall(r"`([\w.*]+)`", row[0])]
    assert all(all(cell.strip() for cell in row) and len(row) == 4 for row in rows)
    every = functions()
    assert len(every) > 60
    without = {name for name in every if not any(fnmatch(name, pattern) for pattern in patterns)}
    modules = ("histogram", "unique", "digitize", "bincount", "reduce")
    without = {
        name for name in without if name.partition(".")[0] not in modules or name.partition(".")[2] not in patterns
    }
    assert not without, f"docs/howto/missing-values.md needs rows for {sorted(without)}"
