"""The groups of a table by columns of keys: statistics of columns by name, as tables of the same library."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Never

from numpy.typing import DTypeLike

from clhist.grouped.frames import Frame
from clhist.statistics.table import named_statistics

_OPTIONS = ("self", "skipna", "ddof", "dtype", "reproducible")  # of `GroupBy.agg`, which no column can be called


class FrameGroupBy:
    """The groups of a table by columns of keys; made by `group_by`.

    Groups are the keys that occur, in their order; rows whose key is missing belong to none. ``len`` is the number of
    groups.

    Attributes
    ----------
    groups : GroupBy
        The same groups of arrays, with all methods of `GroupBy`.

    Examples
    --------
    >>> import pandas
    >>> groups = clhist.group_by(pandas.DataFrame({"zone": ["a", "b", "a"]}), "zone")
    >>> groups
    <FrameGroupBy 2 groups by 'zone' of a table of pandas>
    """

    def __init__(self, frame: Frame, names: Sequence[Any], groups: Any) -> None:
        self._frame, self._names, self.groups = frame, list(names), groups

    def __repr__(self) -> str:
        by = ", ".join(map(repr, self._names))
        return f"<FrameGroupBy {len(self):,} groups by {by} of a table of {self._frame.library}>"

    def __len__(self) -> int:
        return len(self.groups)

    if not TYPE_CHECKING:

        def __getitem__(self, name: Any) -> Any:
            raise TypeError(f"groups[{name!r}]: expected named statistics; write groups.agg(x=({name!r}, 'mean'))")

        def __iter__(self) -> Any:
            raise TypeError("groups: expected no iteration; the key of each group is in groups.groups.keys")

    def agg(
        self,
        *wrong: Never,
        skipna: bool = True,
        ddof: int = 0,
        dtype: DTypeLike | None = None,
        reproducible: bool = False,
        **columns: Any,
    ) -> Any:
        """Compute statistics of columns, in one sweep over all of them.

        Parameters
        ----------
        skipna, ddof, dtype, reproducible
            As of `GroupBy.agg`; `ddof` is 0, where pandas and polars have 1.
        **columns : tuple of (str or array, statistic, ...), or "size"
            Under the name of each result a column and its statistics, of those of `GroupBy.agg`. Instead of the name of
            a column an array with an element for each row; a pandas Series must have the index of the table. Several
            statistics make columns ``<name>_<statistic>``. "size" is the number of rows of each group.

        Returns
        -------
        pandas.DataFrame, polars.DataFrame or pyarrow.Table
            A row for each group: of pandas its index are the keys, of the others its first columns. Keys, and values
            picked from a column ("first", "last", "min", "max", "mode"), keep the type of their column.

        Raises
        ------
        KeyError
            If the table has no such column.
        TypeError, ValueError
            If an argument is wrong; it is named.

        Examples
        --------
        >>> import pandas
        >>> trips = pandas.DataFrame({"zone": ["a", "b", "a"], "fare": [1.0, 2.0, 4.0]})
        >>> clhist.group_by(trips, "zone").agg(mean_fare=("fare", "mean"), n="size")
              mean_fare  n
        zone
        a           2.5  2
        b           2.0  1
        """
        if wrong:
            hint = "agg(mean_fare=('fare', 'mean'), n='size')"
            raise TypeError(f"agg: expected statistics by name, got {wrong[0]!r:.60}; write {hint}")
        options: dict[str, Any] = {"skipna": skipna, "ddof": ddof, "dtype": dtype, "reproducible": reproducible}
        labels: dict[Any, str] = {}  # what messages call a column, by its name or the identity of an array
        inputs: dict[str, tuple[Any, list[str]]] = {}  # a column and its statistics, by label
        outputs: dict[str, tuple[str, str]] = {}  # the label and statistic of each result
        for name, argument in columns.items():
            column, *names = self._checked(name, argument)
            key = column if self._frame.is_name(column) else id(column)
            if key not in labels:
                labels[key] = self._label(name, column, labels.values())
                inputs[labels[key]] = self._frame.values_of(name, column), []
            statistics = inputs[labels[key]][1]
            statistics += [statistic for statistic in names if statistic not in statistics]
            for statistic in names:
                output = name if len(names) == 1 else f"{name}_{statistic}"
                if output in outputs:
                    raise ValueError(f"{name}: expected names of results that differ, got {output!r} twice")
                outputs[output] = labels[key], statistic
        table = self.groups.agg(**options, **{label: (values, *names) for label, (values, names) in inputs.items()})
        results = {
            name: self._frame.values(inputs[label][0], statistic, table[label][statistic])
            for name, (label, statistic) in outputs.items()
        }
        return self._frame.with_keys(self._keys(), results)

    def size(self, name: str = "size") -> Any:
        """Return how many rows each group has, as a table with a column of this name; see `agg`."""
        columns: dict[str, Any] = {name: "size"}
        return self.agg(**columns)

    def transform(self, column: Any, statistic: str, **options: Any) -> Any:
        """Return for each row a statistic of its group, as a column of the library.

        Parameters
        ----------
        column : str or array
            As of `agg`.
        statistic : str
            As of `GroupBy.transform`.
        **options
            As of `GroupBy.transform`.

        Returns
        -------
        pandas.Series, polars.Series or pyarrow.ChunkedArray
            Of pandas with the index of the table; named as the column.
        """
        values = self._frame.values_of("column", column)
        result = self._frame.values(values, statistic, self.groups.transform(values, statistic, **options))
        return self._frame.with_rows(column if self._frame.is_name(column) else statistic, result)

    def _keys(self) -> dict[Any, Any]:
        """Return the keys of the groups as columns of the library, by name."""
        keys = self.groups.keys
        keys = keys if isinstance(keys, tuple) else (keys,)
        return {name: self._frame.key_values(name, labels) for name, labels in zip(self._names, keys, strict=True)}

    def _checked(self, name: str, argument: Any) -> tuple[Any, ...]:
        """Return a column and the names of its statistics; the size of groups is that of a column of keys."""
        if isinstance(argument, str) and argument == "size":
            return self._names[0], argument
        if not isinstance(argument, tuple | list) or len(argument) < 2:
            raise TypeError(f"{name}: expected a tuple of a column and its statistics, or 'size', got {argument!r:.60}")
        return argument[0], *named_statistics(argument[1:])

    def _label(self, name: str, column: Any, labels: Collection[str]) -> str:
        label = str(column) if self._frame.is_name(column) else name
        while label in labels or label in _OPTIONS:
            label += "_"
        return label


def names_of_keys(*names: Any) -> list[Any]:
    """Return the names of key columns, which are arguments or one list; raise TypeError if one is not a string."""
    columns = list(names[0]) if len(names) == 1 and isinstance(names[0], list | tuple) else list(names)
    if not columns:
        raise TypeError("keys: expected the name of at least one column of the table, got none")
    for name in columns:
        if not isinstance(name, str):
            raise TypeError(f"keys: expected names of columns of the table, got {name!r:.60}")
    if len({*columns}) < len(columns):
        raise ValueError(f"keys: expected different names of columns, got {columns}")
    return columns
