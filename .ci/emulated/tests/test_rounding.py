"""Conversion to whole numbers, half to even, also of numbers that are whole."""

import numpy as np
from kernels import run

ROUNDED = """
__kernel void k(__global long *out, const __global float *in) {
    const size_t i = get_global_id(0);
    out[i] = convert_long_rte(in[i]);
}
"""


def test_halves_are_rounded_to_even(target):
    steps = np.arange(-64, 64)
    numbers = np.concatenate(
        [steps / 4, *(2.0**e + steps * max(0.5, 2.0 ** (e - 23)) for e in (7, 21, 22, 23, 24, 40))]
    )
    numbers = numbers.astype(np.float32)
    found = np.zeros(numbers.size, np.int64)
    run(target, ROUNDED, numbers.size, 64, found, numbers)
    np.testing.assert_array_equal(found, np.rint(numbers.astype(np.float64)).astype(np.int64))
