"""No kernel has more local memory in its source than the device: compilers of GPUs refuse it."""

from __future__ import annotations

import dataclasses
import random
import re
from itertools import product

import numpy as np
import pytest
from covering import mostly_slow

from clhist import HistogramKernel, Operator, operators
from clhist.hardware.profile import named_profile
from clhist.opencl.device import device_features, trust
from clhist.planning.packed import SPILLS_BYTES

RECORD = np.dtype([("key", np.int64), ("position", np.int64)])
OPERATORS = {
    "add int32": operators.add(np.int32),
    "add float32": operators.add(np.float32),
    "multiply int64": operators.multiply(np.int64),
    "argmax float32": operators.argmax(np.float32),
    "mean float32": operators.mean(np.float32),
    "saturating_add uint8": operators.saturating_add(np.uint8, 255),
    "multiply complex128": operators.multiply(np.complex128),
    "struct": Operator(RECORD, "b.key > a.key || (b.key == a.key && b.position < a.position) ? b : a", (0, 0)),
}


SIZES = [4001, 12_345, 32_768, 49_152, 65_536, 74_445, 227_328, 231_424]


@pytest.mark.parametrize(("local_memory", "name"), mostly_slow(list(product(SIZES, OPERATORS))))
def test_what_the_source_asks_for(name, local_memory, queue):
    rnd = random.Random(local_memory)
    profile = dataclasses.replace(
        named_profile("nvidia-h200"), rates={}, local_memory=local_memory, features=device_features(queue.device)
    )
    trust(profile)  # or a device that has less would refuse it
    kernel = HistogramKernel(
        queue.context,
        OPERATORS[name],
        arguments="const int *b, const value_t *v",
        map="EMIT(b[i], v[i])",
        profile=profile,
    )
    found = 0
    for memory in ("local", "partitioned"):
        for update in ("private", "native", "cas", "lock"):
            for num_bins in (1, 400_000, rnd.randrange(1, 10**6)):
                for more in ({}, {"copies": 3}, {"num_histograms": 4}, {"locks": 256}):
                    try:
                        plan = kernel.plan(10**7, num_bins, memory=memory, update=update, **more)
                    except (ValueError, MemoryError):  # cannot be
                        continue
                    sizes = [int(size) for size in re.findall(r"clhist_pool\[(\d+)\]", kernel.source(plan, queue))]
                    assert sizes, plan
                    assert max(sizes) <= local_memory, plan
                    assert all(size % 16 == 0 for size in sizes), "words lie at the end"
                    found += 1
    assert found > 5


@pytest.mark.parametrize("local_memory", [4001, 12_345, 65_536])
def test_packed_counters(local_memory, queue):
    profile = dataclasses.replace(
        named_profile("nvidia-h200"), rates={}, local_memory=local_memory, features=device_features(queue.device)
    )
    trust(profile)
    kernel = HistogramKernel(
        queue.context, operators.add(np.int32), arguments="const int *b", map="EMIT(b[i], 1)", profile=profile
    )
    packed = 0
    for num_bins in range(local_memory // 2 - 20, local_memory // 2 + 1):
        plan = kernel.plan(10**7, num_bins)
        if plan.strategy == "packed":
            packed += 1
            (size,) = (int(size) for size in re.findall(r"clhist_pool\[(\d+)\]", kernel.source(plan, queue)))
            assert 4 * -(-num_bins * plan.counter_bits // 32) + SPILLS_BYTES <= size <= local_memory
    assert packed > 5


@pytest.mark.parametrize("value", [0, 1, -7, 2**31 - 1])
@pytest.mark.parametrize(
    "choices",
    [
        *({"memory": "local", "copies": copies, "passes": passes} for copies, passes in ((1, 1), (3, 1), (1, 3))),
        *({"memory": "partitioned", "passes": passes} for passes in (1, 5)),
        {"memory": "global"},
        {},
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_a_value_that_all_pairs_share(dtype, choices, value, gpu_like, rng):
    """Bins in local memory count them, and are multiplied at the end, modulo the same power of 2."""
    bins = np.where(rng.random(20_003) < 0.5, 17, rng.integers(-3, 303, 20_003)).astype(np.int32)
    kernel = HistogramKernel(
        None, operators.add(dtype), arguments="const int *x, int k", map="EMIT(x[i], k)", profile=gpu_like
    )  # and a name that our own loops have
    before = rng.integers(-99, 99, 300).astype(dtype)
    want = np.bincount(bins[(bins >= 0) & (bins < 300)], minlength=300) * value
    got = kernel(bins, value, num_bins=300, **choices), kernel(bins, value, num_bins=300, dest=before, **choices)
    for found, expected in zip(got, (want, want + before), strict=True):
        np.testing.assert_array_equal(found, expected.astype(dtype))
    if choices.get("memory") == "local":
        assert "clhist_emit(CLHIST_BIN(bin), 1, " in kernel.source(kernel.plan(20_003, 300, **choices))


@pytest.mark.parametrize(
    ("value", "given", "number"), [("w", -2.5, 2), ("-w", 2.5, 2), ("w * 2 - 7.5", 1.0, 5), ("-1.5f", 0.0, 1)]
)
@pytest.mark.parametrize("choices", [{"memory": "local"}, {"memory": "partitioned", "passes": 3}], ids=str)
def test_the_value_is_converted_first(choices, value, given, number, gpu_like, rng):
    """As that of each pair is: to the type of values, then to that of accumulators."""
    bins = rng.integers(0, 50, 5000, np.int32)
    operator = Operator(np.int32, "a + b", 0, accumulator=np.int64, lift="v", finish="a < 0 ? -a : a")
    kernel = HistogramKernel(
        None, operator, arguments="const int *x, float w", map=f"EMIT(x[i], {value})", profile=gpu_like
    )
    np.testing.assert_array_equal(kernel(bins, given, num_bins=50, **choices), np.bincount(bins) * number)
