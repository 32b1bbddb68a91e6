"""Python's integers beyond 64 bits: refused by the argument's name, and what to do."""

from __future__ import annotations

import numpy as np
import pytest

import clhist
from clhist import HistogramKernel, operators

BINS, ZEROS = 3, [0, 1]
CALLS = {
    "x": lambda v: clhist.bincount([0, v]),
    "x of an array": lambda v: clhist.bincount(np.array([0, v], object)),
    "minlength": lambda v: clhist.bincount(ZEROS, minlength=v),
    "indices": lambda v: clhist.reduce_by_index(BINS, "sum", [0, v], 1),
    "indices\\[1\\]": lambda v: clhist.reduce_by_index((BINS, BINS), "sum", (ZEROS, [0, v]), 1),
    "values": lambda v: clhist.reduce_by_index(np.zeros(BINS, int), "sum", ZEROS, [1, v]),
    "values of no dtype": lambda v: clhist.reduce_by_index(BINS, "sum", ZEROS, [1, v]),
    "values of one": lambda v: clhist.reduce_by_index(np.zeros(BINS, int), np.add, ZEROS, v),
    "indices of a stream": lambda v: clhist.Accumulator("sum", BINS, dtype=int).add([0, v], 1),
    "values of a stream": lambda v: clhist.Accumulator("sum", BINS, dtype=int).add(ZEROS, [1, v]),
    "dest": lambda v: clhist.reduce_by_index([0, v], "sum", ZEROS, 1),
    "a": lambda v: clhist.histogram([0, v], 3),
    "a of edges": lambda v: clhist.histogram_bin_edges([0, v], "auto"),
    "range": lambda v: clhist.histogram(ZEROS, 3, (-1, v) if v > 0 else (v, 1)),
    "sample": lambda v: clhist.histogramdd([ZEROS, [0, v]], 3),
    "sample of means": lambda v: clhist.stats.binned_statistic([0, v], ZEROS, "mean", 3),
    "values of means": lambda v: clhist.stats.binned_statistic(ZEROS, [0, v], "mean", 3),
    "input": lambda v: clhist.ndimage.sum([0, v], ZEROS, [1]),
    "x of groups": lambda v: clhist.group_by(ZEROS).sum([1, v]),
    "x of ranks": lambda v: clhist.group_by(ZEROS).rank([1, v]),
}


def kernel(v, *, scalar=False):
    made = HistogramKernel(None, operators.add(int), arguments="const long *x, long s", map="EMIT(x[i], s)")
    return made([0, 1], v, num_bins=BINS) if scalar else made([0, v], 1, num_bins=BINS)


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, 10**30])
@pytest.mark.parametrize("name", CALLS)
def test_they_are_refused_by_name(name, value):
    with pytest.raises((ValueError, TypeError), match=f"^{name.partition(' of ')[0]}: .*{value}|64 bits"):
        CALLS[name](value)


def test_a_kernel_refuses_them():
    with pytest.raises(ValueError, match=f"^x: expected integers that int64 holds, got {2**64}"):
        kernel(2**64)
    with pytest.raises(ValueError, match=r"^x: expected integers that int64 holds, got 9223372036854775808"):
        kernel(2**63)
    with pytest.raises(ValueError, match=f"^s: {2**64} does not fit int64"):
        kernel(2**64, scalar=True)


def test_indices_that_only_floats_hold():
    """NumPy makes float64 of a list with 2**63 and smaller integers."""
    for call in ("x", "indices", "indices of a stream"):
        with pytest.raises(ValueError, match=f"^{call.partition(' of ')[0]}: .* got {2**63}; number the values"):
            CALLS[call](2**63)
    assert clhist.reduce_by_index(BINS, "sum", ZEROS, [1, 2**63]).tolist() == [1, 2.0**63, 0]


def test_keys_may_have_any_width():
    values = [2**70, 3, 2**70]
    assert clhist.unique(values).tolist() == [3, 2**70]
    assert clhist.group_by(values).sum([1, 2, 3]).tolist() == [2, 4]
