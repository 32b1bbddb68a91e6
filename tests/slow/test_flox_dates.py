"""`clhist.flox` on dates and durations, which flox hands over as integers."""

from __future__ import annotations

import numpy as np
import pytest

flox = pytest.importorskip("flox", reason="flox is not installed")
pd = pytest.importorskip("pandas", reason="pandas is not installed")
xr = pytest.importorskip("xarray", reason="xarray is not installed")
xarray_reduce = pytest.importorskip("flox.xarray", reason="flox is not installed").xarray_reduce
da = pytest.importorskip("dask.array", reason="dask is not installed")

import clhist.flox  # noqa: E402

N = 200
BY = np.random.default_rng(1).integers(0, 5, N)
BY[BY == 3] = 6  # no element has 3, those of 5 are all missing
BY[:9] = 5


def dates(kind, unit="ns"):
    """Return dates of today, of nanoseconds, or durations; some are NaT."""
    rng = np.random.default_rng(0)
    ticks = rng.integers(-(10**15), 10**15, N) + (1_790_000_000 * 10**9 if kind == "M" else 0)
    found = (ticks if unit == "ns" else ticks // 10**9).view(f"{kind}8[{unit}]")
    found[:9], found[10:14] = "NaT", "NaT"
    return found


def exact(values, name):
    """Return a mean or a median, which pandas rounds to float64."""
    ticks = sorted(values.dropna().to_numpy().view("i8").tolist())
    if name == "median" and ticks:
        ticks = [ticks[(len(ticks) - 1) // 2], ticks[len(ticks) // 2]]
    return pd.Series([sum(ticks) // len(ticks) if ticks else "NaT"]).to_numpy().astype(values.dtype)[0]


def expected(x, name, min_count=0):
    """Return what pandas has; NaT propagates to statistics that do not skip it."""
    series, groups = pd.Series(x), np.arange(7)
    of = series.groupby(BY)
    skips = name.startswith("nan") or name == "count"
    options = {"ddof": 0} if name.endswith("std") else {}
    name = name.removeprefix("nan")
    found = of.agg(exact, name) if name in ("mean", "median") else getattr(of, name)(**options)
    found = found.reindex(groups)
    if name == "count":
        return found.fillna(0).to_numpy(int)
    present = of.count().reindex(groups).fillna(0)
    if not skips:
        found[present < of.size().reindex(groups).fillna(0)] = pd.NaT
    found[present < min_count] = pd.NaT
    return found.to_numpy().astype(x.dtype)


NAMES = ["mean", "nanmean", "median", "nanmedian", "min", "nanmin", "max", "nanmax", "count"]
CASES = [("M", "ns", name) for name in (*NAMES, "nanfirst", "nanlast")] + [("M", "s", "nanmean"), ("M", "s", "nanmin")]
CASES += [("m", "ns", name) for name in ("mean", "nanmean", "nanmedian", "nanmax", "sum", "nansum", "nanstd", "count")]


@pytest.mark.parametrize(("kind", "unit", "name"), CASES)
def test_arrays(kind, unit, name):
    x, func = dates(kind, unit), getattr(clhist.flox, name)
    found = flox.groupby_reduce(x, BY, func=func, expected_groups=np.arange(7))[0]
    want = expected(x, name)
    step = np.timedelta64(1 if name in ("nanstd", "mean", "nanmean", "nanmedian", "median") else 0, unit)
    assert found.dtype == want.dtype
    if name != "count":
        np.testing.assert_array_equal(np.isnat(found), np.isnat(want))
        found, want = found[~np.isnat(want)], want[~np.isnat(want)]
        assert (abs(found - want) <= step).all()
    else:
        np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("name", ["nanmean", "mean", "nanmax", "median"])
def test_labelled_arrays(name):
    x = np.stack([dates("M")] * 2)
    data = xr.DataArray(x, dims=("row", "time"), coords={"k": ("time", BY)})
    found = xarray_reduce(data, "k", func=getattr(clhist.flox, name))
    want = expected(x[0], name)[found.k.values]
    for row in found.transpose("row", "k").values:
        np.testing.assert_array_equal(np.isnat(row), np.isnat(want))
        assert (abs(row - want)[~np.isnat(want)] <= np.timedelta64(1, "ns")).all()


def test_min_count():
    x = dates("m")
    data = xr.DataArray(x, dims="time", coords={"k": ("time", BY)})
    for func, name in ((clhist.flox.nansum, "nansum"), (clhist.flox.nanmean, "nanmean")):
        found = xarray_reduce(data, "k", func=func, min_count=38, fill_value=np.nan)
        want = expected(x, name, 38)[found.k.values]
        np.testing.assert_array_equal(np.isnat(found.values), np.isnat(want))
        assert 0 < np.isnat(want).sum() < len(want)


@pytest.mark.parametrize("name", ["nanmean", "mean", "count", "nanmin", "nanmedian", "nanmax"])
def test_collections(name):
    """Sums of blocks are float64, which are exact to about a microsecond; whole groups are exact."""
    order = np.argsort(BY, kind="stable")
    x, by = dates("M")[order], BY[order]
    options = {} if name in ("nanmean", "mean", "count") else {"method": "blockwise"}
    chunks = 50 if not options else tuple(np.bincount(by)[np.unique(by)].tolist())
    func = getattr(clhist.flox, name)
    reduced = flox.groupby_reduce(da.from_array(x, (chunks,)), by, func=func, **options)
    found, groups = np.asarray(reduced[0]), reduced[1]
    want = expected(dates("M"), name)[groups]
    if name == "count":
        np.testing.assert_array_equal(found, want)
        return
    np.testing.assert_array_equal(np.isnat(found), np.isnat(want))
    assert (abs(found - want)[~np.isnat(want)] <= np.timedelta64(1, "us")).all()


@pytest.mark.parametrize("name", ["var", "nanvar", "prod", "sum", "nanargmin", "argmax", "std"])
def test_others_refuse_dates(name):
    with pytest.raises(TypeError, match=f"^array: expected numbers for clhist.flox.{name}, got datetime64.ns.; "):
        flox.groupby_reduce(dates("M"), BY, func=getattr(clhist.flox, name))


def test_means_of_blocks_of_large_integers():
    """Their sums are of more than 64 bits."""
    x = np.full(40, 2**62)
    found = flox.groupby_reduce(da.from_array(x, 10), np.zeros(40, int), func=clhist.flox.mean)[0]
    np.testing.assert_array_equal(np.asarray(found), [2.0**62])
