"""`reduce_by_index`: arrays of values combined by arrays of indices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Any, Literal, NamedTuple, TypeVar, Unpack, overload

import numpy as np
import pyopencl as cl
from numpy.typing import ArrayLike, NDArray

from clhist.codegen.arguments import integer
from clhist.engine.engine import Engine
from clhist.engine.few import combined_by_numpy
from clhist.engine.given import Call, call_of, queue_for, queue_of
from clhist.engine.magnitude import largest_magnitude
from clhist.engine.operator_check import check_once
from clhist.engine.plain import (
    arguments_of,
    as_array,
    as_indices,
    checked_values,
    elements,
    ones,
    pair_engine,
    pair_spec,
    row_shape,
)
from clhist.engine.ready import KnownCall
from clhist.engine.row_means import RowMeans, are_row_means
from clhist.engine.samples import evenly_spread
from clhist.engine.signature import Remembered, signature_of
from clhist.engine.signatures import shows
from clhist.engine.small import is_small
from clhist.opencl.arrays import Array, common_kind, is_device_array
from clhist.opencl.masks import check_unmasked, leave_out, mask_of, mask_of_values
from clhist.operators.c_types import supported_dtype
from clhist.operators.names import COUNT, PAIRS, operator_on_bins, operator_on_values
from clhist.operators.operator import Operator
from clhist.operators.reproducible import is_float_sum, reproducible_form
from clhist.planning.problem import CHOICES
from clhist.race_factor import run
from clhist.typing import AnyOperator, CallOptions, DeviceArray, Devices, DeviceValues, HostArray, HostValues, Shape

S = TypeVar("S", bound=np.generic)

# Options of a call; see `HistogramKernel.__call__`.
_OPTIONS = {*CHOICES, "allocator", "wait_for", "return_event", "race_factor", "memory_budget"}


@overload
def reduce_by_index(
    dest: NDArray[S], op: AnyOperator, indices: ArrayLike, values: HostValues, *, batched: bool = ...,
    offsets: Any = ..., queue: cl.CommandQueue | None = ..., out: NDArray[S] | None = ..., reproducible: bool = ...,
    max_abs: float | None = ..., devices: Devices | None = ...,
    return_event: Literal[False] = ..., **options: Unpack[CallOptions],
) -> NDArray[S]: ...  # fmt: skip
@overload
def reduce_by_index(
    dest: NDArray[S], op: AnyOperator, indices: ArrayLike, values: HostValues, *, batched: bool = ...,
    offsets: Any = ..., queue: cl.CommandQueue | None = ..., out: NDArray[S] | None = ..., reproducible: bool = ...,
    max_abs: float | None = ..., devices: Devices | None = ...,
    return_event: Literal[True], **options: Unpack[CallOptions],
) -> tuple[NDArray[S], cl.Event]: ...  # fmt: skip
@overload
def reduce_by_index(
    dest: DeviceArray | Shape, op: AnyOperator, indices: DeviceArray, values: DeviceValues, *, batched: bool = ...,
    offsets: Any = ..., queue: cl.CommandQueue | None = ..., out: DeviceArray | None = ..., reproducible: bool = ...,
    max_abs: float | None = ..., devices: Devices | None = ...,
    return_event: Literal[False] = ..., **options: Unpack[CallOptions],
) -> DeviceArray: ...  # fmt: skip
@overload
def reduce_by_index(
    dest: DeviceArray | Shape, op: AnyOperator, indices: DeviceArray, values: DeviceValues, *, batched: bool = ...,
    offsets: Any = ..., queue: cl.CommandQueue | None = ..., out: DeviceArray | None = ..., reproducible: bool = ...,
    max_abs: float | None = ..., devices: Devices | None = ...,
    return_event: Literal[True], **options: Unpack[CallOptions],
) -> tuple[DeviceArray, cl.Event]: ...  # fmt: skip
@overload
def reduce_by_index(
    dest: Shape, op: AnyOperator, indices: ArrayLike, values: HostValues, *, batched: bool = ...,
    offsets: Any = ..., queue: cl.CommandQueue | None = ..., out: HostArray | None = ..., reproducible: bool = ...,
    max_abs: float | None = ..., devices: Devices | None = ...,
    return_event: Literal[False] = ..., **options: Unpack[CallOptions],
) -> HostArray: ...  # fmt: skip
@overload
def reduce_by_index(
    dest: Shape, op: AnyOperator, indices: ArrayLike, values: HostValues, *, batched: bool = ...,
    offsets: Any = ..., queue: cl.CommandQueue | None = ..., out: HostArray | None = ..., reproducible: bool = ...,
    max_abs: float | None = ..., devices: Devices | None = ...,
    return_event: Literal[True], **options: Unpack[CallOptions],
) -> tuple[HostArray, cl.Event]: ...  # fmt: skip
@overload
def reduce_by_index(
    dest: tuple[HostArray, ...], op: AnyOperator, indices: ArrayLike, values: HostValues, *, batched: bool = ...,
    offsets: Any = ..., queue: cl.CommandQueue | None = ..., out: Any | None = ..., reproducible: bool = ...,
    max_abs: float | None = ..., devices: Devices | None = ...,
    return_event: Literal[False] = ..., **options: Unpack[CallOptions],
) -> tuple[HostArray, ...]: ...  # fmt: skip
@overload
def reduce_by_index(
    dest: tuple[HostArray, ...], op: AnyOperator, indices: ArrayLike, values: HostValues, *, batched: bool = ...,
    offsets: Any = ..., queue: cl.CommandQueue | None = ..., out: Any | None = ..., reproducible: bool = ...,
    max_abs: float | None = ..., devices: Devices | None = ...,
    return_event: Literal[True], **options: Unpack[CallOptions],
) -> tuple[tuple[HostArray, ...], cl.Event]: ...  # fmt: skip
@overload
def reduce_by_index(
    dest: tuple[DeviceArray, ...], op: AnyOperator, indices: DeviceArray, values: DeviceValues, *, batched: bool = ...,
    offsets: Any = ..., queue: cl.CommandQueue | None = ..., out: Any | None = ..., reproducible: bool = ...,
    max_abs: float | None = ..., devices: Devices | None = ...,
    return_event: Literal[False] = ..., **options: Unpack[CallOptions],
) -> tuple[DeviceArray, ...]: ...  # fmt: skip
@overload
def reduce_by_index(
    dest: tuple[DeviceArray, ...], op: AnyOperator, indices: DeviceArray, values: DeviceValues, *, batched: bool = ...,
    offsets: Any = ..., queue: cl.CommandQueue | None = ..., out: Any | None = ..., reproducible: bool = ...,
    max_abs: float | None = ..., devices: Devices | None = ...,
    return_event: Literal[True], **options: Unpack[CallOptions],
) -> tuple[tuple[DeviceArray, ...], cl.Event]: ...  # fmt: skip
@shows(CallOptions, return_event=bool)
def reduce_by_index(  # noqa: C901, PLR0913  # NumPy's and Futhark's arguments
    dest: Any,
    op: AnyOperator,
    indices: Any,
    values: Any,
    *,
    batched: bool = False,
    offsets: Any = None,
    queue: cl.CommandQueue | None = None,
    out: Any = None,
    reproducible: bool = False,
    max_abs: float | None = None,
    devices: Devices | None = None,
    **options: Any,
) -> Any:
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
    indices : array of integers
        Bin of each value. Indices outside [0, H) are ignored, as are pairs that are masked in a NumPy masked array.
    values : array of the shape of `indices`, tuple of such arrays, or scalar
        Followed by the further dimensions of `dest`, if any. Must be convertible to the dtype of `dest` by
        ``np.can_cast(..., "same_kind")``. For operators on (value, index) pairs, such as `clhist.operators.argmax`,
        an array of values alone takes its positions as indices. A struct is masked if one of its fields is; a vector
        must be masked as a whole.
    batched : bool
        Compute a batch: `dest` has shape (N_out, H, ...), `indices` (N_out, n), and row k of `indices` updates row k
        of `dest` (SC'20, IV-C).
    offsets : array of int of shape (N_out + 1,), optional
        A batch with rows of different lengths: `indices` has one dimension, and its elements
        [offsets[k], offsets[k + 1]) update row k of `dest`. Read on the host.
    out : array of shape (H, ...), or tuple, optional
        Array for the result; ``out=dest`` updates in place. Defaults to a new array.
    queue : pyopencl.CommandQueue, optional
        Defaults to that of `dest`, or the default one.
    reproducible : bool
        Make sums of float32 and float64 bitwise the same in any order of values, by any plan and on any device; see
        `clhist.operators.reproducible_add` for the error. Also defines zeros and NaN of minima and maxima. Without
        `max_abs` the values are read twice, with a synchronisation in between.
    max_abs : float, optional
        Upper bound of ``abs(value)`` over all finite values, `dest` included. Only with `reproducible`.
    devices : "all" or sequence of pyopencl.Device, optional
        Several devices that compute parts of NumPy arrays at the same time; see `MultiAccumulator`.
    **options
        `allocator`, `wait_for`, `return_event`, `race_factor`, `memory_budget`, and what would force the model's
        choices: `update`, `memory`, `copies`, `passes`, `work_group_size`, `locks`, `pass_order`, `counter_bits`. See
        `HistogramKernel.__call__`.

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
    is_plain = not (options or batched or reproducible) and offsets is None and max_abs is None
    key = signature_of(dest, op, indices, values, queue, out) if is_plain and is_device_array(indices) else None
    if (known := _known.get(key)) is not None:
        return known.run(dest, indices, values, out)
    unknown = sorted(options.keys() - _OPTIONS)
    if unknown:
        hint = "; a batch is asked for by batched=True or offsets=" if "num_histograms" in unknown else ""
        raise TypeError(f"{unknown[0]}: expected one of {', '.join(sorted(_OPTIONS))}{hint}")
    of_indices, of_values = mask_of(indices), mask_of_values(values)
    indices = as_indices(indices)
    batched = batched or offsets is not None
    given_shape = _shape_of(dest)
    fields = isinstance(dest, tuple) and given_shape is None
    dests: tuple[Array, ...] = ()
    if given_shape is None:
        if isinstance(dest, np.ufunc | str | Operator):
            expected = "an array, a shape or a number of bins"
            raise TypeError(f"dest: expected {expected}, got {dest!r}; the order is dest, op, indices, values")
        for array in dest if fields else (dest,):
            check_unmasked("dest", array)
        dests = tuple(as_array("dest", array) for array in dest) if fields else (as_array("dest", dest),)
        shape = _dest_shape([array.shape for array in dests], batched)
        operator = _operator_of(op, dests, fields)
    else:
        shape = _dest_shape([given_shape], batched)
        operator = _operator_of_values(op, values)
    if batched:
        _check_batched(shape, indices, offsets)
    row = row_shape(shape, batched)
    if isinstance(op, str) and op == COUNT:
        values = ones(values, indices.shape + row)
    values, with_position = checked_values(values, operator, indices.shape, row)
    arrays = values if isinstance(values, tuple) else ()
    named = [("dest", array) for array in dests] + [("indices", indices)] + [("values", array) for array in arrays]
    on_device = common_kind(named)
    if of_indices is not None or of_values is not None:
        indices, values = leave_out(indices, values, of_indices, of_values)
    if not on_device and is_small(
        "reduce_by_index", max(indices.size, shape[0]), queue, options=not is_plain, out=out is not None, fields=fields
    ):
        few = combined_by_numpy(operator, shape, dests, indices, values)
        if few is not None:
            return few
    context = indices.context if on_device else None
    queue = queue_for(queue, context, queue_of(*(array for _, array in named)))
    if operator.is_custom and not options.get("wait_for"):  # on which the values may depend
        check_once(operator, lambda: _samples(values, operator, queue), queue)
    if reproducible:
        if is_float_sum(operator) and max_abs is None:
            looked = [*(values if isinstance(values, tuple) else (values,)), *dests]
            max_abs = largest_magnitude(looked, operator.dtype, queue, options.get("wait_for") or ())
        operator = reproducible_form(operator, max_abs, int(prod(indices.shape)) + 1)
    elif max_abs is not None:
        raise TypeError(f"max_abs: expected none, since the sums are not reproducible; got {max_abs!r}")
    spec = pair_spec(operator, indices, values, prod(row), queue.device, with_position)
    with_event = options.pop("return_event", False)
    call = call_of(shape[1:] if batched else shape, options)
    call.size, call.out, call.queue = elements(spec, indices), out, queue
    call.dest = dests if fields else dests[0] if dests else None
    if offsets is not None:
        call.offsets = offsets if spec.by_rows or spec.vector == 1 else as_array("offsets", offsets) * spec.vector
    elif batched:
        call.num_histograms = shape[0]
    args = arguments_of(spec, indices, values, shape[1] if batched else shape[0])
    if are_row_means(spec, call):
        means = RowMeans(queue, spec, call, shape, (indices, *values))
        result, event = means.finish(run(means.engine, args, means.call))
        return (result, event) if with_event else result
    engine = pair_engine(queue.context, spec)
    outcome = run(engine, args, call)
    if on_device:
        changing = KnownCall([None if is_device_array(value) else value for value in args])
        _known.put(key, _Known(engine, changing, call.num_bins, call.size, call.queue, 1 + len(arrays), bool(dests)))
    (result,) = outcome.results
    return (result, outcome.event) if with_event else result


class _Known(NamedTuple):
    """A plain call on device arrays but for these: what took the host 40 us to check."""

    engine: Engine
    known: KnownCall
    bins: Any
    size: int | None
    queue: cl.CommandQueue
    arrays: int
    has_dest: bool

    def run(self, dest: Any, indices: Array, values: Any, out: Any) -> Any:
        arrays = (indices, *values) if isinstance(values, tuple) else (indices, values)
        call = Call(self.bins, self.size, dest if self.has_dest else None, out, self.queue)
        return self.engine.run_known(self.known, arrays[: self.arrays], call).results[0]


_known: Remembered[_Known] = Remembered(16)


def _samples(values: Any, operator: Operator, queue: cl.CommandQueue) -> np.ndarray | None:
    """Return some of the values that `operator` combines; None if they are not all there."""
    if not isinstance(values, tuple):
        return np.full(1, values, operator.dtype)
    if not all(array.size for array in values):
        return None
    parts = [evenly_spread(array.reshape(-1), queue) for array in values]
    if len(parts) == 1:
        return None if operator.positional else parts[0].astype(operator.dtype)
    found = np.zeros(len(parts[0]), operator.dtype)
    for name, part in zip(operator.dtype.names or (), parts, strict=True):
        found[name] = part
    return found


@lru_cache(maxsize=256)
def _named(make: Callable[..., Operator], op: np.ufunc | str, dtype: np.dtype) -> Operator:
    return make(op, dtype)


def _operator_of(op: Operator | np.ufunc | str, dests: tuple[Array, ...], fields: bool) -> Operator:
    if not fields:
        supported_dtype(dests[0].dtype, "dest")
        hashable = isinstance(op, np.ufunc | str)
        return _named(operator_on_bins, op, dests[0].dtype) if hashable else operator_on_bins(op, dests[0].dtype)
    if not isinstance(op, Operator):
        raise TypeError(f"op: expected a clhist.Operator on a structured dtype, since dest is a tuple, got {op!r}")
    return op


def _operator_of_values(op: Operator | np.ufunc | str, values: Any) -> Operator:
    """Return the operator where there is no `dest` to say on which dtype."""
    if isinstance(op, Operator):
        return op
    if isinstance(op, str) and op in PAIRS and isinstance(values, tuple) and len(values) == 2:
        dtype, index = (as_array("values", array).dtype for array in values)
        return operator_on_values(op, dtype, index=index)
    dtype = supported_dtype(as_array("values", values).dtype, "values")
    return _named(operator_on_values, op, dtype) if isinstance(op, np.ufunc | str) else operator_on_values(op, dtype)


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
