"""The least and the greatest element of device arrays, as NumPy has them, by kernels for CPUs and for GPUs."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pyopencl.array as cl_array
import pytest
from covering import covering

from clhist._core.keys import key_range

MODULE = import_module("clhist.binned.extent")


DEVICES = [("cpu", 1, 256), ("gpu", 64, 9), ("gpu", 7, 3)]
SIZES = [1, 2, 63, 64, 1000, 70_001]
DTYPES = ["f2", "f4", "f8", "i1", "u2", "i4", "u4", "i8", "u8"]


@pytest.fixture
def of_kind(request, monkeypatch):
    kind, *shares = request.param
    monkeypatch.setattr(MODULE, "device_kind", lambda device: kind)
    monkeypatch.setattr(MODULE, "lanes_and_parts", lambda queue: shares)


@pytest.mark.parametrize(
    ("of_kind", "size", "dtype", "elements"),
    covering(DEVICES, SIZES, DTYPES, ["all", "masked", "column"]),
    indirect=["of_kind"],
)
def test_ends_are_numpys(of_kind, size, dtype, elements, queue, rng):
    dtype = np.dtype(dtype)
    data = (rng.normal(size=size) * 50).astype(dtype) if dtype.kind == "f" else rng.integers(0, 99, size, dtype)
    x = cl_array.to_device(queue, data)
    if elements == "masked":
        for mask in (rng.random(size) < 0.5, np.zeros(size, bool)):
            where = cl_array.to_device(queue, mask)
            ends = (data[mask].min(), data[mask].max()) if mask.any() else None
            assert MODULE.extent(x, where, queue) == ends
            assert MODULE.key_extent(x, where, key_range(dtype), queue)[2] == mask.sum()
    elif elements == "column":
        points = cl_array.to_device(queue, np.stack([data, data[::-1] - data], 1))
        assert MODULE.extent(points, None, queue, column=0) == (data.min(), data.max())
    else:
        assert MODULE.extent(x, None, queue) == (data.min(), data.max())
        if dtype.kind == "f":
            data[size // 2] = np.nan
            assert np.isnan(MODULE.extent(cl_array.to_device(queue, data), None, queue)).all()
