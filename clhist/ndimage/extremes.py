"""Least and largest values of regions, and where they are."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from clhist._core.spi import Array, is_device_array, zero_where_none
from clhist.ndimage.regions import Regions, by_scipy, few_by_scipy, regions_of, without_missing
from clhist.operators.halves import half_name


def extremes_of(function: str, input: Any, labels: Any, index: Any) -> Any:
    """Return what `function` of `scipy.ndimage` finds: extremes, their positions, or all of both."""
    if (few := few_by_scipy(function, input, labels, index)) is not None:
        return few
    input, labels, index = without_missing(input, labels, index)
    regions = regions_of(input, labels, index)
    if regions is None or regions.is_complex or not prod(regions.values.shape):
        return by_scipy(function, input, labels, index)
    lows, highs = _EXTREMES[function]
    # SciPy sorts: a NaN is above all numbers, unless there is only one region.
    skips = regions.values.dtype.kind == "f" and not regions.is_one
    found: dict[str, Any] = {}
    for names, skipna in ((lows, True), (highs, False)) if skips else ((lows + highs, False),):
        if names:
            found |= regions.groups.agg(x=(regions.values, names), skipna=skipna)["x"]
    results = [_filled(found[name], regions, function) for name in ("min", "max") if name in found]
    if half_name(getattr(input, "dtype", regions.values.dtype)) and not regions.on_device:
        results = [each.astype(input.dtype)[()] for each in results]  # exact, and the dtype that SciPy returns
    results += [_positions(found[name], regions, function) for name in ("argmin", "argmax") if name in found]
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
        return regions.picked(zero_where_none(result, regions.groups.size()))
    picked = regions.picked_host(result)
    if picked.dtype.kind == "f":
        suspects = np.isnan(picked)
    else:
        limits = (0, 1) if picked.dtype.kind == "b" else (np.iinfo(picked.dtype).min, np.iinfo(picked.dtype).max)
        suspects = (picked == limits[0]) | (picked == limits[1])  # what an empty group has
    if not np.any(suspects):
        return picked
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
