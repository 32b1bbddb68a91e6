"""Rows of values, gathered by bin or added by bins of their own: right for whatever rows, bins and operators."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyopencl.array as cl_array
import pytest
from covering import covering

import clhist
from clhist._core.model import row_ranges
from clhist._core.opencl.device import device_profile, profile_context

LAUNCH = {"launch": 5.0, "bandwidth": 100.0, "rows placed by bin": 1e6, "rows gathered": 1e6}


# Narrow rows are grouped themselves on the first, which takes its local memory for a large one.
GPUS = {"as a GPU": 2**14, "as a GPU with a large cache": 2**20}


@pytest.fixture(params=["as it is", *GPUS])
def own(request, queue, monkeypatch):
    """The device's profile, and those with which rows are gathered as on a GPU."""
    profile = device_profile(queue.device)
    if request.param in GPUS:
        monkeypatch.setattr(row_ranges, "LARGE_LOCAL_MEMORY", GPUS[request.param])
        gpu = {"kind": "gpu", "hardware_threads": 2048, "work_group_size": 64, "rates": {**profile.rates, **LAUNCH}}
        profile = replace(profile, **gpu, local_memory=2**14, l2_cache=GPUS[request.param])
    with profile_context(profile):
        yield profile


def _bins(kind, rng, n, h):
    if kind == "outside":
        return rng.integers(-h, 2 * h, n, dtype=np.int32)
    if kind == "one":
        return np.full(n, h // 2, np.int32)
    if kind == "half":
        return np.where(rng.random(n) < 0.5, h - 1, rng.integers(0, h, n)).astype(np.int32)
    found = rng.integers(0, h, n, dtype=np.int32)
    return np.sort(found) if kind == "sorted" else found


def _expected(ufunc, dest, bins, values):
    expected = dest.copy()
    inside = (bins >= 0) & (bins < len(dest))
    ufunc.at(expected, bins[inside], values[inside])
    return expected


@pytest.mark.parametrize("h", [1, 2, 1024, 1025])
def test_rows_of_three(queue, rng, h):
    """On a CPU four numbers are added at once, of as many bins as have room, to what is there."""
    bins = rng.integers(-1, h + 1, 5001, dtype=np.int32)
    for values_of, dtype in (("u1", "i4"), ("f4", "f4"), ("i4", "i4"), ("u4", "u4"), ("i2", "f4"), ("i8", "i8")):
        least = 0 if "u" in values_of else -100
        dest, values = rng.integers(0, 100, (h, 3)).astype(dtype), rng.integers(least, 100, (5001, 3)).astype(values_of)
        found = clhist.reduce_by_index(dest.copy(), np.add, bins, values, update="gather")
        np.testing.assert_array_equal(found, _expected(np.add, dest, bins, values.astype(dtype)))


SHAPES = [
    (1, 1, 1),
    (1, 9, 3),
    (7, 5000, 2),
    (300, 40, 64),
    (3000, 13, 5),
    (60, 11, 1000),
    (20_000, 700, 3),
    (30_000, 1, 2),
    (50_000, 700, 3),
    (9000, 9000, 2),
]
KINDS = ["uniform", "one", "half", "sorted", "outside"]
UFUNCS = [
    (np.add, np.float32), (np.add, np.int64), (np.maximum, np.float64), (np.minimum, np.int16), (np.multiply, np.int32),
]  # fmt: skip


@pytest.mark.parametrize(("own", "shape", "operation"), covering(["as it is", *GPUS], SHAPES, UFUNCS), indirect=["own"])
def test_as_numpy(own, queue, shape, operation):
    """Integers in floats: any order of sums is exact."""
    (n, h, d), (ufunc, dtype) = shape, operation
    rng = np.random.default_rng(n + h + d)
    dest, values = (rng.integers(-9, 10, (rows, d)).astype(dtype) for rows in (h, n))
    for kind in KINDS:  # with the same programs
        bins = _bins(kind, rng, n, h)
        expected = _expected(ufunc, dest, bins, values)
        arrays = [cl_array.to_device(queue, array) for array in (dest, bins, values)]
        result = clhist.reduce_by_index(arrays[0], ufunc, *arrays[1:], update="gather")
        np.testing.assert_array_equal(result.get(), expected, err_msg=kind)
        for array, before in zip(arrays, (dest, bins, values), strict=True):
            np.testing.assert_array_equal(array.get(), before, err_msg=kind)


@pytest.mark.parametrize("group", [1, 2, 48])
def test_work_groups(own, queue, group):
    rng = np.random.default_rng(group)
    bins, values = _bins("half", rng, 20_000, 100), rng.integers(-9, 10, (20_000, 7)).astype(np.float32)
    found = clhist.reduce_by_index((100, 7), "sum", bins, values, update="gather", work_group_size=group, queue=queue)
    np.testing.assert_array_equal(found, _expected(np.add, np.zeros((100, 7), np.float32), bins, values))


def test_operators_of_ones_own_and_what_is_no_number(own, queue):
    """Bits that any has, of rows that are converted; NaN where one was added; bins without rows keep `dest`."""
    rng = np.random.default_rng(3)
    bins = rng.integers(0, 50, 4000, dtype=np.int32)
    bits = rng.integers(0, 100, (4000, 6)).astype(np.uint8)
    either = clhist.Operator(np.int32, "a | b", 0)
    found = clhist.reduce_by_index((60, 6), either, bins, bits, update="gather", queue=queue)
    np.testing.assert_array_equal(found, _expected(np.bitwise_or, np.zeros((60, 6), np.int32), bins, bits))
    values = rng.integers(-9, 10, (4000, 6)).astype(np.float32)
    values[17, 3], values[18, 4] = np.nan, np.inf
    dest = np.full((60, 6), 0.5, np.float32)
    found = clhist.reduce_by_index(dest, "sum", bins, values, update="gather", queue=queue)
    np.testing.assert_array_equal(found, _expected(np.add, dest, bins, values))
    assert np.isnan(found[bins[17], 3])
    assert (found[50:] == 0.5).all()


@pytest.mark.parametrize("update", ["gather", None])
@pytest.mark.parametrize("repeat", [False, True])
def test_results_in_the_place_of_what_is_read(own, queue, update, repeat):
    """Values, or a part of them, may be overwritten by the results: they are read first. So may be `dest`."""
    rng = np.random.default_rng(5)
    n, more = 3000, {} if update is None else {"update": update}
    bins, values = rng.integers(0, n, n, dtype=np.int32), rng.integers(-9, 10, (n, 8)).astype(np.float32)
    expected = _expected(np.add, np.zeros((n, 8), np.float32), bins, values)
    on_device, indices = cl_array.to_device(queue, values), cl_array.to_device(queue, bins)
    if repeat:  # a call that is known by then
        for _ in range(2):
            other = cl_array.zeros(queue, (n, 8), np.float32)
            clhist.reduce_by_index((n, 8), "sum", indices, on_device, out=other, **more)
    found = clhist.reduce_by_index((n, 8), "sum", indices, on_device, out=on_device, **more)
    assert found is on_device
    np.testing.assert_array_equal(found.get(), expected)
    host = values.copy()
    clhist.reduce_by_index((n, 8), "sum", bins, host, out=host, queue=queue, **more)
    np.testing.assert_array_equal(host, expected)
    dest = cl_array.to_device(queue, values)
    clhist.reduce_by_index(dest, "sum", indices, cl_array.to_device(queue, values), out=dest, **more)
    np.testing.assert_array_equal(dest.get(), _expected(np.add, values, bins, values))


def test_copies(own, queue):
    """A CPU's parts of the rows have one each; a GPU has none."""
    rng = np.random.default_rng(6)
    bins, values = _bins("half", rng, 5000, 30), rng.integers(-9, 10, (5000, 5)).astype(np.int32)
    if own.kind == "gpu":
        with pytest.raises(ValueError, match=r"^copies: expected 1 with update='gather', got 2"):
            clhist.reduce_by_index((30, 5), "sum", bins, values, update="gather", copies=2, queue=queue)
        return
    for copies in (1, 2):
        found = clhist.reduce_by_index((30, 5), "sum", bins, values, update="gather", copies=copies, queue=queue)
        np.testing.assert_array_equal(found, _expected(np.add, np.zeros((30, 5), np.int32), bins, values))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"memory": "local"}, r"^memory: expected 'global' with update='gather', got 'local'"),
        ({"passes": 2}, r"^passes: expected 1 with update='gather', got 2"),
    ],
)
def test_refused(queue, options, message):
    bins, values = np.zeros(10, np.int32), np.ones((10, 3), np.float32)
    with pytest.raises(ValueError, match=message):
        clhist.reduce_by_index((5, 3), "sum", bins, values, update="gather", queue=queue, **options)


def test_only_of_plain_arrays(queue):
    kernel = clhist.HistogramKernel(queue.context, "count", arguments="const int *x", map="EMIT(x[i], 1)")
    with pytest.raises(ValueError, match=r"^update: 'gather' takes the arrays of clhist\.reduce_by_index"):
        kernel(np.zeros(10, np.int32), num_bins=3, update="gather")
    with pytest.raises(ValueError, match="update: 'gather' makes one histogram"):
        clhist.reduce_by_index(
            np.zeros((2, 5)), "sum", np.zeros((2, 3), int), 1.0, batched=True, update="gather", queue=queue
        )
