"""Distinct values alone, which the host sorts or marks where the device is slower: as NumPy and as the device."""

import numpy as np
import pyopencl.array as cl_array
import pytest
from both_ways import ways
from thresholds import threshold

import clhist
from clhist._core.runtime import small
from clhist.grouped import keys


def values_of(dtype, size, width):
    """Return values from the least of the dtype on, in a range of this width, or among all if it is None."""
    rng = np.random.default_rng(size)
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        values = rng.choice([np.nan, -0.0, 0.0, np.inf, -np.inf, *rng.normal(size=50)], size)
        return values.astype(dtype) if width else rng.normal(size=size).astype(dtype)
    least, greatest = np.iinfo(dtype).min, np.iinfo(dtype).max
    return rng.integers(least, greatest if width is None else least + width, size, dtype, endpoint=True)


@pytest.mark.parametrize("dtype", ["i4", "u4", "i8", "u8", "f4", "f8"])
@pytest.mark.parametrize("width", [100, 3000, None])
@pytest.mark.parametrize("size", [0, 1, 2, 2047, 2048, 5000, 70_000])
def test_on_the_host(dtype, width, size, monkeypatch):
    monkeypatch.setitem(small.COSTS, "distinct", threshold(2**19))
    x = values_of(dtype, size, width)
    before, expected = x.copy(), np.unique(x)
    for array in (x, np.repeat(x, 2)[::2], x.reshape(-1, 1), x.byteswap().view(x.dtype.newbyteorder())):
        result = clhist.unique(array)
        assert result.dtype == np.unique(array).dtype
        np.testing.assert_array_equal(result, expected)
        assert not np.signbit(result[result == 0]).any()
    np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize("dtype", ["i4", "u8", "f4", "f8"])
@pytest.mark.parametrize("width", [100, None])
def test_as_the_device(dtype, width, queue):
    x = values_of(dtype, 5000, width)
    if np.dtype(dtype) == np.float64 and not queue.device.double_fp_config:
        pytest.skip("no double precision")
    on_device = cl_array.to_device(queue, x)
    for result in (clhist.unique(x, queue=queue), clhist.unique(on_device).get()):
        np.testing.assert_array_equal(clhist.unique(x), result)
        assert clhist.unique(x).dtype == result.dtype


def test_signaling_nan_cause_no_warnings(monkeypatch):
    values = np.tile(np.array([0x7F800001, 0x3F800000, 0xFF800001], np.uint32).view(np.float32), 10)
    for _ in ways(monkeypatch):
        for each in (values, values[::-1]):
            found, counts = clhist.unique(each, return_counts=True)
            expected, numbers = np.unique(each, return_counts=True)
            assert np.array_equal(found, expected, equal_nan=True)
            assert counts.tolist() == numbers.tolist()


@pytest.mark.parametrize("has_pandas", [False, True])
@pytest.mark.parametrize("dtype", ["i2", "u4", ">i4", "i8", "u8"])
@pytest.mark.parametrize("number", [1, 300, 700, 5000])
def test_few_different_integers_are_hashed(number, dtype, has_pandas, monkeypatch):
    """Whatever a sample tells of how many there are, and with pandas or without."""
    if has_pandas:
        pytest.importorskip("pandas")
    else:
        monkeypatch.setattr(keys, "library", lambda name, size=0: None)
    rng, info = np.random.default_rng(number), np.iinfo(dtype)
    different = rng.integers(info.min, info.max, number, dtype=np.dtype(dtype).newbyteorder("="), endpoint=True)
    x = rng.choice(different, 6000).astype(dtype)
    for integers in (x, x[::2], np.sort(x), x.reshape(2, -1)):
        found = keys.sorted_distinct(integers)
        assert found.dtype == integers.dtype
        np.testing.assert_array_equal(found, sorted({*integers.ravel().tolist()}))
