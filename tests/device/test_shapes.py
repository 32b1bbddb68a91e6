"""Lengths, numbers of bins, sizes of work-groups and distributions at which something else begins."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
from covering import covering, each_value_quick, mostly_slow

from clhist import HistogramKernel, operators
from clhist._core.devices.vendors import MEMORIES
from clhist.selftest.cases import CASES, pair_kernel
from clhist.selftest.inputs import DISTRIBUTIONS, drawn
from clhist.selftest.reference import counts_of, groups_of

# Kernels that read 2^31 elements take half a minute without optimization, and tests see what compilers vectorize.
pytestmark = pytest.mark.usefixtures("with_optimizer")

COUNT = operators.add(np.int32)
ORDERS = ["blocked", "interleaved"]  # of `profile`

# Around the widths of wide loads, work-groups and tiles (gpu_like: 1024 elements of 4 bytes), and around the number of
# work-items.
LENGTHS = [0, 1, 2, 3, 15, 16, 17, 31, 33, 63, 64, 65, 127, 255, 256, 257, 511, 512, 513, 1023, 1024, 1025]
LENGTHS += [2047, 2048, 2049, 3071, 4096, 4097, 8191, 8192, 8193, 9001]

# Around the columns of the combining kernel, and around 1 to 4 passes over local memory (gpu_like: 8192 bins).
BINS = [1, 2, 3, 31, 32, 33, 255, 256, 257, 1023, 2048, 2049, 8191, 8192, 8193, 16384, 16385, 24576, 24577, 100_003]


@pytest.mark.parametrize(
    ("index", "profile"), each_value_quick(covering(["char", "int", "long"], ORDERS)), indirect=["profile"]
)
def test_lengths(index, profile, rng):
    kernel = HistogramKernel(None, COUNT, arguments=f"const {index} *bins", map="EMIT(bins[i], i + 1)", profile=profile)
    for length in LENGTHS:
        bins = rng.integers(-1, 6, length).astype(kernel.arguments[0].dtype)
        sums = [sum(group) for group in groups_of(bins, np.arange(1, length + 1), 5)]
        np.testing.assert_array_equal(kernel(bins, num_bins=5), sums, err_msg=f"{length} elements")


@pytest.mark.parametrize(
    ("length", "memory", "profile"),
    each_value_quick(covering([1, 5, 63, 64, 65, 100, 300, 513], MEMORIES, ORDERS)),
    indirect=["profile"],
)
def test_fewer_elements_than_work_items(length, memory, profile):
    # Without an atomic for float32 each work-item gets a copy where there are as many: none may be shared.
    kernel = HistogramKernel(None, operators.add(np.float32), arguments="", map="EMIT(i % 2, 1)", profile=profile)
    for choices in ({}, {"copies": length}, {"copies": length - 1 or 1}, {"work_group_size": 16}):
        result = kernel(num_bins=3, size=length, memory=memory, **choices)
        assert result.tolist() == [(length + 1) // 2, length // 2, 0], choices


def test_numbers_of_bins(profile, rng):
    kernel = pair_kernel(COUNT, profile)
    values = rng.integers(-1000, 1000, 5000, np.int32)
    for num_bins in BINS:
        bins = rng.integers(-2, num_bins + 2, 5000, np.int32)
        expected = np.zeros(num_bins, np.int32)
        inside = (bins >= 0) & (bins < num_bins)
        np.add.at(expected, bins[inside], values[inside])
        np.testing.assert_array_equal(kernel(bins, values, num_bins=num_bins), expected, err_msg=f"{num_bins} bins")


@pytest.mark.parametrize(
    ("work_group_size", "memory", "profile"),
    each_value_quick(covering([1, 2, 24, 256], MEMORIES, ORDERS)),
    indirect=["profile"],
)
def test_sizes_of_work_groups(work_group_size, memory, profile, rng):
    kernel = pair_kernel(COUNT, profile)
    bins, values = rng.integers(-1, 51, 6001, np.int32), rng.integers(-99, 99, 6001, np.int32)
    expected = [sum(group) for group in groups_of(bins, values, 50)]
    for copies in (None, 2, work_group_size):
        choices = {"memory": memory, "work_group_size": work_group_size, "copies": copies}
        assert kernel(bins, values, num_bins=50, **choices).tolist() == expected


@pytest.mark.parametrize("rows", [1, 2, 3, 6, 7, 12, 16])
def test_rows_of_the_combining_kernel(rows, gpu_like, monkeypatch, rng):
    # As many as the device's largest work-group allows: 12 where that is 384.
    monkeypatch.setattr("clhist._core.kernels.from_plan._COMBINE_ROWS", rows)
    bins = rng.integers(0, 45, 5000, np.int32)
    result = pair_kernel(COUNT, gpu_like)(bins, np.ones_like(bins), num_bins=45, memory="global", copies=50)
    np.testing.assert_array_equal(result, counts_of(bins, 45))


@pytest.mark.parametrize("name", ["add int32", "add float32", "argmax float32", "two largest"])
@pytest.mark.parametrize("memory", MEMORIES)
def test_distributions(name, memory, gpu_like, rng):
    case = CASES[name]
    kernel = pair_kernel(case.operator, gpu_like)
    for distribution in DISTRIBUTIONS:
        bins = drawn(distribution, rng, 4001, 300)
        values = case.draw(rng, 4001)
        case.check(groups_of(bins, values, 300))(kernel(bins, values, num_bins=300, memory=memory, copies=1))


# More than 2^31 elements, with the same kernel and profile, are a check of the self-test.
@pytest.mark.parametrize("size", [2**31 - 2**24, 2**31 - 2**24 + 1], ids=["narrow", "wide"])
def test_as_many_elements_as_an_int_counts(size, gpu_like):
    kernel = HistogramKernel(
        None, COUNT, arguments="long before", map="if (i >= before) EMIT(i - before, 1)", profile=gpu_like
    )
    assert kernel(size - 100, size=size, num_bins=101).tolist() == [1] * 100 + [0]


COMPUTED = {
    "i & 3": lambda i: i & 3,
    "i & 7": lambda i: i & 7,
    "i % 5": lambda i: i % 5,
    "i % 4u": lambda i: i % 4,
    "(i & 15) * 2 + 1": lambda i: (i & 15) * 2 + 1,
}


@pytest.mark.parametrize(
    ("how", "dtype"),
    mostly_slow(
        [("map", np.int32), ("loop", np.int32), ("macro", np.int32), ("map", np.float64), ("loop", np.float64)], 2
    ),
)
def test_bins_that_are_computed(how, dtype):
    # Compilers must not make vectors of bins that are the same.
    texts = {
        "map": ("EMIT({0}, 1)", "", 100),
        "loop": ("for (int j = 0; j < 100; ++j) EMIT({1}, 1)", "", 1),
        "macro": ("EMIT(BIN_OF_I, 1)", "#define BIN_OF_I ({0})", 100),
    }
    code, preamble, size = texts[how]
    for text, bin_of in COMPUTED.items():
        both = text, re.sub(r"\bi\b", "j", text)
        kernel = HistogramKernel(
            None, operators.add(dtype), arguments="int unused", map=code.format(*both), preamble=preamble.format(*both)
        )
        bins = [bin_of(i) for i in range(100)]
        result = kernel(1, num_bins=32, size=size, update="private")
        assert result.tolist() == np.bincount(bins, minlength=32).tolist(), text


def test_more_work_items_than_elements_of_each(gpu_like):
    # Each work-item may get one element, or none.
    wide = dataclasses.replace(gpu_like, hardware_threads=100_000)
    bins = np.arange(70_000, dtype=np.int32) % 7
    assert pair_kernel(COUNT, wide)(bins, np.ones_like(bins), num_bins=7).tolist() == [10_000] * 7
