"""Exact sums of rows that are gathered by bin, tried in double precision: right where these suffice and where not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyopencl.array as cl_array
import pytest
from covering import covering, each_value_quick
from digests import exact_sums, same_bits

import clhist
from clhist import operators
from clhist._core.model import row_ranges
from clhist._core.opencl.device import device_profile, profile_context
from clhist._core.runtime.stages import Commands
from clhist.operators.doubles import has_doubles

pytestmark = pytest.mark.usefixtures("with_optimizer")

DTYPES = [np.float32, np.float64]


CACHES = [2**20, 2**14]


@pytest.fixture(autouse=True, params=CACHES, ids=["as a GPU", "narrow rows grouped"])
def as_a_gpu(request, queue, monkeypatch):
    """Profiles with which rows are gathered as on a GPU, with little local memory, and a large cache or a small one."""
    monkeypatch.setattr(row_ranges, "LARGE_LOCAL_MEMORY", request.param)
    gpu = {"kind": "gpu", "hardware_threads": 2048, "work_group_size": 64, "local_memory": 2**14}
    with profile_context(replace(device_profile(queue.device), l2_cache=request.param, **gpu)):
        yield


def _values(kind, dtype, shape, rng):
    info = np.finfo(dtype)
    found = rng.normal(size=shape)
    if kind == "all sizes":  # of the whole range, most of which cancel
        found = np.ldexp(found, rng.integers(info.minexp - info.nmant, info.maxexp - 20, shape))
        found[len(found) // 2 :] = -found[: len(found) - len(found) // 2]
    elif kind == "alike":
        found += 1000
    elif kind == "ends":  # halfway between two results, and a little more or less
        found = rng.choice([1.0, 2.0**-info.nmant / 2, 2.0 ** (-3 * info.nmant), -(2.0 ** (-3 * info.nmant))], shape)
    elif kind == "subnormal":
        found = rng.integers(-3, 4, shape) * float(info.smallest_subnormal)
    elif kind == "overflow":
        found = rng.choice([1.0, 1.0, -1.0], shape) * float(info.max)
    elif kind == "no numbers":
        found = np.where(rng.random(shape) < 0.02, rng.choice([np.nan, np.inf, -np.inf], shape), found)
    elif kind == "zeros":
        found = np.zeros(shape) * rng.choice([1, -1], shape)
    return found.astype(dtype)


def _expected(bins, values, num_bins, dest=None):
    numbers = np.where(np.isfinite(values), values, 0)
    columns = [
        exact_sums(bins, numbers[:, j], num_bins, None if dest is None else dest[:, j]) for j in range(values.shape[1])
    ]
    others = np.zeros((num_bins, values.shape[1]), values.dtype)
    np.add.at(others, bins, np.where(np.isfinite(values), 0, values))
    return np.where(others == 0, np.stack(columns, axis=1), others)


@pytest.mark.parametrize(
    "kind", ["plain", "all sizes", "alike", "ends", "subnormal", "overflow", "no numbers", "zeros"]
)
@pytest.mark.parametrize(  # in one work-group, and by ranges of bins
    ("as_a_gpu", "n", "dtype"), each_value_quick(covering(CACHES, [1500, 40_000], DTYPES)), indirect=["as_a_gpu"]
)
def test_sums(n, kind, dtype, queue, rng):
    bins = rng.integers(0, 40, n, dtype=np.int32)
    bins[: n // 3] = 7  # whose rows are shared out
    values = _values(kind, dtype, (n, 4), rng)
    with np.errstate(all="ignore"):
        found = clhist.reduce_by_index((41, 4), "sum", bins, values, reproducible=True, update="gather", queue=queue)
        expected = _expected(bins, values, 41)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    same_bits(np.nan_to_num(found, nan=7), np.nan_to_num(expected, nan=7))


@pytest.mark.parametrize(
    ("as_a_gpu", "dtype", "components"), each_value_quick(covering(CACHES, DTYPES, [1, 3, 8])), indirect=["as_a_gpu"]
)
def test_dest_and_in_place(dtype, components, queue, rng):
    bins = rng.integers(-2, 30, 200, dtype=np.int32)
    values, dest = (_values("all sizes", dtype, (n, components), rng) for n in (200, 20))
    inside = (bins >= 0) & (bins < 20)
    expected = _expected(bins[inside], values[inside], 20, dest)
    options = {"reproducible": True, "update": "gather"}
    same_bits(clhist.reduce_by_index(dest, "sum", bins, values, queue=queue, **options), expected)
    on_device, given = cl_array.to_device(queue, dest), cl_array.to_device(queue, values)
    clhist.reduce_by_index(on_device, "sum", cl_array.to_device(queue, bins), given, out=on_device, **options)
    same_bits(on_device.get(), expected)


def test_which_plans_have_doubles(queue, rng):
    """Exact sums of rows are gathered without being asked to; those of a window, and of a half, are in no doubles."""
    bins, values = rng.integers(0, 30, 300, dtype=np.int32), rng.normal(size=(300, 32)).astype(np.float32)
    assert has_doubles(operators.reproducible_add(np.float32))
    assert not has_doubles(operators.reproducible_add(np.float32, 10.0))
    assert not has_doubles(operators.reproducible_add(np.float16))
    assert not has_doubles(operators.add(np.float32))
    options = {"reproducible": True, "queue": queue}
    found = clhist.reduce_by_index((30, 32), "sum", bins, values, **options)
    same_bits(found, _expected(bins, values, 30))
    wide = clhist.reduce_by_index((30, 32), "sum", bins, values, max_abs=16.0, update="gather", **options)
    np.testing.assert_allclose(wide, found, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("as_a_gpu", "dtype"), list(zip(CACHES, DTYPES, strict=True)), indirect=["as_a_gpu"])
def test_a_budget_has_room_for_doubles_as_well(dtype, queue, rng, monkeypatch):
    """Of which each piece has some beside its digits."""
    bins, values = rng.integers(0, 500, 40_000, dtype=np.int32), rng.normal(size=(40_000, 16)).astype(dtype)
    taken, room = [], Commands.room
    monkeypatch.setattr(Commands, "room", lambda self, size, purpose: taken.append(size) or room(self, size, purpose))
    options = {"reproducible": True, "update": "gather", "queue": queue}
    clhist.reduce_by_index((500, 16), "sum", bins, values, **options)
    with pytest.raises(MemoryError, match=r"^memory_budget: gathering 40000 rows takes"):
        clhist.reduce_by_index((500, 16), "sum", bins, values, memory_budget=sum(taken) - 1000, **options)
