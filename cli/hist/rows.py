"""The rows that a histogram counts: chunks of all files, with missing values and cuts taken out, and keys numbered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from clhist.cli.hist.condition import Condition
from clhist.cli.hist.table import Chunk, Table, TableError
from clhist.cli.hist.tables import common_dtype, rows_of

Array = npt.NDArray[Any]

_KEPT_BYTES = 1 << 28  # chunks that the second pass need not read again
_MOST_GROUPS = 1 << 16
_MOST_FRACTIONS = 1000  # more of these are measurements rather than names
_DIRECT = 1 << 20  # integer keys in a range so large are numbered by a table


@dataclass(frozen=True)
class Piece:
    """Rows that count.

    Attributes
    ----------
    columns : tuple of array
        What is binned.
    weights, values : array or None
        Of each row.
    groups : array of int, or None
        The number of the group of each row.
    """

    columns: tuple[Array, ...]
    weights: Array | None
    values: Array | None
    groups: Array | None


class Groups:
    """Numbers for the values of a column, or of several together, in the order in which they are met."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def labels(self) -> list[Any]:
        """The values by their numbers; tuples of several columns."""
        return list(self._numbers)

    def numbers(self, keys: Array, texts: Sequence[str] | None = None) -> Array:
        """Return the number of each key; new ones get the next. With `texts`, keys are places in it."""
        if keys.dtype.kind in "iub" and keys.size and int(keys.max()) - int(keys.min()) < _DIRECT:
            low = int(keys.min())
            steps = np.subtract(keys, low, dtype=np.int64)
            there = np.flatnonzero(np.bincount(steps))
            table = np.zeros(int(there[-1]) + 1, np.int32)
            labels = (there + low).astype(keys.dtype).tolist()
            table[there] = self.of(labels if texts is None else [texts[n] for n in labels])
            return table[steps]
        found, places = np.unique(keys, return_inverse=True)
        labels = found.tolist()
        return self.of(labels if texts is None else [texts[n] for n in labels])[places]

    def of(self, labels: Iterable[Any]) -> Array:
        """Return the number of each label; new ones get the next."""
        found = [self._numbers.setdefault(label, len(self._numbers)) for label in labels]
        if len(self._numbers) > _MOST_FRACTIONS and any(type(label) is float and label % 1 for label in self._numbers):
            raise ValueError(
                f"--by: expected at most {_MOST_FRACTIONS:,} different values with fractions, got more; a second "
                "--column bins them"
            )
        if len(self._numbers) > _MOST_GROUPS:
            raise ValueError(f"--by: expected at most {_MOST_GROUPS:,} different values, got more")
        return np.array(found, np.int32)

    def together(self, columns: Sequence[Groups], numbers: Sequence[Array]) -> Array:
        """Return the number of each row's values in several columns, given their numbers there."""
        places, labels = numbers[0], [(label,) for label in columns[0].labels]
        for column, each in zip(columns[1:], numbers[1:], strict=True):
            found, places = np.unique(places * np.int64(len(column)) + each, return_inverse=True)
            of_column = column.labels
            labels = [(*labels[n // len(column)], of_column[n % len(column)]) for n in found.tolist()]
        return self.of(labels)[places]

    def sorted(self) -> tuple[list[Any], Array]:
        """Return the keys in order, numbers by value, and the number of each."""
        labels = list(self._numbers)
        if labels and isinstance(labels[0], tuple):
            labels = list(zip(*map(_as_numbers, zip(*labels, strict=True)), strict=True))
        else:
            labels = _as_numbers(labels)
        order = sorted(range(len(labels)), key=labels.__getitem__)
        return [labels[n] for n in order], np.array(order, np.intp)


def _as_numbers(labels: Sequence[Any]) -> list[Any]:
    """Return labels as numbers if all are."""
    numbers = [_as_number(label) for label in labels]
    return numbers if all(number is not None for number in numbers) else list(labels)


def _as_number(label: Any) -> int | float | None:
    if isinstance(label, int):
        return label
    if isinstance(label, str):
        try:
            return int(label)
        except ValueError:
            pass
    try:
        number = float(label)
    except ValueError:
        return None
    if np.isnan(number):
        return None
    return int(number) if not isinstance(label, str) and number.is_integer() else number


@dataclass
class Rows:
    """The rows of several tables.

    Attributes
    ----------
    tables : sequence of Table
        Of the same columns.
    columns : sequence of str
        What is binned.
    weights, values : str or None
        Other columns.
    by : sequence of str
        Columns whose values make groups.
    condition : Condition or None
        Which rows count.
    progress : callable
        Called with the part of all files that has been read.
    is_part : bool
        Whether there may be none.
    total, missing, cut : int
        Rows read, those in which a number is missing, and those that the condition leaves out.
    """

    tables: Sequence[Table]
    columns: Sequence[str]
    weights: str | None
    values: str | None
    by: Sequence[str]
    condition: Condition | None
    progress: Callable[[float], None]
    groups: Groups = field(default_factory=Groups)  # of all columns of `by` together
    is_part: bool = False
    total: int = 0
    missing: int = 0
    cut: int = 0
    _kept: list[Piece] | None = None

    def __post_init__(self) -> None:
        self.numbers = tuple(name for name in (*self.columns, self.weights, self.values) if name is not None)
        self.dtypes = {name: common_dtype(self.tables, name) for name in self.numbers}
        self._of_columns = [self.groups] if len(self.by) == 1 else [Groups() for _ in self.by]

    def pieces(self, *, keep: bool = False) -> Iterator[Piece]:
        """Yield the rows; with `keep` they are kept in memory for the next time, if they are few enough."""
        if self._kept is not None:
            yield from self._kept
            return
        self.total = self.missing = self.cut = 0
        kept: list[Piece] | None = [] if keep else None
        size = 0
        for piece in self._read():
            size += sum(a.nbytes for a in (*piece.columns, piece.weights, piece.values, piece.groups) if a is not None)
            if kept is not None:
                kept = [*kept, piece] if size <= _KEPT_BYTES else None
            yield piece
        self._kept = kept

    def _read(self) -> Iterator[Piece]:
        names = tuple(dict.fromkeys((*self.numbers, *(self.condition.names if self.condition else ()))))
        for n, table in enumerate(self.tables):
            for chunk in table.chunks(names, self.by):
                yield self._piece(chunk)
                self.progress((n + chunk.done) / len(self.tables))
        if not self.is_part:
            self.check_not_empty()

    def check_not_empty(self) -> None:
        """Raise TableError if no rows were read."""
        if not self.total:
            raise TableError(f"{', '.join(str(table.path) for table in self.tables)}: expected rows, got none")

    def _piece(self, chunk: Chunk) -> Piece:
        columns, rows = chunk.columns, rows_of(chunk)
        there = np.ones(rows, bool) if chunk.valid is None else chunk.valid.copy()
        for name in self.numbers:
            if columns[name].dtype.kind == "f":
                there &= ~np.isnan(columns[name])
        for name in self.by:
            if columns[name].dtype.kind == "f":
                there &= ~np.isnan(columns[name])
        counted = there
        if self.condition is not None:
            counted = there & np.broadcast_to(self.condition(columns), there.shape)
        self.total += rows
        self.missing += rows - int(np.count_nonzero(there))
        self.cut += int(np.count_nonzero(there) - np.count_nonzero(counted))
        everything = bool(counted.all())

        def of(name: str | None) -> Any:
            if name is None:
                return None
            array = columns[name] if everything else columns[name][counted]
            return array.astype(self.dtypes[name], copy=False) if name in self.dtypes else array

        keys = [
            each.numbers(of(name), chunk.labels.get(name)) for name, each in zip(self.by, self._of_columns, strict=True)
        ]
        groups = None if not keys else keys[0] if len(keys) == 1 else self.groups.together(self._of_columns, keys)
        return Piece(tuple(of(name) for name in self.columns), of(self.weights), of(self.values), groups)
