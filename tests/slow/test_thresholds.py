"""Histograms, digits and running values of sizes around the thresholds: the host and the device agree."""

from __future__ import annotations

import numpy as np
import pytest
from both_ways import assert_same, plain, ways
from histograms import outcome

import clhist
from clhist._core.runtime import small

SIZES = (2_500, 6_007, 10_240, 66_001)
DTYPES = ("u1", "i2", "i4", "u8", "i8", "f2", "f4", "f8", ">f4", "?")


def values(dtype, size, rng):
    """Return numbers of which some are edges, and some outside of them; floats with both zeros and infinities."""
    if dtype == "?":
        return rng.integers(0, 2, size).astype(bool)
    if np.dtype(dtype).kind in "iu":
        return rng.integers(0, 100, size).astype(dtype)
    x = rng.normal(5, 3, size)
    x[:40] = np.resize([0.0, -0.0, 1.0, 2.5, 9.0, 10.0, -1.0, 12.0], 40)
    return x.astype(dtype)


FORMS = {
    "number": {"bins": 37},
    "range": {"bins": 10, "range": (0.0, 10.0)},
    "narrow range": {"bins": 7, "range": (1.0, 2.5)},
    "edges": {"bins": np.array([0.0, 1.0, 2.5, 9.0, 10.0])},
    "density": {"bins": [0.0, 1.0, 4.0, 12.0], "density": True},
    "empty edges": {"bins": [3.0, 3.0]},
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.filterwarnings("ignore:Converting input from bool:RuntimeWarning")
def test_histograms(dtype, form, rng, monkeypatch):
    for size in SIZES:
        x = values(dtype, size, rng)
        weights = {"none": None, "f8": rng.random(size), "f4": rng.random(size).astype("f4"), "i4": np.arange(size)}
        for w in weights.values():
            by_host, by_device = (
                plain(outcome(clhist.histogram, x, weights=w, **FORMS[form])) for _ in ways(monkeypatch)
            )
            assert_same(by_host, by_device, exact=w is None and "density" not in FORMS[form])


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_histograms_of_special_numbers(special, form, rng, monkeypatch):
    for dtype in ("f4", "f8"):
        x = values(dtype, 6_011, rng)  # no size of another test, whose call on the device would be repeated
        x[77] = special
        by_host, by_device = (plain(outcome(clhist.histogram, x, **FORMS[form])) for _ in ways(monkeypatch))
        assert_same(by_host, by_device, exact=True)


EDGES = {
    "floats": [0.0, 1.0, 2.5, 9.0, 10.0],
    "falling": np.array([10.0, 9.0, 2.5, 1.0, 0.0]),
    "equal": [1, 1, 2, 2, 9],
    "infinite": np.array([-np.inf, 0.0, np.inf]),
    "many": np.linspace(0, 10, 1001),
    "one": [5],
    "none": [],
    "float32": np.array([0.1, 0.2, 5.3], np.float32),
    "NaN": [0.0, 1.0, np.nan],
    "unordered": [2.0, 0.0, 1.0],
    "a number": 3.0,
    "two dimensions": [[0.0, 1.0]],
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("edges", EDGES)
@pytest.mark.parametrize("right", [False, True])
def test_digits(dtype, edges, right, rng, monkeypatch):
    for size in SIZES:
        x = values(dtype, size, rng)
        if x.dtype.kind == "f":
            x[50:53] = np.nan, np.inf, -np.inf
        by_host, by_device = (plain(outcome(clhist.digitize, x, EDGES[edges], right)) for _ in ways(monkeypatch))
        assert_same(by_host, by_device, exact=True)


@pytest.mark.parametrize("dtype", ["i1", "i8", "f4", "f8", "?", "m8[s]"])
@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummin", "cummax", "rank"])
def test_rows_on_a_device_of_groups_on_the_host(dtype, name, rng, monkeypatch):
    for size in SIZES[:2]:
        keys, x = rng.integers(-1, 9, size), rng.integers(0, 3, size).astype(dtype)
        if x.dtype.kind == "f":
            x[::97] = np.nan
        results = []
        for calls in (), ("running", "rank"):
            monkeypatch.setattr(small, "pays_off", lambda call, size, bins=0, calls=calls: call in calls)
            results.append(plain(outcome(getattr(clhist.group_by(keys, 9), name), x)))
        assert_same(*results, exact=x.dtype.kind != "f")
