"""A table: named columns, read in chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from clhist.files.fields import is_missing

Array = npt.NDArray[Any]


class TableError(ValueError):
    """A file is no table, or lacks what is asked for; the text names it."""


@dataclass(frozen=True)
class Chunk:
    """Some rows of a table.

    Attributes
    ----------
    columns : dict of str to array of shape (rows,)
        Numbers as stored (of text files float64; Python's integers where no dtype holds them); a missing float is NaN.
    valid : array of bool, or None
        Rows of which no column is missing; None if all are.
    done : float
        Part of the file that has been read.
    keys : dict of str to array of shape (rows,)
        Numbers as stored, or the places of keys in `labels`.
    labels : dict of str to list
        Texts, or exact numbers that no dtype holds, by the names of their columns.
    """

    columns: dict[str, Array]
    valid: Array | None
    done: float
    keys: dict[str, Array] = field(default_factory=dict)
    labels: dict[str, list[Any]] = field(default_factory=dict)

    def texts(self, name: str) -> Array:
        """Return the keys of a column as an array of texts."""
        keys = self.keys[name]
        return np.array(self.labels[name], str)[keys] if name in self.labels else keys.astype(str)


def labelled(places: Array, texts: Sequence[str]) -> tuple[list[str], Array]:
    """Return texts without the blanks around them, and which rows have a key.

    Parameters
    ----------
    places : array of int
        The place in `texts` of each row's key.
    texts : sequence of str
        As stored.
    """
    labels = [text.strip() for text in texts] or [""]
    return labels, np.array([not is_missing(label) for label in labels], bool)[places]


def different_names(names: Sequence[str]) -> tuple[list[str], dict[str, list[int]]]:
    """Return a different name for each column, and the positions of the columns that share one.

    Columns that share a name are called by their position.
    """
    repeated = {name: [n for n, other in enumerate(names) if other == name] for name in set(names)}
    repeated = {name: places for name, places in repeated.items() if len(places) > 1}
    used = set(names)
    unique = []
    for n, name in enumerate(names):
        # A column may have a number as its name, which a position must not repeat.
        position = str(n) if str(n) not in used else f"{name} ({n})"
        unique.append(position if name in repeated else name)
    return unique, repeated


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
    repeated : dict of str to list of int
        Names that several columns have, and the positions of these: they can be named by position only.
    is_text : bool
        Whether it is a text file, whose keys are text or numbers.
    """

    path: Path
    dtypes: Mapping[str, np.dtype | str]
    read: Callable[[Sequence[str], Sequence[str]], Iterator[Chunk]]
    repeated: Mapping[str, list[int]] = field(default_factory=dict)
    is_text: bool = False

    def named(self, name: str) -> str:
        """Return the name of the column `name`, which may be a position."""
        if name in self.repeated:
            places = " or ".join(map(str, self.repeated[name]))
            raise TableError(
                f"{self.path}: expected different names of columns, got {name!r} twice; give a position, {places}"
            )
        if name in self.dtypes:
            return name
        names = list(self.dtypes)
        if name.isdecimal() and int(name) < len(names):
            return names[int(name)]
        raise TableError(f"{self.path}: expected a column among {', '.join(names)}; got {name!r}")

    def dtype(self, name: str) -> np.dtype:
        """Return the dtype of a column of numbers."""
        dtype = self.dtypes[self.named(name)]
        if isinstance(dtype, str):
            raise TableError(f"{self.path}: expected numbers in column {name!r}, got {dtype}")
        return dtype

    def chunks(self, numbers: Sequence[str], keys: Sequence[str] = ()) -> Iterator[Chunk]:
        """Yield the columns under the names that they are asked for by."""
        of = {name: self.named(name) for name in (*numbers, *keys)}
        for name in numbers:
            self.dtype(name)
        with table_errors(self.path):
            for chunk in self.read([of[name] for name in numbers], [of[name] for name in keys]):
                columns = {name: chunk.columns[of[name]] for name in numbers}
                places = {name: chunk.keys[of[name]] for name in keys}
                labels = {name: chunk.labels[of[name]] for name in keys if of[name] in chunk.labels}
                yield Chunk(columns, chunk.valid, chunk.done, places, labels)


@contextmanager
def table_errors(path: Path) -> Iterator[None]:
    """Turn the errors of damaged files into a `TableError` that names the file; those of the system name it already."""
    try:
        yield
    except TableError:
        raise
    except OSError as error:
        # Errors of gzip have no errno.
        if error.errno is not None:
            raise
        raise TableError(f"{path}: {first_line(error)}") from error
    except Exception as error:  # damage surfaces as any of the errors of zip, deflate, struct, mmap and Arrow
        raise TableError(f"{path}: {first_line(error)}") from error


def first_line(error: Exception) -> str:
    """Return the first line of what an error says, or its name if it says nothing."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
