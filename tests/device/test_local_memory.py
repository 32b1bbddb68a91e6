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
from clhist._core.devices.profile import named_profile
from clhist._core.model.feature import SPILLS_BYTES
from clhist._core.opencl.device import device_features, trust

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
                    source = kernel.source(plan, queue)
                    assert all(
                        4 * int(n) + 16 <= local_memory for n in re.findall(r"uint clhist_ends\[(\d+)\]", source)
                    )
                    sizes = [int(size) for size in re.findall(r"clhist_pool\[(\d+)\]", source)]
                    assert sizes, plan
                    assert max(sizes) <= local_memory, plan
                    assert all(size % 16 == 0 for size in sizes), "words lie at the end"
                    found += 1
    assert found > 5


@pytest.mark.usefixtures("only_measured_rates")
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
