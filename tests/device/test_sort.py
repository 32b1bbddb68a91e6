"""update="sort": pairs sorted by bin and combined by a segmented scan (SC'20, Listing 4)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
from pyopencl.tools import ImmediateAllocator, MemoryPool

from clhist import BuildError, HistogramKernel, Operator, operators, reduce_by_index
from clhist._core.model.problem import Choices
from clhist._core.model.sort import MOST_SORTED_BINS, MOST_SORTED_PAIRS, sort_launches
from clhist._core.runtime.call import Call
from clhist._core.runtime.chain import Chain
from clhist._core.runtime.prepare import LargestBin
from clhist.selftest.cases import CASES, NUM_BINS, pair_kernel, problem
from clhist.selftest.reference import counts_of, groups_of

# Without optimization, kernels of millions of pairs take longer than their builds save.
pytestmark = pytest.mark.usefixtures("with_optimizer")

SUM = operators.add(np.int32)
ARGMIN = operators.argmin(np.int64, np.int64)
THREE = np.dtype([("x", np.int16), ("y", np.int16), ("z", np.int16)])
LARGE = np.dtype([("x", np.float64), ("y", np.int64), ("z", np.int8)], align=True)
PRODUCT = operators.product({"count": operators.add(np.uint8), "total": operators.add(np.float64)})
SORT = Choices(update="sort")


def kernel_of(profile, arguments, map, operator=SUM, **more):
    return HistogramKernel(None, operator, arguments=arguments, map=map, profile=profile, **more)


# What an accumulator may be: a word, one made of a narrower value, a vector, a struct. Structs of odd sizes, a product
# and a preamble are below.
SORTED = ["add int32", "maximum int8", "multiply complex128", "argmin int64"]
EACH = [*((name, "interleaved") for name in SORTED), ("add int32", "blocked")]


@pytest.mark.parametrize(("name", "profile"), EACH, indirect=["profile"])
def test_each_operator(name, profile):
    case, (bins, values, check) = CASES[name], problem(name)
    kernel = pair_kernel(case.operator, profile)
    check(kernel(bins, values, num_bins=NUM_BINS, update="sort"))
    case.check([[]] * NUM_BINS)(kernel(bins[:0], values[:0], num_bins=NUM_BINS, update="sort"))
    case.check([[]] * NUM_BINS)(
        kernel(np.full(100, NUM_BINS, np.int32), values[:100], num_bins=NUM_BINS, update="sort")
    )
    one = case.check(groups_of(bins[:1] * 0, values[:1], 1))
    one(kernel(bins[:1] * 0, values[:1], num_bins=1, update="sort"))


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
@pytest.mark.parametrize("name", ["argmin int64", "multiply complex128"])
def test_scans_by_many_work_items_and_by_one(name, kind, monkeypatch):
    monkeypatch.setattr("clhist._core.runtime.scan.device_kind", lambda device: kind)
    case, (bins, values, check) = CASES[name], problem(name)
    check(pair_kernel(case.operator, None)(bins, values, num_bins=NUM_BINS, update="sort"))
    wide = pair_kernel(operators.reproducible_add(np.float64), None)
    assert wide(np.arange(99, dtype=np.int32) // 50, np.ones(99), num_bins=2, update="sort").tolist() == [50, 49]


@pytest.mark.parametrize(("name", "profile"), EACH, indirect=["profile"])
def test_values_of_dest_take_part_once(name, profile):
    case, (bins, values, _) = CASES[name], problem(name)
    dest = case.draw(np.random.default_rng(1), NUM_BINS)
    all_bins, all_values = np.concatenate([np.arange(NUM_BINS), bins]), np.concatenate([dest, values])
    check = case.check(groups_of(all_bins, all_values, NUM_BINS))
    kernel, out, before = pair_kernel(case.operator, profile), np.empty_like(dest), dest.copy()
    assert kernel(bins, values, num_bins=NUM_BINS, dest=dest, out=out, update="sort") is out
    check(out)
    np.testing.assert_array_equal(dest, before)
    kernel(bins, values, num_bins=NUM_BINS, dest=dest, out=dest, update="sort")
    check(dest)


@pytest.mark.parametrize("num_bins", [1, 2, 3, 4, 255, 256, 2**16, pytest.param(2**20 + 1, marks=pytest.mark.slow)])
def test_as_many_bits_are_sorted_as_bins_have(num_bins, profile, rng):
    bins = np.concatenate([[0, num_bins - 1, num_bins, -1], rng.integers(0, num_bins, 5000)]).astype(np.int32)
    values = np.ones(bins.size, np.int32)
    result = pair_kernel(SUM, profile)(bins, values, num_bins=num_bins, update="sort")
    np.testing.assert_array_equal(result, counts_of(bins, num_bins))


@pytest.mark.parametrize("index", ["int", "uint", "long", "ulong", "short"])
def test_bins_that_do_not_exist(index, gpu_like):
    dtype = np.dtype({"int": "i4", "uint": "u4", "long": "i8", "ulong": "u8", "short": "i2"}[index])
    most = np.iinfo(dtype).max
    outside = [most, most - 1, 6, *([2**32 + 1, 2**33] if dtype.itemsize == 8 else [])]
    outside += [np.iinfo(dtype).min, -1] if dtype.kind == "i" else []
    bins = np.array([*outside, 5, 0, 5], dtype)
    values = np.arange(1, bins.size + 1, dtype=np.int32)
    result = pair_kernel(SUM, gpu_like, index=index)(bins, values, num_bins=6, update="sort")
    n = len(outside)
    assert result.tolist() == [n + 2, 0, 0, 0, 0, (n + 1) + (n + 3)]


def test_several_values_of_an_element(profile, rng):
    code = "EMIT(x[i] % 7, x[i]); if (x[i] % 3 == 0) { EMIT(x[i] % 5, 1); } else if (x[i] % 3 == 1) EMIT(9, 2)"
    kernel = kernel_of(profile, "const int *x", code)
    x = rng.integers(0, 1000, 3001, np.int32)
    pairs = [(v % 7, v) for v in x.tolist()]
    pairs += [(v % 5, 1) for v in x.tolist() if v % 3 == 0] + [(9, 2) for v in x.tolist() if v % 3 == 1]
    bins, values = (np.array(part) for part in zip(*pairs, strict=True))
    expected = [sum(group) for group in groups_of(bins, values, 10)]
    assert kernel(x, num_bins=10, update="sort").tolist() == expected
    assert kernel.plan(3001, 10, update="sort").steps[2].value == 3 * 3001


def test_no_value_at_all(profile):
    kernel = kernel_of(profile, "const int *x", "if (x[i] > 5) EMIT(0, x[i])")
    assert kernel(np.zeros(1000, np.int32), num_bins=3, update="sort").tolist() == [0, 0, 0]


def test_a_map_that_writes_reads_elsewhere_and_has_scalars(profile):
    code = "y[i] = x[n - 1 - i] * scale; if (y[i] < 0) return; EMIT(bin_of(x, i), y[i])"
    preamble = "int bin_of(__global const int *x, int i) { return x[i] & 3; }"
    kernel = kernel_of(profile, "const int *x, int *y, int n, int scale", code, preamble=preamble)
    x, y = np.arange(-500, 500, dtype=np.int32), np.zeros(1000, np.int32)
    result = kernel(x, y, 1000, 3, num_bins=4, update="sort")
    np.testing.assert_array_equal(y, 3 * x[::-1])
    np.testing.assert_array_equal(result, [(3 * x[::-1])[(x & 3 == k) & (x[::-1] >= 0)].sum() for k in range(4)])


def test_a_loop_whose_values_are_told(profile):
    kernel = kernel_of(profile, "const int *x", "for (int k = 0; k < x[i]; ++k) EMIT(k, i)", emits=4)
    x = np.array([0, 4, 2, 1, 3] * 100, np.int32)
    expected = [int(np.flatnonzero(x > k).sum()) for k in range(5)]
    assert kernel(x, num_bins=5, update="sort").tolist() == expected


@pytest.mark.parametrize("size", [1, 500, 5000])  # of one tile, and of several digits and tiles
@pytest.mark.parametrize("num_bins", [7, 255, 256, 65535])  # whose key for elements with too many needs a digit, or not
def test_an_element_with_more_pairs_than_stated_raises(size, num_bins, profile):
    loop = "for (int k = 0; k < x[i]; ++k) EMIT(n - 1 - k, i)"
    kernel = kernel_of(profile, "const int *x, int n", loop, emits=3)
    x = np.full(size, 3, np.int32)
    expected = np.zeros(num_bins, np.int32)
    expected[num_bins - 3 :] = np.arange(size).sum()
    np.testing.assert_array_equal(kernel(x, num_bins, num_bins=num_bins, update="sort"), expected)
    for place in {0, size // 2, size - 1}:
        more = x.copy()
        more[place] = 4
        out = np.full(num_bins, 7, np.int32)
        message = (
            r"^emits: expected at most 3 pairs of each element, as the kernel states, got an element with more; "
            r"pass a larger emits=$"
        )
        with pytest.raises(ValueError, match=message):
            kernel(more, num_bins, num_bins=num_bins, out=out, update="sort")
        assert set(out.tolist()) == {7}, "nothing is written"
        unsorted = kernel(more, num_bins, num_bins=num_bins)
        expected[num_bins - 4] = place
        np.testing.assert_array_equal(unsorted, expected)
        expected[num_bins - 4] = 0


def test_more_pairs_than_stated_in_bins_that_there_are_not_are_no_pairs(profile):
    kernel = kernel_of(profile, "const int *x", "for (int k = 0; k < 9; ++k) EMIT(k - x[i], 1)", emits=3)
    x = np.array([0, 6, 8, 2, 1] * 99, np.int32)
    expected = np.bincount(np.concatenate([np.arange(9) - v for v in x]).clip(-1) + 1, minlength=10)[1:4]
    assert kernel(x, num_bins=3, update="sort").tolist() == expected.tolist()


def test_more_pairs_than_stated_of_arrays_on_the_device(queue, profile):
    kernel = kernel_of(profile, "const int *x", "for (int k = 0; k < x[i]; ++k) EMIT(k, 1)", emits=2)
    x = cl_array.to_device(queue, np.array([2, 3, 1] * 999, np.int32))
    out = cl_array.to_device(queue, np.full(5, 7, np.int32))
    with pytest.raises(ValueError, match=r"^emits: expected at most 2 pairs"):
        kernel(x, num_bins=5, out=out, update="sort")
    assert out.get().tolist() == [7] * 5
    assert kernel(x - 1, num_bins=5, out=out, update="sort").get().tolist() == [1998, 999, 0, 0, 0]


def test_more_pairs_than_stated_of_a_batch_and_of_an_accumulator(profile):
    kernel = kernel_of(profile, "const int *x", "for (int k = 0; k < x[i]; ++k) EMIT(k, 1)", emits=2)
    x = np.tile(np.array([2, 1, 0, 2], np.int32), 100)
    assert kernel(x, num_bins=3, num_histograms=2, update="sort").tolist() == [[150, 100, 0]] * 2
    accumulator = kernel.accumulator(num_bins=3, update="sort")
    accumulator.add(x)
    x[17] = 3
    with pytest.raises(ValueError, match=r"^emits: expected at most 2 pairs"):
        kernel(x, num_bins=3, num_histograms=2, update="sort")
    with pytest.raises(ValueError, match=r"^emits: expected at most 2 pairs"):
        accumulator.add(x)


def test_maps_whose_text_shows_more_pairs_than_stated(profile):
    """The text bounds the pairs, so that nothing is checked, and nothing is lost."""
    kernel = kernel_of(profile, "const int *x", "EMIT(x[i], 1); EMIT(x[i] + 1, 1); if (x[i] > 3) EMIT(0, 1)", emits=1)
    x = np.random.default_rng(5).integers(0, 5, 3000, np.int32)
    counts = np.bincount(x, minlength=6)
    counts[1:] += counts[:-1].copy()
    counts[0] += (x > 3).sum()
    for choices in ({}, {"update": "sort"}):
        np.testing.assert_array_equal(kernel(x, num_bins=6, **choices), counts)
    with pytest.raises(ValueError, match=r"^memory: 'partitioned' takes maps that emit one value"):
        kernel(x, num_bins=6, memory="partitioned")


@pytest.mark.parametrize("num_bins", [40, 3_000_000])  # copies that take turns, and partitions
def test_loops_of_more_pairs_than_the_one_stated(num_bins, profile):
    kernel = kernel_of(profile, "const int *x, int n", "for (int k = 0; k < 3; ++k) EMIT((x[i] + k) % n, k)", emits=1)
    x = np.random.default_rng(6).integers(0, num_bins, 2_500_000, np.int32)
    expected = np.zeros(num_bins, np.int64)
    for k in range(3):
        expected += k * np.bincount((x + k) % num_bins, minlength=num_bins)
    np.testing.assert_array_equal(kernel(x, num_bins, num_bins=num_bins), expected)


@pytest.mark.parametrize("more", [{}, {"max_abs": 1.0}])
@pytest.mark.parametrize("num_bins", [3, 2000])
def test_reproducible_sums_of_more_pairs_than_stated(num_bins, more, profile):
    """Sums in few words have room for as many values as elements have: of stated ones none relies on that."""
    code = "for (int k = 0; k < 64; ++k) EMIT(i % n, x[i])"
    kernel = kernel_of(profile, "const double *x, int n", code, operators.add(np.float64), emits=1)
    x = np.full(2**20 + 1, np.nextafter(1, 0))
    x[::3] *= 2.0**-30
    expected = 64 * np.bincount(np.arange(x.size) % num_bins, x, num_bins)
    result = kernel(x, num_bins, num_bins=num_bins, reproducible=True, **more)
    np.testing.assert_allclose(result, expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("operator", "draw", "fold"),
    [
        (
            Operator(
                THREE,
                "six_bytes(a, b)",
                (0, 0, -(2**15)),
                "six_bytes",
                preamble="value_t six_bytes(value_t a, value_t b)"
                "{ return (value_t){a.x + b.x, a.y ^ b.y, max(a.z, b.z)}; }",
            ),
            lambda rng, n: (rng.integers(-9, 9, n), rng.integers(0, 2**15, n), rng.integers(-(2**15), 2**15, n)),
            lambda v: (v["x"].sum(dtype=np.int16), np.bitwise_xor.reduce(v["y"]), v["z"].max(initial=-(2**15))),
        ),
        (
            Operator(LARGE, "(value_t){fmin(a.x, b.x), a.y + b.y, a.z | b.z}", (np.inf, 0, 0), "24_bytes"),
            lambda rng, n: (rng.normal(size=n), rng.integers(-(2**60), 2**60, n), rng.integers(0, 127, n)),
            lambda v: (v["x"].min(initial=np.inf), v["y"].sum(), np.bitwise_or.reduce(v["z"])),
        ),
        (
            PRODUCT,
            lambda rng, n: (rng.integers(0, 9, n), rng.integers(-(2**40), 2**40, n)),
            lambda v: (v["count"].sum(dtype=np.uint8), v["total"].sum()),
        ),
    ],
    ids=["6 bytes", "24 bytes", "product"],
)
def test_structs_of_all_sizes(operator, draw, fold, gpu_like, rng):
    bins, values = rng.integers(0, 30, 2000, np.int32), np.zeros(2000, operator.dtype)
    for name, column in zip(operator.dtype.names, draw(rng, 2000), strict=True):
        values[name] = column
    result = pair_kernel(operator, gpu_like)(bins, values, num_bins=31, update="sort")
    assert result.tolist() == np.array([fold(values[bins == k]) for k in range(31)], operator.dtype).tolist()


def test_sums_of_floats_are_the_same_every_time(gpu_like, rng):
    bins, values = rng.integers(0, 5, 20_000, np.int32), np.zeros(20_000, PRODUCT.dtype)
    values["total"] = rng.normal(size=20_000)
    kernel = pair_kernel(PRODUCT, gpu_like)
    first = kernel(bins, values, num_bins=5, update="sort")
    for _ in range(5):
        np.testing.assert_array_equal(kernel(bins, values, num_bins=5, update="sort"), first)


@pytest.mark.parametrize("pooled", [False, True])
def test_device_arrays(pooled, queue, rng):
    bins, values = rng.integers(-3, 60, 10_000, np.int32), rng.integers(0, 99, 10_000, np.int32)
    on_device = [cl_array.to_device(queue, array)[1:] for array in (bins, values)]
    dest = cl_array.zeros(queue, 50, np.int32)[10:]
    allocator = (MemoryPool if pooled else lambda found: found)(ImmediateAllocator(queue))
    for _ in range(3):
        found, event = reduce_by_index(
            dest, np.add, *on_device, out=dest, update="sort", allocator=allocator, return_event=True
        )
    event.wait()
    assert found is dest
    expected = [3 * sum(group) for group in groups_of(bins[1:], values[1:], 40)]
    assert dest.get().tolist() == expected


def test_a_queue_that_keeps_no_order(out_of_order_queue, gpu_like, rng):
    queue = out_of_order_queue
    bins, values = rng.integers(0, 300, 30_000, np.int32), np.zeros(30_000, PRODUCT.dtype)
    values["count"], values["total"] = 1, rng.integers(-(2**40), 2**40, 30_000)
    on_device = [cl_array.to_device(queue, array) for array in (bins, values)]
    totals, counts = np.zeros(300), np.bincount(bins, minlength=300)
    np.add.at(totals, bins, values["total"])
    assert counts.max() < 256
    kernel = pair_kernel(PRODUCT, gpu_like)
    for _ in range(10):
        result = kernel(*on_device, num_bins=300, queue=queue, update="sort").get(queue)
        np.testing.assert_array_equal(result["count"], counts)
        np.testing.assert_array_equal(result["total"], totals)


def test_several_threads(profile):
    kernel = pair_kernel(SUM, profile)

    def work(k):
        bins = np.random.default_rng(k).integers(0, 20, 2000, np.int32)
        for _ in range(10):
            result = kernel(bins, np.full(2000, k, np.int32), num_bins=20, update="sort")
            np.testing.assert_array_equal(result, k * counts_of(bins, 20))

    with ThreadPoolExecutor(6) as pool:
        for done in [pool.submit(work, k) for k in range(6)]:
            done.result()


@pytest.mark.parametrize("histograms", [1, 3, 40])
def test_a_batch_of_equal_shares(histograms, profile, rng):
    bins, values = rng.integers(-1, 12, 2400, np.int32), rng.integers(0, 99, 2400, np.int32)
    result = pair_kernel(SUM, profile)(bins, values, num_bins=11, num_histograms=histograms, update="sort")
    each = zip(np.split(bins, histograms), np.split(values, histograms), strict=True)
    assert result.tolist() == [[sum(group) for group in groups_of(b, v, 11)] for b, v in each]


def test_several_outputs_are_sorted_each_by_itself(gpu_like, rng):
    kernel = kernel_of(
        gpu_like,
        "const int *x",
        "EMIT_number(x[i] % 5, 1); if (x[i] > 50) EMIT_largest(x[i] % 3, (char)x[i])",
        {"number": SUM, "largest": operators.maximum(np.int8)},
    )
    x = rng.integers(0, 100, 2000, np.int32)
    plans = kernel.plan(2000, {"number": 5, "largest": 3}, update="sort")
    assert [(each.update, each.outputs[0].suffix, each.bins) for each in plans] == [
        ("sort", "_number", (5,)),
        ("sort", "_largest", (3,)),
    ]
    result = kernel(x, num_bins={"number": 5, "largest": 3}, update="sort")
    np.testing.assert_array_equal(result["number"], np.bincount(x % 5, minlength=5))
    assert result["largest"].tolist() == [x[(x % 3 == k) & (x > 50)].max() for k in range(3)]


@pytest.mark.parametrize("known", [0, 4, 5, 9])
def test_the_largest_bin_with_a_value_is_reported(known, profile, queue):
    arguments, code = "const int *bins, const int *values, uint *found", "EMIT(bins[i], values[i])"
    kernel = HistogramKernel(None, SUM, arguments=arguments, map=code, profile=profile)
    bins, values, found = np.array([3, 999, 5, 3], np.int32), np.ones(4, np.int32), np.zeros(1, np.uint32)
    call = Call(10, queue=queue, largest=LargestBin("total != 0", "found", known), choices=SORT)
    outcome = kernel.engine.run([bins, values, found], call)
    assert found == (5 if known < 5 else 0)
    assert outcome.results[0].tolist() == [0, 0, 0, 2, 0, 1, 0, 0, 0, 0]


def test_time_of_the_stages(profile, queue):
    profiling = cl.CommandQueue(queue.context, properties=cl.command_queue_properties.PROFILING_ENABLE)
    bins, values = np.zeros(200_000, np.int32), np.ones(200_000, np.int32)
    kernel = pair_kernel(SUM, profile)
    result, seconds = kernel.timed(bins, values, num_bins=1000, queue=profiling, update="sort")
    assert result[0] == 200_000
    assert list(seconds) == ["clear", "sweep", "combine"]
    outcome = kernel.engine.run([bins, values], Call(1000, queue=profiling, choices=SORT))
    pairs, sort, scan = outcome.events["sweep"]
    assert outcome.after == {sort: pairs, scan: sort}
    # Of the sort as of the scan PyOpenCL tells only of the last command: from the end of what was before.
    found = outcome.seconds(profiling)
    assert found["sweep"] == pytest.approx((scan.profile.end - pairs.profile.start) * 1e-9)
    assert found["combine"] > 0


def test_the_source_can_be_read(profile):
    kernel = pair_kernel(SUM, profile)
    source = kernel.source(kernel.plan(1000, 10, update="sort"))
    assert "void clhist_pairs(" in source
    assert "clhist_keys[*clhist_next] = " in source


@pytest.mark.parametrize("code", ["for (int k = 0; k < 2; ++k) EMIT(k, 1)", "#define E EMIT(0, 1)\nE; E"])
def test_a_map_that_may_repeat_is_refused(code, profile):
    kernel = kernel_of(profile, "const int *x", code)
    message = (
        r"^update: 'sort' needs to know how many values an element has at most: expected a map without loops, goto and "
        r"macros of its own, or emits= for the kernel$"
    )
    out = np.full(3, 7, np.int32)
    with pytest.raises(ValueError, match=message):
        kernel(np.zeros(5, np.int32), num_bins=3, out=out, update="sort")
    assert out.tolist() == [7, 7, 7]


@pytest.mark.parametrize(
    ("choices", "error", "message"),
    [
        ({"memory": "local"}, ValueError, "memory: expected 'global' with update='sort', got 'local'"),
        ({"copies": 2}, ValueError, "copies: expected 1 with update='sort', got 2"),
        ({"passes": 3}, ValueError, "passes: expected 1 with update='sort', got 3"),
        ({"offsets": [0, 2, 6]}, ValueError, "update: 'sort' takes batches of equal shares, by num_histograms=, got"),
        (
            {"memory_budget": 100},
            MemoryError,
            "memory_budget: sorting 6 pairs into 3 bins takes 132 bytes, got 100 bytes",
        ),
    ],
)
def test_choices_that_contradict_it(choices, error, message, profile):
    bins = np.zeros(6, np.int32)
    with pytest.raises(error) as caught:
        pair_kernel(SUM, profile)(bins, bins, num_bins=3, update="sort", **choices)
    assert str(caught.value).startswith(message)


def test_too_many_pairs_or_bins(profile):
    kernel = kernel_of(profile, "const char *x", "EMIT(0, x[i]); EMIT(1, x[i])")
    most = MOST_SORTED_PAIRS // 2
    assert kernel.plan(most, 2, update="sort", memory_budget=2**60).update == "sort"
    with pytest.raises(ValueError, match=rf"^update: 'sort' takes at most {2**30 - 1} .* pairs, got {2 * most + 2}$"):
        kernel.plan(most + 1, 2, update="sort", memory_budget=2**60)
    assert kernel.plan(10, MOST_SORTED_BINS, update="sort", memory_budget=2**60).update == "sort"
    for more in ({"num_bins": 2**31}, {"num_bins": 2**30, "num_histograms": 2}):
        with pytest.raises(ValueError, match=rf"^update: 'sort' takes at most {2**31 - 1} bins, got {2**31}$"):
            kernel.plan(10, **more, update="sort", memory_budget=2**60)


def test_no_room_for_the_pairs(profile, queue):
    bins, left = cl_array.zeros(queue, 10_000, np.int32), [3]
    own = ImmediateAllocator(queue)

    def allocator(size):
        left[0] -= 1
        if left[0] < 0:
            raise cl.MemoryError("allocate", cl.status_code.MEM_OBJECT_ALLOCATION_FAILURE)
        return own(size)

    with pytest.raises(MemoryError, match=r"^the device has no \d+ bytes more to sort 10000 \(bin, value\) pairs"):
        pair_kernel(SUM, profile)(bins, bins, num_bins=3, update="sort", allocator=allocator)


def test_a_wrong_operator_is_shown_with_its_source(profile):
    kernel = pair_kernel(Operator(np.int32, "a +* no_such_name + b", 0, "wrong"), profile)
    with pytest.raises(BuildError, match="no_such_name"):
        kernel(np.zeros(6, np.int32), np.zeros(6, np.int32), num_bins=3, update="sort")


def test_a_call_that_fits_the_memory_budget_only_sorted(gpu_like, rng):
    bins, num_bins = rng.integers(-9, 30_009, 1000, np.int32), 30_000
    values = np.zeros(1000, ARGMIN.dtype)
    values["value"], values["index"] = rng.integers(-9, 9, 1000), rng.permutation(1000)
    kernel = pair_kernel(ARGMIN, gpu_like)
    chosen = kernel.plan(1000, num_bins, memory_budget=560_000)
    assert chosen.update == "sort"
    result = kernel(bins, values, num_bins=num_bins, memory_budget=560_000)
    expected = kernel(bins, values, num_bins=num_bins)
    assert kernel.plan(1000, num_bins).update == "lock"
    np.testing.assert_array_equal(result, expected)
    with pytest.raises(MemoryError, match=r"^memory_budget: one copy of 30000 bins takes 600000 bytes"):
        kernel(bins, values, num_bins=num_bins, memory_budget=500_000)


def test_the_model_counts_the_kernels_that_are_launched(queue, monkeypatch):
    launched = []
    run = Chain.run
    monkeypatch.setattr(Chain, "run", lambda self, *args, **more: (launched.append(1), run(self, *args, **more))[1])
    bins = np.random.default_rng(3).integers(0, 70_000, 5000).astype(np.int32)
    found = reduce_by_index(70_000, "sum", bins, np.ones(5000, np.int32), update="sort", queue=queue)
    assert (found == np.bincount(bins, minlength=70_000)).all()
    assert len(launched) == sort_launches(5000, 70_000) - 3, "those that clear, write pairs and combine are no chain's"
