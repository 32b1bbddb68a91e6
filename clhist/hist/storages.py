"""Storages: the sums that a bin holds, which a sweep computes, and how they are added to earlier ones.

Sums have the axes of the histogram in reverse, the first one fastest, as ``view(flow=True)`` lies in memory.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import boost_histogram as bh
import numpy as np
import pyopencl as cl

from clhist import operators
from clhist._core.spi import Array, Call, Engine, check_fp64, device_kind, has_fp64, kept_by_context, on_host, to_device
from clhist._core.spi import reproducible as reproducible_engine
from clhist.binned.spi import BinnedKind, Sweep, sweep, sweep_engine
from clhist.hist.axes import number_kind
from clhist.hist.columns import MEANS, Columns, columns_of, is_column
from clhist.operators.c_types import c_name, integer
from clhist.operators.operator import Operator
from clhist.statistics.spi import deviation_terms, sum_of_deviations

Sums = dict[str, Any]
_Output = tuple[str, Operator, str]

# Elements that counters of 32 bits can count.
_MOST_COUNTED = 2**32
# An error of the mean up to so many units in its last place costs no digit of the variance.
_FAR = 8
_INTEGERS = (bh.storage.Int64, bh.storage.AtomicInt64)
# Their sums take several sweeps, or one of another engine.
WITHOUT_SWEEP = (*MEANS, bh.storage.MultiCell)


def takes(h: Any, columns: Columns) -> bool:
    """Whether a histogram takes these weights and samples as a kernel sums them; boost-histogram has the rest."""
    storage, weight, sample = columns.storage, columns.weight, columns.sample
    if storage is bh.storage.MultiCell:
        return is_column(weight) and weight.ndim == 2 and weight.shape[1] == num_cells(h, storage) and sample is None
    if is_column(weight) and weight.ndim != 1:
        return False
    if storage in MEANS:
        return sample is not None and (not is_column(sample) or sample.ndim == 1)
    if sample is not None:
        return False
    # Integer storages truncate after each addition, so sums of fractions depend on the order.
    if storage in _INTEGERS and weight is not None:
        if is_column(weight):
            return weight.dtype.kind in "bi" or (weight.dtype.kind == "u" and weight.dtype.itemsize < 8)
        return float(weight).is_integer()
    return True


def num_cells(h: Any, storage: type) -> int:
    """Return how many sums a bin has, of MultiCell; of other storages 0."""
    return h.view().shape[0] if storage is bh.storage.MultiCell else 0


def sums_of(columns: Columns, num_cells: int, *, reproducible: bool) -> Sums:
    """Return the sums by bins that a storage needs.

    Parameters
    ----------
    columns : Columns
        What the histogram is filled with; its storage `takes` them.
    num_cells : int
        Cells of a bin, of MultiCell.
    reproducible : bool
        Whether sums are bitwise the same in any order.

    Returns
    -------
    dict of str to array
        "count" or "weight", and what more there is; of the kind of the columns.

    Raises
    ------
    UnsupportedError
        If the device has no double precision, and sums need it.
    """
    if columns.storage is bh.storage.MultiCell:
        return {"cells": _cells(columns, num_cells, reproducible)}
    outputs, values = outputs_of(columns, separate=reproducible)
    if columns.storage in MEANS:
        return _moments(columns, outputs, values, reproducible)
    return _swept(columns, outputs, values, reproducible or _is_exact(outputs))


def sums_sweep(columns: Columns, *, reproducible: bool) -> Sweep | None:
    """Return the sweep over the columns that computes all sums, or None where it takes several, or no plain values."""
    if columns.storage in WITHOUT_SWEEP or reproducible:
        return None
    outputs, values = outputs_of(columns)
    # Float32 sums take the reproducible form, which has no sweep that can be repeated.
    if _is_exact(outputs):
        return None
    _check_precision(columns, outputs)
    return Sweep.of(columns.binned, outputs, values, queue=columns.queue)


def plan_of(h: Any, size: int, dtypes: Sequence[Any], weight: Any, sample: Any, queue: cl.CommandQueue) -> Any:
    """Return the plan of the sweep of a fill; see `clhist.hist.Filler.plan`."""
    defaults = {"real": np.float64, "integer": np.int32, "string": np.str_}
    axis_dtypes = dtypes or [defaults[number_kind(ax)] for ax in h.axes]
    # One element of each dtype: the plan depends on types and `size`, not on values.
    one = [np.ones(1, dtype) for dtype in axis_dtypes]
    weight, sample = (None if dtype is None else np.ones(1, dtype) for dtype in (weight, sample))
    columns = columns_of(copy.deepcopy(h), one, weight, sample, queue)
    if columns is None or not takes(h, columns) or columns.storage is bh.storage.MultiCell:
        raise ValueError(
            f"plan: expected columns that a kernel takes, got {[str(np.dtype(dtype)) for dtype in axis_dtypes]}"
        )
    outputs, values = outputs_of(replace(columns, size=size))
    engine = sweep_engine(queue.context, columns.binned.kind, outputs, tuple(array.dtype for array in values))
    return engine.plan(queue.device, integer("size", size, 0), [columns.shape] * len(outputs))


def outputs_of(
    columns: Columns, num_cells: int = 0, *, separate: bool = False
) -> tuple[tuple[_Output, ...], tuple[Any, ...]]:
    """Return the outputs of the first sweep over the columns, and the arrays that it takes values from.

    Of MultiCell, which has `num_cells` sums in a bin, it is that for the number `cell`. CPUs update the sums of weights
    and of their squares as the parts of one complex number, "both", unless they are to be `separate`.
    """
    storage, weight, sample = columns.storage, columns.weight, columns.sample
    if storage is bh.storage.MultiCell:
        return (("cells", _sum(), f"(double)v0[(long)i * {num_cells} + cell]"),), (weight,)
    w = "(double)v0[i]"
    # These arrays are v0 and v1 in the C expressions of the outputs.
    values = tuple(value for value in (weight, sample) if is_column(value))
    if not is_column(weight):
        outputs: list[_Output] = [("count", _counter(columns.size < _MOST_COUNTED), "1")]
    elif storage in _INTEGERS:
        outputs = [("weight", operators.add(np.int64), "(long)v0[i]")]
    elif storage is bh.storage.Double and weight.dtype == np.float32 and not has_fp64(columns.queue.device):
        # Without float64 on the device, float32 weights are summed exactly in the reproducible form.
        outputs = [("weight", operators.add(np.float32), "v0[i]")]
    else:
        outputs = [("weight", _sum(), w)]
    if is_column(weight) and (storage is bh.storage.Weight or storage in MEANS):
        if separate or device_kind(columns.queue.device) != "cpu":
            outputs.append(("square", _sum(), f"{w} * {w}"))
        else:
            outputs = [("both", _pair(), f"(double2)({w}, {w} * {w})")]
    if is_column(sample):
        x = f"(double)v{len(values) - 1}[i]"
        outputs.append(("sum", _sum(), f"{w} * {x}" if is_column(weight) else x))
    return tuple(outputs), values


@lru_cache(maxsize=2)
def _counter(few: bool) -> Operator:
    return operators.count(np.int64) if few else operators.add(np.int64)


@lru_cache(maxsize=1)
def _sum() -> Operator:
    return operators.add(np.float64)


@lru_cache(maxsize=1)
def _pair() -> Operator:
    """Return the sum of complex numbers as one part: both sums of a bin are in one cache line."""
    both = "double2 clhist_both(const double2 a, const double2 b) { return a + b; }"
    return Operator(np.complex128, "clhist_both(a, b)", 0, "add", preamble=both, verified=True)


def sum_of(dtype: np.dtype) -> Operator:
    """Return the operator that adds up sums of this type, as they are on the device."""
    return _pair() if dtype.kind == "c" else operators.add(dtype)


def _swept(columns: Columns, outputs: tuple[_Output, ...], values: tuple[Any, ...], reproducible: bool) -> Sums:
    """Return the outputs of one sweep by name; reproducible ones of one sweep each."""
    _check_precision(columns, outputs)
    groups = [(output,) for output in outputs] if reproducible else [outputs]
    sums: Sums = {}
    for group in groups:
        sums |= sweep(columns.binned, group, values, queue=columns.queue, reproducible=reproducible)
    return sums


def _is_exact(outputs: tuple[_Output, ...]) -> bool:
    """Whether sums are of float32, without double precision: then they are the reproducible ones."""
    return any(operator.dtype == np.float32 for _, operator, _ in outputs)


def _check_precision(columns: Columns, outputs: tuple[_Output, ...]) -> None:
    if any(operator.needs_fp64 for _, operator, _ in outputs):
        check_fp64(columns.queue.device, "storage", "use Int64, or Double with weights of float32")


def _moments(columns: Columns, outputs: tuple[_Output, ...], values: tuple[Any, ...], reproducible: bool) -> Sums:
    """Return sums of weights and of samples, then those of squared deviations from the mean of each bin."""
    sums = _on_host(_swept(columns, outputs, values, reproducible), columns.queue)

    def around(means: Array) -> tuple[np.ndarray, np.ndarray]:
        return _around(columns, values, means, reproducible)

    return moments(sums, columns.weight, columns.sample, around)


def moments(
    sums: Sums, weight: Any, sample: Any, around: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
) -> Sums:
    """Return sums by bins with the means, and with the squared deviations from them.

    Parameters
    ----------
    sums : dict of str to numpy.ndarray
        "weight" and "square" of weights that are an array, otherwise "count"; "sum" of samples that are an array. Gets
        "mean", "deviations" (squares) from it, and "shift", the sums of deviations where weights cancel.
    weight, sample : array, float or None
        As of `Columns`.
    around : callable
        Takes a mean of each bin, and returns the weighted sums of the deviations from it, and of their squares.
    """
    total = sums["weight"] if is_column(weight) else sums["count"].astype(np.float64)
    if is_column(sample):
        with np.errstate(all="ignore"):
            sums["mean"] = sums["sum"] / total
            # Positive weights have a sum of at least the root of their squares. Less than half of it is left by weights
            # of both signs: their mean may be far from all samples, so deviations are from the mean of other bins.
            squares = sums["square"] if is_column(weight) else total
            cancels = 2 * np.abs(total) < np.sqrt(squares)
        if cancels.any():
            is_usual = ~cancels & np.isfinite(sums["mean"])
            shares = np.where(is_usual, np.abs(total), 0.0)
            center = np.sum(shares * np.where(is_usual, sums["mean"], 0.0)) / (shares.sum() or 1.0)
            sums["mean"] = np.where(cancels, center, sums["mean"])
        # Correct the mean by the sum of deviations from it; repeat if rounding of a large offset dominates the squares.
        for _ in range(2):
            shift, squares = around(sums["mean"])
            sums["deviations"] = np.where(cancels, squares, sum_of_deviations(total, shift, squares))
            sums["shift"] = np.where(cancels, shift, 0.0)
            with np.errstate(all="ignore"):
                # Infinite or NaN samples have no finite correction; their mean stays as it is.
                moved = np.where(np.isfinite(shift) & ~cancels, shift / total, 0.0)
                is_far = np.abs(moved) > _FAR * np.spacing(np.abs(sums["mean"]))
                sums["mean"] = sums["mean"] + moved
                # Rounded sums of an offset: around such a mean, most of the squares is the mean's error.
                if not (is_far & (shift * moved > np.abs(sums["deviations"]))).any():
                    break
    else:
        # All samples are equal: the mean is their value, and deviations are 0, or NaN if it is not finite.
        sums["mean"] = np.where(total != 0, float(sample), 0.0)
        if not np.isfinite(float(sample)):
            sums["deviations"] = np.where(total != 0, np.nan, 0.0)
    if not is_column(weight):
        # One weight for all elements scales the counts, instead of being summed.
        scale = 1.0 if weight is None else float(weight)
        sums["weight"], sums["square"] = total * scale, total * scale * scale
        if "deviations" in sums:
            sums["deviations"] = sums["deviations"] * scale
    return sums


def _around(
    columns: Columns, values: tuple[Any, ...], means: Array, reproducible: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return the weighted sums of the deviations from a mean of each bin, and of their squares."""
    # One more entry, for elements without a bin.
    queue, means = columns.queue, np.append(means, 0.0)
    w = "(double)v0[i]" if is_column(columns.weight) else ""
    terms = deviation_terms(f"(double)v{len(values) - 1}[i]", f"v{len(values)}[max(bin, 0)]", w)
    arrays = *values, to_device(queue, means) if columns.on_device else means
    # On CPUs update both sums of a bin together, in one cache line.
    if not reproducible and device_kind(queue.device) == "cpu":
        pair = (("both", _pair(), f"(double2)({', '.join(terms)})"),)
        both = on_host(_swept(columns, pair, arrays, False)["both"], queue)
        return both.real, both.imag
    outputs = tuple((name, _sum(), term) for name, term in zip(("shift", "squares"), terms, strict=True))
    sums = _swept(columns, outputs, arrays, reproducible)
    return on_host(sums["shift"], queue), on_host(sums["squares"], queue)


def _cells(columns: Columns, num_cells: int, reproducible: bool) -> Any:
    weight = columns.weight
    _check_precision(columns, (("cells", _sum(), "v"),))
    engine = _cells_engine(columns.queue.context, columns.binned.kind, weight.dtype, num_cells)
    arguments = [*columns.binned.arguments(columns.queue), weight]
    call = Call((*columns.shape, num_cells), columns.size, queue=columns.queue)
    (cells,) = (reproducible_engine(engine) if reproducible else engine).run(arguments, call).results
    return cells


@kept_by_context
def _cells_engine(context: cl.Context, kind: BinnedKind, weight: np.dtype, num_cells: int) -> Engine:
    emits = f"""if (bin >= 0)
    for (int cell = 0; cell < {num_cells}; ++cell)
        EMIT((long)bin * {num_cells} + cell, (double)weights[(long)i * {num_cells} + cell]);"""
    return kind.engine(context, _sum(), f"{kind.code()}\n{emits}", f"const {c_name(weight)} *weights", emits=num_cells)


def _on_host(results: Mapping[str, Any], queue: cl.CommandQueue) -> Sums:
    """Return sums as separate NumPy arrays."""
    sums = {name: on_host(part, queue) for name, part in results.items()}
    if "both" in sums:
        both = sums.pop("both")
        sums |= {"weight": both.real, "square": both.imag}
    return sums


def merge(h: Any, storage: type, weight: Any, results: Mapping[str, Any], queue: cl.CommandQueue) -> None:
    """Add the sums of a fill to a histogram.

    Parameters
    ----------
    h : boost_histogram.Histogram
        What is filled.
    storage : type
        Of it.
    weight : array, float or None
        As of `Columns`.
    results : mapping of str to array
        Of `sums_of`.
    queue : pyopencl.CommandQueue
        Of device arrays.
    """
    sums = {name: part.T for name, part in _on_host(results, queue).items()}
    plain = np.asarray(h.view(flow=True))
    # All fields of bins change in one step, before or after which Ctrl-C is heard.
    if storage is bh.storage.MultiCell:
        h._variance_known = False
        plain += sums["cells"]
    elif storage in MEANS:
        joined = plain.copy()
        join_means(joined, sums, mean_fields(storage))
        plain[...] = joined
    elif storage is bh.storage.Weight:
        scale = 1.0 if weight is None or "weight" in sums else float(weight)
        fields = plain["value"], plain["variance"]
        more = (
            sums["weight"] if "weight" in sums else sums["count"] * scale,
            sums["square"] if "square" in sums else sums["count"] * (scale * scale),
        )
        # A loop in C, which no signal interrupts: all fields are updated, or none.
        deque(map(np.add, fields, more, fields), maxlen=0)
    else:
        # As in boost-histogram: weights in a storage without variances make the variances unknown.
        if weight is not None:
            h._variance_known = False
        if "weight" in sums:
            plain += sums["weight"]
        elif weight is None:
            plain += sums["count"]
        else:
            plain += sums["count"] * (int(weight) if storage in _INTEGERS else float(weight))


def mean_fields(storage: type) -> tuple[str, str | None, str]:
    """Return the fields of the sum of weights, of their squares, and of the squared deviations."""
    if storage is bh.storage.Mean:
        return "count", None, "_sum_of_deltas_squared"
    return "sum_of_weights", "sum_of_weights_squared", "_sum_of_weighted_deltas_squared"


def join_means(stored: Array, more: Mapping[str, Array], fields: tuple[str, str | None, str]) -> None:
    """Join means and squared deviations with more of them (Chan, Golub, LeVeque 1979)."""
    total, squares, spread = fields
    n1, n2, shift = stored[total], more["weight"], more.get("shift", 0.0)
    before, after = stored["value"], more["mean"]
    filled = (n2 != 0) | (more["square"] != 0)
    with np.errstate(all="ignore"):
        both = n1 + n2
        # A bin without earlier weight takes the new mean unrounded. One whose weights cancelled has no finite mean.
        is_new = (n1 == 0) & np.isfinite(before) & (n2 != 0) & (shift == 0)
        value = np.where(is_new, after, (n1 * before + n2 * after + shift) / both)
        moved = after - before
        between = moved**2 * (n1 * (n2 / both)) + shift * (2 * n1 * moved - shift) / both
        deviations = stored[spread] + more.get("deviations", 0.0) + np.where(is_new, 0.0, between)
    # Bins without new weight stay bitwise the same, NaN included.
    stored["value"] = np.where(filled, value, before)
    stored[spread] = np.where(filled, deviations, stored[spread])
    stored[total] = both
    if squares is not None:
        stored[squares] += more["square"]
