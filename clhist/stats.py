"""SciPy's statistics by bins on an OpenCL device: `binned_statistic`, `binned_statistic_2d`, `binned_statistic_dd`.

NumPy computes few plain numbers. SciPy is imported when it computes: other small inputs, and what no kernel can.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from clhist._core.opencl.arrays import Array, check_context, check_contiguous, common_kind, is_device_array
from clhist._core.opencl.halves import as_numbers
from clhist._core.runtime.cuda_entry import takes_cuda
from clhist._core.runtime.missing import any_missing, are_plain, rows_missing, split
from clhist._core.runtime.small import check_host_way, is_small
from clhist.binned.by_scipy import (
    are_counts,
    by_scipy,
    rounds,
    unknown,
)
from clhist.binned.counts import flat, present
from clhist.binned.few_statistics import are_plain_statistics, few_statistics
from clhist.binned.inputs import as_array, as_edges, is_binnable, mask_array
from clhist.binned.points import Points, points_of
from clhist.binned.statistic_results import (
    BinnedStatistic2dResult,
    BinnedStatisticddResult,
    BinnedStatisticResult,
)
from clhist.operators.c_types import check_booleans, supported_dtype
from clhist.operators.halves import number_of
from clhist.operators.names import FUNCTIONS
from clhist.statistics.quantiles import probability
from clhist.statistics.table import BINNED

if TYPE_CHECKING:
    from typing import Unpack

    import pyopencl as cl

    from clhist import typing as types
    from clhist.typing import A, Arrays, Asked, BinOptions, Ends, Given, Values

__all__ = ["binned_statistic", "binned_statistic_2d", "binned_statistic_dd"]


_BY_FUNCTION = {getattr(np, name): name for name in BINNED if name in FUNCTIONS.values() and hasattr(np, name)}


@takes_cuda
def binned_statistic_dd(  # noqa: PLR0913  # SciPy's arguments, and ours
    sample: Given[A] | Sequence[Given[A]],
    values: Given[A] | None,
    statistic: Asked = "mean",  # type: ignore[assignment]
    bins: int | Values = 10,
    range: Sequence[Ends] | None = None,
    expand_binnumbers: bool = False,
    binned_statistic_result: Any = None,
    *,
    where: Arrays | None = None,
    queue: cl.CommandQueue | None = None,
    reproducible: bool = False,
    binnumber: bool = True,
    q: float | None = None,
    weights: Arrays | None = None,
) -> types.BinnedStatisticddResult[A, Asked]:
    """Compute a statistic of the values in each bin: `scipy.stats.binned_statistic_dd` on an OpenCL device.

    Parameters
    ----------
    sample : array_like of shape (N, D), or sequence of D array_likes of shape (N,)
        Points, of NumPy or PyOpenCL.
    values : array_like of shape (N,) or (V, N)
        Values at the points; each row separately. Not used for counts.
    statistic : str, callable, or sequence of str
        "mean", "std" (of the population), "median", "count", "sum", "min" or "max", or NumPy's functions of these
        names, or "quantile". Several are computed in one sweep over the data, but for "std", which takes a second one,
        and medians and quantiles, which are selected. SciPy computes any other callable, of host arrays.
    bins : int, sequence of int, or sequence of arrays
        As of SciPy: number of bins, or edges.
    range : sequence of (float, float), optional
        Lower and upper end of each dimension.
    expand_binnumbers : bool
        Whether the bin numbers are those of each dimension, of shape (D, N).
    binned_statistic_result : object, optional
        An earlier result whose bins are used again, by SciPy.
    where : array_like of bool of shape (N,), optional
        Points that count. The others are left out of the range, too, but have a bin number.
    queue : pyopencl.CommandQueue, optional
        Where it runs; small NumPy arrays as well then, which the host computes otherwise.
    reproducible : bool
        Whether sums, means and standard deviations are bitwise the same in any order; see `clhist.reduce_by_index`.
    binnumber : bool
        Whether the result has the number of the bin of each point, an array of N int64 that takes as long to write as
        the statistic to compute. None otherwise.
    q : float, optional
        Probability of "quantile", from 0 to 1: linear interpolation in float64, as by ``numpy.quantile``.
    weights : array_like of shape (N,), optional
        Weights of the values for "quantile", not negative: the least value up to which at least the share `q` of the
        weight of the bin lies, as by ``numpy.quantile(..., method="inverted_cdf")``. NaN in a bin without weight.

    Returns
    -------
    BinnedStatisticddResult
        A named tuple as SciPy's: `statistic` of shape (..., H_1, ..., H_D) in float64, or a dict of these by name for
        several statistics, `bin_edges` on the host, and `binnumber`. Arrays are of the kind of `sample`.

    Raises
    ------
    ValueError, AttributeError
        As SciPy's.
    TypeError
        If device arrays are of a dtype that no kernel takes, or `statistic` is a callable; if statistics have to be
        `reproducible` that only SciPy computes; if `q` or `weights` are given without "quantile", or `q` is missing.
    UnsupportedError
        If the device has no double precision.

    Notes
    -----
    Bins are SciPy's: half-open, but for the last one, which has its upper edge and what rounds to it. Sums are
    accumulated in float64, so that the mean of n equal values may differ from them by n units in the last place at
    most, as SciPy's may. "min" ignores NaN and "max" does not, as SciPy's; for "median" NaN is the greatest value,
    and of "quantile" it makes the bin NaN.
    Statistics of device arrays wait for the device where `bins` is a number, since SciPy refuses points that are not
    finite, where a range is that of the data, and of several rows of values.

    Examples
    --------
    >>> points = np.array([[0.1, 0.3], [0.2, 0.4], [0.9, 0.8]])
    >>> clhist.stats.binned_statistic_dd(points, [1.0, 3.0, 5.0], "max", bins=2).statistic
    array([[ 3., nan],
           [nan,  5.]])
    """
    check_booleans(expand_binnumbers=expand_binnumbers, reproducible=reproducible, binnumber=binnumber)
    again = binned_statistic_result
    options: dict[str, Any] = {"queue": queue, "reproducible": reproducible, "q": q}
    others = {**options, "again": again, "where": where, "weights": weights, "no numbers": not binnumber}
    # Fast path for few plain columns, before all other checks.
    few = _of_few_plain((sample, values, statistic, bins, range), expand_binnumbers, queue, others)
    if few is not None:
        return few
    names = _names(statistic)
    _check_kind(sample, values, statistic, names, binned_statistic_result)
    points = points_of(sample)
    bins = as_edges("bins", bins)
    data: Any
    data, missing = _missing_elements(points, values, weights)
    if points is not None and missing is not None:
        arrays = {"values": data, "weights": weights, "where": where}
        return _of_present(
            points, arrays, missing, statistic, bins, range, expand_binnumbers, again, binnumber, options
        )
    values_array = None if are_counts(names) else as_array("values", data)
    weights = _quantile_weights(names, q, weights, points)
    # Options that SciPy lacks: they are refused if SciPy has to compute the statistic.
    options = {"reproducible": reproducible and rounds(names), "q": q, "statistic": unknown(names)}
    by_kernels = _are_for_kernels(points if again is None else None, values_array, names, queue, options)
    if points is not None and names is not None and by_kernels:
        from clhist.binned.statistics import Form, binned_statistics

        leading_shape = tuple(data.shape if is_device_array(data) else np.shape(data))[:-1]
        expand = expand_binnumbers if binnumber else None
        form = Form(names, bins, range, expand, reproducible, q, leading_shape)
        results, edges, numbers = binned_statistics(points, sample, values_array, where, weights, queue, form)
        chosen = results if isinstance(statistic, list | tuple) else results[names[0]]
        result: Any = BinnedStatisticddResult(chosen, edges, numbers)
        return result
    of_host: list[np.ndarray] | None = None
    # The host has the same bins as kernels, so it takes the same edges.
    if points is not None and again is None and points.dims and is_binnable(points.dtype):
        from clhist.binned.statistic_edges import check_length, statistic_edges

        where = mask_array(where, (points.size,))
        common_kind(present(sample=points.arrays, values=values_array, where=where, weights=weights))
        check_length(values_array, points.size)
        of_host = statistic_edges(points, sample, bins, range, flat(where), queue)
    # SciPy computes callables, complex values, reused bin numbers, unsupported dtypes and few points.
    forms = {"expand": expand_binnumbers, "again": again, "where": where, "binnumber": binnumber}
    return by_scipy(points, sample, data, statistic, names, bins, range, of_host, **forms)


def _missing_elements(points: Points | None, values: Any, weights: Any) -> tuple[Any, np.ndarray | None]:
    """Return values as an array, and which elements lack a coordinate, a value or a weight; None if none does."""
    if points is None or points.on_device or (points.missing is None and are_plain((values, weights))):
        return values, None
    values, missing = _split_values(values, points.size)
    of_weights = None if weights is None else split("weights", weights)[1]
    return values, any_missing(points.missing, missing, of_weights)


def _split_values(values: Any, size: int) -> tuple[Any, np.ndarray | None]:
    """Return values of shape (..., N) as an array, and which of the N are missing."""
    array, missing = split("values", values)
    if missing is None or array.shape[-1:] != (size,):
        return (values if missing is None else array), None  # a wrong shape is refused later
    return array, rows_missing("values", missing.reshape(-1, size).T)


def _of_present(
    points: Points,
    arrays: Mapping[str, Any],
    missing: np.ndarray,
    statistic: Any,
    bins: Any,
    range: Any,
    expand: bool,
    again: Any,
    binnumber: bool,
    options: Mapping[str, Any],
) -> Any:
    """Return the statistics of the points that are not missing; points without coordinates get masked bin numbers."""
    present = ~missing
    weights = None if arrays["weights"] is None else split("weights", arrays["weights"])[0][present]
    where = mask_array(arrays["where"], (points.size,))
    where = None if where is None else where[present]
    values = arrays["values"]
    values = values if values is None else np.asarray(values)[..., present]
    if again is not None:
        # The bin numbers of an earlier result are those of all points.
        again = again._replace(binnumber=np.asarray(again.binnumber)[..., present])
    sample = points.without(missing).as_given
    result: Any = binned_statistic_dd(
        sample, values, statistic, bins, range, expand, again, where=where, weights=weights, **options, binnumber=False
    )
    if not binnumber:
        return result
    # Points without a value still have a bin number, so number all points that have coordinates.
    located = points if points.missing is None else points.without(points.missing)
    edges = list(result.bin_edges)
    counts = binned_statistic_dd(located.as_given, None, "count", edges, None, expand, queue=options["queue"])
    if points.missing is None:
        return result._replace(binnumber=counts.binnumber)
    shape = (points.dims, points.size) if counts.binnumber.ndim > 1 else (points.size,)
    numbers = np.ma.masked_all(shape, counts.binnumber.dtype)
    numbers[..., ~points.missing] = counts.binnumber
    return result._replace(binnumber=numbers)


def _are_for_kernels(
    points: Points | None, values: Array | None, names: Any, queue: cl.CommandQueue | None, options: Mapping[str, Any]
) -> bool:
    """Whether kernels compute the statistics; raise TypeError for options that SciPy lacks if they do not."""
    if points is not None and names is not None and _by_device(points, values, queue, options):
        return True
    check_host_way("what SciPy computes, as it does callables and complex values", queue, **options)
    return False


@takes_cuda
def binned_statistic(
    x: Given[A],
    values: Given[A] | None,
    statistic: Asked = "mean",  # type: ignore[assignment]
    bins: int | Values = 10,
    range: Ends | Sequence[Ends] | None = None,
    **options: Unpack[BinOptions],
) -> types.BinnedStatisticResult[A, Asked]:
    """Compute a statistic of the values in each bin of one dimension: `scipy.stats.binned_statistic`.

    Parameters
    ----------
    x : array_like of shape (N,)
        What is binned, of NumPy or PyOpenCL.
    values, statistic
        As of `binned_statistic_dd`.
    bins : int or array_like
        Number of bins, or edges.
    range : (float, float), optional
        Lower and upper end.
    **options
        `where`, `queue`, `reproducible`, `binnumber`, `q` and `weights` of `binned_statistic_dd`.

    Returns
    -------
    BinnedStatisticResult
        A named tuple as SciPy's: `statistic`, `bin_edges`, `binnumber`.

    Examples
    --------
    >>> x, values = np.array([0.1, 0.2, 0.9]), np.array([1.0, 3.0, 5.0])
    >>> clhist.stats.binned_statistic(x, values, "mean", bins=2, range=(0, 1)).statistic
    array([2., 5.])
    """
    # As in SciPy, a sequence has the edges unless it has one item.
    by: Any = bins
    if hasattr(by, "__len__") and len(by) != 1:
        by = [_as_floats(by)]
    ends: Any = range
    if hasattr(ends, "__len__") and len(ends) == 2:
        ends = [ends]
    of_dd = binned_statistic_dd([x], values, statistic, by, ends, **options)
    result: Any = BinnedStatisticResult(of_dd.statistic, of_dd.bin_edges[0], of_dd.binnumber)
    return result


@takes_cuda
def binned_statistic_2d(
    x: Given[A],
    y: Given[A],
    values: Given[A] | None,
    statistic: Asked = "mean",  # type: ignore[assignment]
    bins: int | Values = 10,
    range: Sequence[Ends] | None = None,
    expand_binnumbers: bool = False,
    **options: Unpack[BinOptions],
) -> types.BinnedStatistic2dResult[A, Asked]:
    """Compute a statistic of the values in each bin of two dimensions: `scipy.stats.binned_statistic_2d`.

    Parameters
    ----------
    x, y : array_like of shape (N,)
        What is binned.
    values, statistic, expand_binnumbers
        As of `binned_statistic_dd`.
    bins : int, array_like, or pair of these
        Number of bins or edges, of both dimensions or of each.
    range : pair of (float, float), optional
        Lower and upper ends.
    **options
        `where`, `queue`, `reproducible`, `binnumber`, `q` and `weights` of `binned_statistic_dd`.

    Returns
    -------
    BinnedStatistic2dResult
        A named tuple as SciPy's: `statistic`, `x_edge`, `y_edge`, `binnumber`.

    Examples
    --------
    >>> x, y = np.array([0.1, 0.2, 0.9]), np.array([0.3, 0.4, 0.8])
    >>> clhist.stats.binned_statistic_2d(x, y, None, "count", bins=2).statistic
    array([[2., 0.],
           [0., 1.]])
    """
    # As in SciPy, a sequence of another length than 1 or 2 has the edges of both dimensions.
    by: Any = bins
    if hasattr(by, "__len__") and len(by) not in (1, 2):
        by = [_as_floats(by)] * 2
    of_dd = binned_statistic_dd([x, y], values, statistic, by, range, expand_binnumbers, **options)
    x_edge, y_edge = of_dd.bin_edges
    result: Any = BinnedStatistic2dResult(of_dd.statistic, x_edge, y_edge, of_dd.binnumber)
    return result


def _as_floats(bins: Any) -> np.ndarray:
    """Return edges of one dimension as float64."""
    edges = as_edges("bins", bins)
    try:
        return np.asarray(edges, float)
    except (TypeError, ValueError) as error:
        raise type(error)(f"bins: expected a number of bins or edges, got {bins!r:.60}") from error


def _names(statistic: Any) -> tuple[str, ...] | None:
    """Return the statistics by name, or None of another callable."""
    statistics = statistic if isinstance(statistic, list | tuple) else (statistic,)
    names = []
    for one in statistics:
        name = _BY_FUNCTION.get(one) if callable(one) else one
        # SciPy computes a single callable; several statistics need names.
        if name is None and len(statistics) == 1:
            return None
        if name not in BINNED:
            raise ValueError(f"invalid statistic {one!r}")
        names.append(name)
    if not names:
        raise ValueError("statistic: expected at least one, got none")
    return tuple(names)


def _check_kind(sample: Any, values: Any, statistic: Any, names: Any, again: Any) -> None:
    """Raise TypeError if SciPy would have to compute statistics of device arrays."""
    arrays = [*sample, values] if isinstance(sample, list | tuple) else [sample, values]
    if (names is None or again is not None) and any(map(is_device_array, arrays)):
        if names is None:
            raise TypeError(f"statistic: expected one of {', '.join(BINNED)} for device arrays, got {statistic!r}")
        raise TypeError("binned_statistic_result: expected none for device arrays; give its bin_edges as bins")


def _quantile_weights(names: Sequence[str] | None, q: Any, weights: Any, points: Points | None) -> Any:
    """Return the weights of a quantile as one dimension; raise TypeError or ValueError if these or `q` are wrong."""
    if names is None or "quantile" not in names:
        for name, value in (("q", q), ("weights", weights)):
            if value is not None:
                raise TypeError(f"{name}: expected it with the statistic 'quantile' only, got statistic {names}")
        return None
    probability(q)
    if weights is None:
        return None
    weights = as_array("weights", weights)
    if points is not None and weights.shape != (points.size,):
        raise ValueError(f"weights: expected shape {(points.size,)} as of the sample, got {weights.shape}")
    weights = as_numbers(weights)
    if weights.dtype.kind in "biuf":
        supported_dtype(weights.dtype, "weights")
    if is_device_array(weights) and not weights.dtype.isnative:
        raise TypeError(f"weights: expected native byte order of a device array, got {weights.dtype.str}")
    if is_device_array(weights):
        check_contiguous("weights", weights)
    if points is not None and points.dims and common_kind([("sample", points.arrays[0]), ("weights", weights)]):
        check_context([("weights", weights)], points.arrays[0].context)
    from clhist.statistics.selection import check_weights

    check_weights(weights)
    return flat(weights)


def _are_few(size: int, queue: cl.CommandQueue | None, options: Mapping[str, Any]) -> bool:
    """Whether points on the host are left to SciPy since they are few, and it has the options."""
    return is_small("binned_statistic", size, **{**options, "queue": queue})


def _of_few_plain(
    call: tuple[Any, ...], expand: bool, queue: cl.CommandQueue | None, options: Mapping[str, Any]
) -> Any:
    """Return the result for few plain columns, without checks; None for others and if a check has to raise."""
    if not are_plain_statistics(*call) or not _are_few(call[0][0].size, queue, options):
        return None
    result = few_statistics(*call, expand=expand)
    return None if result is None else BinnedStatisticddResult(*result)


def _by_device(points: Points, values: Array | None, queue: cl.CommandQueue | None, options: Mapping[str, Any]) -> bool:
    """Whether kernels can compute these, and points are not few; raise TypeError for device arrays if not."""
    inputs = [("sample", points.dtype)] + ([] if values is None else [("values", values.dtype)])
    if points.on_device:
        for name, dtype in inputs:
            if not is_binnable(number_of(dtype) if name == "values" else dtype):
                raise TypeError(f"{name}: expected a device array of integers or floats, got one of {dtype}")
            if not dtype.isnative:
                raise TypeError(f"{name}: expected native byte order of a device array, got {dtype.str}")
        for array in points.arrays:
            check_contiguous("sample", array)
        if is_device_array(values):
            check_contiguous("values", values)
        return True
    if _are_few(points.size, queue, options):
        return False
    return all(is_binnable(dtype) for _, dtype in inputs) and points.dims > 0 and (values is None or values.ndim > 0)
