"""Dask collections: every function against NumPy or the one-process result, on one thread."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

dask = pytest.importorskip("dask", reason="Dask is not installed")
da = pytest.importorskip("dask.array")

import clhist  # noqa: E402
import clhist.dask as on_dask  # noqa: E402
from clhist import operators  # noqa: E402
from clhist.selftest.cases import CASES, PRODUCTS, problem  # noqa: E402

pytestmark = pytest.mark.slow

CHUNKS = ((7, 0, 1, 20_000, 29_992),)
NAMES = ("count", "sum", "mean", "var", "std", "min", "max", "argmin", "argmax", "first", "last", "prod", "any", "all")
same = np.testing.assert_array_equal


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture(scope="module")
def arrays():
    rng = np.random.default_rng(18)
    x, w, f = rng.integers(0, 100, 50_000), rng.random(50_000), rng.normal(size=50_000).astype(np.float32)
    f[10:20] = np.nan
    return x, w, f


@pytest.fixture(scope="module")
def lazy(arrays):
    return tuple(da.from_array(array, chunks=CHUNKS) for array in arrays)


def computed(found):
    return dask.compute(*found) if isinstance(found, tuple | list) else found.compute()


def test_bincount(arrays, lazy):
    (x, w, _), (dx, dw, _) = arrays, lazy
    found = clhist.bincount(dx)
    assert np.isnan(found.shape[0])
    same(found.compute(), np.bincount(x), strict=True)
    found = clhist.bincount(dx, minlength=200)
    assert found.shape == (200,)
    same(found.compute(), np.bincount(x, minlength=200), strict=True)
    np.testing.assert_allclose(clhist.bincount(dx, dw).compute(), np.bincount(x, w))
    exact = on_dask.bincount(dx, dw, reproducible=True, max_abs=1)
    same(exact.compute(), on_dask.bincount(dx.rechunk(999), dw.rechunk(999), reproducible=True, max_abs=1).compute())
    same(clhist.bincount(dx[:0]).compute(), np.bincount(x[:0]))
    with pytest.raises(ValueError, match=r"^x: expected elements below minlength=50"):
        clhist.bincount(dx, minlength=50).compute()
    with pytest.raises(ValueError, match="negative"):
        clhist.bincount(dx - 50).compute()


@pytest.mark.parametrize(
    ("bins", "ends"),
    [(50, None), (50, (-1, 1)), (np.array([-1, 0, 0.5, 3]), None), (7, (np.float32(0), np.float32(2)))],
    ids=str,
)
def test_histogram(bins, ends, arrays, lazy):
    for data, given in zip(
        (arrays[0], arrays[1], arrays[0].astype(np.uint8)), (lazy[0], lazy[1], lazy[0].astype("u1")), strict=True
    ):
        same(computed(clhist.histogram(given, bins, ends))[0], np.histogram(data, bins, ends)[0], strict=True)
        same(computed(clhist.histogram(given, bins, ends))[1], np.histogram(data, bins, ends)[1], strict=True)
    _, w, f = arrays
    known, given = np.isfinite(f), da.from_array(f[np.isfinite(f)], chunks=9_999)
    h, edges = clhist.histogram(given, bins, ends)
    assert h.shape == (len(np.histogram_bin_edges(f[known], bins, ends)) - 1,)
    h, edges = dask.compute(h, edges)
    same(h, np.histogram(f[known], bins, ends)[0], strict=True)
    same(edges, np.histogram(f[known], bins, ends)[1], strict=True)
    weights = da.from_array(w[known].astype(np.float32), chunks=7_777)
    h, _ = clhist.histogram(given, bins, ends, weights=weights)
    expected = np.histogram(f[known], bins, ends, weights=w[known])[0]
    assert h.compute().dtype == np.float32
    np.testing.assert_allclose(h.compute(), expected, rtol=1e-5)
    h, _ = clhist.histogram(given, bins, ends, density=True)
    np.testing.assert_allclose(h.compute(), np.histogram(f[known], bins, ends, density=True)[0])


@pytest.mark.parametrize(
    ("bins", "ends"),
    [((10, 20), None), (10, ((-1, 1), (0, 1))), ([np.linspace(-1, 1, 5), 3], None), (np.linspace(0, 1, 6), None)],
    ids=str,
)
def test_histograms_of_several_dimensions(bins, ends, arrays, lazy):
    x, y = arrays[1], arrays[1][::-1] ** 2
    lx, ly = da.from_array(x, chunks=20_001), da.from_array(y, chunks=20_001)
    found = dask.compute(*clhist.histogram2d(lx, ly, bins, ends))
    for one, other in zip(found, np.histogram2d(x, y, bins, ends), strict=True):
        same(one, other, strict=True)
    edges = [bins, bins] if isinstance(bins, np.ndarray) else bins
    points = np.stack([x, y], axis=1)
    h, each = clhist.histogramdd(da.from_array(points, chunks=(9_999, 1)), edges, ends, weights=lx, density=True)
    expected, of = np.histogramdd(points, edges, ends, weights=x, density=True)
    np.testing.assert_allclose(h.compute(), expected)
    for one, other in zip(dask.compute(each)[0], of, strict=True):
        same(one, other, strict=True)


@pytest.mark.parametrize("name", sorted(CASES | PRODUCTS))
def test_every_ready_operator(name):
    bins, values, check = problem(name)
    operator = (CASES | PRODUCTS)[name].operator
    chunks = ((1, 0, 1000, 999, len(bins) - 2000),)
    found = clhist.reduce_by_index(
        37, operator, da.from_array(bins, chunks=chunks), da.from_array(values, chunks=chunks)
    )
    assert (found.shape, found.dtype) == ((37,), operator.dtype)
    check(found.compute())


@pytest.mark.parametrize("op", ["sum", "argmax", "first", "last", "mean", "var", "count", np.minimum, np.fmax], ids=str)
def test_reduce_by_index(op, arrays, lazy):
    (x, _, f), (dx, _, df) = arrays, lazy
    found, expected = clhist.reduce_by_index(101, op, dx, df).compute(), clhist.reduce_by_index(101, op, x, f)
    assert found.dtype == expected.dtype
    for part, other in (
        [(found, expected)] if not found.dtype.names else [(found[n], expected[n]) for n in found.dtype.names]
    ):
        np.testing.assert_allclose(part, other, rtol=1e-4, equal_nan=True)


def test_sums_that_are_reproducible_and_dest(arrays, lazy):
    (x, w, _), (dx, dw, _) = arrays, lazy
    expected = clhist.reduce_by_index(np.arange(100.0), np.add, x, w, reproducible=True)
    same(clhist.reduce_by_index(np.arange(100.0), np.add, dx, dw, reproducible=True).compute(), expected)
    same(clhist.reduce_by_index(np.arange(100.0), np.add, dx, dw, reproducible=True, max_abs=99).compute(), expected)
    same(clhist.reduce_by_index(np.arange(100), "sum", dx, dx).compute(), np.bincount(x, x) + np.arange(100))


@pytest.mark.parametrize("op", ["sum", "argmax", "first", "count", "min"])
@pytest.mark.parametrize("shards", [1, 3, 7])
def test_shards(op, shards, arrays, lazy):
    (x, _, _), (dx, _, _) = arrays, lazy
    keys, lazy_keys = x * 13 - 20, dx * 13 - 20
    found = on_dask.reduce_by_index(1000, op, lazy_keys, dx, shards=shards, split_every=2)
    assert len(found.chunks[0]) == shards
    same(found.compute(), clhist.reduce_by_index(1000, op, keys, x), strict=True)
    dest = np.arange(1000)
    if op == "sum":
        found = on_dask.reduce_by_index(dest, op, lazy_keys, dx, shards=shards)
        same(found.compute(), clhist.reduce_by_index(dest, op, keys, x), strict=True)


def test_group_by(arrays, lazy):
    (x, w, f), (dx, dw, df) = arrays, lazy
    found, expected = clhist.group_by(dx, 101), clhist.group_by(x, 101)
    for options in ({}, {"skipna": False}, {"ddof": 1, "dtype": np.float64}):
        lazily = found.agg(f=(df, *NAMES), w=(dw, "mean"), **options)
        (one,), other = dask.compute(lazily), expected.agg(f=(f, *NAMES), w=(w, "mean"), **options)
        for column, statistics in other.items():
            for name, array in statistics.items():
                assert lazily[column][name].dtype == one[column][name].dtype == array.dtype
                np.testing.assert_allclose(one[column][name], array, rtol=1e-5, err_msg=f"{name} {options}")
    same(found.argmax(dx).compute(), expected.argmax(x))
    with pytest.raises(ValueError, match=r"^f: expected statistics that can be merged, got 'median'"):
        found.agg(f=(df, "median"))


@pytest.mark.parametrize("keys", [slice(None), slice(0), "none", "bool", "square"], ids=str)
def test_groups_that_a_pass_finds(keys, arrays):
    (k, w, _), number = arrays, 7
    if isinstance(keys, slice):
        k, w = k[keys], w[keys]
    elif keys == "square":
        k, w = k.reshape(250, 200), w.reshape(250, 200)
    else:
        k = np.full_like(k, -2) if keys == "none" else k > 50
    lazy_k, lazy_w = (da.from_array(each, chunks=max(1, len(k) // number)) for each in (k, w))
    found, expected = clhist.group_by(lazy_k), clhist.group_by(k)
    assert found.num_groups is None
    same(found.keys.compute(), expected.keys, strict=True)
    same(found.size().compute(), expected.size(), strict=True)
    result = found.agg(keys=(lazy_w, "mean", "var"), split_every=2)["keys"]
    assert np.isnan(result["mean"].shape[0])
    for name, array in expected.agg(keys=(w, "mean", "var"))["keys"].items():
        np.testing.assert_allclose(result[name].compute(), array, rtol=1e-12, atol=0)
    if k.dtype.kind == "i":
        same(clhist.group_by(lazy_k.astype(k.dtype.newbyteorder())).size().compute(), expected.size(), strict=True)


def of_any_type(n):
    """Return columns of several types, some of which lack keys; blocks of 3000 elements have no key of some."""
    rng = np.random.default_rng(5)
    texts = np.array(["", "a", "bb", "\N{GREEK SMALL LETTER ALPHA}", "longer than others"])[rng.integers(0, 5, n)]
    reals = np.where(rng.random(n) < 0.1, np.nan, rng.choice([-0.0, 0.0, 1.5, -np.inf, 1e300], n))
    dates = np.array(rng.integers(-9, 9, n) * 86400, "M8[s]")
    dates[9000:15000] = "NaT"
    return {
        "identifiers": rng.integers(-(2**63), 2**63 - 1, 400)[rng.integers(0, 400, n)],
        "texts": texts,
        "reals": reals,
        "dates": dates,
        "each": np.arange(n)[::-1] * 2**40,
        "none": np.full(n, np.nan),
    }


ANY = ["identifiers", "texts", "reals", "dates", "each", "none", ("texts", "dates"), ("reals", "identifiers", "texts")]


@pytest.mark.parametrize("names", ANY, ids=str)
@pytest.mark.parametrize("sort", [True, False])
def test_groups_by_any_keys(names, sort, arrays):
    n = 20_001
    table, w, x = of_any_type(n), arrays[1][:n], arrays[0][:n]
    lazily = {name: da.from_array(each, chunks=3000) for name, each in table.items()}
    keys, lazy_keys = (
        (of[names] if isinstance(names, str) else [of[name] for name in names]) for of in (table, lazily)
    )
    expected, found = clhist.group_by(keys, sort=sort), clhist.group_by(lazy_keys, sort=sort)
    dw, dx = (da.from_array(each, chunks=3000) for each in (w, x))
    result = found.agg(w=(dw, *NAMES), x=(dx, "sum", "argmax", "first", "last", "prod"), split_every=2)
    own, result, size = dask.compute(found.keys, result, found.size(split_every=3))
    for one, other in zip(own, expected.keys, strict=True) if isinstance(own, tuple) else [(own, expected.keys)]:
        same(one, other)
    same(size, expected.size())
    for column, given in expected.agg(w=(w, *NAMES), x=(x, "sum", "argmax", "first", "last", "prod")).items():
        for name, array in given.items():
            np.testing.assert_allclose(result[column][name], array, rtol=1e-9, err_msg=name)


def test_groups_of_what_has_none(arrays):
    k, w = (da.from_array(each, chunks=9000) for each in arrays[:2])
    masked = "expected an array without masked elements"
    with pytest.raises(ValueError, match=f"^keys: {masked}"):
        clhist.group_by(da.ma.masked_greater(k, 4)).size()
    with pytest.raises(ValueError, match=f"^x: {masked}"):
        clhist.group_by(k).sum(da.ma.masked_greater(w, 0.5))
    with pytest.raises(TypeError, match=r"^x: OpenCL has no type for datetime64"):
        clhist.group_by(k).max(w.astype("M8[s]"))
    for block, message in (
        (np.array([0.7, 1.7]), "keys: expected integers, the numbers of groups, or categories, got float64"),
        (np.ma.array([1, 2], mask=[0, 1]), "keys: expected an array without missing elements, got 1"),
    ):
        with pytest.raises((TypeError, ValueError), match=f"^{message}"):
            on_dask.group_by([dask.delayed(block)], 3).size().compute(scheduler="synchronous")


def test_a_spec_of_ones_own(arrays, lazy):
    spec = clhist.Spec(
        {"n": operators.count(), "top": operators.argmax(np.float64, np.int64)},
        {"n": 10, "top": 5},
        arguments="const long *k, const double *x, double scale, long first",
        map="EMIT_n(k[i] % 10, 1); EMIT_top(k[i] % 5, ((value_top_t){x[i] * scale, first + i}))",
        first_index="first",
    )
    found = on_dask.reduce(spec, *lazy[:2], 2.0, split_every=2).compute()
    same(found["n"], np.bincount(arrays[0] % 10))
    where = [np.flatnonzero(arrays[0] % 5 == k) for k in range(5)]
    same(found["top"]["index"], [each[arrays[1][each].argmax()] for each in where])


def test_arrays_of_numpy_beside_collections():
    k, w = np.array([0, 1, 2, 0, 1]), np.array([1.0, 10.0, 5.0, 7.0, 2.0])
    blocks = da.from_array(k, chunks=2)
    np.testing.assert_array_equal(clhist.bincount(blocks, weights=w, minlength=3), [8, 12, 5])
    np.testing.assert_array_equal(clhist.reduce_by_index(3, np.maximum, blocks, w), [7, 10, 5])
    counts, _, _ = clhist.histogram2d(blocks, w, bins=(3, 2), range=((0, 3), (0, 11)))
    np.testing.assert_array_equal(counts, np.histogram2d(k, w, bins=(3, 2), range=((0, 3), (0, 11)))[0])
    with pytest.raises(ValueError, match=r"^weights: expected shape \(5,\) as of x, got \(2,\)"):
        clhist.bincount(blocks, weights=w[:2], minlength=3)


def test_bad_input(arrays, lazy):
    dx, dw, df = lazy
    unknown = dx[dx > 3]
    same(clhist.bincount(unknown).compute(), np.bincount(arrays[0][arrays[0] > 3]))
    with pytest.raises(ValueError, match=r"^values: expected chunks of known sizes, since argmax needs positions"):
        clhist.reduce_by_index(100, "argmax", unknown, df[dx > 3])
    with pytest.raises(ValueError, match=r"^keys: expected chunks of known sizes"):
        clhist.group_by(unknown, 100).argmax(df[dx > 3])
    with pytest.raises(ValueError, match=r"^weights: expected shape \(50000,\) as of x, got \(49999,\)"):
        clhist.bincount(dx, dw[1:])
    with pytest.raises(TypeError, match=r"^queue: expected none for Dask collections"):
        clhist.bincount(dx, queue=clhist.default_queue())
    with pytest.raises(TypeError, match=r"^bins: expected a number or edges"):
        clhist.histogram(dx, "auto")
    with pytest.raises(ValueError, match="`bins` must be positive"):
        clhist.histogram(dx, 0)
    with pytest.raises(ValueError, match="autodetected range"):
        clhist.histogram(df)[0].compute()
    with pytest.raises(TypeError, match=r"^keys: expected integers"):
        clhist.group_by(df, 3)
    with pytest.raises(TypeError, match=r"^spec: expected a clhist.Spec"):
        on_dask.reduce("sum", dx)
    with pytest.raises(TypeError, match=r"^client: expected a distributed.Client"):
        on_dask.use_devices("tcp://nowhere:1")

    class Mine(clhist.Operator):
        """Of a class that other processes do not find."""

    with pytest.raises(TypeError, match=r"^op: expected what can be pickled"):
        clhist.reduce_by_index(100, Mine(np.float32, "a + b", 0), dx, df)


def test_fill_of_boost_histogram(arrays, lazy):
    bh = pytest.importorskip("boost_histogram", reason="boost-histogram is not installed")
    (x, w, f), (dx, dw, df) = arrays, lazy
    for storage in (bh.storage.Double, bh.storage.Weight, bh.storage.Mean, bh.storage.Int64):
        h = bh.Histogram(bh.axis.Regular(20, -2, 2), bh.axis.IntCategory([], growth=True), storage=storage())
        more = {"sample": w} if storage is bh.storage.Mean else {} if storage is bh.storage.Int64 else {"weight": w}
        h.fill(f[:50], x[:50] % 3, **{k: v[:50] for k, v in more.items()})
        found = on_dask.fill(h, df, dx % 3, **dict.fromkeys(more, dw)).compute()
        h.fill(f, x % 3, **more)
        assert type(found) is type(h)
        assert found.axes == h.axes
        np.testing.assert_allclose(found.values(flow=True), h.values(flow=True), rtol=1e-12)
        if found.variances() is not None:
            np.testing.assert_allclose(found.variances(), h.variances(), rtol=1e-9)


def test_dataframes_and_delayed(arrays):
    x, w, _ = arrays
    pieces = [dask.delayed(x[k : k + 9_000]) for k in range(0, 50_000, 9_000)]
    for found in (on_dask.bincount(pieces), clhist.bincount(pieces), clhist.group_by(pieces).size()):
        same(found.compute(), np.bincount(x))
    masked = [dask.delayed(np.ma.array([1, 2, 2], mask=[0, 0, 1]))]  # of which nothing is known before
    for found, expected in (
        (clhist.bincount(masked), [0, 1, 1]),
        (clhist.histogram(masked, 2, (0, 3))[0], [1, 1]),
        (clhist.reduce_by_index(np.full(3, 9), "min", masked, masked), [9, 1, 2]),
    ):
        np.testing.assert_array_equal(found.compute(), expected)
    with pytest.raises(TypeError, match=r"^values: expected a collection of a known dtype, got list; give an array"):
        clhist.reduce_by_index(3, "min", masked, masked)
    try:
        import dask.dataframe as dd
    except ImportError:
        pytest.skip("dask.dataframe needs more than is installed")
    import pandas as pd

    table = pd.DataFrame({"x": x, "w": w})
    frame = dd.from_pandas(table, npartitions=5)
    same(clhist.bincount(frame["x"]).compute(), np.bincount(x))
    np.testing.assert_allclose(clhist.bincount(frame["x"], frame["w"]).compute(), np.bincount(x, w))
    np.testing.assert_allclose(on_dask.group_by(frame["x"], 100).mean(frame["w"]).compute(), clhist.group_by(x).mean(w))
    table["c"] = pd.Categorical.from_codes(x % 3, ["c", "a", "b"])
    table["t"] = table["c"].astype(str)
    frame = dd.from_pandas(table, npartitions=5)
    groups, expected = clhist.group_by(frame["c"]), clhist.group_by(table["c"])
    assert list(groups.keys) == list(expected.keys) == ["c", "a", "b"]
    np.testing.assert_allclose(groups.mean(frame["w"]).compute(), expected.mean(w))
    several, expected = clhist.group_by(frame[["c", "x", "t"]]), clhist.group_by(table[["c", "x", "t"]])
    keys, means = dask.compute(several.keys, several.mean(frame["w"]))
    for one, other in zip(keys, expected.keys, strict=True):
        same(one, other)
    np.testing.assert_allclose(means, expected.mean(w))
    for given, error, message in (
        (lambda: clhist.group_by(frame["c"], 4), ValueError, "num_groups: expected 3, the categories of the keys"),
        (lambda: clhist.group_by(frame["t"], 3), TypeError, "keys: expected integers, the numbers of groups, or cat"),
        (lambda: clhist.group_by(frame, 3), TypeError, "num_groups: expected none with keys of 4 columns, got 3"),
        (lambda: groups.mean(frame["t"]), TypeError, "x: expected numbers, got"),
        (lambda: groups.mean(2.0), TypeError, "x: expected a Dask collection, got float"),
        (lambda: groups.median(frame["w"]), ValueError, "x: expected statistics that can be merged"),
        (lambda: groups.argmax(frame["w"]), ValueError, "keys: expected chunks of known sizes"),
    ):
        with pytest.raises(error, match=f"^{message}"):
            given()


def test_reproducible_is_a_bool(lazy):
    dx, dw, _ = lazy
    with pytest.raises(TypeError, match="reproducible: expected a bool, got 'yes'"):
        on_dask.bincount(dx, dw, reproducible="yes")
    with pytest.raises(TypeError, match="reproducible: expected a bool, got 1"):
        on_dask.reduce_by_index(9, "sum", dx, dw, reproducible=1)


@pytest.mark.parametrize("sort", [True, False])
@pytest.mark.parametrize("names", ["identifiers", "texts", "reals", ("texts", "dates")], ids=str)
def test_different_values_of_groups(names, sort, arrays):
    n = 20_001
    table, w = of_any_type(n), np.where(arrays[1][:n] < 0.2, np.nan, arrays[1][:n].round(1))
    lazily = {name: da.from_array(each, chunks=3000) for name, each in table.items()}
    keys, lazy_keys = (
        (of[names] if isinstance(names, str) else [of[name] for name in names]) for of in (table, lazily)
    )
    found = clhist.group_by(lazy_keys, sort=sort).agg(x=(da.from_array(w, chunks=3000), "mean", "nunique", "count"))
    expected = clhist.group_by(keys, sort=sort).agg(x=(w, "mean", "nunique", "count"))
    assert [*found["x"]] == [*expected["x"]]
    same(found["x"]["nunique"].compute(), expected["x"]["nunique"])
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    pandas.testing.assert_frame_equal(found.to_pandas(), expected.to_pandas())


def test_tables_of_blocks(arrays):
    dataframe = pytest.importorskip("dask.dataframe", reason="dask.dataframe is not installed")
    import pandas

    k, w = arrays[0][:9000].astype(np.int64) % 5, arrays[1][:9000].round(1)
    frame = pandas.DataFrame({"k": pandas.Categorical(np.array(list("bacde"))[k]), "w": w})
    lazily = dataframe.from_pandas(frame, npartitions=3)
    groups = clhist.group_by(lazily["k"])
    table = groups.agg(w=(lazily["w"], "sum", "nunique"))
    for found in (table, table.compute(), pickle.loads(pickle.dumps(table.compute()))):
        found = found.to_pandas()["w"]
        expected = frame.groupby("k", observed=False)["w"].agg(["sum", "nunique"])
        np.testing.assert_allclose(found, expected)
        assert found.index.tolist() == expected.index.tolist()
        assert found.index.name == "k"
    (computed,) = dask.compute(table)
    assert type(computed) is clhist.grouped.table.Table
    assert computed.to_arrow().column_names == [
        "k",
        "w_sum",
        "w_nunique",
    ]
    numbered = clhist.group_by(da.from_array(k, chunks=4000), 7).nunique(da.from_array(w, chunks=4000))
    assert numbered.compute().tolist() == [*frame.groupby(k)["w"].nunique(), 0, 0]
    with pytest.raises(AttributeError, match=r"^rank: expected a statistic that blocks have parts of: sum, .*nunique"):
        groups.rank(lazily["w"])
    with pytest.raises(TypeError, match=r"^skipna: expected True"):
        groups.nunique(lazily["w"], skipna=False)


def test_sums_of_narrow_integers_are_wide():
    indices, values = np.arange(9000, dtype=np.int32) % 3, np.full(9000, 200, np.int16)
    lazy = [da.from_array(array, chunks=4000) for array in (indices, values)]
    for dtype in (None, np.int16):
        found = clhist.reduce_by_index(3, "sum", *lazy, dtype=dtype)
        assert found.dtype == (dtype or np.int64)
        expected = np.full(3, 600_000).astype(found.dtype)
        np.testing.assert_array_equal(found.compute(), expected)


def test_counts_that_overflow_are_refused():
    with pytest.raises(ValueError, match="array is too big"):
        clhist.bincount(da.from_array(np.array([1, 2**63 - 1]), chunks=1)).compute()
