"""Joint histograms of image registration (SC'20, section V-D4), and the mutual information that they tell.

Each pair of intensities is spread over 4 x 4 bins by cubic B-splines (Parzen windows: Mattes et al. 2003, Darkner and
Sporring 2013): 16 updates a pixel, whose weights sum to 1, so that the result changes smoothly with the intensities.
"""

from __future__ import annotations

import operator
from functools import lru_cache
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
from numpy.typing import DTypeLike
from pyopencl.tools import dtype_to_ctype

from clhist import Bound, HistogramKernel, default_queue, operators
from clhist.binned.spi import as_array
from clhist.cases.arrays import pair_of, ranges_of
from clhist.cases.bindable import Bindable

__all__ = ["joint_histogram", "mutual_information"]

_WINDOW = """
void window(float t, float *weight)
{
    const float t2 = t * t, t3 = t2 * t;
    weight[0] = (1 - 3 * t + 3 * t2 - t3) / 6;
    weight[1] = (4 - 6 * t2 + 3 * t3) / 6;
    weight[2] = (1 + 3 * t + 3 * t2 - 3 * t3) / 6;
    weight[3] = t3 / 6;
}
"""

_ARGUMENTS = """
    const {fixed} *fixed, const {moving} *moving, int rows, int columns, int down, int right,
    int bins, float fixed_low, float fixed_high, float moving_low, float moving_high
"""

_MAP = """
    const int row = (int)(i / columns) + down, column = (int)(i % columns) + right;
    if (row >= 0 && row < rows && column >= 0 && column < columns) {
        const float f = fixed[i], m = moving[(size_t)row * columns + column];
        if (f >= fixed_low && f <= fixed_high && m >= moving_low && m <= moving_high) {
            const float span = bins - 4;
            const float u = f > fixed_low ? span * ((f - fixed_low) / (fixed_high - fixed_low)) : 0;
            const float v = m > moving_low ? span * ((m - moving_low) / (moving_high - moving_low)) : 0;
            float f_weight[4], m_weight[4];
            window(u - floor(u), f_weight);
            window(v - floor(v), m_weight);
            for (int j = 0; j < 4; ++j)
                for (int k = 0; k < 4; ++k)
                    EMIT(((int)u + j) * bins + (int)v + k, f_weight[j] * m_weight[k]);
        }
    }
"""

_TYPES = (np.uint8, np.int8, np.uint16, np.int16, np.float32)


@Bindable
def joint_histogram(
    fixed: Any,
    moving: Any,
    bins: int = 64,
    *,
    range: Any = None,
    shift: tuple[int, int] = (0, 0),
    dtype: DTypeLike = np.float32,
    queue: cl.CommandQueue | None = None,
) -> Bound:
    """Return the joint histogram of two images, each pixel spread over 4 x 4 bins by cubic B-splines.

    An intensity x in [low, high] is ``u = (bins - 4) * (x - low) / (high - low)`` and adds to the bins ``floor(u)`` to
    ``floor(u) + 3`` of its axis; that of index k is about ``u = k - 1``.

    Parameters
    ----------
    fixed, moving : arrays of one shape (rows, columns) or (N,)
        Real intensities. (u)int8, (u)int16 and float32 are read as they are, others converted to float32; device arrays
        are of one of those types.
    bins : int
        For each of the two, at least 4.
    range : pair of pairs (low, high), optional
        Of `fixed` and of `moving`, rounded to float32; either may be None. Defaults to the least and the largest
        intensity, found on the device. Pixels outside, or NaN, are ignored.
    shift : pair of int
        Rows down and columns right: pixel p of `fixed` meets pixel ``p + shift`` of `moving`, if there is one. Of
        arrays of one dimension the rows are 1.
    dtype : dtype-like
        Of the sums: float32, or float64 if the device has it. Weights are float32.
    queue : pyopencl.CommandQueue, optional
        Defaults to that of `fixed`, or the default one.

    Returns
    -------
    array of shape (bins, bins)
        Intensities of `fixed` first. Its sum is the number of pixels that met; of the kind of `fixed`.

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong, or there is no range, because of a NaN; it is named, and nothing is counted.

    Notes
    -----
    A float32 bin of n terms is off by at most ``n * 2**-24`` of its value (from above, and rarely by so much): take
    float64 where tens of millions of pixels may be alike.

    Examples
    --------
    >>> import clhist.cases
    >>> image = np.arange(16, dtype=np.float32).reshape(4, 4)
    >>> float(clhist.cases.joint_histogram(image, image, 8).sum())
    16.0
    """
    fixed, moving = pair_of("fixed, moving", as_array("fixed", fixed), as_array("moving", moving))
    fixed, moving = _image("fixed", fixed), _image("moving", moving)
    if fixed.shape != moving.shape or fixed.ndim not in (1, 2):
        shapes = f"{fixed.shape} and {moving.shape}"
        raise ValueError(f"fixed, moving: expected one shape (rows, columns) or (N,), got {shapes}")
    if not isinstance(bins, int | np.integer) or not 4 <= bins < 2**15:
        raise ValueError(f"bins: expected an integer from 4 to 2**15 - 1, got {bins!r}")
    if dtype not in (np.float32, np.float64):
        raise TypeError(f"dtype: expected float32 or float64, got {dtype!r}")
    try:
        down, right = (operator.index(step) for step in shift)
    except (TypeError, ValueError):
        raise TypeError(f"shift: expected a pair of integers, rows and columns, got {shift!r}") from None
    queue = queue or default_queue(fixed, moving)
    ranges = ranges_of("fixed, moving", fixed, moving, range, queue)
    ends = [end for pair, name in zip(ranges, ("fixed", "moving"), strict=True) for end in _float32(name, *pair)]
    rows, columns = fixed.shape if fixed.ndim == 2 else (1, fixed.size)
    # A shift beyond the image leaves as little as one by its whole length.
    down, right = min(max(down, -rows), rows), min(max(right, -columns), columns)
    kernel = _kernel(queue.context, fixed.dtype, moving.dtype, np.dtype(dtype))
    bins = int(bins)
    arguments = (fixed, moving, rows, max(columns, 1), down, right, bins, *ends)
    return kernel.bind(*arguments, num_bins=(bins, bins), size=fixed.size, queue=queue)


def mutual_information(joint: Any, *, normalized: bool = False) -> float:
    """Return how much each of two images says of the other, by their joint histogram.

    Parameters
    ----------
    joint : array of shape (K, L)
        Weights, not negative; any total. NumPy's or PyOpenCL's.
    normalized : bool
        Whether to return Studholme's ``(H(F) + H(M)) / H(F, M)`` (1999), which the size of the overlap changes less:
        1 for independent images, 2 for those that determine each other.

    Returns
    -------
    float
        ``H(F) + H(M) - H(F, M)`` in nats, or the ratio. 0, or 1, of a histogram without entries.

    Examples
    --------
    >>> import clhist.cases
    >>> clhist.cases.mutual_information(np.eye(2), normalized=True)
    2.0
    """
    joint = as_array("joint", joint)
    weights = joint.get() if isinstance(joint, cl_array.Array) else joint
    if weights.ndim != 2 or weights.dtype.kind not in "iuf":
        raise ValueError(f"joint: expected numbers of shape (K, L), got {weights.dtype} of shape {weights.shape}")
    weights = weights.astype(np.float64)
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise ValueError("joint: expected finite weights, none negative, got others")
    weights /= weights.sum() or 1
    both = _entropy(weights)
    marginals = _entropy(weights.sum(axis=0)) + _entropy(weights.sum(axis=1))
    if normalized:
        return marginals / both if both else 1.0
    # Mutual information is not negative; rounding could make it so.
    return max(marginals - both, 0.0)


def _entropy(probabilities: np.ndarray) -> float:
    positive = probabilities[probabilities > 0]
    return float(-(positive * np.log(positive)).sum())


@lru_cache(maxsize=64)
def _kernel(context: cl.Context, fixed: np.dtype, moving: np.dtype, dtype: np.dtype) -> HistogramKernel:
    arguments = _ARGUMENTS.format(fixed=dtype_to_ctype(fixed), moving=dtype_to_ctype(moving))
    return HistogramKernel(context, operators.add(dtype), arguments=arguments, map=_MAP, preamble=_WINDOW, emits=16)


def _image(name: str, image: Any) -> Any:
    """Return an image of real numbers as one that a kernel takes."""
    if image.dtype in _TYPES:
        return image if isinstance(image, cl_array.Array) else np.ascontiguousarray(image)
    if isinstance(image, cl_array.Array):
        names = ", ".join(np.dtype(dtype).name for dtype in _TYPES)
        raise TypeError(f"{name}: expected a device array of one of {names}, got {image.dtype}")
    # Numbers beyond float32 become infinite, which is outside of every range.
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(image, np.float32)


def _float32(name: str, low: Any, high: Any) -> tuple[np.float32, np.float32]:
    """Return a range as float32."""
    with np.errstate(over="ignore"):
        ends = np.float32(low), np.float32(high)
        if not np.isfinite(ends[1] - ends[0]):
            raise ValueError(f"range of {name}: expected a width that float32 holds, got ({low}, {high})")
    return ends
