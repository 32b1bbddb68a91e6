"""Wrong arguments of reduce_by_index and bincount: each is refused before anything is computed, by its name."""

from __future__ import annotations

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
from arrays import read_only

from clhist import Operator, bincount, group_by, histogram, operators, reduce_by_index

pytestmark = pytest.mark.usefixtures("without_optimizer")

ZEROS, INDICES = np.zeros(3, np.int32), np.array([0, 1, 1])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((None, np.add, INDICES, 1), TypeError, "dest: expected an array, a shape or a number of bins, got None"),
        ((2.5, np.add, INDICES, 1), TypeError, "dest: expected an array, a shape or a number of bins, got 2.5"),
        ((np.array(0), np.add, INDICES, 1), ValueError, "dest: expected one dimension or more .* got shape \\(\\)"),
        ((np.zeros((3, 2)), np.add, INDICES, INDICES), ValueError, "values: expected shape .3, 2. as of indices, got"),
        ((np.zeros(0), np.add, INDICES, 1), ValueError, "dest: expected .* at least one bin, got shape .0,."),
        ((np.float64(0), np.add, INDICES, 1), ValueError, "dest: expected one dimension .* got shape .."),
        ((np.zeros(3, np.longdouble), np.add, INDICES, 1), TypeError, "(op|dest): .*OpenCL has no type for"),
        ((np.zeros(3, "U1"), np.add, INDICES, 1), TypeError, "(op|dest): .*OpenCL has no type for <U1"),
        (([[1], [1, 2]], np.add, INDICES, 1), ValueError, "dest: setting an array element"),
        ((ZEROS, np.subtract, INDICES, 1), TypeError, "op: expected a clhist.Operator, .* got <ufunc 'subtract'>"),
        ((ZEROS, "a - b", INDICES, 1), TypeError, "op: expected a clhist.Operator, .* got 'a - b'"),
        ((ZEROS, None, INDICES, 1), TypeError, "op: expected a clhist.Operator, .* got None"),
        ((ZEROS, operators.add(np.int64), INDICES, 1), TypeError, "op: expected an operator on int32, got"),
        ((np.zeros(3, np.complex64), np.maximum, INDICES, 1), TypeError, "op: .*expected an integer or a float"),
        ((ZEROS, np.add, INDICES / 2, 1), TypeError, "indices: expected integers, got float64"),
        ((ZEROS, np.add, INDICES > 0, 1), TypeError, "indices: expected integers, got bool"),
        ((ZEROS, np.add, "abc", 1), TypeError, "indices: expected integers, got <U3"),
        ((ZEROS, np.add, INDICES, [1, 2]), ValueError, "values: expected shape .3,. as of indices, got .2,."),
        ((ZEROS, np.add, INDICES, [[1, 2, 3]]), ValueError, "values: expected shape .3,. as of indices, got .1, 3."),
        ((ZEROS, np.add, INDICES, [1.0, 2.0, 3.0]), TypeError, "values: expected what converts to int32"),
        ((ZEROS.astype("u4"), np.add, INDICES, [1, 2, 3]), TypeError, "values: expected what converts to uint32"),
        ((ZEROS, np.add, INDICES, ["a", "b", "c"]), TypeError, "values: expected what converts to int32 .* got <U1"),
        ((ZEROS, np.add, INDICES, 1.5), ValueError, "values: 1.5 does not fit int32"),
        ((ZEROS.astype("u4"), np.add, INDICES, -1), ValueError, "values: -1 does not fit uint32"),
        ((ZEROS, np.add, INDICES, "1"), TypeError, "values: expected a scalar of int32, got str"),
        ((ZEROS, np.add, INDICES, None), TypeError, "values: expected a scalar of int32, got NoneType"),
    ],
)  # fmt: skip
def test_reduce_by_index_refuses(arguments, error, message):
    out = np.full(3, -1, np.int32)
    with pytest.raises(error, match=f"^{message}"):
        reduce_by_index(*arguments, out=out)
    assert out.tolist() == [-1] * 3


def test_an_unknown_choice():
    with pytest.raises(TypeError, match=r"speed"):
        reduce_by_index(ZEROS, np.add, INDICES, 1, speed="fast")


@pytest.mark.parametrize("name", ["dest", "indices", "values"])
def test_reduce_by_index_refuses_mixed_arrays(name, queue, other_queue):
    given = {"dest": ZEROS, "indices": INDICES, "values": INDICES.astype(np.int32)}
    there = {key: cl_array.to_device(queue, array) for key, array in given.items()}
    with pytest.raises(
        TypeError, match=r"expected a PyOpenCL array as .* is, got a NumPy array; clhist copies nothing"
    ):
        reduce_by_index(op=np.add, **{**there, name: given[name]})
    with pytest.raises(ValueError, match=r"^(dest|indices|values): expected an array of the context"):
        reduce_by_index(op=np.add, **{**there, name: cl_array.to_device(other_queue, given[name])})
    with_gaps = cl_array.to_device(queue, np.repeat(given[name], 2))[::2]
    with pytest.raises(ValueError, match=f"^{name}: expected a contiguous array"):
        reduce_by_index(op=np.add, **{**there, name: with_gaps})


def test_bincount_refuses_device_arrays_by_name(queue, other_queue):
    x, weights = cl_array.to_device(queue, INDICES), cl_array.to_device(queue, np.ones(3))
    gaps = cl_array.to_device(queue, np.arange(6))[::2]
    with pytest.raises(ValueError, match=r"^x: expected a contiguous array"):
        bincount(gaps)
    with pytest.raises(ValueError, match=r"^weights: expected a contiguous array"):
        bincount(x, gaps)
    with pytest.raises(TypeError, match=r"^weights: expected a PyOpenCL array as x is, got a NumPy array"):
        bincount(x, np.ones(3))
    with pytest.raises(TypeError, match=r"^x: expected a PyOpenCL array as weights is, got a NumPy array"):
        bincount(INDICES, weights)
    with pytest.raises(ValueError, match=r"^weights: expected an array of the context"):
        bincount(x, cl_array.to_device(other_queue, np.ones(3)))
    with pytest.raises(ValueError, match=r"^(x|queue): expected"):
        bincount(x, queue=other_queue)


@pytest.mark.parametrize(
    ("out", "error", "message"),
    [
        (np.full(3, -1, np.intp), ValueError, "out: expected shape .2,., got .3,."),
        (np.full(2, -1, np.float64), TypeError, "out: expected an array of int64, got one of float64"),
        (read_only(np.full(2, -1, np.intp)), ValueError, "out: expected an array that can be written"),
        ([-1, -1], TypeError, "out: expected a NumPy or PyOpenCL array of int64, got list"),
    ],
)
def test_bincount_refuses_out(out, error, message):
    with pytest.raises(error, match=f"^{message}"):
        bincount(INDICES, out=out)
    assert set(np.asarray(out).tolist()) == {-1}


PAIR = np.dtype([("a", "i4"), ("b", "f4")], align=True)


@pytest.mark.parametrize(
    "values",
    [
        np.zeros(3, [("x", "i4"), ("y", "f4")]),
        np.zeros(3, [("b", "f4"), ("a", "i4")]),
        np.zeros(3, [("a", "i8"), ("b", "f8")]),
        np.zeros(3, [("a", "i4")]),
        np.zeros(3, "f4"),
        np.zeros((), [("b", "f4"), ("a", "i4")])[()],
    ],
    ids=lambda values: str(values.dtype),
)
def test_values_of_other_fields(values):
    pairs = Operator(PAIR, "((accumulator_t){a.a + b.a, a.b + b.b})", (0, 0))
    with pytest.raises(TypeError, match=r"^values: expected .*a int32.*b float32.*, got "):
        reduce_by_index(2, pairs, np.array([0, 1, 1]), values)


@pytest.mark.parametrize("on_device", [False, True])
def test_what_functions_refuse_is_so_before_anything_is_enqueued(on_device, queue, monkeypatch):
    """An `out` of another dtype, and bins that NumPy refuses, whose range would be computed first."""
    x, weights = np.arange(70_001) % 7, np.ones(70_001)
    floats, wrong = x.astype(np.float32), np.zeros(7, np.int8)
    if on_device:
        x, weights, floats, wrong = (cl_array.to_device(queue, each) for each in (x, weights, floats, wrong))
    calls = [
        (lambda: bincount(x, out=wrong, queue=queue), TypeError, "^out: expected an array of int64, got one of int8"),
        (lambda: bincount(x, weights, out=wrong, queue=queue), TypeError, "^out: expected an array of float64"),
        (lambda: histogram(floats, 7, out=wrong, queue=queue), TypeError, "^out: expected an array of int64"),
        (lambda: group_by((x, floats[:9]), queue=queue), ValueError, "^keys.1.: expected shape .70001,. as of keys.0."),
        (lambda: histogram(floats, 0, queue=queue), ValueError, "^`bins` must be positive"),
        (lambda: histogram(floats, 2.5, queue=queue), TypeError, "^`bins` must be an integer"),
        (lambda: histogram(floats, "no rule", queue=queue), ValueError, "^'no rule' is not a valid estimator"),
        (lambda: histogram(floats, "auto", weights=weights, queue=queue), TypeError, "^Automated estimation"),
    ]
    for command in [each for each in dir(cl) if each.startswith("enqueue_")]:
        monkeypatch.setattr(cl, command, None)
    for call, error, message in calls:
        with pytest.raises(error, match=message):
            call()
