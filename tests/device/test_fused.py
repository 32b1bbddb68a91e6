"""Several histograms from one sweep over the input, each with an operator, bins, dest and out of its own."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from math import gcd

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
from covering import mostly_slow

from clhist import HistogramKernel, Operator, operators
from clhist._core.devices.vendors import MEMORIES
from clhist._core.opencl.device import device_features
from clhist.selftest.cases import CASES, PRODUCTS
from clhist.selftest.reference import groups_of

INT, FLOAT, ARGMAX = operators.add(np.int32), operators.add(np.float32), operators.argmax(np.float32)
TRIPLE = np.dtype([(name, np.int64) for name in "xyz"])


def total_and_largest(profile=None):
    """Return a kernel of a sum and an argmax, the latter of every other bin."""
    return HistogramKernel(
        None,
        {"total": INT, "largest": ARGMAX},
        arguments="const long *bins, const float *x",
        map="EMIT_total(bins[i], (int)x[i]); EMIT_largest(bins[i] / 2, ((value_largest_t){x[i], i}))",
        profile=profile,
    )


def check_both(result, bins, x, num_bins, dest=None):
    """Check what that kernel gives."""
    assert list(result) == ["total", "largest"]
    total = [sum(map(int, group)) for group in groups_of(bins, x, num_bins["total"])]
    np.testing.assert_array_equal(result["total"], total if dest is None else total + dest["total"])
    pairs = list(zip((-x).tolist(), range(len(x)), strict=True))
    halves = np.where(bins < 0, bins // -2 * -1, bins // 2)  # C rounds towards zero
    best = [min(group, default=(np.inf, 2**31 - 1)) for group in groups_of(halves, pairs, num_bins["largest"])]
    np.testing.assert_array_equal(result["largest"]["value"], np.array([-value for value, _ in best], np.float32))
    np.testing.assert_array_equal(result["largest"]["index"], [index for _, index in best])


def draw(rng, n, most):
    return rng.integers(-4, most + 4, n), rng.integers(-50, 50, n).astype(np.float32)


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("update", [None, "cas", "lock"])
def test_each_update(update, memory, gpu_like, rng, queue):
    has_exchange_of_64_bits = "int64_base_atomics" in device_features(queue.device)
    kernel, num_bins = total_and_largest(gpu_like), {"total": 90, "largest": 31}
    bins, x = draw(rng, 3001, 90)
    choices = {"update": update, "memory": memory, "copies": 3, "passes": 2}
    if update == "cas" and not has_exchange_of_64_bits:
        with pytest.raises(ValueError, match=r"^update: 'cas' is not available for argmax .*cl_khr_int64_base_atomics"):
            kernel(bins, x, num_bins=num_bins, **choices)
        return
    check_both(kernel(bins, x, num_bins=num_bins, **choices), bins, x, num_bins)


@pytest.mark.parametrize("length", mostly_slow([1025, 0, 1, 63], 4))
def test_what_the_model_chooses(length, profile, rng):
    kernel = total_and_largest(profile)
    for most in (1, 40, 20_000):
        bins, x = draw(rng, length, most)
        bins[::7] += 2**32
        num_bins = {"total": most, "largest": 1 + most // 3}
        check_both(kernel(bins, x, num_bins=num_bins), bins, x, num_bins)
        for one in (most - 1, most, -(2**40)):
            same = np.full_like(bins, one)
            check_both(kernel(same, x, num_bins=num_bins), same, x, num_bins)
        bins.sort()
        check_both(kernel(bins, x, num_bins=num_bins), bins, x, num_bins)


def names(plan):
    return [output.suffix.removeprefix("_") for output in plan.outputs]


@pytest.mark.slow
def test_outputs_that_no_memory_holds_together(gpu_like, rng):
    kernel, num_bins = total_and_largest(gpu_like), {"total": 200_000, "largest": 50}
    many, few = kernel.plan(5000, num_bins)
    assert (names(many), many.bins) == (["total"], (200_000,))
    assert (few.memory, names(few), few.bins) == ("local", ["largest"], (50,))
    assert "clhist_emit_largest" not in kernel.source(many)
    assert "clhist_emit_total" not in kernel.source(few)
    bins, x = draw(rng, 5000, 200_000)
    bins[:4000] %= 100
    check_both(kernel(bins, x, num_bins=num_bins), bins, x, num_bins)
    dest = {"total": np.arange(200_000, dtype=np.int32)}
    check_both(kernel(bins, x, num_bins=num_bins, dest=dest), bins, x, num_bins, dest)


def test_plans_of_several_operators(gpu_like):
    kernel = total_and_largest(gpu_like)
    (both,) = kernel.plan(5000, 100)
    assert (names(both), both.bins, both.num_bins) == (["total", "largest"], (100, 100), 200)
    source = kernel.source(both)
    assert "clhist_emit_total" in source
    assert "clhist_emit_largest" in source
    (listed,) = HistogramKernel(None, [INT, INT], arguments="", map="EMIT0(i, 1); EMIT1(i, 2)", profile=gpu_like).plan(
        10, [3, (2, 2)], update="lock", locks=8
    )
    assert (names(listed), listed.bins, listed.locks) == (["0", "1"], (3, 4), 8)


@pytest.mark.parametrize("on_device", [False, True])
def test_dest_and_out_of_some(on_device, profile, queue, rng):
    kernel, num_bins = total_and_largest(profile), {"total": 20, "largest": 10}
    make = partial(cl_array.to_device, queue) if on_device else np.copy
    fetch = (lambda result: {k: v.get() for k, v in result.items()}) if on_device else dict
    bins, x = draw(rng, 500, 20)
    dest, out = {"total": np.arange(20, dtype=np.int32)}, {"total": make(np.zeros(20, np.int32))}
    given = make(bins), make(x)
    result = kernel(*given, num_bins=num_bins, dest={"total": make(dest["total"])}, out=out)
    assert result["total"] is out["total"]
    check_both(fetch(result), bins, x, num_bins, dest)
    check_both(fetch(kernel(*given, num_bins=num_bins, out={"total": None})), bins, x, num_bins)
    fields = make(np.zeros(10, np.float32)), make(np.zeros(10, np.int32))
    before = {"total": fetch(out)["total"].copy()}
    result, event = kernel(*given, num_bins=num_bins, dest=out, out={**out, "largest": fields}, return_event=True)
    event.wait()
    assert all(got is given for got, given in zip(result["largest"], fields, strict=True))
    assert isinstance(event, cl.Event)
    pairs = np.zeros(10, ARGMAX.dtype)
    pairs["value"], pairs["index"] = (array.get() if on_device else array for array in fields)
    check_both({"total": fetch(out)["total"], "largest": pairs}, bins, x, num_bins, before)


def test_a_queue_that_keeps_no_order(out_of_order_queue, gpu_like, rng):
    kernel, num_bins = total_and_largest(gpu_like), {"total": 100_000, "largest": 50}
    bins, x = draw(rng, 3000, 100)
    given = [cl_array.to_device(out_of_order_queue, array) for array in (bins, x)]
    for _ in range(5):
        result = kernel(*given, num_bins=num_bins)
        check_both({name: array.get() for name, array in result.items()}, bins, x, num_bins)


def test_mixed_cells_in_local_memory(gpu_like, rng):
    # Structs of 9 bytes, words of 8, structs of 24, and behind them the locks of the structs.
    nine = np.dtype([("x", np.int8, 9)])
    chosen = [
        Operator(nine, "a.x[0] < b.x[0] ? b : a", ([0] * 9,), "largest_nine"),
        operators.multiply(np.float64),
        Operator(TRIPLE, "a.x < b.x || (a.x == b.x && a.y < b.y) ? b : a", (0, 0, 0), "largest_triple"),
    ]
    map = """value0_t nine; for (int k = 0; k < 9; ++k) nine.x[k] = x[i] / 2; EMIT0(bins[i], nine);
        EMIT1(bins[i], (x[i] & 1) ? 2.0 : 0.5); EMIT2(bins[i], ((value2_t){x[i], i, -i}))"""
    kernel = HistogramKernel(None, chosen, arguments="const int *bins, const uchar *x", map=map, profile=gpu_like)
    bins, x = rng.integers(-1, 13, 3000, np.int32), rng.integers(0, 256, 3000, np.uint8)
    for locks, copies in ((None, 3), (4, 5), (1, 1)):
        result = kernel(bins, x, num_bins=[3, 7, 5], memory="local", copies=copies, locks=locks)
        for k in range(7):
            here = x[bins == k].astype(int)
            assert result[1][k] == 2.0 ** ((here & 1).sum() * 2 - len(here))
            if k < 5:
                at = int(np.flatnonzero((bins == k) & (x == here.max()))[-1])
                assert result[2][k].item() == (here.max(), at, -at)
            if k < 3:
                assert set(result[0]["x"][k].tolist()) == {here.max() // 2}


def test_the_same_struct_and_the_same_operator_twice(rng):
    kernel = HistogramKernel(
        None,
        [ARGMAX, operators.argmin(np.float32), ARGMAX],
        arguments="const int *bins, const float *x, const value0_t *pairs",
        map="EMIT0(bins[i], pairs[i]); EMIT1(bins[i], ((value1_t){x[i], i})); EMIT2(0, pairs[i])",
        structs={"pair_t": ARGMAX.dtype},
        preamble="pair_t same(pair_t pair) { return pair; }",
    )
    bins, x = rng.integers(0, 9, 1000, np.int32), rng.permutation(1000).astype(np.float32)
    pairs = np.zeros(1000, ARGMAX.dtype)
    pairs["value"], pairs["index"] = x, np.arange(1000)
    most, least, one = kernel(bins, x, pairs, num_bins=[9, 9, 1], memory="global")
    assert most["value"].tolist() == [x[bins == k].max() for k in range(9)]
    assert least["value"].tolist() == [x[bins == k].min() for k in range(9)]
    assert one.tolist() == [(999.0, int(x.argmax()))]


GCD = CASES["gcd int8"].operator
OTHER = Operator(np.int8, "other(a, b)", 0, preamble="char other(char a, char b) { return a > b ? a : b; }")


@pytest.mark.parametrize(
    "chosen",
    [
        [
            GCD,
            Operator(np.int8, GCD.combine, 0, "another", preamble=GCD.preamble),
            Operator(np.int16, GCD.combine, 0, "of other types", preamble=GCD.preamble),
        ],
        [operators.product({"x": GCD}), GCD],
        [GCD, operators.product({"x": GCD, "y": OTHER})],
    ],
    ids=["same and other types", "product first", "product last"],
)
def test_a_preamble_that_several_operators_have(chosen):
    values = [f"(value{k}_t){'{x[i]}' if o.dtype.names else 'x[i]'}" for k, o in enumerate(chosen)]
    map = " ".join(f"EMIT{k}(bins[i], ({value}));" for k, value in enumerate(values))
    kernel = HistogramKernel(None, chosen, arguments="const int *bins, const char *x", map=map)
    bins, x = np.array([0, 1, 0, 1, 1], np.int32), np.array([12, 30, 18, 45, 75], np.int8)
    for result, operator in zip(kernel(bins, x, num_bins=2), chosen, strict=True):
        got = result["x"] if operator.dtype.names else result
        assert got.tolist() == [gcd(12, 18), gcd(30, 45, 75)]


def test_a_preamble_of_the_accumulators_that_operators_on_other_values_have(gpu_like):
    both = [operators.variance(dtype, accumulator=np.float32) for dtype in (np.float32, np.float64)]
    kernel = HistogramKernel(
        None, both, arguments="const int *bins, const float *x", map="EMIT0(bins[i], x[i]); EMIT1(bins[i], x[i]);",
        profile=gpu_like,
    )  # fmt: skip
    single, double = kernel(np.arange(10, dtype=np.int32) % 2, np.arange(10, dtype=np.float32), num_bins=2)
    np.testing.assert_array_equal(single, np.full(2, 8, np.float32), strict=True)
    np.testing.assert_array_equal(double, np.full(2, 8.0), strict=True)


def test_a_map_may_use_what_the_operators_define(gpu_like):
    helped = Operator(
        np.int32, "plus(a, b)", 0, "plus", preamble="accumulator_t plus(accumulator_t a, value_t b) { return a + b; }"
    )
    kernel = HistogramKernel(
        None, [helped, INT], arguments="", map="EMIT0(i % 2, plus(i, 1)); EMIT1(i, plus(i, 2))", profile=gpu_like
    )
    assert len(kernel.plan(10, [2, 10**6])) == 2, "each sweep compiles the whole map"
    few, many = kernel(num_bins=[2, 10**6], size=10)
    assert few.tolist() == [25, 30]
    assert many[:11].tolist() == [*range(2, 12), 0]


@pytest.mark.parametrize(
    "map",
    [
        "EMIT(b[i], x[i]) // value",
        "// bins\nEMIT(b[i], /* ( */ x[i])",
        "#if 1\nEMIT(b[i], x[i]);\n#else\nEMIT(0, 1);\n#endif",
    ],
    ids=["last", "first and amid", "directive"],
)
def test_comments_in_maps_and_operators(map):
    """Kernels append C to a map and to an expression, which a comment at its end must not hide."""
    operator = Operator(
        np.int64, "a // left\n + b // right", 0, accumulator=np.int64, lift="v // value", finish="a /* result */"
    )
    arguments = "const int *b, // of bins, not values\n const long *x /* 64 bits, signed */"
    kernel = HistogramKernel(None, operator, arguments=arguments, map=map)
    assert kernel(np.array([0, 1, 1], np.int32), np.array([1, 2, 3]), num_bins=2).tolist() == [1, 5]
    assert operator.combine.replace("\n", "").split() == ["a", "+", "b"]


def test_names_that_differ_in_an_underscore():
    kernel = HistogramKernel(None, {"x": INT, "_x": INT}, arguments="", map="EMIT_x(0, 1); EMIT__x(i, 2)")
    result = kernel(num_bins={"x": 1, "_x": 2}, size=3)
    assert {name: array.tolist() for name, array in result.items()} == {"x": [3], "_x": [2, 2]}
    assert [name for plan in kernel.plan(3, 4) for name in names(plan)] == ["x", "_x"]


def test_one_operator_in_a_list_is_not_one_alone():
    kernel = HistogramKernel(None, [INT], arguments="", map="EMIT0(i, i)")
    (result,) = kernel(num_bins=[(2, 2)], size=4)
    assert result.tolist() == [[0, 1], [2, 3]]
    assert isinstance(kernel(num_bins=4, size=4), tuple)


def test_batches_of_several(gpu_like, rng):
    kernel, lengths = total_and_largest(gpu_like), [0, 300, 1, 77, 0]
    bins, x = draw(rng, sum(lengths), 12)
    num_bins, offsets = {"total": 12, "largest": (3, 2)}, np.cumsum([0, *lengths])
    result = kernel(bins, x, num_bins=num_bins, offsets=offsets)
    assert {name: array.shape for name, array in result.items()} == {"total": (5, 12), "largest": (5, 3, 2)}
    for k, (begin, end) in enumerate(pairwise(offsets)):
        shifted = result["largest"][k].ravel().copy()
        shifted["index"] -= np.where(np.isinf(shifted["value"]), 0, begin).astype(np.int32)
        one = {"total": result["total"][k], "largest": shifted}
        check_both(one, bins[begin:end], x[begin:end], {"total": 12, "largest": 6})


def test_sums_of_products_beside_others(gpu_like, rng):
    mean = PRODUCTS["mean float32"].operator
    kernel = HistogramKernel(
        None,
        {"mean": mean, "most": operators.maximum(np.float32), "n": operators.count()},
        arguments="const int *bins, const float *x",
        map="EMIT_mean(bins[i], x[i]); EMIT_most(bins[i], x[i]); EMIT_n(bins[i], 1)",
        profile=gpu_like,
    )
    bins, x = rng.integers(0, 5, 2000, np.int32), rng.integers(-99, 99, 2000).astype(np.float32)
    result = kernel(bins, x, num_bins=6, memory="global", copies=4)
    np.testing.assert_array_equal(result["n"], np.bincount(bins, minlength=6))
    np.testing.assert_array_equal(result["most"], [x[bins == k].max(initial=-np.inf) for k in range(6)])
    sums = np.array([x[bins == k].sum() for k in range(6)], np.float32)  # of integers below 2^24: exact
    with np.errstate(invalid="ignore"):
        means = sums / result["n"].astype(np.float32)
    np.testing.assert_array_max_ulp(result["mean"][:5], means[:5], 3)  # OpenCL's division is off by up to 2.5
    assert np.isnan(result["mean"][5])
