"""Host implementations of operators, for few elements: a function for each, a field of its `Operator`.

Each takes the operator, the initial contents of the bins or None, the bin of each value, all of them in range, the
values, and the number of bins. It returns the contents of the bins, of the dtype of the operator.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from clhist.operators.halves import number_of

if TYPE_CHECKING:
    from clhist.operators.operator import Operator

_INTP, _FLOAT64 = np.dtype(np.intp), np.dtype(np.float64)
_UNSIGNED = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}  # by the bytes of an integer
# Elements below which, and bins above which numpy.bincount takes less time than numpy.add.at; on EPYCs (Zen 2, Zen 3).
_FEW, _MANY_BINS = 16_384, 40_000
Host: TypeAlias = partial[np.ndarray]  # of one of the functions below


def by_ufunc(
    ufunc: np.ufunc, operator: Operator, dest: np.ndarray | None, bins: np.ndarray, values: np.ndarray, number: int
) -> np.ndarray:
    """Combine by a ufunc: modulo 2^bits of integers, in float32 of half precision."""
    dtype, number_dtype = operator.dtype, values.dtype  # which differ where bins have half precision
    if ufunc is np.add:
        # `bincount` sums in float64, and its result needs no conversion for that dtype.
        if dest is None and dtype == _FLOAT64 and (bins.size < _FEW or number > _MANY_BINS):
            sums = np.bincount(bins, values, number)
            return sums if bins.size else sums.astype(dtype)  # of none NumPy's are integers
        # Narrow floats are summed in float64 and rounded once. A stride of 0 is one broadcast value, whose sum is a
        # count times it.
        is_narrow = number_dtype.kind == "f" and number_dtype.itemsize < 8
        if is_narrow or (values.strides == (0,) and dtype.kind in "iuf"):
            return _sums(dtype, dest, bins, values, number)
    native = number_dtype.type  # NumPy's own dtypes, for which `at` has a loop thirty times as fast
    if dest is not None:
        result = dest.astype(native)
    else:
        result = np.empty(number, native)
        result.fill(operator.neutral)
    # Equal dtypes of other C types, such as long long for long, are viewed: NumPy's fast loops are for one of both.
    values = values if values.dtype is result.dtype else values.view(result.dtype)
    if dtype.kind in "biu":
        ufunc.at(result, bins, values)
    else:
        with np.errstate(all="ignore"):
            ufunc.at(result, bins, values)
            # Kernels add the initial contents to sums that begin with 0.0, so that no sum is -0.0.
            if ufunc is np.add and dest is not None:
                result += native(0)
    return result if native is dtype.type else result.astype(dtype)


def in_range(bins: np.ndarray, values: np.ndarray, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Return bins and values without those of bins that do not exist; bins are in native byte order."""
    if not bins.size:
        return bins, values
    # Viewed as unsigned, negative bins are the largest: one comparison finds both kinds outside.
    unsigned, limit = bins.view(_UNSIGNED[bins.itemsize]), number
    if bins.itemsize < 8:  # -1 as uint8 is less than 300
        limit = min(number, np.iinfo(bins.dtype).max + 1)
    # argmax, since max takes two microseconds for ten elements, and half as long again for many.
    if unsigned[unsigned.argmax()] < limit:
        return bins, values
    # A broadcast value is sliced, since a mask would copy it and lose the stride of 0.
    is_inside = unsigned < limit
    return bins[is_inside], values[is_inside] if values.strides != (0,) else values[: is_inside.sum()]


@np.errstate(all="ignore")
def _sums(dtype: np.dtype, dest: np.ndarray | None, bins: np.ndarray, values: np.ndarray, number: int) -> np.ndarray:
    """Return sums in float64, rounded once; of one value for all by their number."""
    if values.strides == (0,):
        counts = np.bincount(bins, minlength=number)
        # A bin without values has no infinity.
        one = values[0] if values.size else 0
        # In the integers' own dtype, products wrap modulo 2^bits as sums do.
        sums = counts.astype(dtype) * one if dtype.kind in "iu" else np.where(counts, counts * one, 0)
    else:
        sums = np.bincount(bins, values, number)
    return (sums if dest is None else dest + sums).astype(dtype, copy=False)


def by_logic(
    ufunc: np.ufunc, operator: Operator, dest: np.ndarray | None, bins: np.ndarray, values: np.ndarray, number: int
) -> np.ndarray:
    """Combine whether values are not zero by a logical ufunc."""
    result = np.full(number, ufunc is np.logical_and) if dest is None else dest != 0
    is_set = values != 0
    if ufunc is np.logical_xor:
        result ^= (np.bincount(bins[is_set], minlength=number) & 1).astype(bool)
    else:  # a value decides its bin
        result[bins[is_set == (ufunc is np.logical_or)]] = ufunc is np.logical_or
    return result.astype(operator.dtype)


def _with_dest(dest: np.ndarray | None, bins: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return bins and values with the initial contents as one more value of each bin."""
    if dest is None:
        return bins, values
    return np.concatenate([np.arange(dest.size), bins]), np.concatenate([dest, values])


@np.errstate(all="ignore")
def mean(operator: Operator, dest: np.ndarray | None, bins: np.ndarray, values: np.ndarray, number: int) -> np.ndarray:
    """Return means, summed in float64."""
    bins, values = _with_dest(dest, bins, values)
    counts = np.bincount(bins, minlength=number)
    if values.dtype.kind != "c":
        return (np.bincount(bins, values, number) / counts).astype(operator.dtype)
    # Divide both parts by real counts: division by a complex number turns infinities into NaN.
    result = np.empty(number, np.complex128)
    result.real = np.bincount(bins, values.real, number) / counts
    result.imag = np.bincount(bins, values.imag, number) / counts
    return result.astype(operator.dtype)


@np.errstate(all="ignore")
def variance(
    ddof: int,
    is_root: bool,
    operator: Operator,
    dest: np.ndarray | None,
    bins: np.ndarray,
    values: np.ndarray,
    number: int,
) -> np.ndarray:
    """Return variances, or their square roots, by sums of deviations from a value of each bin, then from the mean."""
    bins, values = _with_dest(dest, bins, values.astype(np.float64))
    counts = np.bincount(bins, minlength=number)
    # Any value of a bin will do as its first pivot: the last one written stays.
    around = np.zeros(number)
    around[bins] = values
    # The first round moves the pivots to the means. The sums of the second are of small deviations, and lose few
    # digits.
    for _ in range(2):
        deviations = values - around[bins]
        shift = np.bincount(bins, deviations, number)
        around += shift / counts
    squares = np.bincount(bins, deviations * deviations, number)
    # Rounding can leave less than 0.
    variances = np.maximum(squares - shift * (shift / counts), 0)
    variances = np.where(counts > ddof, variances / (counts - ddof), np.nan)
    return (np.sqrt(variances) if is_root else variances).astype(operator.dtype)


@np.errstate(all="ignore")
def extreme_pair(
    ufunc: np.ufunc, operator: Operator, dest: np.ndarray | None, bins: np.ndarray, pairs: np.ndarray, number: int
) -> np.ndarray:
    """Return the pair of the least or the largest value of each bin, of equal ones that of the lowest index."""
    bins, pairs = _with_dest(dest, bins, pairs)
    result = np.full(number, np.array(operator.neutral, operator.dtype))
    values, index = pairs["value"], pairs["index"]
    ufunc.at(result["value"], bins, values)
    wins = np.flatnonzero((values == result["value"][bins]) | (values != values))  # a NaN has won its bin
    np.minimum.at(result["index"], bins[wins], index[wins])
    wins = wins[index[wins] == result["index"][bins[wins]]]
    # Zeros of both signs are equal: store the zero at the winning index.
    result["value"][bins[wins]] = values[wins]
    return result


def positioned_pair(
    ufunc: np.ufunc, operator: Operator, dest: np.ndarray | None, bins: np.ndarray, pairs: np.ndarray, number: int
) -> np.ndarray:
    """Return the pair of the lowest or the highest index of each bin."""
    bins, pairs = _with_dest(dest, bins, pairs)
    result = np.full(number, np.array(operator.neutral, operator.dtype))
    ufunc.at(result["index"], bins, pairs["index"])
    wins = pairs["index"] == result["index"][bins]
    result["value"][bins[wins]] = pairs["value"][wins]
    wins &= pairs["value"] != 0  # written last: of equal positions a value that is not zero stays
    result["value"][bins[wins]] = pairs["value"][wins]
    return result


def by_fields(
    operators: Mapping[str, Operator],
    operator: Operator,
    dest: np.ndarray | None,
    bins: np.ndarray,
    values: np.ndarray,
    number: int,
) -> np.ndarray:
    """Combine each field by its operator."""
    result = np.empty(number, operator.dtype)
    for name, field in operators.items():
        compute: Any = field.host
        result[name] = compute(field, None if dest is None else dest[name], bins, values[name], number)
    return result


def of_fields(operators: Mapping[str, Operator]) -> Host | None:
    """Return a function that combines each field by its operator; None if one has no such function."""
    return partial(by_fields, dict(operators)) if all(field.host is not None for field in operators.values()) else None


_PASSES = {by_logic: 2, mean: 2, variance: 9, extreme_pair: 4, positioned_pair: 4}
_SLOW_LOOPS = {np.bitwise_and: 6, np.bitwise_or: 6, np.bitwise_xor: 6, np.fmin: 2, np.fmax: 2}


def passes(operator: Operator) -> int:
    """Return how many passes of `numpy.add.at` take as long as the operator's host function; on an EPYC (Zen 3)."""
    host: Any = operator.host
    if host.func is by_fields:
        return sum(map(passes, host.args[0].values()))
    number: int = _PASSES.get(host.func) or _SLOW_LOOPS.get(host.args[0], 1)
    return number if number_of(operator.dtype) is operator.dtype else 2 * number  # half precision is converted


def of_bins(
    operator: Operator, dest: np.ndarray | None, bins: np.ndarray, values: np.ndarray, number: int
) -> np.ndarray:
    """Return the contents of `number` bins; `values` are in one dimension, those of bins that do not exist ignored."""
    # Compute half precision in float32: its products overflow.
    dtype = number_of(operator.dtype)
    if values.dtype != dtype and dtype.names is None:
        with np.errstate(all="ignore"):
            values = values.astype(dtype, copy=False)
    assert operator.host is not None
    # Narrow bins are compared as they are, since that reads fewer bytes.
    bins, values = in_range(bins if bins.dtype.isnative else bins.astype(_INTP), values, number)
    # The view replaces an equal dtype by NumPy's own object for it, which has the fast loops.
    bins = bins if bins.dtype is _INTP else bins.astype(_INTP, copy=False).view(_INTP)
    return operator.host(operator, dest, bins, values, number)


def combined(
    operator: Operator,
    shape: tuple[int, ...],
    batched: bool,
    dest: np.ndarray | None,
    indices: np.ndarray,
    values: Any,
    with_position: bool = False,
) -> np.ndarray:
    """Return ``dest[i] = op(dest[i], v)`` for each pair, as kernels compute it.

    Parameters
    ----------
    operator : Operator
        One with `host`.
    shape : tuple of int
        Of the result; of histograms and bins if it is `batched`.
    dest : array of `shape`, or None
        Initial contents.
    indices : array of integers
        Bins. Those that do not exist are ignored.
    values : tuple of array, or scalar
        One array, or one for each field of the operator's dtype.
    with_position : bool
        Whether the values lack their index, which is their position.
    """
    bins, number, row = indices.reshape(-1), prod(shape), prod(shape[1 + batched :])
    if type(values) is not tuple:
        values = np.broadcast_to(np.asarray(values, number_of(operator.dtype)), bins.size * row)
    elif len(values) == 1 and not with_position:
        values = values[0].reshape(-1)
    else:
        columns = (*values, np.arange(values[0].size).reshape(values[0].shape)) if with_position else values
        values = np.empty(values[0].size, operator.dtype)
        for name, column in zip(operator.dtype.names or (), columns, strict=True):
            values[name] = column.reshape(-1)
    if batched or row > 1:
        count = shape[batched]
        bins = bins.astype(np.intp, copy=False)
        # Before offsets are added, by which a bin outside one histogram would become a bin of the next.
        is_inside = bins.view(np.uintp) < count
        if batched:
            bins = bins + np.repeat(np.arange(shape[0]) * count, bins.size // shape[0])
        # The row before the first one has negative bins. A choice for each row takes a tenth of one for each component.
        bins = (np.where(is_inside, bins * row, -row)[:, None] + np.arange(row)).reshape(-1)
    result = None if dest is None else dest.reshape(-1)
    return of_bins(operator, result, bins, values, number).reshape(shape)
