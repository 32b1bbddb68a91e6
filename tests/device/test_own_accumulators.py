"""Operators with an accumulator of another type, on a device."""

from __future__ import annotations

import numpy as np

from clhist import Operator
from clhist.selftest.cases import pair_kernel


def test_an_accumulator_of_ones_own():
    held = np.dtype([("sum", np.float32), ("n", np.int32)])
    mean = Operator(
        np.float32,
        "(accumulator_t){a.sum + b.sum, a.n + b.n}",
        (0, 0),
        accumulator=held,
        lift="(accumulator_t){v, 1}",
        finish="a.sum / a.n",
    )
    assert (mean.dtype, mean.accumulator, mean.bin_bytes, mean.name) == (np.float32, held, 8, "custom")
    bins, values = np.arange(100, dtype=np.int32) % 3, np.arange(100, dtype=np.float32)
    assert pair_kernel(mean)(bins, values, num_bins=3).tolist() == [49.5, 49.0, 50.0]
