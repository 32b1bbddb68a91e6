"""`digitize`: NumPy's function on any OpenCL device."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from clhist._core.opencl.arrays import is_device_array
from clhist._core.runtime.labelled import elementwise, is_labelled
from clhist._core.runtime.missing import refuse_missing
from clhist._core.runtime.small import check_host_way, is_small
from clhist.binned.counts import check_device_dtypes
from clhist.binned.host import numpy_digitize
from clhist.binned.inputs import are_ascending, are_usable, is_binnable, split_array

if TYPE_CHECKING:
    import pyopencl as cl

    from clhist.typing import Positions, Values


def digitize(
    x: Positions | Values, bins: Values, right: bool = False, *, queue: cl.CommandQueue | None = None
) -> Positions:
    """Return the number of the bin of each element: `numpy.digitize` on an OpenCL device.

    Parameters
    ----------
    x : array_like
        Data, of NumPy or PyOpenCL.
    bins : array_like of shape (H,)
        Edges, rising or falling, on the host; those of CUDA are read. For edges with NaN, the host searches data of a
        device as well.
    right : bool
        Whether a bin has its right edge rather than its left one.
    queue : pyopencl.CommandQueue, optional
        Where it runs; small NumPy arrays as well then.

    Returns
    -------
    array of the shape of `x`
        Of `numpy.intp`, and of the kind of `x`. An array of xarray keeps its dimensions and coordinates. If
        elements of `x` are missing (masked, NA or null), a masked array that is masked there.

    Raises
    ------
    TypeError, ValueError
        As NumPy's.

    Examples
    --------
    >>> clhist.digitize([0.2, 1.0, 3.5], [0.0, 1.0, 2.0])
    array([1, 2, 3])
    """
    # A repeated call on a device array skips all checks.
    signature = None
    if type(bins) is np.ndarray and type(right) is bool and is_device_array(x):
        from clhist.binned.digits import repeated_numbers

        repeated, signature = repeated_numbers(x, bins, right, queue)
        if repeated is not None:
            return repeated
    if type(x) is not np.ndarray and is_labelled(x):
        bins = refuse_missing("bins", bins, "edges")
        return elementwise(partial(digitize, bins=bins, right=right, queue=queue), x, np.intp)
    data: Any
    data, missing = split_array("x", x)
    if missing is not None:
        # Masked elements were searched as well; the mask hides their numbers.
        masked: Any = np.ma.array(digitize(data, bins, right, queue=queue), mask=missing)
        return masked
    edges = bins = refuse_missing("bins", bins, "edges")
    if is_device_array(data):
        check_device_dtypes("x", (data,), None)
    elif _are_few(data, edges, queue) or not is_binnable(data.dtype):
        check_host_way("data that OpenCL has no type for", queue)
        return numpy_digitize(data, bins, right)
    # Let NumPy raise its errors about bins first.
    if not are_ascending(bins) or type(right) is not bool:
        numpy_digitize(np.empty(0, data.dtype), bins, right)
    on_device = is_device_array(data)
    if not on_device and not are_usable(edges):
        return numpy_digitize(data, bins, right)
    from clhist.binned.digits import numbers_by_edges, numbers_by_host  # PyOpenCL, which few elements do without

    if on_device and not are_usable(edges, fewest=0):
        return numbers_by_host(data, edges, right, queue)
    return numbers_by_edges(data, edges, bool(right), queue, signature)


def _are_few(x: np.ndarray, edges: Any, queue: cl.CommandQueue | None) -> bool:
    """Return whether NumPy searches the elements, in a time that depends on the comparisons of a binary search."""
    number = len(edges) if type(edges) in (np.ndarray, list, tuple) and np.ndim(edges) else 1
    return is_small("digitize", x.size * number.bit_length(), queue, num_bins=number)
