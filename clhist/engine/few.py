"""Few values in NumPy arrays are combined by NumPy itself; `clhist.engine.small` says which are few."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from clhist.operators.operator import Operator
from clhist.operators.ufuncs import as_operator

_UFUNCS = (np.add, np.multiply, np.minimum, np.maximum, np.fmin, np.fmax, np.bitwise_and, np.bitwise_or, np.bitwise_xor)


def combined_by_numpy(
    operator: Operator, shape: tuple[int, ...], dests: Sequence[np.ndarray], indices: np.ndarray, values: Any
) -> np.ndarray | None:
    """Return ``dest[i] = op(dest[i], v)`` for each pair, as kernels compute it; None where these would be used.

    Parameters
    ----------
    operator : Operator
        How values are combined; NumPy's are those of ufuncs, on integers and floats of 4 or 8 bytes.
    shape : tuple of int
        Of the result.
    dests : sequence of numpy.ndarray
        Nothing, or the initial contents of the bins.
    indices : array of integers of shape (n, ...)
        Bins; those outside are ignored.
    values : tuple of one array of the shape of `indices`
        Checked. A scalar is left to kernels.
    """
    if len(shape) != 1 or not isinstance(values, tuple) or len(values) != 1:
        return None
    ufunc = _ufunc_of(operator)
    if ufunc is None:
        return None
    dtype = np.dtype(operator.dtype.type)  # NumPy's own object of it, for which `at` has a loop ten times as fast
    given = values[0].astype(dtype, copy=False).reshape(-1)
    bins = indices.reshape(-1)
    result = np.full(shape, operator.neutral, dtype) if not dests else np.array(dests[0], dtype)
    if bins.size and (bins.min() < 0 or bins.max() >= shape[0]):
        inside = (bins >= 0) & (bins < shape[0])
        bins, given = bins[inside], given[inside]
    with np.errstate(all="ignore"):
        ufunc.at(result, bins, given)
    return result


@lru_cache(maxsize=64)
def _ufunc_of(operator: Operator) -> np.ufunc | None:
    """Return the ufunc that `operator` stands for, if NumPy has the same result for each value of its dtype."""
    ufunc = next((each for each in _UFUNCS if each.__name__ == operator.name), None)
    if ufunc is None or operator.dtype.kind not in "iuf" or operator.dtype.itemsize not in (4, 8):
        return None
    try:
        return ufunc if as_operator(ufunc, operator.dtype) == operator else None
    except TypeError:  # no such operator on the dtype: one of the caller's has the name
        return None
