"""A plugin of pytest that puts our groups, statistics and numbers of keys in the place of pandas' own, on the device.

What is made of the results, and all that we do not compute, stays pandas'.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from pandas import Index, MultiIndex, Series, array
from pandas.api.types import infer_dtype
from pandas.core.arrays import BaseMaskedArray, DatetimeArray, PeriodArray, TimedeltaArray
from pandas.core.groupby import generic, groupby, grouper, ops

import clhist

QUEUE = clhist.default_queue()  # given, so that small data goes to the device as well
OURS = {"idxmin": "argmin", "idxmax": "argmax"}  # what is called otherwise
OF_NONE = {"sum": 0, "prod": 1}  # which a group without values has
OF_VALUES = {*OF_NONE, "min", "max", "first", "last"}  # of the dtype of the values
OF_DATES = {*OF_VALUES, "mean", "median", "std", "sem", "idxmin", "idxmax", "cumsum", "cummin", "cummax", "rank"}
OF_COMPLEX = {"sum", "prod", "mean"}
AGGREGATED = {*OF_VALUES, "any", "all", "mean", "median", "var", "std", "sem", "skew", "kurt", "idxmin", "idxmax"}
RUNNING = {"cumsum", "cumprod", "cummin", "cummax"}
OPTIONS = {"ddof", "skipna", "ties_method", "ascending", "na_option", "pct", "axis"}
NAT = np.iinfo(np.int64).min
used: Counter[str] = Counter()
theirs = {
    "statistics": ops.WrappedCythonOp._call_cython_op,
    "factorize": grouper.algorithms.factorize,
    "joined": ops.BaseGrouper._ob_index_and_ids,
    "size": ops.BaseGrouper.size,
    "places": groupby.GroupBy._cumcount_array,
    "nunique": generic.SeriesGroupBy.nunique,
    "quantile": groupby.libgroupby.group_quantile,
}


def group_by(ids, ngroups):
    return clhist.group_by(np.asarray(ids), int(ngroups), queue=QUEUE)


def can_compute(op, values, mask, options):
    """Whether a statistic is one of ours, of these values and with these options."""
    how, kind = op.how, values.dtype.kind
    if how not in {*AGGREGATED, *RUNNING, "rank"} or not {*options} <= OPTIONS or not values.size:
        return False
    if kind not in "iufbcmM" or (kind == "c" and how not in OF_COMPLEX) or (kind in "mM" and how not in OF_DATES):
        return False
    # What a mask marks gets no key; where there is one, NaN is a value to pandas.
    if (mask is not None and kind in "fc" and np.isnan(values).any()) or options.get("na_option", "keep") != "keep":
        return False
    missing_may_count = (mask is not None and mask.any()) or kind in "mM" or how in ("idxmin", "idxmax")
    return options.get("skipna", True) or not missing_may_count


def statistics(op, values, *, min_count, ngroups, comp_ids, mask, result_mask, initial=0, **options):
    if not can_compute(op, values, mask, options):
        return theirs["statistics"](
            op, values, min_count=min_count, ngroups=ngroups, comp_ids=comp_ids, mask=mask,
            result_mask=result_mask, initial=initial, **options,
        )  # fmt: skip
    used["aggregates" if op.kind == "aggregate" else "values of rows"] += 1
    rows = []
    for n, row in enumerate(values):
        ids = np.asarray(comp_ids)
        missing = np.zeros(row.shape, bool) if mask is None else np.asarray(mask[n])
        if row.dtype.kind in "mM":
            row, missing = row.view(np.int64), missing | np.isnat(row)
        groups = group_by(np.where(missing, -1, ids), ngroups)
        compute = aggregated if op.kind == "aggregate" else for_each_row
        own = None if result_mask is None else result_mask[n]
        if own is not None and op.kind == "transform":
            own |= ids < 0
        rows.append(compute(op, groups, np.ascontiguousarray(row), values.dtype, min_count, own, missing, options))
    found = np.array(rows)
    if op.how in op.cast_blocklist or values.dtype.kind in "mM":
        return found
    return ops.maybe_downcast_to_dtype(found, op._get_result_dtype(values.dtype))


def aggregated(op, groups, row, dtype, min_count, result_mask, missing, options):
    """Return a statistic of each group as pandas has it."""
    how = op.how
    options = {name: each for name, each in options.items() if name in ("ddof", "skipna")}
    if how in ("var", "std", "sem"):
        options = {"ddof": 1, **options}
    found = getattr(groups, OURS.get(how, how))(row, **options)
    if how in ("any", "all", "idxmin", "idxmax"):
        return found
    if row.dtype.kind in "iub" and how in OF_VALUES - {*OF_NONE}:
        found = found.astype(row.dtype)
    few = groups.count(row) < max(min_count, 0 if how in OF_NONE else 1)
    if dtype.kind in "mM":
        few |= found != found
        with np.errstate(invalid="ignore"):
            return np.where(few, NAT, found.astype(np.int64)).view(dtype)
    if result_mask is not None:
        result_mask |= few | (found != found)
        return found
    return np.where(few, np.nan, found) if few.any() else found


def for_each_row(op, groups, row, dtype, min_count, result_mask, missing, options):
    """Return a value for each element as pandas has it."""
    if op.how == "rank":
        method = options.get("ties_method", "average")
        return groups.rank(row, method, ascending=options["ascending"], pct=options["pct"])
    if dtype.kind not in "mM":
        row = row.view(np.uint8) if row.dtype.kind == "b" else row
        row = op._get_cython_vals(row, uses_mask=result_mask is not None)
        row = row.astype(np.float32) if row.dtype == np.float16 else row
    found = getattr(groups, op.how)(row, skipna=options.get("skipna", True))
    return np.where(missing, NAT, found).view(dtype) if dtype.kind in "mM" else found


def factorize(values, sort=False, use_na_sentinel=True, **options):
    """Number keys: numbers and dates by `clhist.factorize`, texts by `clhist.group_by`."""
    is_array = isinstance(values, np.ndarray)
    is_date = isinstance(values, DatetimeArray | TimedeltaArray | PeriodArray)
    dtype = getattr(values, "dtype", None)
    numbers = values._ndarray.view("M8[ns]") if is_date else values
    is_number = (is_array or is_date) and numbers.dtype.kind in "iufbmM" and numbers.dtype != np.float16
    if is_number and not options and numbers.ndim == 1:
        used["numbers of keys"] += 1
        codes, uniques = clhist.factorize(numbers, sort, use_na_sentinel, queue=QUEUE)
        uniques = values._from_backing_data(uniques.view(values._ndarray.dtype)) if is_date else uniques
        return codes.astype(np.intp), uniques
    is_text = getattr(dtype, "name", "") == "str" or (is_array and dtype.kind == "O" and values.ndim == 1)
    if is_text and use_na_sentinel and not options and len(values) and infer_dtype(values, skipna=True) == "string":
        used["numbers of texts"] += 1
        groups = clhist.group_by(values, sort=sort, queue=QUEUE)
        made = Index if isinstance(values, Index) else array
        return np.asarray(groups._keys).astype(np.intp), groups.keys if is_array else made(groups.keys, dtype=dtype)
    return theirs["factorize"](values, sort=sort, use_na_sentinel=use_na_sentinel, **options)


def joined(self, levels, codes, names, sorts):
    """Number the combinations of several keys; those of -1 are missing."""
    if len({*sorts}) > 1 or not len(codes[0]):
        return theirs["joined"](self, levels, codes, names, sorts)
    used["numbers of several keys"] += 1
    groups = clhist.group_by([np.ma.masked_equal(each, -1) for each in codes], sort=sorts[0], queue=QUEUE)
    keys = groups.keys if len(codes) > 1 else [groups.keys]
    index = MultiIndex(levels=levels, codes=keys, names=names, verify_integrity=False)
    return index, np.asarray(groups._keys).astype(np.intp)


def size(self):
    if not self.ngroups:
        return theirs["size"](self)
    used["sizes"] += 1
    return Series(group_by(self.ids, self.ngroups).size(), index=self.result_index, dtype="int64", copy=False)


def count_level_2d(masked, labels, max_bin):
    used["counts"] += 1
    groups = group_by(labels, max_bin)
    return np.array([groups.count(np.where(row, 1.0, np.nan)) for row in masked]).reshape(len(masked), max_bin)


def places(self, ascending=True):
    ids = self._grouper.ids
    if not len(ids):
        return theirs["places"](self, ascending)
    used["places"] += 1
    found = group_by(ids, self._grouper.ngroups).cumcount(ascending=bool(ascending))
    return np.where(ids == -1, np.nan, found) if self._grouper.has_dropped_na else found


def nunique(self, dropna=True):
    result, values = theirs["nunique"](self, dropna), self.obj._values
    if isinstance(values, np.ndarray | BaseMaskedArray) and values.dtype.kind in "iufbmM" and len(values):
        used["nunique"] += 1
        found = group_by(self._grouper.ids, self._grouper.ngroups).nunique(values, skipna=dropna)
        if isinstance(result, Series):
            return result._constructor(found, index=result.index, name=result.name)
        result[result.columns[-1]] = found
    return result


def quantile(out, values, mask, labels, qs, interpolation, starts, ends, result_mask=None, is_datetimelike=False):
    if interpolation != "linear" or is_datetimelike or not values.size or not len(qs):
        return theirs["quantile"](
            out, values=values, mask=mask, labels=labels, qs=qs, interpolation=interpolation, starts=starts, ends=ends,
            result_mask=result_mask, is_datetimelike=is_datetimelike,
        )  # fmt: skip
    used["quantiles"] += 1
    ids = np.repeat(np.arange(len(starts)), ends - starts)  # values are sorted by group
    groups = group_by(np.where(np.asarray(mask, bool), -1, ids), len(starts))
    found = groups.quantile(np.asarray(values, np.float64), [*qs]).T
    out[:] = found
    if result_mask is not None:
        result_mask[:] = np.isnan(found)


class Module:
    """A module of pandas with some functions of ours."""

    def __init__(self, module, **ours):
        self.__dict__.update(ours, _module=module)

    def __getattr__(self, name):
        return getattr(self._module, name)


grouper.algorithms = Module(grouper.algorithms, factorize=factorize)
grouper._factorize_monotonic = lambda values, sort: None
groupby.lib = Module(groupby.lib, count_level_2d=count_level_2d)
groupby.libgroupby = Module(groupby.libgroupby, group_quantile=quantile)
groupby.GroupBy._cumcount_array = places
generic.SeriesGroupBy.nunique = nunique
ops.WrappedCythonOp._call_cython_op = statistics
ops.BaseGrouper._reduceat_aggregate = lambda *arguments: None
ops.BaseGrouper._ob_index_and_ids = joined
ops.BaseGrouper.size = size


def pytest_terminal_summary(terminalreporter):
    for what, number in sorted(used.items()):
        terminalreporter.write_line(f"ours: {number} {what}")
