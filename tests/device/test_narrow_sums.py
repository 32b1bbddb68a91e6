"""Sums and products into a number of bins are as wide as NumPy's; `dtype=` and an array `dest` say otherwise."""

import numpy as np
import pyopencl.array as cl_array
import pytest

import clhist

pytestmark = pytest.mark.usefixtures("without_optimizer")

NARROW = [np.bool_, np.uint8, np.int8, np.uint16, np.int16, np.uint32, np.int32]
SIZES = (500, 9000)  # NumPy computes the first


def data(dtype, size):
    values = np.full(size, 200 if np.dtype(dtype).itemsize > 1 or dtype is np.uint8 else 100).astype(dtype)
    return np.arange(size, dtype=np.int32) % 3, values


def expected(ufunc, indices, values):
    wide = {"b": np.int64, "i": np.int64, "u": np.uint64}[values.dtype.kind]
    result = np.full(3, ufunc.identity, wide)
    ufunc.at(result, indices, values.astype(wide))
    return result


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", NARROW)
def test_integers(queue, dtype, size):
    indices, values = data(dtype, size)
    on_device = cl_array.to_device(queue, indices), cl_array.to_device(queue, values)
    for ufunc, names in ((np.add, ("sum", "add", np.add, "a + b")), (np.multiply, ("prod", np.multiply, "b * a"))):
        right = expected(ufunc, indices, values)
        for op in names:
            for arrays in ((indices, values), on_device) if op in names[:2] else ((indices, values),):
                found = clhist.reduce_by_index(3, op, *arrays)
                assert found.dtype == right.dtype
                np.testing.assert_array_equal(found if isinstance(found, np.ndarray) else found.get(), right)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision(queue, dtype):
    dtype = np.dtype(dtype) if dtype == "float16" else np.dtype(pytest.importorskip("ml_dtypes").bfloat16)
    indices, values = np.zeros(9000, np.int32), np.ones(9000, dtype)  # neither has 9000 + 1
    found = clhist.reduce_by_index(1, "sum", indices, values)
    assert found.dtype == np.float32
    assert found.tolist() == [9000]
    assert clhist.reduce_by_index(1, "sum", indices, values, dtype=dtype).dtype == dtype


def test_what_chooses_another_dtype(queue):
    indices, values = data(np.uint8, 9000)
    wrapped = expected(np.add, indices, values).astype(np.uint8)
    on_device = cl_array.to_device(queue, indices), cl_array.to_device(queue, values)
    for arrays in ((indices, values), (indices[:500], values[:500]), on_device):
        right = wrapped if arrays[0].size > 500 else expected(np.add, *arrays).astype(np.uint8)
        for _ in range(2):
            found = clhist.reduce_by_index(3, "sum", *arrays, dtype=np.uint8)
            assert found.dtype == np.uint8
            assert (found if isinstance(found, np.ndarray) else found.get()).tolist() == right.tolist()
    out = np.empty(3, np.uint8)
    assert clhist.reduce_by_index(3, "sum", indices, values, out=out) is out
    assert out.tolist() == wrapped.tolist()
    assert clhist.reduce_by_index(np.zeros(3, np.uint8), "sum", indices, values).tolist() == wrapped.tolist()
    as_floats = clhist.reduce_by_index((3,), "sum", indices, values, dtype="f4")
    assert as_floats.dtype == np.float32
    assert as_floats.tolist() == [600000.0] * 3
    assert clhist.reduce_by_index(3, "count", indices, values, dtype=np.int32).dtype == np.int32
    assert clhist.reduce_by_index(3, "mean", indices, values, dtype=np.float32).dtype == np.float32
    assert clhist.Accumulator("sum", 3, dtype=np.uint8).add(indices, values).result().tolist() == wrapped.tolist()
    # Extremes need no more than their values.
    assert clhist.reduce_by_index(3, "max", indices, values).dtype == np.uint8


def test_other_ways_in():
    indices, values = data(np.uint8, 9000)
    right = expected(np.add, indices, values)
    rows = np.stack([values, values], 1)
    by_rows = clhist.reduce_by_index((3, 2), "sum", indices, rows)
    assert by_rows.tolist() == [[n, n] for n in right]
    batch = clhist.reduce_by_index((2, 3), "sum", indices.reshape(2, -1), values.reshape(2, -1), batched=True)
    assert batch.sum(0).tolist() == right.tolist()
    assert clhist.reduce_by_index(3, "sum", indices, values, devices="all").tolist() == right.tolist()
    assert clhist.reduce_by_index(3, "sum", indices, np.uint8(200)).tolist() == right.tolist()
    assert clhist.reduce_by_index(1, "sum", [0, 0, 0], [True, True, True]).tolist() == [3]


def test_dtype_refused():
    indices, values = data(np.uint8, 9)
    for dest, op, message in [
        (np.zeros(3), "sum", "dtype: expected none, since dest is an array"),
        (3, clhist.operators.add(np.uint8), "dtype: expected none, since op is on uint8"),
        (3, "sum", "dtype: expected a NumPy dtype"),
    ]:
        with pytest.raises(TypeError, match=message):
            clhist.reduce_by_index(dest, op, indices, values, dtype="f4" if "NumPy" not in message else "no dtype")
    with pytest.raises(TypeError, match="values: expected what converts to int32"):
        clhist.reduce_by_index(3, "sum", indices, values * 0.5, dtype=np.int32)
