"""What tests of histograms share: numbers on edges and beside them, and what a function does, errors included."""

from __future__ import annotations

import warnings

import numpy as np
import pyopencl.array as cl_array

from clhist._core.keys import from_keys, key_dtype, key_range, keys_of

DTYPES = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8"]


def specials(dtype):
    """Return numbers at the ends of a dtype and where precisions of others end."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return np.array([0, 1], dtype)
    if dtype.kind == "f":
        info = np.finfo(dtype)
        tiny = info.smallest_subnormal
        return np.array([0, -0.0, tiny, -tiny, info.tiny, 1, -1, 0.1, 100, info.max, -info.max, np.inf, -np.inf], dtype)
    info = np.iinfo(dtype)
    return np.array(
        [
            n
            for n in (info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2**53, 2**53 + 1, 2**62 + 7)
            if n <= info.max
        ],
        dtype,
    )


def beside(numbers, dtype, ulps=4):
    """Return the numbers in `dtype` and those up to so many ulps beside them, and NaN of both signs."""
    dtype = np.dtype(dtype)
    with np.errstate(all="ignore"):
        near = np.asarray(numbers).astype(dtype)
    if dtype.kind == "b":
        return near
    low, high = key_range(dtype)
    keys = keys_of(near).astype(object)
    moved = np.concatenate([np.clip(keys + step, low, high) for step in range(-ulps, ulps + 1)])
    nans = [np.nan, -np.nan] if dtype.kind == "f" else []
    return np.append(from_keys(moved.astype(key_dtype(dtype)), dtype), np.array(nans, dtype))


def random_edges(rng, dtype, count=7):
    """Return ascending edges: extremes, and numbers of many magnitudes."""
    with np.errstate(all="ignore"):
        drawn = (rng.normal(size=count) * 10.0 ** rng.integers(-3, 8)).astype(dtype)
        edges = np.concatenate([rng.choice(specials(dtype), 3), drawn])
    return np.sort(edges[~np.isnan(edges)])


def outcome(function, *args, **options):
    """Return the result, or the type and text of the error."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return function(*args, **options)
        except Exception as error:
            return type(error), str(error)


def assert_same(found, expected):
    assert isinstance(found[0], type) == isinstance(expected[0], type), (found, expected)
    if isinstance(expected[0], type):
        assert found == expected
        return
    for ours, theirs in zip(found, expected, strict=True):
        if isinstance(theirs, list):
            assert_same(ours, theirs)
        else:
            np.testing.assert_array_equal(ours.get() if isinstance(ours, cl_array.Array) else ours, theirs, strict=True)
