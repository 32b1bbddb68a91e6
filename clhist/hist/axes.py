"""Axes of kernels for boost-histogram's axes, whose own `index` decides on the host where each bin begins."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeAlias

import boost_histogram as bh
import numpy as np
from numpy.typing import NDArray

from clhist._core.spi import are_converted, from_keys, has_keys, kernel_dtype, key_dtype, key_range, keys_of
from clhist.axes.spi import (
    Axis,
    FixedKind,
    IntegerKind,
    Pieces,
    TurnKind,
    first_keys,
    flow_axis,
    pieces_by,
    wrapped_axis,
)

Array: TypeAlias = NDArray[Any]
# Numbers on either side of a predicted threshold at which a transform is evaluated.
_WINDOW = 64
# Bytes of edges up to which an axis is cached.
_MOST_CACHED = 2**18


def number_kind(ax: Any) -> str:
    """Return which values an axis takes: "real", "integer" or "string"."""
    if isinstance(ax, bh.axis.Regular | bh.axis.Variable):
        return "real"
    return "string" if isinstance(ax, bh.axis.StrCategory) else "integer"


def grows_in_value(ax: Any) -> bool:
    """Whether the edges of an axis move when it is filled."""
    return number_kind(ax) == "real" and ax.traits.growth


def flow_bins(ax: Any, index: Array) -> Array:
    """Return bins of ``view(flow=True)`` for what ``ax.index`` gives: -1 for those that the axis lacks."""
    traits = ax.traits
    bins = np.asarray(index, np.int64) + traits.underflow
    outside = (index < -int(traits.underflow)) | (index >= len(ax) + traits.overflow)
    return np.where(outside, -1, bins)


def fixed_axis(number: int, extent: int) -> Axis:
    """Return the axis of which all elements have one bin."""
    return Axis(FixedKind(), (), (number,), extent)


@lru_cache(maxsize=64)
def codes_axis(extent: int) -> Axis:
    """Return the axis for bins, of int32, that were found on the host."""
    return Axis(IntegerKind(np.dtype(np.int32)), (), (0, extent, 0, -1, -1), extent)


def device_axis(ax: Any, dtype: np.dtype, *, fp64: bool) -> Axis | None:
    """Return the axis of a kernel for data of `dtype`, or None if bins must be found on the host.

    Parameters
    ----------
    ax : boost_histogram.axis.Axis
        Any but StrCategory.
    dtype : numpy.dtype
        Of the data.
    fp64 : bool
        Whether the device has double precision.
    """
    if number_kind(ax) == "integer":
        return _integer_axis(ax, dtype, fp64)
    if not has_keys(dtype) or not _is_known(ax):
        return None
    # The state decides the bins, except for metadata (a dict). Arrays become bytes, which can be part of a cache key.
    state = ax._ax.__getstate__()
    plain = [item.tobytes() if isinstance(item, np.ndarray) else item for item in state if not isinstance(item, dict)]
    if sum(len(item) for item in plain if isinstance(item, bytes)) > _MOST_CACHED:
        return _real_axis(ax, dtype, fp64)
    # A list that is empty at first: None is a valid entry, for axes that have no kernel.
    cached = _kept_axes((type(ax._ax), *plain), dtype, fp64)
    if not cached:
        cached.append(_real_axis(ax, dtype, fp64))
    return cached[0]


@lru_cache(maxsize=256)
def _kept_axes(key: tuple[Any, ...], dtype: np.dtype, fp64: bool) -> list[Axis | None]:
    return []


def _integer_axis(ax: Any, dtype: np.dtype, fp64: bool) -> Axis | None:
    """Return the axis of an Integer, Boolean or IntCategory."""
    traits, size, extent = ax.traits, len(ax), ax.extent
    if isinstance(ax, bh.axis.IntCategory):
        return _category_axis(tuple(ax), dtype, extent, size if traits.overflow else -1, fp64)
    below, above = 0 if traits.underflow else -1, size + traits.underflow if traits.overflow else -1
    as_bool = isinstance(ax, bh.axis.Boolean)
    kind = IntegerKind(kernel_dtype(dtype), traits.circular, as_bool)
    start = ax._ax.__getstate__()[-1]
    return Axis(kind, (), (start, size, int(traits.underflow), below, above), extent)


@lru_cache(maxsize=64)
def _category_axis(values: tuple[int, ...], dtype: np.dtype, extent: int, missing: int, fp64: bool) -> Axis:
    dtype = kernel_dtype(dtype)
    low, high = key_range(dtype)
    # Categories that `dtype` cannot represent never occur; the first of equal ones wins.
    bin_of: dict[int, int] = {}
    for number, value in enumerate(values):
        if low <= value <= high:
            bin_of.setdefault(value, number)
    # Each category is a piece of one key. A piece of missing values follows up to the next category.
    keys, bins = [low], [missing]
    for value in sorted(bin_of):
        # Adjacent categories have no gap between them.
        if keys[-1] == value:
            keys.pop(), bins.pop()
        keys.append(value)
        bins.append(bin_of[value])
        if value < high:
            keys.append(value + 1)
            bins.append(missing)
    pieces = Pieces(dtype, np.array(keys, key_dtype(dtype)), np.array(bins), missing)
    return flow_axis(pieces, extent, fp64=fp64)


def _real_axis(ax: Any, dtype: np.dtype, fp64: bool) -> Axis | None:
    """Return the axis of a Regular or Variable, or None if bins must be found on the host."""
    circular = ax.traits.circular
    # Kernels wrap the data of a circular axis in float64.
    if circular and not are_converted(dtype, fp64):
        return None
    if circular and isinstance(ax, bh.axis.Regular):
        low, width = ax._ax.__getstate__()[-2:]
        numbers = np.float64(low), np.float64(width), len(ax)
        return Axis(TurnKind(kernel_dtype(dtype)), (), numbers, ax.extent)
    data = np.dtype(np.float64) if circular else kernel_dtype(dtype)
    with np.errstate(all="ignore"):
        pieces = _edge_pieces(ax, data) if isinstance(ax, bh.axis.Variable) else _index_pieces(ax, data)
    if pieces is None:
        return None
    if circular:
        edges = _edges(ax)
        return wrapped_axis(pieces, dtype, edges[0], edges[-1] - edges[0], ax.extent)
    return flow_axis(pieces, ax.extent, fp64=fp64)


def _edges(ax: Any) -> Array:
    """Return the edges of a Variable axis; those that a circular one gives as its `edges` are others."""
    return ax._ax.__getstate__()[1]


def _edge_pieces(ax: Any, dtype: np.dtype) -> Pieces:
    """Return the pieces between the edges of a Variable axis."""
    edges, size = _edges(ax), len(ax)
    via = None if dtype.kind == "f" else np.dtype(np.float64)
    # Without an overflow bin, the last bin includes its upper edge.
    closed = not ax.traits.overflow
    keys = first_keys(edges[:-1] if closed else edges, dtype, via)
    if closed:
        keys = np.append(keys, first_keys(edges[-1:], dtype, via, strict=True))
    # The first piece begins at the lowest key: its values are below all edges.
    keys = np.insert(keys, 0, key_range(dtype)[0]).astype(key_dtype(dtype))
    raw = np.arange(-1, len(keys) - 1)
    return Pieces(dtype, keys, flow_bins(ax, raw), int(flow_bins(ax, np.array(size))))


def _is_known(ax: Any) -> bool:
    """Whether an axis has no transform of a user's own, which need not be monotone."""
    transform = getattr(ax, "transform", None)
    transforms = bh.axis.transform.log, bh.axis.transform.sqrt
    return transform is None or isinstance(transform, bh.axis.transform.Pow) or transform in transforms


def _index_pieces(ax: Any, dtype: np.dtype) -> Pieces | None:
    """Return the pieces of a Regular axis, or None if they cannot be known.

    Without a transform ``index`` is monotone, since each of its operations is. Powers, roots and logarithms are so on
    either side of 0, but for a few numbers at a threshold, which are looked at.
    """
    transform = ax.transform

    def index(numbers: Array) -> Array:
        return ax.index(numbers.astype(np.float64))

    low, high = key_range(dtype)
    zero = int(keys_of(np.zeros(1, dtype))[0])
    near = _keys_near(ax.edges, dtype)
    spans = [(low, high)] if transform is None or low >= zero else [(low, zero - 1), (zero, high)]
    pieces = [pieces_by(index, dtype, span, near) for span in spans]
    keys, raw = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
    keys = keys.astype(key_dtype(dtype))
    if transform is not None and not _holds(index, dtype, keys, raw):
        return None
    return Pieces(dtype, keys, flow_bins(ax, raw), int(flow_bins(ax, ax.index(np.array([np.nan])))[0]))


def _keys_near(edges: Array, dtype: np.dtype) -> Array:
    """Return keys near the edges in the order of keys."""
    if dtype.kind == "f":
        keys = keys_of(edges.astype(dtype))
    else:
        info = np.iinfo(dtype)
        # The largest float64 below 2^63 and 2^64 are as near as need be.
        keys = np.clip(np.nan_to_num(edges), float(info.min), np.nextafter(float(info.max), 0)).astype(key_dtype(dtype))
    # An axis whose start exceeds its stop has descending edges.
    return keys if edges[0] <= edges[-1] else keys[::-1]


def _holds(index: Callable[[Array], Array], dtype: np.dtype, keys: Array, raw: Array) -> bool:
    """Whether numbers beside the thresholds have the bins of their pieces."""
    low, high = key_range(dtype)
    if high - low <= 2 * _WINDOW:
        around = np.arange(low, high + 1, dtype=keys.dtype)
    else:
        # Clip before the offsets are added: keys near the ends would wrap around.
        begin = np.clip(keys, low + _WINDOW, high - _WINDOW) - keys.dtype.type(_WINDOW)
        around = np.unique(begin[:, None] + np.arange(2 * _WINDOW + 1, dtype=keys.dtype))
    # Of pieces that begin at the same key the last one counts.
    expected = raw[np.searchsorted(keys, around, "right") - 1]
    return bool((index(from_keys(around, dtype)) == expected).all())


def host_bins(ax: Any, values: Array) -> Array:
    """Return bins of ``view(flow=True)`` as int32, found by boost-histogram itself."""
    return flow_bins(ax, ax.index(values)).astype(np.int32)
