"""Binned statistics: one sweep or two compute their parts; a kernel finishes those of device arrays, the host others.

A call with the signature of an earlier one takes its sweeps. Note [Signature of a call], docs/decisions/0015.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl

from clhist._core.opencl.arrays import Array, as_bytes, is_device_array, on_host
from clhist._core.opencl.device import check_fp64
from clhist._core.opencl.halves import as_numbers
from clhist._core.opencl.new_arrays import beginning, empty, to_device
from clhist._core.opencl.operands import in_place
from clhist._core.runtime.signature import call_templates, keys_of_columns, signature_of_data
from clhist.axes.block_search import BLOCK
from clhist.axes.thresholds import rounded_bins
from clhist.binned.by_scipy import numbers_by_scipy
from clhist.binned.counting import as_dtype
from clhist.binned.counts import flat, present
from clhist.binned.device_inputs import queue_for
from clhist.binned.device_points import binned_points
from clhist.binned.finishing import finished
from clhist.binned.inputs import mask_array
from clhist.binned.numbers import NumbersCall
from clhist.binned.points import Points
from clhist.binned.statistic_edges import check_bins, check_length, edges_of_extents, extents_of
from clhist.binned.sweep import Binned, Sweep, size_class
from clhist.operators.operator import Operator
from clhist.statistics.selection import select
from clhist.statistics.selection_texts import Order
from clhist.statistics.table import PARTS, TABLE
from clhist.statistics.variance import deviation_terms

_F8 = np.dtype(np.float64)


# Statistics by name, edges of each dimension, and bin numbers or None.
Results = tuple[dict[str, Any], list[np.ndarray], Any]


class Form(NamedTuple):
    """The arguments of a call that are no arrays.

    Attributes
    ----------
    names : tuple of str
        The statistics, from `clhist.statistics.table.BINNED`.
    bins, range
        As of `clhist.stats.binned_statistic_dd`.
    expand : bool or None
        Whether bin numbers are those of each dimension; None for no bin numbers.
    reproducible : bool
        Whether sums are bitwise the same in any order.
    q : float or None
        Probability of the quantile.
    leading_shape : tuple of int
        The dimensions of the values but for the last.
    """

    names: tuple[str, ...]
    bins: Any
    range: Any
    expand: bool | None
    reproducible: bool
    q: float | None
    leading_shape: tuple[int, ...]


def binned_statistics(
    points: Points,
    sample: Any,
    values: Array | None,
    where: Any,
    weights: Array | None,
    queue: cl.CommandQueue | None,
    form: Form,
) -> Results:
    """Return statistics of points by name, SciPy's edges of each dimension, and SciPy's bin numbers or None.

    Parameters
    ----------
    points, sample : Points, array_like
        The points, as read and as of the caller.
    values : array or None
        Of shape (..., N); None if only counts are requested.
    where : array_like of bool, or None
        True for points that count.
    weights : array or None
        Weights of the values, for the quantile.
    queue : pyopencl.CommandQueue or None
        The caller's.
    form : Form
        The other arguments.
    """
    arrays, size = (*points.arrays, values, where, weights), points.size
    key = signature_of_data(arrays, queue, "binned statistics", points.dims, *form, size_class(size))
    checked: cl.CommandQueue | None = call_templates.get(key)
    if checked is None:
        where = mask_array(where, (size,))
        queue = queue_for(queue, present(sample=points.arrays, values=values, where=where, weights=weights))
        check_length(values, size)
        check_bins(points, form.bins, form.range)
    else:
        queue = checked
    where, rows = flat(where), [None] if values is None else _rows(values, size)
    extents = extents_of(points, sample, form.bins, form.range, where, queue)
    # With a range, the points are read for SciPy's check alone.
    ends = [(low.tobytes(), high.tobytes()) for low, high in filter(None, extents if form.range is None else [])]
    of_extents = None if key is None else (key, frozenset(map(_kind_of, rows)), *ends)
    prepared: PreparedStatistics | None = call_templates.get(of_extents)
    if prepared is not None:
        return prepared(points, rows, where, weights)
    edges = edges_of_extents(points, form.bins, form.range, where, extents)
    binned = binned_points(points, edges, where, queue, rounded_bins)
    results, prepared = computed(points, edges, binned, rows, where, weights, queue, form)
    call_templates.put(key, queue)
    call_templates.put(of_extents, prepared)
    return results


def computed(
    points: Points,
    edges: list[np.ndarray],
    binned: Binned | None,
    rows: Sequence[Any],
    where: Any,
    weights: Any,
    queue: cl.CommandQueue,
    form: Form,
) -> tuple[Results, PreparedStatistics | None]:
    """Return the results of `binned_statistics` by these edges, and what repeats the call; None without elements.

    `binned` are the points with their axes; None if no number of their dtype lies in a bin. `rows` are of the values,
    or None of counts.
    """
    if binned is None or not points.size or not rows:
        return _without_elements(points, edges, binned, queue, form), None
    prepared = PreparedStatistics(binned, edges, rows, queue, form)
    return prepared(points, rows, where, weights), prepared


class PreparedStatistics:
    """Statistics by bins that are ready for other points with the same signature.

    Parameters
    ----------
    binned : Binned
        Such points with their axes.
    edges : sequence of array
        SciPy's, of each dimension.
    rows : sequence of array or None
        The rows of such values, or None of counts.
    queue : pyopencl.CommandQueue
        The queue that computes.
    form : Form
        The other arguments.

    Notes
    -----
    One sweep computes all parts, except order statistics and reproducible sums, which take one each. Standard
    deviations take a second sweep around the means. Sums alone would cancel where a mean is large, and an operator of
    means and deviations needs a lock on GPUs.
    """

    def __init__(
        self,
        binned: Binned,
        edges: Sequence[np.ndarray],
        rows: Sequence[Any],
        queue: cl.CommandQueue,
        form: Form,
    ) -> None:
        self._names, self._queue, self._form = tuple(dict.fromkeys(form.names)), queue, form
        if self._names != ("count",):
            instead = "use clhist.group_by with the bins of clhist.digitize: it has float32, too"
            check_fp64(queue.device, "values", instead)
        self._edges, self._shape = tuple(map(np.copy, edges)), tuple(len(one) - 1 for one in edges)
        # Kernels depend on the alignment of arrays, which the rows of one array may differ in.
        some = {_kind_of(values): values for values in rows}
        self._swept = {
            kind: _swept(binned, self._names, values, queue, reproducible=form.reproducible)
            for kind, values in some.items()
        }
        self._around: dict[Hashable, Sweep] = {}
        if "std" in self._names:
            terms = deviation_terms("(double)v0[i]", "v1[max(bin, 0)]")
            outputs = tuple(zip(("shift", "squares"), (_operators(True)["sum"],) * 2, terms, strict=True))
            more: Any = {"queue": queue, "reproducible": form.reproducible, "tables": (_F8,)}
            self._around = {kind: Sweep.of(binned, outputs, (values,), **more) for kind, values in some.items()}
        # Selection reads bins once for each digit: store the bin of each element instead of searching again.
        is_selected = any(TABLE[name].is_apart for name in self._names)
        self._places = NumbersCall.of_places(binned, queue) if is_selected else None
        self._numbers = _numbers_calls(binned, queue, form)
        self._finish = {name: finish for name in self._names if (finish := TABLE[name].finish) is not None}

    @property
    def nbytes(self) -> int:
        """Bytes of the tables of axes, which all calls share."""
        calls = [*self._numbers, *([] if self._places is None else [self._places])]
        sweeps = [sweep for swept in self._swept.values() for sweep in swept]
        return max([sweep.template.nbytes for sweep in sweeps] + [call.nbytes for call in calls])

    def __call__(self, points: Points, rows: Sequence[Any], where: Any, weights: Any) -> Results:
        """Return statistics by name, edges, and bin numbers or None; `rows` are those of the values."""
        queue, leading_shape = self._queue, self._form.leading_shape
        data, size, places = _data_of(points), points.size, None
        if self._places is not None:
            places = self._places([in_place(array, queue) for array in (*data, where) if array is not None], size)
        each_row = [self._of_row([*data, where], places, values, weights, size) for values in rows]
        results = each_row[0]
        if leading_shape:
            # Counts depend on no values, but have the leading dimensions of these, as in SciPy.
            repeats = prod(leading_shape) if rows[0] is None else 1
            for name in results:
                stacked = np.array([on_host(row[name], queue) for row in each_row] * repeats, float)
                results[name] = _placed(stacked.reshape(*leading_shape, *self._shape), points, queue)
        numbers = _bin_numbers(self._numbers, data, size, self._edges, self._form, queue)
        # Copies of the edges, which the caller may change.
        return results, [one.copy() for one in self._edges], numbers

    def _of_row(self, data: Sequence[Any], places: Any, values: Any, weights: Any, size: int) -> dict[str, Any]:
        """Return statistics of values in one dimension by name."""
        queue, shape, on_device = self._queue, self._shape, is_device_array(data[0])
        parts: dict[str, Any] = {}
        kind = _kind_of(values)
        for sweep in self._swept[kind]:
            parts |= sweep([*data, None if sweep.names == ("count",) else values], size)
        if self._around:
            around = self._around[kind]
            spare = int(around.kind.has_spare)
            if on_device:
                means = finished(queue, "mean", parts, (prod(shape),), spare)
            else:
                with np.errstate(all="ignore"):
                    means = np.append(parts["sum"] / parts["count"], np.zeros(spare))
            parts |= around([*data, values, means], size)
        if "median" in self._names:
            parts["median"] = self._selected(places, values, None, None)
        if "quantile" in self._names:
            parts["quantile"] = self._selected(places, values, weights, self._form.q)
        if on_device:
            return {name: self._finished_on_device(name, parts) for name in self._names}
        with np.errstate(all="ignore"):
            return {name: finish(parts).astype(_F8) for name, finish in self._finish.items()}

    def _finished_on_device(self, name: str, parts: dict[str, Any]) -> Any:
        """Return a statistic of its parts, as float64."""
        if TABLE[name].text:
            return finished(self._queue, name, parts, self._shape)
        (part,) = TABLE[name].parts or (name,)
        return as_dtype(parts[part], _F8, self._queue)

    def _selected(self, places: Any, values: Any, weights: Any, q: float | None) -> Any:
        """Return the median of each bin, where NaN sorts last, or (with `q`) the quantile, where NaN makes it NaN."""
        on_device, queue = is_device_array(values), self._queue
        arrays = [
            as_bytes(array) if array.dtype.kind == "b" else array for array in (values, weights) if array is not None
        ]
        arrays = [in_place(array, queue) for array in arrays]
        dtype = arrays[0].dtype
        result = dtype if dtype.kind == "f" else _F8
        order = Order(places.dtype, dtype, result, _F8, "greatest" if q is None else "propagated", q is None)
        if weights is not None:
            order = replace(order, weights=arrays[1].dtype)
        of_weights = None if weights is None else arrays[1]
        quantiles = select(order, places, arrays[0], prod(self._shape), queue, q=q or 0.0, weights=of_weights)
        return beginning(quantiles if on_device else quantiles.get(queue), *self._shape)


def _swept(
    binned: Binned, names: Sequence[str], values: Any, queue: cl.CommandQueue, *, reproducible: bool
) -> list[Sweep]:
    """Return the sweeps of the parts of all statistics (counts, sums, ...), one for each part if reproducible."""
    needed = sorted({part for name in names for part in TABLE[name].parts})
    ready = _operators(binned.size < 2**32 - BLOCK)
    outputs = tuple((part, ready[part], PARTS[part][1]) for part in needed)
    # Counts and extremes have no exact form, so parts that may need one get a sweep each.
    groups = [(output,) for output in outputs] if reproducible else [outputs] if outputs else []
    sweeps = []
    for group in groups:
        arrays = () if [part for part, _, _ in group] == ["count"] else (values,)
        rounds = reproducible and group[0][1].operation == "add" and group[0][1].dtype.kind == "f"
        sweeps.append(Sweep.of(binned, group, arrays, queue=queue, reproducible=rounds))
    return sweeps


@lru_cache(maxsize=2)
def _operators(few: bool) -> dict[str, Operator]:
    return {name: make(few) for name, (make, _) in PARTS.items()}


def _without_elements(
    points: Points, edges: list[np.ndarray], binned: Binned | None, queue: cl.CommandQueue, form: Form
) -> Results:
    """Return the results where no bin has a value; `binned` is None if no number of the points' dtype lies in one."""
    shape = *form.leading_shape, *(len(one) - 1 for one in edges)
    results = {name: _placed(np.full(shape, TABLE[name].of_none, float), points, queue) for name in form.names}
    if binned is not None or form.expand is None:
        calls = [] if binned is None else _numbers_calls(binned, queue, form)
        return results, edges, _bin_numbers(calls, _data_of(points), points.size, edges, form, queue)
    host = [on_host(array, queue) for array in points.arrays]
    numbers = numbers_by_scipy(host if points.rows is None else host[0], edges, form.expand)
    return results, edges, _placed(numbers, points, queue)


def _numbers_calls(binned: Binned, queue: cl.CommandQueue, form: Form) -> list[NumbersCall]:
    """Return the calls that store SciPy's bin numbers: one, or one for each dimension; none without bin numbers."""
    axes, data = binned.axes, binned.data
    if form.expand is None:
        return []
    # Points that do not count have a bin number, too.
    if not (form.expand and len(axes) > 1 and is_device_array(data[0])):
        return [NumbersCall.of(replace(binned, where=None), queue, falling=False)]
    if len(data) < len(axes):
        raise ValueError("expand_binnumbers: expected D device arrays of shape (N,), got one of shape (N, D)")
    columns = [Binned((axis,), (column,), None, binned.size) for axis, column in zip(axes, data, strict=True)]
    return [NumbersCall.of(one, queue, falling=False) for one in columns]


def _bin_numbers(
    calls: Sequence[NumbersCall],
    data: Sequence[Any],
    size: int,
    edges: Sequence[np.ndarray],
    form: Form,
    queue: cl.CommandQueue,
) -> Any:
    """Return SciPy's bin numbers by `_numbers_calls`; None without calls."""
    if len(calls) > 1:
        out: Any = empty(queue, (len(calls), size), np.dtype(np.int64), True)
        for n, (call, column) in enumerate(zip(calls, data, strict=True)):
            call([column], size, out[n])
        return out
    numbers = calls[0](data, size) if calls else None
    if numbers is None or not form.expand or len(edges) == 1:
        return numbers
    # The numbers include a bin below and one above the edges of each dimension.
    return np.asarray(np.unravel_index(numbers, [len(axis_edges) + 1 for axis_edges in edges]))


def _rows(values: Array, size: int) -> Sequence[Array]:
    """Return values (..., N) as a list of contiguous rows of a dtype that kernels support."""
    values = as_numbers(values)
    if not is_device_array(values):
        values = np.ascontiguousarray(values)
    if values.ndim == 1:
        return [values]
    number = prod(values.shape[:-1])
    return list(values.reshape(number, size)) if size else [values.reshape(-1)] * number


def _kind_of(values: Any) -> Hashable:
    """Return the key of a row of values, or of None, without its length."""
    return tuple(keys_of_columns([values]) or ())


def _data_of(points: Points) -> list[Any]:
    """Return the arrays of points as sweeps take them."""
    return [flat(column) for column in points.columns] if points.rows is None else [points.rows]


def _placed(array: np.ndarray, points: Points, queue: cl.CommandQueue) -> Any:
    """Return an array where the points are."""
    return to_device(queue, array) if points.on_device else array
