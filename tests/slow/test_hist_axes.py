"""Bins of every axis of boost-histogram: the same for every number, on edges, beside them, and the odd ones."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pyopencl.array as cl_array
import pytest
from covering import covering

bh = pytest.importorskip("boost_histogram", reason="boost-histogram is not installed")

from hist_objects import INTEGER_AXES, REAL_AXES, assert_same, edges_of, empty, numbers_beside  # noqa: E402

import clhist.hist  # noqa: E402

FLOATS = ["f8", "f4", "f2"]
INTEGERS = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "?"]


def check_counts(ax, x, queue):
    expected = empty([ax], bh.storage.Int64()).fill(x)
    assert_same(clhist.hist.fill(empty([ax], bh.storage.Int64()), x, queue=queue), expected, exact=True)


@pytest.fixture
def in_blocks(request, monkeypatch):
    """Find bins element by element, and in blocks, which only CPUs do."""
    module = import_module("clhist.binned.sweep")  # the package has a function of this name
    monkeypatch.setattr(module, "device_kind", lambda device: "cpu" if request.param else "gpu")


@pytest.mark.parametrize(
    ("name", "dtype", "in_blocks"), covering(list(REAL_AXES), FLOATS, (False, True)), indirect=["in_blocks"]
)
def test_floats(queue, in_blocks, name, dtype):
    check_counts(REAL_AXES[name], numbers_beside(edges_of(REAL_AXES[name]), dtype), queue)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize(
    "name", ["even", "falling", "log", "square", "variable", "variable-no-overflow", "circular-pi"]
)
def test_integers_on_axes_of_reals(queue, name, dtype):
    check_counts(REAL_AXES[name], numbers_beside(edges_of(REAL_AXES[name]), dtype), queue)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("name", INTEGER_AXES)
def test_integers(queue, name, dtype):
    x = numbers_beside(np.arange(-10, 20), dtype)
    if x.dtype.itemsize >= 4:
        x = x[(x.astype(float) < 2**31) & (x.astype(float) >= -(2**31))]
    check_counts(INTEGER_AXES[name], x, queue)


@pytest.mark.parametrize("name", ["even", "log", "variable", "circular", "falling"])
def test_device_arrays(queue, name):
    ax = REAL_AXES[name]
    x = numbers_beside(edges_of(ax), "f8")
    expected = empty([ax], bh.storage.Double()).fill(x)
    found = clhist.hist.fill(empty([ax], bh.storage.Double()), cl_array.to_device(queue, x))
    assert_same(found, expected, exact=True)


def test_without_double_precision(queue, monkeypatch):
    for module in ("hist.columns", "_core.opencl.device", "binned.extent"):
        monkeypatch.setattr(import_module(f"clhist.{module}"), "has_fp64", lambda device: False)
    for name in ("even", "log", "variable", "circular"):
        ax = REAL_AXES[name]
        x = numbers_beside(edges_of(ax), "f8")
        expected = empty([ax], bh.storage.Double()).fill(x)
        assert_same(clhist.hist.fill(empty([ax], bh.storage.Double()), x, queue=queue), expected, exact=True)
    h = empty([REAL_AXES["even"]], bh.storage.Weight())
    with pytest.raises(clhist.UnsupportedError, match="double precision"):
        clhist.hist.fill(h, x, weight=x, queue=queue)


def test_a_transform_of_a_users_own(queue):
    import ctypes
    import math

    kind = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)
    sine = bh.axis.transform.Function(kind(lambda x: math.sin(x) if math.isfinite(x) else x), kind(math.asin))
    x = np.linspace(-9, 9, 3001)
    axes = [bh.axis.Regular(10, -1.5, 1.5, transform=sine)]
    expected = bh.Histogram(*axes).fill(x)
    found = clhist.hist.fill(bh.Histogram(*axes), x, queue=queue)
    np.testing.assert_array_equal(found.view(flow=True), expected.view(flow=True))


def test_thirty_two_axes(queue):
    random = np.random.default_rng(0)
    axes = [bh.axis.Integer(0, 1, underflow=False, overflow=n < 8) for n in range(32)]
    x = [random.integers(0, 2, 5000) if n < 8 else random.integers(0, 1, 5000) for n in range(32)]
    expected = empty(axes, bh.storage.Int64()).fill(*x)
    assert_same(clhist.hist.fill(empty(axes, bh.storage.Int64()), *x, queue=queue), expected, exact=True)


SCALARS = [1, 1.0, 1.5, np.float64(1), np.float32(-1.5), np.float64("nan"), 2**40, True, np.int8(1), "a", b"a", 1j]
AXES = {
    "integers": bh.axis.Integer(-1, 3),
    "categories": bh.axis.IntCategory([1, 2]),
    "numbers": bh.axis.Regular(3, 0, 3),
    "booleans": bh.axis.Boolean(),
    "texts": bh.axis.StrCategory(["a"]),
}


def outcome(method, axis, scalar):
    h = bh.Histogram(axis, bh.axis.Regular(2, 0, 2))
    try:
        method(h, scalar, [0.5, 1.5])
    except (RuntimeError, TypeError, ValueError) as error:
        return type(error), str(error)
    return h.view(flow=True).tolist()


@pytest.mark.parametrize("axis", AXES.values(), ids=AXES)
@pytest.mark.parametrize("scalar", SCALARS, ids=repr)
def test_scalars_among_few_entries(scalar, axis):
    """A scalar is taken, truncated or refused as by boost-histogram, which casts scalars otherwise than arrays."""
    assert outcome(clhist.hist.fill, axis, scalar) == outcome(bh.Histogram.fill, axis, scalar)
