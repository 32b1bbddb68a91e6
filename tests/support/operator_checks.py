"""What holds of an operator however its copies are updated: one by one, in turn, by way of buckets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from clhist import HistogramKernel, Profile, operators
from clhist.selftest.cases import CASES, NUM_BINS, pair_kernel, problem
from clhist.selftest.reference import counts_of, groups_of

INPUTS = ("elements", "dest", "nothing")
COMPUTED = ["i & 3", "i % 5", "i / 3 % 7", "7"]


def dest_of(name: str) -> tuple[np.ndarray, Callable[[Any], None]]:
    """Return what bins hold before, and the check of a result in which that takes part once."""
    case, (bins, values, _) = CASES[name], problem(name)
    dest = case.draw(np.random.default_rng(1), NUM_BINS)
    all_bins, all_values = np.concatenate([np.arange(NUM_BINS), bins]), np.concatenate([dest, values])
    return dest, case.check(groups_of(all_bins, all_values, NUM_BINS))


def check_operator(name: str, profile: Profile, inputs: Sequence[str] = INPUTS, **choices: Any) -> None:
    """Check an operator, also with `dest` and without elements; `inputs` are some of `INPUTS`."""
    case, (bins, values, check) = CASES[name], problem(name)
    kernel = pair_kernel(case.operator, profile)
    if "elements" in inputs:
        check(kernel(bins, values, num_bins=NUM_BINS, **choices))
    if "dest" in inputs:
        dest, with_dest = dest_of(name)
        with_dest(kernel(bins, values, num_bins=NUM_BINS, dest=dest, **choices))
    if "nothing" in inputs:
        neutral = case.check([[]] * NUM_BINS)
        neutral(kernel(np.empty(0, np.int32), np.empty(0, case.operator.dtype), num_bins=NUM_BINS, **choices))


def check_computed_bins(code: str, profile: Profile, **choices: Any) -> None:
    """Compilers for CPUs make vectors of such loops, whose lanes must not lose updates of one bin."""
    kernel = HistogramKernel(None, operators.add(np.int32), arguments="", map=f"EMIT({code}, 1)", profile=profile)
    i = np.arange(10_007)
    bins = dict(zip(COMPUTED, (i & 3, i % 5, i // 3 % 7, np.full_like(i, 7)), strict=True))[code]
    assert kernel(num_bins=8, size=i.size, **choices).tolist() == counts_of(bins, 8).tolist()
