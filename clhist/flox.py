"""Aggregations for flox, and so for xarray, whose grouped reductions run on an OpenCL device.

``flox.groupby_reduce(x, by, func=clhist.flox.mean)`` and ``flox.xarray.xarray_reduce(data, "label",
func=clhist.flox.mean)`` take them in the place of names: `sum`, `prod`, `mean`, `var`, `std`, `min`, `max`,
`argmin`, `argmax`, `first`, `last` and `median`, each also with `nan` before its name, which skips NaN; `count`, `any`
and `all`.

Of Dask arrays the device reduces the blocks of sums, products, means, minima, maxima, counts, `any` and `all`, and
whole groups where flox's method is "blockwise"; flox itself does the rest.

flox must be installed: ``pip install flox``.
"""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from math import prod as product
from typing import Any

import numpy as np
from flox.aggregations import AGGREGATIONS, Aggregation

from clhist.groupby import group_by
from clhist.statistics.outputs import SPREADS
from clhist.statistics.table import STATISTICS, TABLE

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
_OF_NONE = {"sum": 0, "prod": 1}  # of groups whose elements are all NaN
_OF_DATES = ("first", "last", "count")
_OWN_DTYPE = ("min", "max", "first", "last")  # of the dtype of the values, as flox has them


class _OnDevice(Aggregation):
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


def _empty_value(statistic: str, dtype: np.dtype, fill_value: Any) -> Any:
    """Return what groups without values have; of booleans the extremes are those of no values."""
    if dtype.kind != "b":
        return fill_value
    return {"min": True, "max": False}.get(statistic, bool(fill_value))


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
    given = array.dtype
    if given.kind in "mM" and statistic in (*_OF_DATES, "any", "all"):
        if skipna and keys.size == array.size:
            keys = np.where(np.isnat(array).reshape(-1), -1, keys)
        array = array.view(np.int64)
    elif given.kind not in "biufc":
        raise TypeError(f"array: expected numbers for clhist.flox.{name}, got {given}")
    groups = int(keys.max(initial=-1)) + 1 if size is None else size
    rest = array.shape[:-1]
    rows = product(rest)
    if rows != 1:  # a group for each group of each row
        keys = np.where(keys >= 0, keys + groups * np.arange(rows)[:, None], -1).reshape(-1)
    of = group_by(keys, rows * groups)
    values = array.reshape(-1)
    options = {"ddof": ddof} if statistic in SPREADS else {}
    found = getattr(of, statistic)(values, skipna=skipna, **options)
    if statistic in _OWN_DTYPE:
        found, dtype = found.astype(array.dtype, copy=False), np.dtype(bool) if dtype == np.bool_ else None
    elif skipna and statistic in _OF_NONE:  # flox fills groups without elements only
        found = np.where(of.count(values) > 0, found, found.dtype.type(_OF_NONE[statistic]))
    if given.kind in "mM" and statistic in _OF_DATES[:2]:
        found = found.view(given)
        fill_value = given.type("NaT") if fill_value is not None else None
        dtype = None
    if fill_value is not None:
        number = of.count(values) if skipna and statistic not in _OF_NONE else of.size()
        found = np.where(number > 0, found, _empty_value(statistic, found.dtype, fill_value))
    found = found.reshape(*rest, groups)
    return found if dtype is None else found.astype(dtype, copy=False)


def _on_device(name: str) -> Any:
    """Return flox's own aggregation, whose blocks are reduced by the device and combined as flox does."""
    found: Any = deepcopy(AGGREGATIONS[name])
    found.__class__ = _OnDevice
    if name.removeprefix("nan") in _WHOLE:
        found.numpy = (partial(_grouped, name),)
        return found
    for stage in ("numpy", "chunk"):
        names = getattr(found, stage)
        setattr(found, stage, tuple(partial(_grouped, each) if each in _STATISTICS else each for each in names))
    return found


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
