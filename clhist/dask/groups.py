"""`group_by` on Dask collections."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
from numpy.typing import DTypeLike

from clhist.codegen.arguments import integer
from clhist.dask.tree import as_array, blocks_of, on_host, task, tree
from clhist.grouping.parts import GroupSpec
from clhist.grouping.statistics import column_of
from clhist.partial import Partial, merge

_OF_ONE = (
    "count",
    "sum",
    "prod",
    "mean",
    "var",
    "std",
    "min",
    "max",
    "argmin",
    "argmax",
    "first",
    "last",
    "any",
    "all",
)
_POSITIONS = ("argmin", "argmax", "first", "last")


def group_by(keys: Any, num_groups: int) -> GroupBy:
    """Group elements by equal keys: `clhist.group_by` of Dask collections.

    Parameters
    ----------
    keys : dask array of one dimension, dataframe column, or `Delayed`
        Number of the group of each element; those outside [0, num_groups) belong to none. A categorical column of known
        categories has its codes.
    num_groups : int
        Number of groups; ``int(keys.max().compute()) + 1`` takes a pass over the data.

    Returns
    -------
    GroupBy

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong; it is named.

    Examples
    --------
    >>> groups = clhist.dask.group_by(keys, 1000)                                           # doctest: +SKIP
    >>> groups.agg(x=(x, "mean", "std"), y=(y, "max"))["x"]["std"].compute()                # doctest: +SKIP
    """
    return GroupBy(keys, num_groups)


class GroupBy:
    """The groups of equal keys of Dask collections; made by `group_by`.

    Each statistic is a method of that name with the options of `agg`: ``groups.mean(x)``.

    Attributes
    ----------
    num_groups : int
        How many groups there are, empty ones included.
    """

    def __init__(self, keys: Any, num_groups: int) -> None:
        categories = getattr(getattr(keys, "cat", None), "codes", None)
        self._keys = keys if categories is None else categories
        self._dtype = np.dtype(getattr(self._keys, "dtype", np.int64))
        if self._dtype.kind not in "iu":
            raise TypeError(f"keys: expected integers, the numbers of groups, got {self._dtype}")
        self.num_groups = integer("num_groups", num_groups, 1)

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
        asked, collections = [], {}
        for name, given in columns.items():
            if not isinstance(given, tuple | list) or len(given) < 2:
                raise TypeError(f"{name}: expected a tuple of a collection and its statistics, got {given!r}")
            collections[name], statistics = given[0], tuple(given[1:])
            if "median" in statistics:
                raise ValueError(f"{name}: expected statistics that can be merged, got 'median'")
            values = np.dtype(getattr(given[0], "dtype", np.float64))
            asked.append((name, column_of(name, values, statistics, np.dtype(np.float64), skipna, ddof, dtype)))
        of_groups = GroupSpec(self._dtype, tuple(asked), self.num_groups)
        of_groups.spec()  # raises what is wrong with it
        blocks = blocks_of(keys=self._keys, **collections)
        if blocks.starts is None and any(set(column.statistics) & set(_POSITIONS) for _, column in asked):
            raise ValueError("keys: expected chunks of known sizes, since positions are asked for, got unknown ones")
        starts = blocks.starts or [None] * len(blocks.rows)
        parts = [task(_partial)(of_groups, start, *row) for start, row in zip(starts, blocks.rows, strict=True)]
        whole = task(of_groups.results)(tree(parts, merge, split_every))
        shape = (self.num_groups,)
        return {
            name: {each: as_array(whole[name][each], shape, _dtype_of(each, column)) for each in column.statistics}
            for name, column in asked
        }

    def __getattr__(self, name: str) -> Any:
        if name not in _OF_ONE:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

        def statistic(x: Any, **options: Any) -> da.Array:
            return self.agg(x=(x, name), **options)["x"][name]

        return statistic


def _dtype_of(statistic: str, column: Any) -> np.dtype:
    if statistic in ("sum", "prod"):
        return np.dtype(column.total)
    if statistic in ("count", "argmin", "argmax"):
        return np.dtype(np.int64)
    if statistic in ("any", "all"):
        return np.dtype(bool)
    return np.dtype(column.result if statistic in ("mean", "var", "std") else column.dtype)


def _partial(of_groups: GroupSpec, start: int | None, keys: Any, *values: Any) -> Partial:
    arrays = [np.ascontiguousarray(keys, of_groups.keys)]
    for (_, column), each in zip(of_groups.columns, values, strict=True):
        arrays.append(np.ascontiguousarray(on_host(each), column.dtype))
    return of_groups.spec().partial(*arrays, start=start)
