"""Wrong operators, and wrong arguments of kernels with several: each is refused by its name."""

from __future__ import annotations

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import clhist
from clhist import HistogramKernel, Operator, operators

pytestmark = pytest.mark.usefixtures("without_optimizer")

SUM, PAIR = operators.add(np.int32), operators.argmax(np.float32)
PADDED = np.dtype({"names": ["a", "b"], "formats": ["i1", "i4"], "offsets": [0, 1], "itemsize": 5})
FIVE = np.zeros(5, np.int32)
COUNT = HistogramKernel(None, SUM, arguments="const int *x", map="EMIT(x[i], 1)")
STORE = HistogramKernel(None, SUM, arguments="const int *x, int *seen", map="seen[x[i]] = 7000; EMIT(x[i], 1)")


@pytest.fixture(scope="module")
def fused():
    """Return a kernel of a sum and an argmax."""
    return HistogramKernel(
        None, {"n": SUM, "best": PAIR}, arguments="const int *x", map="EMIT_n(x[i], 1); EMIT_best(0, (value_best_t){0})"
    )


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"num_bins": [5, 5]}, TypeError, "num_bins: expected a mapping of n, best, got list"),
        ({"num_bins": {"n": 5}}, TypeError, "num_bins: expected a mapping of n, best; best is missing"),
        (
            {"num_bins": {"n": 5, "best": 5, "x": 5}},
            TypeError,
            "num_bins: expected a mapping of n, best, got .'best', ",
        ),
        ({"num_bins": {"n": 0, "best": 5}}, ValueError, "num_bins.'n'.: expected at least 1, got 0"),
        ({"num_bins": {"n": 5, "best": None}}, TypeError, "num_bins.'best'.: expected an integer, got None"),
        ({"dest": FIVE}, TypeError, "dest: expected a mapping of n, best, got ndarray"),
        ({"dest": {"m": FIVE}}, TypeError, "dest: expected a mapping of n, best, got .'m'."),
        ({"dest": {"n": FIVE[:4]}}, ValueError, "dest.'n'.: expected shape .5,., got .4,."),
        ({"dest": {"n": FIVE.astype("f4")}}, TypeError, "dest.'n'.: expected an array of int32, got one of float32"),
        ({"out": {"n": FIVE, "best": FIVE}}, TypeError, "out.'best'.: expected an array of .* got one of int32"),
        ({"out": {"best": (FIVE,)}}, TypeError, "out.'best'.: expected a tuple of 2 arrays, .* got tuple of 1"),
        ({"out": {"best": [FIVE, FIVE]}}, TypeError, "out.'best'.: expected a NumPy or PyOpenCL array .* got list"),
        ({"out": {"best": (FIVE, FIVE)}}, TypeError, "out.'best'..'value'.: expected an array of float32, got"),
        (
            {"dest": {"best": np.zeros(5, PAIR.dtype)}, "out": {"best": (FIVE.view("f4"), FIVE.copy())}},
            TypeError,
            "dest.'best'.: expected a tuple of 2 arrays, one for each field of .*, got ndarray",
        ),
        (
            {"out": {"n": FIVE, "best": (np.zeros(5, np.float32), FIVE)}},
            ValueError,
            "out.'best'.: expected an array of its own, got one that overlaps out.'n'.",
        ),
    ],
)
def test_several_outputs_refuse(fused, changed, error, message):
    with pytest.raises(error, match=f"^{message}"):
        fused(np.zeros(9, np.int32), **{"num_bins": 5, **changed})
    assert not FIVE.any()


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"num_bins": [5]}, TypeError, "num_bins: expected a sequence of 2, one for each operator, got 1"),
        ({"num_bins": (5, 5, 5)}, TypeError, "num_bins: expected a sequence of 2, one for each operator, got 3"),
        ({"num_bins": {"0": 5, "1": 5}}, TypeError, "num_bins: expected a sequence of 2, one for each .* got dict"),
        ({"num_bins": [5, 0]}, ValueError, "num_bins.1.: expected at least 1, got 0"),
        ({"out": [FIVE]}, TypeError, "out: expected a sequence of 2, one for each operator, got 1"),
        ({"out": [FIVE, FIVE]}, ValueError, "out.1.: expected an array of its own, got one that overlaps out.0."),
    ],
)
def test_a_sequence_of_outputs_refuses(changed, error, message):
    kernel = HistogramKernel(None, [SUM, SUM], arguments="const int *x", map="EMIT0(x[i], 1); EMIT1(x[i], 1)")
    with pytest.raises(error, match=f"^{message}"):
        kernel(np.zeros(9, np.int32), **{"num_bins": 5, **changed})
    assert not FIVE.any()


@pytest.mark.parametrize(
    ("operator", "map", "error", "message"),
    [
        ([SUM, SUM], "EMIT0(0, 1)", ValueError, r"map: .* calls EMIT0\(bin, value\) and EMIT1\(.*, which lacks EMIT1"),
        ([SUM], "EMIT(0, 1)", ValueError, "map: expected C that calls EMIT0.*, which lacks EMIT0"),
        ([SUM], "EMIT0(0, 1); EMIT1(0, 1)", ValueError, "map: .* for 1 operator, got EMIT1 as well"),
        (SUM, "EMIT(0, 1); EMIT0(0, 1)", ValueError, "map: expected calls of EMIT.* for 1 operator, got EMIT0 as well"),
        ({"a": SUM}, "EMIT_a(0, 1); EMIT_b(0, 1)", ValueError, "map: .* for 1 operator, got EMIT_b as well"),
        ({"a": SUM, "b": SUM}, "EMIT_a(0, 1)", ValueError, "map: .* which lacks EMIT_b"),
        ([], "EMIT(0, 1)", ValueError, "operator: expected at least one, got none"),
        ({}, "EMIT(0, 1)", ValueError, "operator: expected at least one, got none"),
        ([SUM, np.add], "EMIT0(0, 1)", TypeError, "operator.1.: expected a clhist.Operator, got <ufunc 'add'>"),
        ({"a": "a + b"}, "EMIT_a(0, 1)", TypeError, "operator.'a'.: expected a clhist.Operator, got 'a . b'"),
        ({"a b": SUM}, "EMIT(0, 1)", ValueError, "operator: expected names that C identifiers can end in, got 'a b'"),
        ({1: SUM}, "EMIT_1(0, 1)", ValueError, "operator: expected names that C identifiers can end in, got 1"),
    ],
)
def test_kernels_of_several_operators_refused(operator, map, error, message):
    with pytest.raises(error, match=f"^{message}"):
        HistogramKernel(None, operator, arguments="", map=map)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Operator(PADDED, "a.b < b.b ? a : b", (0, 0)), TypeError, "dtype: field 'b' of .* at byte 1 where C"),
        (
            lambda: Operator([("o", object)], "a.o + b.o", (0,)),
            TypeError,
            "dtype, field 'o': OpenCL has no type for ob",
        ),
        (lambda: operators.product({"x": SUM}, PADDED), TypeError, "dtype: field 'b' of .* lies at byte 1 where C"),
        (lambda: operators.product({"x": SUM}, np.int32), ValueError, "lift: expected a C expression of v, since no"),
        (
            lambda: Operator(np.float32, "a + b", 0, accumulator=np.int32, lift="(int)(v * 256)"),
            ValueError,
            "finish: expected a C expression of a, which makes float32 of the accumulator's int32, since lift is given",
        ),
        (
            lambda: Operator(np.int32, "a + b", 0, equivalents=operators.add(np.int64)),
            TypeError,
            "equivalents: expected an operator on int32, got one on int64",
        ),
        (lambda: operators.mean(np.int32), TypeError, "dtype: expected a float or a complex number, got int32"),
        (lambda: operators.variance(np.float32, -1), ValueError, "ddof: expected a non-negative integer, got -1"),
        (lambda: operators.variance(np.float32, 0.5), ValueError, "ddof: expected a non-negative integer, got 0.5"),
        (lambda: operators.first(np.complex64), TypeError, "dtype: expected an integer or a float, got complex64"),
        (lambda: operators.last(np.int8, np.float32), TypeError, "index_dtype: expected an integer, got float32"),
        (lambda: operators.argmax(np.int8, np.bool_), TypeError, "index_dtype: expected an integer, got bool"),
        (lambda: operators.product({}), TypeError, "operators: expected a mapping of at least one field .* got ..$"),
        (lambda: operators.product([SUM]), TypeError, "operators: expected a mapping of at least one field to its op"),
        (lambda: operators.product({"x": "a + b"}), TypeError, "operators.'x'.: expected a clhist.Operator, got 'a "),
    ],
)
def test_operators_refused(make, error, message):
    with pytest.raises(error, match=f"^{message}"):
        make()


@pytest.mark.parametrize(
    ("dtype", "call"),
    [
        ("i8", lambda x, out: clhist.reduce_by_index(len(out), "sum", x, 1, out=out)),
        ("i4", lambda x, out: clhist.reduce_by_index(out, "sum", x, 1, out=out)),
        ("i8", lambda x, out: clhist.bincount(x, out=out)),
        ("i8", lambda x, out: clhist.histogram(x, len(out), (0, 9), out=out)),
        ("i4", lambda x, out: COUNT(x, num_bins=len(out), out=out)),
        ("i4", lambda x, out: STORE(x, out, num_bins=10)),
    ],
    ids=["sums", "in place", "counts", "histogram", "kernel", "argument of a map"],
)
def test_a_buffer_that_kernels_may_only_read(queue, dtype, call):
    """OpenCL leaves open what a write to it does; calls before and after, on arrays alike, are right."""
    x = cl_array.to_device(queue, np.arange(70_000, dtype=np.int32) % 10)
    flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
    for _ in range(4):
        out = cl_array.zeros(queue, 10, dtype)
        call(x, out)
        assert (out.get() == 7000).all()
        fixed = cl_array.Array(
            queue, 10, dtype, data=cl.Buffer(queue.context, flags, hostbuf=np.arange(10, dtype=dtype))
        )
        with pytest.raises(
            ValueError, match=r"^(out|seen): expected an array that can be written, got a read-only one"
        ):
            call(x, fixed)
        assert (fixed.get() == np.arange(10)).all()
