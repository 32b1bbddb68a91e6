"""Bins of every integer type, and bins that do not exist: far below, far above, and such as would wrap into range."""

from __future__ import annotations

import numpy as np
import pytest
from covering import covering, each_value_quick, mostly_slow
from scalars import INTEGERS

from clhist import HistogramKernel, operators, reduce_by_index
from clhist._core.devices.vendors import MEMORIES
from clhist.selftest.cases import CASES, NUM_BINS, pair_kernel, problem
from clhist.selftest.reference import counts_of


def bins_at_limits(dtype: str, num_bins: int) -> np.ndarray:
    """Return what a bin can be near the ends of its type, of every other type, and of the histogram."""
    limits = np.iinfo(dtype)
    ends = (0, num_bins, *(2**bits for bits in (7, 8, 15, 16, 31, 32, 33, 63, 64)))
    near = {sign * (end + step) for end in ends for step in range(-3, 4) for sign in (1, -1)}
    near |= {2**32 * k + num_bins // 2 for k in range(-2, 3)}
    return np.array([k for k in sorted(near) if limits.min <= k <= limits.max], dtype)


@pytest.fixture
def wide(monkeypatch):
    """Let few elements and few bins be as many as need 64 bits."""
    monkeypatch.setattr("clhist._core.kernels.from_plan.NARROW_ELEMENTS", 1)
    monkeypatch.setattr("clhist._core.kernels.from_plan.NARROW_BINS", 1)


@pytest.mark.parametrize(
    ("dtype", "any_profile"),
    [
        *mostly_slow(
            [
                (dtype, "own profile")
                for dtype in ("int16", "int8", "int64", "int32", "uint8", "uint16", "uint32", "uint64")
            ],
            2,
        ),
        *((dtype, "as a GPU") for dtype in ("int8", "uint16", "int32", "uint64")),
    ],
    indirect=["any_profile"],
)
def test_indices_of_each_integer_type(dtype, any_profile, rng):
    for num_bins in (1, 100, 127, 128, 129, 255, 256, 300, 40_000, 65_536):
        inside = rng.integers(0, min(num_bins, np.iinfo(dtype).max), 2000).astype(dtype)
        indices = rng.permutation(np.concatenate([inside, bins_at_limits(dtype, num_bins)]))
        dest = np.zeros(num_bins, np.int32)
        expected = counts_of(indices, num_bins)
        for passes in (None, 3):
            result = reduce_by_index(dest, np.add, indices, 1, passes=passes)
            np.testing.assert_array_equal(result, expected)


@pytest.mark.usefixtures("wide")
@pytest.mark.parametrize("dtype", INTEGERS)
def test_indices_of_each_integer_type_in_64_bits(dtype, gpu_like, rng):
    kernel = HistogramKernel(
        None,
        operators.add(np.int32),
        arguments=f"const {INTEGERS[dtype]} *bins",
        map="EMIT(bins[i], 1)",
        profile=gpu_like,
    )
    assert "typedef ulong clhist_bin_t" in kernel.source(kernel.plan(2, 2))
    for num_bins in (100, 128, 300):
        bins = rng.permutation(bins_at_limits(dtype, num_bins).repeat(9))
        np.testing.assert_array_equal(kernel(bins, num_bins=num_bins, passes=2), counts_of(bins, num_bins))


@pytest.mark.usefixtures("wide")
@pytest.mark.parametrize(
    ("name", "memory", "profile"),
    each_value_quick(covering(["add int32", "add float32", "two largest"], MEMORIES, ["blocked", "interleaved"])),
    indirect=["profile"],
)
def test_each_way_to_update_in_64_bits(name, memory, profile):
    bins, values, check = problem(name)
    kernel = pair_kernel(CASES[name].operator, profile)
    for copies, passes in ((1, 1), (3, 2)):
        check(kernel(bins, values, num_bins=NUM_BINS, memory=memory, copies=copies, passes=passes))


EXPRESSIONS = {
    "i": 1,
    "(uchar)(i + 256)": 1,
    "(long)i": 1,
    "(ulong)i": 1,
    "i + 0x100000000l": 0,
    "i - 0x100000000l": 0,
    "(ulong)i | 0x8000000000000000ul": 0,
    "(uint)i | 0x80000000u": 0,
    "-1 - i": 0,
    "(char)(-1 - i)": 0,
    "(long)-1 - i": 0,
    "~(ulong)i": 0,
    "~(uint)i": 0,
    "0x7fffffff - i": 0,
    "i & 1 ? i : -1": None,
}


def test_bins_as_expressions(gpu_like):
    """A histogram of each, of one program."""
    code = "; ".join(f"EMIT{n}({expression}, 1)" for n, expression in enumerate(EXPRESSIONS))
    counts = [operators.add(np.int32)] * len(EXPRESSIONS)
    kernel = HistogramKernel(None, counts, arguments="", map=code, profile=gpu_like)
    every_other = [k % 2 for k in range(50)]
    for found, (expression, expected) in zip(kernel(size=50, num_bins=50), EXPRESSIONS.items(), strict=True):
        assert found.tolist() == (every_other if expected is None else [expected] * 50), expression
