"""Which dtypes an operator takes, and their extremes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clhist.operators.c_types import shown_dtype, supported_dtype
from clhist.operators.halves import number_of

if TYPE_CHECKING:
    from numpy.typing import DTypeLike


def largest_of(dtype: np.dtype) -> object:
    """Return the value of a dtype that is no less than any other."""
    return np.inf if number_of(dtype).kind == "f" else True if dtype.kind == "b" else np.iinfo(dtype).max


def smallest_of(dtype: np.dtype) -> object:
    """Return the value of a dtype that is no more than any other."""
    return -np.inf if number_of(dtype).kind == "f" else False if dtype.kind == "b" else np.iinfo(dtype).min


def number_dtype(dtype: DTypeLike) -> np.dtype:
    """Return the dtype of a number, checked."""
    return dtype_of_kind(dtype, "biufc", "a number", "dtype")


def real_dtype(dtype: DTypeLike) -> np.dtype:
    """Return the dtype of an integer or a float, checked."""
    return dtype_of_kind(dtype, "biuf", "an integer or a float", "dtype")


def float_dtype(dtype: DTypeLike, argument: str = "dtype") -> np.dtype:
    """Return the dtype of a float, checked."""
    return dtype_of_kind(dtype, "f", "a float", argument)


def integer_dtype(dtype: DTypeLike) -> np.dtype:
    """Return the dtype of an integer, checked."""
    return dtype_of_kind(dtype, "biu", "an integer", "dtype")


def dtype_of_kind(dtype: DTypeLike, kinds: str, expected: str, argument: str) -> np.dtype:
    """Return a dtype of one of these kinds; raises TypeError that says what was expected."""
    supported = supported_dtype(dtype, argument)
    if number_of(supported).kind not in kinds:
        raise TypeError(f"{argument}: expected {expected}, got {shown_dtype(supported)}")
    return supported
