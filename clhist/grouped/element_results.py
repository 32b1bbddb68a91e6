"""A result for each element of groups: statistics of its group, ranks, places and running values."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from clhist._core.opencl.arrays import Array, as_bytes, is_device_array
from clhist._core.opencl.lost import check_process
from clhist._core.runtime.columns import picked, read_column
from clhist.grouped import host
from clhist.grouped.columns import flattened
from clhist.grouped.dates import NAT, as_integers
from clhist.grouped.factorized import factorized
from clhist.grouped.groups import numbered_texts
from clhist.grouped.hints import check_index
from clhist.grouped.placed import Placed
from clhist.grouped.running import RUNNING, running
from clhist.operators.c_types import check_booleans, literal, native
from clhist.operators.names import name_hint
from clhist.statistics.outputs import Column
from clhist.statistics.table import TABLE, column_of

if TYPE_CHECKING:
    from numpy.typing import DTypeLike


class ElementResults(Placed):
    """Groups with results for each element, where the caller's arrays are."""

    def _rows(self, results: Any, none: Any = None) -> Any:
        """Return the result of the group of each element, where the caller's arrays are."""
        keys, is_elsewhere = self._keys, is_device_array(self._keys) and not self._on_device
        if not self._on_device and (isinstance(results, np.ma.MaskedArray) or results.dtype.kind in "mMO"):
            return picked(results, self._rows(np.arange(self.num_groups), -1))
        if is_device_array(keys):
            from clhist.grouped.element_kernels import result_of_each

            rows = result_of_each(keys, self._to_device(results) if is_elsewhere else results, none)
        else:
            rows = host.result_of_each(keys, results, none)
        rows = rows.reshape(self._shape)
        return rows.get(self._queue) if is_elsewhere else rows

    def _group_numbers(self) -> Any:
        """Return the number of the group of each element, where the caller's arrays are."""
        check_process()
        numbers = np.arange(self.num_groups)
        return self._rows(self._to_device(numbers) if self._on_device else numbers, -1)

    def _places(self, ascending: bool) -> Any:
        """Return the place in its group of each element."""
        check_booleans(ascending=ascending)
        check_process()
        return self._of_rows(host.place_of_each, _in_order, ascending=bool(ascending))

    def _extremes_beside_nan(self, name: str, values: np.ndarray) -> Any:
        """Return running extremes as polars has them, where NaN is no extreme unless there is nothing else."""
        is_nan, worst = np.isnan(values), np.inf if name == "cummin" else -np.inf
        extremes = ElementResults._along(self, name, np.where(is_nan, values.dtype.type(worst), values), True)
        extremes[ElementResults._along(self, "cummax", ~is_nan, True) == 0] = np.nan
        return extremes

    def _along(self, name: str, x: Any, skipna: bool, dtype: DTypeLike | None = None) -> Any:
        """Return what the values of its group up to each element are combined to: by "cumsum" and the like."""
        check_booleans(skipna=skipna)
        check_index("x", x, self._index)
        if (data := read_column(x)) is not None:
            groups, is_skipped = self._without(data.missing), skipna and not data.nan_is_value
            if data.nan_is_value and name in ("cummin", "cummax"):
                scan = ElementResults._extremes_beside_nan(groups, name, data.values)
            else:
                scan = ElementResults._along(groups, name, data.values, is_skipped, dtype)
            if data.values.dtype.kind in "mM":
                return scan if data.like is None else data.like(scan)
            mask = ~ElementResults._rows(groups, np.ones(self.num_groups, bool))
            if not skipna and data.missing is not None:
                mask |= self._along("cummax", data.missing, True)
            return np.ma.array(scan, mask=mask | ((scan != scan) if is_skipped else False))
        array, column, dates = self._checked(x, RUNNING[name], skipna, dtype)
        result = TABLE[RUNNING[name]].dtype(column)
        nan = "NAN" if result.kind == "f" else "0" if dates is None else literal(NAT, column.dtype)
        missing = "{v} != {v}" if array.dtype.kind == "f" and skipna else ""
        missing = missing if dates is None else f"{{v}} == {nan}"
        result, is_bool = (np.dtype(np.uint8), True) if result.kind == "b" else (result, False)
        array = as_bytes(array) if array.dtype.kind == "b" else array
        of = running(name, native(array.dtype), result, self._numbers.real, missing, nan)
        scan = self._of_rows(host.running_of_each, _running_kernels, array, of=of)
        return scan if dates is None and not is_bool else scan.view(dates or np.bool_)

    def _ranked(self, x: Any, method: str, ascending: bool, pct: bool) -> Any:
        """Return the rank of each value in its group."""
        if method not in host.RANKS:
            raise ValueError(
                f"method: expected one of {', '.join(host.RANKS)}, got {method!r:.60}{name_hint(method, [*host.RANKS])}"
            )
        check_booleans(ascending=ascending, pct=pct)
        check_index("x", x, self._index)
        if (column := read_column(x)) is not None:
            values = column.values
            if column.nan_is_value:  # of polars, the greatest
                values = factorized(values.reshape(-1), self._user_queue, missing=True).numbers.reshape(values.shape)
            ranks = ElementResults._ranked(self._without(column.missing), values, method, ascending, pct)
            return np.ma.array(ranks, mask=ranks != ranks)
        array, _, dates = self._checked(x, "argmin", True, None)
        array = as_bytes(array) if array.dtype.kind == "b" else array
        options: dict[str, Any] = {
            "method": method,
            "ascending": bool(ascending),
            "pct": bool(pct),
            "is_date": dates is not None,
        }
        return self._of_rows(host.rank_of_each, _in_order, array, real=self._numbers.real, **options)

    def _nth(self, x: Any, n: int) -> Any:
        """Return the n-th value of each group."""
        if isinstance(n, bool | np.bool_) or not isinstance(n, int | np.integer):
            raise TypeError(f"n: expected an integer, got {n!r:.60}")
        check_index("x", x, self._index)
        if (column := read_column(x)) is None and not is_device_array(x):
            column = numbered_texts("x", x, ("first",), self._user_queue)
        if column is not None:
            nth_values = self._nth(column.values, n)
            if column.values.dtype.kind not in "mM":
                there = np.ones(self._shape, bool) if column.missing is None else ~column.missing
                nth_values = np.ma.array(nth_values, mask=~self._nth(there, n))
            return nth_values if column.like is None else column.like(nth_values)
        array, _, dates = self._checked(x, "first", True, None)
        is_bool = array.dtype.kind == "b"
        array = as_bytes(array) if is_bool else array
        none = NAT if dates is not None else np.nan if array.dtype.kind == "f" else 0
        place = min(max(int(n), -(2**32)), 2**32)  # no group has more elements, and kernels take 64 bits
        nth_values = self._of_rows(
            host.nth_of_groups, _in_order, array, shape=None, n=place, none=array.dtype.type(none)
        )[: self.num_groups]
        return nth_values if dates is None and not is_bool else nth_values.view(dates or np.bool_)

    def _checked(
        self, x: Any, statistic: str, skipna: bool, dtype: DTypeLike | None
    ) -> tuple[Array, Column, np.dtype | None]:
        """Return values for which there is such a statistic, what is asked of them, and of which dates they are."""
        check_process()
        x, dates = as_integers(x)
        array = self._array("x", x)
        if array.dtype.kind == "c":
            raise TypeError(f"x: expected real numbers, which have an order, got {array.dtype}")
        return array, column_of("x", array.dtype, (statistic,), self._numbers.real, skipna, 0, dtype, dates), dates

    def _of_rows(
        self,
        of_host: Callable[..., Array],
        module: Callable[[], Any],
        *values: Array,
        shape: tuple[int, ...] | None = (),
        **options: Any,
    ) -> Any:
        """Return what is computed of keys and values, of the shape of the keys, as the caller gets it.

        On a device the function of the same name computes it, of the module that `module` returns.
        """
        options["num_groups"] = self._bins(8)
        if self._on_host and not host.rows_pay_off(of_host, self._keys.size):
            result = of_host(self._keys, **dict(zip(["values"], map(flattened, values), strict=False)), **options)
            return result if shape is None else result.reshape(self._shape)
        from clhist._core.opencl.operands import in_place

        arrays = [self._keys, *(self._placed(value) for value in values)]
        keys, *rest = (in_place(array, self._queue) for array in arrays)
        if rest:
            options["values"] = rest[0]
        result = getattr(module(), of_host.__name__)(keys, queue=self._queue, **options)
        result = result if self._on_device else result.get(self._queue)
        return result if shape is None else result.reshape(self._shape)


def _in_order() -> Any:
    from clhist.grouped import in_order  # PyOpenCL, which few elements do without

    return in_order


def _running_kernels() -> Any:
    from clhist.grouped import running_kernels

    return running_kernels
