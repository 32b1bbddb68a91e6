"""Sums of many equal float64 values on a CPU, beside exact sums."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import clhist

pytestmark = pytest.mark.usefixtures("with_optimizer")

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


def means_of(x, keys, bins, queue, reproducible):
    """Return means of groups by each function of groups or bins, on the host and on a device."""
    sample, options = keys + 0.5, {"bins": bins, "range": (0, bins), "reproducible": reproducible}
    means = {"device": clhist.group_by(keys, bins, queue=queue).mean(x, reproducible=reproducible)}
    means["host"] = clhist.group_by(keys, bins).mean(x, reproducible=reproducible)
    for name, where in {"binned": None, "binned, device": queue}.items():
        means[name] = clhist.stats.binned_statistic(sample, x, "mean", queue=where, **options).statistic
    if not reproducible:
        means["ndimage"] = clhist.ndimage.mean(x, keys, range(bins))
    return means


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("reproducible", [False, True])
@pytest.mark.parametrize("sizes", [(3, 7, 49), pytest.param((1, 3, 7, 49, 2**20 + 1), marks=pytest.mark.slow)])
def test_means_beyond_extremes(dtype, reproducible, sizes, queue):
    rng, keys = np.random.default_rng(3), np.repeat(np.arange(len(sizes)), sizes)
    rng.shuffle(keys)
    limits = np.finfo(dtype)
    for value in [0.1, 1 / 3, limits.max / 2**21, limits.tiny, limits.smallest_subnormal, *-rng.random(4)]:
        equal = np.full(keys.size, value, dtype)
        # Some values are the next lower ones: their exact mean lies a fraction of a unit below the largest value.
        near = np.where(rng.random(keys.size) < 0.1, np.nextafter(equal, dtype(-np.inf)), equal)
        for x in (equal, near):
            for name, means in means_of(x, keys, len(sizes), queue, reproducible).items():
                for group, size in enumerate(sizes):
                    values, mean = x[keys == group], float(means[group])
                    low, high = (Fraction(float(limit)) for limit in (values.min(), values.max()))
                    beyond = max(Fraction(mean) - high, low - Fraction(mean))
                    if means.dtype == np.float32:
                        assert beyond <= 0, name
                    elif reproducible:
                        assert beyond <= Fraction(math.ulp(mean)), name
                    else:
                        assert beyond <= max(abs(low), abs(high)) * size / 2**53, name
