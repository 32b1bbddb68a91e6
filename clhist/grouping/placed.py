"""Where the arrays of groups are: the caller's as kernels take them, and results as the caller gets them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyopencl as cl

from clhist.engine.cuda_calls import warn_of_host
from clhist.engine.labelled import unlabelled
from clhist.engine.scatter import as_array, native
from clhist.grouping.columns import without_na
from clhist.grouping.dates import dates_of
from clhist.grouping.different import most_frequent, number_of_different
from clhist.grouping.each_row import place_of_each, result_of_each
from clhist.grouping.groups import numbers_of
from clhist.opencl.arrays import Array, check_context, is_device_array, shares_memory, to_device
from clhist.opencl.cuda_arrays import NotDirectError, is_cuda
from clhist.opencl.device import default_queue
from clhist.opencl.elementwise import as_numbers
from clhist.opencl.masks import check_unmasked
from clhist.operators.c_types import supported_dtype
from clhist.statistics.outputs import Column
from clhist.statistics.table import OF_ANY


class Placed:
    """The keys of groups on a queue, of a caller whose arrays are on a device or not."""

    num_groups: int
    _keys: Array
    _queue: cl.CommandQueue
    _on_device: bool
    _shape: tuple[int, ...]

    def _array(self, name: str, x: Any, *, halves: bool = False) -> Array:
        """Return an array of the caller's, checked; of half precision as float32 unless it may be `halves`."""
        check_unmasked(name, x)
        array = as_array(name, without_na(x))
        self._check(name, is_device_array(array), array.shape)
        if self._on_device and not array.dtype.isnative:
            raise TypeError(f"{name}: expected an array of {native(array.dtype)}, got one of {array.dtype.str}")
        if supported_dtype(array.dtype, name).names:
            raise TypeError(f"{name}: expected an array of numbers, got {array.dtype}")
        check_context([(name, array)], self._queue.context)
        return array if halves else as_numbers(array)

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
        if is_device_array(array):
            return array if array.ndim == 1 else array.reshape(-1)
        flat = np.require(array.reshape(-1), native(array.dtype), ["C_CONTIGUOUS", "ALIGNED"])
        if shares_memory(self._queue.device) or not flat.size:
            return flat
        return to_device(self._queue, flat)

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

    def _most_frequent(self, array: Array, column: Column) -> Array:
        if is_cuda(array):
            raise NotDirectError("modes, of which the different values are numbered")
        return self._like_keys(most_frequent(self._keys, max(1, self.num_groups), array, column.skipna, self._queue))

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
        if is_cuda(x):
            raise NotDirectError("different values, which are numbered")
        numbers, labels, on_device = numbers_of(x, False, True, self._queue)
        self._check(name, on_device, numbers.shape)
        given = self._keys, max(1, self.num_groups), numbers, len(labels), skipna, self._queue
        return self._returned(self._like_keys(number_of_different(*given)))

    def size(self) -> Any:
        """Return how many elements each group has."""
        raise NotImplementedError

    def _rows(self, results: Any) -> Any:
        """Return the result of the group of each element, or its place in the group, where the caller's arrays are."""
        if is_cuda(self._keys) and results is not None:
            raise NotDirectError("a result for each element")
        if is_cuda(self._keys):
            warn_of_host("GroupBy.cumcount", "a place for each element")
            places = place_of_each(self._keys.get().reshape(-1), max(1, self.num_groups), default_queue())
            return to_device(self._queue, places.reshape(self._shape))
        keys, is_elsewhere = self._keys, is_device_array(self._keys) and not self._on_device
        if results is None:
            found = place_of_each(keys, max(1, self.num_groups), self._queue)
        else:
            found = result_of_each(keys, to_device(self._queue, results) if is_elsewhere else results)
        found = found.reshape(self._shape)
        return found.get(self._queue) if is_elsewhere else found
