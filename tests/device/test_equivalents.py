"""Equivalent forms of operators against their own forms and against NumPy: on special values, at random, with dest."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyopencl as cl
import pytest

from clhist import HistogramKernel, Operator, operators
from clhist._core.model.problem import Choices, Problem
from clhist._core.model.sweeps import plan
from clhist.operators.c_types import c_name, declare, literal
from clhist.selftest.cases import Case, is_available, pair_kernel

pytestmark = pytest.mark.usefixtures("with_optimizer")

ORDERS = [operators.minimum, operators.maximum, operators.fmin, operators.fmax]


def own_form(operator):
    """Return the operator without its lifted forms."""
    return Operator(operator.dtype, operator.combine, operator.neutral, operator.name, verified=operator.verified)


def forms_of(operator):
    """Return the operator's own form and each of its lifted ones."""
    return [own_form(operator), *(other.operator for other in operator.equivalents)]


def joined(forms, first, second, queue):
    """Return what two arrays of values come to by each of the forms, with the neutral element anywhere."""
    parts = ["#pragma OPENCL EXTENSION cl_khr_fp64 : enable", declare(forms[0].dtype, "value_t")]
    for k, form in enumerate(forms):
        kind = "value_t" if form.accumulator == form.dtype else c_name(form.accumulator)
        parts.append(f"""
            {kind} lift{k}(const value_t v) {{ return {form.lift}; }}
            {kind} join{k}(const {kind} a, const {kind} b) {{ return {form.combine}; }}
            value_t finish{k}(const {kind} a) {{ return {form.finish}; }}
            value_t joined{k}(const value_t x, const value_t y, const int order)
            {{
                const {kind} none = {literal(form.neutral, form.accumulator, kind)};
                if (order == 0)
                    return finish{k}(join{k}(join{k}(none, lift{k}(x)), lift{k}(y)));
                if (order == 1)
                    return finish{k}(join{k}(lift{k}(x), join{k}(lift{k}(y), none)));
                return finish{k}(join{k}(join{k}(lift{k}(x), none), join{k}(none, lift{k}(y))));
            }}""")
    calls = [f"out[{k} * n + i] = joined{k}(x[i], y[i], i % 3);" for k in range(len(forms))]
    parts.append(f"""
        __kernel void join_doubles(__global const value_t *x, __global const value_t *y, __global value_t *out)
        {{ const size_t i = get_global_id(0), n = get_global_size(0); {" ".join(calls)} }}""")
    result = np.empty((len(forms), len(first)), forms[0].dtype)
    inputs = [
        cl.Buffer(queue.context, cl.mem_flags.COPY_HOST_PTR, hostbuf=np.ascontiguousarray(each))
        for each in (first, second)
    ]
    out = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, result.nbytes)
    cl.Program(queue.context, "\n".join(parts)).build().join_doubles(queue, (len(first),), None, *inputs, out)
    cl.enqueue_copy(queue, result, out)
    return result


def special_values(dtype):
    """Return floats at which something else begins."""
    info = np.finfo(dtype)
    positive = [0, info.smallest_subnormal, info.tiny, 1, np.nextafter(dtype(1), dtype(2)), info.max, np.inf, np.nan]
    found = np.array([*positive, *(-number for number in positive)], dtype)
    assert np.signbit(found[-1])
    other_nan = np.array([np.nan], dtype).view(f"u{found.itemsize}") + 5
    return np.concatenate([found, other_nan.view(dtype), np.random.default_rng(6).normal(size=20).astype(dtype)])


def special_integers(dtype):
    """Return the least, the largest, and those around zero and the middle."""
    info = np.iinfo(dtype)
    middle = [info.max // 2, info.max // 2 + 1]
    return np.array(sorted({info.min, info.min + 1, 0, 1, *middle, info.max - 1, info.max}), dtype)


def all_pairs(values):
    """Return each of the values with each, thrice."""
    first, second = np.meshgrid(np.arange(len(values)), np.arange(len(values)))
    return values[first.ravel().repeat(3)], values[second.ravel().repeat(3)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_floats_as_ordered_integers(dtype, queue):
    first, second = all_pairs(special_values(dtype))
    chosen = [order(dtype) for order in ORDERS]
    results = iter(joined([form for operator in chosen for form in forms_of(operator)], first, second, queue))
    for operator in chosen:
        with np.errstate(invalid="ignore"):
            expected = getattr(np, operator.name)(first, second)
        for form in ("own", "lifted"):
            np.testing.assert_array_equal(next(results), expected, strict=True, err_msg=f"{operator.name}, {form}")


PAIRS = [
    (np.bool_, np.int32), (np.int8, np.uint32), (np.uint8, np.int8), (np.int16, np.uint8), (np.uint16, np.int16),
    (np.int32, np.uint16), (np.uint32, np.int32), (np.float32, np.uint32), (np.float32, np.int8),
]  # fmt: skip


def better(name, first, second):
    """Return the better of two (value, index) pairs, as NumPy's function of that name takes it."""
    if name in ("first", "last"):
        return min(first, second, key=lambda pair: pair[1] if name == "first" else -pair[1])
    values, at = zip(*sorted((first, second), key=lambda pair: pair[1]), strict=True)
    k = getattr(np, name)(values)
    return values[k], at[k]


@pytest.mark.parametrize(("dtype", "index"), PAIRS, ids=lambda dtype: np.dtype(dtype).name)
def test_pairs_as_one_integer(dtype, index, queue):
    dtype, indices = np.dtype(dtype), special_integers(index)
    if dtype.kind == "f":
        values = special_values(dtype.type)[:17]
    else:
        values = np.array([False, True]) if dtype.kind == "b" else special_integers(dtype)
    names = ["argmin", "argmax", "first", "last"]
    chosen = [getattr(operators, name)(dtype, index) for name in names]
    given = np.zeros((len(values), len(indices)), chosen[0].dtype)
    given["value"], given["index"] = values[:, np.newaxis], indices
    first, second = all_pairs(given.ravel())
    once = first["index"] != second["index"]  # with equal ones the winner of first and last is not defined
    results = iter(joined([form for operator in chosen for form in forms_of(operator)], first, second, queue))
    for name in names:
        listed = zip(first[::3].tolist(), second[::3].tolist(), strict=True)
        expected = np.array([better(name, *each) for each in listed], given.dtype).repeat(3)
        used = once if name in ("first", "last") else slice(None)
        for form, result in zip(("own", "lifted"), (next(results), next(results)), strict=True):
            for field in ("value", "index"):
                np.testing.assert_array_equal(
                    result[field][used], expected[field][used], strict=True, err_msg=f"{name}, {form}, {field}"
                )


@pytest.mark.parametrize("name", ["first", "last"])
def test_an_only_pair_wins_whatever_its_index(name, queue):
    operator = getattr(operators, name)(np.float32, np.uint8)
    only = np.array([(7.5, 0), (-3, 255), (np.nan, 0), (np.inf, 255), (0, 9)], operator.dtype).repeat(3)
    alone = np.full(len(only), operator.neutral)
    for result in (*joined(forms_of(operator), only, alone, queue), *joined(forms_of(operator), alone, only, queue)):
        for field in ("value", "index"):
            np.testing.assert_array_equal(result[field], only[field], strict=True)
    for result in joined(forms_of(operator), alone, alone, queue):
        assert set(result.tolist()) == {operator.neutral.item()}


SUMS = [(np.int8, 100), (np.uint8, 255), (np.int16, 1), (np.int32, 2**24 - 1), (np.uint32, 2**20), (np.int64, 77)]
SUMS += [(np.uint64, 2**33), (np.int64, 2**62)]


@pytest.mark.parametrize(("dtype", "limit"), SUMS, ids=lambda value: getattr(value, "__name__", value))
def test_saturating_sums_as_exact_ones(dtype, limit, queue):
    operator = operators.saturating_add(dtype, limit)
    assert len(operator.equivalents) == 2 - (limit >= 2**31)
    most = np.iinfo(dtype).max
    first, second = all_pairs(np.array([0, 1, limit // 3, limit - 1, limit, most // 2 + 6, most - 1, most], dtype))
    expected = [min(limit, a + b) for a, b in zip(first.tolist(), second.tolist(), strict=True)]
    for result in joined(forms_of(operator), first, second, queue):
        np.testing.assert_array_equal(result, np.array(expected, dtype), strict=True)


@pytest.mark.parametrize(
    ("operator", "wide"),
    [
        (operators.argmax(np.float32), True),
        (operators.saturating_add(np.uint8, 200), False),
        (operators.product({"x": operators.maximum(np.float32), "n": operators.add(np.int32)}), False),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_forced_update_picks_the_form_that_has_it(operator, wide, gpu_like, queue, rng):
    bins = rng.integers(0, 9, 3000, np.int32)
    values, dest = np.zeros(3000, operator.dtype), np.zeros(10, operator.dtype)
    for field in operator.dtype.names or (slice(None),):
        values[field], dest[field] = rng.permutation(3000) // (1 if field == "index" else 100), 15
    kernel = pair_kernel(operator, gpu_like)
    choices = {"num_bins": 10, "memory": "global", "copies": 2, "dest": dest}
    expected = kernel(bins, values, update="lock", **choices)
    if is_available(Case(operator, None, None), "native", "global", queue):
        np.testing.assert_array_equal(kernel(bins, values, update="native", **choices), expected, strict=True)
    else:
        assert wide, "atomics of 32 bits are everywhere"
        with pytest.raises(ValueError, match=r"^update: 'native' is not available for"):
            kernel(bins, values, update="native", **choices)


@pytest.mark.parametrize("update", ["native", "lock"])
def test_exact_sums_of_almost_too_many(update, gpu_like):
    # So many terms of 255 and one of dest come to 2^32 - 1; one more could wrap.
    operator, size = operators.saturating_add(np.uint8, 255), (2**32 - 1) // 255 - 1
    profile = replace(gpu_like, features=frozenset({"int64_base_atomics"}))
    choices = Choices("native", "local")
    forms = [plan(Problem.of(operator, 2, number, choices=choices), profile) for number in (size, size + 1)]
    assert [sweep.outputs[0].operator.accumulator for sweep in forms] == [np.uint32, np.uint64]
    kernel = HistogramKernel(None, operator, arguments="const uchar *x", map="EMIT(i & 7, x[i & 7])", profile=gpu_like)
    values = np.array([255, 0, 1, 0, 0, 0, 0, 255], np.uint8)
    dest = np.array([255, 7, 0, 0, 255, 0, 0, 0], np.uint8)
    result = kernel(values, num_bins=8, size=size // 64, dest=dest, update=update, memory="global", copies=1)
    assert result.tolist() == [255, 7, 255, 0, 255, 0, 0, 255]


def test_sums_of_more_than_two(gpu_like, rng):
    operator = operators.saturating_add(np.int64, 77)
    bins, values = rng.integers(0, 50, 300, np.int32), rng.choice(np.array([0, 1, 20, 76, 77, 2**32 + 1, 2**62]), 300)
    forms = forms_of(operator)
    kernel = HistogramKernel(
        None,
        forms,
        arguments="const int *bins, const long *x",
        map=" ".join(f"EMIT{k}(bins[i], x[i]);" for k in range(3)),
        profile=gpu_like,
    )
    expected = [min(77, sum(values[bins == k].tolist())) for k in range(50)]
    for result in kernel(bins, values, num_bins=50, memory="global"):
        assert result.tolist() == expected
