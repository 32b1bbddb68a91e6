"""What a table is: named columns, read in chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from clhist.cli.tables import escaped

Array = npt.NDArray[Any]


class TableError(ValueError):
    """A file is no table, or lacks what is asked for; the text names it."""


@dataclass(frozen=True)
class Chunk:
    """Some rows of a table.

    Attributes
    ----------
    columns : dict of str to array of shape (rows,)
        Numbers as stored (of text files float64); a missing float is NaN. Keys as stored, or the places of their texts
        in `labels`.
    valid : array of bool, or None
        Rows of which no column is missing; None if all are.
    done : float
        Part of the file that has been read.
    labels : dict of str to list of str
        The texts of keys, by the names of their columns.
    """

    columns: dict[str, Array]
    valid: Array | None
    done: float
    labels: dict[str, list[str]] = field(default_factory=dict)

    def texts(self, name: str) -> Array:
        """Return the keys of a column as an array of texts."""
        column = self.columns[name]
        return np.array(self.labels[name], str)[column] if name in self.labels else column.astype(str)


@dataclass(frozen=True)
class Table:
    """An open table.

    Attributes
    ----------
    path : Path
        The file.
    dtypes : dict of str to numpy.dtype or str
        Of each column: a dtype of real numbers, or in words what it is instead.
    read : callable
        ``read(numbers, keys)`` yields the `Chunk` objects of these columns; `numbers` have to be real numbers, `keys`
        may be text.
    """

    path: Path
    dtypes: Mapping[str, np.dtype | str]
    read: Callable[[Sequence[str], Sequence[str]], Iterator[Chunk]]

    def named(self, name: str) -> str:
        """Return the name of the column `name`, which may be a position."""
        if name in self.dtypes:
            return name
        names = list(self.dtypes)
        if name.isdecimal() and int(name) < len(names):
            return names[int(name)]
        raise TableError(f"{self.path}: expected a column among {', '.join(map(escaped, names))}; got {name!r}")

    def dtype(self, name: str) -> np.dtype:
        """Return the dtype of a column of numbers."""
        found = self.dtypes[self.named(name)]
        if isinstance(found, str):
            raise TableError(f"{self.path}: expected numbers in column {name!r}, got {found}")
        return found

    def chunks(self, numbers: Sequence[str], keys: Sequence[str] = ()) -> Iterator[Chunk]:
        """Yield the columns under the names that they are asked for by."""
        of = {name: self.named(name) for name in (*numbers, *keys)}
        for name in numbers:
            self.dtype(name)
        try:
            for chunk in self.read([of[name] for name in numbers], [of[name] for name in keys]):
                columns = {name: chunk.columns[of[name]] for name in of}
                labels = {name: chunk.labels[of[name]] for name in of if of[name] in chunk.labels}
                yield Chunk(columns, chunk.valid, chunk.done, labels)
        except TableError:
            raise
        except OSError as error:  # those of the system name the file, gzip's have no number
            if error.errno is not None:
                raise
            raise TableError(f"{self.path}: {first_line(error)}") from error
        except Exception as error:  # damage surfaces as any of the errors of zip, deflate, struct, mmap and Arrow
            raise TableError(f"{self.path}: {first_line(error)}") from error


def first_line(error: Exception) -> str:
    """Return the first line of what an error says, or its name if it says nothing."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
