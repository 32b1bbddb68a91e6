"""Where the arrays of groups are: the caller's as kernels take them, and results as the caller gets them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

import numpy as np
import pyopencl as cl
from numpy.typing import DTypeLike

from clhist.engine.labelled import unlabelled
from clhist.engine.scatter import as_array, native
from clhist.grouping.columns import nullable
from clhist.grouping.dates import FILLED, as_integers, dates_of
from clhist.grouping.different import most_frequent, number_of_different
from clhist.grouping.each_row import result_of_each
from clhist.grouping.groups import Groups, flattened, join, numbers_of
from clhist.grouping.hints import check_room
from clhist.grouping.in_order import RANKS, nth_of_groups, place_of_each, rank_of_each
from clhist.grouping.running import RUNNING, running, running_of_each
from clhist.opencl.arrays import Array, as_bytes, check_context, empty, is_device_array, shares_memory, to_device
from clhist.opencl.elementwise import as_numbers
from clhist.opencl.lost import check_process
from clhist.opencl.masks import check_unmasked, mask_of
from clhist.opencl.operands import in_place
from clhist.operators.c_types import literal, supported_dtype
from clhist.operators.names import name_hint
from clhist.statistics.outputs import Column, Numbers
from clhist.statistics.selection import select, sorts
from clhist.statistics.selection_texts import Nan, Order
from clhist.statistics.table import OF_ANY, TABLE, column_of, split_statistics

_NAT = np.iinfo(np.int64).min


class Placed:
    """The keys of groups on a queue, of a caller whose arrays are on a device or not."""

    num_groups: int
    _keys: Array
    _queue: cl.CommandQueue
    _on_device: bool
    _numbers: Numbers
    _shape: tuple[int, ...]

    def _bins(self, *sizes: int) -> int:
        """Return the number of results; raise MemoryError if arrays of such bytes for each group do not fit."""
        check_room(self.num_groups, self._queue, *sizes)
        return max(1, self.num_groups)

    def _array(self, name: str, x: Any, *, halves: bool = False) -> Array:
        """Return an array of the caller's, checked; of half precision as float32 unless it may be `halves`."""
        check_unmasked(name, x)
        values, missing = nullable(x) or (x, None)
        array = as_array(name, values if missing is None else np.where(missing, np.nan, values))
        self._check(name, is_device_array(array), array.shape)
        if self._on_device and not array.dtype.isnative:
            raise TypeError(f"{name}: expected an array of {native(array.dtype)}, got one of {array.dtype.str}")
        if supported_dtype(array.dtype, name).names:
            raise TypeError(f"{name}: expected an array of numbers, got {array.dtype}")
        check_context([(name, array)], self._queue.context)
        return array if halves else as_numbers(array)

    def _apart(self, columns: Mapping[str, Any], skipna: bool, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return what is asked of each column, and the statistics that are known: those of nullable columns."""
        split = {name: split_statistics(name, given) for name, given in columns.items()}
        found: dict[str, Any] = {name: {} for name in split}
        for name, (names, asked) in split.items():
            if not asked or (known := nullable(asked[0])) is None:
                continue
            (values, missing), groups, new = known, cast(Any, self), cast(Any, type(self))
            if missing is not None and skipna:  # elements in no group
                self._check(name, False, missing.shape)
                keys = join(self._keys, self.num_groups, as_bytes(missing), 1, self._queue)  # 1 is outside of [0, 1)
                keys = (keys if is_device_array(self._keys) else keys.get(self._queue)).reshape(self._shape)
                groups = new(Groups(keys, self.num_groups, None, (None,), False, self._queue))
            given = values if missing is None or skipna else np.where(missing, np.nan, values), *asked[1:], "count"
            results = groups.agg(skipna=skipna, **options, **{name: given})[name]
            empty = results["count"] == 0
            for own in (each for each in results if not each.startswith("arg")):
                mask = empty if own in (*FILLED, "mode") else results[own] != results[own]
                results[own] = np.ma.array(results[own], mask=mask)
            found[name], split[name] = results, (names, ())
        return split, found

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
        """Return an array in one dimension, where kernels take it without a copy for each of them."""
        flat = flattened(array)
        stays = is_device_array(flat) or shares_memory(self._queue.device) or not flat.size
        return flat if stays else to_device(self._queue, flat)

    def _like_keys(self, result: Array) -> Array:
        if is_device_array(self._keys):
            return result if is_device_array(result) else to_device(self._queue, result)
        return result.get(self._queue) if is_device_array(result) else result

    def _returned_column(self, results: dict[str, Any], column: Column, names: tuple[str, ...]) -> dict[str, Any]:
        """Return the statistics of a column as the caller gets them, as dates if its values are."""
        wanted = names if column.dates is None else (*names, "count")
        returned = {name: self._returned(results[name]) for name in wanted}
        if column.dates is not None:
            returned |= dates_of(returned, column.dates)
        return {name: returned[name] for name in names}

    def _returned(self, result: Array) -> Any:
        """Return a result where the caller's arrays are, without the group that is made where there are none."""
        if is_device_array(result) and not self._on_device:
            result = result.get(self._queue)
        return result if result.shape[0] == self.num_groups else result[: self.num_groups]

    def _stacked(self, results: Sequence[Array], dtype: np.dtype) -> Any:
        """Return results of the groups as the rows of one array."""
        shape = len(results), self.num_groups
        if not self._on_device:
            return np.stack(results) if results else np.empty(shape, dtype)
        found = empty(self._queue, shape, dtype, True)
        for row, each in zip(found, results, strict=True):
            row[:] = each
        return found

    def _most_frequent(self, array: Array, column: Column) -> Array:
        return self._like_keys(most_frequent(self._keys, self._bins(8, 8, 8), array, column.skipna, self._queue))

    def _with_any(
        self, found: dict[str, Any], name: str, x: Any, names: tuple[str, ...], skipna: bool
    ) -> dict[str, Any]:
        """Return the statistics of a column in the order of their names, with those of values of any type."""
        return {each: self._of_any(name, x, each, skipna) if each in OF_ANY else found[each] for each in names}

    def _of_any(self, name: str, x: Any, statistic: str, skipna: bool) -> Any:
        """Return the size or the number of different values of each group; values may be of any type."""
        x = unlabelled(x)
        if statistic == "size":
            self._check(name, is_device_array(x), np.shape(x) if getattr(x, "shape", None) is None else tuple(x.shape))
            return self.size()
        groups, dtype = self._bins(8), getattr(x, "dtype", None)
        if isinstance(dtype, np.dtype) and dtype.kind in "iuf" and dtype.itemsize <= 8 and mask_of(x) is None:
            array = self._placed(self._array(name, x))
            if array.size and sorts(array, groups, self._queue):
                column = column_of(name, array.dtype, (), self._numbers.real, skipna, 0, None)
                return self._returned(self._like_keys(self._selected(array, column, counts=True)))
        try:
            numbers, labels, on_device = numbers_of(x, False, getattr(dtype, "kind", "") != "O", self._queue)
        except TypeError as error:
            raise TypeError(str(error).replace("keys:", f"{name}:", 1)) from error
        self._check(name, on_device, numbers.shape)
        given = self._keys, groups, numbers, len(labels), skipna, self._queue
        return self._returned(self._like_keys(number_of_different(*given)))

    def _selected(
        self, array: Array, column: Column, q: float | None = None, weights: Array | None = None, counts: bool = False
    ) -> Array:
        """Return the median of each group, the quantile of probability `q`, or how many different values it has."""
        bins = self._bins(8)
        if not array.size:
            nothing = np.full(bins, np.nan, column.result)
            return to_device(self._queue, nothing) if self._on_device else nothing
        arrays = [self._keys, array] if weights is None else [self._keys, array, weights]
        arrays = [as_bytes(each) if each.dtype.kind == "b" else each for each in arrays]
        keys, array, *rest = (in_place(each, self._queue) for each in arrays)
        nan: Nan = "skipped" if column.skipna else "greatest" if counts else "propagated"
        dtypes = keys.dtype, array.dtype, np.dtype(np.int64) if counts else column.result, self._numbers.real
        order = Order(*dtypes, nan, q is None, rest[0].dtype if rest else None, counts)
        return select(order, keys, array, bins, self._queue, q=q or 0.0, weights=rest[0] if rest else None)

    def size(self) -> Any:
        """Return how many elements each group has."""
        raise NotImplementedError

    def _rows(self, results: Any) -> Any:
        """Return the result of the group of each element, where the caller's arrays are."""
        keys, is_elsewhere = self._keys, is_device_array(self._keys) and not self._on_device
        results = np.ma.filled(results, np.nan if results.dtype.kind == "f" else 0) if not self._on_device else results
        found = result_of_each(keys, to_device(self._queue, results) if is_elsewhere else results).reshape(self._shape)
        return found.get(self._queue) if is_elsewhere else found

    def _places(self, ascending: bool) -> Any:
        """Return the place in its group of each element."""
        if not isinstance(ascending, bool | np.bool_):
            raise TypeError(f"ascending: expected True or False, got {ascending!r:.60}")
        check_process()
        return self._of_rows(partial(place_of_each, num_groups=self._bins(8), ascending=bool(ascending)))

    def _along(self, name: str, x: Any, skipna: bool, dtype: DTypeLike | None = None) -> Any:
        """Return what the values of its group up to each element are combined to: by "cumsum" and the like."""
        array, column, dates = self._checked(x, RUNNING[name], skipna, dtype)
        result = TABLE[RUNNING[name]].dtype(column)
        nan = "NAN" if result.kind == "f" else "0" if dates is None else literal(_NAT, column.dtype)
        missing = "{v} != {v}" if array.dtype.kind == "f" and skipna else ""
        missing = missing if dates is None else f"{{v}} == {nan}"
        result, is_bool = (np.dtype(np.uint8), True) if result.kind == "b" else (result, False)
        array = as_bytes(array) if array.dtype.kind == "b" else array
        of = running(name, native(array.dtype), result, self._numbers.real, missing, nan)
        found = self._of_rows(partial(running_of_each, num_groups=self._bins(8), of=of), array)
        return found if dates is None and not is_bool else found.view(dates or np.bool_)

    def _ranked(self, x: Any, method: str, ascending: bool, pct: bool) -> Any:
        """Return the rank of each value in its group."""
        if method not in RANKS:
            raise ValueError(
                f"method: expected one of {', '.join(RANKS)}, got {method!r:.60}{name_hint(method, [*RANKS])}"
            )
        for name, given in (("ascending", ascending), ("pct", pct)):
            if not isinstance(given, bool | np.bool_):
                raise TypeError(f"{name}: expected True or False, got {given!r:.60}")
        array, _, dates = self._checked(x, "argmin", True, None)
        array = as_bytes(array) if array.dtype.kind == "b" else array
        options: dict[str, Any] = {
            "method": method,
            "ascending": bool(ascending),
            "pct": bool(pct),
            "is_date": dates is not None,
        }
        compute = partial(rank_of_each, num_groups=self._bins(8), real=self._numbers.real, **options)
        return self._of_rows(compute, array)

    def _nth(self, x: Any, n: int) -> Any:
        """Return the n-th value of each group."""
        if isinstance(n, bool | np.bool_) or not isinstance(n, int | np.integer):
            raise TypeError(f"n: expected an integer, got {n!r:.60}")
        array, _, dates = self._checked(x, "first", True, None)
        is_bool = array.dtype.kind == "b"
        array = as_bytes(array) if is_bool else array
        none = _NAT if dates is not None else np.nan if array.dtype.kind == "f" else 0
        compute = partial(nth_of_groups, num_groups=self._bins(8), n=int(n), none=array.dtype.type(none))
        found = self._of_rows(compute, array, shape=None)[: self.num_groups]
        return found if dates is None and not is_bool else found.view(dates or np.bool_)

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

    def _of_rows(self, compute: Callable[..., Array], *values: Array, shape: tuple[int, ...] | None = ()) -> Any:
        """Return what is computed of keys and values on a device, of the shape of the keys, as the caller gets it."""
        arrays = [self._keys, *(self._placed(each) for each in values)]
        keys, *rest = (in_place(each, self._queue) for each in arrays)
        found = compute(keys, values=rest[0], queue=self._queue) if rest else compute(keys, queue=self._queue)
        found = found if self._on_device else found.get(self._queue)
        return found if shape is None else found.reshape(self._shape)
