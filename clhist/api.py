"""The functions of the library: `reduce_by_index` and `bincount`."""

from __future__ import annotations

import operator as python_operator
from collections.abc import Sequence
from dataclasses import fields as fields_of
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from clhist import operators
from clhist.arguments import integer
from clhist.arrays import Array, check_array, check_context, common_kind, is_array, is_device_array
from clhist.device import default_queue
from clhist.dtypes import supported_dtype
from clhist.execute import NARROW_BINS, NARROW_ELEMENTS
from clhist.kernel import HistogramKernel
from clhist.model_draft import Forced
from clhist.operator import Operator
from clhist.operator_check import check_once
from clhist.operator_names import COUNT, operator_on_bins, operator_on_values
from clhist.pairs import (
    PairSpec,
    arguments_of,
    as_array,
    checked_values,
    elements,
    native,
    pair_kernel,
    pair_spec,
    row_shape,
)
from clhist.process import check_process
from clhist.reproducible import is_float_sum, largest_magnitude, reproducible_form

# How many elements are looked at to guess the number of bins, and of which part the guess is raised: more uniform data
# than one set in a million stays within.
_SAMPLES = 2048
_SAMPLE_MARGIN = 128

# What a call may be given besides; see `HistogramKernel.__call__`.
_OPTIONS = {each.name for each in fields_of(Forced)} | {
    *("allocator", "wait_for", "return_event", "race_factor", "memory_budget"),
}


def reduce_by_index(
    dest: Any,
    op: Operator | np.ufunc | str,
    indices: Array,
    values: Any,
    *,
    batched: bool = False,
    offsets: Any = None,
    queue: cl.CommandQueue | None = None,
    out: Any = None,
    reproducible: bool = False,
    max_abs: float | None = None,
    **options: Any,
) -> Any:
    """Return `dest` combined with every value at its index: ``dest[i] = op(dest[i], v)`` for each pair (i, v).

    Futhark's ``reduce_by_index`` (SC'20, Fig. 1b); for a ufunc, what ``op.at(dest, indices, values)`` computes, in any
    order.

    Parameters
    ----------
    dest : array of shape (H, ...), tuple of such arrays, int or tuple of int
        What the bins hold before; a number of bins or a shape begins with nothing (for sums that is as zeros, for
        maxima, means and the like it is not). NumPy's or PyOpenCL's, as all arrays of a call. Every bin is combined,
        also one that no index names: with ``np.logical_or`` and the like it becomes 0 or 1. Further dimensions make
        each bin a vector whose components are combined each by itself (SC'20, IV-D). A tuple of arrays has one for each
        field of the operator's structured dtype.
    op : Operator, numpy.ufunc or str
        How to combine: an operator on the dtype of `dest`, a ufunc such as ``np.add`` or ``np.maximum``, a name such
        as ``"sum"``, ``"mean"`` or ``"argmax"``, or a known C expression such as ``"a + b"``. ``"count"`` counts the
        values, whatever they are. A custom operator is checked once, on some of `values`; see `Operator.check`.
    indices : array of integers
        Bins. One outside [0, H) is ignored, its value with it.
    values : array of shape (*indices.shape, ...), tuple of such arrays, or scalar
        With the further dimensions of `dest`. Must be convertible to the dtype of `dest` as
        ``np.can_cast(..., "same_kind")`` has it. For operators on (value, index) pairs, such as
        `clhist.operators.argmax`, also an array of values alone, whose positions in `indices` are their indices.
    batched : bool
        Whether there are many histograms: `dest` has shape (N_out, H, ...), `indices` (N_out, n), and row k of
        `indices` counts in row k of `dest` (SC'20, IV-C).
    offsets : array of int of shape (N_out + 1,), optional
        The same with rows of different lengths: `indices` has one dimension, and its elements
        [offsets[k], offsets[k + 1]) count in row k of `dest`. Read on the host.
    out : array of shape (H, ...), or tuple, optional
        Where the result goes; ``out=dest`` updates in place. Defaults to a new array.
    queue : pyopencl.CommandQueue, optional
        Defaults to that of `dest`, or the default one.
    reproducible : bool
        Whether sums of float32 and float64 are bitwise the same in any order of values, by any plan and on any device;
        see `clhist.operators.reproducible_add` for their error. Zeros and NaN of minima and maxima are defined then,
        too. Without `max_abs` the values are read twice, and the device is waited for in between.
    max_abs : float, optional
        No less than the largest finite |value|, `dest` included; only for sums of floats that are `reproducible`.
    **options
        `allocator`, `wait_for`, `return_event`, `race_factor`, `memory_budget`, and what would force the model's
        choices: `update`, `memory`, `copies`, `passes`, `work_group_size`, `locks`. See `HistogramKernel.__call__`.

    Returns
    -------
    array of the shape of `dest`
        Of the kind and dtype of `dest`, or of the operator if that is a shape; a tuple if `dest` is one of arrays. With
        `return_event` also the event that covers the call.

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong; it is named, and nothing is enqueued.
    OverflowError
        As `HistogramKernel.__call__`.

    Examples
    --------
    >>> reduce_by_index(np.zeros(3), np.maximum, np.array([0, 2, 0]), np.array([1.0, 5.0, 4.0]))  # doctest: +SKIP
    array([4., 0., 5.])

    Sums of vectors, and the position of the largest value of each bin:

    >>> sums = reduce_by_index(np.zeros((3, 2)), np.add, indices, points)                   # doctest: +SKIP
    >>> argmax = clhist.operators.argmax(np.float32)
    >>> best = reduce_by_index(3, argmax, indices, x)["index"]                              # doctest: +SKIP
    """
    unknown = sorted(options.keys() - _OPTIONS)
    if unknown:
        hint = "; a batch is asked for by batched=True or offsets=" if "num_histograms" in unknown else ""
        raise TypeError(f"{unknown[0]}: expected one of {', '.join(sorted(_OPTIONS))}{hint}")
    indices = as_array("indices", indices)
    batched = batched or offsets is not None
    given_shape = _shape_of(dest)
    fields = isinstance(dest, tuple) and given_shape is None
    dests: tuple[Array, ...] = ()
    if given_shape is None:
        dests = tuple(as_array("dest", array) for array in dest) if fields else (as_array("dest", dest),)
        shape = _dest_shape([array.shape for array in dests], batched)
        operator = _operator_of(op, dests, fields)
    else:
        shape = _dest_shape([given_shape], batched)
        operator = _operator_of_values(op, values)
    if indices.dtype.kind not in "iu":
        raise TypeError(f"indices: expected integers, got {indices.dtype}")
    if batched:
        _check_batched(shape, indices, offsets)
    row = row_shape(shape, batched)
    if isinstance(op, str) and op == COUNT:
        values = _ones(values, indices.shape + row)
    values, with_position = checked_values(values, operator, indices.shape, row)
    arrays = values if isinstance(values, tuple) else ()
    named = [("dest", array) for array in dests] + [("indices", indices)] + [("values", array) for array in arrays]
    on_device = common_kind(named)
    if queue is None and not on_device:
        queue = default_queue()
    context = indices.context if on_device else queue.context  # type: ignore[union-attr]
    queues = (queue, *(array.queue for _, array in named if on_device))
    given_queue = next((found for found in queues if found is not None), None) or default_queue()
    device = given_queue.device
    if operator.is_custom and not options.get("wait_for"):  # on which the values may depend
        check_once(operator, lambda: _samples(values, operator, given_queue), given_queue)
    if reproducible:
        if is_float_sum(operator) and max_abs is None:
            looked = [*(values if isinstance(values, tuple) else (values,)), *dests]
            max_abs = largest_magnitude(looked, operator.dtype, given_queue, options.get("wait_for") or ())
        operator = reproducible_form(operator, max_abs, int(prod(indices.shape)) + 1)
    elif max_abs is not None:
        raise TypeError(f"max_abs: expected none, since the sums are not reproducible; got {max_abs!r}")
    spec = pair_spec(operator, indices, values, prod(row), device, with_position)
    kernel = pair_kernel(context, spec)
    given = arguments_of(spec, indices, values, shape[1] if batched else shape[0])
    size = elements(spec, indices)
    where: dict[str, Any] = {}
    if offsets is not None:
        where["offsets"] = offsets if spec.by_rows or spec.vector == 1 else as_array("offsets", offsets) * spec.vector
    elif batched:
        where["num_histograms"] = shape[0]
    bins = shape[1:] if batched else shape
    target = dests if fields else dests[0] if dests else None
    return kernel(*given, num_bins=bins, size=size, dest=target, out=out, queue=queue, **where, **options)


def bincount(
    x: Array,
    weights: Array | None = None,
    minlength: int = 0,
    *,
    queue: cl.CommandQueue | None = None,
    out: Array | None = None,
    reproducible: bool = False,
) -> Array:
    """Return how often each value occurs, or the sum of its weights: `numpy.bincount`.

    Parameters
    ----------
    x : array of shape (N,) of non-negative integers
        NumPy's or PyOpenCL's.
    weights : array of shape (N,), optional
        Of any real dtype; summed in float64.
    minlength : int
        The least number of bins.
    queue : pyopencl.CommandQueue, optional
        Defaults to that of `x`, or the default one.
    out : array of shape (max(minlength, max(x) + 1),), optional
        Where the result goes.
    reproducible : bool
        Whether sums of weights are bitwise the same in any order, as of `reduce_by_index`. Counts always are.

    Returns
    -------
    array of shape (max(minlength, max(x) + 1),)
        Counts as `numpy.intp`, sums of weights as float64; of the kind of `x`.

    Raises
    ------
    TypeError, ValueError
        As NumPy's, of the same text: for negative entries, more dimensions than one, weights of another length, dtypes
        that do not convert safely. Also if `out` is wrong.

    Notes
    -----
    The number of bins is guessed from a sample and checked while counting, so that `x` is read once. It is known only
    when all is counted: unlike `reduce_by_index` this function waits for the device.
    """
    check_process()
    given = (x, weights)
    try:
        x, weights = (array if array is None or is_device_array(array) else np.asarray(array) for array in given)
    except ValueError:  # rows of different lengths
        return np.bincount(*given, minlength)
    on_device = common_kind((n, a) for n, a in (("x", x), ("weights", weights)) if a is not None)
    if x is None or not _is_countable(x, weights, minlength) or not (on_device or x.size):
        # NumPy itself raises what it raises, or has nothing to count.
        return _into(out, np.bincount(_stand_in(given[0]), _stand_in(given[1]), minlength))
    if on_device:
        check_array("x", x, x.dtype, written=False)
        if weights is not None:
            check_array("weights", weights, supported_dtype(weights.dtype, "weights"), written=False)
            check_context([("weights", weights)], x.context)
        if queue is not None:
            check_context([("x", x)], queue.context)
    minlength = python_operator.index(minlength)
    queue = queue or (x.queue if on_device else None) or default_queue()
    values: Any
    if weights is None:
        # Ones sum up in 32 bits: as long as there are fewer than 2^32 of them.
        operator, values = operators.count(np.intp) if x.size < 2**32 else operators.add(np.intp), 1
    else:
        operator = _operator(np.add, np.dtype(np.float64))
        values = checked_values(weights, operator, x.shape, ())[0][0]
        if reproducible:
            operator = reproducible_form(operator, largest_magnitude([values], operator.dtype, queue), x.size)
    if x.dtype.kind == "b":
        x = x.view(np.uint8)
    if not x.size:
        return _into(out, cl_array.zeros(queue, minlength, operator.dtype))
    dtypes = None if weights is None else (native(values.dtype),)
    kernel = pair_kernel(queue.context, PairSpec(operator, native(x.dtype), dtypes))
    return _into(out, _count(kernel, x, values, minlength, queue))


def _is_countable(x: Array, weights: Array | None, minlength: Any) -> bool:
    """Whether NumPy would count this."""
    if x.ndim != 1 or x.dtype.kind not in "biu" or not isinstance(minlength, int | np.integer) or minlength < 0:
        return False
    return weights is None or (weights.shape == x.shape and bool(np.can_cast(weights.dtype, np.float64, "safe")))


def _stand_in(given: Any) -> Any:
    """Return for a device array one of NumPy's that it takes for the same, and that takes no memory."""
    return np.broadcast_to(np.zeros((), given.dtype), given.shape) if is_device_array(given) else given


def _into(out: Array | None, result: Array) -> Array:
    """Return `result`, in `out` if there is one."""
    if out is None:
        return result
    check_array("out", out, result.dtype, written=True, shape=result.shape)
    common_kind([("x", result), ("out", out)])
    out[...] = result
    return out


def _count(kernel: HistogramKernel, x: Array, values: Any, minlength: int, queue: cl.CommandQueue) -> Array:
    """Count into as many bins as a sample suggests, and once more if that was too few."""
    sampled = int(_sample(x, queue).max())
    room = max(minlength, 1, sampled + 1 + sampled // _SAMPLE_MARGIN)
    if room < NARROW_BINS and x.size < NARROW_ELEMENTS:
        result, reached = kernel.count_with_reach(x, values, num_bins=room, queue=queue)
        if reached < room:
            return result[: max(minlength, reached + 1)]
    largest, smallest = (
        (int(cl_array.max(x, queue).get()), int(cl_array.min(x, queue).get()))
        if is_device_array(x)
        else (int(x.max()), int(x.min()))
    )
    if smallest < 0 or largest > np.iinfo(np.intp).max:  # NumPy makes negative numbers of those
        raise ValueError("'list' argument must have no negative elements")
    return kernel(x, values, num_bins=max(minlength, largest + 1), queue=queue)


def _samples(values: Any, operator: Operator, queue: cl.CommandQueue) -> np.ndarray | None:
    """Return some of the values that `operator` combines; None if they are not all there."""
    if not isinstance(values, tuple):
        return np.full(1, values, operator.dtype)
    if not all(array.size for array in values):
        return None
    parts = [_sample(array.reshape(-1), queue) for array in values]
    if len(parts) == 1:
        return None if operator.positional else parts[0].astype(operator.dtype)
    found = np.zeros(len(parts[0]), operator.dtype)
    for name, part in zip(operator.dtype.names or (), parts, strict=True):
        found[name] = part
    return found


def _sample(x: Array, queue: cl.CommandQueue) -> np.ndarray:
    """Return some elements of `x`, evenly spread."""
    step = max(1, x.size // _SAMPLES)
    if not is_device_array(x):
        return x[::step]
    found = np.empty(x.size // step, x.dtype)
    cl.enqueue_copy(
        queue,
        found,
        x.base_data,  # type: ignore[call-overload]
        buffer_origin=(x.offset, 0, 0),
        host_origin=(0, 0, 0),
        region=(x.dtype.itemsize, found.size, 1),
        buffer_pitches=(step * x.dtype.itemsize,),
        host_pitches=(x.dtype.itemsize,),
        wait_for=x.events,
    )
    return found


def _ones(values: Any, shape: tuple[int, ...]) -> Any:
    """Return the value that counts each of `values` once, whose shape is checked."""
    given = values.shape if is_array(values) else np.shape(values)
    if given not in ((), shape):
        raise ValueError(f"values: expected shape {shape} as of indices, got {given}")
    return 1


@lru_cache(maxsize=256)
def _operator(op: np.ufunc | str, dtype: np.dtype) -> Operator:
    return operator_on_bins(op, dtype)


def _operator_of(op: Operator | np.ufunc | str, dests: tuple[Array, ...], fields: bool) -> Operator:
    if not fields:
        supported_dtype(dests[0].dtype, "dest")
        hashable = isinstance(op, np.ufunc | str)
        return _operator(op, dests[0].dtype) if hashable else operator_on_bins(op, dests[0].dtype)
    if not isinstance(op, Operator):
        raise TypeError(f"op: expected a clhist.Operator on a structured dtype, since dest is a tuple, got {op!r}")
    return op


def _operator_of_values(op: Operator | np.ufunc | str, values: Any) -> Operator:
    """Return the operator where there is no `dest` to say on which dtype."""
    if isinstance(op, Operator):
        return op
    dtype = values.dtype if is_array(values) else np.asarray(values).dtype
    return operator_on_values(op, dtype)


def _shape_of(dest: Any) -> tuple[int, ...] | None:
    """Return the shape that `dest` is, if it is no array."""
    if isinstance(dest, int | np.integer) and not isinstance(dest, bool | np.bool_):
        return (integer("dest", dest, 1),)
    if isinstance(dest, tuple) and dest and all(isinstance(n, int | np.integer) for n in dest):
        return tuple(integer("dest", n, 1) for n in dest)
    return None


def _dest_shape(shapes: Sequence[tuple[int, ...]], batched: bool) -> tuple[int, ...]:
    if not shapes:
        raise ValueError("dest: expected at least one array, got an empty tuple")
    shape = shapes[0]
    for other in shapes[1:]:
        if other != shape:
            raise ValueError(f"dest: expected arrays of one shape, got {shape} and {other}")
    least = 2 if batched else 1
    if len(shape) < least or prod(shape) == 0:
        expected = "two dimensions or more, of histograms and bins," if batched else "one dimension or more"
        raise ValueError(f"dest: expected {expected} and at least one bin, got shape {shape}")
    return shape


def _check_batched(shape: tuple[int, ...], indices: Array, offsets: Any) -> None:
    if offsets is None:
        if indices.ndim != 2 or indices.shape[0] != shape[0]:
            raise ValueError(f"indices: expected shape ({shape[0]}, n), a row for each of dest, got {indices.shape}")
        return
    if indices.ndim != 1:
        raise ValueError(f"indices: expected one dimension, since offsets are given, got shape {indices.shape}")
    rows = int(np.size(offsets)) if not is_device_array(offsets) else offsets.size
    if rows != shape[0] + 1:
        raise ValueError(f"offsets: expected {shape[0] + 1} entries, one more than rows of dest, got {rows}")
