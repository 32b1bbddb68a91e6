"""Values of a struct that come as one array for each field."""

from __future__ import annotations

import numpy as np
import pytest
from covering import covering

from clhist import Accumulator, Operator, operators, reduce_by_index

NUM_BINS = 40
PROFILES = ("own profile", "as a GPU")
WAYS = [{}, {"update": "sort"}, {"memory": "partitioned"}] + [
    {"update": update, "memory": memory} for update in ("cas", "lock") for memory in ("local", "global")
]


@pytest.fixture
def indices(rng):
    return rng.integers(-2, NUM_BINS + 2, 777)


def sums(indices, values, shape=(NUM_BINS,)):
    inside = (indices >= 0) & (indices < NUM_BINS)
    expected = np.zeros(shape, values.dtype)
    np.add.at(expected, indices[inside], values[inside])
    return expected


@pytest.mark.parametrize(
    ("dtype", "choices", "any_profile"),
    covering([np.uint8, np.uint16, np.float64, np.complex64], WAYS, PROFILES),
    indirect=["any_profile"],
    ids=str,
)
def test_a_struct_of_one_field(dtype, choices, any_profile, indices, rng):
    one = operators.product({"n": operators.add(dtype)})
    values = rng.integers(0, 9, len(indices)).astype(dtype)
    expected = sums(indices, values)
    found = reduce_by_index(NUM_BINS, one, indices, (values,), **choices)
    np.testing.assert_array_equal(found["n"], expected, strict=True)
    (found,) = reduce_by_index((np.zeros(NUM_BINS, dtype),), one, indices, (values,), **choices)
    np.testing.assert_array_equal(found, expected, strict=True)
    stream = Accumulator(one, NUM_BINS, **choices)
    stream.add(indices, (values,))
    np.testing.assert_array_equal(stream.result()["n"], expected, strict=True)


@pytest.mark.usefixtures("any_profile")
@pytest.mark.parametrize("size", [0, 1, 776])
def test_vectors_of_structs_of_one_field(size, indices, rng):
    dtype = np.dtype([("n", np.uint16)])
    largest = Operator(dtype, "b.n > a.n ? b : a", (0,))
    values = rng.integers(0, 9, (size, 3)).astype(np.uint16)
    expected = np.zeros((NUM_BINS, 3), np.uint16)
    for index, value in zip(indices[:size], values, strict=True):
        if 0 <= index < NUM_BINS:
            expected[index] = np.maximum(expected[index], value)
    for update in ("lock", "sort"):
        found = reduce_by_index((NUM_BINS, 3), largest, indices[:size], (values,), update=update)
        np.testing.assert_array_equal(found["n"], expected, strict=True)


@pytest.mark.parametrize(
    ("given", "dtype", "any_profile"),
    covering([np.int16, np.float32, np.float64, np.complex64, np.complex128], [np.complex64, np.complex128], PROFILES),
    indirect=["any_profile"],
)
def test_fields_of_complex_numbers_from_others(given, dtype, any_profile, indices, rng):
    both = operators.product({"c": operators.add(dtype), "n": operators.add(np.int32)})
    values = rng.integers(-9, 9, len(indices)).astype(given)
    if values.dtype.kind == "c":
        values += 1j * rng.integers(-9, 9, len(indices))
    counts = np.ones(len(indices), np.int8)
    found = reduce_by_index(NUM_BINS, both, indices, (values, counts))
    np.testing.assert_array_equal(found["c"], sums(indices, values.astype(dtype)), strict=True)
    np.testing.assert_array_equal(found["n"], sums(indices, counts.astype(np.int32)), strict=True)


@pytest.mark.parametrize("field", [("v", np.float32, 3), ("v", np.dtype([("x", np.int32)]))], ids=str)
@pytest.mark.parametrize("more", [[], [("n", np.int32)]])
def test_fields_that_are_no_scalars(field, more, indices):
    dtype = np.dtype([field, *more], align=True)
    either = Operator(dtype, "sizeof(a) ? a : b", np.zeros((), dtype).item())
    for values in (np.zeros(len(indices), dtype[0].base), np.zeros(len(indices), dtype)["v"]):
        with pytest.raises(
            TypeError, match=r"^values: expected one array of .*, whose fields are no scalars, got a tup"
        ):
            reduce_by_index(NUM_BINS, either, indices, (values, *[np.zeros(len(indices), np.int32)] * len(more)))
