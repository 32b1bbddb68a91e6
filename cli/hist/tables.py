"""Columns of .csv, .npy, .npz and .parquet files, read in chunks: files may be larger than memory.

Nothing in a file is trusted: no pickles, and nothing is allocated because a header says so.
"""

from __future__ import annotations

import csv
import io
import math
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

Array = npt.NDArray[Any]

ENDINGS = (".csv", ".tsv", ".txt", ".npy", ".npz", ".parquet")
CHUNK_ROWS = 1 << 21
_CSV_ROWS = 1 << 16  # rows of text are Python's strings for a moment
_MISSING = frozenset(("", "na", "n/a", "null", "none", "nan", "-nan"))


class TableError(ValueError):
    """A file is no table, or lacks what is asked for; the text names it."""


@dataclass(frozen=True)
class Chunk:
    """Some rows of a table.

    Attributes
    ----------
    columns : dict of str to array of shape (rows,)
        Numbers as stored (of text files float64), keys as stored or as strings. A missing float is NaN.
    valid : array of bool, or None
        Rows of which no column is missing; None if all are.
    done : float
        Part of the file that has been read.
    """

    columns: dict[str, Array]
    valid: Array | None
    done: float


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
        raise TableError(f"{self.path}: expected a column among {', '.join(names)}; got {name!r}")

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
                yield Chunk({name: chunk.columns[of[name]] for name in of}, chunk.valid, chunk.done)
        except (OSError, TableError):
            raise
        except Exception as error:  # damage surfaces as any of the errors of zip, deflate, struct, mmap and Arrow
            raise TableError(f"{self.path}: {_first_line(error)}") from error


def open_table(path: Path) -> Table:
    """Return the table in a file, whose ending says what it is.

    Raises
    ------
    ImportError
        pyarrow is not installed; the text says how to install it.
    OSError
        The file cannot be read.
    TableError
        It is no table.
    """
    readers = {".npy": _open_npy, ".npz": _open_npz, ".parquet": _open_parquet}
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise TableError(f"{path}: expected a file {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}")
    with open(path, "rb") as file:  # says what is wrong with the path itself
        if not file.read(1):
            raise TableError(f"{path}: expected a table, got an empty file")
    try:
        return readers.get(ending, _open_text)(path)
    except (ImportError, OSError, TableError):
        raise
    except Exception as error:
        raise TableError(f"{path}: expected a whole {ending} file: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def kind_of(dtype: np.dtype) -> np.dtype | str:
    """Return a dtype of real numbers that histograms take, in native byte order; of others what they are."""
    if dtype.kind in "biuf" and dtype.itemsize <= 8:
        return dtype.newbyteorder("=")
    return {"U": "text", "S": "text", "O": "objects", "M": "dates", "m": "durations"}.get(dtype.kind, str(dtype))


# Text


def _open_text(path: Path) -> Table:
    names, delimiter, has_header = _header(path)

    def read(numbers: Sequence[str], keys: Sequence[str]) -> Iterator[Chunk]:
        places = {name: names.index(name) for name in (*numbers, *keys)}
        size = path.stat().st_size
        with open(path, "rb") as raw, _text(raw) as file:
            rows = csv.reader(file, delimiter=delimiter)
            if has_header:
                next(rows)
            for part, first_line in _batches(rows):
                columns: dict[str, Array] = {}
                valid = np.ones(len(part), bool)
                for name, place in places.items():
                    try:
                        texts = [row[place] for row in part]
                    except IndexError:
                        n = next(n for n, row in enumerate(part) if len(row) <= place)
                        raise TableError(
                            f"{path}, line {first_line + n}: expected {len(names)} fields, got {len(part[n])}"
                        ) from None
                    if name in numbers:
                        columns[name] = _numbers(texts, path, first_line, name)
                    else:
                        columns[name] = np.array([text.strip() for text in texts], object)
                        valid &= ~np.isin(columns[name].astype(str), ("", "nan", "NaN"))
                yield Chunk(columns, None if valid.all() else valid, raw.tell() / size)

    return Table(path, dict.fromkeys(names, np.dtype(np.float64)), read)


def _text(raw: BinaryIO) -> io.TextIOWrapper:
    return io.TextIOWrapper(raw, encoding="utf-8-sig", newline="")


def _header(path: Path) -> tuple[list[str], str, bool]:
    """Return the names of the columns, what separates them, and whether the first line has their names."""
    with open(path, "rb") as raw, _text(raw) as file:
        line = file.readline(1 << 20)
        delimiter = max(",;\t", key=line.count)
        names = [name.strip() for name in next(csv.reader([line], delimiter=delimiter), [])]
    if not any(names):
        raise TableError(f"{path}: expected names of columns in the first line, got none")
    if all(_is_number(name) for name in names):
        return [str(n) for n in range(len(names))], delimiter, False
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise TableError(f"{path}: expected different names of columns, got {twice!r} twice")
    return names, delimiter, True


def _batches(rows: Any) -> Iterator[tuple[list[list[str]], int]]:
    """Yield rows that are not empty, so many at a time, with the number of the first's line."""
    part: list[list[str]] = []
    first = rows.line_num + 1
    for row in rows:
        if row:
            part.append(row)
        if len(part) == _CSV_ROWS:
            yield part, first
            part, first = [], rows.line_num + 1
    if part:
        yield part, first


def _numbers(texts: list[str], path: Path, first_line: int, name: str) -> Array:
    try:
        return np.array(list(map(float, texts)))
    except ValueError:
        pass
    found = np.empty(len(texts))
    for n, text in enumerate(texts):
        if text.strip().lower() in _MISSING:
            found[n] = np.nan
        elif _is_number(text):
            found[n] = float(text)
        else:
            where = f"{path}, line {first_line + n}"
            raise TableError(f"{where}: expected a number in column {name!r}, got {text.strip()[:40]!r}")
    return found


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


# NumPy's files


def _open_npy(path: Path) -> Table:
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    if array.dtype.names:
        if array.ndim != 1:
            raise TableError(f"{path}: expected records in one dimension, got shape {array.shape}")
        columns = {name: array[name] for name in array.dtype.names}
        columns = {name: column for name, column in columns.items() if column.ndim == 1}
    elif array.ndim == 2:
        columns = {str(n): array[:, n] for n in range(array.shape[1])}
    elif array.ndim == 1:
        columns = {"0": array}
    else:
        raise TableError(f"{path}: expected shape (rows,) or (rows, columns), got {array.shape}")

    def read(numbers: Sequence[str], keys: Sequence[str]) -> Iterator[Chunk]:
        for begin in range(0, len(array), CHUNK_ROWS):
            part = {name: columns[name][begin : begin + CHUNK_ROWS] for name in (*numbers, *keys)}
            found = {name: np.ascontiguousarray(column, _native(column.dtype)) for name, column in part.items()}
            yield Chunk(found, None, min(1.0, (begin + CHUNK_ROWS) / len(array)))

    return Table(path, {name: kind_of(column.dtype) for name, column in columns.items()}, read)


def _open_npz(path: Path) -> Table:
    with zipfile.ZipFile(path) as archive:
        members = [name[:-4] for name in archive.namelist() if name.endswith(".npy")]
        headers = {}
        for name in members:
            with archive.open(f"{name}.npy") as member:
                headers[name] = _npy_header(member)
    dtypes = {
        name: kind_of(dtype) if len(shape) == 1 and not dtype.names else f"an array of shape {shape}"
        for name, (shape, dtype) in headers.items()
    }
    if not dtypes:
        raise TableError(f"{path}: expected arrays, got none")

    def read(numbers: Sequence[str], keys: Sequence[str]) -> Iterator[Chunk]:
        names = tuple(dict.fromkeys((*numbers, *keys)))
        lengths = {name: headers[name][0] for name in names}
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"{name} {shape}" for name, shape in lengths.items())
            raise TableError(f"{path}: expected columns of one length, got {listed}")
        if any(len(shape) != 1 or headers[name][1].hasobject for name, shape in lengths.items()):
            raise TableError(f"{path}: expected arrays of one dimension, without objects, got {', '.join(names)}")
        length = next(iter(lengths.values()))[0]
        with zipfile.ZipFile(path) as archive:
            files = {name: archive.open(f"{name}.npy") for name in names}
            for file in files.values():
                _npy_header(file)
            for begin in range(0, length, CHUNK_ROWS):
                rows = min(CHUNK_ROWS, length - begin)
                columns = {name: _piece(path, name, file, headers[name][1], rows) for name, file in files.items()}
                yield Chunk(columns, None, (begin + rows) / length)

    return Table(path, dtypes, read)


def _npy_header(file: Any) -> tuple[tuple[int, ...], np.dtype]:
    version = npy.read_magic(file)
    shape, _, dtype = (npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0)(file)
    return shape, dtype


def _piece(path: Path, name: str, file: Any, dtype: np.dtype, rows: int) -> Array:
    wanted = rows * dtype.itemsize
    data = file.read(wanted)
    if len(data) != wanted:
        raise TableError(
            f"{path}: expected {rows} more elements of {name!r}, got {len(data) // max(1, dtype.itemsize)}"
        )
    return np.frombuffer(data, dtype).astype(_native(dtype), copy=False)


def _native(dtype: np.dtype) -> np.dtype:
    return dtype.newbyteorder("=")


# Parquet


def _open_parquet(path: Path) -> Table:
    try:
        parquet, arrow = import_module("pyarrow.parquet"), import_module("pyarrow")
    except ImportError as error:
        raise ImportError(f'{path}: reading .parquet needs pyarrow: pip install "clhist[parquet]"') from error
    schema, rows = (lambda file: (file.schema_arrow, file.metadata.num_rows))(parquet.ParquetFile(path))

    def read(numbers: Sequence[str], keys: Sequence[str]) -> Iterator[Chunk]:
        done = 0
        names = list(dict.fromkeys((*numbers, *keys)))
        with parquet.ParquetFile(path, pre_buffer=False) as file:
            for batch in file.iter_batches(CHUNK_ROWS, columns=names):
                done += batch.num_rows
                columns: dict[str, Array] = {}
                valid = np.ones(batch.num_rows, bool)
                for name in names:
                    column = batch.column(batch.schema.get_field_index(name))
                    dtype = dtypes[name]
                    columns[name], there = _arrow_column(arrow, column, dtype if isinstance(dtype, np.dtype) else None)
                    valid &= there
                yield Chunk(columns, None if valid.all() else valid, done / max(1, rows))

    dtypes = {field.name: _arrow_kind(arrow, field.type) for field in schema}
    return Table(path, dtypes, read)


def _arrow_kind(arrow: Any, given: Any) -> np.dtype | str:
    types = arrow.types
    if types.is_boolean(given) or types.is_integer(given) or types.is_floating(given):
        return np.dtype(given.to_pandas_dtype())
    if types.is_decimal(given):
        return np.dtype(np.float64)
    if types.is_dictionary(given):
        return f"categories of {given.value_type}"
    return "text" if types.is_string(given) or types.is_large_string(given) else str(given)


def _arrow_column(arrow: Any, column: Any, dtype: np.dtype | None) -> tuple[Array, Array]:
    """Return a column as an array, and which rows have a value; of others than numbers (`dtype` None) as objects."""
    valid = np.asarray(column.is_valid().to_numpy(zero_copy_only=False))
    if dtype is None:
        return np.array(column.to_pylist(), object), valid
    if arrow.types.is_decimal(column.type):
        column = column.cast(arrow.float64())
    if not valid.all():
        column = column.fill_null(arrow.scalar(False if dtype.kind == "b" else 0, column.type))
    return np.ascontiguousarray(column.to_numpy(zero_copy_only=False), dtype), valid


def common_dtype(tables: Sequence[Table], name: str) -> np.dtype:
    """Return the dtype that holds a column of numbers of all tables; booleans are bytes."""
    found = np.result_type(*(table.dtype(name) for table in tables))
    return np.dtype(np.uint8) if found.kind == "b" else found


def rows_of(chunk: Chunk) -> int:
    """Return how many rows a chunk has."""
    return math.prod(next(iter(chunk.columns.values())).shape)
