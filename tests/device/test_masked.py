"""Masked arrays: what is masked is left out, wherever it is; where that cannot be they are refused."""

from __future__ import annotations

import numpy as np
import pyopencl.array as cl_array
import pytest

from clhist import Accumulator, HistogramKernel, Operator, bincount, operators, reduce_by_index
from clhist._core.opencl.arrays import mask_of

pytestmark = pytest.mark.usefixtures("without_optimizer")

NUM_BINS = 40  # fewer than an int8 has, which -1 must leave out as well
KINDS = ["indices", "values", "both", "nothing", "everything"]
PAIR = np.dtype([("a", "i4"), ("b", "f4")], align=True)
PAIRS = Operator(PAIR, "((accumulator_t){a.a + b.a, a.b + b.b})", (0, 0))


def masks_of(kind, rng, size):
    """Return what is masked of indices and of values, and what is left."""
    share = {"indices": (0.3, 0), "values": (0, 0.3), "both": (0.3, 0.3), "nothing": (0, 0), "everything": (1, 0)}
    masks = [rng.random(size) < each for each in share[kind]]
    return *masks, ~(masks[0] | masks[1])


def masked(data, mask):
    return np.ma.array(data, mask=mask) if mask.any() else np.ma.array(data)


@pytest.mark.usefixtures("any_profile")
@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u4", "i8", "u8", ">i4"])
@pytest.mark.parametrize("kind", KINDS)
def test_reduce_by_index(kind, dtype, rng):
    indices, values = rng.integers(0, NUM_BINS, 3001).astype(dtype), rng.integers(0, 9, 3001)
    of_indices, of_values, left = masks_of(kind, rng, 3001)
    given = masked(indices, of_indices), masked(values, of_values)
    expected = np.bincount(indices[left].astype(int), values[left], NUM_BINS).astype(int)
    found = reduce_by_index(np.zeros(NUM_BINS, int), np.add, *given)
    assert type(found) is np.ndarray
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(given[0].data, indices)  # as they were
    np.testing.assert_array_equal(given[1].data, values)


def test_more_bins_than_an_index_can_name(rng):
    indices = np.ma.array(np.full(9, 255, np.uint8), mask=[True] * 3 + [False] * 6)
    assert reduce_by_index(300, "a + b", indices, np.int32(1)).nonzero()[0].tolist() == [255]
    assert reduce_by_index(300, "a + b", indices, np.int32(1))[255] == 6


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_bincount(kind, weighted, rng):
    x, weights = rng.integers(0, NUM_BINS, 3001), rng.integers(0, 9, 3001) / 4
    of_x, of_weights, left = masks_of(kind, rng, 3001)
    x[of_x] = -7  # of which NumPy's function would say something
    if not weighted:
        np.testing.assert_array_equal(bincount(masked(x, of_x)), np.bincount(x[~of_x]))
    else:
        found = bincount(masked(x, of_x), masked(weights, of_weights), 99)
        np.testing.assert_array_equal(found, np.bincount(x[left], weights[left], 99), strict=True)


def test_bincount_of_other_shapes_is_refused():
    x = np.ma.array([0, 1, 2], mask=[True, False, False])
    with pytest.raises(ValueError, match="same length"):
        bincount(x, [1.0, 2.0])
    with pytest.raises(ValueError, match="too deep"):
        bincount(x.reshape(1, 3))


def test_positions_stay(rng):
    values = np.ma.array([9.0, 3.0, 7.0, 8.0], mask=[True, False, False, False], dtype=np.float32)
    found = reduce_by_index(2, operators.argmax(np.float32), np.ma.array([0, 0, 0, 1], mask=[0, 0, 0, 1]), values)
    assert found["index"][0] == 2


def test_a_struct_with_a_masked_field(rng):
    values = np.ma.array([(1, 2.0)] * 4, PAIR, mask=[(False, False), (True, False), (False, True), (True, True)])
    assert reduce_by_index(1, PAIRS, np.zeros(4, int), values).tolist() == [(1, 2.0)]
    fields = np.ma.array([1, 1, 1, 1], mask=[0, 1, 0, 0], dtype="i4"), np.ma.array([2, 2, 2, 2], dtype="f4")
    fields[1].mask = [0, 0, 0, 1]
    assert reduce_by_index(1, PAIRS, np.zeros(4, int), fields).tolist() == [(2, 4.0)]
    nested = np.ma.zeros((2, 2), [("x", [("y", "f4", (3,))]), ("z", "i4")])
    nested["x"]["y"][0, 1, 2] = nested["z"][1, 0] = np.ma.masked
    assert mask_of(nested).tolist() == [[False, True], [True, False]]


@pytest.mark.usefixtures("any_profile")
@pytest.mark.parametrize("batch", ["none", "rows", "offsets"])
def test_vectors(batch, rng):
    indices, values = rng.integers(0, 5, (4, 50)), rng.integers(0, 9, (4, 50, 3))
    left = rng.random((4, 50)) < 0.7
    mask = np.broadcast_to(~left[..., None], values.shape)
    expected = np.zeros((4, 5, 3), int)
    for row in range(4):
        np.add.at(expected[row], indices[row][left[row]], values[row][left[row]])
    given = {"batched": True}
    if batch == "offsets":
        given = {"offsets": np.arange(5) * 50}
        indices, values, mask = indices.ravel(), values.reshape(200, 3), mask.reshape(200, 3)
    if batch == "none":
        given, expected = {}, expected.sum(0)
    found = reduce_by_index(np.zeros_like(expected), np.add, indices, np.ma.array(values, mask=mask), **given)
    np.testing.assert_array_equal(found, expected)
    mask = mask.copy()
    mask.reshape(-1, 3)[7] = [True, False, False]
    with pytest.raises(ValueError, match=r"^values: expected vectors masked as a whole .* part of their 3 components"):
        reduce_by_index(np.zeros_like(expected), np.add, indices, np.ma.array(values, mask=mask), **given)


def test_what_is_masked_is_not_the_largest(rng):
    """The quantum of reproducible sums comes from the largest value."""
    values = np.ma.array(np.append(rng.random(100), [1e300, np.nan]), mask=[False] * 100 + [True] * 2)
    found, expected = (
        reduce_by_index(1, "a + b", np.zeros(len(each), int), each, reproducible=True)
        for each in (values, values.data[:100])
    )
    np.testing.assert_array_equal(found, expected)


def test_a_stream(rng):
    accumulator, expected = Accumulator(np.add, NUM_BINS, dtype=int, chunk_bytes=1000), np.zeros(NUM_BINS, int)
    for kind in KINDS:
        indices, values = rng.integers(0, NUM_BINS, 999), rng.integers(0, 9, 999)
        of_indices, of_values, left = masks_of(kind, rng, 999)
        accumulator.add(masked(indices, of_indices), masked(values, of_values))
        np.add.at(expected, indices[left], values[left])
    np.testing.assert_array_equal(accumulator.result(), expected)


MASKED = np.ma.array(np.zeros(3, np.int32), mask=[False, True, False])


@pytest.mark.parametrize("name", ["x", "dest", "out"])
def test_a_kernel_refuses(name):
    kernel = HistogramKernel(None, operators.add(np.int32), arguments="const int *x", map="EMIT(x[i], 1)")
    given = {"x": np.zeros(3, np.int32)} | {name: MASKED}
    with pytest.raises(ValueError, match=f"^{name}: expected an array without missing elements"):
        kernel(given.pop("x"), num_bins=3, **given)
    if name == "x":
        with pytest.raises(ValueError, match=r"^x: expected an array without missing elements"):
            kernel.accumulator(3).add(MASKED)


def test_bins_are_not_masked(queue):
    with pytest.raises(ValueError, match=r"^dest: expected an array without missing elements"):
        reduce_by_index(MASKED, np.add, [0], np.int32(1))
    with pytest.raises(ValueError, match=r"^out: expected an array without missing elements"):
        reduce_by_index(np.zeros(3, np.int32), np.add, [0], np.int32(1), out=MASKED)
    assert reduce_by_index(np.ma.zeros(3, np.int32), np.add, [0], np.int32(1)).tolist() == [1, 0, 0]
    with pytest.raises(TypeError, match="copies nothing between host and device"):
        reduce_by_index(cl_array.zeros(queue, 3, np.int32), np.add, MASKED, cl_array.zeros(queue, 3, np.int32))
