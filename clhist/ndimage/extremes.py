"""Least and largest values of regions, and their positions."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from clhist._core.host_spi import Array, is_device_array
from clhist.ndimage.regions import Regions, by_scipy, few_on_host, regions_of, without_missing
from clhist.operators.halves import half_name


def extremes_of(function: str, input: Any, labels: Any, index: Any) -> Any:
    """Return what `function` of `scipy.ndimage` finds: extremes, their positions, or all of both."""
    if (few := few_on_host(function, input, labels, index)) is not None:
        return few
    input, labels, index = without_missing(input, labels, index)
    regions = regions_of(input, labels, index)
    if regions is not None and not prod(regions.values.shape):
        # SciPy raises the error of arrays without elements.
        input, labels, index = (value.get() if is_device_array(value) else value for value in (input, labels, index))
    if regions is None or regions.is_complex or not prod(regions.values.shape):
        return by_scipy(function, input, labels, index)
    lows, highs = _EXTREMES[function]
    # SciPy sorts the values of several regions, so NaN is the greatest: skip it for minima, propagate it for maxima.
    skips = regions.values.dtype.kind == "f" and not regions.is_one
    extremes: dict[str, Any] = {}
    for names, skipna in ((lows, True), (highs, False)) if skips else ((lows + highs, False),):
        if names:
            extremes |= regions.groups.agg(x=(regions.values, names), skipna=skipna)["x"]
    results = [_filled(extremes[name], regions, function) for name in ("min", "max") if name in extremes]
    if half_name(getattr(input, "dtype", regions.values.dtype)) and not regions.on_device:
        results = [result.astype(input.dtype)[()] for result in results]  # exact, and the dtype that SciPy returns
    results += [_positions(extremes[name], regions, function) for name in ("argmin", "argmax") if name in extremes]
    return results[0] if len(results) == 1 else tuple(results)


_EXTREMES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "minimum": (("min",), ()),
    "maximum": ((), ("max",)),
    "minimum_position": (("argmin",), ()),
    "maximum_position": ((), ("argmax",)),
    "extrema": (("min", "argmin"), ("max", "argmax")),
}


def _filled(result: Array, regions: Regions, function: str) -> Any:
    """Return extremes, 0 of empty groups; raise as NumPy does if the only one is empty."""
    if is_device_array(result) and not regions.is_one:
        from clhist._core.spi import zero_where_none

        return regions.picked(zero_where_none(result, regions.groups.size()))
    picked = regions.picked_host(result)
    if picked.dtype.kind == "f":
        suspects = np.isnan(picked)
    else:
        limits = (0, 1) if picked.dtype.kind == "b" else (np.iinfo(picked.dtype).min, np.iinfo(picked.dtype).max)
        # An empty group has the identity element of min or max, which values may equal.
        suspects = (picked == limits[0]) | (picked == limits[1])
    if not np.any(suspects):
        return picked
    # Sizes of groups are needed only if an extreme may be that of an empty one.
    empty = regions.picked_host(regions.groups.size()) == 0
    if not regions.is_one:
        return np.where(empty, picked.dtype.type(0), picked)
    _check_values(bool(empty), function)
    return picked


def _check_values(is_empty: bool, function: str) -> None:
    if is_empty:
        name = "maximum" if function.startswith("maximum") else "minimum"
        raise ValueError(f"zero-size array to reduction operation {name} which has no identity")


def _positions(result: Array, regions: Regions, function: str) -> Any:
    """Return positions as tuples of indices, those of empty groups as of element 0; raise if the only one is empty."""
    picked = regions.picked_host(result)
    if regions.is_one:
        _check_values(bool(picked < 0), function)
    picked = np.maximum(picked, 0)
    places = np.unravel_index(picked, regions.shape) if regions.shape else ()
    return tuple(places) if regions.is_one else list(zip(*map(np.ravel, places), strict=True)) or [()] * picked.size
