"""Trees that grow on a device beside those of scikit-learn's grower of the same sums, and histograms of features."""

from __future__ import annotations

import copy
import pickle
from itertools import pairwise

import numpy as np
import pyopencl.array as cl_array
import pytest
import sklearn.base
import sklearn.ensemble
from covering import covering, each_value_quick
from sklearn._loss.loss import HalfBinomialLoss, HalfSquaredError
from sklearn.ensemble._hist_gradient_boosting.grower import TreeGrower

import clhist
from clhist.boosting import BinnedFeatures, HistGradientBoostingClassifier, HistGradientBoostingRegressor, estimators
from clhist.boosting.binned_rows import bits_of, unit_of
from clhist.boosting.feature_bins import bin_features
from clhist.boosting.grower import DeviceTreeGrower, in_units
from clhist.boosting.losses import DeviceLoss
from clhist.boosting.on_device import DeviceRows

pytestmark = pytest.mark.usefixtures("one_thread")
# The bins and features of a program: tests have the same ones wherever they may, since each takes long to build.
ROWS, FEATURES = 4001, 6
OPTIONS = {
    "plain": {"max_leaf_nodes": 31},
    "of any depth": {"max_leaf_nodes": None, "min_samples_leaf": 40, "l2_regularization": 1.5},
    "flat": {"max_leaf_nodes": 31, "max_depth": 2, "min_hessian_to_split": 30.0},
    "a root alone": {"min_samples_leaf": ROWS},
    "that gains much": {"min_gain_to_split": 40.0},
    "categories": {"max_leaf_nodes": 31, "is_categorical": np.arange(FEATURES) % 2 == 0},
    "monotonic": {"max_leaf_nodes": 31, "monotonic_cst": [1, -1, 0, 0, 0, 1]},
    "interactions": {"max_leaf_nodes": 31, "interaction_cst": [{0, 1}, {1, 2, 3, 4, 5}]},
    "drawn features": {"max_leaf_nodes": 31, "feature_fraction_per_split": 0.5},
}


@pytest.fixture
def data(rng):
    binned = np.asfortranarray(rng.integers(0, 255, (ROWS, FEATURES), dtype=np.uint8))
    binned[::7, 2] = 255
    gradients = rng.normal(size=ROWS) + (binned[:, 0] > 99) * (binned[:, 2] > 50) - (binned[:, 3] < 9)
    return binned, gradients.astype(np.float32), rng.random(ROWS).astype(np.float32)


def trees(queue, data, hessians=None, slots=None, **options):
    """Return the same tree, grown by scikit-learn and on the device."""
    binned, gradients, own = data
    hessians = own if hessians is None else hessians
    has_missing = np.zeros(binned.shape[1], bool)
    has_missing[2] = True
    options = {"n_bins": 256, "n_bins_non_missing": 255, "has_missing_values": has_missing, **options}
    if "feature_fraction_per_split" in options:
        options["rng"] = np.random.default_rng(1)
    theirs = TreeGrower(binned, in_units(gradients), hessians if len(hessians) == 1 else in_units(hessians), **options)
    if "feature_fraction_per_split" in options:
        options["rng"] = np.random.default_rng(1)
    rows = DeviceRows(queue, binned, 256, len(hessians) > 1, *([] if slots is None else [slots]))
    ours = DeviceTreeGrower(binned, gradients, hessians, device_rows=rows, **options)
    for grower in (theirs, ours):
        grower.grow()
    ours.find_partition()
    return theirs, ours


def assert_same(theirs, ours):
    thresholds = [np.arange(256.0)] * theirs.n_features
    expected, found = (grower.make_predictor(thresholds) for grower in (theirs, ours))
    assert found.nodes.tobytes() == expected.nodes.tobytes()
    np.testing.assert_array_equal(found.raw_left_cat_bitsets, expected.raw_left_cat_bitsets)
    leaves = sorted(theirs.finalized_leaves, key=lambda leaf: leaf.partition_start)
    for one, other in zip(leaves, ours.finalized_leaves, strict=True):
        np.testing.assert_array_equal(np.sort(other.sample_indices), np.sort(np.asarray(one.sample_indices)))


@pytest.mark.parametrize("constant", [False, True], ids=["hessians", "all alike"])
@pytest.mark.parametrize("name", OPTIONS)
def test_tree_is_that_of_scikit_learn(name, constant, data, any_profile, queue):
    theirs, ours = trees(queue, data, np.ones(1, np.float32) if constant else None, **OPTIONS[name])
    assert_same(theirs, ours)
    assert (len(ours.finalized_leaves) == 1) == (name == "a root alone")


@pytest.mark.parametrize("name", ["plain", "of any depth", "categories", "monotonic"])
def test_few_slots(name, data, any_profile, queue):
    more = {"max_leaf_nodes": 150, "min_samples_leaf": 3} if name != "of any depth" else {}
    assert_same(*trees(queue, data, slots=1, **OPTIONS[name] | more))


@pytest.mark.parametrize(
    "gradients",
    [
        np.zeros(300), np.full(300, 1e-42), np.r_[1e30, np.full(299, 1e-30)], np.r_[np.full(299, -0.1), 2.0**-149],
        np.tile([1 + 2.0**-23, 0.5 + 2.0**-24, -3 * 2.0**-20], 100),
    ],
    ids=["zeros", "subnormal", "far apart", "with a subnormal", "halves of units"],
)  # fmt: skip
def test_gradients_are_rounded_alike(gradients, any_profile, queue, rng):
    binned = np.asfortranarray(rng.integers(0, 9, (300, FEATURES), dtype=np.uint8))
    data = binned, gradients.astype(np.float32), gradients.astype(np.float32)
    assert_same(*trees(queue, data, n_bins_non_missing=9))


def test_units():
    assert [bits_of(rows) for rows in (1, 4, 2**22, 2**22 + 1, 2**30)] == [30, 30, 30, 29, 22]
    assert [unit_of(largest, 9) for largest in (1.0, 1.99, 2.0, 0.0, 2.0**-149)] == [-29, -29, -28, -155, -155]
    values = np.array([1, 2.0**-31, 3 * 2.0**-31, -(2.0**-29)], np.float32)
    np.testing.assert_array_equal(in_units(values), np.array([1, 0, 2.0**-29, -(2.0**-29)], np.float32))


PROFILES = ["own profile", "as a GPU"]


@pytest.mark.parametrize(
    ("features", "on_device", "order", "any_profile"),
    each_value_quick(covering([1, 4, 33], [False, True], ["C", "F"], PROFILES)),
    indirect=["any_profile"],
)
def test_histograms(features, on_device, order, any_profile, queue, rng):
    binned = np.asarray(rng.integers(0, 17, (3001, features), dtype=np.uint8), order=order)
    gradients, hessians = rng.normal(size=3001).astype(np.float32), rng.random(3001).astype(np.float32)
    rows, offsets = rng.integers(0, 3001, 2000), [0, 0, 3, 1000, 1999]
    send = (lambda array: cl_array.to_device(queue, array)) if on_device else np.asarray
    of = BinnedFeatures(send(binned), 17, queue=queue)

    def expected(chosen):
        sums = [np.zeros((features, 17)) for _ in range(3)]
        for into, values in zip(sums, (np.ones(3001), in_units(gradients), in_units(hessians)), strict=True):
            for feature in range(features):
                np.add.at(into[feature], binned[chosen, feature], values[chosen].astype(np.float64))
        return sums

    for options, parts in (
        ({}, slice(None)),
        ({"rows": send(rows)}, rows),
        ({"rows": send(rows.astype(np.uint32)), "offsets": offsets}, [rows[a:b] for a, b in pairwise(offsets)]),
        ({"offsets": [1, 5]}, [np.arange(1, 5)]),
        ({"offsets": [3]}, []),
    ):  # fmt: skip
        found = of.histograms(send(gradients), send(hessians), **options)
        wanted = (
            np.array([expected(part) for part in parts]) if isinstance(parts, list) else np.array([expected(parts)])
        )
        for n, array in enumerate(found):
            assert isinstance(array, cl_array.Array) == on_device
            given = array.get() if on_device else array
            assert given.shape == ((len(wanted), features, 17) if "offsets" in options else (features, 17))
            np.testing.assert_array_equal(given.reshape(-1), wanted[:, n].reshape(-1) if len(wanted) else [])
    counted = of.histograms(send(gradients))
    assert counted.hessians is None
    assert int((counted.counts.get() if on_device else counted.counts).sum()) == 3001 * features


INTEGERS = {
    "bytes": ("i1", "i1", [-128, 127, 3], [127, 1, 0]),
    "unsigned bytes": ("u1", "i1", [255, 254], [-128]),
    "shorts": ("i2", "u2", [-32768, 32767], [65535]),
    "small shorts": ("i2", "i2", [-700, 600], [0, 7, 1000]),
    "in one cell": ("i4", "u4", [-127, 120], [0, 1, 16]),
    "in one word": ("i4", "i4", [-30_000, 5], [2**31 - 1]),
    "with carries": ("i4", "u4", [-(2**31)], [2**31 - 1]),
    "with carries up": (">u4", "i4", [2**31 - 1], [-(2**31)]),
}


@pytest.mark.parametrize(
    ("name", "size", "on_device", "any_profile"),
    each_value_quick(covering(INTEGERS, [2001, 300_001], [False, True], PROFILES)),
    indirect=["any_profile"],
)
def test_integers(name, size, on_device, any_profile, queue, rng):
    """Sums are NumPy's of int64, in each of the layouts, also of so many rows that cells are emptied in between."""
    *dtypes, gradients, hessians = INTEGERS[name]
    binned = rng.integers(0, 17 if size < 10_000 else 1, (size, 2), dtype=np.uint8)  # many are all in one bin
    send = (lambda array: cl_array.to_device(queue, array)) if on_device else np.asarray
    native = [dtype.strip(">") if on_device else dtype for dtype in dtypes]
    values = [np.resize(each, size).astype(dtype) for each, dtype in zip((gradients, hessians), native, strict=True)]
    of, few = BinnedFeatures(send(binned), 17, queue=queue), rng.integers(0, size, 5000)
    for used, chosen, options in (
        (values, [slice(None)], {}), (values[:1], [slice(None)], {}),
        (values, [few[:4], few[4:4], few[4:]], {"rows": send(few), "offsets": [0, 4, 4, 5000]}),
    ):  # fmt: skip
        found = of.histograms(*map(send, used), **options)
        assert (found.hessians is None) == (len(used) == 1)
        for array, of_row in zip(found, [np.ones(size), *used], strict=False):
            expected = np.zeros((len(chosen), 2, 17), np.int64)
            for node, part in enumerate(chosen):
                for feature in range(2):
                    np.add.at(expected[node, feature], binned[part, feature], of_row[part].astype(np.int64))
            own = array.get() if on_device else array
            np.testing.assert_array_equal(own, expected if "offsets" in options else expected[0], strict=True)


def test_refusals(queue):
    binned = np.zeros((10, FEATURES), np.uint8)
    of, good, zeros = BinnedFeatures(binned, queue=queue), np.ones(10, np.float32), cl_array.zeros
    for match, error, make in (
        ("X_binned: expected uint8", TypeError, lambda: BinnedFeatures(binned.astype(int), queue=queue)),
        ("X_binned: expected uint8, got int64", TypeError, lambda: BinnedFeatures([[1, 2]], queue=queue)),
        ("gradients: expected an array of float32 or .* of float64", TypeError, lambda: of.histograms([1.0] * 10)),
        ("hessians: expected floats or integers as", TypeError, lambda: of.histograms(good, binned[:, 0])),
        ("gradients: .* less than .*, got 2147483648", ValueError, lambda: of.histograms(np.full(10, 2**31, "I"))),
        ("hessians: .* got 3000000000", ValueError, lambda: of.histograms(*np.uint32([[9] * 10, [3 * 10**9] * 10]))),
        ("gradients: expected a contiguous", ValueError, lambda: of.histograms(zeros(queue, 20, "f")[::2])),
        ("rows: expected a contiguous", ValueError, lambda: of.histograms(good, rows=zeros(queue, 8, "I")[::2])),
        ("X_binned: expected rows", ValueError, lambda: BinnedFeatures(binned[0], queue=queue)),
        ("X_binned: expected bins below n_bins=5, got 7", ValueError, lambda: BinnedFeatures(binned + np.uint8(7), 5)),
        ("n_bins: expected 1 to 256, got 257", ValueError, lambda: BinnedFeatures(binned, 257)),
        ("n_bins: expected an int, got 16.0", TypeError, lambda: BinnedFeatures(binned, 16.0)),
        (r"hessians: expected shape \(10,\)", ValueError, lambda: of.histograms(good, good[:9])),
        ("gradients: expected finite", ValueError, lambda: of.histograms(good * np.float32(np.nan))),
        ("hessians: expected finite", ValueError, lambda: of.histograms(good, good / np.float32(0))),
        ("rows: expected integers", TypeError, lambda: of.histograms(good, rows=good)),
        ("rows: expected numbers of 10 rows, got 10", IndexError, lambda: of.histograms(good, rows=[10])),
        ("rows: expected numbers of 10 rows, got -1", IndexError, lambda: of.histograms(good, rows=[-1, 3])),
        ("offsets: expected numbers that ascend", ValueError, lambda: of.histograms(good, offsets=[0, 11])),
        ("offsets: expected numbers that ascend", ValueError, lambda: of.histograms(good, offsets=[3, 2])),
        ("offsets: expected integers", ValueError, lambda: of.histograms(good, offsets=[])),
    ):  # fmt: skip
        with np.errstate(divide="ignore"), pytest.raises(error, match=f"^{match}"):
            make()


@pytest.mark.parametrize(
    ("estimator", "options"),
    [
        (HistGradientBoostingClassifier, {}),
        (HistGradientBoostingClassifier, {"early_stopping": True, "n_iter_no_change": 99}),
        (HistGradientBoostingRegressor, {}),
        (HistGradientBoostingRegressor, {"loss": "quantile", "quantile": 0.3}),
    ],
    ids=["classes", "two classes", "squares", "quantiles"],
)
def test_models_are_the_same_wherever_trees_grow(estimator, options, queue, rng, monkeypatch):
    x = rng.normal(size=(3000, FEATURES))
    x[::9, 1] = np.nan
    y = np.digitize(x[:, 0] + x[:, 2] * x[:, 3], [-1, 1, 2][: 1 if "early_stopping" in options else 3])
    weights = rng.integers(1, 9, 3000) / 7
    monkeypatch.setattr(estimators, "_queue_of", lambda name: queue)
    monkeypatch.setattr(estimators, "default_queue", lambda: queue)
    options = {"max_iter": 3, "random_state": 0, **options}
    host = estimator(**options).fit(x, y, weights)
    named = estimator(**options, device="any").fit(x, y, weights)
    monkeypatch.setattr(estimators, "FEWEST_BINS", 0)
    chosen = estimator(**options).fit(x, y, weights)
    for model in (named, chosen):
        for one, other in zip(host._predictors, model._predictors, strict=True):
            for mine, its in zip(one, other, strict=True):
                assert mine.nodes.tobytes() == its.nodes.tobytes()
    assert estimator(device="x").get_params()["device"] == "x"
    assert len(host._predictors) == options["max_iter"]


@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
@pytest.mark.parametrize("loss", [HalfSquaredError, HalfBinomialLoss])
def test_gradients_are_those_of_scikit_learn(loss, weighted, any_profile, queue, rng):
    predictions = np.r_[
        rng.normal(0, 9, 5000), -37, np.nextafter(-37, 0), 0, -0.0, 36.7, -744, 800, -800, rng.normal(88, 2, 40)
    ]
    targets = rng.integers(0, 2, len(predictions)).astype(np.float64)
    if loss is HalfSquaredError:
        targets[::9] = predictions[::9] + rng.choice([0, 1e-42, -1e-50, 2.0**-149, 1e300, 2.0**-24], len(targets[::9]))
    weights = rng.random(len(targets)) if weighted else None
    of = loss(weights)
    rows = DeviceRows(queue, np.zeros((len(targets), FEATURES), np.uint8), 256, not of.constant_hessian)
    if not rows.spec.doubles:
        assert not DeviceLoss.is_known(loss, rows, predictions)
        return
    assert DeviceLoss.is_known(loss, rows, predictions, weights)
    given = {"y_true": targets, "raw_prediction": predictions, "sample_weight": weights}
    expected = [np.empty(len(targets), np.float32) for _ in rows.inputs]
    with np.errstate(over="ignore"):
        of.gradient_hessian(
            **given, gradient_out=expected[0], **({} if of.constant_hessian else {"hessian_out": expected[1]})
        )
        device = DeviceLoss(rows, loss, of.gradient if of.constant_hessian else of.gradient_hessian, targets, weights)
        assert device.compute(predictions)
    for memory, values in zip(rows.inputs, expected, strict=True):
        found = rows.fetched(memory, rows.rows, np.uint32)
        np.testing.assert_array_equal(found, values.view(np.uint32))
    device = DeviceLoss(rows, loss, None, targets, weights)
    assert device.compute(np.full(len(targets), 100.0)) == (loss is HalfSquaredError)  # else too many are subnormal


@pytest.mark.parametrize("device", [None, "any"])
def test_gradients_that_are_not_finite(device, queue, monkeypatch):
    monkeypatch.setattr(estimators, "_queue_of", lambda name: queue)
    with pytest.raises(ValueError, match=r"^gradients: expected finite numbers, got inf"):
        HistGradientBoostingRegressor(device=device).fit(np.arange(40.0).reshape(-1, 1), np.repeat([1e39, -1e39], 20))


def test_device_by_name():
    with pytest.raises(clhist.NoDeviceError, match="no such device at all"):
        HistGradientBoostingRegressor(device="no such device at all").fit(np.zeros((9, 1)), np.zeros(9))


@pytest.mark.parametrize("error", [clhist.NoDeviceError("none"), MemoryError("no room")], ids=["none", "no room"])
def test_without_a_device(error, rng, monkeypatch):
    def refuse(*_):
        raise error

    monkeypatch.setattr(estimators, "FEWEST_BINS", 0)
    monkeypatch.setattr(estimators, "DeviceRows", refuse)
    x = rng.normal(size=(300, 2))
    found, expected = (
        of(max_iter=4).fit(x, x[:, 0]).predict(x)
        for of in (HistGradientBoostingRegressor, sklearn.ensemble.HistGradientBoostingRegressor)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    monkeypatch.setattr(estimators, "_queue_of", lambda name: None)
    with pytest.raises(type(error)):
        HistGradientBoostingRegressor(device="any").fit(x, x[:, 0])


class _Mixin: ...  # what users derive from beside an estimator


class _Derived(_Mixin, HistGradientBoostingRegressor):
    def __init__(self, *, more=1, max_iter=3, device=None):
        super().__init__(max_iter=max_iter, device=device)
        self.more = more


def test_classes_of_users(rng):
    x = rng.normal(size=(300, 2))
    model = sklearn.base.clone(_Derived(more=2)).fit(x, x[:, 0])
    assert (model.more, model.n_iter_, model.get_params()["device"]) == (2, 3, None)


def test_copies_while_a_fit_goes_on(queue, monkeypatch, rng):
    """Are plain: of scikit-learn's loss."""
    monkeypatch.setattr(estimators, "_queue_of", lambda name: queue)
    x, kinds = rng.normal(size=(300, 2)), []

    def score(model, *data):
        kinds.extend(map(type, (copy.deepcopy(model)._loss, pickle.loads(pickle.dumps(model._loss)))))
        return 0.0

    model = HistGradientBoostingRegressor(max_iter=3, early_stopping=True, scoring=score, device="any").fit(x, x[:, 0])
    assert set(kinds) == {HalfSquaredError}
    assert type(model._loss) is HalfSquaredError


@pytest.mark.parametrize("order", ["C", "F", "strided"])
@pytest.mark.parametrize(("rows", "features"), [(1, 1), (301, 8), (2001, 17)])
@pytest.mark.parametrize(("part_bytes", "dtype"), [(5000, "f8"), (1 << 30, "f8"), (5000, "f4")])
def test_bins_of_features(part_bytes, dtype, rows, features, order, any_profile, queue, rng):
    x = rng.choice([-np.inf, -1.0, -0.0, 5e-324, 0.5, 3.0, 254.0, np.inf, np.nan], (2 * rows, features))
    x[rng.random(x.shape) < 0.5] = rng.normal()
    x = x.astype(dtype)
    x = x[::2] if order == "strided" else np.asarray(x[:rows], order=order)
    thresholds = [
        np.unique(rng.choice([*rng.normal(size=300), 5e-324, 0.0, 1e300], n % 256)) for n in range(0, 51 * features, 51)
    ]
    is_categorical = np.arange(features) % 3 == 1
    for n in np.flatnonzero(is_categorical):
        thresholds[n] = np.arange(255.0)[: 1 + n * 40]
    expected = np.array([np.searchsorted(of, column) for of, column in zip(thresholds, x.T, strict=True)]).T
    expected[np.isnan(x) | (is_categorical & (x < 0))] = 255
    bins = bin_features(queue, x, thresholds, is_categorical, 255, part_bytes)
    np.testing.assert_array_equal(bins, expected)
    assert bins.dtype == np.uint8
    assert bins.flags.f_contiguous


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_fit_has_the_bins_of_scikit_learn(order, queue, rng, monkeypatch):
    x = np.asarray(rng.normal(size=(3001, 5)), order=order)
    x[::9, 1], x[:, 2], x[:, 3] = np.nan, rng.integers(0, 25, 3001), 1.0
    y, weights = x[:, 0] + x[:, 2], rng.integers(1, 4, 3001)
    calls = []
    monkeypatch.setattr(estimators, "bin_features", lambda *given: calls.append(bin_features(*given)) or calls[-1])
    options = {"max_iter": 3, "categorical_features": [2], "early_stopping": True, "random_state": 1, "max_bins": 30}
    theirs = sklearn.ensemble.HistGradientBoostingRegressor(**options).fit(x, y, weights)
    ours = HistGradientBoostingRegressor(**options, device=queue.device.name.strip()).fit(x, y, weights)
    assert len(calls) == 2  # of rows for training and for validation
    for one, other in zip(ours._bin_mapper.bin_thresholds_, theirs._bin_mapper.bin_thresholds_, strict=True):
        np.testing.assert_array_equal(one, other)
    assert "transform" not in vars(ours._bin_mapper)
    np.testing.assert_array_equal(ours._bin_mapper.transform(x), theirs._bin_mapper.transform(x))
    np.testing.assert_allclose(ours.predict(x), theirs.predict(x), rtol=1e-5)


@pytest.mark.parametrize("options", [{}, {"categorical_features": [1]}, {"early_stopping": True}])
def test_features_of_float32_are_not_converted_as_a_whole(options, queue, rng, monkeypatch):
    """Thresholds are of float64, of rows that are drawn where there are more than scikit-learn looks at."""
    x = rng.normal(size=(200_301, 2)).astype(np.float32)
    x[:, 1], x[::9, 0] = rng.integers(0, 25, len(x)), np.nan
    y, options = x[:, 1] * 2, {"max_iter": 3, "random_state": 1, "max_bins": 30, **options}
    dtypes = []
    bins_of = lambda *given: dtypes.append(given[1].dtype) or bin_features(*given)  # noqa: E731
    monkeypatch.setattr(estimators, "bin_features", bins_of)
    theirs = sklearn.ensemble.HistGradientBoostingRegressor(**options).fit(x, y)
    ours = HistGradientBoostingRegressor(**options, device=queue.device.name.strip()).fit(x, y)
    assert {*dtypes} == {np.dtype(np.float64 if "categorical_features" in options else np.float32)}
    for one, other in zip(ours._bin_mapper.bin_thresholds_, theirs._bin_mapper.bin_thresholds_, strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype
    assert "fit" not in vars(ours._bin_mapper)
    np.testing.assert_allclose(ours.predict(x[:999]), theirs.predict(x[:999]), rtol=1e-5)


@pytest.mark.parametrize("x", [np.zeros(9, np.float32), np.zeros((0, 2), np.float32), np.zeros((9, 0), np.float32)])
def test_wrong_features_of_float32_have_scikit_learns_error(x):
    messages = []
    for kind in (sklearn.ensemble.HistGradientBoostingRegressor, HistGradientBoostingRegressor):
        with pytest.raises(ValueError, match=r".") as error:
            kind(max_iter=3).fit(x, np.zeros(len(x)))
        messages.append(str(error.value).replace("HistGradientBoostingRegressor", ""))
    assert messages[0] == messages[1]


def test_a_median_is_below_a_limit(rng):
    for size in (1, 2, 5, 6):
        for values in rng.integers(0, 4, (200, size)).astype(float):
            for limit in (0.0, 0.5, 1.0, 1.5, 3.0, 9.0):
                assert estimators._median_is_below(values, limit) == (np.median(values) < limit)


def test_a_wrong_device_changes_nothing(rng):
    x = rng.normal(size=(300, 2))
    model = HistGradientBoostingRegressor(max_iter=3, warm_start=True).fit(x, x[:, 0])
    expected = model.predict(x)
    with pytest.raises(clhist.NoDeviceError):
        model.set_params(max_iter=6, device="no such device at all").fit(x, x[:, 0])
    np.testing.assert_array_equal(model.predict(x), expected)


def test_bins_are_copied(queue, rng):
    """Also where the first histograms with hessians come later; numbers of bins may be of NumPy."""
    binned = np.array([[0, 2], [1, 2], [1, 0]], np.uint8)
    of, gradients = BinnedFeatures(binned, binned.max() + 15, queue=queue), np.ones(3, np.float32)
    binned[:] = 200
    for more in ((), (gradients,)):
        counts = of.histograms(gradients, *more).counts
        np.testing.assert_array_equal(counts, np.pad([[1, 2, 0], [1, 0, 2]], ((0, 0), (0, 14))))
    assert not of.histograms(gradients, rows=[]).counts.any()
    counts = of.histograms(gradients, rows=np.array([2], ">i4")).counts
    np.testing.assert_array_equal(counts, np.pad([[0, 1, 0], [1, 0, 0]], ((0, 0), (0, 14))))


@pytest.mark.parametrize(("weight", "outlier"), [(1e10, 0.0), (1.0, 1e12)])
def test_gradients_that_a_unit_would_lose_are_left_to_scikit_learn(weight, outlier, rng):
    x = rng.normal(size=(600, 2))
    y, weights = np.sin(x[:, 0]), np.ones(600)
    weights[7], y[9] = weight, y[9] + outlier
    options = {"max_iter": 5, "max_leaf_nodes": 6}
    expected = sklearn.ensemble.HistGradientBoostingRegressor(**options).fit(x, y, sample_weight=weights).predict(x)
    with pytest.warns(UserWarning, match=r"^sample_weight, y: the largest gradient"):
        found = HistGradientBoostingRegressor(**options).fit(x, y, sample_weight=weights)
    np.testing.assert_array_equal(found.predict(x), expected)


def test_masked_features_are_missing_and_masked_targets_refused(rng):
    x, y = rng.normal(size=(600, 2)), rng.normal(size=600)
    mask = rng.random(x.shape) < 0.2
    masked, options = np.ma.array(x, mask=mask), {"max_iter": 3, "max_leaf_nodes": 6}
    found = HistGradientBoostingRegressor(**options).fit(masked, y)
    expected = HistGradientBoostingRegressor(**options).fit(np.where(mask, np.nan, x), y)
    np.testing.assert_array_equal(found.predict(masked), expected.predict(np.where(mask, np.nan, x)))
    with pytest.raises(ValueError, match=r"^y: expected an array without missing elements"):
        found.fit(x, np.ma.array(y, mask=mask[:, 0]))
