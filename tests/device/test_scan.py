"""Segmented scans, against NumPy's."""

from __future__ import annotations

from functools import cache

import numpy as np
import pyopencl.array as cl_array
import pytest

from clhist._core.kernels.scan import ScanSpec
from clhist._core.runtime.launcher import chain_on
from clhist._core.runtime.scan import Scan
from clhist.operators.c_types import c_name

LANES = [1, 2, 48, 256, None]
LENGTHS = {  # of segments
    "one": lambda rng, size: [size],
    "each": lambda rng, size: [1] * size,
    "some": lambda rng, size: rng.integers(1, 40, size),
    "few": lambda rng, size: rng.integers(1, size // 3 + 2, size),
}
MAP = """
typedef struct { uint words[3]; } map_t;
map_t of(uint m, uint n, uint last) { map_t a; a.words[0] = m; a.words[1] = n; a.words[2] = last; return a; }
map_t read(__global const uint *at) { return of(at[0], at[1], at[2]); }
map_t both(map_t a, map_t b)
{
    return of(a.words[0] * b.words[0], b.words[0] * a.words[1] + b.words[1], b.words[2]);
}"""
WORDS = "for (int n = 0; n < 3; ++n) found[3 * i + n] = item.words[n];"


def maps(values, begins):
    """Return x -> m * x + n, one map after the other of each segment, and the word behind it of the last."""
    composed, firsts, m, n = [], set(begins.tolist()), 1, 0
    for i, (p, q, last) in enumerate(values.tolist()):
        m, n = (p, q) if i in firsts else (p * m % 2**32, (p * n + q) % 2**32)
        composed.append((m, n, last))
    return np.array(composed, np.uint32).reshape(-1, 3)


def keys_of(lengths, size):
    """Return the number of the segment of each of `size` elements."""
    ends = np.cumsum(lengths)
    return np.searchsorted(ends, np.arange(size), "right").astype(np.uint32)


@cache
def segments(dtype):
    """Return arrays of different lengths: of the numbers of segments, values, and the expected results."""
    rng, found = np.random.default_rng(20), []
    for size in (0, 1, 2, 47, 1000, 30_011):
        values = rng.integers(0, 90, (size, 3) if dtype == "u4" else size).astype(dtype)
        for make in LENGTHS.values():
            keys = keys_of(make(rng, size), size)
            begins = np.flatnonzero(np.diff(keys, prepend=-1))
            if dtype == "u4":
                expected = maps(values, begins)
            else:
                sums, first = np.cumsum(values, dtype=dtype), np.repeat(begins, np.diff(begins, append=size))
                expected = sums - sums[first] + values[first]
            found.append((keys, values, expected))
    return found


def spec_of(dtype):
    c_type, begins = c_name(np.dtype(dtype)), "keys[i] != keys[i - 1]"
    given = f"const uint *keys, const {c_type} *values, {c_type} *found"
    if dtype == "u4":
        read, none = "read(values + 3 * i)", "of(1, 0, 0)"
        return ScanSpec("maps", given, "map_t", 12, read, "both(a, b)", none, WORDS, begins, MAP)
    item = np.dtype(dtype).itemsize
    return ScanSpec("sums", given, c_type, item, "values[i]", "a + b", "0", "found[i] = item;", begins)


def scanned(queue, dtype, lanes, keys, values):
    given = [cl_array.to_device(queue, each) for each in (keys, values)]
    found, chain = cl_array.zeros(queue, values.shape, values.dtype), chain_on(queue, "to scan")
    Scan(queue.context, spec_of(dtype), lanes)(chain, len(keys), [*given, found])
    chain.finish(found)
    return found.get()


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize(
    "dtype", ["u4", "f4", *(pytest.param(each, marks=pytest.mark.slow) for each in ("u1", "i8", "f8"))]
)
def test_segments_across_what_a_scan_is_divided_into(dtype, lanes, queue):
    """Sums of numbers so small that those of floats are exact; and maps, whose order matters, as words of a struct."""
    for keys, values, expected in segments(dtype):
        np.testing.assert_array_equal(scanned(queue, dtype, lanes, keys, values), expected)


@pytest.mark.parametrize("lanes", LANES)
def test_without_segments_and_in_place(lanes, queue, rng):
    output = "marks[i] = marks[i] ? item + more : 0;"
    spec = ScanSpec("marks", "uint *marks, const uint more", "uint", 4, "marks[i]", "a + b", "0", output)
    marks = rng.integers(0, 2, 20_001, np.uint32)
    given, chain = cl_array.to_device(queue, marks), chain_on(queue, "to scan")
    Scan(queue.context, spec, lanes)(chain, marks.size, [given, 7])
    chain.finish(given)
    np.testing.assert_array_equal(given.get(), np.where(marks, np.cumsum(marks) + 7, 0))


@pytest.mark.parametrize("lanes", LANES)
def test_sums_of_floats_come_out_the_same(lanes, queue, rng):
    values, keys = rng.normal(size=20_021).astype(np.float32), keys_of([1000, 19_021], 20_021)
    one, other = (scanned(queue, "f4", lanes, keys, values) for _ in range(2))
    assert one.tobytes() == other.tobytes()
    np.testing.assert_allclose(one[1000:], np.cumsum(values[1000:].astype(float)), atol=1e-2)
