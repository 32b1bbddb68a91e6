"""Means of vectors: counted once for each vector, for NumPy and device arrays, batches, masks, `out` and `dest`."""

from __future__ import annotations

from itertools import pairwise
from math import prod

import numpy as np
import pyopencl.array as cl_array
import pytest

from clhist import operators, reduce_by_index

N, H, D = 5003, 40, 3


def expected_means(bins, rows, number):
    """Means of rows by NumPy, NaN for bins without any."""
    inside = (bins >= 0) & (bins < number)
    parts = rows.reshape(len(bins), prod(rows.shape[1:]))
    parts = (parts.view(parts.real.dtype) if parts.dtype.kind == "c" else parts).astype(np.float64)
    sums = np.zeros((number, parts.shape[1]))
    with np.errstate(all="ignore"):
        np.add.at(sums, bins[inside], parts[inside])
        return sums / np.bincount(bins[inside], minlength=number)[:, None]


def check(found, bins, rows, number, rtol=1e-6):
    found = found.get() if isinstance(found, cl_array.Array) else found
    assert found.shape == (number, *rows.shape[bins.ndim :])
    real = found.reshape(number, -1)
    real = real.view(real.real.dtype) if found.dtype.kind == "c" else real
    np.testing.assert_allclose(real, expected_means(bins, rows, number), rtol=rtol, atol=rtol)


@pytest.fixture
def bins(rng):
    found = rng.integers(-2, H + 2, N).astype(np.int32)
    found[found == 7] = 8  # one that is empty
    return found


@pytest.mark.parametrize("dtype", ["float32", "complex64", "int16"])
def test_of_numbers(dtype, bins, rng, queue):
    rows = rng.integers(-1000, 1000, (N, D)).astype(dtype)
    if dtype != "int16":
        rows[[1, 50, 51], 1], rows[2, 0] = np.inf, np.nan
        bins[[1, 2, 50, 51]] = 3, 4, 5, 6
        rows[51, 1] = -np.inf
    found = reduce_by_index((H, D), "mean", bins, rows)
    assert found.dtype == (np.float64 if dtype == "int16" else dtype)
    assert np.isnan(found[7]).all()
    check(found, bins, rows, H)
    on_device = reduce_by_index((H, D), "mean", *(cl_array.to_device(queue, each) for each in (bins, rows)))
    np.testing.assert_array_equal(on_device.get(), found)  # integers are added without rounding


def test_shapes_of_rows_and_types_of_values(bins, rng):
    rows = rng.random((N, 2, D))
    check(reduce_by_index((H, 2, D), operators.mean(np.float32), bins, rows), bins, rows, H)  # rounded as it is read
    huge = np.full((N, 1, 2), 1e300)
    assert np.isposinf(reduce_by_index((H, 1, 2), operators.mean(np.float32), bins, huge)[0]).all()
    near = operators.mean(np.float32, np.float32)
    check(reduce_by_index((H, D), near, bins, rows[:, 0].astype(np.float32)), bins, rows[:, 0], H, rtol=1e-4)
    none = reduce_by_index((H, D), "mean", bins[:0], rows[:0, 0])
    assert none.shape == (H, D)
    assert np.isnan(none).all()


def test_out_events_and_options(bins, rng, queue):
    rows = rng.random((N, D), np.float32)
    out = np.zeros((H, D), np.float32)
    assert reduce_by_index((H, D), "mean", bins, rows, out=out) is out
    check(out, bins, rows, H)
    on_device = [cl_array.to_device(queue, each) for each in (bins, rows)]
    where = cl_array.zeros(queue, (2 * H, D), np.float32)
    options = {"wait_for": [], "memory_budget": 1 << 24, "race_factor": "sample"}
    for _ in range(3):  # the calls are repeated
        where.fill(-1)
        found, event = reduce_by_index((H, D), "mean", *on_device, out=where[H:], return_event=True, **options)
        event.wait()
        assert event in found.events
        check(where.get()[H:], bins, rows, H)
        assert (where.get()[:H] == -1).all()
    check(reduce_by_index((H, D), "mean", bins, rows, copies=1), bins, rows, H)
    with pytest.raises(TypeError, match=r"^reproducible: expected sums"):
        reduce_by_index((H, D), "mean", bins, rows, reproducible=True)


def test_wrong_results(bins, rng, queue):
    rows = rng.random((N, D), np.float32)
    with pytest.raises(ValueError, match=r"^out: expected shape \(40, 3\), got \(3, 40\)"):
        reduce_by_index((H, D), "mean", bins, rows, out=np.zeros((D, H), np.float32))
    with pytest.raises(TypeError, match=r"^out: .*float32.*float64"):
        reduce_by_index((H, D), "mean", bins, rows, out=np.zeros((H, D)))
    with pytest.raises(TypeError, match=r"^indices: expected a PyOpenCL array as out is"):
        reduce_by_index((H, D), "mean", bins, rows, out=cl_array.zeros(queue, (H, D), np.float32))


def test_dest_is_one_value_of_each_component(bins, rng):
    rows, dest = rng.random((N, D)), rng.random((H, D))
    found = reduce_by_index(dest, "mean", bins, rows)
    check(found, np.concatenate([np.arange(H), bins]), np.concatenate([dest, rows]), H)


@pytest.mark.parametrize("ragged", [False, True])
def test_batches(ragged, rng):
    batch, length = 3, 700
    offsets = np.array([0, 0, 900, 3 * length]) if ragged else np.arange(4) * length
    bins, rows = rng.integers(-1, H, batch * length), rng.random((batch * length, D))
    if ragged:
        found = reduce_by_index((batch, H, D), "mean", bins, rows, offsets=offsets)
    else:
        shapes = (batch, length), (batch, length, D)
        found = reduce_by_index((batch, H, D), "mean", bins.reshape(shapes[0]), rows.reshape(shapes[1]), batched=True)
    for k, (start, end) in enumerate(pairwise(offsets)):
        check(found[k], bins[start:end], rows[start:end], H)


def test_masked_rows(bins, rng):
    rows = np.ma.masked_array(rng.random((N, D)))
    rows[::3] = np.ma.masked
    left = ~rows.mask[:, 0]
    check(reduce_by_index((H, D), "mean", bins, rows), bins[left], rows.data[left], H)
