"""Reading of arguments: lists, columns of tables and tensors as arrays, results in the caller's arrays."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from clhist._core.opencl.arrays import Array, check_array, is_array, is_device_array


def as_indices(value: Any, order: str = "dest, op, indices, values", name: str = "indices") -> Array:
    """Return `value` as an array of integers; `order` is that of the caller's arguments, and `name` its own.

    Raises
    ------
    TypeError
        If they are no integers; an empty list is taken, as by NumPy.
    """
    indices = as_array(name, value)
    # NumPy makes float64 of an empty list, though no element is a float.
    if not indices.size and not is_array(value):
        indices = indices.astype(np.intp)
    if indices.dtype.kind not in "iu":
        check_width(name, value, indices, NUMBERED)
        raise TypeError(
            missing_integers(name, value, indices)
            or f"{name}: expected integers, got {_kind_of(indices)}; the order is {order}"
        )
    return indices


# Nullable integers and booleans of pandas, polars and PyArrow, as their libraries write these types.
_NULLABLE = re.compile(r"(?i)^u?int\d+(\[pyarrow\])?$|^bool(ean)?(\[pyarrow\])?$")


def missing_integers(name: str, value: Any, array: Array) -> str:
    """Return the error for integers of a table some of which are missing, which NumPy makes floats of, or nothing."""
    dtype = str(getattr(value, "dtype", getattr(value, "type", "")))
    if is_array(value) or array.dtype.kind not in "fO" or not _NULLABLE.match(dtype):
        return ""
    return f"{name}: expected integers without missing values, got {dtype} with some; drop them, or fill them with -1"


def check_width(
    name: str, value: Any, array: Array, remedy: str = "make floats of them by numpy.array(x, float)"
) -> None:
    """Raise ValueError if an array is of objects, or floats, since integers of `value` need more than 64 bits."""
    if array.dtype.kind == "O" or (array.dtype.kind == "f" and isinstance(value, list | tuple)):
        integers = [item for item in np.array(value, object).flat if isinstance(item, int)]
        if len(integers) == array.size and (wide := [item for item in integers if not -(2**63) <= item < 2**63]):
            raise ValueError(f"{name}: expected integers that int64 holds, got {wide[0]}; {remedy}")


NUMBERED = "number the values by clhist.factorize"


def _kind_of(array: Array) -> str:
    """Return the dtype of an array, or the type of an object that is none."""
    return type(array.item()).__name__ if array.dtype.kind == "O" and array.ndim == 0 else str(array.dtype)


def numbers_as_array(name: str, value: Any) -> Array:
    """Return `value` as an array; raise TypeError for a column with missing elements, which NumPy makes NaN of."""
    if type(value) is np.ndarray:
        return value
    if _has_nulls(value):
        dtype = getattr(value, "dtype", getattr(value, "type", ""))
        raise TypeError(
            f"{name}: expected numbers without missing values, got {dtype} with some; drop them, or mask them in a "
            "NumPy masked array"
        )
    return as_array(name, value)


def _has_nulls(value: Any) -> bool:
    """Return whether a column of pandas, polars or PyArrow has missing elements; NaN of NumPy dtypes is a number."""
    if is_array(value) or isinstance(getattr(value, "dtype", None), np.dtype):
        return False
    # A method of polars, and an attribute of PyArrow; pandas has only the mask.
    nulls = getattr(value, "null_count", None)
    if nulls is not None:
        return bool(np.any(nulls() if callable(nulls) else nulls))
    return hasattr(value, "isna") and hasattr(value, "dtype") and bool(np.any(value.isna()))


def as_array(name: str, value: Any) -> Array:
    """Return `value` as an array, of PyOpenCL if it is one."""
    if type(value) is np.ndarray or is_device_array(value):
        return value
    try:
        return np.asarray(value)
    except ValueError as error:  # rows of different lengths
        raise ValueError(f"{name}: {error}") from error
    except (TypeError, RuntimeError) as error:  # of tensors
        hint = tensor_hint(value) or f" ({error})"
        raise TypeError(f"{name}: expected what numpy.asarray takes, got {type(value).__name__}{hint}") from error


def into(out: Array | None, result: Array) -> Array:
    """Return `result`, in `out` if there is one."""
    if out is None:
        return result
    check_out(out, result.dtype, result, result.shape)
    out[...] = result
    return out


def check_out(out: Array | None, dtype: np.dtype, like: Array, shape: tuple[int, ...] | None = None) -> None:
    """Raise TypeError or ValueError if a result of `dtype`, of the kind of `like`, cannot be written to `out`."""
    if out is None:
        return
    check_array("out", out, dtype, written=True, shape=shape)
    if is_device_array(out) != is_device_array(like):
        kind = "PyOpenCL" if is_device_array(like) else "NumPy"
        raise TypeError(f"out: expected a {kind} array as the data is, got {type(out).__name__}")


def tensor_hint(value: Any) -> str:
    """Return what makes an array of a tensor that NumPy does not read, and why; empty if nobody can tell."""
    dtype, device = str(getattr(value, "dtype", "")), str(getattr(value, "device", ""))
    if getattr(value, "requires_grad", False):
        return " that requires a gradient; pass .detach()"
    if dtype.endswith("bfloat16"):
        return " of bfloat16; pass .float()"
    return f" on {device}; pass .cpu()" if hasattr(value, "cpu") and device not in ("", "cpu") else ""
