"""`reduce_by_index`: arrays of values combined by arrays of indices."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from clhist._core.opencl.arrays import is_array, is_device_array
from clhist._core.runtime import small
from clhist._core.runtime.pairs import Pairs, checked_pairs, is_number_or_shape, plain_pairs, shape_of
from clhist._core.runtime.shown_options import shows
from clhist.operators.c_types import check_max_abs, supported_dtype
from clhist.operators.host import passes
from clhist.option_types import CallOptions

if TYPE_CHECKING:
    from typing import Unpack

    import pyopencl as cl
    from numpy.typing import DTypeLike

    from clhist.typing import A, AnyOperator, Dest, Devices, HostArray, OnDevice, Others, Scalar, Shape


# Options of a call; see `HistogramKernel.__call__`.
_OPTIONS = {*CallOptions.__annotations__, "return_event"}


@shows(CallOptions)
def reduce_by_index(  # noqa: PLR0913  # NumPy's and Futhark's arguments
    dest: Dest | Shape,
    op: AnyOperator,
    indices: OnDevice[Dest] | HostArray | Others,
    values: OnDevice[Dest] | HostArray | Others | Scalar | tuple[A, ...],
    *,
    batched: bool = False,
    offsets: Any = None,
    dtype: DTypeLike | None = None,
    queue: cl.CommandQueue | None = None,
    out: Dest | None = None,
    reproducible: bool = False,
    max_abs: float | None = None,
    devices: Devices | None = None,
    **options: Unpack[CallOptions],
) -> Dest:
    """Combine each value into the bin of its index: ``dest[i] = op(dest[i], v)`` for each pair (i, v).

    Futhark's ``reduce_by_index`` (SC'20, Fig. 1b). For a ufunc, this is ``op.at(dest, indices, values)``, in any order.

    Parameters
    ----------
    dest : array of shape (H, ...), tuple of such arrays, int or tuple of int
        Initial contents of the bins, which take part in the result. A number of bins or a shape starts from the
        identity element of the operator instead. All arrays of a call are NumPy's or all are PyOpenCL's. Further
        dimensions make each bin a vector whose components are combined separately (SC'20, IV-D). A tuple has one
        array per field of the operator's structured dtype.
    op : Operator, numpy.ufunc or str
        How to combine: an operator on the dtype of `dest`, a ufunc such as ``np.add`` or ``np.maximum``, a name such
        as ``"sum"``, ``"mean"`` or ``"argmax"``, or a known C expression such as ``"a + b"``. ``"count"`` counts the
        values. A custom operator is checked once, on some of `values`; see `clhist.check_operator`.
    indices : array of integers, or tuple of them
        Bin of each value. Indices outside [0, H) are ignored, negative ones too, as are pairs that are masked in a
        NumPy masked array. A tuple indexes as many leading dimensions of `dest`, as in NumPy; its arrays broadcast
        together, and `values` have their shape.
    values : array of the shape of `indices`, tuple of such arrays, or scalar
        Followed by the further dimensions of `dest`, if any. Must be convertible to the dtype of `dest` by
        ``np.can_cast(..., "same_kind")``. For operators on (value, index) pairs, such as `clhist.operators.argmax`,
        an array of values alone takes its positions as indices. A struct is masked if one of its fields is; a vector
        must be masked as a whole.
    batched : bool
        Compute a batch: `dest` has shape (K, H, ...), `indices` (K, n), and row k of `indices` updates row k of `dest`.
    offsets : array of int of shape (K + 1,), optional
        A batch with rows of different lengths: `indices` has one dimension, and its elements
        [offsets[k], offsets[k + 1]) update row k of `dest`. Read on the host.
    dtype : dtype-like, optional
        Of the result, if `dest` is a number of bins or a shape and `op` no operator. Defaults to that of `values`, but
        for sums and products of narrow ones, which are as NumPy's: 64 bits wide for booleans and integers, float32 for
        half precision. An `out` of the dtype of `values` chooses that, too.
    out : array of shape (H, ...), or tuple, optional
        Array for the result; ``out=dest`` updates in place. Defaults to a new array.
    queue : pyopencl.CommandQueue, optional
        Where it runs; small NumPy arrays as well then. Defaults to that of `dest`, or the default one.
    reproducible : bool
        Make sums of float32 and float64 bitwise the same in any order of values, by any plan and on any device, by
        `clhist.operators.reproducible_add`: they are the exact ones, rounded once. Those of complex numbers are so part
        by part: real and imaginary parts are summed as vectors of two. Also defines zeros and NaN of minima
        and maxima.
    max_abs : float, optional
        Upper bound of ``abs(value)`` over all finite values, or parts of complex ones, `dest` included, by which
        accumulators have fewer words and sums the error of `clhist.operators.reproducible_add`. Only with
        `reproducible`.
    devices : "all" or sequence of pyopencl.Device, optional
        Several devices that compute parts of NumPy arrays at the same time; see `MultiAccumulator`.
    **options
        `allocator`, `wait_for`, `return_event`, `race_factor`, `memory_budget`, and what would force the model's
        choices: `update`, `memory`, `copies`, `passes`, `work_group_size`, `locks`, `pass_order`, `counter_bits`. See
        `HistogramKernel.__call__`.

    Returns
    -------
    array of the shape of `dest`
        Of the kind and dtype of `dest`, or of `dtype` if that is a shape; a tuple if `dest` is one of arrays. With
        `return_event` also the event that covers the call.

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong; it is named, and nothing is enqueued.
    OverflowError
        As `HistogramKernel.__call__`.

    Examples
    --------
    >>> clhist.reduce_by_index(np.zeros(3), np.maximum, np.array([0, 2, 0]), np.array([1.0, 5.0, 4.0]))
    array([4., 0., 5.])

    Sums of vectors, and the position of the largest value of each bin:

    >>> indices, x = np.array([0, 2, 0]), np.array([1.0, 5.0, 4.0], np.float32)
    >>> clhist.reduce_by_index(np.zeros((3, 2)), np.add, indices, np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]))
    array([[6., 8.], [0., 0.], [3., 4.]])
    >>> clhist.reduce_by_index(3, "argmax", indices, x)["index"][[0, 2]]
    array([2, 1]...)
    """
    in_batch = batched or offsets is not None
    if type(indices) is tuple:
        own = {"queue": queue, "reproducible": reproducible, "max_abs": max_abs, "dtype": dtype, **options}
        return _by_leading_dimensions(dest, op, indices, values, out, in_batch, own)
    is_alone, with_event, key = not (options or in_batch) and dtype is None, False, None
    # Plain calls skip `_check_options`, which checks it otherwise.
    if max_abs is not None and is_alone:
        check_max_abs(max_abs, reproducible)
    pairs = plain_pairs(dest, op, indices, values, out) if is_alone else None
    if pairs is None:
        call: tuple[Any, ...] = dest, op, indices, values, queue, out, reproducible, max_abs
        allocator, wait_for = None, ()
        if not is_alone:
            more: tuple[Any, ...]
            allocator, wait_for, with_event, more = _split_options(options, offsets)
            call = *call, batched, None if dtype is None else str(supported_dtype(dtype, "dtype")), *more
        if is_device_array(indices):
            # A call with the signature of an earlier one reuses its plan, without checks.
            outcome, key = _reducing().repeated(call, allocator, wait_for)
            if outcome is not None:
                result, event = outcome.results[0], outcome.event
                return (result, event) if with_event else result  # type: ignore[return-value]  # see `CallOptions`
        _check_options(options, reproducible, max_abs)
        pairs = checked_pairs(dest, op, indices, values, in_batch, offsets, dtype, out)
    # The host has no event to return.
    if _is_for_host(pairs, out, queue, bool(options) or with_event or reproducible or offsets is not None):
        return pairs.on_host(out)
    result, event = _reducing().by_kernels(_run(), pairs, key, queue, out, reproducible, max_abs, options, offsets)
    return (result, event) if with_event else result  # type: ignore[return-value]


@cache
def _reducing() -> Any:
    """Import the module of reductions by kernels, and with it PyOpenCL, which few elements do not need."""
    from clhist._core.runtime import reducing

    return reducing


@cache
def _run() -> Any:
    """Return the function that runs a call, after it has measured the race factor if that is requested."""
    from clhist.race_factor import run

    return run


def _is_for_host(pairs: Pairs, out: Any, queue: cl.CommandQueue | None, of_kernels: bool) -> bool:
    """Whether the host computes the pairs: they are few, and no option needs kernels."""
    if of_kernels or queue is not None or pairs.on_device or pairs.fields or pairs.operator.host is None:
        return False
    if is_device_array(out):  # refused with the rest of the call's arrays
        return False
    size = pairs.indices.size * passes(pairs.operator)
    if pairs.is_plain:
        return not small.pays_off("reduce_by_index", size, pairs.shape[0])
    row = prod(pairs.row)
    # A component of a row takes the host five times as long as a bin, since it computes the index of each.
    return not small.pays_off("reduce_by_index", size * (1 if row == 1 else 5 * row), prod(pairs.shape))


def _by_leading_dimensions(
    dest: Any, op: AnyOperator, indices: tuple[Any, ...], values: Any, out: Any, in_batch: bool, more: dict[str, Any]
) -> Any:
    """Return `reduce_by_index` of a tuple of indices, which become one index of the raveled dimensions."""
    if in_batch:
        raise TypeError(f"indices: expected one array in a batch, got a tuple of {len(indices)}")
    shape = shape_of(dest)
    device = _reducing()
    flat = device.flat_indices(indices, shape, more["queue"], device.checked_events(more.get("wait_for")))
    row = shape[len(indices) :]
    number = prod(shape[: len(indices)])

    def raveled(name: str, array: Any) -> Any:
        if isinstance(array, tuple):
            return tuple(raveled(name, component) for component in array)
        if not is_array(array):
            return np.asarray(array).reshape(number, *row)
        if array.shape != shape:
            raise ValueError(f"{name}: expected shape {shape}, got {array.shape}")
        if (name == "out" or is_device_array(array)) and not array.flags.c_contiguous:
            raise ValueError(f"{name}: expected a contiguous array, got one with strides {array.strides}")
        return array.reshape(number, *row)

    is_shape = is_number_or_shape(dest)
    bins = (number, *row) if is_shape else raveled("dest", dest)
    outcome = reduce_by_index(bins, op, flat, values, out=None if out is None else raveled("out", out), **more)
    result, *event = outcome if more.get("return_event") else (outcome,)
    if out is not None:
        # Return the caller's own array, not a raveled view of it.
        result = out
    else:
        result = (
            tuple(component.reshape(shape) for component in result)
            if isinstance(result, tuple)
            else result.reshape(shape)
        )
    return (result, *event) if event else result


def _split_options(options: Any, offsets: Any) -> tuple[Any, Any, Any, tuple[Any, ...]]:
    """Return the allocator, the events to wait for, whether to return one, and the rest of the call's signature.

    ``return_event`` is removed from `options`.
    """
    with_event = options.pop("return_event", False)
    others = {name: value for name, value in options.items() if name not in ("allocator", "wait_for")}
    # The content of offsets matters, so a device array must not match an earlier call: object() equals nothing else.
    read = object() if is_device_array(offsets) else offsets
    if options.get("wait_for"):
        options["wait_for"] = _reducing().checked_events(options["wait_for"])
    return options.get("allocator"), options.get("wait_for") or (), with_event, (read, others)


def _check_options(options: Mapping[str, Any], reproducible: bool, max_abs: float | None) -> None:
    unknown = sorted(options.keys() - _OPTIONS)
    if unknown:
        hint = "; a batch is asked for by batched=True or offsets=" if "num_histograms" in unknown else ""
        raise TypeError(f"{unknown[0]}: expected one of {', '.join(sorted(_OPTIONS))}{hint}")
    check_max_abs(max_abs, reproducible)
