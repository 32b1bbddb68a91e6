"""NumPy's own histograms: for small arrays, and for what OpenCL has no type for."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from clhist.binning.counts import can_sum, densities, into
from clhist.binning.inputs import are_usable, is_binnable, taken
from clhist.binning.sample import Sample
from clhist.opencl.arrays import Array

# As they are now: if a program replaced them by ours, ours would call themselves.
numpy_histogram, numpy_histogramdd = np.histogram, np.histogramdd
numpy_edges, numpy_digitize = np.histogram_bin_edges, np.digitize
_MOST_KEPT = 2**15  # edges


def even_edges(bins: Any, ends: Any, dtype: np.dtype) -> np.ndarray:
    """Return NumPy's edges of bins of one width for data of a dtype, kept for the next call with the same numbers."""
    if type(bins) is int and bins <= _MOST_KEPT and type(ends) is tuple and list(map(type, ends)) == [float, float]:
        return _even_edges(bins, ends, tuple(map(str, ends)), dtype).copy()
    return numpy_edges(np.empty(0, dtype), bins, ends)


@lru_cache(maxsize=64)
def _even_edges(bins: int, ends: tuple[float, float], as_text: tuple[str, ...], dtype: np.dtype) -> np.ndarray:
    # The text tells zeros of both signs apart.
    return numpy_edges(np.empty(0, dtype), bins, ends)


def histogram_on_host(
    a: Array, bins: Any, range: Any, density: bool | None, weights: Any, where: Any, out: Array | None
) -> tuple[Array, np.ndarray]:
    """Return NumPy's own histogram, but for its cumulative sums of weights."""
    a, weights = taken(a, where), taken(weights, where)
    if weights is not None and weights.dtype.kind in "fc" and not isinstance(bins, str) and np.ndim(bins) == 1:
        edges = numpy_edges(a[:0], bins, range)
        if is_binnable(a.dtype) and can_sum(weights) and are_usable(edges):
            hist = _sums(a.reshape(-1), edges, weights.reshape(-1))
            return into(out, densities(hist, [edges], None) if density else hist), edges
    hist, edges = numpy_histogram(a, bins, range, density, weights)
    return into(out, hist), edges


def histogramdd_on_host(
    points: Sample, bins: Any, range: Any, density: bool | None, weights: Any, where: Any, out: Array | None
) -> tuple[Array, list[np.ndarray]]:
    """Return NumPy's own histogram of several dimensions."""
    given: Any = list(points.columns) if points.rows is None else points.rows
    if where is not None:
        given = [column[where] for column in given] if points.rows is None else given[where]
    hist, edges = numpy_histogramdd(given, bins, range, density, taken(weights, where))
    return into(out, hist), list(edges)


def _sums(a: np.ndarray, edges: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return sums of float or complex weights by NumPy in float64; its histogram sums in the dtype of the weights."""
    number = np.searchsorted(edges, a, "right") - 1
    inside = (a >= edges[0]) & (a <= edges[-1])
    number = np.minimum(number, len(edges) - 2)[inside]
    parts = (weights.real, weights.imag) if weights.dtype.kind == "c" else (weights,)
    sums = [np.bincount(number, part[inside], len(edges) - 1) for part in parts]
    with np.errstate(over="ignore"):
        return (sums[0] if len(sums) == 1 else sums[0] + 1j * sums[1]).astype(weights.dtype)
