"""`Accumulator`: what comes of input that is given piece by piece, and of merging."""

from __future__ import annotations

import numpy as np
import pyopencl.array as cl_array
import pytest
import streams
from covering import mostly_slow
from streams import AS_A_GPU, SUM, each_profile, every_path, pieces_of

from clhist import Accumulator, HistogramKernel, Operator, operators, reduce_by_index
from clhist._core.opencl.device import profile_context
from clhist.selftest.cases import CASES, PRODUCTS, problem, random_values
from clhist.selftest.reference import counts_of, groups_of

pytestmark = pytest.mark.usefixtures("without_optimizer")

path, example = streams.path, streams.example


# One for each kind of accumulator: words, parts, wider than its values, narrow ones, structs, products.
STREAMED = ["add int32", "add complex64", "logical_or bool", "saturating_add uint8", "gcd int8"]
STREAMED += ["argmax float32", "two largest", *PRODUCTS]
# One that takes another form on a GPU and one that must not, and of the others one for each way to update.
FORMS = ["argmax float32", "saturating_add uint8", "add int32", "add complex64", "mean float32", "variance float64"]
MERGED = [*(("in place", name) for name in STREAMED), *((AS_A_GPU, name) for name in FORMS)]
STAGED = [("staged", name) for name in ("add int32", "logical_or bool", "argmax float32", "mixed product")]


@pytest.mark.parametrize(("path", "name"), mostly_slow([*MERGED, *STAGED], 2), indirect=["path"])
def test_operators(name, path):
    bins, values, check = problem(name)
    accumulator = Accumulator((CASES | PRODUCTS)[name].operator, 37, chunk_bytes=1000)
    for piece in pieces_of(bins, values):
        accumulator.add(*piece)
        accumulator.result()  # which changes nothing
    assert accumulator.size == len(bins)
    check(accumulator.result())
    check(accumulator.result())


@pytest.mark.parametrize("ufunc", [np.add, np.maximum, np.logical_or, "a + b", "max(a, b)"])
def test_ufuncs_and_expressions(ufunc, example):
    indices, values, _ = example
    accumulator = Accumulator(ufunc, 40, dtype=np.int64, chunk_bytes=500)
    accumulator.add(indices, values)
    expected = np.full(40, operators.as_operator(ufunc, np.int64).neutral, np.int64)
    inside = (indices >= 0) & (indices < 40)
    {"a + b": np.add, "max(a, b)": np.maximum}.get(ufunc, ufunc).at(expected, indices[inside], values[inside])
    np.testing.assert_array_equal(accumulator.result(), expected, strict=True)


def test_nothing_added(path):
    assert Accumulator(np.add, 3, dtype=np.float32).result().tolist() == [0, 0, 0]
    assert Accumulator(np.minimum, 2, dtype=np.int8).result().tolist() == [127, 127]
    accumulator = Accumulator(np.add, 2, dest=np.array([3.0, 4.0]))
    accumulator.add(np.empty(0, np.int32), np.empty(0))
    accumulator.add(np.empty((3, 0), np.int32), 5)
    result = accumulator.result()
    assert isinstance(result, np.ndarray)
    assert (result.dtype, result.tolist(), accumulator.size) == (np.float64, [3, 4], 0)


@pytest.mark.parametrize(
    ("dtype", "index"),
    [("i1", ">i2"), ("u2", "u1"), ("?", "u1"), ("f2", ">i2"), ("f4", "u1"), (">i4", ">i2"), (">f8", ">i2")],
)
def test_values_of_another_dtype(dtype, index, path, rng):
    indices, values = rng.integers(0, 10, 700).astype(index), rng.integers(0, 2, 700).astype(dtype)
    accumulator = Accumulator(np.add, 10, dtype=np.float64, chunk_bytes=512)
    accumulator.add(indices, values)
    accumulator.add(indices, values.astype(np.float64))
    expected = [2.0 * sum(group) for group in groups_of(indices, values.astype(float), 10)]
    assert accumulator.result().tolist() == expected


def test_one_value_for_all(path, example):
    indices, *_ = example
    accumulator = Accumulator(np.add, 40, dtype=np.int32, chunk_bytes=512)
    accumulator.add(indices, 3)
    accumulator.add(indices, np.int64(-1))
    np.testing.assert_array_equal(accumulator.result(), 2 * counts_of(indices, 40))


@pytest.mark.parametrize("shape", [(3001, 1), (1, 3001), ()])
@pytest.mark.parametrize("order", ["C", "F"])
def test_more_dimensions_and_strides(shape, order, path, example):
    indices, values, expected = example
    accumulator = Accumulator(SUM, 40, chunk_bytes=700)
    accumulator.add(np.asarray(indices.reshape(shape or 3001), order=order), values.reshape(shape or 3001))
    np.testing.assert_array_equal(accumulator.result(), expected)
    spread = np.repeat(np.stack([indices[:3000], values[:3000]], axis=1).reshape(30, 100, 2), 2, axis=1)[:, ::2]
    accumulator.add(np.asarray(spread[..., 0], order=order), spread[..., 1])
    accumulator.add(indices[3000:].tolist(), values[3000:].tolist())
    np.testing.assert_array_equal(accumulator.result(), 2 * expected)


@every_path
def test_out_of_order_queue(path, out_of_order_queue, example):
    indices, values, expected = example
    accumulator = Accumulator(SUM, 40, queue=out_of_order_queue, chunk_bytes=256)
    accumulator.add(indices, values)
    accumulator.merge(accumulator, allow_repeat=True)
    accumulator.add(indices, values)
    np.testing.assert_array_equal(accumulator.result(), 3 * expected)


@each_profile
def test_floats_agree_with_one_call(path, rng):
    indices, values = rng.integers(0, 30, 5000, np.int32), random_values(rng, 5000, np.float32)
    accumulator = Accumulator(np.add, 30, dtype=np.float32, chunk_bytes=777)
    accumulator.add(indices, values)
    size = [sum(map(abs, group)) for group in groups_of(indices, values, 30)]
    whole = reduce_by_index(np.zeros(30, np.float32), np.add, indices, values)
    assert (np.abs(accumulator.result() - whole) <= 5000 * np.finfo(np.float32).eps * np.array(size)).all()


@pytest.mark.parametrize(
    "choices",
    mostly_slow(
        [
            {"update": "lock", "memory": "global"},
            {"update": "cas", "memory": "local", "copies": 2},
            {"memory": "local", "passes": 3},
            {"work_group_size": 8},
            {"update": "sort"},
            {"memory_budget": 640},
            {"race_factor": "sample"},
            {"race_factor": 7.5},
        ],
        2,
    ),
    ids=str,
)
@each_profile
def test_choices_change_nothing_in_the_result(choices, path, example):
    indices, values, expected = (array.astype(np.int32) for array in example)
    accumulator = Accumulator(np.add, 40, dtype=np.int32, chunk_bytes=4096, **choices)
    accumulator.add(indices, values)
    np.testing.assert_array_equal(accumulator.result(), expected)


# Kinds of arrays.


def test_device_arrays_give_device_arrays(path, queue, example):
    indices, values, expected = example
    accumulator = Accumulator(SUM, 40, queue=queue, chunk_bytes=64)
    accumulator.add(*(cl_array.to_device(queue, array) for array in (indices, values)))
    result = accumulator.result()
    assert isinstance(result, cl_array.Array)
    np.testing.assert_array_equal(result.get(), expected, strict=True)
    accumulator.add(indices, values)
    assert isinstance(accumulator.result(), np.ndarray)
    np.testing.assert_array_equal(accumulator.result(), 2 * expected, strict=True)
    accumulator.add(cl_array.to_device(queue, indices), 0)
    np.testing.assert_array_equal(accumulator.result().get(), 2 * expected)
    np.testing.assert_array_equal(result.get(), expected)  # is a copy


@every_path
def test_dest(path, queue, example):
    indices, values, expected = example
    dest = np.arange(40)
    for given in (dest, np.repeat(dest, 2)[::2], dest.astype(">i8"), cl_array.to_device(queue, dest)):
        accumulator = Accumulator(np.add, 40, dest=given, queue=queue, chunk_bytes=999)
        accumulator.add(indices, values)
        np.testing.assert_array_equal(accumulator.result(), expected + dest, strict=True)
    assert dest.tolist() == list(range(40))


@each_profile
def test_dest_is_a_value(path):
    accumulator = Accumulator(operators.mean(np.float32), 2, dest=np.array([1, 2], np.float32))
    accumulator.add(np.array([0, 0, 7], np.int32), np.array([4, 7, 9], np.float32))
    assert accumulator.result().tolist() == [4, 2]
    assert accumulator.partial().accumulators.tolist() == [(12, 3), (2, 1)]


# Positions.


@every_path
@pytest.mark.parametrize("start", [0, 10_000])
def test_positions_go_on(start, path, queue, rng):
    indices, values = rng.integers(0, 20, 3000), rng.integers(-9, 9, 3000).astype(np.float32)
    where = [np.flatnonzero(indices == k) for k in range(20)]
    best = [int(each[values[each].argmax()]) for each in where]
    for operator, dtype, expected in [
        (operators.argmax(np.float32, np.int64), np.int8, best),
        (operators.first(np.float32), np.float32, [int(each[0]) for each in where]),
    ]:
        accumulator = Accumulator(operator, 20, chunk_bytes=512, start=start, queue=queue)
        accumulator.add(indices[:1500], values[:1500].astype(dtype))
        accumulator.add(*(cl_array.to_device(queue, array[1500:2000]) for array in (indices, values)))
        accumulator.add(indices[2000:].reshape(10, 100), values[2000:].reshape(10, 100))
        result = accumulator.result()
        assert accumulator.size == 3000
        assert (result["index"] - start).tolist() == expected
        assert result["value"].tolist() == values[expected].tolist()


def test_pairs_keep_their_own_indices(path):
    operator = operators.argmax(np.float32)
    pairs = np.array([(1, 70), (5, 60), (5, 50)], operator.dtype)
    accumulator = Accumulator(operator, 1)
    accumulator.add(np.zeros(3, np.int32), pairs)
    accumulator.add(np.zeros(3, np.int32), (pairs["value"], pairs["index"] - 20))
    assert accumulator.result().tolist() == [(5, 30)]


def test_positions_that_do_not_fit_are_refused():
    accumulator = Accumulator(operators.first(np.float32), 2, start=2**31 - 8)
    accumulator.add(np.zeros(3, int), np.arange(3, dtype=np.float32))
    with pytest.raises(ValueError, match=r"^indices: the position 2147483648 does not fit int32 of the index"):
        accumulator.add(np.zeros(6, int), np.arange(6, dtype=np.float32))
    accumulator.add(np.ones(5, int), np.arange(5, dtype=np.float32))
    assert accumulator.result().tolist() == [(0, 2**31 - 8), (0, 2**31 - 5)]


# Partial results.


@pytest.mark.parametrize(("path", "name"), mostly_slow(MERGED), indirect=["path"])
def test_merge(name, path, other_queue):
    bins, values, check = problem(name)
    operator = (CASES | PRODUCTS)[name].operator
    parts = [Accumulator(operator, 37, queue=queue) for queue in (None, None, other_queue, None)]
    for accumulator, piece in zip(parts, pieces_of(bins, values, sizes=(5, 1000, 1500)), strict=True):
        accumulator.add(*piece)
    total, same, elsewhere, array = parts
    total.merge(same)
    total.merge(elsewhere)
    partial = array.partial()
    assert isinstance(partial.accumulators, np.ndarray)
    assert partial.accumulators.dtype == operator.portable().accumulator
    assert partial.size == 496
    total.merge(partial)
    assert total.size == len(bins)
    check(total.result())
    same.add(bins[:5], values[:5])
    assert (same.size, elsewhere.size, array.size) == (1005, 1500, 496)


@pytest.mark.parametrize("name", ["argmax float32", "add complex64", "mean float32"])
def test_merge_of_another_form(name, gpu_like, cpu_like):
    bins, values, check = problem(name)
    operator = (CASES | PRODUCTS)[name].operator
    with profile_context(cpu_like):
        own = [Accumulator(operator, 37) for _ in range(2)]
    with profile_context(gpu_like):
        others = [Accumulator(operator, 37) for _ in range(2)]
        for k, accumulator in enumerate([*own, *others]):
            accumulator.add(bins[k // 2 :: 2], values[k // 2 :: 2])
    assert own[0].partial().outputs == others[0].partial().outputs
    own[0].merge(others[0])
    others[1].merge(own[1])
    check(own[0].result())
    check(others[1].result())


def test_forms_that_no_value_can_stand_for_are_held_everywhere(gpu_like, cpu_like):
    # The number of distinct values modulo 32.
    bits = {"lift": "1u << v % 32", "finish": "popcount(a)", "accumulator": np.uint32}
    better = Operator(np.uint32, "max(a, b)", 0, **{**bits, "lift": "v", "finish": "a"})
    own, others = Operator(np.uint32, "a | b", 0, **bits, equivalents=better), []
    with profile_context(cpu_like):
        plain = Accumulator(own, 3)
    with profile_context(gpu_like):
        others.append(Accumulator(own, 3))
    for accumulator, values in ((plain, [1, 3]), (others[0], [3, 4])):
        accumulator.add(np.array([0, 2]), np.array(values, np.uint32))
    plain.merge(others[0])
    assert plain.result().tolist() == [3, 0, 4]  # by the form that is held everywhere


@each_profile
def test_merge_with_itself(path):
    accumulator = Accumulator(np.add, 3, dtype=np.float32, dest=np.array([1, 2, 3], np.float32))
    with pytest.raises(ValueError, match=r"^other: expected other elements, .*allow_repeat=True"):
        accumulator.merge(accumulator)
    accumulator.merge(accumulator, allow_repeat=True)
    accumulator.merge(accumulator.partial(), allow_repeat=True)
    assert accumulator.result().tolist() == [4, 8, 12]


@each_profile
def test_a_kernel_merges_with_pairs(path, queue, example):
    indices, values, expected = example
    kernel = HistogramKernel(None, SUM, arguments="const long *k, const long *v", map="EMIT(k[i], v[i])")
    first, second = kernel.accumulator(40), Accumulator(SUM, 40)
    first.add(indices, values)
    second.merge(first)
    second.merge(first.partial(), allow_repeat=True)
    np.testing.assert_array_equal(second.result(), 2 * expected)
