"""What the cases of two dimensions share: ranges found on the device, and generated pictures."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyopencl as cl
import pyopencl.array as cl_array
from pyopencl.tools import dtype_to_ctype

from clhist import HistogramKernel, default_queue, operators

__all__ = ["Range", "extent", "image_pair", "pair_of", "photograph", "queue_of", "range_of", "ranges_of", "wafer"]

Range = tuple[Any, Any]  # the low and the high end, both within

_LANES = 64  # as many minima and maxima, so that work-items do not all fight for one bin
_OCTAVES = (3, 6, 12, 25, 50, 100, 200)  # cells of the noise across a picture
_MARGIN = 32


def queue_of(queue: cl.CommandQueue | None, *arrays: Any) -> cl.CommandQueue:
    """Return `queue`, or else that of the first device array, or else the default one."""
    of_arrays = (array.queue for array in arrays if isinstance(array, cl_array.Array))
    return queue or next((found for found in of_arrays if found is not None), None) or default_queue()


def extent(array: Any, queue: cl.CommandQueue) -> Range:
    """Return the least and the largest element of a NumPy or device array of one element or more, as NumPy scalars.

    Both come from one sweep on the device; a NaN makes both NaN, as `numpy.min` has it.
    """
    found = _extent_kernel(queue.context, array.dtype)(array, num_bins=_LANES, queue=queue)
    lanes = found.get() if isinstance(found, cl_array.Array) else found
    return lanes["low"].min(), lanes["high"].max()


@lru_cache(maxsize=64)
def _extent_kernel(context: cl.Context, dtype: np.dtype) -> HistogramKernel:
    both = operators.product({"low": operators.minimum(dtype), "high": operators.maximum(dtype)})
    arguments = f"const {dtype_to_ctype(dtype)} *array"
    return HistogramKernel(
        context, both, arguments=arguments, map=f"EMIT(i % {_LANES}, ((value_t){{array[i], array[i]}}))"
    )


def range_of(name: str, array: Any, given: Any, queue: cl.CommandQueue) -> Range:
    """Return the range of `array` as NumPy's histograms have it: `given`, its extent, or (0, 1) of no elements.

    Raises
    ------
    TypeError, ValueError
        If `given` is no pair of finite numbers in order, or the extent is not finite; the text has the `name`.
    """
    expected = "a pair (low, high) of finite numbers, low <= high,"
    if given is None:
        given = extent(array, queue) if array.size else (0.0, 1.0)
        expected = "a finite least and largest element, or a given range,"
    try:
        low, high = given
        in_order = bool(np.isfinite(low) and np.isfinite(high) and low <= high)
    except (TypeError, ValueError):
        raise TypeError(f"range of {name}: expected {expected} got {given!r}") from None
    if not in_order:
        raise ValueError(f"range of {name}: expected {expected} got ({low}, {high})")
    return low, high


def pair_of(name: str, x: Any, y: Any) -> tuple[Any, Any]:
    """Return two array_likes of real numbers as arrays, both NumPy's or both PyOpenCL's.

    Raises
    ------
    TypeError
        If they are not; the text has the `name` of both.
    """
    on_device = isinstance(x, cl_array.Array)
    if on_device != isinstance(y, cl_array.Array):
        raise TypeError(f"{name}: expected two NumPy or two PyOpenCL arrays, got one of each")
    x, y = (x, y) if on_device else (np.asarray(x), np.asarray(y))
    if x.dtype.kind not in "biuf" or y.dtype.kind not in "biuf":
        raise TypeError(f"{name}: expected real numbers, got {x.dtype} and {y.dtype}")
    return x, y


def ranges_of(name: str, x: Any, y: Any, given: Any, queue: cl.CommandQueue) -> tuple[Range, Range]:
    """Return the ranges of two arrays, whose `name` is such as "x, y"; see `range_of`."""
    try:
        given_x, given_y = (None, None) if given is None else given
    except (TypeError, ValueError):
        raise TypeError(f"range: expected a pair of pairs (low, high), of {name}, got {given!r}") from None
    first, _, second = name.partition(", ")
    return range_of(first, x, given_x, queue), range_of(second, y, given_y, queue)


def wafer(num_points: int, seed: int = 0) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return points (x, y) about the middle of the unit square, as in Parboil's data of silicon wafers.

    They are Gaussian in both directions, half of them in a core of a tenth of the others' width.
    """
    rng = np.random.default_rng(seed)
    width = np.where(np.arange(num_points) % 2, np.float32(0.012), np.float32(0.12))
    x, y = (0.5 + width * rng.standard_normal((2, num_points), dtype=np.float32)).astype(np.float32)
    return x, y


def photograph(height: int, width: int, channels: int = 3, seed: int = 0) -> npt.NDArray[np.uint8]:
    """Return a picture of shape (height, width, channels): clouds of noise of all scales, each channel of a tint."""
    rng = np.random.default_rng(seed)
    shared = _clouds(rng, height, width)
    image = np.empty((height, width, channels), np.uint8)
    for channel in range(channels):
        light = 0.9 * shared + 0.5 * _clouds(rng, height, width, _OCTAVES[:3])
        image[:, :, channel] = (255 / (1 + np.exp(-1.4 * light + 0.8 * (channel - 1)))).astype(np.uint8)
    return image


def image_pair(size: int, shift: tuple[int, int], seed: int = 0) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Return two images of one scene as two instruments see it: pixel p of the first is p + `shift` of the second.

    The second is warped by up to a pixel, has noise, and its intensities are no monotonic function of the first's, so
    that their difference or correlation says little of how they lie.

    Parameters
    ----------
    size : int
        Height and width of both.
    shift : pair of int
        Rows down and columns right, of up to 32.
    """
    down, right = shift
    if max(abs(down), abs(right)) > _MARGIN:
        raise ValueError(f"shift: expected at most {_MARGIN} rows and columns, got {shift}")
    scene = photograph(size + 2 * _MARGIN, size + 2 * _MARGIN, 1, seed)[:, :, 0]
    fixed = scene[_MARGIN:-_MARGIN, _MARGIN:-_MARGIN].copy()
    place = np.arange(size)
    warp = np.rint(0.7 * np.sin(2 * np.pi * 3 * place / size)).astype(int)
    rows, columns = place + _MARGIN - down, place + _MARGIN - right
    seen = scene[rows[:, None] + warp[None, :], columns[None, :] + warp[:, None]]
    noise = np.random.default_rng(seed + 1).normal(scale=6, size=seen.shape)
    moving = 40 + 180 * np.sin(1.6 * np.pi * seen / 255) ** 2 + noise
    return fixed, np.clip(np.rint(moving), 0, 255).astype(np.uint8)


def _clouds(rng: np.random.Generator, height: int, width: int, cells: tuple[int, ...] = _OCTAVES) -> np.ndarray:
    """Return noise of about unit size: random grids of so many `cells`, the finer the fainter, interpolated."""
    total = np.zeros((height, width), np.float32)
    for count in cells:
        grid = rng.standard_normal((count + 1, count + 1), dtype=np.float32) * np.sqrt(cells[0] / count)
        total += _between(height, count) @ grid @ _between(width, count).T
    return total


def _between(length: int, count: int) -> npt.NDArray[np.float32]:
    """Return the matrix of shape (length, count + 1) that interpolates smoothly between grid points."""
    place = np.linspace(0, count, length, dtype=np.float32)
    near = np.minimum(place.astype(int), count - 1)
    part = (1 - np.cos(np.pi * (place - near))) / 2
    matrix = np.zeros((length, count + 1), np.float32)
    matrix[np.arange(length), near] = 1 - part
    matrix[np.arange(length), near + 1] = part
    return matrix
