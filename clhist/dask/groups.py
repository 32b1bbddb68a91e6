"""`group_by` on Dask collections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dask.array as da
import numpy as np
from numpy.typing import DTypeLike

from clhist.codegen.arguments import integer
from clhist.dask.tree import as_array, blocks_of, on_host, task, tree
from clhist.engine.scatter import native
from clhist.grouping.columns import integers, number_up_to
from clhist.grouping.distributed import GroupSpec
from clhist.opencl.masks import check_unmasked
from clhist.operators.c_types import supported_dtype
from clhist.operators.halves import number_of
from clhist.partial import Partial, merge
from clhist.statistics.outputs import Column
from clhist.statistics.table import TABLE, column_of, named_statistics

_KEYS = "integers, the numbers of groups, or categories"
_NUMBERED = '; columns have .astype("category").cat.as_known()'


def group_by(keys: Any, num_groups: int | None = None) -> GroupBy:
    """Group elements by equal keys: `clhist.group_by` of Dask collections.

    Parameters
    ----------
    keys : dask array of one dimension, dataframe column, or `Delayed`
        Number of the group of each element; those outside [0, num_groups) belong to none. A categorical column of known
        categories has a group per category.
    num_groups : int, optional
        Number of groups. Defaults to that of the categories or, of numbers, to the largest key plus one: a pass over
        the keys finds it, and the length of results is unknown until they are computed.

    Returns
    -------
    GroupBy

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong; it is named.

    Examples
    --------
    >>> import dask.array as da
    >>> keys, x = da.arange(6, chunks=2) % 2, da.arange(6, chunks=2) * 1.0
    >>> clhist.dask.group_by(keys, 2).agg(x=(x, "mean", "max"))["x"]["mean"].compute()
    array([2., 3.])
    """
    return GroupBy(keys, num_groups)


class GroupBy:
    """The groups of equal keys of Dask collections; made by `group_by`.

    Each statistic is a method of that name with the options of `agg`: ``groups.mean(x)``.

    Attributes
    ----------
    num_groups : int or None
        How many groups there are, empty ones included; None if a pass over the keys is to find it.
    """

    def __init__(self, keys: Any, num_groups: int | None = None) -> None:
        self._categories = None
        if hasattr(keys, "cat"):
            if not keys.cat.known:
                raise ValueError(
                    "keys: expected known categories, got unknown ones; keys.cat.as_known() takes a pass to find them"
                )
            self._categories, keys = np.asarray(keys.cat.categories), keys.cat.codes
        self._keys = keys
        self._dtype = _dtype_of_collection("keys", keys, np.dtype(np.int64), _KEYS, _NUMBERED)
        if self._dtype.kind not in "iub":
            raise TypeError(f"keys: expected {_KEYS}, got {self._dtype}{_NUMBERED}")
        self._dtype = np.dtype(np.uint8) if self._dtype.kind == "b" else native(self._dtype)
        if self._categories is not None:
            number = len(self._categories)
            if num_groups not in (None, number):
                raise ValueError(f"num_groups: expected {number}, the categories of the keys; got {num_groups}")
            num_groups = number
        self.num_groups = None if num_groups is None else integer("num_groups", num_groups, 0)

    def __repr__(self) -> str:
        number = "unknown number" if self.num_groups is None else f"{self.num_groups:,}"
        return f"<GroupBy {number} of groups by a Dask collection of {self._dtype}>"

    @property
    def keys(self) -> Any:
        """The keys of the groups, numbers or categories (a Dask array if a pass over the data finds them)."""
        if self._categories is not None:
            return self._categories
        number = self._number(None)
        if isinstance(number, int):
            return np.arange(number)
        return as_array(task(np.arange)(number), (np.nan,), np.dtype(np.int64))

    def agg(
        self,
        *,
        skipna: bool = True,
        ddof: int = 0,
        dtype: DTypeLike | None = None,
        split_every: int | None = None,
        **columns: Any,
    ) -> dict[str, dict[str, da.Array]]:
        """Compute several statistics of several arrays, in one sweep over all of them.

        Parameters
        ----------
        skipna, ddof, dtype
            As of `clhist.GroupBy.agg`.
        split_every : int, optional
            How many partial results one task merges.
        **columns : tuple of (collection, str, ...)
            As of `clhist.GroupBy.agg`, but for medians, which parts of the data do not have.

        Returns
        -------
        dict of str to dict of str to dask.array.Array of shape (num_groups,)
            ``result[column][statistic]``.

        Raises
        ------
        TypeError, ValueError
            If an argument is wrong, or chunk sizes are unknown where positions count; it is named, before any work
            starts.

        Notes
        -----
        Needs devices with double precision. Variances are combined together with means, which takes locks on GPUs.
        """
        asked = tuple((name, _asked(name, given, skipna, ddof, dtype)) for name, given in columns.items())
        if not asked:
            return {}
        collections = {name: given[0] for name, given in columns.items()}
        _spec_of(self._dtype, asked, 1).spec()  # raises what is wrong with it
        named = {"values of 'keys'" if name == "keys" else name: each for name, each in collections.items()}
        blocks = blocks_of(keys=self._keys, **named)
        if blocks.starts is None and any(TABLE[each].is_position for _, column in asked for each in column.statistics):
            if getattr(self._keys, "ndim", 1) != 1:
                raise ValueError(f"keys: expected one dimension, since positions are asked for, got {self._keys.ndim}")
            raise ValueError(
                "keys: expected chunks of known sizes, since positions are asked for, got unknown ones; arrays have "
                "compute_chunk_sizes(), columns to_dask_array(lengths=True)"
            )
        number = self._number(split_every)
        lazy = not isinstance(number, int)
        of_groups: Any = (task(_spec_of) if lazy else _spec_of)(self._dtype, asked, number)
        starts = blocks.starts or [None] * len(blocks.rows)
        parts = [task(_partial)(of_groups, start, *row) for start, row in zip(starts, blocks.rows, strict=True)]
        whole = task(_results)(of_groups, tree(parts, merge, split_every), number)
        shape = (np.nan if lazy else number,)
        return {
            name: {each: as_array(whole[name][each], shape, TABLE[each].dtype(column)) for each in column.statistics}
            for name, column in asked
        }

    def size(self, *, split_every: int | None = None) -> da.Array:
        """Return how many elements each group has, as int64."""
        return self.agg(keys=(self._keys, "count"), split_every=split_every)["keys"]["count"]

    def _number(self, split_every: int | None) -> Any:
        """Return the number of groups, or the task that finds it."""
        if self.num_groups is not None:
            return self.num_groups
        blocks = blocks_of(keys=self._keys)
        return task(_number_of)(tree([task(_extent)(*row) for row in blocks.rows], _joined, split_every))

    def __getattr__(self, name: str) -> Any:
        if name not in TABLE:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

        def statistic(x: Any, *own: Any, **options: Any) -> da.Array:
            if own and not TABLE[name].takes:
                raise TypeError(f"{name}: expected options by name, got {own[0]!r:.60}")
            options = {key: value for key, value in options.items() if key not in TABLE[name].takes}
            return self.agg(x=(x, name), **options)["x"][name]

        return statistic


def _asked(name: str, given: Any, skipna: bool, ddof: int, dtype: DTypeLike | None) -> Column:
    """Return what is asked of one collection, checked."""
    if not isinstance(given, tuple | list) or len(given) < 2:
        raise TypeError(f"{name}: expected a tuple of a collection and its statistics, got {given!r}")
    statistics = named_statistics(given[1:])
    for each in (each for each in statistics if each in TABLE and not TABLE[each].merges):
        raise ValueError(
            f"{name}: expected statistics that can be merged, got {each!r}, which blocks have no part of; "
            "clhist.group_by of NumPy arrays computes it"
        )
    if np.ndim(given[0]) == 0 and not hasattr(given[0], "dask"):
        raise TypeError(f"{name}: expected a Dask collection, got {type(given[0]).__name__}")
    values = _dtype_of_collection(name, given[0], np.dtype(np.float64))
    values = number_of(supported_dtype(values, name))
    if values.names:
        raise TypeError(f"{name}: expected numbers, got {values}")
    return column_of(name, values, statistics, np.dtype(np.float64), skipna, ddof, dtype)


def _dtype_of_collection(
    name: str, collection: Any, otherwise: np.dtype, expected: str = "numbers", hint: str = ""
) -> np.dtype:
    """Return the dtype of an array or a column; `otherwise` of what has none."""
    if hasattr(collection, "columns") and not hasattr(collection, "dtype"):
        raise TypeError(f"{name}: expected a column, got a dataframe of {', '.join(map(str, collection.columns))}")
    given = getattr(collection, "dtype", otherwise)
    try:
        return np.dtype(given)
    except TypeError:  # of pandas alone
        raise TypeError(f"{name}: expected {expected}, got {given}{hint}") from None


def _spec_of(keys: np.dtype, columns: tuple[tuple[str, Any], ...], number: int) -> GroupSpec:
    return GroupSpec(keys, columns, max(1, number))


def _results(of_groups: GroupSpec, whole: Partial, number: int) -> dict[str, dict[str, np.ndarray]]:
    found = of_groups.results(whole)
    return {name: {each: array[:number] for each, array in column.items()} for name, column in found.items()}


def _keys_of(block: Any) -> np.ndarray:
    """Return the keys of a block, of which a `Delayed` does not say what they are."""
    array = integers(block)
    if array.size and array.dtype.kind not in "iub":
        raise TypeError(f"keys: expected {_KEYS}, got {array.dtype}")
    return array


def _extent(keys: Any) -> tuple[int, int]:
    """Return the largest key of a block, or -1, and their number."""
    array = _keys_of(keys)
    return (int(array.max()) if array.size else -1), array.size


def _joined(parts: Sequence[tuple[int, int]]) -> tuple[int, int]:
    return max(largest for largest, _ in parts), sum(size for _, size in parts)


def _number_of(extent: tuple[int, int]) -> int:
    return number_up_to(*extent)


def _partial(of_groups: GroupSpec, start: int | None, keys: Any, *values: Any) -> Partial:
    numbers = _keys_of(keys)
    if of_groups.keys.kind == "u" and numbers.size and numbers.min() < 0:  # which it cannot say
        raise ValueError(f"keys: expected signed integers, since some are masked, got {of_groups.keys}")
    arrays = [np.ascontiguousarray(numbers, of_groups.keys)]
    for (name, column), each in zip(of_groups.columns, values, strict=True):
        check_unmasked(name, each)
        arrays.append(np.ascontiguousarray(on_host(each), column.dtype))
    return of_groups.spec().partial(*arrays, start=start)
