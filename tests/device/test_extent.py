"""The least and the greatest element of device arrays, as NumPy has them, by kernels for CPUs and for GPUs."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pyopencl.array as cl_array
import pytest
from covering import covering

from clhist._core.keys import key_dtype, key_range
from clhist.binned.extent_kernel import ExtentSpec

pytestmark = pytest.mark.usefixtures("with_optimizer")

MODULE = import_module("clhist.binned.extent")


DTYPES = ["f2", "f4", "f8", "i1", "u2", "i4", "u4", "i8", "u8"]
KINDS = [("cpu", 1, 256), ("gpu", 64, 9), ("gpu", 7, 3)]
PROGRAMS = covering(KINDS, DTYPES, ["plain", "where", "column"])


@pytest.mark.parametrize(("of_kind", "name", "form"), PROGRAMS, ids=str)
def test_ends_are_numpys(of_kind, name, form, queue, rng, monkeypatch):
    """Of arrays, of what a mask leaves and of a column; with NaN among them they are NaN."""
    kind, *shares = of_kind
    monkeypatch.setattr(MODULE, "device_kind", lambda device: kind)
    monkeypatch.setattr(MODULE, "lanes_and_parts", lambda queue: shares)
    dtype = np.dtype(name)
    for size in (1, 2, 63, 64, 1000, 70_001):
        data = (rng.normal(size=size) * 50).astype(dtype) if dtype.kind == "f" else rng.integers(0, 99, size, dtype)
        mask = rng.random(size) < 0.5
        expected = (data.min(), data.max())
        if form == "where":
            x, where = cl_array.to_device(queue, data), cl_array.to_device(queue, mask)
            expected = (data[mask].min(), data[mask].max()) if mask.any() else None
            assert MODULE.key_extent(x, where, key_range(dtype), queue)[2] == mask.sum()
            assert extent(data, np.zeros(size, bool), form, queue) is None
        assert extent(data, mask, form, queue) == expected
        if dtype.kind == "f":
            data[size // 2], mask[size // 2] = np.nan, True
            assert np.isnan(extent(data, mask, form, queue)).all()


@pytest.mark.parametrize("name", DTYPES)
def test_no_vector_has_64_bytes(name):
    """PoCL 3.0 compiles wrong code for such vectors on processors with AVX-512."""
    dtype = np.dtype(name)
    spec = ExtentSpec(dtype, dtype, masked=False, pitch=1, column=0, lanes=1)
    assert 1 < spec.width <= 32 // key_dtype(dtype).itemsize


def extent(data, mask, form, queue):
    """Return the ends of data in one of the forms."""
    if form == "column":
        points = cl_array.to_device(queue, np.stack([data, data[::-1] - data], 1))
        return MODULE.extent(points, None, queue, column=0)
    where = cl_array.to_device(queue, mask) if form == "where" else None
    return MODULE.extent(cl_array.to_device(queue, data), where, queue)
