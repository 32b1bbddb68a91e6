"""Arrays of NumPy and of PyOpenCL: what a kernel can take of them.

PyOpenCL is not imported here: small NumPy arrays need no device. What masked arrays of `numpy.ma` mask is left out,
or refused where it cannot be.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Sequence
from ctypes import addressof, c_char
from typing import TYPE_CHECKING, Any

import numpy as np

from clhist._core.kinds import imported, is_instance
from clhist._core.opencl.cuda_kinds import is_cuda

if TYPE_CHECKING:
    import pyopencl as cl

Array = Any  # numpy.ndarray or pyopencl.array.Array: neither knows of the other

_READ_ONLY = 1 << 2  # CL_MEM_READ_ONLY: most calls of a process without a device do not import PyOpenCL

_device_class: Any = ()  # pyopencl.array.Array, once it is imported; nothing is an instance of ()


def is_device_array(value: object) -> bool:
    """Whether `value` is an array of PyOpenCL."""
    return isinstance(value, _device_class or _find_device_class())


def _find_device_class() -> Any:
    """Return the class of PyOpenCL's arrays, or () while PyOpenCL is not imported and has no arrays."""
    global _device_class
    if "pyopencl.array" not in sys.modules:  # most calls of a process without a device
        return ()
    _device_class = imported("pyopencl.array", "Array") or ()
    return _device_class


def _shown(dtype: np.dtype) -> str:
    """Return a dtype for an error message."""
    from clhist.operators.c_types import shown_dtype

    return shown_dtype(dtype)


def on_host(value: Any, queue: cl.CommandQueue | None = None) -> Any:
    """Return a device array as one of NumPy, and all else as it is."""
    return value.get(queue) if is_device_array(value) else value


def is_array(value: object) -> bool:
    """Whether `value` is an array of NumPy or PyOpenCL; NumPy's scalars are none."""
    return isinstance(value, (np.ndarray, _device_class or _find_device_class()))


def check_array(
    name: str, value: object, dtype: np.dtype, *, written: bool, shape: tuple[int, ...] | None = None
) -> Array:
    """Return `value` as an array that a kernel can take, or raise what is wrong with it.

    Parameters
    ----------
    name : str
        The argument, for errors.
    value : array
        Of NumPy or PyOpenCL. A NumPy array that is only read is copied if it is not contiguous or byte-swapped.
    dtype : numpy.dtype
        What its elements must be.
    written : bool
        Whether the kernel writes it.
    shape : tuple of int, optional
        What its shape must be.

    Raises
    ------
    TypeError
        If it is no array, or of another dtype.
    ValueError
        If its shape is another, or it is not contiguous, or it is written and read-only, or some of it is masked.
    """
    if not is_array(value):
        raise TypeError(f"{name}: expected a NumPy or PyOpenCL array of {_shown(dtype)}, got {type(value).__name__}")
    array: Array = value
    host = isinstance(value, np.ndarray)
    if host:
        check_unmasked(name, value)
    # A NumPy array that is only read may have the other byte order: `np.require` below copies it.
    given_dtype = array.dtype.newbyteorder("=") if host and not written and array.dtype.names is None else array.dtype
    if given_dtype == np.bool_ and dtype == np.uint8 and not written:
        array, given_dtype = as_bytes(array), dtype  # what C has for it
    if given_dtype != dtype:
        raise TypeError(f"{name}: expected an array of {_shown(dtype)}, got one of {_shown(array.dtype)}")
    if shape is not None and array.shape != shape:
        raise ValueError(f"{name}: expected shape {shape}, got {array.shape}")
    # A kernel that only reads gets a copy where layout, alignment or byte order do not suit it.
    if host and not written:
        return np.require(array, dtype, ["C_CONTIGUOUS", "ALIGNED"])
    # A copy cannot replace an array that is written, or is on a device.
    check_contiguous(name, array)
    if host and not array.flags.aligned:
        raise ValueError(
            f"{name}: expected an array at an address that suits {_shown(dtype)}, got one at {array.ctypes.data}"
        )
    if written and not may_be_written(array):
        raise ValueError(f"{name}: expected an array that can be written, got a read-only one")
    return array


def may_be_written(array: Any) -> bool:
    """Whether an array of NumPy, CUDA or PyOpenCL may be written; the flags of an OpenCL buffer can forbid it."""
    if isinstance(array, np.ndarray):
        return array.flags.writeable
    if is_cuda(array):
        return not array.memory.is_read_only
    buffer = getattr(array, "base_data", None)  # shared virtual memory has no flags
    return not getattr(buffer, "flags", 0) & _READ_ONLY


def are_plain_numbers(a: np.ndarray) -> bool:
    """Whether these are integers or floats of 32 or 64 bits in native byte order."""
    dtype = a.dtype
    return dtype.kind in "iuf" and 4 <= dtype.itemsize <= 8 and dtype.isnative


def is_plain_array(value: Any, dtype: np.dtype) -> bool:
    """Whether `value` is an array of NumPy that `check_array` returns as it is, if kernels only read it.

    Most arrays are; this takes a fifth of its time.
    """
    # Subclasses are left to `check_array`: a masked array is one.
    return type(value) is np.ndarray and value.dtype == dtype and value.flags.c_contiguous and value.flags.aligned


def check_contiguous(name: str, array: Array) -> None:
    """Raise ValueError if an array has gaps or another order than C's."""
    # PyOpenCL takes longer for the flags of an array.
    is_column = len(array.shape) == 1 and array.strides[0] == array.dtype.itemsize
    if not is_column and not array.flags.c_contiguous:
        raise ValueError(
            f"{name}: expected a contiguous array, got one with strides {array.strides} of shape {array.shape}"
        )


def check_native(name: str, array: Array) -> None:
    """Raise TypeError if a device array is not in the byte order of the host, which devices have."""
    if not array.dtype.isnative:
        raise TypeError(
            f"{name}: expected native byte order of a device array, got {array.dtype.str}; swap it on the host"
        )


def check_layout(name: str, array: Array) -> None:
    """Raise TypeError or ValueError unless a device array is contiguous, in the byte order of the host."""
    check_native(name, array)
    check_contiguous(name, array)


def is_taken(value: object, checked: object) -> bool:
    """Whether a kernel takes an argument in place; `checked` is what `check_array` made of it, or a scalar."""
    if not isinstance(value, np.ndarray) or not isinstance(checked, np.ndarray):
        return True
    return checked is value or np.may_share_memory(checked, value)


def plain(array: np.ndarray) -> np.ndarray:
    """Return numbers of NumPy as kernels take them: contiguous, of native byte order, booleans as bytes, no halves."""
    dtype = np.dtype(np.float32) if array.dtype == np.float16 else array.dtype.newbyteorder("=")
    # The array itself where it can be, not a view: calls are repeated with arrays that are taken as they are.
    if dtype == array.dtype and dtype.kind != "b" and type(array) is np.ndarray and array.flags.c_contiguous:
        return array
    array = np.ascontiguousarray(array, dtype)
    return array.view(np.uint8) if dtype.kind == "b" else array


def as_bytes(array: Array) -> Array:
    """Return an array of booleans as one of bytes in the same memory; PyOpenCL has no views without dimensions."""
    return array.view(np.uint8) if array.ndim else array.reshape(1).view(np.uint8).reshape(())


def address_of(array: np.ndarray) -> int:
    """Return where the first element is, in a fourth of the time of `ctypes.data` where that can be."""
    try:
        return addressof(c_char.from_buffer(array))  # type: ignore[arg-type]  # of NumPy's stubs
    except (TypeError, ValueError, BufferError):  # read-only, not contiguous, empty, or of dates
        return array.ctypes.data


def is_aligned(array: Array, size: int) -> bool:
    """Whether the first element lies at a multiple of `size` bytes; OpenCL's buffers begin at one."""
    return (array.offset if is_device_array(array) else address_of(array)) % size == 0


def common_kind(named: Iterable[tuple[str, Array]]) -> bool:
    """Return whether the arrays are PyOpenCL's; all must be of one kind.

    Raises
    ------
    TypeError
        If some are NumPy's and some PyOpenCL's; both are named.
    """
    kinds: dict[str, str] = {}
    for name, array in named:
        kinds.setdefault(_kind(array), name)
    if len(kinds) > 1:
        # The order of `_KINDS` decides which of both is named as the expected one.
        (expected, like), (got, name) = sorted(kinds.items(), key=lambda kind: _KINDS.index(kind[0]))[:2]
        raise TypeError(
            f"{name}: expected a {expected} array as {like} is, got a {got} array; "
            "clhist copies nothing between host and device unasked"
        )
    return bool(kinds) and "NumPy" not in kinds


_KINDS = ("CUDA", "PyOpenCL", "NumPy")


def _kind(array: Array) -> str:
    if not is_device_array(array):
        return "NumPy"
    return "CUDA" if is_cuda(array) else "PyOpenCL"


def check_context(named: Iterable[tuple[str, Array]], context: cl.Context) -> None:
    """Raise ValueError if one of the device arrays is of another context."""
    for name, array in named:
        if is_device_array(array) and array.context != context:
            raise ValueError(
                f"{name}: expected an array of the context {shown_context(context)}, got one of "
                f"{shown_context(array.context)}; pass {name}.context to HistogramKernel, or its queue as queue="
            )


def shown_context(context: cl.Context) -> str:
    """Return a context for people: its devices, and a number, since several may have the same ones."""
    devices = ", ".join(device.name.strip() for device in context.devices)
    return f"{context.int_ptr:#x} on {devices}"


def note_event(array: Array, event: cl.Event, waited: Collection[cl.Event]) -> None:
    """Add to a written array the `event` after which it is complete, in the place of those that were waited for.

    Otherwise an array that is written again and again has a dozen events, for each of which every call waits.
    """
    # Events are compared by identity: the command of this event waited for these very objects.
    done = {id(earlier) for earlier in waited}
    array.events[:] = [earlier for earlier in array.events if id(earlier) not in done]
    array.add_event(event)


def overlap(first: Array, second: Array) -> bool:
    """Whether two arrays share memory."""
    if not is_device_array(first) and not is_device_array(second):
        return bool(np.may_share_memory(first, second))
    if (
        not (is_device_array(first) and is_device_array(second))
        or first.base_data is None
        or first.base_data != second.base_data
    ):
        return False
    # Both are half-open intervals of bytes in one buffer, and overlap if each begins before the other ends.
    return first.offset < second.offset + second.nbytes and second.offset < first.offset + first.nbytes


def mask_of(value: object) -> np.ndarray | None:
    """Return which elements of `value` are masked, of structs those with a masked field; None if none is."""
    # Plain arrays are the common case, and need no look at `numpy.ma`.
    if type(value) is np.ndarray or not _is_masked_array(value):
        return None
    mask: Any = value.mask  # type: ignore[attr-defined]
    # An array without elements has no masked one.
    if not mask.size:
        return None
    masked = _any_field(mask, mask.shape)
    return masked if masked.any() else None


def check_unmasked(name: str, value: object) -> None:
    """Raise ValueError if an element of `value` is masked."""
    if (mask := mask_of(value)) is not None:
        raise missing_error(name, mask)


def missing_error(name: str, missing: np.ndarray, what: str = "an array") -> ValueError:
    """Return the error for an argument some of whose elements are missing, where none may be."""
    return ValueError(
        f"{name}: expected {what} without missing elements, got {int(missing.sum())} that are masked, NA or null; "
        "fill or remove them"
    )


def mask_of_values(values: Any) -> np.ndarray | None:
    """Return which elements are masked of values, or of one of a tuple of arrays."""
    masks = [mask for mask in map(mask_of, values if isinstance(values, tuple) else (values,)) if mask is not None]
    for mask in masks[1:]:
        if mask.shape != masks[0].shape:
            return None  # their shapes are wrong, and refused
    return np.logical_or.reduce(masks) if masks else None


def leave_out(
    indices: np.ndarray, values: Any, of_indices: np.ndarray | None, of_values: np.ndarray | None
) -> tuple[np.ndarray, Any]:
    """Return the indices, -1 where they or their values are masked, and the values, 0 where they are masked.

    Parameters
    ----------
    indices : numpy.ndarray of integers
        As they were given, without their mask.
    values : tuple of numpy.ndarray, or scalar
        As `clhist._core.runtime.values.checked_values` returns them.
    of_indices, of_values : numpy.ndarray of bool, or None
        What is masked; that of values has further dimensions if they are vectors.

    Raises
    ------
    ValueError
        If of a vector some components are masked and some are not.
    """
    mask = np.zeros(indices.shape, np.bool_) if of_indices is None else of_indices
    if of_values is not None:
        rows = of_values.reshape(*indices.shape, -1)
        if (rows.any(-1) != rows.all(-1)).any():
            raise ValueError(
                "values: expected vectors masked as a whole or not at all, since each has one index, got some with a "
                f"part of their {rows.shape[-1]} components masked"
            )
        mask = mask | rows.any(-1)
        # What is masked may be huge, and would count as the largest of reproducible sums.
        values = tuple(_zeroed(array, of_values) for array in values)
    # Masked indices need a value outside of all bins: -1, or the largest uint64, beside which no signed type fits.
    wide = np.result_type(indices.dtype, np.int8) if indices.dtype != np.uint64 else np.dtype(np.uint64)
    outside = -1 if wide.kind == "i" else np.iinfo(wide).max
    return np.where(mask, wide.type(outside), indices.astype(wide, copy=False)), values


def without_masked(x: Any, weights: Any, masks: Sequence[np.ndarray | None]) -> tuple[Any, Any]:
    """Return the elements of two arrays of one shape, of which the second may be None, that are masked in neither.

    Arrays of other shapes, which NumPy's function refuses, are returned as they are.
    """
    if x is None or x.ndim != 1 or (weights is not None and weights.shape != x.shape):
        return x, weights
    keep = ~np.logical_or.reduce([mask for mask in masks if mask is not None])
    return x[keep], None if weights is None else weights[keep]


def _zeroed(array: np.ndarray, mask: np.ndarray) -> np.ndarray:
    copy = array.copy()
    copy[mask] = np.zeros((), array.dtype)
    return copy


def _is_masked_array(value: object) -> bool:
    return is_instance(value, "numpy.ma", "MaskedArray")


def _any_field(mask: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    if mask.dtype.names is None:
        fields = mask
    else:
        fields = np.stack([_any_field(mask[name], mask.shape) for name in mask.dtype.names], -1)
    return np.logical_or.reduce(fields.reshape(*shape, -1), -1)  # fields may be arrays


def strides_of(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Return the strides of a contiguous array as NumPy and PyOpenCL do, for which a dimension of 0 counts as 1."""
    strides = [itemsize]
    for length in shape[:0:-1]:
        strides.append(strides[-1] * max(1, length))
    return tuple(strides[::-1]) if shape else ()
