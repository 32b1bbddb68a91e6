"""What `clhist.GroupBy.agg` returns: statistics by column and name, as a dict of dicts that pandas can have."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from importlib import import_module
from typing import Any, TypeVar

import numpy as np

from clhist.opencl.arrays import is_device_array

A = TypeVar("A")


def _imported(module: str, called: str, method: str) -> Any:
    """Return a library that only one method needs."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f"{method} needs {called}: pip install {module}") from error


class Table(dict[str, dict[str, A]]):
    """A dict of dicts of arrays with one element for each group: ``table[column][statistic]``."""

    def __init__(
        self, columns: dict[str, dict[str, A]], keys: Callable[[], Any], names: tuple[Any, ...] = (None,)
    ) -> None:
        super().__init__(columns)
        self._keys, self._names = keys, names

    def __reduce__(self) -> Any:
        on_device = [names for names, array in self._pairs().items() if is_device_array(array)]
        if on_device:
            column, statistic = on_device[0]
            raise TypeError(
                f"Table: cannot be pickled, since [{column!r}][{statistic!r}] is on a device of this process; its "
                "to_pandas() and to_arrow() can be, and tables of NumPy arrays"
            )
        return _restored, (dict(self), self._keys(), self._names)

    def __copy__(self) -> Table[A]:
        return Table(dict(self), self._keys, self._names)

    def __deepcopy__(self, memo: dict[int, Any]) -> Table[A]:
        return Table(deepcopy(dict(self), memo), self._keys, self._names)

    def to_pandas(self) -> Any:
        """Return a pandas.DataFrame with a row for each group.

        Returns
        -------
        pandas.DataFrame
            Its index are the keys of the groups, its columns pairs of a column and a statistic. Arrays of a device are
            copied to the host.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        pandas = _imported("pandas", "pandas", "to_pandas")
        arrays, keys = self._arrays(), self._keys()
        if isinstance(keys, tuple):
            index = pandas.MultiIndex.from_arrays(keys, names=self._names)
        else:
            # Tuples make a MultiIndex.
            index = pandas.Index(keys.tolist() if keys.dtype == object else keys)
        columns = pandas.MultiIndex.from_tuples([*arrays], names=["column", "statistic"]) if arrays else []
        for own, each in arrays.items():
            if isinstance(each, np.ma.MaskedArray):
                nullable = arrays[own] = pandas.array(each.data)
                nullable[each.mask] = pandas.NA
        frame = pandas.DataFrame(dict(enumerate(arrays.values())), index=index)
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
        pyarrow = _imported("pyarrow", "PyArrow", "to_arrow")
        keys = self._keys()
        columns = keys if isinstance(keys, tuple) else (keys,)
        default = [f"key{n}" for n in range(len(columns))] if isinstance(keys, tuple) else ["key"]
        names = [
            instead if name in (None, "") else str(name) for name, instead in zip(self._names, default, strict=True)
        ]
        arrays = self._arrays()
        names += [f"{column}_{statistic}" for column, statistic in arrays]
        if len({*names}) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"columns: expected names that differ, got {twice!r} twice")
        native = (each.astype(each.dtype.newbyteorder("="), copy=False) for each in (*columns, *arrays.values()))
        return pyarrow.table([pyarrow.array(each) for each in native], names)

    def to_polars(self) -> Any:
        """Return a polars.DataFrame with a row for each group, of the columns of `to_arrow`.

        Raises
        ------
        ImportError
            If polars or PyArrow is not installed.
        ValueError
            As of `to_arrow`.
        """
        return _imported("polars", "polars", "to_polars").from_arrow(self.to_arrow())

    def _arrays(self) -> dict[tuple[str, str], np.ndarray]:
        """Return the statistics on the host, by column and name."""
        return {names: each.get() if is_device_array(each) else each for names, each in self._pairs().items()}

    def _pairs(self) -> dict[tuple[str, str], Any]:
        """Return the statistics by column and name."""
        given: dict[str, dict[str, Any]] = {**self}
        return {(column, name): each for column, found in given.items() for name, each in found.items()}


def _restored(columns: dict[str, dict[str, A]], keys: Any, names: tuple[Any, ...]) -> Table[A]:
    return Table(columns, lambda: keys, names)
