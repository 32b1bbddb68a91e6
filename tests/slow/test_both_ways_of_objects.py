"""Every option of fills, groups and labels: boost-histogram, NumPy and SciPy compute what kernels compute."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from both_ways import SIZES, Case, check, check_order, data_of, is_reproducible, params

import clhist
from clhist import ndimage

bh = pytest.importorskip("boost_histogram", reason="boost-histogram is not installed")
scipy_ndimage = pytest.importorskip("scipy.ndimage", reason="SciPy is not installed")

import clhist.hist  # noqa: E402


def histogram(storage="Double", **options):
    return bh.Histogram(bh.axis.Regular(3, 0, 1, **options), storage=getattr(bh.storage, storage)())


def filled(storage, *args, where=None, growth=False, hist=bh.Histogram, way="fill", options=None, **given):
    """Return a histogram that was filled by one of the ways of `clhist.hist`."""
    h = hist(bh.axis.Regular(3, 0, 1, growth=growth), storage=getattr(bh.storage, storage)())
    if way == "fill":
        return clhist.hist.fill(h, *args, **given)
    if way == "method":
        return h.fill(*args, **given)
    if way == "many":
        call = {name: given.pop(name) for name in ("weight", "sample") if name in given}
        clhist.hist.fill_many([(h, args, {**call, "where": where})], **given)
        return h
    call = {name: given.pop(name) for name in ("queue", "chunk_bytes", "reproducible") if name in given}
    return clhist.hist.Filler(h, **call).fill(*args, **given).result()


def fill(args, **options):
    """Do as `clhist.hist.fill` of a new histogram with positional arguments."""
    return filled(options.pop("storage", "Double"), *args, **options)


WEIGHTED = {"args": lambda d: (d.x,), "weight": lambda d: d.values, "storage": lambda d: "Weight"}


def case(exact=False, **given):
    """Return a case of `fill`, whose arguments are constants or functions of the data."""

    def arguments(d):
        return {name: value(d) if callable(value) and name != "hist" else value for name, value in given.items()}

    return Case(fill, arguments, exact)


FILLS = {
    "counts": case(exact=True, args=lambda d: (d.x,)),
    "threads": case(exact=True, args=lambda d: (d.x,), threads=2),
    "weights": case(**WEIGHTED),
    "weight": case(args=lambda d: (d.x,), weight=0.1, storage="Weight"),
    "integers": case(exact=True, args=lambda d: (d.x,), weight=lambda d: d.bytes, storage="Int64"),
    "fractions": case(exact=True, args=lambda d: (d.x,), weight=lambda d: d.values, storage="Int64"),
    "samples": case(args=lambda d: (d.x,), sample=lambda d: d.y, storage="Mean"),
    "weighted samples": case(args=lambda d: (d.x,), sample=lambda d: d.y, weight=lambda d: d.x, storage="WeightedMean"),
    "grows": case(args=lambda d: (3 * d.x,), growth=True, weight=lambda d: d.bytes),
    "reproducible counts": case(exact=True, args=lambda d: (3 * d.x,), growth=True, reproducible=True),
    "reproducible": case(exact=True, **WEIGHTED, reproducible=True),
    "reproducible samples": case(
        exact=True, args=lambda d: (d.x,), sample=lambda d: d.values, storage="Mean", reproducible=True
    ),
    "reproducible, grows": case(
        exact=True, args=lambda d: (d.x,), weight=lambda d: d.y, growth=True, reproducible=True
    ),
    "method": case(exact=True, **WEIGHTED, hist=clhist.hist.Histogram, way="method", reproducible=True),
    "Filler": case(exact=True, **WEIGHTED, way="Filler", reproducible=True, chunk_bytes=4096),
    "Filler, grows": case(exact=True, args=lambda d: (d.x,), way="Filler", growth=True, reproducible=True),
    "fill_many": case(exact=True, **WEIGHTED, way="many", reproducible=True),
    "fill_many, where": case(**WEIGHTED, way="many", where=lambda d: d.where),
}
EVERY = params(fill=FILLS)


@pytest.mark.parametrize("case", EVERY)
def test_fills_agree(case, monkeypatch, queue):
    check(case, SIZES, monkeypatch, queue)


@pytest.mark.parametrize("case", [param for param in EVERY if is_reproducible(param.values[0])])
@pytest.mark.parametrize("any_profile", ["own profile", "as a GPU"], indirect=True)
def test_reproducible_fills_do_not_depend_on_the_order(case, any_profile, monkeypatch):
    """Nor on the pieces in which a `Filler` sends arrays to a GPU."""
    check_order(case, 5000, monkeypatch)


def test_options_of_fill_are_all_there():
    named = {"h": "made by the case", "threads": "", "named": ""}
    given = {name for param in EVERY for name in param.values[0].arguments(data_of(10))}
    assert set(inspect.signature(clhist.hist.fill).parameters) - given - set(named) == {"queue"}
    assert set(inspect.signature(clhist.hist.Filler).parameters) - given - set(named) == {"queue"}
    assert set(inspect.signature(clhist.hist.fill_many).parameters) - given == {"queue", "fills"}


def test_what_is_wrong_comes_before_what_only_kernels_have():
    h = histogram("Weight", growth=True)
    with pytest.raises(ValueError, match="spans must have compatible lengths"):
        clhist.hist.fill(h, np.zeros(3), weight=np.zeros(2), reproducible=True)
    with pytest.raises(TypeError, match=r"^reproducible: expected none for axes, weights or samples that only boost-"):
        clhist.hist.fill(h, np.zeros(3), weight=np.zeros(3), reproducible=True)
    assert h.axes[0].size == 3
    assert not h.values().any()


def agg(keys, **options):
    return clhist.group_by(keys, 5).agg(**options)


GROUPS = {
    "sums": Case(agg, lambda d: {"keys": d.bins, "x": (d.values, "sum", "mean", "std"), "ddof": 0}),
    "exact": Case(
        agg,
        lambda d: {
            **{"keys": d.bins, "x": (d.values, "min", "max", "median", "argmax"), "y": (d.bytes, "sum", "median")},
            **{"skipna": False},
        },
        exact=True,
    ),
    "reproducible": Case(
        agg,
        lambda d: {"keys": d.bins, "x": (d.values, "sum", "mean", "var"), "dtype": "f8", "reproducible": True},
        exact=True,
    ),
}


@pytest.mark.parametrize("case", params(group_by=GROUPS))
def test_groups_go_one_way(case, monkeypatch):
    """Of few elements as of many: there is no other way."""
    check(case, SIZES[1:], monkeypatch, None)
    if is_reproducible(case):
        check_order(case, 5000, monkeypatch)
    data = data_of(10)
    found = case(data)
    for name, statistic in (("x", "sum"), ("x", "mean"), ("x", "max")):
        if statistic in found.get(name, ()):
            for k in set(data.bins.tolist()):
                expected = getattr(np, statistic)(data.values[data.bins == k])
                np.testing.assert_allclose(found[name][statistic][k], expected, rtol=1e-6)


def test_options_of_agg_are_all_there():
    given = {"self", *(name for each in GROUPS.values() for name in each.arguments(data_of(10)))}
    options = inspect.signature(clhist.group_by([0]).agg).parameters
    assert {name for name in options if name != "columns"} <= given


def numbers_in(found):
    """Return all numbers of a nested result."""
    if isinstance(found, list | tuple) or (isinstance(found, np.ndarray) and found.dtype.kind == "O"):
        return [number for each in found for number in numbers_in(each)]
    return np.asarray(found, float).ravel().tolist()


@pytest.mark.parametrize("size", SIZES[1:])
@pytest.mark.parametrize(
    "name",
    [
        *("sum_labels", "mean", "variance", "standard_deviation", "minimum", "maximum", "median", "extrema"),
        *("histogram", "minimum_position", "maximum_position", "center_of_mass"),
    ],
)
def test_labels_go_one_way(name, size):
    """Of few elements as of many: as SciPy's."""
    d = data_of(size)
    more = (0, 1, 4) if name == "histogram" else ()
    present = np.unique(d.bins)
    for labels, index in ((None, None), (d.bins + 1, None), (d.bins, present)):
        found = getattr(ndimage, name)(d.x, *more, labels, index)
        expected = getattr(scipy_ndimage, name)(d.x, *more, labels, index)
        np.testing.assert_allclose(numbers_in(found), numbers_in(expected), rtol=1e-9, atol=1e-12)
