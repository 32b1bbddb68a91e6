"""Sums of many equal float64 values on a CPU, beside exact sums."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import clhist

SIZE = 2**22
VALUE = 0.1


def errors(sums, counts):
    """Return the largest error of sums of equal values in units in the last place."""
    exact = [Fraction(VALUE) * int(count) for count in counts]
    units = [
        abs(Fraction(float(one)) - two) / Fraction(float(np.spacing(float(two))))
        for one, two in zip(sums, exact, strict=True)
    ]
    return max(map(float, units))


@pytest.mark.parametrize("bins", [1, 10, 700])
def test_sums_and_means(bins, queue):
    if clhist.device_profile(queue.device).kind != "cpu":
        pytest.skip("copies of GPUs have few terms")
    keys = np.random.default_rng(bins).integers(0, bins, SIZE).astype(np.int32)
    counts, values = np.bincount(keys, minlength=bins), np.full(SIZE, VALUE)
    groups = clhist.group_by(keys, bins)
    sums = {
        "bincount": clhist.bincount(keys, values, minlength=bins),
        "reduce_by_index": clhist.reduce_by_index(bins, "sum", keys, values),
        "group_by": groups.sum(values),
    }
    if bins > 1:  # those of one bin have 64 terms
        sums["histogram"] = clhist.histogram(keys + 0.5, bins, (0, bins), weights=values)[0]
    for name, result in sums.items():
        assert errors(result, counts) <= 4, name
    for mean in (groups.mean(values), clhist.reduce_by_index(bins, "mean", keys, values)):
        np.testing.assert_allclose(mean, VALUE, rtol=4 * 2**-52)


@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan])
def test_infinities(special):
    size = 100_000
    values, keys = np.full(size, VALUE), np.arange(size) % 3
    values[size // 2] = special
    found = clhist.bincount(keys, values)
    wrong = keys[size // 2]
    np.testing.assert_equal(found[wrong], special)
    np.testing.assert_allclose(np.delete(found, wrong), np.delete(np.bincount(keys, values), wrong), rtol=1e-12)
    values[size // 2 + 3] = -special
    assert np.isnan(clhist.bincount(keys, values)[wrong])


def test_several_outputs_and_complex_values():
    size, bins = 300_000, 5
    rng = np.random.default_rng(1)
    keys, x = rng.integers(0, bins, size), rng.random(size)
    z = x + 1j * rng.normal(size=size)
    table = clhist.group_by(keys, bins).agg(x=(x, "sum", "mean", "std", "min"), z=(z, "sum", "mean"))
    np.testing.assert_allclose(table["x"]["sum"], np.bincount(keys, x), rtol=1e-12)
    np.testing.assert_allclose(table["x"]["mean"], np.bincount(keys, x) / np.bincount(keys), rtol=1e-12)
    np.testing.assert_allclose(table["z"]["sum"].imag, np.bincount(keys, z.imag), atol=1e-9)
    np.testing.assert_allclose(table["z"]["sum"].real, np.bincount(keys, z.real), rtol=1e-12)
    np.testing.assert_allclose(table["x"]["std"], [x[keys == k].std() for k in range(bins)], rtol=1e-10)


def test_dest_and_few_elements():
    dest = np.array([1.0, 2.0])
    for size in (0, 1, 7, 300, 5_000, 200_000):
        keys = np.arange(size) % 2
        found = clhist.reduce_by_index(dest, "sum", keys, np.full(size, 0.5), queue=clhist.default_queue())
        assert found.tolist() == (dest + np.bincount(keys, minlength=2) / 2).tolist()
