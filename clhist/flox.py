"""Aggregations for flox, and so for xarray, whose grouped reductions run on an OpenCL device.

``flox.groupby_reduce(x, by, func=clhist.flox.mean)`` and ``flox.xarray.xarray_reduce(data, "label",
func=clhist.flox.mean)`` take them in the place of names: `sum`, `prod`, `mean`, `var`, `std`, `min`, `max`,
`argmin`, `argmax`, `first`, `last` and `median`, each also with `nan` before its name, which skips NaN; `count`, `any`
and `all`.

Of Dask arrays the device reduces the blocks of sums, products, means, minima, maxima, counts, `any` and `all`, and
whole groups where flox's method is "blockwise"; flox itself does the rest.

Dates and durations have `mean`, `median`, `min`, `max`, `first`, `last` and `count`, durations also `sum` and `std`;
NaT is their NaN. Others refuse them. Of Dask arrays their `median`, `min`, `max` and `std` need "blockwise".

flox must be installed: ``pip install flox``.

Examples
--------
>>> import flox, clhist.flox
>>> means, groups = flox.groupby_reduce(np.arange(6.0), np.array([0, 1, 2] * 2), func=clhist.flox.mean)
>>> means
array([1.5, 2.5, 3.5])
"""

from __future__ import annotations

import sys
from copy import deepcopy
from functools import partial
from math import prod as product
from types import FrameType
from typing import Any

import numpy as np
from flox.aggregations import AGGREGATIONS, Aggregation

from clhist.groupby import group_by
from clhist.statistics.spi import SPREADS, STATISTICS, TABLE

__all__ = [
    "all", "any", "argmax", "argmin", "count", "first", "last", "max", "mean", "median", "min", "nanargmax",
    "nanargmin", "nanfirst", "nanlast", "nanmax", "nanmean", "nanmedian", "nanmin", "nanprod", "nanstd", "nansum",
    "nanvar", "prod", "std", "sum", "var",
]  # fmt: skip

# What flox calls the reductions of one array, and how `clhist.GroupBy` computes them.
_REDUCED = [name for name in STATISTICS if name != "count"]
# Of which flox combines blocks in its own way.
_WHOLE = [name for name in _REDUCED if name in SPREADS or TABLE[name].is_position or TABLE[name].is_apart]
_STATISTICS = {
    **{name: (name, False) for name in _REDUCED},
    **{f"nan{name}": (name, True) for name in _REDUCED if name not in ("any", "all")},
    "nanlen": ("count", True),
    "len": ("count", True),
}
_NAT = np.iinfo(np.int64).min
# Results of groups whose elements are all NaN.
_OF_NONE = {"sum": 0, "prod": 1}
_OF_DATES = ("first", "last", "count")
_OWN_DTYPE = ("min", "max", "first", "last")  # of the dtype of the values, as flox has them


class _DeviceAggregation(Aggregation):
    """An aggregation that says what to write where a function of arrays is expected."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        raise TypeError(
            f"clhist.flox.{self.name} is an aggregation for flox, not a function of arrays; instead of "
            f"data.groupby(label).reduce(clhist.flox.{self.name}) write "
            f"flox.xarray.xarray_reduce(data, label, func=clhist.flox.{self.name})"
        )

    # flox has rules for some names: which fill value min_count needs, and that counts of dates are no dates.
    def __eq__(self, other: object) -> bool:
        return other == self.name if isinstance(other, str) else self is other

    __hash__ = object.__hash__

    def __deepcopy__(self, memo: dict[int, Any]) -> _DeviceAggregation:  # as flox does for each call
        copy: Any = object.__new__(type(self))
        copy.__dict__ = deepcopy(self.__dict__, memo)
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_name != "groupby_reduce":
            frame = frame.f_back
        # flox hands over integers for dates, in which NaT is a number: only its call knows their dtype.
        dtype = None if frame is None else frame.f_locals.get("datetime_dtype")
        if frame is not None and dtype is not None:
            _take_dates(copy, dtype, in_blocks=frame.f_locals.get("has_dask", True))
        return copy


class _Stages(tuple[Any, ...]):
    """The functions of a stage for dates of this dtype; so is the count that flox appends for `min_count`."""

    dates: np.dtype

    def __add__(self, others: Any) -> _Stages:
        return _stages([*self, *others], self.dates)


def _stages(names: Any, dates: np.dtype) -> _Stages:
    stages = _Stages(partial(_of_dates, name, dates) if name in _STATISTICS else name for name in names)
    stages.dates = dates
    return stages


def _take_dates(aggregation: Any, dtype: np.dtype, *, in_blocks: bool) -> None:
    """Make an aggregation one of dates or durations that come as integers; raise TypeError if it has none."""
    statistic = aggregation.name.removeprefix("nan")
    if statistic not in ("mean", "median", "min", "max", "count", *(("sum", "std") if dtype.kind == "m" else ())):
        difference = "a difference of dates" if dtype.kind == "M" else "durations"
        direct = f"clhist.group_by(by).{statistic}(array), or " if statistic in ("std", "argmin", "argmax") else ""
        raise TypeError(
            f"array: expected numbers for clhist.flox.{aggregation.name}, got {dtype}; take {direct}{difference} "
            "divided by numpy.timedelta64(1, 's')"
        )
    aggregation.numpy = _stages([aggregation.name if statistic != "count" else "nanlen"], dtype)
    if statistic in ("mean", "sum", "count"):
        aggregation.chunk = _stages([stage.args[0] for stage in aggregation.chunk], dtype)
    else:
        # Blocks of other statistics of dates cannot be combined: flox then accepts only "blockwise".
        aggregation.chunk = (None,)
    # float64 cannot represent present dates in nanoseconds.
    if not in_blocks and statistic in ("mean", "median", "std"):
        aggregation.dtype_init["final"] = np.dtype(np.int64)
        aggregation.fill_value[aggregation.name] = _NAT


def _of_dates(
    name: str,
    dates: np.dtype,
    group_idx: Any,
    array: Any,
    *,
    size: int | None = None,
    dtype: Any = None,
    **options: Any,
) -> np.ndarray:
    """Return what `_grouped` does, of dates that come as integers, and as integers; NaN of floats is NaT."""
    statistic, skipna = _STATISTICS[name]
    ticks, dtype = np.asarray(array), np.dtype(np.int64 if dtype is None else dtype)
    rows, groups, of = _groups(group_idx, ticks, size)
    missing = np.isnat(ticks.reshape(-1).view(dates))
    if statistic == "count":
        result = of.sum(~missing)
    # Sums in floats are those of blocks of a mean, where NaT is NaN.
    elif statistic == "sum" and dtype.kind == "f":
        result = of.sum(np.where(missing, np.nan, ticks.reshape(-1)), skipna=skipna)
    else:
        spread = {"ddof": options["ddof"]} if statistic in SPREADS and "ddof" in options else {}
        # NaT is skipped in any case here; groups whose result is NaT get it below.
        result = getattr(of, statistic)(ticks.reshape(-1).view(dates), skipna=True, **spread).view(np.int64)
        number, present = of.size(), of.sum(~missing)
        # A sum that skips NaT is 0 for a group of NaT alone: only groups without elements are missing.
        absent = (number == 0) if statistic == "sum" and skipna else (present == 0)
        absent = absent if skipna else absent | (present < number)
        result = np.where(absent, np.nan if dtype.kind == "f" else _NAT, result)
    return result.reshape(*rows, groups).astype(dtype, copy=False)


def _empty_value(statistic: str, dtype: np.dtype, fill_value: Any) -> Any:
    """Return the value of groups without values; of booleans the extremes are those of no values."""
    if dtype.kind != "b":
        return fill_value
    return {"min": True, "max": False}.get(statistic, bool(fill_value))


def _groups(group_idx: Any, array: np.ndarray, size: int | None) -> tuple[tuple[int, ...], int, Any]:
    """Return the shape of an array but for the last dimension, the number of groups along that, and all groups."""
    keys = np.asarray(group_idx).reshape(-1)
    groups = int(keys.max(initial=-1)) + 1 if size is None else size
    rest = array.shape[:-1]
    rows = product(rest)
    if rows != 1:  # a group for each group of each row
        keys = np.where(keys >= 0, keys + groups * np.arange(rows)[:, None], -1).reshape(-1)
    return rest, groups, group_by(keys, rows * groups)


def _numbers(name: str, array: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return an array as numbers, dates and durations as integers; the key of NaT is -1 where it is skipped."""
    statistic, skipna = _STATISTICS[name]
    if array.dtype.kind in "mM" and statistic in (*_OF_DATES, "any", "all"):
        if skipna and keys.size == array.size:
            keys = np.where(np.isnat(array).reshape(-1), -1, keys)
        return array.view(np.int64), keys
    if array.dtype.kind not in "biufc":
        raise TypeError(f"array: expected numbers for clhist.flox.{name}, got {array.dtype}")
    return array, keys


def _grouped(
    name: str,
    group_idx: Any,
    array: Any,
    *,
    axis: int = -1,
    size: int | None = None,
    fill_value: Any = None,
    dtype: Any = None,
    ddof: int = 0,
    **unused: Any,
) -> np.ndarray:
    """Return a statistic of the groups along the last dimension, as flox calls for it.

    Groups without values get `fill_value`; `dtype` is that of the result.
    """
    statistic, skipna = _STATISTICS[name]
    array, keys = np.asarray(array), np.asarray(group_idx).reshape(-1)
    input_dtype = array.dtype
    array, keys = _numbers(name, array, keys)
    if statistic == "sum" and input_dtype.kind in "iu" and dtype is not None and np.dtype(dtype).kind == "f":
        # The sum of which a mean is made may exceed the range of the integers.
        array = array.astype(dtype)
    rest, groups, of = _groups(keys, array, size)
    values = array.reshape(-1)
    options = {"ddof": ddof} if statistic in SPREADS else {}
    result = getattr(of, statistic)(values, skipna=skipna, **options)
    if statistic in _OWN_DTYPE:
        result, dtype = result.astype(array.dtype, copy=False), np.dtype(bool) if dtype == np.bool_ else None
    elif skipna and statistic in _OF_NONE:
        # flox fills only groups without elements; here also those with NaN alone have the identity element.
        result = np.where(of.count(values) > 0, result, result.dtype.type(_OF_NONE[statistic]))
    if input_dtype.kind in "mM" and statistic in _OF_DATES[:2]:
        result = result.view(input_dtype)
        fill_value = input_dtype.type("NaT") if fill_value is not None else None
        dtype = None
    if fill_value is not None:
        # Skipped NaN are no values, except for sums and products, which are filled only without elements.
        number = of.count(values) if skipna and statistic not in _OF_NONE else of.size()
        result = np.where(number > 0, result, _empty_value(statistic, result.dtype, fill_value))
    result = result.reshape(*rest, groups)
    return result if dtype is None else result.astype(dtype, copy=False)


def _on_device(name: str) -> Any:
    """Return flox's own aggregation, whose blocks are reduced by the device and combined as flox does."""
    aggregation: Any = deepcopy(AGGREGATIONS[name])
    aggregation.__class__ = _DeviceAggregation
    if name.removeprefix("nan") in _WHOLE:
        aggregation.numpy = (partial(_grouped, name),)
        return aggregation
    for stage in ("numpy", "chunk"):
        names = getattr(aggregation, stage)
        setattr(
            aggregation,
            stage,
            tuple(partial(_grouped, function) if function in _STATISTICS else function for function in names),
        )
    return aggregation


sum: Aggregation = _on_device("sum")
nansum: Aggregation = _on_device("nansum")
prod: Aggregation = _on_device("prod")
nanprod: Aggregation = _on_device("nanprod")
mean: Aggregation = _on_device("mean")
nanmean: Aggregation = _on_device("nanmean")
min: Aggregation = _on_device("min")
nanmin: Aggregation = _on_device("nanmin")
max: Aggregation = _on_device("max")
nanmax: Aggregation = _on_device("nanmax")
var: Aggregation = _on_device("var")
nanvar: Aggregation = _on_device("nanvar")
std: Aggregation = _on_device("std")
nanstd: Aggregation = _on_device("nanstd")
argmin: Aggregation = _on_device("argmin")
nanargmin: Aggregation = _on_device("nanargmin")
argmax: Aggregation = _on_device("argmax")
nanargmax: Aggregation = _on_device("nanargmax")
first: Aggregation = _on_device("first")
nanfirst: Aggregation = _on_device("nanfirst")
last: Aggregation = _on_device("last")
nanlast: Aggregation = _on_device("nanlast")
median: Aggregation = _on_device("median")
nanmedian: Aggregation = _on_device("nanmedian")
count: Aggregation = _on_device("count")
any: Aggregation = _on_device("any")
all: Aggregation = _on_device("all")
