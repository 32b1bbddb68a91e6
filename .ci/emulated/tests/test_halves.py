"""Conversions of half precision: all of its numbers, also below the normal ones, which AMD's GPUs keep."""

import numpy as np
from kernels import run

READ = """
__kernel void k(__global float *out, const __global ushort *in) {
    const size_t i = get_global_id(0);
    out[i] = vload_half(i, (const __global half *)in);
}
"""
WRITTEN = """
__kernel void k(__global ushort *out, const __global float *in) {
    const size_t i = get_global_id(0);
    vstore_half_rte(in[i], i, (__global half *)out);
}
"""


def test_all_numbers_are_read(target):
    bits = np.arange(0, 1 << 16, dtype=np.uint16)
    found = np.zeros(bits.size, np.float32)
    run(target, READ, bits.size, 64, found, bits)
    np.testing.assert_array_equal(found, bits.view(np.float16).astype(np.float32))


def test_numbers_are_rounded_to_the_nearest(target):
    halves = np.arange(0, 0x7C01, dtype=np.uint16).view(np.float16).astype(np.float32)
    halves[-1] = 2.0**16  # where the next would be
    between = (halves[1:] + halves[:-1]) / 2
    beside = (np.nextafter(between, np.float32(limit)) for limit in (0, 1e9))
    numbers = np.concatenate([halves, between, *beside])
    numbers = np.concatenate([numbers, -numbers, np.full(-2 * numbers.size % 64, np.nan)]).astype(np.float32)
    found = np.zeros(numbers.size, np.uint16)
    run(target, WRITTEN, numbers.size, 64, found, numbers)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(found.view(np.float16), numbers.astype(np.float16))
