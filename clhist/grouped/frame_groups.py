"""The groups of a table by columns of keys: statistics of columns by name, as tables of the same library."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Never

import numpy as np

from clhist._core.runtime.columns import read_column
from clhist.grouped.dates import NAT, as_integers
from clhist.grouped.frames import Frame, key_values, picked_or_missing
from clhist.grouped.groups import groups_of
from clhist.grouped.weighted import MOMENTS, check_no_dates, weighted_moment
from clhist.operators.c_types import check_booleans
from clhist.statistics.table import named_statistics, place_of, quantile_of

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

COUNTS = ("size", "count", "nunique")  # which are 0 without values
OPTIONS = ("skipna", "ddof", "dtype", "reproducible")  # of `GroupBy.agg`, where no column has such a name


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

    def __init__(self, frame: Frame, keys: Mapping[str, Any], groups: Any) -> None:
        self._frame, self._columns, self.groups = frame, keys, groups

    def __repr__(self) -> str:
        by = ", ".join(map(repr, self._columns))
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
        min_count: int = 0,
        weights: Any = None,
        **columns: Any,
    ) -> Any:
        """Compute statistics of columns, in one sweep over all of them.

        Parameters
        ----------
        skipna, ddof, dtype, reproducible
            As of `GroupBy.agg`; `ddof` is 0, where pandas and polars have 1.
        min_count : int
            Statistics of fewer values are missing, but for "size", "count" and "nunique". In pandas sums, products,
            extremes, "first" and "last" have it.
        weights : str or array, optional
            Weights of the rows, a column as of `columns`, for "mean", "sum", "var", "std", "median" and quantiles: see
            `GroupBy.weighted_mean` and `GroupBy.quantile`. Weights are those of reliability, as `aweights` of
            ``numpy.cov`` and of boost-histogram: the variance is divided by the sum of the weights, less `ddof` times
            the sum of their squares over their sum. "size" and "count" are those of rows; other statistics are refused.
        **columns : tuple of (str or array, statistic, ...), or "size"
            Under the name of each result a column and its statistics, of those of `GroupBy.agg`. Instead of the name of
            a column an array with an element for each row, or an expression of polars; a pandas Series must have the
            index of the table. Several statistics make columns ``<name>_<statistic>``. "size" is the number of rows of
            each group. "nth1" is the second value and "nth-2" the last but one, missing in groups with fewer rows. A
            list of columns has "nunique": the number of different combinations of values that are not missing.

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
        check_booleans(skipna=skipna, reproducible=reproducible)
        if isinstance(min_count, bool) or not isinstance(min_count, int | np.integer):
            raise TypeError(f"min_count: expected an integer, got {min_count!r:.60}")
        options: dict[str, Any] = {"skipna": skipna, "ddof": ddof, "dtype": dtype, "reproducible": reproducible}
        labels: dict[Any, str] = {}  # what messages call a column, by its name or the identity of an array
        inputs: dict[str, tuple[Any, list[str]]] = {}  # a column and its statistics, by label
        outputs: dict[str, tuple[str, str]] = {}  # the label and statistic of each result
        if weights is not None:
            check_no_dates("weights", weights := self._frame.values_of("weights", weights))
        # Collect the statistics of each input, so that a column is read once, whatever results it has.
        for name, argument in columns.items():
            column, *names = self._checked(name, argument)
            # Arrays cannot be hashed; `columns` keeps them alive, so that no two have one id.
            key = column if self._frame.is_name(column) else id(column)
            if weights is not None:
                self._check_weighted(name, names, reproducible)
            if key not in labels:
                labels[key] = self._label(name, column, labels.values())
                values = self._combined(name, column, names) if isinstance(column, list) else None
                inputs[labels[key]] = self._frame.values_of(name, column) if values is None else values, []
            if weights is not None and not {*COUNTS}.issuperset(names):
                check_no_dates(name, inputs[labels[key]][0])
            statistics = inputs[labels[key]][1]
            statistics += [statistic for statistic in names if statistic not in statistics]
            for statistic in names:
                output = name if len(names) == 1 else f"{name}_{statistic}"
                if output in outputs:
                    raise ValueError(f"{name}: expected names of results that differ, got {output!r} twice")
                outputs[output] = labels[key], statistic
        results = self._results(inputs, outputs, options, min_count, weights)
        return self._frame.with_keys(self._keys(), results)

    def _results(
        self,
        inputs: Mapping[str, tuple[Any, list[str]]],
        outputs: Mapping[str, tuple[str, str]],
        options: Mapping[str, Any],
        min_count: int,
        weights: Any,
    ) -> dict[str, Any]:
        """Return the results of `agg` by name, each a statistic of an input."""
        # Beside the requested statistics, counts say which groups reach `min_count`, and sizes which have an n-th row.
        requests = {
            label: [name for name in names if weights is None or name in COUNTS]
            + ["count"] * (min_count > 0)
            + ["size"] * any(place_of(name) is not None for name in names)
            for label, (_, names) in inputs.items()
        }
        table = self.groups.agg(
            **options,
            **{label: (inputs[label][0], *dict.fromkeys(names)) for label, names in requests.items() if names},
        )
        results = {}
        for name, (label, statistic) in outputs.items():
            values, parts = inputs[label][0], table.get(label, {})
            if weights is not None and statistic not in COUNTS:
                result = self._weighted(name, values, statistic, weights, options)
            else:
                result = parts[statistic]
            # Results of groups with too few values or rows are missing.
            are_many = np.ones(len(self), bool)
            if min_count > 0 and statistic not in COUNTS:
                are_many &= np.asarray(parts["count"]) >= min_count
            if (place := place_of(statistic)) is not None:
                are_many &= np.asarray(parts["size"]) >= (-place if place < 0 else place + 1)
            if not are_many.all():
                result = picked_or_missing(result, np.where(are_many, np.arange(len(self)), -1))
            results[name] = self._frame.values(values, statistic, result)
        return results

    def _check_weighted(self, name: str, statistics: Collection[str], reproducible: bool) -> None:
        """Raise TypeError if one of the statistics has no weights, or is not reproducible with them."""
        for statistic in statistics:
            is_quantile = statistic == "median" or quantile_of(statistic) is not None
            if statistic not in ("mean", *MOMENTS, "size", "count") and not is_quantile:
                raise TypeError(
                    f"{name}: expected 'mean', 'sum', 'var', 'std', 'median', quantiles such as 'q90', 'size' or "
                    f"'count' with weights, got {statistic!r}"
                )
            if is_quantile and reproducible:
                raise TypeError(f"{name}: expected reproducible=False of {statistic!r} with weights, got True")

    def _weighted(self, name: str, x: Any, statistic: str, weights: Any, options: Mapping[str, Any]) -> Any:
        """Return a statistic of values with weights."""
        q, method = (0.5, "linear") if statistic == "median" else quantile_of(statistic) or (None, None)
        if statistic in MOMENTS:
            return weighted_moment(self.groups, name, statistic, x, weights, options)
        of_mean = {name: options[name] for name in ("skipna", "dtype", "reproducible")}
        try:
            if q is None:
                return self.groups.weighted_mean(x, weights, **of_mean)
            skipna, dtype = options["skipna"], options["dtype"]
            return self.groups.quantile(x, q, method=method, weights=weights, skipna=skipna, dtype=dtype)
        except (TypeError, ValueError) as error:
            # Methods of arrays call the values `x`; the caller knows them by the name of the result.
            raise type(error)(str(error).replace("x:", f"{name}:", 1)) from error

    def _combined(self, name: str, columns: list[Any], statistics: Collection[str]) -> np.ndarray | None:
        """Return numbers of the combinations of several columns, masked where one is missing; None of an array."""
        # A list of integers is an array of values, though integers may be names of columns.
        if not columns or not all(map(self._frame.is_name, columns)) or isinstance(columns[0], int):
            return None
        if {*statistics} != {"nunique"}:
            raise TypeError(f"{name}: expected 'nunique' of several columns, got {', '.join(map(repr, statistics))}")
        arrays = [self._frame.column(name, column) for column in columns]
        numbers = type(self.groups)(groups_of(arrays, None, False, None)).ngroup()
        return np.ma.array(numbers, mask=numbers < 0)

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

    def nlargest(self, n: int, column: Any) -> Any:
        """Return the rows of the `n` largest values of each group, the largest first.

        Parameters
        ----------
        n : int
            How many rows of a group, at most.
        column : str or array
            As of `agg`: real numbers or dates. Rows whose value is missing are left out; of equal values the first
            rows are taken.

        Returns
        -------
        pandas.DataFrame, polars.DataFrame or pyarrow.Table
            Rows of the table, of pandas with their index, by group in the order of the groups.

        Examples
        --------
        >>> import pandas
        >>> trips = pandas.DataFrame({"zone": ["a", "b", "a"], "fare": [1.0, 2.0, 4.0]})
        >>> clhist.group_by(trips, "zone").nlargest(1, "fare")
          zone  fare
        2    a   4.0
        1    b   2.0
        """
        return self._of_rank(n, column, ascending=False)

    def nsmallest(self, n: int, column: Any) -> Any:
        """Return the rows of the `n` least values of each group, the least first; see `nlargest`."""
        return self._of_rank(n, column, ascending=True)

    def _of_rank(self, n: int, column: Any, *, ascending: bool) -> Any:
        if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 0:
            raise ValueError(f"n: expected a number of rows, got {n!r:.60}")
        values = self._frame.values_of("column", column)
        numbers, groups = self.groups.ngroup(), self.groups
        # Ranks need a sort: sort only the rows that may be among the first `n` of their group.
        rows = self._candidates(n, values, numbers, ascending)
        if rows is not None:
            groups, values = self._numbered(numbers[rows], len(self)), _plain(values)[0][rows]
        ranks = np.ma.filled(groups.rank(values, "first", ascending=ascending), np.nan)
        largest = np.flatnonzero(ranks <= n)
        places = largest if rows is None else rows[largest]
        # In the order of the groups, and by rank within a group.
        return self._frame.rows(places[np.lexsort((ranks[largest], numbers[places]))])

    def _candidates(self, n: int, values: Any, numbers: np.ndarray, ascending: bool) -> np.ndarray | None:
        """Return the rows that may be among the `n` largest or least of their group; None of all.

        Each group is dealt into blocks. Its n-th largest value is not less than the n-th largest maximum of a block, so
        that values below it need no rank.
        """
        # Blocks of fewer than 4 rows on average would exclude few rows.
        blocks = max(16, 4 * n)
        array, missing = _plain(values)
        # Rows without a key, -1 here, would read the limit of a group, and there may be none.
        if n == 0 or not len(self) or array is None or array.shape != numbers.shape:
            return None
        if blocks * len(self) * 4 > numbers.size:
            return None
        # A key for each block of each group; rows without a group or value have -1.
        keys = numbers * blocks + np.arange(numbers.size) % blocks
        keys[(numbers < 0) if missing is None else (numbers < 0) | missing] = -1
        extreme = "min" if ascending else "max"
        extremes = self._numbered(keys, blocks * len(self)).agg(x=(array, extreme))["x"][extreme]
        if array.dtype.kind == "f":  # blocks without a value have NaN
            extremes[np.isnan(extremes)] = np.inf if ascending else -np.inf
        ordered = np.sort(extremes.reshape(len(self), blocks), 1)
        # Rows without a group read the limit of group 0; their key -1 excludes them below.
        limits = ordered[:, n - 1 if ascending else -n][np.maximum(numbers, 0)]
        return np.flatnonzero(((array <= limits) if ascending else (array >= limits)) & (keys >= 0))

    def _numbered(self, numbers: np.ndarray, num_groups: int) -> Any:
        """Return groups of arrays by their numbers."""
        return type(self.groups)(groups_of(numbers, num_groups, True, None))

    def _keys(self) -> dict[Any, Any]:
        """Return the keys of the groups as columns of the library, by name."""
        keys = self.groups.keys
        keys = keys if isinstance(keys, tuple) else (keys,)
        columns = zip(self._columns.items(), keys, strict=True)
        return {name: key_values(column, labels) for (name, column), labels in columns}

    def _checked(self, name: str, argument: Any) -> tuple[Any, ...]:
        """Return a column and the names of its statistics; the size of groups is that of a column of keys."""
        if isinstance(argument, str) and argument == "size":
            return next(iter(self._columns.values())), argument
        if not isinstance(argument, tuple | list) or len(argument) < 2:
            raise TypeError(f"{name}: expected a tuple of a column and its statistics, or 'size', got {argument!r:.60}")
        return argument[0], *named_statistics(argument[1:])

    def _label(self, name: str, column: Any, labels: Collection[str]) -> str:
        label = str(column) if self._frame.is_name(column) else name
        # Labels become keyword arguments of `GroupBy.agg`, which has options of its own.
        while label in labels or label in ("self", *OPTIONS):
            label += "_"
        return label


def _plain(values: Any) -> tuple[Any, np.ndarray | None]:
    """Return numbers or dates as an array of NumPy, dates as integers, and which are missing; None of others."""
    column = read_column(values)
    array, missing = (values, None) if column is None else (column.values, column.missing)
    if column is None and hasattr(array, "to_numpy"):
        array = array.to_numpy()
    array, dates = as_integers(array)
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "iuf" or array.dtype.itemsize > 8:
        return None, None
    if column is not None and column.nan_is_value and np.isnan(array).any():  # the greatest value, of polars
        return None, None
    return array, missing if dates is None else array == NAT
