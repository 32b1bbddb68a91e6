"""The groups of a dataframe of Dask by columns of keys, and statistics of columns as dataframes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

from clhist.dask.tree import meta_of, task
from clhist.grouped.spi import COUNTS, Frame, picked_or_missing
from clhist.operators.c_types import check_booleans
from clhist.statistics.spi import named_statistics

if TYPE_CHECKING:
    from clhist.dask.groups import GroupBy


class FrameGroupBy:
    """The groups of a dataframe of Dask by columns of keys; made by `clhist.dask.group_by`.

    Attributes
    ----------
    groups : GroupBy
        The same groups of collections, with all methods of `clhist.dask.GroupBy`.

    Examples
    --------
    >>> import dask.dataframe, pandas
    >>> trips = pandas.DataFrame({"zone": ["a", "b", "a"], "fare": [1.0, 2.0, 4.0]})
    >>> lazy = dask.dataframe.from_pandas(trips, npartitions=2)
    >>> clhist.group_by(lazy, "zone").agg(mean=("fare", "mean"), n="size").compute()
          mean  n
    zone
    a      2.5  2
    b      2.0  1
    """

    def __init__(self, frame: Any, names: Sequence[Any], groups: GroupBy) -> None:
        self._frame, self._names, self.groups = frame, [*names], groups

    def __repr__(self) -> str:
        by = ", ".join(map(repr, self._names))
        return f"<FrameGroupBy unknown number of groups by {by} of a dataframe of Dask>"

    def agg(
        self,
        *,
        skipna: bool = True,
        ddof: int = 0,
        dtype: DTypeLike | None = None,
        min_count: int = 0,
        split_every: int | None = None,
        **columns: Any,
    ) -> Any:
        """Compute statistics of columns, in one sweep over all partitions.

        Parameters
        ----------
        skipna, ddof, dtype, min_count
            As of `clhist.FrameGroupBy.agg`.
        split_every : int, optional
            How many partial results one task merges.
        **columns : tuple of (str, statistic, ...), or "size"
            As of `clhist.FrameGroupBy.agg`, of numbers; but for medians and quantiles, which parts of the data do not
            have.

        Returns
        -------
        dask.dataframe.DataFrame
            Of one partition, whose index are the keys.

        Raises
        ------
        KeyError, TypeError, ValueError
            As of `clhist.FrameGroupBy.agg`, before any work starts.
        """
        import dask.dataframe
        import pandas

        check_booleans(skipna=skipna)
        outputs = {name: self._checked(name, request) for name, request in columns.items()}
        options: dict[str, Any] = {"skipna": skipna, "ddof": ddof, "dtype": dtype}
        # With min_count, each column needs its count beside the statistics.
        inputs: dict[str, Any] = {
            name: (self._frame[column], *dict.fromkeys([*statistics, *["count"] * (min_count > 0)]))
            for name, (column, statistics) in outputs.items()
            if statistics != ("size",)
        }
        # Sizes include rows with missing values, so counts of columns cannot replace them.
        sizes = self.groups.size(split_every=split_every) if len(inputs) < len(outputs) else None
        table = self.groups.agg(**options, split_every=split_every, **inputs)
        index = meta_of(self._frame).set_index(self._names).index
        # Dask needs the dtypes of the result now, and lazy arrays have them.
        dtypes = _results(outputs, table, np.empty(0, np.int64), 0)
        meta = pandas.DataFrame({name: np.empty(0, result.dtype) for name, result in dtypes.items()}, index)
        whole = task(_frame_of)(table, sizes, self.groups.keys, outputs, min_count, meta)
        return dask.dataframe.from_delayed([whole], meta=meta, verify_meta=False)

    def size(self, name: str = "size") -> Any:
        """Return how many rows each group has, as a dataframe with a column of this name; see `agg`."""
        columns: dict[str, Any] = {name: "size"}
        return self.agg(**columns)

    def transform(self, column: str, statistic: str, **options: Any) -> Any:
        """Return for each row a statistic of its group, as a column with the partitions of the dataframe.

        Parameters
        ----------
        column : str
            Name of a column of numbers.
        statistic : str
            As of `agg`.
        **options
            As of `clhist.dask.GroupBy.transform`.

        Returns
        -------
        dask.dataframe.Series
        """
        import dask.dataframe
        import pandas

        self._checked("column", (column, statistic))
        values = self.groups.transform(self._frame[column], statistic, **options)
        meta = pandas.Series(np.empty(0, values.dtype), meta_of(self._frame).index, name=column)
        parts = zip(values.to_delayed(), self._frame[column].to_delayed(), strict=True)
        columns = [task(_series)(*part, column) for part in parts]
        return dask.dataframe.from_delayed(columns, meta=meta, divisions=self._frame.divisions, verify_meta=False)

    def _checked(self, name: str, argument: Any) -> tuple[Any, tuple[str, ...]]:
        """Return a column and the names of its statistics; the size of groups is that of a column of keys."""
        if isinstance(argument, str) and argument == "size":
            return self._names[0], ("size",)
        if not isinstance(argument, tuple | list) or len(argument) < 2:
            raise TypeError(f"{name}: expected a tuple of a column and its statistics, or 'size', got {argument!r:.60}")
        Frame(meta_of(self._frame), "pandas").column(name, argument[0])  # raises if there is none
        return argument[0], named_statistics(argument[1:])


def _frame_of(
    table: Mapping[str, Mapping[str, np.ndarray]],
    sizes: Any,
    keys: Any,
    outputs: Mapping[str, tuple[Any, Collection[str]]],
    min_count: int,
    meta: Any,
) -> Any:
    """Return statistics by the names of results, with the index of `meta`."""
    import pandas

    columns = _results(outputs, table, sizes, min_count)
    levels = [_like(array, meta.index.get_level_values(n).dtype) for n, array in enumerate(keys)]
    if len(levels) > 1:
        index = pandas.MultiIndex.from_arrays(levels, names=meta.index.names)
    else:
        index = pandas.Index(levels[0], name=meta.index.name)
    frame = pandas.DataFrame(columns, index=index)
    # With min_count, missing results may need another dtype than `meta` has.
    return frame.astype({name: dtype for name, dtype in meta.dtypes.items() if not min_count})


def _results(
    outputs: Mapping[str, tuple[Any, Collection[str]]], table: Mapping[str, Any], sizes: Any, min_count: int
) -> dict[str, Any]:
    """Return statistics by the names of results; those of fewer values than `min_count` are missing."""
    columns: dict[str, Any] = {}
    for name, (_, statistics) in outputs.items():
        for statistic in statistics:
            result = sizes if statistic == "size" else table[name][statistic]
            if min_count > 0 and statistic not in COUNTS:
                # The index -1 picks a missing value.
                is_few = np.asarray(table[name]["count"]) < min_count
                result = picked_or_missing(result, np.where(is_few, -1, np.arange(len(is_few))))
            columns[name if len(statistics) == 1 else f"{name}_{statistic}"] = result
    return columns


def _like(keys: np.ndarray, dtype: Any) -> Any:
    """Return keys as a column of the type that they came from; unknown categories are those that occur."""
    import pandas

    if isinstance(dtype, pandas.CategoricalDtype) and not pandas.Series(keys).isin(dtype.categories).all():
        return pandas.Categorical(keys, ordered=dtype.ordered)
    return pandas.array(keys, dtype=dtype)


def _series(values: np.ndarray, column: Any, name: str) -> Any:
    import pandas

    return pandas.Series(values, index=column.index, name=name)
