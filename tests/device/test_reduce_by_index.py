"""`reduce_by_index` against `ufunc.at`, for all dtypes and every way to pass its arguments."""

from __future__ import annotations

import numpy as np
import pyopencl as cl
import pytest
from arrays import read_only, strided
from covering import covering, mostly_slow
from thresholds import threshold

import clhist
from clhist import operators, reduce_by_index
from clhist._core.opencl.device import claims
from clhist._core.runtime import small
from clhist._core.runtime.launcher import OpenCLExecutable
from clhist.operators.host import passes
from clhist.operators.names import operator_on_values
from clhist.selftest.cases import CASES, problem, random_values, ufunc_case
from clhist.selftest.reference import groups_of

pytestmark = pytest.mark.usefixtures("any_profile")

DTYPES = {
    np.add: "? i1 u1 i2 u2 i4 u4 i8 u8 f4 f8 c8 c16",
    np.multiply: "? i1 u2 i4 u8 f4 f8 c8 c16",
    np.minimum: "? i1 u2 i4 u8 f4 f8",
    np.maximum: "? u1 i2 u4 i8 f4 f8",
    np.fmin: "i2 f4",
    np.fmax: "u4 f8",
    np.bitwise_and: "? i1 u4 i8",
    np.bitwise_or: "? u2 u8",
    np.bitwise_xor: "? i2 i4",
    np.logical_and: "? u1",
    np.logical_or: "? i8",
    np.logical_xor: "? f8",
}


# As a GPU, what test_conformance.py does not check there.
AS_A_GPU = {
    np.add: "? i1 u1 i2 u2 f8 c16",
    np.multiply: "? u2 c16",
    np.minimum: "i1",
    np.maximum: "u1",
    np.fmin: "i2",
    np.bitwise_or: "u2",
    np.logical_and: "?",
}
UFUNCS = [
    (ufunc, dtype, profile)
    for profile, table in (("own profile", DTYPES), ("as a GPU", AS_A_GPU))
    for ufunc, dtypes in table.items()
    for dtype in dtypes.split()
]


@pytest.mark.parametrize(
    ("ufunc", "dtype", "any_profile"),
    mostly_slow(UFUNCS, 2),
    indirect=["any_profile"],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_ufuncs(ufunc, dtype, any_profile, rng):
    case = ufunc_case(ufunc, dtype)
    indices, dest, values = rng.integers(0, 40, 1500), case.draw(rng, 40), case.draw(rng, 1500)
    result = reduce_by_index(dest, ufunc, indices, values)
    if case.bound is None:
        expected = dest.copy()
        ufunc.at(expected, indices, values)
        np.testing.assert_array_equal(result, expected, strict=True)
    else:
        everything = np.concatenate([np.arange(40), indices]), np.concatenate([dest, values])
        case.check(groups_of(*everything, 40))(result)


@pytest.mark.parametrize("any_profile", ["own profile"], indirect=True)
@pytest.mark.parametrize("name", CASES)
def test_operators(name, any_profile):
    bins, values, check = problem(name)
    operator = CASES[name].operator
    value = 0 if name.startswith("reproducible_add") else operator.neutral  # whose accumulators are words
    neutral = np.full(37, np.array(value).astype(operator.dtype), operator.dtype)
    check(reduce_by_index(neutral, operator, bins, values))


@pytest.mark.parametrize(
    ("expression", "ufunc"), [("a + b", np.add), ("max(a, b)", np.maximum), ("a < b ? a : b", np.minimum)]
)
def test_expressions(expression, ufunc, rng):
    indices, dest, values = rng.integers(0, 40, 500), random_values(rng, 40, "i4"), random_values(rng, 500, "i4")
    expected = dest.copy()
    ufunc.at(expected, indices, values)
    np.testing.assert_array_equal(reduce_by_index(dest, expression, indices, values), expected, strict=True)


CONVERTED = [
    ("i4", "i1"), ("i4", "u2"), ("i4", "?"), ("u1", "?"), ("i1", "i8"), ("u8", "u1"), ("i8", "u4"),
    ("f4", "i4"), ("f4", "f8"), ("f8", "f4"), ("f8", "u8"), ("f8", "?"),
    ("c8", "f8"), ("c16", "c8"), ("c8", "c16"), ("c16", "i8"), ("c8", "?"),
]  # fmt: skip


# As a GPU, whose loads are of 16 bytes, values of each width.
CONVERTED_BY_A_GPU = [("i4", "i1"), ("i4", "u2"), ("f4", "i4"), ("f4", "f8"), ("c8", "c16")]


@pytest.mark.parametrize(
    ("dest", "values", "any_profile"),
    [*((*pair, "own profile") for pair in CONVERTED), *((*pair, "as a GPU") for pair in CONVERTED_BY_A_GPU)],
    indirect=["any_profile"],
)
def test_values_of_another_dtype(dest, values, any_profile, rng):
    # Small whole numbers: exact in all of them.
    given = (rng.integers(0, 2 if values == "?" else 100, 500) * (1j if values[0] == "c" else 1)).astype(values)
    indices, before = rng.integers(0, 10, 500), rng.integers(0, 100, 10).astype(dest)
    expected = before.copy()
    np.add.at(expected, indices, given.astype(dest))
    np.testing.assert_array_equal(reduce_by_index(before, np.add, indices, given), expected, strict=True)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("i4", 3), ("i4", np.int64(-3)), ("u1", 200), ("f4", 0.5), ("f8", 1), ("c8", 1 - 2j), ("c16", 2.5), ("?", True)],
)
def test_one_value_for_all(dtype, value, rng):
    indices, dest = rng.integers(0, 10, 500), rng.integers(0, 2, 10).astype(dtype)
    expected = dest.copy()
    np.add.at(expected, indices, np.array(value, dtype))
    np.testing.assert_array_equal(reduce_by_index(dest, np.add, indices, value), expected, strict=True)


def test_one_pair_for_all():
    dest = np.array([(1, 10), (5, 10), (9, 10)], operators.argmax(np.int32).dtype)
    result = reduce_by_index(dest, operators.argmax(np.int32), np.array([0, 1, 1, 2]), np.array((5, 3), dest.dtype)[()])
    assert result.tolist() == [(5, 3), (5, 3), (9, 10)]


@pytest.fixture
def example(rng):
    """Return dest, indices, values and the sums of both."""
    dest, indices, values = rng.integers(0, 99, 20), rng.integers(0, 20, 1000), rng.integers(-99, 99, 1000)
    expected = dest.copy()
    np.add.at(expected, indices, values)
    return dest, indices, values, expected


def test_result_is_a_new_array_unless_out_is_given(example):
    dest, indices, values, expected = example
    before = [array.copy() for array in (dest, indices, values)]
    result = reduce_by_index(dest, np.add, indices, values)
    assert not any(np.may_share_memory(result, array) for array in (dest, indices, values))
    out = np.full(20, -7)
    assert reduce_by_index(dest, np.add, indices, values, out=out) is out
    for array, content in zip((dest, indices, values), before, strict=True):
        np.testing.assert_array_equal(array, content)
    np.testing.assert_array_equal(result, expected, strict=True)
    np.testing.assert_array_equal(out, expected)
    assert reduce_by_index(dest, np.add, indices, values, out=dest) is dest
    np.testing.assert_array_equal(dest, expected)


@pytest.mark.parametrize("shift", [-3, 0, 3])
def test_out_may_overlap_dest(example, shift):
    dest, indices, values, expected = example
    buffer = np.zeros(40, dest.dtype)
    buffer[10:30] = dest
    out = buffer[10 + shift : 30 + shift]
    reduce_by_index(buffer[10:30], np.add, indices, values, out=out)
    np.testing.assert_array_equal(out, expected)


def test_out_may_overlap_values(example):
    dest, indices, values, expected = example
    np.testing.assert_array_equal(reduce_by_index(dest, np.add, indices, values, out=values[:20]), expected)


def test_lists(example):
    dest, indices, values, expected = example
    result = reduce_by_index(dest.tolist(), np.add, indices.tolist(), values.tolist())
    np.testing.assert_array_equal(result, expected, strict=True)


@pytest.mark.parametrize("shape", [(1000, 1), (10, 100), (5, 2, 100)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_more_dimensions(example, shape, order):
    dest, indices, values, expected = example
    shaped = np.asarray(indices.reshape(shape), order=order), values.reshape(shape)
    np.testing.assert_array_equal(reduce_by_index(dest, np.add, *shaped), expected)


def reversed_twice(array):
    return array[::-1].copy()[::-1]


def byte_swapped(array):
    return array.astype(array.dtype.newbyteorder())


@pytest.mark.parametrize("change", [strided, reversed_twice, byte_swapped, read_only])
@pytest.mark.parametrize("which", [0, 1, 2], ids=["dest", "indices", "values"])
def test_numpy_arrays_of_every_kind(example, which, change):
    *given, expected = example
    given[which] = change(given[which])
    dest, indices, values = given
    result = reduce_by_index(dest, np.add, indices, values)
    np.testing.assert_array_equal(result, expected, strict=True)


def test_no_indices(example):
    dest, *_ = example
    nothing = np.empty(0, np.int64)
    for values in (nothing, 5):
        np.testing.assert_array_equal(reduce_by_index(dest, np.add, nothing, values), dest, strict=True)


@pytest.mark.parametrize(
    "choices",
    [
        {"update": "lock", "memory": "global"},
        {"update": "cas", "memory": "local", "copies": 2},
        {"memory": "local", "passes": 3},
        {"work_group_size": 8, "copies": 5},
        {"race_factor": 63.0},
        {"memory_budget": 160},
    ],
    ids=str,
)
def test_choices_change_nothing_in_the_result(example, choices, queue):
    dest, indices, values, expected = example
    if choices.get("update") == "cas" and not claims(queue.device, "int64_base_atomics"):
        with pytest.raises(ValueError, match="update: 'cas' is not available for add on int64 in local memory"):
            reduce_by_index(dest, np.add, indices, values, **choices)
        return
    np.testing.assert_array_equal(reduce_by_index(dest, np.add, indices, values, **choices), expected, strict=True)


def test_an_event_may_be_asked_for(example):
    dest, indices, values, expected = example
    result, event = reduce_by_index(dest, np.add, indices, values, return_event=True)
    assert event.command_execution_status == cl.command_execution_status.COMPLETE
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    ("any_profile", "dtype", "lists"),
    covering(["own profile", "as a GPU"], ["i4", "u1", "f8", "?"], [([], []), ([], 1), ([[]], [[]])]),
    indirect=["any_profile"],
)
def test_empty_lists(any_profile, dtype, lists):
    indices, values = lists
    dest = np.array([1, 0, 1], dtype)
    expected = dest.copy()
    np.add.at(expected, indices, values)
    np.testing.assert_array_equal(reduce_by_index(dest, np.add, indices, values), expected, strict=True)


def test_an_empty_array_of_floats_is_no_index():
    with pytest.raises(TypeError, match=r"^indices: expected integers, got float64"):
        reduce_by_index(np.zeros(3), np.add, np.zeros(0), [])
    with pytest.raises(IndexError):
        np.add.at(np.zeros(3), np.zeros(0), [])


@pytest.mark.parametrize("update", [None, "lock"])
def test_dest_is_combined_without_elements_too(update):
    operator = operators.saturating_add(np.float64, 1)
    nothing, dest = np.zeros(0, np.int32), np.array([0.5, 5.0, 1.0])
    result = reduce_by_index(dest, operator, nothing, np.zeros(0), update=update)
    np.testing.assert_array_equal(result, [0.5, 1.0, 1.0])


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_argmax_of_indices_of_ones_own(dtype):
    x, own = np.array([1, 3, 2], np.float32), np.array([5, 6, 7], dtype)
    own[1] = np.iinfo(dtype).max
    found = reduce_by_index(2, "argmax", [0, 0, 1], (x, own))
    assert found.dtype["value"] == np.float32
    assert found["index"].dtype == dtype
    assert found.tolist() == [(3, np.iinfo(dtype).max), (2, 7)]


@pytest.mark.parametrize(
    "ufunc",
    [np.add, *(pytest.param(u, marks=pytest.mark.slow) for u in (np.multiply, np.maximum, np.fmin, np.bitwise_xor))],
)
def test_few_values_are_left_to_numpy(ufunc, rng, monkeypatch):
    """Unless there is a queue, with the same result as kernels; -1 and H belong to no bin."""
    counted, original = [], OpenCLExecutable.run
    monkeypatch.setattr(OpenCLExecutable, "run", lambda *args: counted.append(1) or original(*args))
    queue = clhist.default_queue()
    for dtype in ("i4", "u8") if ufunc is np.bitwise_xor else ("i4", "f4"):
        start = np.arange(7).astype(dtype)
        least = 401 * passes(operator_on_values(ufunc, start.dtype))
        monkeypatch.setitem(small.COSTS, "reduce_by_index", threshold(least))
        for size in (0, 1, 400, 401):
            indices, values = rng.integers(-1, 8, size), rng.normal(size=size).astype(dtype)
            if dtype == "f4":
                values[13::97] = np.nan
            for dest in (start, 7):
                before = len(counted)
                found = reduce_by_index(dest, ufunc, indices, values)
                assert len(counted) - before == (size > 400)
                expected = reduce_by_index(dest, ufunc, indices, values, queue=queue)
                assert len(counted) - before == 1 + (size > 400)
                is_wide = ufunc in (np.add, np.multiply) and dtype == "i4" and dest is not start  # nobody chose int32
                assert found.dtype == expected.dtype == np.dtype("i8" if is_wide else dtype)
                np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(start, np.arange(7).astype(dtype))  # untouched
