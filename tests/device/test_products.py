"""Operators of several parts: products, means, variances; one array for each field, shapes, and shared locks."""

from __future__ import annotations

import numpy as np
import pyopencl.array as cl_array
import pytest
from covering import mostly_slow

from clhist import HistogramKernel, Operator, operators
from clhist._core.devices.vendors import MEMORIES
from clhist._core.model.updates import UPDATES
from clhist.selftest.cases import CASES, NUM_BINS, PRODUCTS, is_available, pair_kernel, problem, ufunc_case
from clhist.selftest.reference import groups_of

pytestmark = pytest.mark.usefixtures("with_optimizer")

INT, FLOAT = operators.add(np.int32), operators.add(np.float32)


# What the model chooses is left to the next test: in local memory compare and exchange, and locks for the variance.
EACH = [("mixed product", update, "global") for update in UPDATES]
EACH += [("mixed product", update, "local") for update in ("private", "native", "lock")]
EACH += [("variance float64", "private", "global"), ("variance float64", "lock", "global")]
EACH += [("variance float64", "cas", memory) for memory in MEMORIES]


@pytest.mark.parametrize(("name", "update", "memory"), EACH)
def test_each_update(name, update, memory, gpu_like, queue):
    case, (bins, values, check) = PRODUCTS[name], problem(name)
    kernel, choices = pair_kernel(case.operator, gpu_like), {"update": update, "memory": memory, "copies": 3}
    if not is_available(case, update, memory, queue):
        with pytest.raises(ValueError, match=f"update: '{update}' is not available for {case.operator.name}"):
            kernel(bins, values, num_bins=NUM_BINS, **choices)
        return
    for passes in (1, 10_000) if memory == "global" else (2,):
        check(kernel(bins, values, num_bins=NUM_BINS, passes=passes, **choices))


@pytest.mark.parametrize("name", mostly_slow(list(PRODUCTS), 2))
def test_what_the_model_chooses(name, profile):
    case, (bins, values, check) = PRODUCTS[name], problem(name)
    kernel = pair_kernel(case.operator, profile)
    check(kernel(bins, values, num_bins=NUM_BINS))
    neutral = case.check([[]] * NUM_BINS)
    neutral(kernel(bins[:0], values[:0], num_bins=NUM_BINS))
    neutral(kernel(np.full_like(bins, -1), values, num_bins=NUM_BINS))
    dest = case.draw(np.random.default_rng(1), NUM_BINS)
    if "index" in (case.operator.dtype.names or ()):
        dest["index"] += len(values)  # no two alike
    all_bins, all_values = np.concatenate([np.arange(NUM_BINS), bins]), np.concatenate([dest, values])
    check = case.check(groups_of(all_bins, all_values, NUM_BINS))
    check(kernel(bins, values, num_bins=NUM_BINS, dest=dest))
    check(kernel(bins, values, num_bins=NUM_BINS, dest=dest, out=dest))
    check(dest)


def test_variances_of_far_numbers(profile):
    groups = [[], [3.5], [1e20, 1e20], [-1e38] * 3, [1.0, 1.0 + 2**-20], [1e4, np.inf], []]
    bins, values = np.repeat(np.arange(7, dtype=np.int32), [len(group) for group in groups]), np.concatenate(groups)
    result = pair_kernel(operators.variance(np.float32), profile)(bins, values.astype(np.float32), num_bins=7)
    np.testing.assert_array_equal(result, [np.nan, 0, 0, 0, 2**-42, np.nan, np.nan])


@pytest.mark.parametrize("ddof", [0, 1, 3])
def test_degrees_of_freedom(ddof):
    groups = [[], [2.0], [1.0, 5.0], [1.0, 2.0, 6.0], [0.0, 2.0, 4.0, 6.0]]
    bins, values = np.repeat(np.arange(5, dtype=np.int32), range(5)), np.concatenate(groups)
    expected = [np.var(group, ddof=ddof) if len(group) > ddof else np.nan for group in groups]
    result = pair_kernel(operators.variance(np.float64, ddof))(bins, values, num_bins=5)
    np.testing.assert_allclose(result, expected, rtol=1e-15)


def test_any_and_all():
    bins, values = np.array([0, 0, 1, 1, 2, 9, -1], np.int32), np.array([0, 3, 0, 0, 7, 0, 1], np.int16)
    assert operators.any is operators.logical_or
    assert pair_kernel(operators.any(np.int16))(bins, values, num_bins=4).tolist() == [1, 0, 1, 0]
    assert pair_kernel(operators.all(np.int16))(bins, values, num_bins=4).tolist() == [0, 0, 1, 1]


def test_complex_numbers_are_two_sums(gpu_like):
    case, rng = ufunc_case(np.add, np.complex128), np.random.default_rng(4)
    bins, values = np.repeat(np.arange(2, dtype=np.int32), 1000), case.draw(rng, 2000)
    result = pair_kernel(case.operator, gpu_like)(bins, values, num_bins=2, memory="local", copies=5)
    case.check(groups_of(bins, values, 2))(result)


def test_fields_are_laid_out_as_c_does_it(gpu_like, rng):
    # OpenCL C aligns float2 to 8 bytes and double2 to 16, NumPy to 4 and 8.
    fields = {"n": np.int32, "z": np.complex64, "m": np.uint8, "w": np.complex128}
    operator = operators.product({name: operators.add(dtype) for name, dtype in fields.items()})
    values = np.zeros(500, operator.dtype)
    for name in fields:
        values[name] = rng.integers(0, 50, 500)
    values["z"] += 1j * rng.integers(0, 50, 500)
    bins = rng.integers(0, 3, 500, np.int32)
    result = pair_kernel(operator, gpu_like)(bins, values, num_bins=3, memory="global", copies=2)
    for name, dtype in fields.items():
        np.testing.assert_array_equal(result[name], [values[name][bins == k].sum().astype(dtype) for k in range(3)])


def test_a_ufunc_acts_on_each_field(rng):
    dtype = np.dtype([("x", np.float32), ("n", np.int8)], align=True)
    values = np.zeros(1000, dtype)
    values["x"], values["n"] = rng.normal(size=1000), rng.integers(-100, 100, 1000)
    bins = rng.integers(0, 5, 1000, np.int32)
    result = pair_kernel(operators.as_operator(np.maximum, dtype))(bins, values, num_bins=6)
    for name, least in (("x", -np.inf), ("n", -128)):
        expected = [values[name][bins == k].max(initial=least) for k in range(6)]
        np.testing.assert_array_equal(result[name], np.array(expected, dtype[name]), strict=True)


@pytest.fixture(scope="module")
def pairs():
    """Return bins and (value, index) pairs, a kernel of their argmax, and what it should give."""
    rng = np.random.default_rng(5)
    bins, values = rng.integers(0, 7, 500, np.int32), rng.integers(-50, 50, 500).astype(np.float32)
    kernel = HistogramKernel(
        None,
        operators.argmax(np.float32),
        arguments="const int *bins, const float *x",
        map="EMIT(bins[i], ((value_t){x[i], i}))",
    )
    at = [int(np.flatnonzero(bins == k)[values[bins == k].argmax()]) for k in range(7)]
    return kernel, (bins, values), values[at], np.array(at, np.int32)


@pytest.mark.parametrize("on_device", [False, True])
def test_one_array_for_each_field(pairs, on_device, queue):
    kernel, given, values, indices = pairs
    make = (lambda array: cl_array.to_device(queue, array)) if on_device else np.copy
    given = [make(array) for array in given]
    out = make(np.zeros(7, np.float32)), make(np.zeros(7, np.int32))
    result = kernel(*given, num_bins=7, out=out)
    assert result[0] is out[0]
    assert result[1] is out[1]
    large = make(np.array([1e9, *values[1:]], np.float32)), make(np.array([1000, *indices[1:]], np.int32))
    for dest, into in ((large, None), (large, out), (large, large)):
        result = kernel(*given, num_bins=7, dest=dest, out=into)
        assert isinstance(result, tuple)
        got = [array.get() if on_device else array for array in result]
        np.testing.assert_array_equal(got[0], np.array([1e9, *values[1:]], np.float32), strict=True)
        np.testing.assert_array_equal(got[1], np.array([1000, *indices[1:]], np.int32), strict=True)


def test_overlapping_arrays(pairs):
    kernel, given, values, indices = pairs
    memory = np.zeros(20, np.int32)
    dest = memory[:7].view(np.float32), memory[7:14]
    dest[0][:], dest[1][:] = -1e9, 5
    out = memory[3:10].view(np.float32), memory[10:17]  # lies across both: dest is read first
    result = kernel(*given, num_bins=7, dest=dest, out=out)
    np.testing.assert_array_equal(result[0], values)
    np.testing.assert_array_equal(result[1], indices)
    with pytest.raises(ValueError, match=r"^out: expected arrays that do not overlap, got 'index' twice"):
        kernel(*given, num_bins=7, out=(memory[:7].view(np.float32), memory[6:13]))


def test_results_of_several_dimensions(gpu_like, rng):
    x, y, z = (rng.integers(0, n, 3000) for n in (3, 5, 4))
    bins = np.ravel_multi_index((x, y, z), (3, 5, 4)).astype(np.int32)
    expected = np.zeros((3, 5, 4), np.int32)
    np.add.at(expected, (x, y, z), 1)
    kernel = HistogramKernel(None, INT, arguments="const int *bins", map="EMIT(bins[i], 1)", profile=gpu_like)
    np.testing.assert_array_equal(kernel(bins, num_bins=(3, 5, 4)), expected, strict=True)
    out = np.zeros((3, 5, 4), np.int32)
    assert kernel(bins, num_bins=(3, 5, 4), dest=expected, out=out) is out
    np.testing.assert_array_equal(out, 2 * expected)
    with pytest.raises(ValueError, match=r"^dest: expected shape .3, 5, 4., got .60,."):
        kernel(bins, num_bins=(3, 5, 4), dest=expected.ravel())
    assert kernel.plan(3000, (3, 5, 4)) == kernel.plan(3000, 60)


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("name", ["two largest", "mixed product"])
def test_few_locks_for_all_bins(name, memory, gpu_like):
    case, (bins, values, check) = (CASES | PRODUCTS)[name], problem(name)
    kernel = pair_kernel(case.operator, gpu_like)
    one_bin = np.full_like(bins, 3)
    all_in_one = case.check(groups_of(one_bin, values, NUM_BINS))
    for locks, copies in ((1, 1), (2, 3), (64, 12), (2**10, 1)):
        choices = {"update": "lock", "memory": memory, "locks": locks, "copies": copies}
        check(kernel(bins, values, num_bins=NUM_BINS, **choices))
        all_in_one(kernel(one_bin, values, num_bins=NUM_BINS, **choices))
    assert kernel.plan(100, 10, update="lock", memory=memory, locks=64).locks == 64


def test_operators_of_operators_that_are_no_products():
    with pytest.raises(ValueError, match=r"^combine\['best'\]: expected an operator on numbers, got <Operator argmax"):
        operators.product({"best": operators.argmax(np.float32)})
    with pytest.raises(TypeError, match=r"^combine\['n'\]: expected a clhist.Operator, got 'a \+ b'"):
        Operator(np.int32, {"n": "a + b"}, lift="(accumulator_t){v}", finish="a.n")
    with pytest.raises(ValueError, match=r"^combine: expected C identifiers as names of fields, got 'a b'"):
        Operator(np.int32, {"a b": INT}, lift="(accumulator_t){v}", finish="a.n")
    with pytest.raises(ValueError, match=r"^combine: expected .* at least one field"):
        Operator(np.int32, {}, lift="(accumulator_t){v}", finish="a.n")
    with pytest.raises(ValueError, match=r"^neutral, accumulator: a product of operators has those of its operators"):
        Operator(np.int32, {"n": INT}, 0, lift="(accumulator_t){v}", finish="a.n")
    with pytest.raises(TypeError, match=r"^combine\['y'\]: expected an operator on int32, got one on float32"):
        operators.product({"x": INT, "y": FLOAT}, np.dtype([("x", np.int32), ("y", np.int32)]))
    with pytest.raises(ValueError, match=r"^lift: expected a C expression of v, since no conversion between"):
        operators.product({"x": INT, "y": FLOAT}, np.float32, finish="a.x")
