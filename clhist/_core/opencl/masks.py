"""Masked arrays of NumPy (`numpy.ma`): what is masked is left out, or refused where it cannot be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from clhist._core.cuda.imported import is_instance


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
        As `clhist._core.runtime.scatter.checked_values` returns them.
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
