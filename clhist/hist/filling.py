"""`fill`: any histogram of boost-histogram or hist, filled by an OpenCL device."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from math import prod
from typing import Any

import boost_histogram as bh
import numpy as np
import pyopencl as cl
from boost_histogram import Histogram as BoostHistogram  # as it is now, should a program put ours in its place

from clhist._core.spi import (
    call_templates,
    check_host_way,
    is_cuda,
    is_device_array,
    on_host,
    profile_names,
    signature_of_arguments,
    takes_cuda,
    warn_of_host,
)
from clhist.binned.spi import Sweep
from clhist.hist.axes import number_kind
from clhist.hist.categories import growth_undone_on_error
from clhist.hist.columns import (
    Columns,
    adds_up,
    columns_of,
    is_column,
    looks_at_content,
    present_columns,
    refuses_threads,
)
from clhist.hist.means import add_means
from clhist.hist.storages import merge, num_cells, sums_of, sums_sweep, takes
from clhist.operators.c_types import check_booleans

# Bytes of a bin of any storage except MultiCell.
_MOST_BYTES = 32


def key_of(inputs: Sequence[Any], queue: cl.CommandQueue | None, *more: Any) -> Hashable:
    """Return the key of fills with arrays alike and equal numbers; None where there is none, or none is needed.

    Without a queue, small NumPy arrays go to boost-histogram, which takes less time than a key.
    """
    if queue is None and not any(map(is_device_array, inputs)):
        return None
    signature = signature_of_arguments(inputs)
    return signature and (signature, profile_names(), *more)


def places_of(h: Any, inputs: Sequence[Any], columns: Columns) -> tuple[int, ...] | None:
    """Return which `inputs` of a fill are the arrays of its sweep, in order; None if that depends on their content.

    `inputs` end in weight and sample.
    """
    dims = len(inputs) - 2
    # A sweep takes the data of the last axis first, then weights and samples.
    places = [n for n in (*reversed(range(dims)), dims, dims + 1) if is_column(inputs[n])]
    arrays = columns.arrays
    # A converted column, or bins found on the host, differ from the caller's array, which a repeat would pass.
    as_given = len(arrays) == len(places) and all(a is inputs[n] for a, n in zip(arrays, places, strict=True))
    # An array without dimensions is a number, which decides on a bin or a scale.
    is_number = any(isinstance(value, np.ndarray) and not value.ndim for value in inputs)
    if not as_given or is_number or any(map(looks_at_content, h.axes, inputs)):
        return None
    return tuple(places)


def device_columns(
    h: Any,
    values: Sequence[Any],
    weight: Any,
    sample: Any,
    threads: int | None,
    queue: cl.CommandQueue | None,
    reproducible: bool,
) -> Columns | None:
    """Return the columns of a fill by a device, or None after NumPy or boost-histogram has filled `h`.

    `values`, `weight` and `sample` are those of `present_columns`.
    """
    columns = columns_of(h, values, weight, sample, queue, reproducible=reproducible, threads=threads)
    if columns is None or not takes(h, columns):
        _fill_on_host(h, values, weight, sample, threads, queue, reproducible)
        return None
    check_room(h, columns)
    return columns


@takes_cuda
def fill(
    h: Any,
    *args: Any,
    weight: Any = None,
    sample: Any = None,
    threads: int | None = None,
    queue: cl.CommandQueue | None = None,
    reproducible: bool = False,
    **named: Any,
) -> Any:
    """Fill a histogram on an OpenCL device, as its own `fill` does.

    Parameters
    ----------
    h : boost_histogram.Histogram or hist.Hist
        Filled in place.
    *args : array_like of shape (N,), or scalar
        One for each axis: NumPy's, PyOpenCL's or CUDA's, or what `numpy.asarray` takes.
    weight : array_like of shape (N,), or scalar, optional
        Of shape (N, cells) for the storage MultiCell.
    sample : array_like of shape (N,), or scalar, optional
        For the storages Mean and WeightedMean.
    threads : int, optional
        Of boost-histogram's, where it does the work; the device uses all it has.
    queue : pyopencl.CommandQueue, optional
        Where it runs; small NumPy arrays as well then. Defaults to that of the arrays, or the default queue.
    reproducible : bool
        Whether sums of weights and samples are bitwise the same in any order and on any device.
    **named : array_like or scalar
        By the names of axes, of `hist.Hist`.

    Returns
    -------
    boost_histogram.Histogram
        `h`.

    Raises
    ------
    TypeError, ValueError
        As boost-histogram's, of the same text. Also if some arrays are NumPy's and some PyOpenCL's, or if sums have to
        be `reproducible` that only boost-histogram computes.
    UnsupportedError
        If the device has no double precision, and the storage sums weights or samples.
    MemoryError
        If the device has no room for the bins.

    Notes
    -----
    Bins are boost-histogram's for each number, counts are exact, and sums are float64. boost-histogram itself takes
    small NumPy arrays, unless there is a `queue` or their sums are `reproducible`, axes of numbers that grow, and
    fractions as weights of integer storages. NumPy takes small arrays of samples.

    Examples
    --------
    >>> import boost_histogram as bh, clhist.hist
    >>> h = bh.Histogram(bh.axis.Regular(2, 0, 1))
    >>> filled = clhist.hist.fill(h, np.array([0.1, 0.2, 0.9]))
    >>> h.values()
    array([2., 1.])
    """
    check_booleans(reproducible=reproducible)
    if not isinstance(h, BoostHistogram):
        raise TypeError(f"h: expected a boost_histogram.Histogram, got {type(h).__name__}; the histogram comes first")
    rest = positions(h, args, named)
    if rest is None:
        return type(h).fill(h, *args, weight=weight, sample=sample, threads=threads, **named)
    args = (*args, *rest)
    inputs = (*args, weight, sample)
    # The key has the id of the C++ histogram. An id may be reused, which the weak reference in the entry reveals.
    key = None if reproducible else key_of(inputs, queue, "fill", queue, id(h._hist))
    if key is not None:
        entry: tuple[Callable[[], Any], type, Sweep, tuple[int, ...]] | None = call_templates.get(key)
        if entry is not None and entry[0]() is h._hist:
            _, storage, repeated, order = entry
            merge(h, storage, weight, repeated([inputs[n] for n in order]), repeated.queue)
            return h
    values, weight, sample, _ = present_columns(args, weight, sample)
    with growth_undone_on_error(h):
        columns = device_columns(h, values, weight, sample, threads, queue, reproducible)
        if columns is None:
            return h
        sweep = sums_sweep(columns, reproducible=reproducible)
        cells = num_cells(h, columns.storage)
        sums = sums_of(columns, cells, reproducible=reproducible) if sweep is None else sweep(columns.arrays)
        merge(h, columns.storage, weight, sums, columns.queue)
    # Axes that grow depend on the content of arrays, so such a fill has to be planned anew.
    if key is not None and sweep is not None and not any(ax.traits.growth for ax in h.axes):
        places = places_of(h, inputs, columns)
        # A weak reference: the cache must not keep the histogram alive.
        call_templates.put(key, places and (weakref.ref(h._hist), columns.storage, sweep, places))
    return h


def _fill_on_host(
    h: Any, values: Sequence[Any], weight: Any, sample: Any, threads: int | None, queue: Any, reproducible: bool
) -> None:
    """Fill `h` by NumPy if it has means, otherwise by boost-histogram; `as_column` was taken of the arguments.

    Raises
    ------
    TypeError
        If the sums are to be reproducible, which they are not.
    """
    inputs = [*values, weight, sample]
    are_arrays = _ARRAYS.issuperset(map(type, inputs))
    if not are_arrays:
        inputs = [on_host(value) for value in inputs]
    if reproducible and adds_up(weight, sample):
        _fill_by_boost_histogram(copy.deepcopy(h), inputs, threads)  # raises what is wrong with the arguments
        check_host_way(_OF_BOOST_HISTOGRAM, queue, reproducible=True)
    check_host_way(_OF_BOOST_HISTOGRAM, queue)
    if not are_arrays and any(map(is_cuda, (*values, weight, sample))):
        warn_of_host("clhist.hist.fill", _OF_BOOST_HISTOGRAM)
    if sample is None or refuses_threads(h, threads) or not add_means(h, inputs[:-2], *inputs[-2:]):
        _fill_by_boost_histogram(h, inputs, threads)


def _fill_by_boost_histogram(h: Any, inputs: Sequence[Any], threads: int | None) -> None:
    """Let boost-histogram fill `h`; `inputs` ends in weight and sample."""
    if not _ARRAYS.issuperset(map(type, inputs)):
        inputs = _expanded(h, inputs)
    *args, weight, sample = inputs
    BoostHistogram.fill(h, *args, weight=weight, sample=sample, threads=threads)


def _expanded(h: Any, columns: Sequence[Any]) -> list[Any]:
    """Return columns with one value for all entries repeated, of which boost-histogram (issue 960) loses entries."""
    *args, weight, sample = columns
    size = next((len(column) for column in columns if is_column(column)), None)
    if size is None or (all(map(is_column, args)) and (sample is None or is_column(sample))):
        return list(columns)
    repeated = [_repeated(value, size, number_kind(ax)) for value, ax in zip(args, h.axes, strict=False)]
    return [*repeated, *args[len(repeated) :], weight, _repeated(sample, size, "real")]


def _repeated(value: Any, size: int, kind: str) -> Any:
    """Return a value for an axis `size` times; a column, and a value that boost-histogram refuses, as it is."""
    if kind == "string":
        return [value] * size if isinstance(value, str) else value
    if not isinstance(value, int | float | np.integer | np.floating | np.bool_):
        return value
    if kind == "integer":
        # It truncates NumPy's floats to integers of 32 bits, though not those of an array; it refuses Python's.
        is_refused = isinstance(value, float) and not isinstance(value, np.floating)
        if is_refused or not -(2**31) <= value < 2**31:
            return value
        value = int(value)
    return np.full(size, value)


_ARRAYS = {np.ndarray, type(None)}
_OF_BOOST_HISTOGRAM = "axes, weights or samples that only boost-histogram takes"


def check_room(h: Any, columns: Columns) -> None:
    """Raise MemoryError if a device cannot hold the bins."""
    device, bins = columns.queue.device, prod(columns.shape)
    if bins * _MOST_BYTES <= device.global_mem_size and bins < 2**31 and columns.storage is not bh.storage.MultiCell:
        # Return before a view is made, which takes longer than the check.
        return
    view = h.view(flow=True)
    if view.nbytes > device.global_mem_size or view.size >= 2**31:
        raise MemoryError(
            f"h: its storage needs {view.nbytes:,} bytes for {view.size:,} bins; "
            f"{device.name.strip()} has {device.global_mem_size:,}, and fewer than 2**31 bins can be filled"
        )


def positions(h: Any, args: Sequence[Any], named: Mapping[str, Any]) -> list[Any] | None:
    """Return what `named` has for the axes that follow those of `args`, or None if it does not fit."""
    if not named:
        return []
    names: list[Any] = [getattr(ax, "name", None) for ax in h.axes][len(args) :]
    return [named[name] for name in names] if set(names) == set(named) and len(names) == len(named) else None
