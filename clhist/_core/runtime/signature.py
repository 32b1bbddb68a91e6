"""Signatures of calls: the facts that decide on the checks and the plan of a call.

Arrays count by dtype, shape, strides, alignment and queue, not by content: calls on similar arrays have one signature.
So caches keep no array of the caller alive, and must not store by signature what depends on content.
Notes [Signature of a call] and [Options belong to the signature], docs/decisions/0015.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from clhist._core.kernels.maps import Argument
from clhist._core.model.problem import FREE
from clhist._core.opencl.arrays import Array, address_of, may_be_written, overlap
from clhist._core.opencl.cuda_kinds import is_cuda
from clhist._core.opencl.device import default_queue, profile_names
from clhist._core.runtime.call import Call, queue_for
from clhist._core.runtime.prepare import index_in
from clhist.operators.operator import Operator

_LOAD_BYTES = 16  # alignment of the widest loads of kernels
_FLAGS = 0x500  # NumPy's flags "aligned" and "writeable", as bits of `flags.num`
_MOST_BYTES = 1 << 16  # of a NumPy array whose content is compared
_MOST_ITEMS = 64  # of a sequence, which takes longer

_DeviceArray = cl_array.Array  # a global of this module takes one look-up, not two

T = TypeVar("T")


class UnknownError(Exception):
    """Raised for a value that no signature can contain."""


class Remembered(Generic[T]):
    """A bounded cache by the signature of a call; threads may share it.

    Parameters
    ----------
    most : int
        Entries.
    most_bytes : int, optional
        Sum of the values' attributes ``nbytes``, of those that have one.
    """

    def __init__(self, most: int, most_bytes: int | None = None) -> None:
        self._most, self._kept, self._lock = most, dict[Hashable, T](), threading.Lock()
        self._most_bytes, self._bytes = most_bytes, 0
        with _registering:
            _every.add(self)

    def get(self, key: Hashable) -> T | None:
        """Return the value of `key`, or None; the key None has no value."""
        # Without the lock: a look-up is one operation of a dict, and `clear` replaces the dict rather than emptying it.
        try:
            return None if key is None else self._kept.get(key)
        except TypeError:  # an argument without a hash is wrong; its check says so
            return None

    def put(self, key: Hashable, value: T | None) -> None:
        """Store `value` by `key`, unless one of them is None; drop the oldest entries of a full cache."""
        if key is None or value is None:
            return
        most_bytes = self._most_bytes
        with self._lock:
            # Removed first, so that a renewed entry moves to the end and counts as the newest.
            gone = [self._kept.pop(key, None)]
            if most_bytes is not None:
                nbytes = getattr(value, "nbytes", 0)
                self._bytes += nbytes - getattr(gone[0], "nbytes", 0)
                while self._bytes > most_bytes and self._kept:
                    gone.append(self._removed(next(iter(self._kept))))
            while len(self._kept) >= self._most:
                gone.append(self._removed(next(iter(self._kept))))
            self._kept[key] = value
        del gone  # after the lock is released: destructors may take it again

    def oldest_first(self) -> list[Any]:
        """Return the keys, that of the oldest entry first."""
        return [*self._kept]

    def take(self, key: Hashable) -> T | None:
        """Remove the value of `key` and return it, or None."""
        with self._lock:
            return self._removed(key)

    def clear(self) -> None:
        """Remove all entries."""
        with self._lock:
            gone, self._kept, self._bytes = self._kept, {}, 0
        del gone  # after the lock is released: destructors may take it again

    def _removed(self, key: Hashable) -> T | None:
        """Remove the value of `key` and return it, or None; the lock is taken."""
        value = self._kept.pop(key, None)
        if self._most_bytes is not None:
            self._bytes -= getattr(value, "nbytes", 0)
        return value


_every: weakref.WeakSet[Remembered[Any]] = weakref.WeakSet()
_registering = threading.Lock()

# What public functions keep of their calls for repeats, without the callers' arrays: checked calls, recorded launches,
# axes, estimates. Keys begin with the function or the kind of entry; the signature of the arguments follows.
# 128 MiB of tables of axes: each of uneven bins may take 1 MiB.
call_templates: Remembered[Any] = Remembered(1024, 2**27)


def forget_calls() -> None:
    """Clear all caches of calls: each next call is checked, planned and built again."""
    with _registering:
        every = [*_every]
    for cache in every:
        cache.clear()


def signature_of_call(
    arguments: Sequence[Argument],
    values: Sequence[Any],
    call: Call,
    context: cl.Context,
    targets: list[Array],
    sizing: int | None = None,
) -> tuple[Hashable, int | None, int | tuple[Any, ...]] | None:
    """Return the signature of a call of an engine, without scalars; None of a call that is checked each time.

    Parameters
    ----------
    arguments, values
        Those of the map.
    call : Call
        The other options.
    context : pyopencl.Context
        Where it runs.
    targets : list
        Gets the arrays of `dest` and `out`, each once.
    sizing : int, optional
        Position of the array whose number of elements is that of a call without a `size`.

    Returns
    -------
    alike : hashable
        What decides on the checks and the plan of calls of all sizes, without the lengths of contiguous arrays.
    size : int or None
        The number of elements; None if offsets decide on it.
    bins : int or tuple
        The number or the shape of bins, or a key of others.
    """
    # A race factor that is sampled depends on the content of arrays, which no signature has.
    if len(values) != len(arguments) or type(call.race_factor) is not float:
        return None
    size, queue = call.size, call.queue
    # Values of other types are converted or refused, by checks that each call repeats.
    if not (size is None or type(size) is int) or not (queue is None or isinstance(queue, cl.CommandQueue)):
        return None
    parts: list[Any] = []
    is_batch = call.num_histograms is not None or call.offsets is not None
    try:
        # Device arrays have a queue in their keys; without them the default queue decides on the device.
        if not _add_arrays(parts, arguments, values, _like if is_batch else without_length) and queue is None:
            queue = _queue_in(context)
        if (call.dest is not None or call.out is not None) and not _add_targets(parts, call, targets, is_batch):
            return None
        bins, rest = call.num_bins, _key_of_options(call)
        if type(bins) is not int:
            bins = _key_of_bins(bins)
    except UnknownError:
        return None
    # Profiles decide on plans, so the settings that select one are a part of every signature.
    key = (*parts, size is None, queue, *rest, *profile_names())
    return key, values[sizing].size if size is None and sizing is not None else size, bins


def _key_of_bins(bins: Any) -> tuple[Any, ...]:
    """Return the key of the bins of a call that are no number, a shape itself."""
    if type(bins) is tuple and {int}.issuperset(map(type, bins)):
        return bins
    return "bins", alike(bins)


def _key_of_options(call: Call) -> tuple[Hashable, ...]:
    """Return the key of the options of a call that decide on its plan and its checks."""
    largest = None if call.largest is None else call.largest[:2]
    choices = None if call.choices is FREE else call.choices
    histograms = None if call.num_histograms is None else alike(call.num_histograms)
    budget = None if call.memory_budget is None else alike(call.memory_budget)
    # Offsets decide on the table of tasks, so they count by content.
    offsets = None if call.offsets is None else _read_on_host(call.offsets)
    return call.race_factor, largest, call.partial, choices, histograms, budget, offsets


def _add_arrays(
    parts: list[Any], arguments: Sequence[Argument], values: Sequence[Any], key_of: Callable[[Array], Hashable]
) -> bool:
    """Add the keys of a map's arrays to `parts`; return whether one is on a device."""
    on_device = False
    for argument, value in zip(arguments, values):  # noqa: B905  # as many, and `strict` takes time in each call
        if not argument.is_array:
            continue
        if isinstance(value, _DeviceArray):
            on_device = True
            if not argument.is_const and not may_be_written(value):
                raise UnknownError
        elif type(value) is not np.ndarray:
            raise UnknownError
        parts.append(key_of(value))
    return on_device


def _add_targets(parts: list[Any], call: Call, targets: list[Array], is_batch: bool) -> bool:
    """Add the keys of `dest` and `out` to `parts`; return whether a repeat may use them without a check."""
    number = call.num_bins
    # An array of another shape than the results is refused, so its shape is in the key.
    shape = None if is_batch else (number,) if type(number) is int else number
    parts += _target(call.dest, targets, shape), _target(call.out, targets, shape)
    return all(map(may_be_written, _each(call.out))) and not (len(targets) > 1 and _may_overlap(targets))


def _queue_in(context: cl.Context) -> cl.CommandQueue:
    queue = default_queue()
    return queue if queue.context == context else queue_for(None, context)


def aliases_of(call: Call, targets: list[Array]) -> tuple[int, ...] | None:
    """Return the number of each array of `dest` and `out` among these, each of which is added to `targets` once.

    Return None if a repeat of the call must be checked: an array is read-only, or two of them overlap.
    """
    if call.dest is None and call.out is None:
        return ()
    # The caller's signature has the layout of an array, not its flags.
    if not all(map(may_be_written, _each(call.out))):
        return None
    numbers = [index_in(array, targets) for argument in (call.dest, call.out) for array in _each(argument)]
    return None if len(targets) > 1 and _may_overlap(targets) else tuple(numbers)


def signature_of(*values: Any) -> tuple[Hashable, ...] | None:
    """Return the signature of a function's arguments, without the content of device arrays.

    Returns
    -------
    tuple or None
        Equal for values of the same types that are equal to the bit; NumPy arrays count by content. None if one is of
        another kind than these, numbers, strings, short sequences, dicts, queues and operators.
    """
    parts = _parts(values, _content)
    return None if parts is None else (*parts, *profile_names())


def signature_of_data(
    arrays: Sequence[Any], queue: cl.CommandQueue | None, *values: Any, results: int = 0
) -> tuple[Hashable, ...] | None:
    """Return the signature of a function's arguments, without the content of `arrays`.

    Columns, which are contiguous arrays of one dimension and of one length, count without their length.

    Parameters
    ----------
    arrays : sequence
        Data, of NumPy or PyOpenCL, and None.
    queue : pyopencl.CommandQueue or None
        The caller's; None for that of the arrays, or the default one.
    *values
        As of `signature_of`.
    results : int
        How many of the last arrays are no data. Their shapes count always.

    Returns
    -------
    tuple or None
        Keys of arrays, values, and queue; None as of `signature_of`, and if there is an array of another kind.
    """
    rest = _parts(values, _content)
    if rest is None:
        return None
    number = len(arrays) - results
    parts = keys_of_columns(arrays[:number] if results else arrays)
    if parts is None:
        number, parts = 0, []
    for array in arrays[number:]:
        if array is None:
            parts.append(None)
        elif isinstance(array, _DeviceArray) or type(array) is np.ndarray:
            parts.append(_like(array))
        else:
            return None
    if queue is None:
        first = arrays[0]
        is_on_device = isinstance(first, _DeviceArray) or any(isinstance(array, _DeviceArray) for array in arrays)
        queue = None if is_on_device else default_queue()
    return tuple(parts), (*rest, *profile_names()), queue


def keys_of_columns(arrays: Sequence[Any]) -> list[Hashable] | None:
    """Return the keys of arrays of NumPy or PyOpenCL, and None, without their length; None unless all are columns.

    Columns have one dimension, no gaps, and one length, which is not 0.
    """
    shape, parts = None, list[Hashable]()
    for array in arrays:
        if array is None:
            parts.append(None)
            continue
        on_device = isinstance(array, _DeviceArray)
        if not on_device and type(array) is not np.ndarray:
            return None
        if array.shape != shape:
            # The first array decides on the length; others of another length have no common key.
            if shape is not None or len(array.shape) != 1 or not array.shape[0]:
                return None
            shape = array.shape
        dtype = array.dtype
        if array.strides[0] != dtype.itemsize:
            return None
        if on_device:
            parts.append((dtype, array.queue or array.context, array.offset % _LOAD_BYTES == 0))
        else:
            aligned = address_of(array) % _LOAD_BYTES == 0
            parts.append((np.ndarray, dtype, aligned, array.flags.num & _FLAGS))
    return parts


def signature_of_arguments(values: Sequence[Any]) -> Hashable:
    """Return the signature of arguments: arrays without their content, other values as of `signature_of`."""
    return _parts(values, _like)


def _parts(values: Sequence[Any], of_numpy: Callable[[np.ndarray], Hashable]) -> tuple[Hashable, ...] | None:
    """Return the key of each value, that of a NumPy array by `of_numpy`; None if a value has none."""
    parts: list[Hashable] = []
    try:
        for value in values:
            kind = type(value)
            if kind in _OWN_KEYS:
                parts.append(value)
            else:
                parts.append(of_numpy(value) if kind is np.ndarray else alike(value))
    except UnknownError:
        return None
    return tuple(parts)


class _Itself:
    """Stands for an object that is compared by identity, and keeps it."""

    __slots__ = ("_object",)

    def __init__(self, value: object) -> None:
        self._object = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and other._object is self._object

    def __hash__(self) -> int:
        # The reference keeps the object alive, so that no other object gets its id meanwhile.
        return id(self._object)


def itself(value: Any) -> Hashable:
    """Return a key that only this array has, or NumPy scalars that are equal to the bit."""
    return (value.dtype, value.tobytes()) if isinstance(value, np.generic) else _Itself(value)


def alike(value: Any) -> Hashable:
    """Return the key of one value, as of `signature_of`; raise UnknownError if it has none."""
    kind = type(value)
    if kind in _OWN_KEYS:
        key: Hashable = value
        return key
    part = _PARTS.get(kind)
    if part is not None:
        return part(value)
    if isinstance(value, cl_array.Array):
        return _like(value)
    if isinstance(value, np.generic):
        return value.dtype, value.tobytes()
    raise UnknownError


def _read_on_host(value: Any) -> Hashable:
    """Return the key of a value whose content matters; raise UnknownError for a device array, which is not read."""
    if isinstance(value, cl_array.Array):
        raise UnknownError
    return alike(value)


def _sequence(value: Any) -> Hashable:
    if len(value) > _MOST_ITEMS:
        raise UnknownError
    return (type(value), *(value if _OWN_KEYS.issuperset(map(type, value)) else map(alike, value)))


def _float(value: float) -> Hashable:
    # 0.0 is not -0.0, and a NaN is not equal to itself.
    return (float, value) if value and value == value else (float, value.hex())


def _content(value: np.ndarray) -> Hashable:
    if value.dtype.hasobject or value.nbytes > _MOST_BYTES:
        raise UnknownError
    return np.ndarray, value.dtype, value.shape, value.tobytes()


def _like(array: Array) -> Hashable:
    """Return the key of an array without its content; the queue of a PyOpenCL array implies its context."""
    if isinstance(array, _DeviceArray):
        # Alignment instead of the address: it decides on wide loads, and new arrays of one kind share a signature.
        where = array.queue or array.context
        return array.dtype, array.shape, array.strides, where, array.offset % _LOAD_BYTES == 0
    aligned = address_of(array) % _LOAD_BYTES == 0
    return np.ndarray, array.dtype, array.shape, array.strides, aligned, array.flags.num & _FLAGS


# Objects of these types are their own keys: equal ones are of one type and equal to the bit.
_OWN_KEYS = {type(None), int, str, np.ufunc, cl.CommandQueue}
_PARTS: dict[type, Callable[[Any], Hashable]] = {
    cl_array.Array: _like,
    bool: lambda value: (bool, value),
    float: _float,
    tuple: _sequence,
    list: _sequence,
    dict: lambda value: (dict, *value, *map(alike, value.values())),
    np.ndarray: _content,
    Operator: _Itself,  # equal ones may differ in how they are checked: `verified`, `samples`
}


def recognise(kind: type, part: Callable[[Any], Hashable]) -> None:
    """Let `part` return the key of objects of a class."""
    _PARTS[kind] = part


def _target(value: Any, targets: list[Array], shape: Any) -> Hashable:
    """Return the key of `dest` or `out`, without the first dimension of arrays of this `shape`; add its arrays."""
    kind = type(value)
    if value is None:
        return None
    if kind is np.ndarray or isinstance(value, cl_array.Array):
        return index_in(value, targets), without_length(value) if value.shape == shape else _like(value)
    if kind is dict:
        return (dict, *value, *(_target(entry, targets, shape) for entry in value.values()))
    if kind is tuple or kind is list:
        return (kind, *(_target(entry, targets, shape) for entry in value))
    raise UnknownError


def without_length(array: Array) -> Hashable:
    """Return the key of an array as of `_like`, without the length of the first dimension if it is contiguous."""
    shape, dtype, row = array.shape, array.dtype, ()
    if len(shape) == 1:
        is_whole = array.strides[0] == dtype.itemsize and shape[0] > 0
    else:
        is_whole, row = array.size > 0 and bool(array.flags.c_contiguous), shape[1:]
    if not is_whole:
        return _like(array)
    if isinstance(array, _DeviceArray):
        return dtype, row, array.queue or array.context, array.offset % _LOAD_BYTES == 0
    return np.ndarray, dtype, row, address_of(array) % _LOAD_BYTES == 0, array.flags.num & _FLAGS


def _may_overlap(targets: Sequence[Array]) -> bool:
    """Whether two of the arrays may share memory, so that one may have to be copied."""
    for n, one in enumerate(targets):
        for other in targets[:n]:
            # Any two arrays of one OpenCL buffer may overlap. All memory of a CUDA device is one buffer: there,
            # addresses decide.
            is_opencl = isinstance(one, cl_array.Array) and not is_cuda(one)
            if is_opencl and isinstance(other, cl_array.Array):
                if one.base_data is not None and one.base_data == other.base_data:
                    return True
            elif overlap(one, other):
                return True
    return False


def _each(argument: Any) -> list[Array]:
    """Return the arrays of `dest` or `out`, nested or not."""
    if argument is None:
        return []
    if isinstance(argument, cl_array.Array | np.ndarray):
        return [argument]
    return [array for entry in (argument.values() if type(argument) is dict else argument) for array in _each(entry)]
