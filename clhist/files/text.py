"""Columns of text files (.csv, .tsv, .txt, also .gz, .bz2 and .xz), many rows at a time by NumPy.

A block of the file is cut into fields by the positions of its separators; numbers and keys are then computed from the
fields of a column together. What NumPy cannot take so, such as a stray quote, goes line by line through Python's csv
module, with the same results.

A file has one separator, which its first line shows: a comma, a semicolon, a tab, or any number of blanks.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np

from clhist.files.fields import Array, Dictionary, Fields, NotSimple, is_number, number_of
from clhist.files.regular import open_regular
from clhist.files.table import Chunk, Table, TableError, different_names, labelled, table_errors


def _gzip(file: BinaryIO) -> Any:
    return gzip.GzipFile(fileobj=file)


COMPRESSED: dict[str, Callable[[BinaryIO], Any]] = {".gz": _gzip, ".bz2": bz2.BZ2File, ".xz": lzma.LZMAFile}
ENDINGS = (".csv", ".tsv", ".txt")
# Bytes of a block: with intermediate results it fits the caches.
_BLOCK = 1 << 22
_LONGEST = 1 << 26  # bytes of a line
# Rows are Python strings for a moment, so few at a time.
_CSV_ROWS = 1 << 16
# Distinct texts that are remembered from block to block.
_MOST_TEXTS = 1 << 16
_BLANKS = " "  # the separator of files whose fields any number of blanks and tabs separate


def open_text(path: Path) -> Table:
    """Return the table in a text file; the errors are those of `open_table`."""
    header = _Header.of(path)
    names, repeated = different_names(header.names)

    def read(numbers: Sequence[str], keys: Sequence[str]) -> Iterator[Chunk]:
        return _Reader(path, names, header, numbers, keys).chunks()

    return Table(path, dict.fromkeys(names, np.dtype(np.float64)), read, repeated, is_text=True)


def read_numbers(path: Path) -> Array:
    """Return the numbers in a text file, float64 of shape (rows, columns); what follows a ``#`` is a comment.

    Raises
    ------
    OSError
        If the file cannot be read.
    TableError
        If a field is empty or no number, or rows differ in their number of fields; it names the line.
    """
    with table_errors(path):
        header = _Header.of(path, complete=True)
        names = [str(n) for n in range(len(header.names))]
        chunks = _Reader(path, names, header, names, ()).chunks()
        parts = [np.stack([chunk.columns[name] for name in names], axis=1) for chunk in chunks]
    if not parts:
        raise TableError(f"{path}: expected rows of numbers, got none")
    return np.concatenate(parts)


class _opened:
    """The bytes of a file, unpacked where its ending says so, and the file itself, whose position is the progress."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> tuple[BinaryIO, IO[bytes]]:
        self._raw = open_regular(self._path)
        unpack = COMPRESSED.get(self._path.suffix.lower())
        self._file: IO[bytes] = self._raw if unpack is None else unpack(self._raw)
        return self._raw, self._file

    def __exit__(self, *error: object) -> None:
        self._file.close()
        self._raw.close()


def _text(file: Any, encoding: str = "utf-8") -> io.TextIOWrapper:
    return io.TextIOWrapper(file, encoding=encoding, newline="")


class _Lines:
    """The bytes of a file without what no field needs: repeated blanks where blanks separate, and comments."""

    def __init__(self, file: IO[bytes], separator: str, *, comments: bool) -> None:
        self._file, self._blanks, self._comments = file, separator == _BLANKS, comments
        self._rest = b""

    def read(self, size: int) -> bytes:
        data = self._rest
        while True:
            part = self._file.read(size)
            data += part
            # Cut at a line end, which comments and runs of blanks do not cross; a too long line is cut anywhere.
            end = data.rfind(b"\n") + 1 if part and len(data) <= _LONGEST else len(data)
            if end or not part:
                self._rest = data[end:]
                return self._cleaned(data[:end])

    def _cleaned(self, data: bytes) -> bytes:
        if self._comments:
            data = re.sub(rb"[ \r]*#[^\n]*|^[ \r]+$", b"", data, flags=re.MULTILINE)
        if self._blanks:
            data = re.sub(rb"^ | ?\r?$", b"", re.sub(rb"[ \t]+", b" ", data), flags=re.MULTILINE)
        return data


@dataclass(frozen=True)
class _Header:
    """The contents of the first line.

    Attributes
    ----------
    names : list of str
        Of the columns; their positions if the first line has none.
    separator : str
        What separates fields.
    is_there : bool
        Whether the first line has the names: none of its fields is a number then.
    complete : bool
        Whether all fields have to be numbers, and there may be comments.
    """

    names: list[str]
    separator: str
    is_there: bool
    complete: bool

    @classmethod
    def of(cls, path: Path, *, complete: bool = False) -> _Header:
        first, second = _first_lines(path, comments=complete)
        # A separator in quotes belongs to a name.
        unquoted = re.sub('"[^"]*"', "", first)
        separator = max(",;\t", key=unquoted.count)
        words = first.removeprefix("#").split()
        # Blanks separate if nothing else does, and this line or the next one is a row of numbers, or a `#` begins it.
        if separator not in unquoted and len(words) > 1:
            is_row = any(map(is_number, words))
            numbers = words if is_row else second.split()
            is_table = len(numbers) == len(words) and all(map(is_number, numbers))
            if first.startswith("#") or is_table or (complete and is_row):
                separator, first = _BLANKS, " ".join(words)
        names = [name.strip() for name in next(csv.reader([first], delimiter=separator), [])]
        if not any(names):
            raise TableError(f"{path}: expected names of columns in the first line, got none")
        is_there = not any(map(is_number, names))
        return cls(names if is_there else [str(n) for n in range(len(names))], separator, is_there, complete)


def _first_lines(path: Path, *, comments: bool) -> tuple[str, str]:
    """Return the first two lines that are not empty, without comments; empty ones if there are none."""
    lines: list[str] = []
    with _opened(path) as (_, raw), _text(raw, "utf-8-sig") as file:
        while len(lines) < 2 and (line := file.readline(1 << 20)):
            line = line.partition("#")[0].strip(" \r\n") if comments else line.strip("\r\n")
            lines += [line] if line else []
    if not lines and comments:
        raise TableError(f"{path}: expected rows of numbers, got none")
    return (*lines, "", "")[0], (*lines, "", "")[1]


@dataclass
class _Reader:
    """Reads columns of one file."""

    path: Path
    names: list[str]
    header: _Header
    numbers: Sequence[str]
    keys: Sequence[str]

    def __post_init__(self) -> None:
        self._places = {name: self.names.index(name) for name in (*self.numbers, *self.keys)}
        self._dictionaries = {name: Dictionary() for name in self.keys}

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows."""
        with _opened(self.path) as (raw, file):
            if self.header.complete or self.header.separator == _BLANKS:
                lines = _Lines(file, self.header.separator, comments=self.header.complete)
                yield from self._chunks(raw, lines)
            else:
                yield from self._chunks(raw, file)

    def _chunks(self, raw: BinaryIO, file: IO[bytes] | _Lines) -> Iterator[Chunk]:
        size = max(1, self.path.stat().st_size)
        has_header = self.header.is_there
        rest, line, is_first = b"", 1, True
        wanted = _BLOCK
        while True:
            read = file.read(wanted)
            data = rest + read
            is_last = not read
            # UTF-8's byte order mark is no part of the first field.
            if is_first and data.startswith(b"\xef\xbb\xbf"):
                data = data[3:]
            # Rows end in a newline, the last one as well.
            if is_last and data and not data.endswith(b"\n"):
                data += b"\n"
            if not data:
                return
            try:
                fields = Fields.of(data, ord(self.header.separator), is_last=is_last)
            except NotSimple:
                # Python's csv module takes over from here.
                break
            if fields is None:  # no whole line yet
                # Read as much again as there is: doubling keeps the cost of a long line linear.
                rest, wanted = data, len(data)
                is_first = False
                if len(data) > _LONGEST:
                    break
                continue
            if has_header and len(fields):
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
        keys: dict[str, Array] = {}
        labels: dict[str, list[Any]] = {}
        valid = np.ones(len(fields), bool)
        # Refuse rows with too many or too few fields before any column is computed.
        beyond = fields.row_beyond(len(self.names))
        if beyond is not None:
            row, count = beyond
            raise self._other_number(line + fields.line_of(row), count)
        for place in self._places.values():
            short = fields.row_without(place)
            if short is not None:
                row, count = short
                raise self._other_number(line + fields.line_of(row), count)
        for name in self.numbers:

            def error(row: int, text: str, name: str = name) -> TableError:
                return self._no_number(line + fields.line_of(row), name, text)

            columns[name] = fields.numbers(self._places[name], error, complete=self.header.complete)
        for name in self._dictionaries:
            # Chunks have labels of their own, so the dictionary may begin anew, which bounds its memory.
            if len(self._dictionaries[name].texts) > _MOST_TEXTS:
                self._dictionaries[name] = Dictionary()
            keys[name] = fields.keys(self._places[name], self._dictionaries[name])
            labels[name], there = labelled(keys[name], self._dictionaries[name].texts)
            valid &= there
        return Chunk(columns, None if valid.all() else valid, done, keys, labels)

    def _other_number(self, line: int, count: int) -> TableError:
        return TableError(f"{self.path}, line {line}: expected {len(self.names)} fields, got {count}")

    def _no_number(self, line: int, name: str, text: str) -> TableError:
        shown = text.strip()
        hint = "; decimals have a point, and a file has one separator" if re.search(r"\d[,; \t]+\d", shown) else ""
        return TableError(f"{self.path}, line {line}: expected a number in column {name!r}, got {shown[:40]!r}{hint}")

    def _line_by_line(self, raw: BinaryIO, rest: _Rest, line: int, size: int, *, has_header: bool) -> Iterator[Chunk]:
        with _text(io.BufferedReader(rest)) as file:
            rows = csv.reader(file, delimiter=self.header.separator)
            if has_header:
                next(filter(None, rows), None)
            for part, before in _batches(rows):
                lines = [line + count for count in before]
                columns: dict[str, Array] = {}
                keys: dict[str, Array] = {}
                labels: dict[str, list[Any]] = {}
                valid = np.ones(len(part), bool)
                beyond = next((n for n, row in enumerate(part) if len(row) > len(self.names)), None)
                if beyond is not None:
                    raise self._other_number(lines[beyond], len(part[beyond]))
                for name, place in self._places.items():
                    try:
                        texts = [row[place] for row in part]
                    except IndexError:
                        n = next(n for n, row in enumerate(part) if len(row) <= place)
                        raise self._other_number(lines[n], len(part[n])) from None
                    if name in self.numbers:
                        columns[name] = self._numbers(texts, lines, name)
                    if name in self._dictionaries:
                        codes = {text: n for n, text in enumerate(dict.fromkeys(texts))}
                        keys[name] = np.array([codes[text] for text in texts], np.int32)
                        labels[name], there = labelled(keys[name], list(codes))
                        valid &= there
                yield Chunk(columns, None if valid.all() else valid, raw.tell() / size, keys, labels)

    def _numbers(self, texts: list[str], lines: list[int], name: str) -> Array:
        values = np.empty(len(texts))
        for n, text in enumerate(texts):
            number = number_of(text, complete=self.header.complete)
            if number is None:
                raise self._no_number(lines[n], name, text)
            values[n] = number
        return values


class _Rest(io.RawIOBase):
    """Bytes that were read already, and those of a file after them."""

    def __init__(self, data: bytes, file: IO[bytes] | _Lines) -> None:
        self._data, self._file = memoryview(data), file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._data:
            self._data = memoryview(self._file.read(len(buffer)))
        part = self._data[: len(buffer)]
        self._data = self._data[len(part) :]
        buffer[: len(part)] = part
        return len(part)


def _batches(rows: Any) -> Iterator[tuple[list[list[str]], list[int]]]:
    """Yield rows that are not empty, so many at a time, each with the number of lines before it."""
    part: list[list[str]] = []
    before: list[int] = []
    lines = rows.line_num
    for row in rows:
        if row:
            part.append(row)
            before.append(lines)
        lines = rows.line_num  # of the last line of this row: quotes may hold line ends
        if len(part) == _CSV_ROWS:
            yield part, before
            part, before = [], []
    if part:
        yield part, before
