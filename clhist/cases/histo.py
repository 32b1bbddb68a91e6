"""Parboil's benchmark histo (SC'20, section V-D2): a histogram of two dimensions whose counts stop at 255.

The bins are those of `numpy.histogram2d` exactly. A bin is guessed by a multiplication, which rounding can put one too
low or too high (and more where the range is small beside its ends), and then corrected by the edges themselves.
"""

from __future__ import annotations

import operator
from functools import lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyopencl as cl
import pyopencl.array as cl_array
from pyopencl.tools import dtype_to_ctype

from clhist import Bound, HistogramKernel, default_queue, operators
from clhist.cases.arrays import Range, pair_of, ranges_of
from clhist.cases.bindable import Bindable

__all__ = ["histo", "wafer"]

_FIND = """
int find_bin(real value, __global const real *edges, int num_bins, real scale)
{
    if (!(value >= edges[0] && value <= edges[num_bins])) return -1;  // and so is NaN
    const real guess = (value - edges[0]) * scale;  // which may be infinite, or NaN
    int k = guess < num_bins ? min((int)guess, num_bins - 1) : num_bins - 1;
    while (k < num_bins - 1 && value >= edges[k + 1]) ++k;
    while (k > 0 && value < edges[k]) --k;
    return k;
}
"""

_ARGUMENTS = """
    const real *x, const real *y, const real *x_edges, const real *y_edges,
    int x_bins, int y_bins, real x_scale, real y_scale
"""

_MAP = """
    const int row = find_bin(x[i], x_edges, x_bins, x_scale), column = find_bin(y[i], y_edges, y_bins, y_scale);
    EMIT(row < 0 || column < 0 ? -1 : row * y_bins + column, 1);
"""


def _result(found: tuple[Bound, tuple[npt.NDArray[Any], npt.NDArray[Any]]]) -> tuple[Any, ...]:
    bound, edges = found
    return bound(), *edges


@partial(Bindable, result=_result)
def histo(
    x: Any,
    y: Any,
    bins: int | tuple[int, int] = 1024,
    *,
    range: Any = None,
    ceiling: int = 255,
    queue: cl.CommandQueue | None = None,
) -> tuple[Bound, tuple[npt.NDArray[Any], npt.NDArray[Any]]]:
    """Count points into bins of two dimensions up to a ceiling, as Parboil's histo does (SC'20, section V-D2).

    Equal to ``numpy.minimum(numpy.histogram2d(x, y, bins, range)[0], ceiling)``, exactly: bins are half-open but for
    the last, which has its upper edge as well; points outside of the range, and those with a NaN, are ignored.

    Parameters
    ----------
    x, y : array_like of shape (N,)
        Real numbers. float32 and narrower ones are compared as float32, others as float64. Device arrays are both
        float32 or both float64.
    bins : int or pair of int
        How many for both, or for x and for y.
    range : pair of pairs (low, high), optional
        Of x and of y; either may be None. Defaults to the least and the largest element, found on the device.
    ceiling : int
        The largest count.
    queue : pyopencl.CommandQueue, optional
        Defaults to that of `x`, or the default one.

    Returns
    -------
    counts : array of shape (bins of x, bins of y)
        Of the narrowest unsigned type that holds `ceiling`, uint8 for 255; of the kind of `x`, NumPy's or PyOpenCL's.
    x_edges, y_edges : numpy arrays of shape (bins + 1,)
        As NumPy's.

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong, or there is no range, because of a NaN; it is named, and nothing is counted.

    Notes
    -----
    A float32 is compared with edges that NumPy computes in float64 and compares in float64. The same comes of
    comparing it with the least float32 that is not below an edge (for the last edge: the largest that is not above),
    so no device needs double precision for float32 points.

    ``histo.bind`` returns a bound call that counts, and the two edges.
    """
    x, y = pair_of("x, y", x, y)
    given_dtype = np.result_type(x.dtype, y.dtype)
    dtype = np.dtype(np.float32 if np.can_cast(given_dtype, np.float32) else np.float64)
    x, y = _column("x", x, dtype), _column("y", y, dtype)
    if x.shape != y.shape:
        raise ValueError(f"y: expected shape {x.shape}, as x, got {y.shape}")
    shape = _shape(bins)
    if not isinstance(ceiling, int | np.integer) or not 0 < ceiling < 2**32:
        raise ValueError(f"ceiling: expected an integer from 1 to 2**32 - 1, got {ceiling!r}")
    queue = queue or default_queue(x, y)
    ranges = ranges_of("x, y", x, y, range, queue)
    edges = tuple(_edges(ends, n, given_dtype) for ends, n in zip(ranges, shape, strict=True))
    compared: list[Any] = [_compared(each, dtype) for each in edges]
    with np.errstate(all="ignore"):  # a scale of 0 or infinity guesses badly, which is corrected
        scales = [dtype.type(n) / (each[-1] - each[0]) for each, n in zip(compared, shape, strict=True)]
    if isinstance(x, cl_array.Array):
        compared = [cl_array.to_device(queue, each) for each in compared]
    kernel = _kernel(queue.context, dtype, int(ceiling))
    bound = kernel.bind(x, y, *compared, *shape, *scales, num_bins=shape, queue=queue)
    return bound, (edges[0], edges[1])


def wafer(num_points: int, seed: int = 0) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return points (x, y) about the middle of the unit square, as in Parboil's data of silicon wafers.

    They are Gaussian in both directions, half of them in a core of a tenth of the others' width.
    """
    rng = np.random.default_rng(seed)
    width = np.where(np.arange(num_points) % 2, np.float32(0.012), np.float32(0.12))
    x, y = (0.5 + width * rng.standard_normal((2, num_points), dtype=np.float32)).astype(np.float32)
    return x, y


@lru_cache(maxsize=32)
def _kernel(context: cl.Context, dtype: np.dtype, ceiling: int) -> HistogramKernel:
    real = dtype_to_ctype(dtype)
    return HistogramKernel(
        context,
        operators.saturating_add(np.min_scalar_type(ceiling), ceiling),
        arguments=_ARGUMENTS.replace("real", real),
        map=_MAP,
        preamble=_FIND.replace("real", real),
    )


def _column(name: str, column: Any, dtype: np.dtype) -> Any:
    if column.ndim != 1:
        raise ValueError(f"{name}: expected shape (N,), got {column.shape}")
    if not isinstance(column, cl_array.Array):
        return np.ascontiguousarray(column, dtype)
    if column.dtype != dtype:
        raise TypeError(f"{name}: expected both x and y as device arrays of float32 or of float64, got {column.dtype}")
    return column


def _edges(ends: Range, num_bins: int, given_dtype: np.dtype) -> npt.NDArray[Any]:
    """Return NumPy's edges, which have the precision of the points if the range is theirs and they are floats."""
    low, high = ends
    if given_dtype.itemsize < 4 and isinstance(low, np.float32):  # of what was converted to float32
        low, high = (given_dtype.type(end) if given_dtype.kind == "f" else float(end) for end in ends)
    return np.linspace(*((low - 0.5, high + 0.5) if low == high else (low, high)), num_bins + 1)


def _shape(bins: Any) -> tuple[int, int]:
    try:
        rows, columns = (bins, bins) if isinstance(bins, int | np.integer) else bins
        shape = operator.index(rows), operator.index(columns)
    except (TypeError, ValueError):
        raise TypeError(f"bins: expected an integer or a pair of them, got {bins!r}") from None
    if min(shape) < 1 or shape[0] * shape[1] >= 2**31:
        raise ValueError(f"bins: expected at least one each and fewer than 2**31 in all, got {shape}")
    return shape


def _compared(edges: npt.NDArray[Any], dtype: np.dtype) -> npt.NDArray[Any]:
    """Return edges of `dtype` with which its numbers compare as with `edges`; see the notes of `histo`."""
    with np.errstate(over="ignore"):
        rounded = edges.astype(dtype)
    rounded = np.where(rounded < edges, np.nextafter(rounded, dtype.type(np.inf)), rounded)
    if rounded[-1] > edges[-1]:
        rounded[-1] = np.nextafter(rounded[-1], dtype.type(-np.inf))
    return rounded
