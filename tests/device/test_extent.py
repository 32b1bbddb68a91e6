"""The least and the greatest element of device arrays, as NumPy has them, by kernels for CPUs and for GPUs."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pyopencl.array as cl_array
import pytest

from clhist._core.keys import key_range

MODULE = import_module("clhist.binned.extent")


@pytest.fixture(params=[("cpu", 1, 256), ("gpu", 64, 9), ("gpu", 7, 3)], ids=str)
def of_kind(request, monkeypatch):
    kind, *shares = request.param
    monkeypatch.setattr(MODULE, "device_kind", lambda device: kind)
    monkeypatch.setattr(MODULE, "lanes_and_parts", lambda queue: shares)


@pytest.mark.parametrize("size", [1, 2, 63, 64, 1000, 70_001])
def test_ends_are_numpys(size, of_kind, queue, rng):
    for dtype in map(np.dtype, ("f2", "f4", "f8", "i1", "u2", "i4", "u4", "i8", "u8")):
        data = (rng.normal(size=size) * 50).astype(dtype) if dtype.kind == "f" else rng.integers(0, 99, size, dtype)
        mask = rng.random(size) < 0.5
        x, where = cl_array.to_device(queue, data), cl_array.to_device(queue, mask)
        assert MODULE.extent(x, None, queue) == (data.min(), data.max())
        found = MODULE.extent(x, where, queue)
        assert found == ((data[mask].min(), data[mask].max()) if mask.any() else None)
        assert MODULE.key_extent(x, where, key_range(dtype), queue)[2] == mask.sum()
        points = cl_array.to_device(queue, np.stack([data, data[::-1] - data], 1))
        assert MODULE.extent(points, None, queue, column=0) == (data.min(), data.max())
        if dtype.kind == "f":
            data[size // 2] = np.nan
            assert np.isnan(MODULE.extent(cl_array.to_device(queue, data), None, queue)).all()
