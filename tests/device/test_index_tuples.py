"""Tuples of indices, as of `numpy.add.at`: they index the leading dimensions of `dest` together."""

import numpy as np
import pyopencl.array as cl_array
import pytest

import clhist
from clhist.operators import as_operator

pytestmark = pytest.mark.usefixtures("without_optimizer")

SHAPES = [((5, 5), 2, (20,)), ((5, 4), 1, (20,)), ((4, 5, 6), 2, (3, 7)), ((4, 2, 3), 3, (9000,)), ((3,), 1, (9,))]
SHAPES += [((5, 4), 2, ()), ((4, 3), 2, (0,))]


def added(dest, indices, values):
    result = dest.copy()
    np.add.at(result, indices, values)
    return result


@pytest.mark.parametrize(("shape", "number", "of_indices"), SHAPES)
def test_as_numpy(queue, shape, number, of_indices):
    rng = np.random.default_rng(len(shape))
    kinds = np.int64, np.uint8, np.int32
    indices = tuple(rng.integers(0, n, of_indices).astype(kinds[k]) for k, n in enumerate(shape[:number]))
    dest = rng.integers(0, 9, shape)
    values = rng.integers(0, 9, of_indices + shape[number:])
    right = added(dest, indices, values)
    for given in (values, 1):
        found = clhist.reduce_by_index(dest, np.add, indices, given)
        np.testing.assert_array_equal(found, added(dest, indices, given))
    out = dest.copy()
    assert clhist.reduce_by_index(out, np.add, indices, values, out=out) is out
    np.testing.assert_array_equal(out, right)
    found = clhist.reduce_by_index(shape, "sum", indices, values)
    np.testing.assert_array_equal(found, right - dest)
    if of_indices:
        on_device = tuple(cl_array.to_device(queue, each) for each in indices)
        found = clhist.reduce_by_index(shape, "sum", on_device, cl_array.to_device(queue, values))
        np.testing.assert_array_equal(found.get(), right - dest)


def test_indices_broadcast(queue):
    rows, columns, dest = np.arange(5)[:, None], np.array([0, 2, 2]), np.zeros((5, 5))
    for indices in ((rows, columns), (3, columns), (rows, 4)):
        right = added(dest, indices, 1)
        np.testing.assert_array_equal(clhist.reduce_by_index(dest, np.add, indices, 1), right)
        on_device = tuple(each if isinstance(each, int) else cl_array.to_device(queue, each) for each in indices)
        found = clhist.reduce_by_index(cl_array.to_device(queue, dest), np.add, on_device, 1)
        np.testing.assert_array_equal(found.get(), right)


def test_what_is_outside_or_masked_is_left_out(queue):
    y, x = np.array([0, -1, 2, 1, 1]), np.array([0, 0, 0, 5, 1])
    right = [[1, 0], [0, 1]]  # NumPy would count -1 from the end
    assert clhist.reduce_by_index((2, 2), "count", (y, x), 1).tolist() == right
    on_device = cl_array.to_device(queue, y), cl_array.to_device(queue, x)
    assert clhist.reduce_by_index((2, 2), "count", on_device, 1).get().tolist() == right
    masked = np.ma.array([0, 1, 1], mask=[False, True, False])
    assert clhist.reduce_by_index((2, 2), "sum", (masked, [0, 1, 1]), [4, 2, 1]).tolist() == [[4, 0], [0, 1]]
    assert clhist.reduce_by_index((2, 2), "sum", ([0, 1, 1], [0, 1, 1]), masked + 1).tolist() == [[1, 0], [0, 2]]


@pytest.mark.parametrize("number", [np.ma.array(1, mask=True), np.ma.array(1, mask=False), np.ma.array(1), 1, -1, 2])
def test_a_number_beside_arrays_may_be_masked(queue, number):
    rows = np.array([0, 1, 1])
    right = np.zeros((2, 2), int)
    if not np.ma.is_masked(number) and 0 <= int(number) < 2:
        right[:, int(number)] = 1, 2
    on_device = cl_array.to_device(queue, rows)
    for indices in ((rows, number), (on_device, number)):
        result = clhist.reduce_by_index((2, 2), "count", indices, 1)
        np.testing.assert_array_equal(result if indices[0] is rows else result.get(), right)


def test_other_results():
    pair = np.dtype([("a", np.float64), ("b", np.int64)], align=True)
    dests = np.zeros((2, 2)), np.zeros((2, 2), int)
    found = clhist.reduce_by_index(dests, as_operator(np.add, pair), ([0, 1], [0, 1]), (np.ones(2), np.full(2, 3)))
    assert [each.tolist() for each in found] == [[[1, 0], [0, 1]], [[3, 0], [0, 3]]]
    best = clhist.reduce_by_index((2, 2), "argmax", ([0, 1, 1], [0, 1, 1]), np.array([1.0, 2, 3]))
    assert best["index"][[0, 1], [0, 1]].tolist() == [0, 2]
    found, event = clhist.reduce_by_index(
        (2, 2), "sum", ([0, 1], [0, 1]), np.ones(2), reproducible=True, return_event=True
    )
    event.wait()
    assert found.tolist() == [[1, 0], [0, 1]]
    ones = np.ones((2, 2), np.int64)
    assert clhist.reduce_by_index(ones, "sum", ([0, 1], [0, 1]), [1, 2], devices="all").tolist() == [[2, 1], [1, 3]]


x, square = np.array([0, 2, 2]), np.zeros((5, 5))


@pytest.mark.parametrize(
    ("error", "message", "arguments", "options"),
    [
        (ValueError, "indices: expected a tuple of 1 to 2 arrays.*got 3", (square, np.add, (x, x, x), 1), {}),
        (ValueError, "indices: expected a tuple of 1 to 2 arrays.*got 0", (square, np.add, (), 1), {}),
        (
            ValueError,
            "indices: .*got 3; a sequence of numbers is given as a list",
            (np.zeros(3), "sum", (0, 1, 0), 1),
            {},
        ),
        (ValueError, "indices: expected arrays whose shapes broadcast", (square, np.add, (x, x[:2]), 1), {}),
        (TypeError, r"indices\[1\]: expected integers, got float64", (square, np.add, (x, x * 0.5), 1), {}),
        (TypeError, r"indices\[0\]: expected integers, got bool", (square, np.add, (x > 1, x), 1), {}),
        (TypeError, r"indices\[1\]: expected integers, got slice", (square, np.add, (x, slice(3)), 1), {}),
        (TypeError, "indices: expected one array in a batch", (square, np.add, (x, x), 1), {"batched": True}),
        (ValueError, "values: expected shape", (square, np.add, (x, x), np.ones(4)), {}),
        (ValueError, "out: expected shape", (square, np.add, (x, x), 1), {"out": np.zeros((5, 4))}),
        (ValueError, "out: expected a contiguous", (square, np.add, (x, x), 1), {"out": np.zeros((5, 10))[:, ::2]}),
    ],
)
def test_refused(error, message, arguments, options):
    with pytest.raises(error, match=f"^{message}"):
        clhist.reduce_by_index(*arguments, **options)
