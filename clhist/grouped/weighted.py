"""Sums and variances of columns of tables by weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from clhist._core.runtime.columns import read_column
from clhist.grouped.groups import groups_of

MOMENTS = ("sum", "var", "std")


def check_no_dates(name: str, x: Any) -> None:
    """Raise TypeError if weights, or values with weights, are dates or durations."""
    column = read_column(x)
    dtype = getattr(x if column is None else column.values, "dtype", None)
    if getattr(dtype, "kind", "") in ("m", "M"):
        raise TypeError(f"{name}: expected real numbers with weights, got {dtype}")


def weighted_moment(
    groups: Any, name: str, statistic: str, x: Any, weights: Any, options: Mapping[str, Any]
) -> np.ndarray:
    """Return the sum, variance or standard deviation of the values of each group by weights of reliability.

    Parameters
    ----------
    groups : GroupBy
        Groups of host arrays.
    name : str
        What messages call the values.
    statistic : str
        One of `MOMENTS`.
    x, weights : column or array of shape (N,)
        Real numbers. Elements of which either is missing, or NaN with the option `skipna`, are left out.
    options : mapping
        `skipna`, `ddof`, `dtype` and `reproducible` as of `GroupBy.agg`.

    Returns
    -------
    array of shape (num_groups,)
        Masked if one of both columns is nullable.
    """
    columns = [read_column(array) for array in (x, weights)]
    arrays = [
        np.asarray(a) if column is None else column.values for a, column in zip((x, weights), columns, strict=True)
    ]
    for argument, array in zip((name, "weights"), arrays, strict=True):
        if array.dtype.kind not in "biuf":
            raise TypeError(f"{argument}: expected real numbers with weights, got {array.dtype}")
    data = [column for column in columns if column is not None]
    masks = [column.missing for column in data if column.missing is not None]
    missing = np.logical_or.reduce([np.zeros(arrays[0].shape, bool), *masks])
    is_nan = np.isnan(arrays[0]) | np.isnan(arrays[1])
    nan_is_value = any(column.nan_is_value for column in data)
    is_absent = missing | is_nan if options["skipna"] and not nan_is_value else missing
    numbers = np.where(is_absent, -1, groups.ngroup())
    members = type(groups)(groups_of(numbers, len(groups), True, None))
    dtypes = [array.dtype for array in arrays if array.dtype.kind == "f"]
    dtype = options["dtype"] or (np.result_type(*dtypes) if arrays[0].dtype.kind == "f" else np.float64)
    # Products of float64 are as exact as those that a kernel of a weighted mean adds up.
    values, w = (array.astype(np.float64, copy=False) for array in arrays)
    exactly: dict[str, Any] = {"skipna": False, "reproducible": options["reproducible"]}
    with np.errstate(all="ignore"):
        if statistic == "sum":
            result = members.sum(values * w, **exactly)
        else:
            result = _spread(statistic, members, numbers, values, w, options["ddof"], exactly)
    result = result.astype(dtype, copy=False)
    if not data:
        return result
    # A sum of no values is 0; NaN stands for another statistic of none, unless NaN itself is a value.
    is_missing = (result != result) & (statistic != "sum")
    if nan_is_value:
        is_missing &= ~members.any(is_nan)
    if not options["skipna"]:
        is_missing |= groups.any(missing)
    return np.ma.array(result, mask=is_missing)


def _spread(
    statistic: str,
    members: Any,
    numbers: np.ndarray,
    values: np.ndarray,
    w: np.ndarray,
    ddof: int,
    exactly: Mapping[str, Any],
) -> np.ndarray:
    """Return variances around the weighted mean, as `numpy.cov` has them with `aweights`, or their roots."""
    means = members.weighted_mean(values, w, **exactly)
    deviations = values - np.append(means, np.nan)[numbers]
    shifts = w * deviations
    columns = {"weight": w, "weight_squares": w * w, "shift": shifts, "squares": shifts * deviations, "number": w != 0}
    # One sweep for all sums, of float64 but for the number.
    table = members.agg(**exactly, **{name: (column, "sum") for name, column in columns.items()})
    sums = {name: results["sum"] for name, results in table.items()}
    squares = np.maximum(sums["squares"] - sums["shift"] * sums["shift"] / sums["weight"], 0)
    divisor = sums["weight"] - ddof * sums["weight_squares"] / sums["weight"]
    # The divisor of a single value may be a rounding error rather than 0: count the values that have a weight.
    variances = np.where((sums["number"] > ddof) & (divisor > 0), squares / divisor, np.nan)
    return np.sqrt(variances) if statistic == "std" else variances
