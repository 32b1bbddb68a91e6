"""Tables of .csv, .npy, .npz and .parquet files, read in chunks: files may be larger than memory.

Nothing in a file is trusted: no pickles, and nothing is allocated because a header says so.
"""

from __future__ import annotations

import math
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

from clhist.files import text
from clhist.files.regular import open_regular
from clhist.files.table import Chunk, Table, TableError, different_names, first_line, labelled

Array = npt.NDArray[Any]

ENDINGS = (*text.ENDINGS, ".npy", ".npz", ".parquet")
STDIN = "-"
CHUNK_ROWS = 1 << 21
_DIGITS = 18  # of any decimal that int64 holds
_MAGIC = {b"\x93NUMPY": ".npy", b"PK\x03\x04": ".npz", b"PAR1": ".parquet"}
_MAGIC_COMPRESSED = {b"\x1f\x8b": ".csv.gz", b"BZh": ".csv.bz2", b"\xfd7zXZ\x00": ".csv.xz"}


def open_table(path: Path) -> Table:
    """Return the table in a file, whose ending says what it is, or in the standard input, whose first bytes do.

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
    if str(path) == STDIN:
        return _open_stdin()
    ending = path.suffix.lower()
    if ending in text.COMPRESSED and path.with_suffix("").suffix.lower() in text.ENDINGS:
        ending = path.with_suffix("").suffix.lower()
    if ending not in ENDINGS:
        compressed = f"{', '.join(text.ENDINGS)} also with {', '.join(text.COMPRESSED)}"
        raise TableError(f"{path}: expected a file {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}; {compressed}")
    try:
        with open_regular(path) as file:  # says what is wrong with the path itself
            is_empty = not file.read(1)
    except ValueError as error:
        raise TableError(f"{path}: {error}") from error
    if is_empty:
        raise TableError(f"{path}: expected a table, got an empty file")
    try:
        return readers.get(ending, text.open_text)(path)
    except (ImportError, TableError):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:  # of the system, not of gzip
            raise
        raise TableError(f"{path}: expected a whole {ending} file: {first_line(error)}") from error


def _open_stdin() -> Table:
    """Return the table in the standard input, which is kept in a temporary file: it may be read twice."""
    first = sys.stdin.buffer.read(8)
    endings = (_MAGIC | _MAGIC_COMPRESSED).items()
    ending = next((ending for magic, ending in endings if first.startswith(magic)), ".csv")
    file = tempfile.NamedTemporaryFile(prefix="clhist-", suffix=ending)  # noqa: SIM115
    click.get_current_context().call_on_close(file.close)
    file.write(first)
    shutil.copyfileobj(sys.stdin.buffer, file)
    # Readers open the file by its name, and must find all of it.
    file.flush()
    try:
        table = open_table(Path(file.name))
    except TableError as error:
        raise TableError(str(error).replace(file.name, "standard input")) from error

    def read(numbers: Sequence[str], keys: Sequence[str]) -> Iterator[Chunk]:
        try:
            yield from table.read(numbers, keys)
        except TableError as error:
            raise TableError(str(error).replace(file.name, "standard input")) from error

    return replace(table, path=Path(STDIN), read=read)


def kind_of(dtype: np.dtype) -> np.dtype | str:
    """Return a dtype of real numbers that histograms take, in native byte order; of others what they are."""
    if dtype.kind in "biuf" and dtype.itemsize <= 8:
        return dtype.newbyteorder("=")
    return {"U": "text", "S": "text", "O": "objects", "M": "dates", "m": "durations"}.get(dtype.kind, str(dtype))


# NumPy's files


def _open_npy(path: Path) -> Table:
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    if array.dtype.names:
        if array.ndim != 1:
            raise TableError(f"{path}: expected records in one dimension, got shape {array.shape}")
        columns = {name: array[name] for name in array.dtype.names}
        columns = {name: column for name, column in columns.items() if column.ndim == 1}
    elif array.ndim == 2:
        # Columns without names are called by their numbers.
        columns = {str(n): array[:, n] for n in range(array.shape[1])}
    elif array.ndim == 1:
        columns = {"0": array}
    else:
        raise TableError(f"{path}: expected shape (rows,) or (rows, columns), got {array.shape}")

    def read(numbers: Sequence[str], keys: Sequence[str]) -> Iterator[Chunk]:
        for begin in range(0, len(array), CHUNK_ROWS):
            part = {name: columns[name][begin : begin + CHUNK_ROWS] for name in (*numbers, *keys)}
            contiguous = {name: np.ascontiguousarray(column, _native(column.dtype)) for name, column in part.items()}
            yield _chunk(contiguous, numbers, keys, min(1.0, (begin + CHUNK_ROWS) / len(array)))

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
            # A compressed member is read from its start: each column has an open file of its own.
            files = {name: archive.open(f"{name}.npy") for name in names}
            for file in files.values():
                _npy_header(file)
            for begin in range(0, length, CHUNK_ROWS):
                rows = min(CHUNK_ROWS, length - begin)
                columns = {name: _piece(path, name, file, headers[name][1], rows) for name, file in files.items()}
                yield _chunk(columns, numbers, keys, (begin + rows) / length)

    return Table(path, dtypes, read)


def _chunk(columns: dict[str, Array], numbers: Sequence[str], keys: Sequence[str], done: float) -> Chunk:
    """Return some rows of arrays, with keys that are no numbers as text."""
    places = {name: columns[name] for name in keys}
    labels: dict[str, list[Any]] = {}
    valid: Any = True
    for name, array in places.items():
        if array.dtype.kind in "SUmM":
            texts, places[name] = np.unique(array, return_inverse=True)
            labels[name], there = labelled(places[name], texts.astype(str).tolist())
            valid &= there & ~(np.isnat(array) if array.dtype.kind in "mM" else np.zeros(len(array), bool))
    return Chunk({name: columns[name] for name in numbers}, None if np.all(valid) else valid, done, places, labels)


def _npy_header(file: Any) -> tuple[tuple[int, ...], np.dtype]:
    version = npy.read_magic(file)
    shape, _, dtype = (npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0)(file)
    return shape, dtype


def _piece(path: Path, name: str, file: Any, dtype: np.dtype, rows: int) -> Array:
    wanted = rows * dtype.itemsize
    # This returns no more than the file has, whatever size its header claims.
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
    different, repeated = different_names(schema.names)
    position = {name: n for n, name in enumerate(different)}

    def read(numbers: Sequence[str], keys: Sequence[str]) -> Iterator[Chunk]:
        done = 0
        names = {name: schema.names[position[name]] for name in (*numbers, *keys)}
        with parquet.ParquetFile(path, pre_buffer=False) as file:
            for batch in file.iter_batches(CHUNK_ROWS, columns=list(dict.fromkeys(names.values()))):
                done += batch.num_rows

                def column_of(name: str, batch: Any = batch) -> Any:
                    # Columns may share a name: take the one at the same place among them.
                    places = [n for n, other in enumerate(batch.schema.names) if other == names[name]]
                    return batch.column(places[repeated.get(names[name], [position[name]]).index(position[name])])

                columns: dict[str, Array] = {}
                places: dict[str, Array] = {}
                labels: dict[str, list[Any]] = {}
                valid = np.ones(batch.num_rows, bool)
                for name in numbers:
                    dtype = dtypes[name]
                    assert isinstance(dtype, np.dtype)
                    columns[name], there = _arrow_numbers(arrow, column_of(name), dtype)
                    valid &= there
                for name in keys:
                    column, dtype = column_of(name), dtypes[name]
                    if isinstance(dtype, np.dtype) and not arrow.types.is_decimal(column.type):
                        places[name], there = _arrow_numbers(arrow, column, dtype)
                    else:
                        places[name], labels[name], there = _arrow_keys(arrow, column)
                    valid &= there
                yield Chunk(columns, None if valid.all() else valid, done / max(1, rows), places, labels)

    dtypes = {name: _arrow_kind(arrow, schema.field(n).type) for name, n in position.items()}
    return Table(path, dtypes, read, repeated)


def _arrow_kind(arrow: Any, arrow_type: Any) -> np.dtype | str:
    types = arrow.types
    if types.is_boolean(arrow_type) or types.is_integer(arrow_type) or types.is_floating(arrow_type):
        return np.dtype(arrow_type.to_pandas_dtype())
    if types.is_decimal(arrow_type):
        return np.dtype(
            np.int64 if arrow_type.scale <= 0 and arrow_type.precision - arrow_type.scale <= _DIGITS else np.float64
        )
    if types.is_dictionary(arrow_type):
        return f"categories of {arrow_type.value_type}"
    return "text" if types.is_string(arrow_type) or types.is_large_string(arrow_type) else str(arrow_type)


def _arrow_numbers(arrow: Any, column: Any, dtype: np.dtype) -> tuple[Array, Array]:
    """Return a column of numbers as an array, and which rows have a value."""
    valid = np.asarray(column.is_valid().to_numpy(zero_copy_only=False))
    if arrow.types.is_decimal(column.type):
        # A decimal without fraction may exceed int64.
        if column.type.scale <= 0 and dtype.kind == "f":
            return np.array([int(value or 0) for value in column.to_pylist()], object), valid
        # By text: Arrow's own cast of decimals is not rounded correctly.
        column = column.cast(arrow.int64()) if dtype.kind == "i" else column.cast(arrow.string()).cast(arrow.float64())
    if not valid.all():
        # `valid` excludes these rows, so any number may fill them.
        column = column.fill_null(arrow.scalar(False if dtype.kind == "b" else 0, column.type))
    return np.ascontiguousarray(column.to_numpy(zero_copy_only=False), dtype), valid


def _arrow_keys(arrow: Any, column: Any) -> tuple[Array, list[Any], Array]:
    """Return the places of keys in a list of texts or exact numbers, that list, and which rows have a key."""
    if not arrow.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    indices, values = column.indices, column.dictionary
    valid = np.asarray(indices.is_valid().to_numpy(zero_copy_only=False))
    places = np.asarray(indices.fill_null(0).to_numpy(zero_copy_only=False), np.int64)
    if arrow.types.is_decimal(values.type):
        return places, [0 if value is None else exact_number(value) for value in values.to_pylist()] or [0], valid
    labels, there = labelled(places, ["" if value is None else str(value) for value in values.to_pylist()])
    return places, labels, valid & there


def exact_number(value: Decimal) -> int | float | Decimal:
    """Return the integer or the float whose shortest text is a decimal, or the decimal if there is none."""
    if value == value.to_integral_value():
        return int(value)
    return float(value) if Decimal(repr(float(value))) == value else value


def common_dtype(tables: Sequence[Table], name: str) -> np.dtype:
    """Return the dtype that holds a column of numbers of all tables; booleans are bytes."""
    dtype = np.result_type(*(table.dtype(name) for table in tables))
    return np.dtype(np.uint8) if dtype.kind == "b" else dtype


def rows_of(chunk: Chunk) -> int:
    """Return how many rows a chunk has."""
    return math.prod(next(iter((chunk.columns | chunk.keys).values())).shape)
