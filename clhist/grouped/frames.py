"""Tables of pandas, polars and PyArrow: their columns by name, and results as tables of the same library."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from clhist._core.opencl.arrays import is_device_array
from clhist._core.runtime.columns import picked, read_column
from clhist.grouped.columns import like_keys
from clhist.grouped.hints import check_index
from clhist.grouped.table import arrow_table, as_pandas, pandas_frame, polars_frame
from clhist.statistics.table import OF_COLUMN, place_of

_MOST_NAMES = 20  # columns that a message lists


@dataclass(frozen=True)
class ComputedKey:
    """A column of keys that a function computes from a column.

    Attributes
    ----------
    column : str or column
        Name of a column of the table, or a column beside it.
    compute : callable
        Returns the keys, as a column of the library of the table, from the name and the column.
    name : str, optional
        Of the keys; defaults to that of the column.
    """

    column: Any
    compute: Callable[[Any, Any], Any]
    name: str | None = None


class Frame:
    """A table whose columns are read by name.

    Attributes
    ----------
    table : pandas.DataFrame, polars.DataFrame or pyarrow.Table
        The table.
    library : str
        "pandas", "polars" or "pyarrow".
    names : list
        The names of the columns.
    """

    def __init__(self, table: Any, library: str) -> None:
        self.table, self.library = table, library
        self.names = list(table.column_names if library == "pyarrow" else table.columns)

    def column(self, argument: str, name: Any) -> Any:
        """Return a column as its library has it.

        Raises
        ------
        KeyError
            If there is no such column.
        ValueError
            If several columns have the name.
        """
        number = self.names.count(name)
        if number == 0:
            texts = [text for text in self.names if isinstance(text, str)]
            from difflib import get_close_matches  # for errors alone

            close = get_close_matches(name, texts, 1) if isinstance(name, str) else []
            hint = f"; did you mean {close[0]!r}?" if close else ""
            dots = ", ..." if len(self.names) > _MOST_NAMES else ""
            listed = ", ".join(map(repr, self.names[:_MOST_NAMES])) + dots
            raise KeyError(f"{argument}: expected a column of the table, got {name!r}{hint} (columns: {listed})")
        if number > 1:
            raise ValueError(f"{argument}: expected a name of one column, but {number} columns are named {name!r}")
        return self.table[name]

    def values(self, column: Any, statistic: str, result: Any) -> Any:
        """Return a statistic of a column as a column of the library, where it can, of the type of the column."""
        dtype = getattr(column, "dtype", None)
        is_plain = isinstance(result, np.ndarray)  # others are columns of the library already
        is_of_column = statistic in OF_COLUMN or place_of(statistic) is not None
        if is_plain and is_of_column and (like := like_keys(column)) is not None:
            return like(result)
        if statistic == "count" and getattr(dtype, "kind", "") == "O" and not hasattr(dtype, "pyarrow_dtype"):
            return np.asarray(result)  # of text, which has no nullable counts in pandas
        is_masked = isinstance(result, np.ma.MaskedArray)
        # Results of a pandas column stored by PyArrow are stored by PyArrow, so that missing ones are its nulls.
        if hasattr(dtype, "pyarrow_dtype") and (is_masked or (is_plain and result.dtype.kind in "mM")):
            pyarrow = import_module("pyarrow")
            array = pyarrow.array(result)
            return import_module("pandas").array(array, dtype=import_module("pandas").ArrowDtype(array.type))
        return result

    def is_name(self, column: Any) -> bool:
        """Whether `column` is the name of a column (text, an integer or a tuple of pandas), rather than an array."""
        # A tuple may be one name of a pandas MultiIndex, or values beside the table.
        if not isinstance(column, tuple):
            return isinstance(column, str | int | np.integer)
        return all(np.ndim(level) == 0 for level in column) and column in self.names

    def values_of(self, argument: str, column: Any) -> Any:
        """Return a column by its name, or an array or expression beside the table.

        Raises
        ------
        KeyError, TypeError, ValueError
            If there is no such column, or the array is one of another library, or has another index.
        """
        if self.is_name(column):
            return self.column(argument, column)
        if library_of(column) not in (None, self.library):
            raise TypeError(
                f"{argument}: expected a column of {self.library}, as the table is, got one of {library_of(column)}; "
                "convert one of both"
            )
        check_index(argument, column, getattr(self.table, "index", None))
        return self.evaluated(argument, column)

    def evaluated(self, argument: str, column: Any) -> Any:
        """Return the values of an expression of polars, and any other column as it is."""
        # An expression has no values yet: polars evaluates it on the table.
        if self.library == "polars" and hasattr(column, "over"):
            column, *others = self.table.select(column).get_columns()
            if others:
                raise ValueError(f"{argument}: expected an expression of one column, got {1 + len(others)}")
        return column

    def with_keys(self, keys: Mapping[Any, Any], columns: Mapping[Any, Any]) -> Any:
        """Return a table of the library with a row for each group; keys are the index of pandas."""
        if self.library == "pandas":
            return pandas_frame([*keys.values()], [*keys], columns)
        if twice := next((name for name in columns if name in keys), None):
            raise ValueError(f"{twice}: expected another name than that of a key column")
        return (polars_frame if self.library == "polars" else arrow_table)({**keys, **columns})

    def rows(self, places: np.ndarray) -> Any:
        """Return rows of the table by their places, of pandas with their index."""
        if self.library == "pandas":
            return self.table.iloc[places]
        return self.table[places] if self.library == "polars" else self.table.take(places)

    def with_rows(self, name: Any, values: Any) -> Any:
        """Return values for each row as a column of the library; a Series of pandas has the index of the table."""
        if self.library == "pandas":
            pandas = import_module("pandas")
            return pandas.Series(as_pandas(values, pandas), index=self.table.index, name=name)
        if self.library == "polars":
            return polars_frame({name: values})[name]
        return arrow_table({name: values})[name]


def key_columns(frame: Frame, *keys: Any) -> dict[Any, Any]:
    """Return columns of keys by name.

    Parameters
    ----------
    frame : Frame
        The table.
    *keys : str, int, tuple, or named column or expression of the library of the table
        Names of columns, or columns beside the table; or one list of them.

    Raises
    ------
    KeyError, TypeError, ValueError
        If there is no such column, a column has no name or another length, or two have one name.
    """
    # A tuple that is the name of a column is one key, not a list of keys.
    is_list = len(keys) == 1 and isinstance(keys[0], list | tuple) and not frame.is_name(keys[0])
    listed = keys[0] if is_list else keys
    if not listed:
        raise TypeError("keys: expected the name of at least one column of the table, got none")
    columns: dict[Any, Any] = {}
    for key in listed:
        name, column = (key, None) if frame.is_name(key) else _named(frame, key)
        if name in columns:
            raise ValueError(f"keys: expected different names of columns, got {name!r} twice; rename one")
        columns[name] = frame.column("keys", name) if column is None else column
    return columns


def _named(frame: Frame, key: Any) -> tuple[Any, Any]:
    """Return a column beside the table with its name; an expression of polars, or a `ComputedKey`, is computed."""
    if isinstance(key, ComputedKey):
        is_name = frame.is_name(key.column)
        name, column = (key.column, frame.column("column", key.column)) if is_name else _named(frame, key.column)
        return key.name or name, key.compute(name, column)
    what = f"keys: expected names of columns of the table, or columns of {frame.library} with names"
    if library_of(key) != frame.library:
        shown = f"{key!r:.60}" if np.ndim(key) == 0 else f"{type(key).__name__} of another library"
        raise TypeError(f"{what}, got {shown}")
    key = frame.evaluated("keys", key)
    name = getattr(key, "name", None)
    if not frame.is_name(name) and not isinstance(name, tuple):
        hint = "append it to the table" if frame.library == "pyarrow" else "rename it"
        raise TypeError(f"{what}, got a column named {name!r}; {hint}")
    if len(key) != len(frame.table):
        raise ValueError(f"keys: expected {len(frame.table)} rows as the table has, got {len(key)} in {name!r}")
    check_index("keys", key, getattr(frame.table, "index", None))
    return name, key


def used_categories(column: Any) -> Any:
    """Return a column of keys with those categories alone that occur: others have no group."""
    categories = getattr(column, "cat", None) if library_of(column) == "pandas" else None
    return column if categories is None else categories.remove_unused_categories()


def key_values(column: Any, labels: np.ndarray) -> Any:
    """Return keys of groups as a column of the library and type of a column of keys."""
    like = like_keys(column)
    return labels if like is None else like(labels)


def picked_or_missing(results: Any, places: np.ndarray) -> Any:
    """Return results at places; at -1 they are missing: NaN, NaT, None or masked."""
    if (places >= 0).all():
        return results[places]
    if not isinstance(results, np.ndarray):
        data = read_column(results)
        if data is not None and data.like is not None:  # dates with a time zone
            return data.like(picked(data.values, places))
        results = np.asarray(results, object)
    if not isinstance(results, np.ma.MaskedArray):
        if results.dtype.kind in "fc":
            # Place -1 selects the appended NaN.
            return np.append(results, results.dtype.type(np.nan))[places]
        # Booleans and integers have no missing value, so they are masked.
        results = np.ma.array(results) if results.dtype.kind in "biu" else results
    return picked(results, places)


def is_column_number(table: Any, number: Any) -> bool:
    """Whether a column of a DataFrame of pandas has an integer as its name."""
    return type(number) is int and hasattr(table, "iloc") and hasattr(table, "columns") and number in table.columns


def library_of(value: Any) -> str | None:
    """Return "pandas", "polars" or "pyarrow" of a table or column of that library; None of anything else."""
    # The bases count as well, for subclasses in other packages; no library is imported for the test.
    for kind in type(value).__mro__:
        library = kind.__module__.partition(".")[0]
        if library in ("pandas", "polars", "pyarrow"):
            return library
    return None


def read_frame(table: Any) -> Frame | None:
    """Return a table with its columns by name; None of anything else.

    A table of another library is read as PyArrow's by the Arrow PyCapsule interface, and results are PyArrow's.

    Raises
    ------
    TypeError
        If it is a LazyFrame of polars.
    """
    if isinstance(table, np.ndarray) or is_device_array(table):
        return None
    # Libraries are recognised by their attributes, so that none is imported.
    if hasattr(table, "iloc") and hasattr(table, "columns"):
        return Frame(table, "pandas")
    if hasattr(table, "get_columns"):
        return Frame(table, "polars")
    if hasattr(table, "collect_schema") and hasattr(table, "collect"):
        raise TypeError("keys: expected a table in memory, got a LazyFrame; pass frame.collect()")
    if hasattr(table, "column_names") and hasattr(table, "to_pydict"):
        return Frame(table, "pyarrow")
    if hasattr(table, "__arrow_c_stream__") and hasattr(table, "columns"):
        return Frame(import_module("pyarrow").table(table), "pyarrow")
    return None
