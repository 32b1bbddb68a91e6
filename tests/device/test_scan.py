"""Segmented scans, against NumPy's and Python's."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import pyopencl.array as cl_array
import pytest

from clhist.codegen.scan import ScanSpec
from clhist.engine.chain import chain_on
from clhist.engine.scan import Scan
from clhist.operators.c_types import c_name

LANES = [1, 2, 48, 256, None]
LENGTHS = {
    "one": lambda rng, size: [size],
    "each": lambda rng, size: [1] * size,
    "some": lambda rng, size: rng.integers(1, 40, size),
    "few": lambda rng, size: rng.integers(1, size // 3 + 2, size),
}


def keys_of(lengths, size):
    return np.repeat(np.arange(len(lengths), dtype=np.uint32), lengths)[:size]


def scanned(queue, spec, lanes, keys, values, size, shape=None):
    """Return what the items up to each element are combined to, as words or numbers of the values' type."""
    given = [cl_array.to_device(queue, each) for each in (keys, values)]
    found = cl_array.zeros(queue, values.shape, values.dtype)
    chain = chain_on(queue, "to scan")
    Scan(queue.context, spec, lanes)(chain, size, [*given, found])
    chain.finish(found)
    return found.get()


def spec_of(dtype, combine, neutral, begins="keys[i] != keys[i - 1]", name="scan"):
    c_type = c_name(np.dtype(dtype))
    return ScanSpec(
        name, f"const uint *keys, const {c_type} *values, {c_type} *found", c_type, np.dtype(dtype).itemsize,
        "values[i]", combine, neutral, "found[i] = item;", begins,
    )  # fmt: skip


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", ["u1", "u4", "i8", "f4", "f8"])
def test_sums(dtype, lanes, queue, rng):
    """Of numbers so small that sums of floats are exact, in segments that no share, tile or work-item begins with."""
    spec = spec_of(dtype, "a + b", "0")
    for size in (1, 2, 47, 1000, 30_011):
        values = rng.integers(0, 90, size).astype(dtype)
        for make in LENGTHS.values():
            keys = keys_of(make(rng, size), size)
            sums = np.cumsum(values, dtype=dtype)
            begins = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
            before = np.append(np.zeros(1, dtype), sums[begins[1:] - 1])
            expected = sums - np.repeat(before, np.diff(np.append(begins, size)))
            found = scanned(queue, spec, lanes, keys, values, size)
            np.testing.assert_array_equal(found, expected)
    assert not scanned(queue, spec, lanes, keys, values, 0).any()


@pytest.mark.parametrize("lanes", LANES)
def test_maps_whose_order_matters(lanes, queue, rng):
    """x -> m * x + n, one after the other, as words of a struct: 3 words, of which one stands for more."""
    spec = ScanSpec(
        "maps", "const uint *keys, const uint *values, uint *found", "map_t", 12,
        "read(values + 3 * i)", "both(a, b)", "none()",
        "for (int n = 0; n < 3; ++n) found[3 * i + n] = item.words[n];", "keys[i] != keys[i - 1]",
        """typedef struct { uint words[3]; } map_t;
        map_t of(uint m, uint n, uint last) { map_t a; a.words[0] = m; a.words[1] = n; a.words[2] = last; return a; }
        map_t read(__global const uint *at) { return of(at[0], at[1], at[2]); }
        map_t none(void) { return of(1, 0, 0); }
        map_t both(const map_t a, const map_t b)
        {
            return of(a.words[0] * b.words[0], b.words[0] * a.words[1] + b.words[1], b.words[2]);
        }""",
    )  # fmt: skip

    def both(a, b):
        return (a[0] * b[0] % 2**32, (b[0] * a[1] + b[1]) % 2**32, b[2])

    for size in (1, 530, 9_011):
        values = rng.integers(0, 2**32, (size, 3), np.uint32)
        for make in LENGTHS.values():
            keys = keys_of(make(rng, size), size)
            parts = np.split(values, np.flatnonzero(np.diff(keys)) + 1)
            expected = np.concatenate([list(accumulate(map(tuple, part.tolist()), both)) for part in parts])
            np.testing.assert_array_equal(scanned(queue, spec, lanes, keys, values, size), expected)


@pytest.mark.parametrize("lanes", LANES)
def test_without_segments_and_in_place(lanes, queue, rng):
    spec = ScanSpec("marks", "uint *marks, const uint more", "uint", 4, "marks[i]", "a + b", "0u",
                    "marks[i] = marks[i] ? item + more : 0;")  # fmt: skip
    marks = rng.integers(0, 2, 20_001, np.uint32)
    given, chain = cl_array.to_device(queue, marks), chain_on(queue, "to scan")
    Scan(queue.context, spec, lanes)(chain, marks.size, [given, 7])
    chain.finish(given)
    np.testing.assert_array_equal(given.get(), np.where(marks, np.cumsum(marks) + 7, 0))


@pytest.mark.parametrize("lanes", LANES)
def test_sums_of_floats_come_out_the_same(lanes, queue, rng):
    values, keys = rng.normal(size=20_021).astype(np.float32), keys_of([1000, 19_021], 20_021)
    spec = spec_of("f4", "a + b", "0.0f")
    one, other = (scanned(queue, spec, lanes, keys, values, values.size) for _ in range(2))
    assert one.tobytes() == other.tobytes()
    np.testing.assert_allclose(one[1000:], np.cumsum(values[1000:].astype(float)), atol=1e-2)
