"""Parboil's benchmark histo (SC'20, section V-D2): a histogram of two dimensions whose counts stop at 255.

The bins are those of `numpy.histogram2d` exactly; `clhist.binned` finds them.
"""

from __future__ import annotations

import operator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyopencl as cl
import pyopencl.array as cl_array

from clhist import Bound, HistogramKernel, default_queue, operators
from clhist.binned.spi import Binned, numpy_axis, split_array, sweep_engine, without
from clhist.cases.arrays import Range, pair_of, ranges_of
from clhist.cases.bindable import Bindable

__all__ = ["histo", "wafer"]


def _result(bound_and_edges: tuple[Bound, tuple[npt.NDArray[Any], npt.NDArray[Any]]]) -> tuple[Any, ...]:
    bound, edges = bound_and_edges
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
    the last, which has its upper edge as well; points outside of the range, and those with a NaN or a missing
    coordinate (masked, NA or null), are ignored.

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
    NumPy compares in float64. Points are compared as integers in their order here, so no device needs double precision;
    see `clhist.histogram`.

    ``histo.bind`` returns a bound call that counts, and the two edges.

    Examples
    --------
    >>> import clhist.cases
    >>> x, y = [0.1, 0.2, 0.9], [0.3, 0.4, 0.8]
    >>> counts, x_edges, y_edges = clhist.cases.histo(x, y, 2, ceiling=1)
    >>> counts
    array([[1, 0],
           [0, 1]], dtype=uint8)
    """
    (x, missing_x), (y, missing_y) = split_array("x", x), split_array("y", y)
    x, y = pair_of("x, y", x, y)
    given_dtype = np.result_type(x.dtype, y.dtype)
    dtype = np.dtype(np.float32 if np.can_cast(given_dtype, np.float32) else np.float64)
    x, y = _column("x", x, dtype), _column("y", y, dtype)
    if x.shape != y.shape:
        raise ValueError(f"y: expected shape {x.shape}, as x, got {y.shape}")
    if missing := [mask for mask in (missing_x, missing_y) if mask is not None]:
        x, y = without(np.logical_or.reduce(missing), x, y)
    shape = _shape(bins)
    if not isinstance(ceiling, int | np.integer) or not 0 < ceiling < 2**32:
        raise ValueError(f"ceiling: expected an integer from 1 to 2**32 - 1, got {ceiling!r}")
    queue = queue or default_queue(x, y)
    ranges = ranges_of("x, y", x, y, range, queue)
    edges = tuple(_edges(ends, n, given_dtype) for ends, n in zip(ranges, shape, strict=True))
    binned = _binned(x, y, edges, queue)
    outputs = (("", operators.saturating_add(np.min_scalar_type(ceiling), int(ceiling)), "1"),)
    kernel = HistogramKernel.of(outputs[0][1], sweep_engine(queue.context, binned.kind, outputs))
    bound = kernel.bind(*binned.arguments(queue), num_bins=shape, size=binned.size, queue=queue)
    return bound, (edges[0], edges[1])


def wafer(num_points: int, seed: int = 0) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return points (x, y) about the middle of the unit square, as in Parboil's data of silicon wafers.

    They are Gaussian in both directions, half of them in a core of a tenth of the others' width.
    """
    rng = np.random.default_rng(seed)
    width = np.where(np.arange(num_points) % 2, np.float32(0.012), np.float32(0.12))
    x, y = (0.5 + width * rng.standard_normal((2, num_points), dtype=np.float32)).astype(np.float32)
    return x, y


def _binned(x: Any, y: Any, edges: tuple[npt.NDArray[Any], ...], queue: cl.CommandQueue) -> Binned:
    """Return the points with their axes; none of the points where no number of their dtype lies between edges."""
    axes = [numpy_axis(axis_edges, x.dtype, queue) for axis_edges in edges]
    if None in axes:
        unit = numpy_axis(np.array([0.0, 1.0]), x.dtype, queue)
        return Binned(tuple(axis for axis in (unit, unit) if axis), (x, y), None, 0)
    return Binned(tuple(axis for axis in axes if axis), (x, y), None, x.size)


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
    # The ends of data that was converted to float32 get the dtype of the data.
    if given_dtype.itemsize < 4 and isinstance(low, np.float32):
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
