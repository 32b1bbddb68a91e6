"""Quantiles of groups by NumPy's methods, as methods and as names in tables, on the host and on the device."""

from __future__ import annotations

import numpy as np
import pandas
import pytest
from both_ways import ways

import clhist
from clhist.statistics import selection
from clhist.statistics.table import quantile_of

pytestmark = pytest.mark.usefixtures("without_optimizer")

METHODS = ("linear", "lower", "higher", "nearest", "midpoint")
PROBABILITIES = (0, 0.1, 0.25, 0.5, 1 / 3, 1)
RNG = np.random.default_rng(5)
KEYS = RNG.integers(0, 9, 200)
KEYS[KEYS == 4] = 3


def expected(x, method):
    """Return NumPy's quantiles of each group, by probability; NaN of the group without values."""
    return [
        [np.quantile(x[g == KEYS], q, method=method) if g != 4 else np.nan for g in range(9)] for q in PROBABILITIES
    ]


def test_as_numpy_has_them(monkeypatch):
    x = np.round(RNG.normal(size=200) * 100)
    for _ in ways(monkeypatch):
        groups = clhist.group_by(KEYS, 9)
        for method in METHODS:
            found = groups.quantile(x, PROBABILITIES, method=method)
            np.testing.assert_allclose(found, expected(x, method), rtol=1e-14)
            names = [clhist.quantile(q, method) for q in PROBABILITIES]
            table = groups.agg(x=(x, "count", *names))["x"]
            np.testing.assert_array_equal([table[name] for name in names], found)


@pytest.mark.parametrize("num_groups", [1, 9, 7000])
@pytest.mark.parametrize("dtype", ["f8", "i4", "M8[ns]"])
def test_with_the_digits_of_gpus(num_groups, dtype, monkeypatch, queue):
    """Digits of a result are chosen from blocks of counts; the widths of digits depend on the number of groups."""
    keys = RNG.integers(-1, num_groups + 1, 4000)
    x = np.round(RNG.normal(size=keys.size) * 99).astype("i8" if dtype[0] == "M" else dtype).view(dtype)
    if dtype[0] in "fM":
        x[::7] = "NaT" if dtype[0] == "M" else np.nan
    monkeypatch.setattr(selection, "device_kind", lambda device: "gpu")
    groups = clhist.group_by(keys, num_groups, queue=queue)
    found, tenth = groups.median(x), groups.quantile(x, 0.1, method="higher")
    weights = RNG.integers(0, 5, keys.size)
    by_weight = found if dtype[0] == "M" else groups.quantile(x, 0.4, weights=weights)
    present = x == x if dtype[0] in "fM" else np.ones(x.size, bool)
    for g in {0, num_groups // 2, num_groups - 1, *keys[keys < num_groups][1:9]} - {-1}:
        values = np.sort(x[present & (keys == g)])
        if not values.size:
            assert found[g] != found[g]
            continue
        of_group = present & (keys == g)
        if dtype[0] != "M" and weights[of_group].any():
            options = {"weights": weights[of_group], "method": "inverted_cdf"}
            assert by_weight[g] == np.quantile(x[of_group], 0.4, **options)
        assert tenth[g] == values[int(np.ceil(0.1 * (values.size - 1)))]
        middle = values[(values.size - 1) // 2 : values.size // 2 + 1].astype("i8" if dtype[0] == "M" else "f8")
        assert found[g] == (np.array(int(middle.mean()), dtype) if dtype[0] == "M" else middle.mean())


def test_dates_are_exact(monkeypatch):
    ticks = RNG.integers(-(2**62), 2**62, 200)
    for _ in ways(monkeypatch):
        groups = clhist.group_by(KEYS, 9)
        for method in ("higher", "midpoint"):
            found = groups.quantile(ticks.view("M8[ns]"), 0.3, method=method).view("i8")
            for g in (0, 3, 8):
                ordered = np.sort(ticks[g == KEYS])
                place = 0.3 * (len(ordered) - 1)
                low, high = (int(ordered[int(each)]) for each in (np.floor(place), np.ceil(place)))
                sum_of_both = low + high
                middle = -(-sum_of_both // 2) if sum_of_both < 0 else sum_of_both // 2
                assert found[g] == {"higher": high, "midpoint": middle}[method]


def test_infinite_neighbours(monkeypatch):
    for _ in ways(monkeypatch):
        groups = clhist.group_by(np.zeros(3, int))
        x = np.array([-np.inf, 2.0, np.inf])
        assert groups.quantile(x, [0.2, 0.9], method="higher").tolist() == [[2], [np.inf]]
        assert groups.quantile(x, [0.2, 0.9], method="lower").tolist() == [[-np.inf], [2]]


def test_missing_values_and_tables():
    x = pandas.array(np.where(KEYS == 3, None, np.arange(200)), dtype="Int64")
    frame = pandas.DataFrame({"k": KEYS, "x": x})
    found = clhist.group_by(frame, "k").agg(low=("x", clhist.quantile(0.9, "lower")), x=("x", "q50", "q25_midpoint"))
    assert found.columns.tolist() == ["low", "x_q50", "x_q25_midpoint"]
    assert found.loc[3].isna().all()
    for name, q, method in (("low", 0.9, "lower"), ("x_q50", 0.5, "linear"), ("x_q25_midpoint", 0.25, "midpoint")):
        by_pandas = frame.groupby("k")["x"].quantile(q, interpolation=method)
        pandas.testing.assert_series_equal(found[name], by_pandas, check_names=False, check_dtype=False)


@pytest.mark.parametrize("q", [0, -0.0, 1, 0.07, 0.29, 0.57, 0.999, 1 / 3, 1e-9, np.float32(0.1)])
def test_names_keep_probabilities(q):
    assert quantile_of(clhist.quantile(q)) == (float(q), "linear")
    assert quantile_of(clhist.quantile(q, "nearest")) == (float(q), "nearest")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: clhist.quantile(1.5), ValueError, r"^q: expected a number from 0 to 1, got 1\.5$"),
        (lambda: clhist.quantile("0.5"), TypeError, "^q: expected a number from 0 to 1"),
        (
            lambda: clhist.quantile(0.5, "lowr"),
            ValueError,
            "^method: expected one of linear, lower, .*; write 'lower'$",
        ),
        (lambda: groups().quantile(KEYS, 0.5, method="hazen"), ValueError, "^method: expected one of linear, lower"),
        (lambda: groups().quantile(KEYS, 0.5, method="lower", weights=KEYS), TypeError, "^method: .* with weights"),
        (lambda: groups().agg(x=(KEYS, "q50_hazen")), ValueError, "^x: expected statistics among"),
        (lambda: groups().agg(x=(KEYS, "q101")), ValueError, "^x: expected statistics among"),
    ],
)
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()


def groups():
    return clhist.group_by(KEYS, 9)
