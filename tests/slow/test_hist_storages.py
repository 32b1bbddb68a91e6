"""Contents of every storage of boost-histogram, for columns of every kind: counts exactly, sums to rounding."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pyopencl.array as cl_array
import pytest
from covering import covering

bh = pytest.importorskip("boost_histogram", reason="boost-histogram is not installed")

from hist_objects import STORAGES, assert_same, empty  # noqa: E402

import clhist.hist  # noqa: E402

N = 20_011
_random = np.random.default_rng(1)
X = _random.normal(size=N)
X[::97], X[5], X[6] = np.nan, np.inf, -np.inf
Y = _random.normal(size=N).astype(np.float32)
K = _random.integers(-3, 9, N)
LABELS = np.array(["a", "bb", "c", "d"])[_random.integers(0, 4, N)]
SAMPLE = _random.normal(size=N) * 3 + 100
MASK = _random.random(N) > 0.5
# No sum of weights is 0 on the way: boost-histogram's means are NaN from there on.
WEIGHTS = {
    "none": None,
    "scalar": 2.0,
    "float64": _random.random(N) + 0.1,
    "float32": (_random.random(N) + 0.1).astype(np.float32),
    "integers": _random.integers(1, 4, N),
    "booleans": np.ones(N, bool),
}
axis = bh.axis
CASES = {
    "1d": ([axis.Regular(10, -2, 2)], (X,)),
    "2d": ([axis.Regular(10, -2, 2), axis.Variable([-1, 0, 2])], (X, Y)),
    "3d": ([axis.Regular(4, -2, 2, overflow=False), axis.Integer(0, 5), axis.Boolean()], (X, K, K > 2)),
    "categories": (
        [axis.StrCategory(["c", "a"]), axis.IntCategory([1, 5]), axis.Regular(3, -1, 1, circular=True)],
        (LABELS, K, X),
    ),
    "growing": (
        [
            axis.StrCategory(["c"], growth=True),
            axis.IntCategory([], growth=True),
            axis.Integer(0, 2, growth=True),
            axis.Regular(3, -1, 1),
        ],
        (LABELS, K, K, Y),
    ),
    "scalars": (
        [axis.Regular(10, -2, 2), axis.StrCategory(["q", "r"]), axis.IntCategory([4, 5], growth=True)],
        (X, "r", 7),
    ),
    "dropped": ([axis.Regular(10, -2, 2), axis.Integer(0, 3, overflow=False)], (X, 3)),
    "growing-reals": ([axis.Regular(10, -2, 2, growth=True)], (Y,)),
    "many-labels": ([axis.StrCategory([str(n) for n in range(40)])], (K.astype(str),)),
    "objects": ([axis.StrCategory(["a", "d"], overflow=False)], (LABELS.astype(object),)),
    "lists": ([axis.Integer(0, 5)], (K.tolist(),)),
}


def filled(case, storage, fill, times=2, **options):
    axes, args = CASES[case]
    h = empty(axes, storage)
    for _ in range(times):
        fill(h, *args, **options)
    return h


@pytest.mark.parametrize(("case", "storage", "weight"), covering(list(CASES), list(STORAGES), list(WEIGHTS)))
def test_storages(queue, case, storage, weight):
    samples = {None: None} if "Mean" not in storage else {"array": SAMPLE, "scalar": 4.0}
    for sample in samples.values():
        options = {"weight": WEIGHTS[weight], "sample": sample}
        expected = filled(case, STORAGES[storage], bh.Histogram.fill, **options)
        found = filled(case, STORAGES[storage], clhist.hist.fill, queue=queue, **options)
        assert_same(found, expected, exact=weight in ("none", "integers", "booleans") and sample is None)


@pytest.mark.skipif(not hasattr(bh.storage, "MultiCell"), reason="this boost-histogram has no MultiCell")
@pytest.mark.parametrize("case", ["1d", "2d", "categories", "growing"])
@pytest.mark.parametrize("dtype", ["f8", "f4", "i4"])
def test_cells(queue, case, dtype):
    weight = (np.random.default_rng(2).normal(size=(N, 3)) * 10).astype(dtype)
    expected = filled(case, bh.storage.MultiCell(3), bh.Histogram.fill, weight=weight)
    found = filled(case, bh.storage.MultiCell(3), clhist.hist.fill, queue=queue, weight=weight)
    assert_same(found, expected)


@pytest.mark.parametrize("storage", ["Mean", "WeightedMean"])
def test_means_of_large_numbers_lose_nothing(queue, storage):
    sample, weight = 1e9 + np.random.default_rng(5).normal(size=N), WEIGHTS["float64"]
    found = filled("1d", STORAGES[storage], clhist.hist.fill, queue=queue, weight=weight, sample=sample)
    bins = CASES["1d"][0][0].index(X)
    squares = found.view()["_sum_of_deltas_squared" if storage == "Mean" else "_sum_of_weighted_deltas_squared"]
    for n in range(10):
        x, w = np.tile(sample[bins == n], 2), np.tile(weight[bins == n], 2)
        expected = np.sum(w * (x - np.average(x, weights=w)) ** 2)
        assert squares[n] == pytest.approx(expected, rel=1e-9)


def test_reproducible(queue):
    order = np.random.default_rng(3).permutation(N)
    for storage in ("Double", "Weight", "Mean", "WeightedMean"):
        sample = SAMPLE if "Mean" in storage else None
        options = {"queue": queue, "reproducible": True}
        axes, (x,) = CASES["1d"]
        found = [empty(axes, STORAGES[storage]) for _ in range(2)]
        weight = WEIGHTS["float64"]
        clhist.hist.fill(found[0], x, weight=weight, sample=sample, **options)
        shuffled = None if sample is None else sample[order]
        clhist.hist.fill(found[1], x[order], weight=weight[order], sample=shuffled, **options)
        assert_same(*found, exact=True)
        expected = filled("1d", STORAGES[storage], bh.Histogram.fill, times=1, weight=weight, sample=sample)
        assert_same(found[0], expected)


def test_device_arrays(queue):
    def placed(value):
        return cl_array.to_device(queue, value) if isinstance(value, np.ndarray) else value

    for case in ("1d", "2d", "dropped"):
        axes, args = CASES[case]
        for storage, weight in (("Int64", None), ("Double", "float64"), ("Weight", "float32"), ("Mean", "float64")):
            options = {"weight": weight and WEIGHTS[weight], "sample": SAMPLE if storage == "Mean" else None}
            found, expected = empty(axes, STORAGES[storage]), empty(axes, STORAGES[storage])
            clhist.hist.fill(found, *map(placed, args), **{name: placed(value) for name, value in options.items()})
            assert_same(found, expected.fill(*args, **options))


def test_strided_and_swapped_columns(queue):
    x = X.repeat(2)[::2]
    for column in (x, X.astype(">f8"), X[::-1][::-1], X.astype(np.longdouble)):
        expected = empty([axis.Regular(10, -2, 2)], bh.storage.Int64()).fill(X)
        found = clhist.hist.fill(empty([axis.Regular(10, -2, 2)], bh.storage.Int64()), column, queue=queue)
        assert_same(found, expected, exact=True)


FILLS = {
    "weights": ("1d", "Weight", {"weight": WEIGHTS["float64"]}),
    "counts": ("3d", "Int64", {}),
    "labels": ("categories", "Double", {"weight": 2.5}),
    "means": ("2d", "Mean", {"sample": SAMPLE}),
    "growing": ("growing", "Weight", {"weight": WEIGHTS["float32"]}),
    "scalars": ("scalars", "Unlimited", {}),
}


@pytest.mark.parametrize("masked", [False, True])
def test_fill_many(queue, masked):
    def chosen(value):
        return value[MASK] if masked and isinstance(value, np.ndarray) else value

    fills, expected = [], []
    for case, storage, options in FILLS.values():
        axes, args = CASES[case]
        h, reference = empty(axes, STORAGES[storage]), empty(axes, STORAGES[storage])
        reference.fill(*map(chosen, args), **{name: chosen(value) for name, value in options.items()})
        expected.append(reference)
        fills.append((h, args, options | ({"where": MASK} if masked else {})))
    clhist.hist.fill_many(fills, queue=queue)
    for (h, *_), reference in zip(fills, expected, strict=True):
        assert_same(h, reference)


def test_fill_many_shares_columns(queue):
    cuts = [MASK, ~MASK, K > 3]
    hists = [empty(CASES["1d"][0], STORAGES["Weight"]) for _ in range(25)]
    weight = WEIGHTS["float64"]
    clhist.hist.fill_many(
        [(h, (X,), {"weight": weight, "where": cuts[n % 3]}) for n, h in enumerate(hists)], queue=queue
    )
    for n, h in enumerate(hists):
        where = cuts[n % 3]
        assert_same(h, empty(CASES["1d"][0], STORAGES["Weight"]).fill(X[where], weight=weight[where]))


@pytest.mark.skipif(not hasattr(bh.storage, "MultiCell"), reason="this boost-histogram has no MultiCell")
@pytest.mark.parametrize("on_device", [False, True])
def test_fill_many_variations_of_weights(queue, on_device):
    def placed(array):
        array = array.view(np.uint8) if array.dtype == bool else array
        return cl_array.to_device(queue, array) if on_device else array

    cuts = [MASK, ~MASK, K > 3, K < -100]
    weights = np.stack([WEIGHTS["float32"] * n for n in range(1, 8)], axis=1)
    axes = CASES["1d"][0]
    hists = [empty(axes, bh.storage.MultiCell(7)) for _ in cuts] + [empty(axes, STORAGES["Weight"])]
    nominal = np.ascontiguousarray(weights[:, 0])
    # As masks, NumPy's arrays of booleans are used, and as device arrays bytes.
    where = [placed(cut) if on_device else cut for cut in cuts]
    column, given = placed(X), placed(weights)
    fills = [(h, (column,), {"weight": given, "where": cut}) for h, cut in zip(hists, where, strict=False)]
    clhist.hist.fill_many([*fills, (hists[-1], (column,), {"weight": placed(nominal)})], queue=queue)
    for h, cut in zip(hists, cuts, strict=False):
        assert_same(h, empty(axes, bh.storage.MultiCell(7)).fill(X[cut], weight=weights[cut]))
    assert_same(hists[-1], empty(axes, STORAGES["Weight"]).fill(X, weight=nominal))


@pytest.mark.parametrize("name", FILLS)
@pytest.mark.parametrize("kind", ["numpy", "device"])
def test_filler(queue, name, kind):
    case, storage, options = FILLS[name]
    axes, args = CASES[case]
    if kind == "device" and any(isinstance(each, np.ndarray) and each.dtype.kind == "U" for each in args):
        args = [LABELS[0] if isinstance(each, np.ndarray) and each.dtype.kind == "U" else each for each in args]

    def part(value, begin, end):
        if not isinstance(value, np.ndarray):
            return value
        piece = np.ascontiguousarray(value[begin:end])
        return (
            cl_array.to_device(queue, piece.view(np.uint8) if piece.dtype == bool else piece)
            if kind == "device"
            else piece
        )

    expected = empty(axes, STORAGES[storage])
    first = {name: value[:50] if isinstance(value, np.ndarray) else value for name, value in options.items()}
    expected.fill(*(each[:50] if isinstance(each, np.ndarray) else each for each in args), **first)
    start = copy.deepcopy(expected)
    filler = clhist.hist.Filler(start, queue=queue)
    for begin, end in ((0, 5), (5, 9000), (9000, N)):
        given = {name: part(value, begin, end) for name, value in options.items()}
        filler.fill(*(part(each, begin, end) for each in args), **given)
        assert filler.result().ndim == len(axes)
    expected.fill(*args, **options)
    assert_same(filler.result(), expected)
    assert_same(filler.result(), expected)
    other = clhist.hist.Filler(start, queue=queue).merge(filler)
    assert_same(other.result(), expected)
    sent = pickle.loads(pickle.dumps(filler.partial()))
    assert_same(clhist.hist.Filler(start).merge(sent).result(), expected)
