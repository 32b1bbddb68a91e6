"""Structured values of many widths and paddings, an operator over any of them, and its reference in NumPy."""

from __future__ import annotations

import numpy as np

from clhist import Operator

# By their fields, as C lays them out: of a byte, of whole words and not, with padding between fields and at the end.
RECORDS = {
    name: np.dtype([(f"f{n}", kind) for n, kind in enumerate(name.split())], align=True)
    for name in (
        "u1",
        "u1 u1 u1",
        "i1 i2",
        "u2 u2 u2",
        "i2 i4",
        "f4 i4",
        "i4 i4 i4",
        "u1 i8",
        "i4 i4 i4 i4 i4",
        "i4 i4 i8 u1",
        "i8 u1 i8 i2",
        "u1 i8 i8 i8 i8",
    )
}


def largest(dtype: np.dtype) -> Operator:
    """Return the operator that keeps the largest record, by its first field, of equal ones by the next, and so on."""
    *before, last = dtype.names
    is_larger = f"a.{last} > b.{last}"
    for name in reversed(before):
        is_larger = f"(a.{name} > b.{name} || (a.{name} == b.{name} && {is_larger}))"
    return Operator(dtype, f"{is_larger} ? a : b", tuple(least(dtype).tolist()))


def least(dtype: np.dtype) -> np.ndarray:
    """Return the record that is smaller than all others."""
    found = np.zeros((), dtype)
    for name in dtype.names:
        kind = dtype[name]
        found[name] = -np.inf if kind.kind == "f" else np.iinfo(kind).min
    return found


def random_records(rng: np.random.Generator, size: int, dtype: np.dtype) -> np.ndarray:
    """Return records of which many are equal in their first fields."""
    found = np.zeros(size, dtype)
    for n, name in enumerate(dtype.names):
        width = 8 * dtype[name].itemsize
        bits = 3 if n + 1 < len(dtype.names) else min(width, 40 if dtype[name].kind != "f" else 20)
        low = 0 if dtype[name].kind == "u" else -(1 << (bits - 1))
        found[name] = rng.integers(low, low + (1 << bits), size)
    return found


def largest_of(bins: np.ndarray, values: np.ndarray, num_bins: int) -> np.ndarray:
    """Return what `largest` gives for each bin, by sorting."""
    result = np.full(num_bins, least(values.dtype))
    inside = (bins >= 0) & (bins < num_bins)
    bins, values = bins[inside], values[inside]
    order = np.lexsort([*(values[name] for name in reversed(values.dtype.names)), bins])
    result[bins[order]] = values[order]  # of several, NumPy keeps the last
    return result
