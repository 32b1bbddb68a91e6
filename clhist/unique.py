"""`unique` and `factorize`: the different values of an array, and which of them each element is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from clhist._core.opencl.arrays import (
    are_plain_numbers,
    check_context,
    check_layout,
    check_unmasked,
    is_device_array,
    on_host,
)
from clhist._core.runtime.columns import ColumnData, of_list, read_column
from clhist._core.runtime.labelled import unlabelled
from clhist._core.runtime.reading import as_array
from clhist._core.runtime.small import is_small
from clhist.bincount import bincount
from clhist.grouped.factorized import factorized, factorized_column
from clhist.grouped.keys import Numbering, distinct, renumbered

if TYPE_CHECKING:
    import pyopencl as cl

    from clhist.typing import Positions, Values


def unique(
    x: Positions | Values,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    *,
    equal_nan: bool = True,
    sorted: bool = True,
    queue: cl.CommandQueue | None = None,
) -> Any:
    """Return the different elements of an array: `numpy.unique` on an OpenCL device.

    Numbers, booleans and dates are put into a hash table on the device; other types are hashed on the host.

    Parameters
    ----------
    x : array_like
        Data of any shape, of NumPy, PyOpenCL or CUDA's libraries.
    return_index : bool
        Whether the first position of each value is returned.
    return_inverse : bool
        Whether the number of each element among the values is returned.
    return_counts : bool
        Whether it is returned how often each value occurs.
    equal_nan : bool
        Whether all NaN, or NaT, are one value, rather than each a value of its own. Only for arrays of numbers and
        dates; missing elements of other arrays are one value.
    sorted : bool
        Whether values come in their order, rather than in that of their first positions.
    queue : pyopencl.CommandQueue, optional
        Where it runs; small NumPy arrays as well then.

    Returns
    -------
    values : array of shape (U,)
        Of the dtype of `x`, and of its kind. NaN, or NaT, are the last if values are sorted. The two zeros are one.
        Of masked arrays and nullable columns of pandas, PyArrow and polars a masked array: what is missing is one
        value, the last and masked.
    index : array of int64, shape (U,)
        First positions in the flattened array; only if asked for.
    inverse : array of int32, of the shape of `x`
        ``values[inverse]`` is `x`; only if asked for.
    counts : array of int64, shape (U,)
        Only if asked for.

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong; it is named.
    MemoryError
        If the device has no room.

    Examples
    --------
    >>> clhist.unique(np.array([7, 2, 7]), return_inverse=True)
    (array([2, 7]), array([1, 0, 1], dtype=int32))
    """
    only_keys = not (return_inverse or return_counts)
    values_alone = sorted is True and only_keys and not return_index and equal_nan
    # Values alone need no numbers of elements, and few of them no device.
    if values_alone and type(x) is np.ndarray and are_plain_numbers(x) and is_small("distinct", x.size, queue):
        return distinct(x)
    x, shape = _flat("x", x, queue)
    if not equal_nan and (isinstance(x, ColumnData) or x.dtype.kind in "fcmMOT"):
        numbering = _with_each_nan(x, sorted, queue)
    else:
        # A column with missing elements needs numbers in any case.
        options = {} if isinstance(x, ColumnData) else {"only_keys": only_keys, "counts": return_counts}
        numbering = _numbered(x, queue, sort=sorted, first=return_index, missing=True, **options)
    results = [numbering.keys]
    if return_index:
        results.append(numbering.first)
    if return_inverse:
        results.append(numbering.numbers if len(shape) == 1 else numbering.numbers.reshape(shape))
    if return_counts:
        counts = numbering.counts
        if counts is None:
            counts = bincount(numbering.numbers, minlength=len(numbering.keys), queue=queue)
        results.append(counts)
    return results[0] if len(results) == 1 else tuple(results)


def factorize(
    values: Positions | Values,
    sort: bool = False,
    use_na_sentinel: bool = True,
    *,
    queue: cl.CommandQueue | None = None,
) -> tuple[Positions, Positions]:
    """Return elements as numbers of different values: `pandas.factorize` on an OpenCL device.

    Parameters
    ----------
    values : array_like of shape (N,)
        Data of NumPy, PyOpenCL or CUDA's libraries, or a column of pandas, PyArrow or polars.
    sort : bool
        Whether values are numbered in their order, rather than in that of their first positions.
    use_na_sentinel : bool
        Whether the number of a missing value (NaN, NaT, None, NA, null, masked) is -1; else it has one as others do.
        NaN of polars is a value.
    queue : pyopencl.CommandQueue, optional
        Where it runs; small NumPy arrays as well then.

    Returns
    -------
    codes : array of int32, shape (N,)
        The number of each element.
    uniques : array of shape (U,)
        The different values, of the dtype of `values`; masked as of `unique` if they have a number for missing ones.

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong; it is named.
    MemoryError
        If the device has no room.

    Examples
    --------
    >>> clhist.factorize(np.array([7, 2, 7]))
    (array([0, 1, 0], dtype=int32), array([7, 2]))
    """
    values, shape = _flat("values", values, queue)
    if len(shape) != 1:
        raise ValueError(f"values: expected one dimension, got {len(shape)}")
    numbering = _numbered(values, queue, sort=sort, missing=not use_na_sentinel)
    return numbering.numbers, numbering.keys


def _with_each_nan(x: Any, sorted: bool, queue: cl.CommandQueue | None) -> Numbering:
    """Return the numbering of flat elements in which each NaN or NaT is a value of its own."""
    if isinstance(x, ColumnData) or x.dtype.kind in "OT":
        kind = "columns" if isinstance(x, ColumnData) else f"arrays of {x.dtype}"
        raise TypeError(f"equal_nan: expected True for {kind}, whose missing elements are one value, got False")
    # NaN gets the number -1; the other values are numbered without a gap.
    numbering = factorized(x, queue, sort=sorted, first=True)
    numbers: np.ndarray = on_host(numbering.numbers)
    positions = np.flatnonzero(numbers < 0)
    if not len(positions):
        return numbering
    # Without dtype= the byte order of the data would be lost.
    values = np.concatenate([on_host(numbering.keys), on_host(x)[positions]], dtype=x.dtype)
    first = np.concatenate([on_host(numbering.first), positions])
    numbers[positions] = np.arange(len(values) - len(positions), len(values))
    if not sorted:
        order = np.argsort(first)
        values, first, numbers = values[order], first[order], renumbered(order, numbers)
    arrays = numbers, values, first
    if is_device_array(x):
        from clhist._core.opencl.new_arrays import to_device  # PyOpenCL, which arrays of the host do without

        arrays = (to_device(queue or x.queue, array) for array in arrays)
    return Numbering(*arrays)


def _numbered(x: Any, queue: cl.CommandQueue | None, **options: bool) -> Any:
    """Return elements as numbers of different values."""
    return (factorized_column if isinstance(x, ColumnData) else factorized)(x, queue, **options)


def _flat(name: str, x: Any, queue: cl.CommandQueue | None) -> tuple[Any, tuple[int, ...]]:
    """Return an array in one dimension, or a column that has missing values, and its shape."""
    # Plain arrays need none of the conversions below.
    if type(x) is np.ndarray:
        if queue is not None:
            check_context([(name, x)], queue.context)
        return x.reshape(-1), x.shape
    x = unlabelled(x)
    if (column := read_column(x)) is not None:
        return column, column.values.shape
    check_unmasked(name, x)
    x = as_array(name, of_list(name, x))
    if queue is not None:
        check_context([(name, x)], queue.context)
    if is_device_array(x):
        check_layout(name, x)
        return (x if x.ndim == 1 else x.reshape(-1)), x.shape
    return np.reshape(x, -1), x.shape
