"""Statistics of groups on the host and on the device: the same results, for keys and values of all kinds."""

# ruff: noqa: B023  # calls are made before a loop goes on
from __future__ import annotations

import numpy as np
import pandas
import pytest
from both_ways import assert_same, plain, ways
from covering import covering, mostly_slow
from histograms import outcome
from pyopencl.array import to_device

import clhist
from clhist._core.runtime import small
from clhist.statistics.table import STATISTICS, TABLE

pytestmark = pytest.mark.usefixtures("without_optimizer")

RNG = np.random.default_rng(11)
SIZE = 300
KEYS = RNG.integers(-2, 9, SIZE)
KEYS[KEYS == 7] = 6
GROUPS = 8  # the last but one is empty; -2, -1 and 8 are in none
INTEGERS = RNG.integers(-9, 9, SIZE)


def floats(dtype="f8"):
    """Return values of which some are equal, and NaN, infinities and zeros of both signs."""
    x = np.round(RNG.normal(size=SIZE), 1).astype(dtype)
    x[::17], x[5::31], x[7::61], x[8::67] = np.nan, -0.0, np.inf, -np.inf
    x[KEYS == 3] = np.nan
    return x


VALUES = {
    "f8": floats(),
    "f4": floats("f4"),
    "f2": floats("f2"),
    "finite": np.round(RNG.normal(size=SIZE), 2) + 1e6,
    "i1": INTEGERS.astype("i1"),
    "u8": INTEGERS.astype("u8"),
    "i8": RNG.integers(-(2**62), 2**62, SIZE),
    "bool": INTEGERS > 0,
    "c8": np.array(floats("f4"), "c8"),
    "dates": np.where(INTEGERS > 6, np.datetime64("NaT", "s"), np.datetime64("2020-02-03", "s") + INTEGERS * 40_000),
    "durations": (INTEGERS * 777).astype("m8[ms]"),
    "masked": np.ma.array(floats("f4"), mask=INTEGERS > 5),
    "nullable": pandas.array(np.ma.array(INTEGERS, mask=INTEGERS > 5).tolist(), dtype="Int16"),
    "texts": np.array([f"t{n}" for n in INTEGERS], object),
    "strided": np.repeat(floats(), 2)[::2],
    "swapped": floats().astype(">f8"),
}


def compare(monkeypatch, call):
    """Check that a call gives the same both ways; return it."""
    on_host, on_device = (_plain(outcome(call)) for _ in ways(monkeypatch))
    assert_same(on_host, on_device, exact=False)
    return on_host


def _plain(found):
    found = plain(found)
    if isinstance(found, dict):
        return {name: _plain(each) for name, each in found.items()}
    if isinstance(found, np.ma.MaskedArray):
        return [np.ma.getmaskarray(found), found.filled(found.dtype.type(0))]
    if isinstance(found, np.ndarray) and found.dtype.kind in "mM":
        return found.view(np.int64)
    if isinstance(found, np.generic):
        return np.array(found)
    if hasattr(found, "isna") or (isinstance(found, np.ndarray) and found.dtype.kind == "O"):
        return [str(each) for each in found]
    return found


def statistics_for(name):
    kind = VALUES[name].dtype.kind
    if name == "texts":
        return ("count", "first", "last", "mode", "min", "max", "argmin", "argmax", "size", "nunique")
    return tuple(each for each in STATISTICS if kind in TABLE[each].kinds)


# Types whose programs are like those of int64.
MORE = "u8", "durations"


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in MORE)) for name in VALUES])
def test_statistics(name, monkeypatch):
    x, names = VALUES[name], statistics_for(name)
    several = names if VALUES[name].dtype.kind in "cO" else (*names, "q90", "q25")
    compare(monkeypatch, lambda: clhist.group_by(KEYS, GROUPS).agg(x=(x, *several)))
    if VALUES[name].dtype.kind not in "mMO":
        compare(monkeypatch, lambda: clhist.group_by(KEYS, GROUPS).agg(x=(x, *names), skipna=False, ddof=1))
    if name in ("f4", "i8"):
        sums = tuple(each for each in names if TABLE[each].dtype.__name__ in ("_result", "_total"))
        compare(monkeypatch, lambda: clhist.group_by(KEYS, GROUPS).agg(x=(x, *sums), dtype="f4"))


@pytest.mark.parametrize("dtype", ["f8", "i4", "i8", "c16"])
def test_narrow_results_round_once(dtype, monkeypatch, queue):
    """With `dtype=` of results that cannot hold the values, which cancel or are many factors near 1."""
    keys = np.arange(100, dtype="i4") % 2
    large, ones = np.array([2**26 + 1, -(2**26)] * 25), np.arange(25) + 1
    x = np.empty(100, dtype)
    x[::2], x[1::2] = large, np.tile(ones, 2) if dtype[0] == "i" else 1 + np.tile(ones, 2) * 2.0**-30
    narrow = np.dtype("c8" if dtype[0] == "c" else "f4")
    names = ("sum", "mean", "count") if dtype[0] == "c" else ("sum", "mean", "prod", "count")
    wide = x.astype(np.promote_types(x.dtype, "f8"))
    for on_device in (False, True):
        monkeypatch.setattr(small, "pays_off", lambda *_: on_device)
        for values in (x, to_device(queue, x)) if on_device else (x,):
            groups = clhist.group_by(keys if values is x else to_device(queue, keys), 2)
            found = groups.agg(x=(values, *names), dtype=narrow)["x"]
            for group in range(2):
                own = wide[keys == group]
                with np.errstate(all="ignore"):
                    expected = {"sum": own.sum(), "mean": own.sum() / 50, "prod": own.prod(), "count": 50}
                for name in names:
                    result = found[name] if values is x else found[name].get()
                    assert result.dtype == (np.int64 if name == "count" else narrow)
                    with np.errstate(all="ignore"):
                        rounded = result.dtype.type(expected[name])
                    np.testing.assert_allclose(result[group], rounded, rtol=1.2e-7)
            weights = 1 + np.arange(100) % 4 / 2**30  # which float32 cannot hold either
            found = groups.weighted_mean(values, weights if values is x else to_device(queue, weights), dtype=narrow)
            expected = [np.average(wide[keys == group], weights=weights[keys == group]) for group in range(2)]
            found = found if values is x else found.get()
            np.testing.assert_allclose(found, np.array(expected, narrow), rtol=1e-6)


@pytest.mark.parametrize("size", [0, 1, 2])
def test_of_few_elements(size, monkeypatch):
    for name in ("f8", "i8", "dates"):
        x = VALUES[name][:size]
        compare(monkeypatch, lambda: clhist.group_by(KEYS[3 : 3 + size], GROUPS).agg(x=(x, *statistics_for(name))))
        for method in ("cumsum", "cummax", "rank"):
            compare(monkeypatch, lambda: getattr(clhist.group_by(KEYS[3 : 3 + size], GROUPS), method)(x))
    compare(monkeypatch, lambda: clhist.group_by(KEYS[:size]).size())


RANKED = ["f8", "i1", "u8", "bool", "masked"]  # whose ranks test_rows_of_groups.py compares with pandas, all of them
METHODS, ORDERS = ["average", "min", "max", "first", "dense"], [{}, {"ascending": False, "pct": True}]
# A program for each.
RANKS = covering([*RANKED, "dates", "nullable"], METHODS, ORDERS)


@pytest.mark.parametrize("name", mostly_slow(["f8", "u8", "i1", "bool", "masked", "nullable", "dates"], 2))
def test_running_and_ranks(name, monkeypatch):
    x = VALUES[name]
    for method in ("cumsum", "cumprod", "cummin", "cummax"):
        compare(monkeypatch, lambda: getattr(clhist.group_by(KEYS, GROUPS), method)(x))
        if name in ("f8", "masked"):
            compare(monkeypatch, lambda: getattr(clhist.group_by(KEYS, GROUPS), method)(x, skipna=False))
            many = np.arange(SIZE) // 3
            compare(monkeypatch, lambda: getattr(clhist.group_by(many, SIZE), method)(x))
    for _, method, options in [row for row in RANKS if row[0] == name]:
        compare(monkeypatch, lambda: clhist.group_by(KEYS, GROUPS).rank(x, method, **options))
    for n in (0, 2, -1, 10**6):
        compare(monkeypatch, lambda: clhist.group_by(KEYS, GROUPS).nth(x, n))
    for statistic in ("mean", "first", "count"):
        compare(monkeypatch, lambda: clhist.group_by(KEYS, GROUPS).transform(x, statistic))


def test_other_methods(monkeypatch):
    x, w = VALUES["f8"], np.abs(VALUES["finite"])
    compare(monkeypatch, lambda: clhist.group_by(KEYS, GROUPS).size())
    for options in ({}, {"skipna": False}, {"dtype": "f4"}):
        compare(monkeypatch, lambda: clhist.group_by(KEYS, GROUPS).weighted_mean(x, w, **options))
        compare(monkeypatch, lambda: clhist.group_by(KEYS, GROUPS).quantile(x, [0.1, 1], **options))
    compare(monkeypatch, lambda: clhist.group_by(KEYS, GROUPS).quantile(x, 0.3, weights=w))
    compare(monkeypatch, lambda: clhist.group_by(KEYS, GROUPS).quantile(VALUES["dates"], [0.3, 0.5]))
    for ascending in (True, False):
        compare(monkeypatch, lambda: clhist.group_by(KEYS, GROUPS).cumcount(ascending=ascending))
    finite = VALUES["finite"]
    sums = compare(monkeypatch, lambda: clhist.group_by(KEYS, GROUPS).agg(x=(finite, "sum", "mean"), reproducible=True))
    expected = pandas.Series(finite[KEYS == 2]).sum()
    np.testing.assert_allclose(sums["x"]["sum"][2], expected, rtol=1e-14)


OF_KEYS = {
    "integers": KEYS * 1000,
    "close": KEYS.astype("i1"),
    "far": KEYS * 2**50,
    "uint64": (KEYS + 2).astype("u8") + np.uint64(2**63),
    "booleans": KEYS > 3,
    "floats": VALUES["f8"],
    "dates": VALUES["dates"],
    "swapped": KEYS.astype(">i4"),
    "texts": np.array([f"t{n}" for n in KEYS]),
    "objects": np.array([None if n < 0 else f"t{n}" for n in KEYS], object),
    "masked": np.ma.array(KEYS, mask=KEYS > 6),
    "nullable": pandas.array(np.ma.array(KEYS, mask=KEYS > 6).tolist(), dtype="Int32"),
    "categories": pandas.Categorical([f"t{n}" for n in KEYS]),
    "list": KEYS.tolist(),
    "two": [KEYS, VALUES["f8"]],
    "three": [KEYS > 2, np.array([f"t{n}" for n in INTEGERS]), KEYS * 2**40],
    "frame": pandas.DataFrame({"a": KEYS, "b": INTEGERS > 0}),
    "image": KEYS.reshape(20, 15),
}


@pytest.mark.parametrize("name", OF_KEYS)
def test_keys(name, monkeypatch):
    keys = OF_KEYS[name]
    x = VALUES["finite"].reshape(np.shape(keys)) if name == "image" else VALUES["finite"]
    for sort in (True, False):

        def call(sort=sort):
            groups = clhist.group_by(keys, sort=sort)
            labels = groups.keys if isinstance(groups.keys, tuple) else (groups.keys,)
            shown = [[str(each) for each in label] for label in labels]
            return {
                "keys": np.array(shown),
                **groups.agg(x=(x, "sum", "argmax"))["x"],
                "rows": groups.transform(x, "min"),
            }

        compare(monkeypatch, call)


def test_errors(monkeypatch):
    x = VALUES["f8"]
    calls = (
        lambda groups: groups.mean(x[:-1]),
        lambda groups: groups.sum(VALUES["texts"]),
        lambda groups: groups.median(VALUES["c8"]),
        lambda groups: groups.agg(x=(x, "nope")),
        lambda groups: groups.agg(x=(x, "mean"), dtype="i4"),
        lambda groups: groups.var(x, ddof=-1),
        lambda groups: groups.rank(x, "nope"),
        lambda groups: groups.nth(x, 1.5),
        lambda groups: groups.quantile(x, 2),
        lambda groups: groups.quantile(x, 0.5, weights=-np.abs(x)),
        lambda groups: groups.agg(x=(x, "prod"), reproducible=True),
        lambda groups: clhist.group_by(KEYS, -1),
        lambda groups: clhist.group_by([KEYS, KEYS[1:]]),
    )
    for call in calls:
        kind, *_ = compare(monkeypatch, lambda: call(clhist.group_by(KEYS, GROUPS)))
        assert issubclass(kind, Exception)


def test_few_elements_need_no_device(monkeypatch):
    monkeypatch.setattr("clhist._core.runtime.small.pays_off", lambda call, size, bins=0: False)
    monkeypatch.setattr("clhist._core.opencl.device.default_queue", lambda: pytest.fail("a device is looked for"))
    groups = clhist.group_by([KEYS, KEYS > 2])
    groups.agg(x=(VALUES["f8"], *(each for each in STATISTICS)))
    groups.transform(VALUES["nullable"], "sum")
    assert repr(groups).endswith("on the host>")


REGIONS = ["sum_labels", "mean", "variance", "standard_deviation", "minimum", "maximum"]
WANTED = np.array([1, 9, 3, 200, 3])
WANTED_REGIONS = covering(
    REGIONS,
    ["f8", "f4", "i8", "u8", "i1", "bool"],
    [WANTED, WANTED.tolist(), 4, None, WANTED.reshape(1, 5), WANTED[:0], WANTED[[0, 2]], np.array([-1, 3])],
)


@pytest.mark.parametrize("function", REGIONS)
def test_regions(function, monkeypatch):
    """SciPy computes few plain numbers in several regions, groups all else."""
    import scipy.ndimage  # noqa: F401  # only what is imported is used

    labels = KEYS.reshape(20, 15) + 2
    for _, name, wanted in [row for row in WANTED_REGIONS if row[0] == function]:
        image = VALUES[name].reshape(20, 15)
        compare(monkeypatch, lambda: getattr(clhist.ndimage, function)(image, labels, wanted))


@pytest.mark.parametrize("dtype", ["f4", "f8", "i1", "u8", "i8"])
@pytest.mark.parametrize("number", [3, 60, 300, 1900])
@pytest.mark.parametrize("size", [300, 2047, 2048, 4000])
def test_medians_and_modes_however_groups_are_sorted(size, number, dtype):
    """As rows of a table, each group alone, or all by one sort; the greatest values are among them."""
    rng = np.random.default_rng(size)
    keys, values = rng.integers(-1, number, size), rng.integers(0, 50, size).astype(dtype)
    if values.dtype.kind == "f":
        values[rng.random(size) < 0.2] = np.nan
        values[rng.random(size) < 0.1] = np.inf
    else:
        values[rng.random(size) < 0.3] = np.iinfo(dtype).max
    groups = clhist.group_by(keys, num_groups=number)
    order = np.argsort(keys, kind="stable")
    own = np.split(values[order], np.searchsorted(keys[order], np.arange(number + 1)))[1:-1]
    has_nan = [bool((some != some).any()) for some in own]
    own = [some[some == some] for some in own]
    middle = [
        np.sort(some.astype("f8" if dtype in "f4f8" else "O"))[[(len(some) - 1) // 2, len(some) // 2]]
        for some in own
        if len(some)
    ]
    expected = np.full(number, np.nan)
    expected[[len(some) > 0 for some in own]] = [
        low if low == high else (float(low) + float(high)) / 2 for low, high in middle
    ]
    np.testing.assert_allclose(groups.median(values), expected, rtol=1e-15)
    modes = groups.mode(values)
    for mode, some in zip(modes, own, strict=True):
        if len(some):
            different, counts = np.unique(some, return_counts=True)
            assert mode == different[counts.argmax()]
    np.testing.assert_allclose(groups.median(values, skipna=False), np.where(has_nan, np.nan, expected), rtol=1e-15)
