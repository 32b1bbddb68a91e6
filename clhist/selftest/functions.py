"""Checks of functions that plan for themselves: means, groups, histograms of floats, unique values."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

import clhist
from clhist._core.opencl.device import device_features
from clhist.selftest.checks import NotAvailableError
from clhist.selftest.reference import same_as
from clhist.selftest.updates import checked_input, expect

if TYPE_CHECKING:
    from clhist.selftest.forms import Setting

# Elements and bins that no block or vector of a CPU divides, and fewer than one block has.
_SIZES = ((601, 5), (3001, 37), (101, 257))
_LARGE = 70_001  # elements, which are not few for any function


def means(at: Setting) -> None:
    """Check means and variances of bins, whose accumulators are structs of mixed types, and those of groups."""
    has_fp64 = "fp64" in device_features(at.queue.device, at.queue.context)  # in which operators sum
    for name in ("mean float32", "variance float64")[: has_fp64 * (1 if at.quick else 2)]:
        for size, bins in _SIZES:
            operator, indices, values, check = checked_input(name, "uniform, some outside", at.few(size), bins)
            result = at.call(clhist.reduce_by_index, bins, operator, indices, values, queue=at.queue)
            expect(check, result, operator=name, N=indices.size, H=bins)
    if at.tiny or at.place.is_cuda:
        return
    for size, bins in _SIZES:
        keys, values = at.rng.integers(0, bins, size, np.int32), at.rng.integers(-99, 99, size).astype(np.float32)
        result = clhist.group_by(keys, bins, queue=at.queue).agg(v=(values, ["mean", "var"]))["v"]
        parts = [values[keys == k].astype(float) for k in range(bins)]
        for name, wanted in (("mean", np.mean), ("var", np.var)):
            expected = [wanted(part) if part.size else np.nan for part in parts]
            expect(partial(_assert_close, expected=expected), result[name], statistic=name, N=size, H=bins)


def groups(at: Setting) -> None:
    """Check groups of keys that are numbered on the device, and statistics that sort or gather."""
    _leave_out(at)
    # Few distinct keys from a wide range, so that they cannot be used as indices.
    keys = at.rng.integers(-(2**40), 2**40, 499)[at.rng.integers(0, 499, _LARGE)]
    values = at.rng.integers(-99, 99, keys.size).astype(np.float32)
    grouped = clhist.group_by(keys, queue=at.queue)
    results = grouped.agg(v=(values, ["sum", "max", "first", "median"]))["v"]
    wanted, numbers = np.unique(keys, return_inverse=True)
    expect(same_as(wanted), np.asarray(grouped.keys), of="keys")
    parts = [values[numbers == k] for k in range(wanted.size)]
    for name, function in (("sum", np.sum), ("max", np.max), ("first", lambda part: part[0]), ("median", np.median)):
        expect(partial(_assert_close, expected=[function(part) for part in parts]), results[name], statistic=name)


def histograms(at: Setting) -> None:
    """Check histograms of floats, of one dimension and two, by a range that is found and by edges."""
    _leave_out(at)
    x, y = at.rng.normal(size=(2, _LARGE)).astype(np.float32)
    for bins in (10, np.array([-2.0, -0.5, 0.1, 0.2, 3.0])):
        counts, edges = clhist.histogram(x, bins, queue=at.queue)
        expected = np.histogram(x, bins)
        expect(same_as(expected[0].astype(counts.dtype)), counts, bins=np.size(bins))
        expect(partial(_assert_close, expected=expected[1]), edges, bins=np.size(bins), of="edges")
        places = clhist.digitize(x, edges, queue=at.queue)
        expect(same_as(np.digitize(x, edges).astype(places.dtype)), places, bins=np.size(bins))
    counts = clhist.histogram2d(x, y, (7, 9), queue=at.queue)[0]
    expect(partial(_assert_close, expected=np.histogram2d(x, y, (7, 9))[0]), counts, dimensions=2)


def distinct(at: Setting) -> None:
    """Check unique values with their counts, of integers and of floats."""
    _leave_out(at)
    for dtype in (np.int64, np.float32):
        x = at.rng.integers(-(2**20), 2**20, 999)[at.rng.integers(0, 999, _LARGE)].astype(dtype)
        results, expected = clhist.unique(x, return_counts=True, queue=at.queue), np.unique(x, return_counts=True)
        for name, got, wanted in zip(("values", "counts"), results, expected, strict=True):
            expect(same_as(wanted), got, dtype=np.dtype(dtype), of=name)


def _leave_out(at: Setting) -> None:
    if at.tiny or at.place.is_cuda:
        raise NotAvailableError("left out in a simulator and with arrays of CUDA")


def _assert_close(result: Any, expected: Any) -> None:
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


FUNCTIONS: dict[str, Callable[[Setting], None]] = {
    "means and variances": means,
    "groups": groups,
    "histograms of floats": histograms,
    "unique values": distinct,
}
