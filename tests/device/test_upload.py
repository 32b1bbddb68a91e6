"""NumPy arrays go to the device's own memory through page-locked memory, part by part and by several threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyopencl as cl
import pytest

import clhist
from clhist import reduce_by_index
from clhist._core.opencl import operands, upload

pytestmark = pytest.mark.usefixtures("without_optimizer")


@pytest.fixture
def uploads(queue):
    """Uploads in parts of 1000 bytes, by three threads."""
    return upload.Uploads(queue.context, queue.device, part=1000, threads=3)


def sent(uploads, queue, given, dtype=None):
    """Return what an array is on the device, after the host's is changed."""
    dtype = np.dtype(dtype or given.dtype)
    buffer = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, max(1, given.size * dtype.itemsize))
    event = uploads.upload(buffer, given, dtype)
    given[...] = np.zeros(1, given.dtype)[0]
    found = np.empty(given.size, dtype)
    if given.size:
        cl.enqueue_copy(queue, found, buffer, wait_for=[event])
    return found


@pytest.mark.parametrize("size", [0, 1, 249, 250, 251, 1000, 10_001])
def test_all_sizes(uploads, queue, size):
    given = np.arange(size, dtype=np.int32)
    np.testing.assert_array_equal(sent(uploads, queue, given), np.arange(size))
    assert len(uploads._pieces) <= 5


STRUCT = np.dtype([("a", np.int8), ("b", np.float64)], align=True)


@pytest.mark.parametrize("dtype", [np.uint8, ">i4", np.float64, np.complex128, STRUCT])
def test_types_and_orders_of_bytes(uploads, queue, dtype):
    given = np.zeros(3001, dtype)
    numbers = np.arange(3001) % 127
    if given.dtype.names is None:
        given[:] = numbers
    else:
        given["a"], given["b"] = numbers, numbers / 3
    expected = given.astype(given.dtype.newbyteorder("="), copy=True)
    found = sent(uploads, queue, given, given.dtype.newbyteorder("="))
    np.testing.assert_array_equal(found, expected)


def test_arrays_with_gaps(uploads, queue):
    given = np.arange(20_000, dtype=np.int64)
    np.testing.assert_array_equal(sent(uploads, queue, given[::-3]), np.arange(20_000)[::-3])


def test_several_threads_share_it(uploads, queue):
    given = [np.full(5000, k, np.int32) for k in range(6)]
    with ThreadPoolExecutor(6) as executor:
        found = list(executor.map(lambda each: sent(uploads, queue, each), given))
    for k, each in enumerate(found):
        assert set(each) == {k}


def test_a_part_that_fails_leaves_the_others_their_memory(uploads, queue, monkeypatch):
    original, number = np.copyto, iter(range(100))

    def failing(*args, **options):
        if next(number) == 3:
            raise KeyboardInterrupt
        original(*args, **options)

    monkeypatch.setattr(upload.np, "copyto", failing)
    with pytest.raises(KeyboardInterrupt):
        sent(uploads, queue, np.arange(5000, dtype=np.int32))
    monkeypatch.undo()
    np.testing.assert_array_equal(sent(uploads, queue, np.arange(500, dtype=np.int32)), np.arange(500))
    assert uploads._free.qsize() == len(uploads._pieces)


def test_calls_upload_large_arrays_so(monkeypatch, rng):
    """On a device that does not share the host's memory; what kernels write comes back."""
    monkeypatch.setattr(operands, "shares_memory", lambda device: False)
    monkeypatch.setattr(upload, "FEWEST_BYTES", 4096)
    uploaded, original = [], upload.Uploads.upload

    def spy(self, buffer, array, *args):
        uploaded.append(array.size)
        return original(self, buffer, array, *args)

    monkeypatch.setattr(upload.Uploads, "upload", spy)
    indices, values = rng.integers(-1, 60, (3, 1001)), rng.integers(0, 9, (3, 1001), np.int32)
    dest = np.arange(50, dtype=np.int32)
    expected = dest.copy()
    inside = (indices >= 0) & (indices < 50)
    np.add.at(expected, indices[inside], values[inside])
    np.testing.assert_array_equal(reduce_by_index(dest, np.add, indices, values), expected)
    assert uploaded == [3003, 3003]
    clhist.free_scratch()
    np.testing.assert_array_equal(reduce_by_index(dest, np.add, indices, values, out=dest), expected)
