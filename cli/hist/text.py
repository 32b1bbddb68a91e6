"""Columns of text files (.csv, .tsv, .txt, also .gz, .bz2 and .xz), many rows at a time by NumPy.

A block of the file is cut into fields by the positions of its separators; numbers and keys are then computed from the
fields of a column together. What NumPy cannot take so, such as a stray quote, goes line by line through Python's csv
module, with the same results.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np

from clhist.cli.hist.fields import Array, Dictionary, Fields, NotSimple, is_number, number_of
from clhist.cli.hist.table import Chunk, Table, TableError


def _gzip(file: BinaryIO) -> Any:
    return gzip.GzipFile(fileobj=file)


COMPRESSED: dict[str, Callable[[BinaryIO], Any]] = {".gz": _gzip, ".bz2": bz2.BZ2File, ".xz": lzma.LZMAFile}
ENDINGS = (".csv", ".tsv", ".txt")
_BLOCK = 1 << 22  # bytes: fits the caches, with what is computed of it
_LONGEST = 1 << 26  # bytes of a line
_CSV_ROWS = 1 << 16  # rows of text are Python's strings for a moment
_MOST_TEXTS = 1 << 16  # that are remembered from block to block
_NO_KEYS = ("", "nan", "NaN")  # texts of a missing key


def open_text(path: Path) -> Table:
    """Return the table in a text file; the errors are those of `open_table`."""
    names, delimiter, has_header = _header(path)

    def read(numbers: Sequence[str], keys: Sequence[str]) -> Iterator[Chunk]:
        reader = _Reader(path, names, delimiter, numbers, keys)
        with _opened(path) as (raw, file):
            yield from reader.chunks(raw, file, has_header=has_header)

    return Table(path, dict.fromkeys(names, np.dtype(np.float64)), read)


class _opened:
    """The bytes of a file, unpacked where its ending says so, and the file itself, whose position is the progress."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> tuple[BinaryIO, IO[bytes]]:
        self._raw = open(self._path, "rb")
        unpack = COMPRESSED.get(self._path.suffix.lower())
        self._file: IO[bytes] = self._raw if unpack is None else unpack(self._raw)
        return self._raw, self._file

    def __exit__(self, *error: object) -> None:
        self._file.close()
        self._raw.close()


def _text(file: Any, encoding: str = "utf-8") -> io.TextIOWrapper:
    return io.TextIOWrapper(file, encoding=encoding, newline="")


def _header(path: Path) -> tuple[list[str], str, bool]:
    """Return the names of the columns, what separates them, and whether the first line has their names."""
    with _opened(path) as (_, raw), _text(raw, "utf-8-sig") as file:
        line = file.readline(1 << 20)
        delimiter = max(",;\t", key=line.count)
        words = line.removeprefix("#").split()  # as numpy.savetxt writes them
        if delimiter not in line and len(words) > 1 and (line.startswith("#") or all(map(is_number, words))):
            delimiter, line = " ", " ".join(words)
        names = [name.strip() for name in next(csv.reader([line], delimiter=delimiter), [])]
    if not any(names):
        raise TableError(f"{path}: expected names of columns in the first line, got none")
    if all(is_number(name) for name in names):
        return [str(n) for n in range(len(names))], delimiter, False
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise TableError(f"{path}: expected different names of columns, got {twice!r} twice")
    return names, delimiter, True


@dataclass
class _Reader:
    """Reads columns of one file."""

    path: Path
    names: list[str]
    delimiter: str
    numbers: Sequence[str]
    keys: Sequence[str]

    def __post_init__(self) -> None:
        self._places = {name: self.names.index(name) for name in (*self.numbers, *self.keys)}
        self._dictionaries = {name: Dictionary() for name in self.keys if name not in self.numbers}

    def chunks(self, raw: BinaryIO, file: IO[bytes], *, has_header: bool) -> Iterator[Chunk]:
        """Yield the rows of an open file."""
        size = max(1, self.path.stat().st_size)
        rest, line, is_first = b"", 1, True
        wanted = _BLOCK
        while True:
            read = file.read(wanted)
            data = rest + read
            is_last = not read
            if is_first and data.startswith(b"\xef\xbb\xbf"):
                data = data[3:]
            if is_last and data and not data.endswith(b"\n"):
                data += b"\n"
            if not data:
                return
            try:
                fields = Fields.of(data, ord(self.delimiter), is_last=is_last)
            except NotSimple:
                break
            if fields is None:  # no whole line yet
                rest, wanted = data, len(data)
                is_first = False
                if len(data) > _LONGEST:
                    break
                continue
            if has_header:
                fields.skip_row()
                has_header = False
            if len(fields):
                yield self._chunk(fields, line, raw.tell() / size)
            line += fields.lines
            rest, wanted, is_first = data[fields.size :], _BLOCK, False
            if is_last:
                return
        yield from self._line_by_line(raw, _Rest(data, file), line, size, has_header=has_header)

    def _chunk(self, fields: Fields, line: int, done: float) -> Chunk:
        columns: dict[str, Array] = {}
        labels: dict[str, list[str]] = {}
        valid = np.ones(len(fields), bool)
        beyond = fields.row_beyond(len(self.names))
        if beyond is not None:
            row, found = beyond
            raise self._other_number(line + fields.line_of(row), found)
        for name, place in self._places.items():
            short = fields.row_without(place)
            if short is not None:
                row, found = short
                raise self._other_number(line + fields.line_of(row), found)
            if name in self._dictionaries and len(self._dictionaries[name].texts) > _MOST_TEXTS:
                self._dictionaries[name] = Dictionary()
            if name not in self._dictionaries:
                columns[name] = fields.numbers(
                    place, lambda row, text, name=name: self._no_number(line + fields.line_of(row), name, text)
                )
                continue
            columns[name] = fields.keys(place, self._dictionaries[name])
            labels[name] = [text.strip() for text in self._dictionaries[name].texts]
            valid &= np.array([label not in _NO_KEYS for label in labels[name]], bool)[columns[name]]
        return Chunk(columns, None if valid.all() else valid, done, labels)

    def _other_number(self, line: int, found: int) -> TableError:
        return TableError(f"{self.path}, line {line}: expected {len(self.names)} fields, got {found}")

    def _no_number(self, line: int, name: str, text: str) -> TableError:
        return TableError(f"{self.path}, line {line}: expected a number in column {name!r}, got {text.strip()[:40]!r}")

    def _line_by_line(self, raw: BinaryIO, rest: _Rest, line: int, size: int, *, has_header: bool) -> Iterator[Chunk]:
        with _text(io.BufferedReader(rest)) as file:
            rows = csv.reader(file, delimiter=self.delimiter)
            if has_header:
                next(rows)
            for part, first in _batches(rows):
                first += line - 1
                columns: dict[str, Array] = {}
                labels: dict[str, list[str]] = {}
                valid = np.ones(len(part), bool)
                beyond = next((n for n, row in enumerate(part) if len(row) > len(self.names)), None)
                if beyond is not None:
                    raise self._other_number(first + beyond, len(part[beyond]))
                for name, place in self._places.items():
                    try:
                        texts = [row[place] for row in part]
                    except IndexError:
                        n = next(n for n, row in enumerate(part) if len(row) <= place)
                        raise self._other_number(first + n, len(part[n])) from None
                    if name not in self._dictionaries:
                        columns[name] = self._numbers(texts, first, name)
                        continue
                    texts = [text.strip() for text in texts]
                    codes = {text: n for n, text in enumerate(dict.fromkeys(texts))}
                    columns[name] = np.array([codes[text] for text in texts], np.int32)
                    labels[name] = list(codes)
                    valid &= np.array([label not in _NO_KEYS for label in labels[name]], bool)[columns[name]]
                yield Chunk(columns, None if valid.all() else valid, raw.tell() / size, labels)

    def _numbers(self, texts: list[str], first_line: int, name: str) -> Array:
        try:
            return np.array(list(map(float, texts)))
        except ValueError:
            pass
        found = np.empty(len(texts))
        for n, text in enumerate(texts):
            number = number_of(text)
            if number is None:
                raise self._no_number(first_line + n, name, text)
            found[n] = number
        return found


class _Rest(io.RawIOBase):
    """Bytes that were read already, and those of a file after them."""

    def __init__(self, data: bytes, file: IO[bytes]) -> None:
        self._data, self._file = memoryview(data), file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        part = self._data[: len(buffer)] or self._file.read(len(buffer))
        self._data = self._data[len(part) :]
        buffer[: len(part)] = part
        return len(part)


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
