"""The rows that a histogram counts: chunks of all files, with missing values and cuts taken out, and keys numbered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from clhist.cli.hist.condition import Condition
from clhist.cli.hist.tables import common_dtype, rows_of
from clhist.files.fields import number_of
from clhist.files.table import Chunk, Table, TableError

Array = npt.NDArray[Any]

# Bytes of chunks that are kept for the second pass instead of read again.
_KEPT_BYTES = 1 << 28
_MOST_GROUPS = 1 << 16
# More distinct fractions are measurements, not names of groups.
_MOST_FRACTIONS = 1000
# The largest range of integer keys that are numbered by a table.
_DIRECT = 1 << 20


@dataclass(frozen=True)
class RowPiece:
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


class RowGroups:
    """Numbers for the values of a column, or of several together, in the order in which they are met."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def labels(self) -> list[Any]:
        """The values by their numbers; tuples of several columns."""
        return list(self._numbers)

    def numbers(self, keys: Array, texts: Sequence[Any] | None = None) -> Array:
        """Return the number of each key; new ones get the next. With `texts`, keys are places in it."""
        if keys.dtype.kind in "iub" and keys.size and int(keys.max()) - int(keys.min()) < _DIRECT:
            low = int(keys.min())
            # Differences of narrow integers may exceed their dtype.
            # Differences of signed keys may exceed their type, and unsigned keys of 64 bits exceed int64.
            wide = np.uint64 if keys.dtype.kind == "u" else np.int64
            steps = np.subtract(keys, low, dtype=wide).astype(np.int64, copy=False)
            there = np.flatnonzero(np.bincount(steps))
            table = np.zeros(int(there[-1]) + 1, np.int32)
            # Labels have the type of the keys: booleans stay booleans.
            labels = [keys.dtype.type(step + low).item() for step in there.tolist()]
            table[there] = self.of(labels if texts is None else [texts[n] for n in labels])
            return table[steps]
        unique, places = np.unique(keys, return_inverse=True)
        labels = unique.tolist()
        return self.of(labels if texts is None else [texts[n] for n in labels])[places]

    def of(self, labels: Iterable[Any]) -> Array:
        """Return the number of each label; new ones get the next."""
        numbers = [self._numbers.setdefault(label, len(self._numbers)) for label in labels]
        if len(self._numbers) > _MOST_FRACTIONS and any(type(label) is float and label % 1 for label in self._numbers):
            raise ValueError(
                f"--by: expected at most {_MOST_FRACTIONS:,} different values with fractions, got more; a second "
                "--column bins them"
            )
        if len(self._numbers) > _MOST_GROUPS:
            raise ValueError(f"--by: expected at most {_MOST_GROUPS:,} different values, got more")
        return np.array(numbers, np.int32)

    def together(self, columns: Sequence[RowGroups], numbers: Sequence[Array]) -> Array:
        """Return the number of each row's values in several columns, given their numbers there."""
        places, labels = numbers[0], [(label,) for label in columns[0].labels]
        for column, codes in zip(columns[1:], numbers[1:], strict=True):
            # Each pair of numbers is one integer in mixed radix; 2**16 times 2**16 fits int64.
            unique, places = np.unique(places * np.int64(len(column)) + codes, return_inverse=True)
            of_column = column.labels
            labels = [(*labels[n // len(column)], of_column[n % len(column)]) for n in unique.tolist()]
        return self.of(labels)[places]

    def sorted(self) -> tuple[list[Any], Array]:
        """Return the keys in order, numbers by value, and the number of each."""
        keys: list[Any] = list(self._numbers)
        is_single = not keys or not isinstance(keys[0], tuple)
        columns = [keys] if is_single else list(zip(*keys, strict=True))
        labels, ranks = (list(zip(*pairs, strict=True)) for pairs in zip(*map(_labels, columns), strict=True))
        order = sorted(range(len(keys)), key=ranks.__getitem__)
        return [labels[n][0] if is_single else labels[n] for n in order], np.array(order, np.intp)


def _labels(keys: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Return the labels of the keys of a column, and what they are sorted by.

    Texts become numbers if all of them are the shortest texts of different numbers, so that no label stands for two
    keys: 1 and -2.5 are such texts, 01 and 1e0 are not.
    """
    if not any(isinstance(key, str) for key in keys):
        labels = [_whole(key) for key in keys]
        return labels, labels
    numbers = {key: key_number(key) for key in keys}
    if any(number is None for number in numbers.values()):
        return list(keys), list(keys)
    is_shortest = all(key in (str(number), repr(float(number or 0))) for key, number in numbers.items())
    if is_shortest and len(set(numbers.values())) == len(numbers):
        labels = [numbers[key] for key in keys]
        return labels, labels
    return list(keys), [(numbers[key], key) for key in keys]


def key_number(text: str) -> int | float | None:
    """Return the number that a key says; None if it says none."""
    if text.removeprefix("-").isdecimal() and text.isascii():
        return int(text)
    number = number_of(text, complete=True)
    return None if number is None else _whole(number)


def _whole(number: Any) -> Any:
    """Return a float without a fraction as an integer."""
    return int(number) if isinstance(number, float) and number.is_integer() else number


@dataclass
class TableRows:
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
    numeric : dict of str to path
        Columns of `by` whose keys are numbers, with the file that says so.
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
    groups: RowGroups = field(default_factory=RowGroups)  # of all columns of `by` together
    is_part: bool = False
    total: int = 0
    missing: int = 0
    cut: int = 0
    _kept: list[RowPiece] | None = None

    def __post_init__(self) -> None:
        self.numeric = {name: numeric for name in self.by if (numeric := _numeric(self.tables, name))}
        self.numbers = tuple(name for name in (*self.columns, self.weights, self.values) if name is not None)
        self.dtypes = {name: common_dtype(self.tables, name) for name in self.numbers}
        # With several columns each has its own numbers, which `together` combines.
        self._of_columns = [self.groups] if len(self.by) == 1 else [RowGroups() for _ in self.by]

    def pieces(self, *, keep: bool = False) -> Iterator[RowPiece]:
        """Yield the rows; with `keep` they are kept in memory for the next time, if they are few enough."""
        if self._kept is not None:
            yield from self._kept
            return
        self.total = self.missing = self.cut = 0
        pieces: list[RowPiece] | None = [] if keep else None
        size = 0
        for piece in self._read():
            size += sum(a.nbytes for a in (*piece.columns, piece.weights, piece.values, piece.groups) if a is not None)
            if pieces is not None:
                # Beyond the budget nothing is kept, and the next pass reads the files again.
                pieces = [*pieces, piece] if size <= _KEPT_BYTES else None
            yield piece
        self._kept = pieces

    def _read(self) -> Iterator[RowPiece]:
        names = tuple(dict.fromkeys((*self.numbers, *(self.condition.names if self.condition else ()))))
        for n, table in enumerate(self.tables):
            for chunk in table.chunks(names, self.by):
                yield self._piece(chunk, table)
                self.progress((n + chunk.done) / len(self.tables))
        if not self.is_part:
            self.check_not_empty()

    def check_not_empty(self) -> None:
        """Raise TableError if no rows were read."""
        if not self.total:
            raise TableError(f"{', '.join(str(table.path) for table in self.tables)}: expected rows, got none")

    def _piece(self, chunk: Chunk, table: Table) -> RowPiece:
        columns, rows = chunk.columns, rows_of(chunk)
        there = present(chunk)
        counted = there
        if self.condition is not None:
            counted = there & np.broadcast_to(self.condition(columns), there.shape)
        self.total += rows
        self.missing += rows - int(np.count_nonzero(there))
        self.cut += int(np.count_nonzero(there) - np.count_nonzero(counted))
        # If no row is left out, columns are used without a copy.
        everything = bool(counted.all())

        def of(name: str | None) -> Any:
            if name is None:
                return None
            array = columns[name] if everything else columns[name][counted]
            return array.astype(self.dtypes[name], copy=False)

        keys = []
        for name, groups_of_column in zip(self.by, self._of_columns, strict=True):
            places = chunk.keys[name] if everything else chunk.keys[name][counted]
            keys.append(groups_of_column.numbers(places, self._labels(table, chunk, name, places)))
        groups = None if not keys else keys[0] if len(keys) == 1 else self.groups.together(self._of_columns, keys)
        return RowPiece(tuple(of(name) for name in self.columns), of(self.weights), of(self.values), groups)

    def _labels(self, table: Table, chunk: Chunk, name: str, places: Array) -> list[Any] | None:
        """Return the labels of keys, as numbers where those of another file are."""
        labels = chunk.labels.get(name)
        if labels is None or name not in self.numeric or not table.is_text:
            return labels
        numbers = [key_number(label) for label in labels]
        wrong = next((labels[n] for n in np.unique(places) if numbers[n] is None), None)
        if wrong is not None:
            raise TableError(
                f"{table.path}: expected numbers in column {name!r}, as in {self.numeric[name]}, got {wrong[:40]!r}"
            )
        return numbers


def present(chunk: Chunk) -> Array:
    """Return the rows in which nothing is missing."""
    there = np.ones(rows_of(chunk), bool) if chunk.valid is None else chunk.valid.copy()
    for array in (*chunk.columns.values(), *chunk.keys.values()):
        if array.dtype.kind == "f":
            there &= ~np.isnan(array)
    return there


def _numeric(tables: Sequence[Table], name: str) -> Path | None:
    """Return the file that says that a column has numbers, and not text, if any does.

    Raises
    ------
    TableError
        If another one says that it has text.
    """
    others = [(table, table.dtypes[table.named(name)]) for table in tables if not table.is_text]
    numbers = [table.path for table, dtype in others if isinstance(dtype, np.dtype)]
    texts = [(table.path, dtype) for table, dtype in others if isinstance(dtype, str)]
    if numbers and texts:
        path, dtype = texts[0]
        raise TableError(f"{path}: expected numbers in column {name!r}, as in {numbers[0]}, got {dtype}")
    return numbers[0] if numbers else None
