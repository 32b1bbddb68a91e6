"""The functions of the library: `reduce_by_index` and `bincount`."""

from __future__ import annotations

import operator as python_operator
from functools import lru_cache
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from clhist import operators
from clhist.arrays import Array, check_array, check_context, common_kind, is_array, is_device_array
from clhist.device import default_queue
from clhist.dtypes import c_name, supported_dtype
from clhist.execute import NARROW_BINS, NARROW_ELEMENTS
from clhist.kernel import HistogramKernel
from clhist.operator import Operator

# How many elements are looked at to guess the number of bins, and of which part the guess is raised: more uniform data
# than one set in a million stays within.
_SAMPLES = 2048
_SAMPLE_MARGIN = 128


def reduce_by_index(
    dest: Array,
    op: Operator | np.ufunc | str,
    indices: Array,
    values: Any,
    *,
    queue: cl.CommandQueue | None = None,
    out: Array | None = None,
    **options: Any,
) -> Any:
    """Return `dest` combined with every value at its index: ``dest[i] = op(dest[i], v)`` for each pair (i, v).

    Futhark's ``reduce_by_index`` (SC'20, Fig. 1b); for a ufunc, what ``op.at(dest, indices, values)`` computes, in any
    order.

    Parameters
    ----------
    dest : array of shape (H,)
        What the bins hold before. NumPy's or PyOpenCL's, as all arrays of a call. Every bin is combined, also one that
        no index names: with ``np.logical_or`` and the like it becomes 0 or 1.
    op : Operator, numpy.ufunc or str
        How to combine: an operator on the dtype of `dest`, a ufunc such as ``np.add`` or ``np.maximum``, or a known C
        expression such as ``"a + b"``.
    indices : array of integers
        Bins. One outside [0, H) is ignored, its value with it.
    values : array of the shape of `indices`, or scalar
        Must be convertible to the dtype of `dest` as ``np.can_cast(..., "same_kind")`` has it.
    out : array of shape (H,), optional
        Where the result goes; ``out=dest`` updates in place. Defaults to a new array.
    queue : pyopencl.CommandQueue, optional
        Defaults to that of `dest`, or the default one.
    **options
        `allocator`, `wait_for`, `return_event`, `race_factor`, `memory_budget`, and what would force the model's
        choices: `update`, `memory`, `copies`, `passes`, `work_group_size`. See `HistogramKernel.__call__`.

    Returns
    -------
    array of shape (H,)
        Of the kind and dtype of `dest`. With `return_event` also the event that covers the call.

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong; it is named, and nothing is enqueued.

    Examples
    --------
    >>> reduce_by_index(np.zeros(3), np.maximum, np.array([0, 2, 0]), np.array([1.0, 5.0, 4.0]))  # doctest: +SKIP
    array([4., 0., 5.])
    """
    dest, indices = _as_array("dest", dest), _as_array("indices", indices)
    scalar = not is_array(values) and np.ndim(values) == 0
    if not scalar:
        values = _as_array("values", values)
    on_device = common_kind([("dest", dest), ("indices", indices), *([] if scalar else [("values", values)])])
    if dest.ndim != 1 or dest.size == 0:
        raise ValueError(f"dest: expected one dimension and at least one bin, got shape {dest.shape}")
    if indices.dtype.kind not in "iu":
        raise TypeError(f"indices: expected integers, got {indices.dtype}")
    if not scalar and values.shape != indices.shape:
        raise ValueError(f"values: expected shape {indices.shape} as of indices, got {values.shape}")
    supported_dtype(dest.dtype, "dest")
    operator = _operator(op, dest.dtype) if isinstance(op, np.ufunc | str) else operators.as_operator(op, dest.dtype)
    given = operator.dtype if scalar else values.dtype
    if given != operator.dtype and not np.can_cast(given, operator.dtype, "same_kind"):
        raise TypeError(f"values: expected what converts to {operator.dtype} of dest, got {given}; convert it yourself")
    if not scalar:
        values = _converted(values, operator.dtype)
    context = dest.context if on_device else (queue.context if queue is not None else default_queue().context)
    kernel = _pair_kernel(context, operator, _native(indices.dtype), None if scalar else _native(values.dtype))
    return kernel(indices, values, num_bins=dest.size, dest=dest, out=out, queue=queue, **options)


def bincount(
    x: Array,
    weights: Array | None = None,
    minlength: int = 0,
    *,
    queue: cl.CommandQueue | None = None,
    out: Array | None = None,
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
        operator, values = _operator(np.add, np.dtype(np.float64)), _converted(weights, np.dtype(np.float64))
    if x.dtype.kind == "b":
        x = x.view(np.uint8)
    if not x.size:
        return _into(out, cl_array.zeros(queue, minlength, operator.dtype))
    kernel = _pair_kernel(queue.context, operator, _native(x.dtype), None if weights is None else _native(values.dtype))
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
    if smallest < 0:
        raise ValueError("'list' argument must have no negative elements")
    return kernel(x, values, num_bins=max(minlength, largest + 1), queue=queue)


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


@lru_cache(maxsize=256)
def _operator(op: np.ufunc | str, dtype: np.dtype) -> Operator:
    return operators.as_operator(op, dtype)


@lru_cache(maxsize=256)
def _pair_kernel(context: cl.Context, operator: Operator, index: np.dtype, value: np.dtype | None) -> HistogramKernel:
    """Return the kernel for arrays of indices and values; `value` None stands for one value for all."""
    c_type = "value_t" if value is None or value == operator.dtype else c_name(value)
    emitted = "values" if value is None else "values[i]"
    if value is not None and operator.dtype.kind == "c" and value != operator.dtype:
        target = c_name(operator.dtype)
        emitted = f"convert_{target}({emitted})" if value.kind == "c" else f"({target})({emitted}, 0)"
    values = "const value_t values" if value is None else f"const {c_type} *values"
    return HistogramKernel(
        context, operator, arguments=f"const {c_name(index)} *indices, {values}", map=f"EMIT(indices[i], {emitted})"
    )


def _converted(values: Array, dtype: np.dtype) -> Array:
    """Return `values` as they are, or as `dtype` if OpenCL has no type for theirs (such as float16)."""
    try:
        supported_dtype(values.dtype, "values")
    except TypeError:
        if is_device_array(values):
            raise
        return values.astype(dtype)
    return values


def _as_array(name: str, value: Any) -> Array:
    if is_device_array(value):
        return value
    try:
        return np.asarray(value)
    except ValueError as error:  # rows of different lengths
        raise ValueError(f"{name}: {error}") from error


def _native(dtype: np.dtype) -> np.dtype:
    return dtype.newbyteorder("=") if dtype.names is None else dtype
