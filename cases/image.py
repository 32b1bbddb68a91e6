"""Histograms of 8-bit images, as the 64- and 256-bin ones of NVIDIA's CUDA samples (SC'20, section V-D3)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from clhist import Bound, HistogramKernel, default_queue, operators
from clhist.binned.spi import as_array
from clhist.cases.bindable import Bindable

__all__ = ["image_histogram"]


@Bindable
def image_histogram(image: Any, bins: int = 256, *, queue: cl.CommandQueue | None = None) -> Bound:
    """Count the intensities of an 8-bit image, of all channels in one sweep (SC'20, section V-D3).

    Parameters
    ----------
    image : uint8 array of shape (height, width) or (height, width, channels)
        NumPy's or PyOpenCL's, of fewer than 2**32 elements.
    bins : int
        A power of two from 2 to 256, of ``256 / bins`` neighbouring intensities each.
    queue : pyopencl.CommandQueue, optional
        Defaults to that of `image`, or the default one.

    Returns
    -------
    int64 array of shape (bins,) or (channels, bins)
        How many pixels have each intensity; of the kind of `image`.

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong; it is named, and nothing is enqueued.

    Examples
    --------
    >>> import clhist.cases
    >>> clhist.cases.image_histogram(np.array([[0, 255], [255, 64]], np.uint8), 4)
    array([1, 1, 0, 2])
    """
    if not isinstance(image, np.ndarray | cl_array.Array) or image.dtype != np.uint8:
        kind = getattr(image, "dtype", type(image).__name__)
        raise TypeError(f"image: expected an array of uint8, got {kind}")
    image = as_array("image", image)
    if image.ndim not in (2, 3) or image.shape[2:] == (0,):
        raise ValueError(f"image: expected shape (height, width) or (height, width, channels), got {image.shape}")
    if image.size >= 2**32:
        raise ValueError(f"image: expected fewer than 2**32 elements, got shape {image.shape}")
    if not isinstance(bins, int | np.integer) or bins not in (2, 4, 8, 16, 32, 64, 128, 256):
        raise ValueError(f"bins: expected a power of two from 2 to 256, got {bins!r}")
    channels = image.shape[2:]
    shape = (*channels, int(bins))
    queue = queue or default_queue(image)
    kernel = _kernel(queue.context, int(bins), *channels)
    if isinstance(image, np.ndarray):
        image = np.ascontiguousarray(image)
    return kernel.bind(image, num_bins=shape if channels else int(bins), queue=queue)


@lru_cache(maxsize=64)
def _kernel(context: cl.Context, bins: int, channels: int = 1) -> HistogramKernel:
    # Constants, since a compiler divides by one without dividing. `image` is read at [i] only, by loads of 16 bytes.
    shift = 8 - (bins.bit_length() - 1)
    value = f"(uint)i % {channels} * {bins} + (image[i] >> {shift})"
    return HistogramKernel(context, operators.count(), arguments="const uchar *image", map=f"EMIT({value}, 1)")
