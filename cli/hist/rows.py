"""The rows that a histogram counts: chunks of all files, with missing values and cuts taken out, and keys numbered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from clhist.cli.hist.condition import Condition
from clhist.cli.hist.tables import Chunk, Table, TableError, common_dtype, rows_of

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
    """Numbers for the values of a column, in the order in which they are met."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def labels(self) -> list[Any]:
        """The values by their numbers."""
        return list(self._numbers)

    def numbers(self, keys: Array) -> Array:
        """Return the number of each key; new ones get the next."""
        if keys.dtype == object:
            keys = keys.astype(str)
        if keys.dtype.kind in "iub" and keys.size and int(keys.max()) - int(keys.min()) < _DIRECT:
            low = int(keys.min())
            steps = np.subtract(keys, low, dtype=np.int64)
            there = np.flatnonzero(np.bincount(steps))
            table = np.zeros(int(there[-1]) + 1, np.int32)
            table[there] = self.of((there + low).astype(keys.dtype).tolist())
            return table[steps]
        labels, places = np.unique(keys, return_inverse=True)
        return self.of(labels.tolist())[places]

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

    def sorted(self) -> tuple[list[Any], Array]:
        """Return the keys in order, numbers by value, and the number of each."""
        labels = list(self._numbers)
        numbers = [_as_number(label) for label in labels]
        if all(number is not None for number in numbers):
            labels = numbers
        order = sorted(range(len(labels)), key=labels.__getitem__)
        return [labels[n] for n in order], np.array(order, np.intp)


def _as_number(label: Any) -> int | float | None:
    for kind in (int, float):
        try:
            return label if isinstance(label, kind) else kind(label)
        except (TypeError, ValueError):
            continue
    return None


@dataclass
class Rows:
    """The rows of several tables.

    Attributes
    ----------
    tables : sequence of Table
        Of the same columns.
    columns : sequence of str
        What is binned.
    weights, values, by : str or None
        Other columns.
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
    by: str | None
    condition: Condition | None
    progress: Callable[[float], None]
    groups: Groups = field(default_factory=Groups)
    is_part: bool = False
    total: int = 0
    missing: int = 0
    cut: int = 0
    _kept: list[Piece] | None = None

    def __post_init__(self) -> None:
        self.numbers = tuple(name for name in (*self.columns, self.weights, self.values) if name is not None)
        self.dtypes = {name: common_dtype(self.tables, name) for name in self.numbers}

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
        keys = () if self.by is None else (self.by,)
        for n, table in enumerate(self.tables):
            for chunk in table.chunks(names, keys):
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
        if self.by is not None and columns[self.by].dtype.kind == "f":
            there &= ~np.isnan(columns[self.by])
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

        groups = None if self.by is None else self.groups.numbers(of(self.by))
        return Piece(tuple(of(name) for name in self.columns), of(self.weights), of(self.values), groups)
