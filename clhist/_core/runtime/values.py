"""Values of a call on plain arrays: checked against the operator and the indices."""

from __future__ import annotations

from typing import Any

import numpy as np

from clhist._core.opencl.arrays import Array, is_array, is_device_array
from clhist._core.runtime.reading import check_width, numbers_as_array
from clhist.operators.c_types import shown_dtype, supported_dtype
from clhist.operators.halves import number_of
from clhist.operators.operator import Operator


def row_shape(dest_shape: tuple[int, ...], batched: bool) -> tuple[int, ...]:
    """Return the shape of the row of `dest` that one index selects."""
    return dest_shape[2:] if batched else dest_shape[1:]


def checked_values(
    values: Any, operator: Operator, indices_shape: tuple[int, ...], row: tuple[int, ...]
) -> tuple[tuple[Array, ...] | Any, bool]:
    """Return the values as a tuple of arrays, or as a scalar, and whether their positions have to be added.

    Raises
    ------
    TypeError, ValueError
        If their shape or dtype is wrong; they are named.
    """
    # A scalar is the value of all pairs; kernels take it as an argument instead of an array.
    if type(values) is int or (not isinstance(values, tuple) and not is_array(values) and np.ndim(values) == 0):
        return values, False  # which `clhist._core.kernels.arguments.scalar` checks
    if isinstance(values, tuple):
        names, targets = operator.dtype.names or (), _fields_for(values, operator.dtype)
        labels = tuple(f"values[{name!r}]" for name in names)
        arrays = tuple(_values_as_array(*entry) for entry in zip(labels, values, targets, strict=True))
    else:
        arrays, targets, labels = (_values_as_array("values", values, operator.dtype),), (operator.dtype,), ("values",)
    with_position = operator.positional and len(arrays) == 1 and arrays[0].dtype.names is None
    # The operator takes (value, index) pairs, so the array has to fit its first field alone.
    if with_position:
        targets = (operator.dtype["value"],)
    converted = []
    for label, array, dtype in zip(labels, arrays, targets, strict=True):
        if array.shape != indices_shape + row:
            raise ValueError(f"{label}: expected shape {indices_shape + row} as of indices, got {array.shape}")
        # Structs are never converted, since their bytes are what kernels read.
        has_fields = array.dtype.names is not None or dtype.names is not None
        if array.dtype != dtype and (
            has_fields or not np.can_cast(number_of(array.dtype), number_of(dtype), "same_kind")
        ):
            raise TypeError(
                f"{label}: expected what converts to {shown_dtype(dtype)} of dest, got {shown_dtype(array.dtype)}; "
                "convert it yourself"
            )
        converted.append(_converted(label, array, dtype))
    return tuple(converted), with_position


def _fields_for(values: tuple[Any, ...], dtype: np.dtype) -> tuple[np.dtype, ...]:
    """Return the types of the fields of `dtype`, one for each array of values, or raise TypeError."""
    names = dtype.names or ()
    if len(values) != len(names):
        raise TypeError(
            f"values: expected one array, or a tuple of one for each field of {shown_dtype(dtype)}, got {len(values)}"
        )
    fields = tuple(dtype[name] for name in names)
    if any(field.names or field.subdtype for field in fields):
        raise TypeError(f"values: expected one array of {shown_dtype(dtype)}, whose fields are no scalars, got a tuple")
    return fields


def ones(values: Any, shape: tuple[int, ...]) -> int:
    """Return the value that counts each of `values` once, whose shape is checked."""
    value_shape = values.shape if is_array(values) else np.shape(numbers_as_array("values", values))
    if value_shape not in ((), shape):
        raise ValueError(f"values: expected shape {shape} as of indices, got {value_shape}")
    return 1


def _values_as_array(label: str, value: Any, dtype: np.dtype) -> Array:
    """Return `value` as an array, of `dtype` if it is an empty list."""
    array = numbers_as_array(label, value)
    if array.dtype.kind == "O":
        check_width(label, value, array)
    return array if array.size or is_array(value) else np.zeros(array.shape, dtype)


def _converted(name: str, values: Array, dtype: np.dtype) -> Array:
    """Return `values` as they are, or as `dtype` if OpenCL has no type for theirs (such as float16)."""
    try:
        supported_dtype(values.dtype, name)
    except TypeError:
        if is_device_array(values):
            raise
        return values.astype(dtype)
    return values
