"""`fill`: any histogram of boost-histogram or hist, filled by an OpenCL device."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import boost_histogram as bh
import numpy as np
import pyopencl as cl
from boost_histogram import Histogram as BoostHistogram  # as it is now, should a program put ours in its place

from clhist._core.spi import (
    Remembered,
    check_host_way,
    is_cuda,
    is_device_array,
    on_host,
    signature_of,
    takes_cuda,
    warn_of_host,
)
from clhist.binned.sweep import Sweep
from clhist.hist.axes import number_kind
from clhist.hist.columns import Columns, adds_up, columns_of, is_column, looks_at_content, present_columns
from clhist.hist.storages import merge, num_cells, sums_of, sums_sweep, takes
from clhist.operators.checks import check_reproducible

_MOST_BYTES = 32  # of a bin, but for MultiCell


class KnownFill(NamedTuple):
    """A fill but for its arrays.

    Attributes
    ----------
    sweep : Sweep
        What computes its sums.
    scale : float, str or None
        What these are multiplied with in the end; "each" of weights that are an array.
    places : tuple of int
        Which of the arguments of the fill the sweep takes, in its order.
    """

    sweep: Sweep
    scale: Any
    places: tuple[int, ...]

    @classmethod
    def of(cls, h: Any, given: Sequence[Any], columns: Columns, sweep: Sweep, scale: Any) -> KnownFill | None:
        """Return it, or None if a fill with arrays alike may differ; `given` ends in weight and sample."""
        dims = len(given) - 2
        places = [n for n in (*reversed(range(dims)), dims, dims + 1) if is_column(given[n])]
        arrays = columns.arrays
        as_given = len(arrays) == len(places) and all(a is given[n] for a, n in zip(arrays, places, strict=True))
        if not as_given or any(looks_at_content(ax, each) for ax, each in zip(h.axes, given, strict=False)):
            return None
        return cls(sweep, scale, tuple(places))


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
    fractions as weights of integer storages.

    Examples
    --------
    >>> import boost_histogram as bh, clhist.hist
    >>> h = bh.Histogram(bh.axis.Regular(2, 0, 1))
    >>> filled = clhist.hist.fill(h, np.array([0.1, 0.2, 0.9]))
    >>> h.values()
    array([2., 1.])
    """
    check_reproducible(reproducible)
    if not isinstance(h, BoostHistogram):
        raise TypeError(f"h: expected a boost_histogram.Histogram, got {type(h).__name__}; the histogram comes first")
    rest = positions(h, args, named)
    if rest is None:
        return type(h).fill(h, *args, weight=weight, sample=sample, threads=threads, **named)
    args = (*args, *rest)
    given = (*args, weight, sample)
    key = None
    if any(map(is_device_array, given)) and not reproducible:
        key = signature_of(id(h._hist), queue, *given)
        known = _known.get(key)
        if known is not None and known[0]() is h._hist:
            _, storage, known_fill = known
            sweep = known_fill.sweep
            merge(h, storage, weight, sweep([given[n] for n in known_fill.places]), sweep.queue)
            return h
    values, weight, sample, _ = present_columns(args, weight, sample)
    columns = None
    if threads in (None, 1) or h.storage_type not in (bh.storage.Mean, bh.storage.WeightedMean):
        columns = columns_of(h, values, weight, sample, queue, reproducible=reproducible)
    if columns is None or not takes(h, columns):
        by_boost_histogram(h, values, weight, sample, threads, queue, reproducible)
        return h
    check_room(h, columns)
    found = sums_of(columns, num_cells(h, columns.storage), reproducible=reproducible)
    merge(h, columns.storage, weight, found, columns.queue)
    if key is not None and not any(ax.traits.growth for ax in h.axes):
        _remember(key, h, given, columns)
    return h


def by_boost_histogram(
    h: Any, values: Sequence[Any], weight: Any, sample: Any, threads: int | None, queue: Any, reproducible: bool
) -> None:
    """Let boost-histogram fill `h`, of whose arguments `as_column` was taken.

    Raises
    ------
    TypeError
        If the sums are to be reproducible, which they are not.
    """
    given = [*values, weight, sample]
    are_arrays = _ARRAYS.issuperset(map(type, given))
    if not are_arrays:
        given = _expanded(h, [on_host(each) for each in given])
    *args, weight, sample = given
    options = {"weight": weight, "sample": sample, "threads": threads}
    if reproducible and adds_up(weight, sample):
        BoostHistogram.fill(copy.deepcopy(h), *args, **options)  # raises what is wrong with the arguments
        check_host_way(_OF_BOOST_HISTOGRAM, queue, reproducible=True)
    check_host_way(_OF_BOOST_HISTOGRAM, queue)
    if not are_arrays and any(map(is_cuda, (*values, weight, sample))):
        warn_of_host("clhist.hist.fill", _OF_BOOST_HISTOGRAM)
    BoostHistogram.fill(h, *args, **options)


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

# Fills of device arrays, with what has the axes and bins of the histogram, which is not kept.
_known: Remembered[tuple[Callable[[], Any], type, KnownFill]] = Remembered(16)


def _remember(key: Hashable, h: Any, given: Sequence[Any], columns: Columns) -> None:
    """Keep what a fill of the same histogram with arrays alike needs again."""
    sweep = sums_sweep(columns, reproducible=False)
    known = None if sweep is None else KnownFill.of(h, given, columns, sweep, None)
    if known is not None:
        _known.put(key, (weakref.ref(h._hist), columns.storage, known))


def check_room(h: Any, columns: Columns) -> None:
    """Raise MemoryError if a device cannot hold the bins."""
    device, bins = columns.queue.device, prod(columns.shape)
    if bins * _MOST_BYTES <= device.global_mem_size and bins < 2**31 and columns.storage is not bh.storage.MultiCell:
        return  # a view takes time
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
