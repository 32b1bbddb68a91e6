"""Requests of `GroupBy.agg` that repeat earlier ones: equal ones of other types are checked for themselves."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pyopencl.array as cl_array
import pytest

import clhist
from clhist import operators
from clhist._core.runtime.call import Call
from clhist._core.runtime.engine import Engine
from clhist.operators.c_types import struct_of

pytestmark = pytest.mark.usefixtures("without_optimizer")

KEYS, X = np.array([0, 2, 0, 2, 5]), np.array([1.0, 2.0, 5.0, np.nan, 7.0])


@pytest.fixture(params=["NumPy", "kernels", "device"])
def groups(request, queue):
    """Groups on the host, on NumPy arrays by kernels, and on a device; with the values."""
    if request.param == "device":
        return clhist.group_by(cl_array.to_device(queue, KEYS), 3), cl_array.to_device(queue, X)
    return clhist.group_by(KEYS, 3, queue=None if request.param == "NumPy" else queue), X


def host(array):
    return array.get() if isinstance(array, cl_array.Array) else array


@pytest.mark.parametrize("entries", [("sum", "var"), (["sum", "var"],), (("sum", "var"),), (np.sum, np.var)])
def test_forms_of_requests_are_one(groups, entries):
    groups, x = groups
    for ddof in (0, 1, np.int64(1), np.array(1), True):
        result = groups.agg(x=(x, *entries), ddof=ddof)["x"]
        assert [*result] == ["sum", "var"]
        np.testing.assert_array_equal(host(result["sum"]), [6, 0, 2])
        one, two = (8.0, np.nan) if ddof else (4.0, 0.0)
        np.testing.assert_array_equal(host(result["var"]), [one, np.nan, two])


def test_options_that_equal_earlier_ones_are_checked(groups):
    groups, x = groups
    groups.agg(x=(x, "var"), ddof=1, dtype="float32")
    with pytest.raises(TypeError, match=r"^ddof: expected an integer, got 1\.0"):
        groups.agg(x=(x, "var"), ddof=1.0, dtype="float32")
    with pytest.raises(TypeError, match=r"^dtype: expected a float"):
        groups.agg(x=(x, "var"), dtype=[("a", "f4")])
    with pytest.raises(ValueError, match=r"^x: expected statistics among .*; got 1$"):
        groups.agg(x=(x, 1))
    with pytest.raises(ValueError, match=r"^x: expected statistics among .*; got True$"):
        groups.agg(x=(x, True))
    result = groups.agg(x=(x, "mean"), skipna=False)["x"]["mean"]
    np.testing.assert_array_equal(host(result), [3, np.nan, np.nan])
    np.testing.assert_array_equal(host(groups.agg(x=(x, "mean"))["x"]["mean"]), [3, np.nan, 2])


def test_functions_of_the_caller_are_not_kept(groups):
    groups, x = groups

    def mean_of(values):
        return values.mean()

    reference = weakref.ref(mean_of)
    with pytest.raises(ValueError, match=r"^x: expected statistics among"):
        groups.agg(x=(x, mean_of))
    del mean_of
    gc.collect()
    assert reference() is None


@pytest.mark.parametrize("on_device", [False, True])
def test_new_results_by_fields(queue, on_device):
    """A tuple of contiguous arrays, new at each call and at other sizes; other results stay single arrays."""
    pair = operators.product(
        {"sum": operators.add(np.int64), "most": operators.maximum(np.int32)},
        struct_of({"sum": np.dtype(np.int64), "most": np.dtype(np.int32)}),
        lift="(accumulator_t){v.sum, v.most}",
        finish="(value_t){a.sum, a.most}",
    )
    engine = Engine.of(
        queue.context,
        {"both": pair, "count": operators.count(np.int64)},
        arguments="const int *bins, const int *x",
        map="EMIT_both(bins[i], ((value_both_t){x[i], x[i]})); EMIT_count(bins[i], 1)",
        emits=1,
        by_fields=True,
    )
    rng, earlier = np.random.default_rng(0), []
    for size, bins in [(1000, 7), (1000, 7), (1100, 7), (50_000, 9), (0, 3)]:
        args = rng.integers(0, bins, size, np.int32), rng.integers(-9, 9, size, np.int32)
        arrays = [cl_array.to_device(queue, array) for array in args] if on_device else args
        (sums, most), counts = engine.run(arrays, Call(bins, queue=queue)).results
        assert (sums.dtype, most.dtype, counts.dtype) == (np.int64, np.int32, np.int64)
        greatest = np.full(bins, np.iinfo(np.int32).min)
        np.maximum.at(greatest, args[0], args[1])
        np.testing.assert_array_equal(host(sums), np.bincount(args[0], args[1], bins))
        np.testing.assert_array_equal(host(most), greatest)
        np.testing.assert_array_equal(host(counts), np.bincount(args[0], minlength=bins))
        assert not {id(array) for array in (sums, most, counts)} & {id(array) for array in earlier}
        earlier += [sums, most, counts]
    dest = tuple(np.full(3, 2, dtype) for dtype in (np.int64, np.int32))
    dest = tuple(cl_array.to_device(queue, array) for array in dest) if on_device else dest
    (sums, most), _ = engine.run(arrays, Call(3, dest={"both": dest}, queue=queue)).results
    np.testing.assert_array_equal(host(sums), [2, 2, 2])
    np.testing.assert_array_equal(host(most), [2, 2, 2])
