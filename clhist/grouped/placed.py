"""Conversions around the kernels of groups: arrays of the caller to kernel arguments, and results back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from clhist._core.opencl.arrays import (
    Array,
    as_bytes,
    check_context,
    check_contiguous,
    check_layout,
    check_unmasked,
    is_device_array,
    mask_of,
)
from clhist._core.opencl.halves import as_numbers
from clhist._core.runtime.columns import ColumnData, of_list, read_column
from clhist._core.runtime.labelled import unlabelled
from clhist._core.runtime.reading import as_array, check_width
from clhist.grouped import host
from clhist.grouped.columns import flattened
from clhist.grouped.dates import NAT, SWEPT, as_durations, as_integers, dates_of, halves, mean_of_halves
from clhist.grouped.groups import Groups, numbered_texts, numbers_of
from clhist.grouped.hints import check_index, check_room
from clhist.operators.c_types import native, supported_dtype
from clhist.statistics.host import Grouped
from clhist.statistics.outputs import Column, Numbers
from clhist.statistics.quantiles import Method
from clhist.statistics.table import (
    OF_ANY,
    OF_COLUMN,
    OF_ORDER,
    TABLE,
    column_of,
    host_statistics,
    place_of,
    quantile_of,
    split_statistics,
)

if TYPE_CHECKING:
    import pyopencl as cl
    from numpy.typing import DTypeLike

    from clhist.statistics.selection_texts import Nan


_SELECTED = frozenset(("median", "mode"))  # statistics that need more than the sweeps of `statistics_of`


class Request(NamedTuple):
    """The statistics of one column of `clhist.GroupBy.agg`, checked.

    Attributes
    ----------
    name : str
        Of the column.
    x : array or column
        The values, as the caller passed them.
    names : tuple of str
        All statistics, in order.
    statistics : tuple of str
        Those that are no quantiles, places or statistics of values of any type.
    data : ColumnData or None
        Values that take calls of their own: with missing ones, dates, text.
    array, column : array and Column, or None
        Values of all others, and what sweeps compute of them.
    exact : tuple of str
        Statistics that are made of reproducible sums.
    """

    name: str
    x: Any
    names: tuple[str, ...]
    statistics: tuple[str, ...]
    data: ColumnData | None
    array: Array | None
    column: Column | None
    exact: tuple[str, ...]


class Placed:
    """Keys of groups, with the conversions of values and results that their statistics need."""

    num_groups: int
    _keys: Array
    _user_queue: cl.CommandQueue | None
    _on_device: bool
    _numbers: Numbers
    _shape: tuple[int, ...]
    _index: Any  # of pandas, if the keys have one

    @property
    def _on_host(self) -> bool:
        """Whether the host computes statistics, since there are few elements and no queue."""
        return self._user_queue is None

    @property
    def _queue(self) -> cl.CommandQueue:
        """Where kernels run, also those of the few things that only kernels compute."""
        if self._user_queue is not None:
            return self._user_queue
        from clhist._core.opencl.device import default_queue  # PyOpenCL, which few elements do without

        return default_queue()

    def _grouped(self, array: Array, column: Column, nan: str = "") -> Grouped:
        return Grouped(self._keys, array, column, max(1, self.num_groups), nan)

    def _bins(self, *sizes: int) -> int:
        """Return the number of results; raise MemoryError if arrays of such bytes for each group do not fit."""
        if self._on_host:
            return max(1, self.num_groups)
        check_room(self.num_groups, self._queue, *sizes)
        return max(1, self.num_groups)

    def _array(self, name: str, x: Any, *, halves: bool = False) -> Array:
        """Return an array of the caller's, checked; of half precision as float32 unless it may be `halves`."""
        on_device = is_device_array(x)
        # Plain arrays have no missing elements.
        if not on_device and type(x) is not np.ndarray:
            check_unmasked(name, x)
            if (column := read_column(x)) is not None:
                if column.missing is not None:
                    raise ValueError(f"{name}: expected values none of which is missing, got some")
                x = column.values
            x = as_array(name, x)
        array: Array = x
        self._check(name, on_device, array.shape)
        if on_device and not array.dtype.isnative:
            raise TypeError(f"{name}: expected an array of {native(array.dtype)}, got one of {array.dtype.str}")
        if array.dtype.kind == "O":
            check_width(name, array, array)
            types = sorted({type(element).__name__ for element in array.flat})
            hint = "; convert them to float64, or to integers of their least unit" if "Decimal" in types else ""
            hint = "; pandas.array(..., dtype='Int64') has missing numbers" if {*types} <= {"int", "NoneType"} else hint
            if {*types} <= {"date", "datetime", "timedelta", "NoneType"}:
                hint = "; convert them to datetime64 or timedelta64, as pandas.to_datetime does"
            if "str" in types:
                hint = f"; statistics of text are {', '.join((*OF_ORDER, *OF_ANY))}"
            raise TypeError(
                f"{name}: OpenCL has no type for object; expected numbers, booleans, dates or durations, "
                f"got {' and '.join(types[:3])}{hint}"
            )
        if supported_dtype(array.dtype, name).names:
            raise TypeError(f"{name}: expected an array of numbers, got {array.dtype}")
        if on_device:
            check_context([(name, array)], self._queue.context)
            check_contiguous(name, array)
        return array if halves else as_numbers(array)

    def _column(
        self,
        name: str,
        x: Any,
        statistics: tuple[str, ...],
        skipna: bool,
        ddof: int,
        dtype: DTypeLike | None,
        *,
        halves: bool = False,
    ) -> tuple[Array, Column]:
        """Return the array of one column, and the request to the sweeps.

        Half-precision values stay so if `halves` is true and only sweeps read them; otherwise they become float32.
        """
        x, dates = as_integers(x)
        array = self._array(name, x, halves=halves and _SELECTED.isdisjoint(statistics))
        return array, column_of(name, array.dtype, statistics, self._numbers.real, skipna, ddof, dtype, dates)

    def _check_any(self, name: str, x: Any, names: Sequence[str]) -> None:
        """Raise TypeError or ValueError if values of any type are not as the keys are.

        Lists and columns of PyArrow have no shape; theirs is checked when they are read.
        """
        x = unlabelled(x)
        shape = () if x is None or np.isscalar(x) else getattr(x, "shape", None)
        if shape is None:
            return
        self._check(name, is_device_array(x), tuple(shape))
        if is_device_array(x):
            check_context([(name, x)], self._queue.context)
            check_layout(name, x)
            if not {*names} <= {*OF_ANY}:
                self._array(name, x)

    def _request(
        self, name: str, request: Any, skipna: bool, ddof: int, dtype: DTypeLike | None, reproducible: bool
    ) -> Request:
        """Return the statistics of a column of `agg`, checked; only text is numbered for that.

        Raises
        ------
        TypeError, ValueError
            If the request, its values or an option is wrong; the message names it.
        """
        names, statistics = split_statistics(name, request)
        x = request[0]
        if self._index is not None:
            check_index(name, x, self._index)
        data = self._separate_data(name, x, statistics, skipna) if statistics else None
        array = column = None
        exact: tuple[str, ...] = ()
        if statistics:
            is_dates = data is not None and data.values.dtype.kind in "mM"
            if is_dates and dtype is not None:
                raise TypeError(f"dtype: expected none for {name}, which has dates or durations, got {dtype!r}")
            values, skips = (x, skipna) if data is None else (data.values, skipna or is_dates)
            array, column = self._column(name, values, statistics, skips, ddof, dtype, halves=not reproducible)
            if reproducible and not is_dates:
                from clhist.grouped.reproducible import names_of

                exact = names_of(column)
        if len(statistics) < len(names):
            self._check_any(name, x, names)
        if data is not None:
            array, column, exact = None, None, ()
        return Request(name, x, names, statistics, data, array, column, exact)

    def _separate_data(self, name: str, x: Any, statistics: tuple[str, ...], skipna: bool) -> ColumnData | None:
        """Return values that take calls of their own; None of others, which one sweep computes.

        These are columns with missing values, dates unless all statistics are in `SWEPT`, and text.
        """
        # Fast path: such arrays have no missing values and need no conversion.
        if is_device_array(x) or (type(x) is np.ndarray and x.dtype.kind in "biufc"):
            return None
        if (column := read_column(x)) is None:
            is_swept = skipna and {*statistics} <= {*SWEPT}
            if getattr(getattr(x, "dtype", None), "kind", "") in ("m", "M") and not is_swept:
                column = ColumnData(np.asarray(x), None)
            elif {*statistics} <= {*OF_ORDER}:
                column = numbered_texts(name, x, statistics, self._user_queue)
        if column is not None:
            self._check(name, False, column.values.shape)
        return column

    def _exact_sums(self, array: Array, column: Column) -> dict[str, Any]:
        """Return the statistics of a column that are made of reproducible sums."""
        from clhist.grouped.reproducible import reproducible_statistics

        results = reproducible_statistics(self._keys, array, column, self._bins(8, 8), self._numbers, self._queue)
        return {statistic: self._like_keys(result) for statistic, result in results.items()}

    def _swept(self, arrays: Sequence[Array], columns: tuple[Column, ...]) -> list[dict[str, Any]]:
        """Return the statistics of columns by name, and those that others depend on; without order statistics."""
        if self._on_host:
            pairs = zip(arrays, columns, strict=True)
            return [host_statistics(self._grouped(array, column), column.statistics) for array, column in pairs]
        from clhist.grouped.sweep import statistics_of

        # Kernels need at least one group.
        return statistics_of(self._keys, arrays, columns, max(1, self.num_groups), self._numbers, self._queue)

    def _finished(
        self, request: Request, results: dict[str, Any], array: Array | None, skipna: bool, dtype: DTypeLike | None
    ) -> dict[str, Any]:
        """Return all statistics of a column as the caller gets them, in the order of their names."""
        name, x, names, statistics, _, _, column, _ = request
        if column is not None:
            if "median" in statistics:
                results["median"] = self._selected(array, column)
            if "mode" in statistics:
                results["mode"] = self._most_frequent(array, column)
            # Kernels return device arrays as they are, unless there are no groups.
            if not (self._on_device and self.num_groups):
                for statistic in statistics if column.dates is None else (*statistics, "count"):
                    results[statistic] = self._returned(results[statistic])
            if column.dates is not None:
                results |= dates_of(results, column.dates)
        for statistic in names if len(statistics) < len(names) else ():
            if statistic not in statistics:
                results[statistic] = self._of_other(name, x, statistic, skipna, dtype)
        return {statistic: results[statistic] for statistic in names}

    def _of_column(
        self, name: str, column: ColumnData, names: tuple[str, ...], skipna: bool, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return statistics of the values of a column that are not missing; they are missing of groups without any."""
        if column.values.dtype.kind in "mM":
            results = self._of_dates(name, column.values, names, skipna, options)
            return results if column.like is None else {
                own: column.like(array) if array.dtype.kind == "M" else array for own, array in results.items()
            }  # fmt: skip
        groups, missing = self._without(column.missing), column.missing
        # In polars NaN is a value, but not an extreme: extremes need a sweep that skips NaN.
        if column.nan_is_value:
            extremes = tuple(own for own in names if own in ("min", "max", "argmin", "argmax"))
            others = *(own for own in names if own not in extremes), "count"
            results = groups.agg(skipna=False, **options, **{name: (column.values, *others)})[name]
            if "median" in names:
                real, dtype = self._numbers.real, options.get("dtype")
                of_order = column_of(name, as_numbers(column.values).dtype, ("median",), real, False, 0, dtype)
                results["median"] = Placed._of_order(groups, column.values, of_order, None)
            if extremes:
                results |= groups.agg(**options, **{name: (column.values, *extremes)})[name]
            has_nan = groups.agg(x=(np.isnan(column.values), "any"))["x"]["any"]
        else:
            results = groups.agg(skipna=skipna, **options, **{name: (column.values, *names, "count")})[name]
            has_nan = np.zeros(self.num_groups, bool)
        empty, masked = results["count"] == 0, {}
        for own in names:
            result = results[own]
            mask = empty if own in OF_COLUMN else (result != result) & ~has_nan
            if own in ("argmin", "argmax"):
                # Behind the mask stands NAT: a consumer that drops the mask must not take -1 for an index.
                mask = result < 0
                result = np.where(mask, NAT, result)
            if column.nan_is_value and own in ("var", "std", "sem"):
                mask = results["count"] <= options.get("ddof", 0)
            masked[own] = np.ma.array(result, mask=mask)
        if missing is not None and not skipna:
            self._propagate(masked, column)
        return masked if column.like is None else {
            own: data if own in ("argmin", "argmax", "count") else column.like(data) for own, data in masked.items()
        }  # fmt: skip

    def _propagate(self, results: dict[str, Any], column: ColumnData) -> None:
        """Mask in place the results of groups with missing values that depend on these."""
        own = cast(Any, self)
        number = own.agg(x=(column.missing, "sum"))["x"]["sum"]
        some = number > 0
        for name, result in results.items():
            if name in ("first", "last"):
                both = own.agg(x=(column.values, name), missing=(column.missing, name))
                result.data[...], result.mask[...] = both["x"][name], both["missing"][name] | result.mask & ~some
            elif name == "count":
                result.data[...] += number  # skipna=False counts missing values, as it counts NaN
            elif name in ("any", "all"):
                # The other values may decide: any() with a True, all() with a False.
                result.mask |= some & (result.data == (name == "all"))
            else:
                result.mask |= some

    def _propagate_nat(self, results: dict[str, Any], dates: np.ndarray) -> None:
        """Change in place the results of groups with NaT, as NaN changes those of floats."""
        own = cast(Any, self)
        is_missing = np.isnat(dates)
        missing = own.agg(x=(is_missing, "sum", "argmax"))["x"]
        some = missing["sum"] > 0
        for name, result in results.items():
            if name == "count":
                result += missing["sum"]
            elif name in ("argmin", "argmax"):
                result[some] = missing["argmax"][some]
            elif name in ("first", "last"):
                is_nat = own.agg(x=(is_missing, name))["x"][name]
                result[is_nat & some] = "NaT"
            else:
                result[some] = "NaT"

    def _of_dates(
        self, name: str, dates: np.ndarray, names: tuple[str, ...], skipna: bool, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return statistics of dates or durations; those of sums are exact."""
        ticks, dtype = as_integers(dates)
        column = column_of(name, ticks.dtype, names, self._numbers.real, True, 0, None, dtype)
        swept, own = tuple(name for name in names if name in SWEPT), cast(Any, self)
        results: dict[str, Any] = own.agg(x=(dates, *swept))["x"] if swept else {}
        missing = ticks == NAT
        groups = self._without(missing if missing.any() else None)
        ticks = np.where(missing, 0, ticks)
        if "mode" in names:
            modes = groups.agg(x=(ticks, "mode", "count"))["x"]
            results["mode"] = np.where(modes["count"] > 0, modes["mode"], NAT).view(dtype)
        if "sum" in names:
            results["sum"] = groups.sum(ticks).view(dtype)
        if "mean" in names:
            upper, lower = halves(ticks)
            sums = groups.agg(upper=(upper, "sum", "count"), lower=(lower, "sum"))
            mean = mean_of_halves(sums["upper"]["sum"], sums["lower"]["sum"], sums["upper"]["count"])
            results["mean"] = mean.view(dtype)
        if "median" in names:
            results["median"] = Placed._of_order(groups, ticks, column, None).view(dtype)
        if "std" in names:
            present = ticks if not missing.any() else ticks[~missing]
            # Shift by the least date: float64 rounds ticks since 1970, and differences need unsigned 64 bits.
            least = np.int64(present.min() if present.size else 0)
            shifted = (ticks.view(np.uint64) - least.view(np.uint64)).astype(np.float64)
            ddof, is_exact = options.get("ddof", 0), options.get("reproducible", False)
            results["std"] = as_durations(groups.std(shifted, ddof=ddof, reproducible=is_exact), dtype)
        if not skipna:
            self._propagate_nat(results, dates)
        return results

    def _of_order(self, values: np.ndarray, column: Column, q: float | None, method: Method = "linear") -> np.ndarray:
        """Return the median or a quantile of each group: exact of dates as integers, of floats with NaN greatest."""
        if column.dates is not None:
            column = replace(column, result=np.dtype(np.int64), dates=None)
        if not values.size:
            none = NAT if column.result.kind == "i" else np.nan
            return np.full(self.num_groups, none, column.result)
        array = self._placed(flattened(as_numbers(values)))
        quantiles = self._selected(array, column, q, nan="greatest", method=method)
        return np.asarray(self._returned(quantiles))

    def _without(self, missing: np.ndarray | None) -> Any:
        """Return the same groups without the elements that are missing."""
        if missing is None:
            return self
        self._check("x", False, missing.shape)
        if self._on_host:
            keys = host.joined(self._keys, self.num_groups, missing, 1)
        else:
            from clhist.grouped.element_kernels import join

            keys = join(self._keys, self.num_groups, as_bytes(missing), 1, self._queue)  # 1 is outside of [0, 1)
            keys = keys if is_device_array(self._keys) else keys.get(self._queue)
        new = cast(Any, type(self))
        return new(Groups(keys.reshape(self._shape), self.num_groups, None, (None,), False, self._user_queue))

    def _check(self, name: str, on_device: bool, shape: tuple[int, ...]) -> None:
        """Raise TypeError or ValueError if an array is not where the keys are, or not of their shape."""
        if on_device != self._on_device:
            kinds = ("PyOpenCL", "NumPy") if self._on_device else ("NumPy", "PyOpenCL")
            raise TypeError(f"{name}: expected a {kinds[0]} array as the keys are, got a {kinds[1]} array")
        if shape != self._shape:
            rows = "; vectors are combined by clhist.reduce_by_index((num_groups, d), 'mean', keys, x)"
            hint = rows if shape[:-1] == self._shape else ""
            raise ValueError(f"{name}: expected shape {self._shape} as of the keys, got {shape}{hint}")

    def _placed(self, array: Array) -> Array:
        """Return an array in one dimension, copied to the device once unless that shares the host's memory."""
        flat = flattened(array)
        if is_device_array(flat) or self._on_host or not flat.size:
            return flat
        from clhist._core.opencl.new_arrays import shares_memory

        return flat if shares_memory(self._queue.device) else self._to_device(flat)

    def _to_device(self, array: np.ndarray) -> Array:
        from clhist._core.opencl.new_arrays import to_device

        return to_device(self._queue, array)

    def _like_keys(self, result: Array) -> Array:
        if is_device_array(self._keys):
            return result if is_device_array(result) else self._to_device(result)
        return result.get(self._queue) if is_device_array(result) else result

    def _returned(self, result: Array) -> Any:
        """Return a result where the caller's arrays are, without the group that kernels need if there are none."""
        if not self._on_device and is_device_array(result):
            result = result.get(self._queue)
        return result if result.shape[0] == self.num_groups else result[: self.num_groups]

    def _stacked(self, results: Sequence[Array], dtype: np.dtype) -> Any:
        """Return results of the groups as the rows of one array."""
        shape = len(results), self.num_groups
        if not self._on_device:
            return np.stack(results) if results else np.empty(shape, dtype)
        from clhist._core.opencl.new_arrays import empty

        stacked = empty(self._queue, shape, dtype, True)
        for row, result in zip(stacked, results, strict=True):
            row[...] = result
        return stacked

    def _most_frequent(self, array: Array, column: Column) -> Array:
        if self._on_host:
            return host_statistics(self._grouped(array, column), ("mode",))["mode"]
        from clhist.grouped.different import most_frequent

        return self._like_keys(most_frequent(self._keys, self._bins(8, 8, 8), array, column.skipna, self._queue))

    def _of_other(self, name: str, x: Any, statistic: str, skipna: bool, dtype: DTypeLike | None) -> Any:
        """Return a quantile, a place, or a statistic of values of any type."""
        order, place = quantile_of(statistic), place_of(statistic)
        try:
            if order is not None:
                q, method = order
                return cast(Any, self).quantile(x, q, method=method, skipna=skipna, dtype=dtype)
            if place is not None:
                return cast(Any, self).nth(x, place)
        except (TypeError, ValueError) as error:
            raise type(error)(str(error).replace("x:", f"{name}:", 1)) from error
        return self._of_any(name, x, statistic, skipna)

    def _of_any(self, name: str, x: Any, statistic: str, skipna: bool) -> Any:
        """Return the size or the number of different values of each group; values may be of any type."""
        x = unlabelled(x)
        if statistic == "size":
            self._check(name, is_device_array(x), np.shape(x) if getattr(x, "shape", None) is None else tuple(x.shape))
            return self.size()
        self._check_any(name, x, (statistic,))
        x = of_list(name, x)
        groups, dtype = self._bins(8), getattr(x, "dtype", None)
        if isinstance(dtype, np.dtype) and dtype.kind in "iuf" and dtype.itemsize <= 8 and mask_of(x) is None:
            array = self._placed(self._array(name, x))
            if array.size and not self._on_host and _sorts(array, groups, self._queue):
                column = column_of(name, array.dtype, (), self._numbers.real, skipna, 0, None)
                return self._returned(self._like_keys(self._selected(array, column, counts=True)))
        try:
            numbers, labels, on_device = numbers_of(x, False, getattr(dtype, "kind", "") != "O", self._user_queue)
        except (TypeError, ValueError) as error:
            raise type(error)(str(error).replace("keys:", f"{name}:", 1)) from error
        self._check(name, on_device, numbers.shape)
        if self._on_host:
            counts = host.number_of_different(self._keys, groups, numbers, len(labels), skipna)
            return self._returned(counts)
        from clhist.grouped.different import number_of_different

        arguments = self._keys, groups, numbers, len(labels), skipna, self._queue
        return self._returned(self._like_keys(number_of_different(*arguments)))

    def _selected(
        self,
        array: Array,
        column: Column,
        q: float | None = None,
        weights: Array | None = None,
        counts: bool = False,
        nan: Nan | None = None,
        method: Method = "linear",
    ) -> Array:
        """Return the median of each group, the quantile of probability `q`, or how many different values it has."""
        bins = self._bins(8)
        if self._on_host and weights is None:
            with np.errstate(all="ignore"):
                return cast(Any, TABLE["quantile"].host)(self._grouped(array, column, nan or ""), q, method)
        if not array.size:
            nothing = np.full(bins, np.nan, column.result)
            return self._to_device(nothing) if self._on_device else nothing
        from clhist._core.opencl.operands import in_place
        from clhist.statistics.selection import select
        from clhist.statistics.selection_texts import Order

        arrays = [self._keys, array] if weights is None else [self._keys, array, weights]
        arrays = [as_bytes(operand) if operand.dtype.kind == "b" else operand for operand in arrays]
        keys, array, *rest = (in_place(operand, self._queue) for operand in arrays)
        nan = nan or ("skipped" if column.skipna else "greatest" if counts else "propagated")
        dtypes = keys.dtype, array.dtype, np.dtype(np.int64) if counts else column.result, self._numbers.real
        order = Order(*dtypes, nan, q is None, rest[0].dtype if rest else None, counts, method)
        return select(order, keys, array, bins, self._queue, q=q or 0.0, weights=rest[0] if rest else None)

    def size(self) -> Any:
        """Return how many elements each group has."""
        raise NotImplementedError


def _sorts(values: Array, num_groups: int, queue: cl.CommandQueue) -> bool:
    from clhist.statistics.selection import sorts

    return sorts(values, num_groups, queue)
