"""The result of `clhist.GroupBy.agg`: statistics by column and name, a dict of dicts that converts to pandas."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from importlib import import_module
from typing import Any, TypeVar

import numpy as np

from clhist._core.opencl.arrays import is_device_array

A = TypeVar("A")

_OF_ARROW = ("s", "ms", "us", "ns")  # units of dates and durations


def _imported(module: str, called: str, method: str) -> Any:
    """Return a library that only one method needs."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f"{method} needs {called}: pip install {module}") from error


class Table(dict[str, dict[str, A]]):
    """A dict of dicts of arrays with one element for each group: ``table[column][statistic]``."""

    def __init__(
        self,
        columns: dict[str, dict[str, A]],
        keys: Callable[[], Any],
        names: tuple[Any, ...] = (None,),
        like: Sequence[Callable[[Any], Any] | None] = (),
    ) -> None:
        super().__init__(columns)
        self._keys, self._names, self._like = keys, names, like or (None,) * len(names)

    def __reduce__(self) -> Any:
        on_device = [names for names, array in self._pairs().items() if is_device_array(array)]
        if on_device:
            column, statistic = on_device[0]
            raise TypeError(
                f"Table: cannot be pickled, since [{column!r}][{statistic!r}] is on a device of this process; its "
                "to_pandas() and to_arrow() can be, and tables of NumPy arrays"
            )
        # The keys are read now: the function that returns them may hold arrays of a device.
        return type(self), (dict(self), partial(_returned, self._keys()), self._names, self._like)

    def __copy__(self) -> Table[A]:
        return Table(dict(self), self._keys, self._names, self._like)

    def __deepcopy__(self, memo: dict[int, Any]) -> Table[A]:
        return Table(deepcopy(dict(self), memo), self._keys, self._names, self._like)

    def to_pandas(self) -> Any:
        """Return a pandas.DataFrame with a row for each group.

        Returns
        -------
        pandas.DataFrame
            Its index are the keys of the groups, by the names and of the dtypes of the columns that they came from; its
            columns are pairs of a column and a statistic. Arrays of a device are copied to the host.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        pandas = _imported("pandas", "pandas", "to_pandas")
        arrays = self._arrays()
        columns = pandas.MultiIndex.from_tuples([*arrays], names=["column", "statistic"]) if arrays else []
        frame = pandas_frame(self._key_columns(), self._names, dict(enumerate(arrays.values())))
        return frame.set_axis(columns, axis=1)

    def to_arrow(self) -> Any:
        """Return a pyarrow.Table with a row for each group.

        Returns
        -------
        pyarrow.Table
            The keys of the groups in columns of their names, or ``key``, and ``key0``, ``key1`` and so on of several;
            then a column ``<column>_<statistic>`` for each statistic. Arrays of a device are copied to the host.

        Raises
        ------
        ImportError
            If PyArrow is not installed.
        ValueError
            If two columns would have the same name.
        """
        return arrow_table(self._named_columns())

    def to_polars(self) -> Any:
        """Return a polars.DataFrame with a row for each group, of the columns of `to_arrow`.

        Keys that are categories of polars keep their type and order.

        Raises
        ------
        ImportError
            If polars or PyArrow is not installed.
        ValueError
            As of `to_arrow`.
        """
        return polars_frame(self._named_columns())

    def _key_columns(self) -> list[Any]:
        """Return the keys in columns as those that they came from."""
        keys = self._keys()
        columns = keys if isinstance(keys, tuple) else (keys,)
        return [column if like is None else like(column) for column, like in zip(columns, self._like, strict=True)]

    def _named_columns(self) -> dict[str, Any]:
        """Return the keys and the statistics by the names that they have in tables."""
        keys = self._key_columns()
        default = [f"key{n}" for n in range(len(keys))] if len(keys) > 1 else ["key"]
        names = [
            instead if name in (None, "") else str(name) for name, instead in zip(self._names, default, strict=True)
        ]
        arrays = self._arrays()
        names += [f"{column}_{statistic}" for column, statistic in arrays]
        if len({*names}) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"columns: expected names that differ, got {twice!r} twice")
        return dict(zip(names, [*keys, *arrays.values()], strict=True))

    def _arrays(self) -> dict[tuple[str, str], Any]:
        """Return the statistics on the host, by column and name."""
        return {names: array.get() if is_device_array(array) else array for names, array in self._pairs().items()}

    def _pairs(self) -> dict[tuple[str, str], Any]:
        """Return the statistics by column and name."""
        table: dict[str, dict[str, Any]] = {**self}
        return {(column, name): array for column, statistics in table.items() for name, array in statistics.items()}


def _returned(value: Any) -> Any:
    return value


def pandas_frame(keys: Sequence[Any], names: Sequence[Any], columns: Mapping[Any, Any]) -> Any:
    """Return a pandas.DataFrame of columns, whose index are the keys under their names."""
    pandas = _imported("pandas", "pandas", "to_pandas")
    keys = [as_pandas(key, pandas) for key in keys]
    if len(keys) > 1:
        index = pandas.MultiIndex.from_arrays(keys, names=names)
    else:
        values = keys[0].tolist() if keys[0].dtype == object else keys[0]
        # Tuples without a name come from a MultiIndex and become one; those of a named column stay tuples.
        index = pandas.Index(values, name=names[0], tupleize_cols=names[0] is None)
    return pandas.DataFrame({name: as_pandas(column, pandas) for name, column in columns.items()}, index=index)


def arrow_table(columns: Mapping[str, Any]) -> Any:
    """Return a pyarrow.Table of columns by name."""
    pyarrow = _imported("pyarrow", "PyArrow", "to_arrow")
    return pyarrow.table([_of_arrow(column, pyarrow) for column in columns.values()], [*columns])


def polars_frame(columns: Mapping[str, Any]) -> Any:
    """Return a polars.DataFrame of columns by name."""
    polars = _imported("polars", "polars", "to_polars")
    pyarrow = _imported("pyarrow", "PyArrow", "to_polars")
    return polars.DataFrame(
        {
            name: column if isinstance(column, polars.Series) else polars.from_arrow(_of_arrow(column, pyarrow))
            for name, column in columns.items()
        }
    )


def as_pandas(column: Any, pandas: Any) -> Any:
    """Return a column as pandas takes it, masked arrays as nullable ones."""
    if isinstance(column, np.ma.MaskedArray):
        nullable = pandas.array(column.data)
        nullable[np.ma.getmaskarray(column)] = pandas.NA
        return nullable
    return column.to_pandas() if hasattr(column, "to_pandas") else column


def _of_arrow(column: Any, pyarrow: Any) -> Any:
    """Return a column as PyArrow's."""
    if hasattr(column, "to_arrow"):
        return column.to_arrow()
    if isinstance(column, np.ndarray):
        column = column.astype(column.dtype.newbyteorder("="), copy=False)
        days = ("D",) if column.dtype.kind == "M" else ()
        if column.dtype.kind in "mM" and np.datetime_data(column.dtype) not in [(u, 1) for u in (*_OF_ARROW, *days)]:
            column = column.astype(f"{column.dtype.kind}8[s]")  # PyArrow has no days, hours or minutes
    return column if isinstance(column, pyarrow.Array | pyarrow.ChunkedArray) else pyarrow.array(column)
