"""Distinct values alone, which the host sorts or marks where the device is slower: as NumPy and as the device."""

from unittest.mock import Mock

import cuda_fake
import numpy as np
import pyopencl.array as cl_array
import pytest
from both_ways import ways
from thresholds import threshold

import clhist
from clhist._core.kernels.key_table import SORTED_BYTES, WINDOW
from clhist._core.opencl.cuda_kinds import direct_only
from clhist._core.opencl.device import device_kind
from clhist._core.runtime import small
from clhist._core.runtime.signature import call_templates
from clhist.grouped import device_keys, distinct_keys, keys, numbering
from clhist.grouped.keys import distinct
from clhist.grouped.numbering import number_keys


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


@pytest.mark.parametrize("dtype", ["bool", "i2", "i4", "u8", "f2", "f4", "f8", "M8[s]"])
def test_few_elements_of_a_device(dtype, monkeypatch, queue):
    """Results of the host equal those of the device, and are on the device."""
    bits = dtype.replace("M8[s]", "i8").replace("bool", "i1")
    x = values_of(bits, 3000, None if bits[0] == "f" else 100).view(dtype)
    on_device = cl_array.to_device(queue, x % 2 == 0 if dtype == "bool" else x)
    values = cl_array.to_device(queue, np.arange(3000, dtype=np.float32))
    calls = [
        lambda **queue: (clhist.unique(on_device, **queue),),
        lambda **queue: clhist.unique(on_device, True, True, True, **queue),
        lambda **queue: clhist.unique(on_device.reshape(-1, 2), False, True, sorted=False, **queue),
        lambda **queue: clhist.factorize(on_device, **queue),
        lambda **queue: clhist.factorize(on_device, sort=True, use_na_sentinel=False, **queue),
        lambda **queue: (clhist.group_by(on_device, **queue).sum(values),),
    ][: 6 if dtype in ("i4", "f8") else 5]  # one program for all groups
    expected = [call(queue=queue) for call in calls]
    for one, other in zip(expected[1], np.unique(on_device.get(), True, True, True), strict=True):
        np.testing.assert_array_equal(one.get(), other)
    for name in [name for name in small.COSTS if name.endswith(", of a device")]:
        monkeypatch.setitem(small.COSTS, name, threshold(2**19))
    monkeypatch.setattr(device_keys, "number_keys", Mock(side_effect=AssertionError("numbered by the device")))
    for call, of_device in zip(calls, expected, strict=True):
        for one, other in zip(call(), of_device, strict=True):
            assert type(one) is type(other)
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
            np.testing.assert_array_equal(one.get(), other.get())


@pytest.mark.parametrize("dtype", ["bool", "i4", "f8"])
def test_few_elements_of_cuda(dtype, monkeypatch):
    """Numbers of elements come from the host, unless data must stay on the device."""
    _, cupy = cuda_fake.install(monkeypatch)
    x = values_of("i4", 3000, 100)
    on_device = cupy.asarray(x % 2 == 0 if dtype == "bool" else x.astype(dtype))
    calls = [
        lambda: (clhist.unique(on_device),),
        lambda: clhist.unique(on_device, True, True, True),
        lambda: clhist.unique(on_device.reshape(-1, 2), False, True, sorted=False),
        lambda: clhist.factorize(on_device),
        lambda: clhist.factorize(on_device, sort=True, use_na_sentinel=False),
    ]
    expected = [call() for call in calls]
    for one, other in zip(expected[1], np.unique(on_device.get(), True, True, True), strict=True):
        np.testing.assert_array_equal(one.get(), other)
    for name in [name for name in small.COSTS if name.endswith(", of a device")]:
        monkeypatch.setitem(small.COSTS, name, threshold(2**19))
    monkeypatch.setattr(device_keys, "number_keys", Mock(side_effect=AssertionError("numbered by the device")))
    for call, of_device in zip(calls, expected, strict=True):
        for one, other in zip(call(), of_device, strict=True):
            assert type(one) is type(other) is cuda_fake.FakeArray
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
            np.testing.assert_array_equal(one.get(), other.get())
        with direct_only(), pytest.raises(AssertionError, match="numbered by the device"):
            call()


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


# Ends of values; between those of the last pairs of each type are more than a window has.
ENDS = {
    "u1": [(0, 255)],
    "i1": [(-128, 127)],
    "u2": [(0, 0xFFFF)],
    "i4": [(0, 1), (-100, 100), (0, 100_000), (-(2**31), 9 - 2**31), (2**31 - 50, 2**31 - 1), (0, 2**30)],
    "u8": [(0, 300), (2**64 - 99, 2**64 - 1), (2**63 - 99, 2**63 + 99), (0, 2**50)],
    "i8": [(0, 300), (-(2**63), 9 - 2**63), (-60_000, 60_000), (2**63 - 99, 2**63 - 1), (-(2**40), 2**40)],
}


@pytest.mark.parametrize(("dtype", "ends"), [(dtype, ends) for dtype, every in ENDS.items() for ends in every])
@pytest.mark.parametrize("size", [1, 3000, 70_000])
def test_of_few_different_integers_bits_are_marked(size, dtype, ends, queue, rng, monkeypatch):
    monkeypatch.setattr(distinct_keys, "device_kind", lambda device: "gpu")
    monkeypatch.setattr(call_templates, "_kept", {})
    x = rng.integers(*ends, size, dtype, endpoint=True)
    on_device = cl_array.to_device(queue, x)
    values = distinct_keys.distinct_on_device(on_device, queue)
    is_sorted = size * max(4, x.itemsize) <= SORTED_BYTES  # instead
    if not is_sorted and int(x.max()) - int(x.min()) >= WINDOW:
        assert values is None
        # Arrays of the same kind are not tried again.
        assert distinct_keys.distinct_on_device(cl_array.zeros(queue, size, x.dtype), queue) is None
    else:
        np.testing.assert_array_equal(values.get(), np.unique(x))
    result = clhist.unique(on_device)
    assert result.dtype == x.dtype
    np.testing.assert_array_equal(result.get(), np.unique(x))


@pytest.mark.parametrize("dtype", ["i1", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8"])
@pytest.mark.parametrize("size", [1, 2, 3, 255, 1024, 2048])
@pytest.mark.parametrize("width", [3, None])
def test_few_keys_are_sorted_in_local_memory(width, size, dtype, queue, monkeypatch):
    monkeypatch.setattr(distinct_keys, "device_kind", lambda device: "gpu")
    x = values_of(dtype, size, width)
    if x.dtype.kind in "iu" and size > 2:
        x[:2] = np.iinfo(dtype).min, np.iinfo(dtype).max
    values = distinct_keys.distinct_on_device(cl_array.to_device(queue, x), queue).get()
    np.testing.assert_array_equal(values, np.unique(x))
    assert values.dtype == x.dtype
    assert not np.signbit(values[values == 0]).any()


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_nan_is_a_key_only_where_it_is_asked_for(dtype, queue, monkeypatch):
    monkeypatch.setattr(distinct_keys, "device_kind", lambda device: "gpu")
    x = np.array([np.nan, 2, 1, np.nan, 2], dtype)
    for missing, expected in ((True, [1, 2, np.nan]), (False, [1, 2])):
        result = number_keys(cl_array.to_device(queue, x), queue, missing=missing, only_keys=True).keys.get()
        np.testing.assert_array_equal(result, np.array(expected, dtype))


def test_of_booleans_and_of_parts_of_arrays_bits_are_marked(queue, monkeypatch):
    monkeypatch.setattr(distinct_keys, "device_kind", lambda device: "gpu")
    for values in (np.array([True, False, True]), np.array([False, False, False])):
        np.testing.assert_array_equal(clhist.unique(cl_array.to_device(queue, values)).get(), np.unique(values))
    x = np.array([9, 5, -3, 5, 7], np.int32)
    np.testing.assert_array_equal(clhist.unique(cl_array.to_device(queue, x)[1:4]).get(), [-3, 5])
    np.testing.assert_array_equal(clhist.unique(cl_array.to_device(queue, x[:0])).get(), [])


def test_values_out_of_the_window_of_a_replay_are_found(fake, monkeypatch):
    monkeypatch.setattr(distinct_keys, "device_kind", lambda device: "gpu")
    monkeypatch.setattr(call_templates, "_kept", {})
    _, cupy = fake
    for most in (90, 90, 90, 2**40, 90, 90):
        x = np.arange(5000) % 7 * most
        np.testing.assert_array_equal(clhist.unique(cupy.asarray(x)).get(), np.unique(x))


@pytest.mark.parametrize("dtype", ["i4", "f8"])
@pytest.mark.parametrize("size", [0, 1, 5000])
def test_counts_of_device_arrays(dtype, size, queue):
    x = values_of(dtype, size, 100)
    values, counts = clhist.unique(cl_array.to_device(queue, x), return_counts=True, queue=queue)
    expected, numbers = np.unique(x, return_counts=True)
    np.testing.assert_array_equal(values.get(), expected)
    np.testing.assert_array_equal(counts.get(), numbers)
    assert counts.dtype == np.int64


@pytest.mark.parametrize("by_host", [False, True])
@pytest.mark.parametrize("name", ["f4", "f8", "i4", "u4", "i8", "u8"])
def test_many_different_numbers_sorted_by_the_host_of_a_cpu(name, by_host, queue, rng, monkeypatch):
    """Values alone, which NumPy sorts, are those of the device's own ways."""
    monkeypatch.setattr(numbering, "_INSERTED", 1e9 if by_host else 0.0)
    sorts = []
    monkeypatch.setattr(numbering, "distinct", lambda keys: sorts.append(keys) or distinct(keys))
    dtype, size = np.dtype(name), 50_000
    if dtype.kind == "f":
        numbers = rng.normal(size=size).astype(dtype)
        numbers[::7] = rng.choice(np.array([np.nan, 0.0, -0.0, np.inf, -np.inf], dtype), len(numbers[::7]))
    else:
        info = np.iinfo(dtype)
        numbers = rng.integers(info.min, info.max, size, dtype, endpoint=True)
    expected = np.unique(numbers)
    before, on_device = numbers.copy(), cl_array.to_device(queue, numbers)
    np.testing.assert_array_equal(clhist.unique(numbers, queue=queue), expected, strict=True)
    np.testing.assert_array_equal(clhist.unique(on_device, queue=queue).get(), expected, strict=True)
    assert numbers.tobytes() == on_device.get().tobytes() == before.tobytes()  # no sort in place
    assert len(sorts) == (2 * by_host if device_kind(queue.device) == "cpu" else 0)
