"""What `clhist.GroupBy.agg` returns: statistics by column and name, as a dict of dicts that pandas can have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from clhist.opencl.arrays import is_device_array

A = TypeVar("A")


class Table(dict[str, dict[str, A]]):
    """A dict of dicts of arrays with one element for each group: ``table[column][statistic]``."""

    def __init__(
        self, columns: dict[str, dict[str, A]], keys: Callable[[], Any], names: tuple[Any, ...] = (None,)
    ) -> None:
        super().__init__(columns)
        self._keys, self._names = keys, names

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
        try:
            import pandas  # only where it is needed
        except ImportError as error:
            raise ImportError("to_pandas needs pandas: pip install pandas") from error
        given: dict[str, dict[str, Any]] = {**self}
        arrays: dict[tuple[str, str], Any] = {
            (column, statistic): each.get() if is_device_array(each) else each
            for column, found in given.items()
            for statistic, each in found.items()
        }
        keys = self._keys()
        if isinstance(keys, tuple):
            index = pandas.MultiIndex.from_arrays(keys, names=self._names)
        else:
            # Tuples make a MultiIndex.
            index = pandas.Index(keys.tolist() if keys.dtype == object else keys)
        columns = pandas.MultiIndex.from_tuples([*arrays], names=["column", "statistic"]) if arrays else []
        frame = pandas.DataFrame(dict(enumerate(arrays.values())), index=index)
        return frame.set_axis(columns, axis=1)
