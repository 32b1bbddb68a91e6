"""Counting rows by several devices of this machine, or by the workers of a Dask cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyopencl as cl

from clhist._core.opencl.several import device_name
from clhist._core.runtime.pool import Pool, Worker
from clhist.cli.hist.compute import Bins, Counts, Extents, extents_of, joined_extents, within
from clhist.cli.hist.rows import RowPiece, TableRows
from clhist.cli.hist.tables import open_table

Array = npt.NDArray[Any]


class _Counter(Worker[tuple[RowPiece, int], Array]):
    """The counts of one device."""

    def __init__(self, queue: cl.CommandQueue, counts: Counts) -> None:
        super().__init__(device_name(queue), self._add, self._take)
        self._queue, self._counts = queue, counts.empty()

    def _add(self, work: tuple[RowPiece, int]) -> None:
        self._counts.add(*work, queue=self._queue)

    def _take(self) -> Array:
        total, self._counts = self._counts.total, self._counts.empty()
        return total


def count_by_devices(queues: Sequence[cl.CommandQueue], counts: Counts, pieces: Iterable[tuple[RowPiece, int]]) -> None:
    """Add all pieces, each with the number of groups there are by then, to `counts`; several at the same time."""
    workers = [_Counter(queue, counts) for queue in queues]
    pool: Pool[tuple[RowPiece, int], Array] = Pool(workers, lambda total, done: counts.join(total))
    pool.run(pieces)


class Workers:
    """The workers of a Dask cluster, which open the files by the same paths: a task for each."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def extents(self, rows: TableRows, bins: Sequence[Bins]) -> Extents:
        """Return the extents of all files; see `extents_of`."""
        ends: Extents = [None] * len(bins)
        for here in self._each(rows, _extents, tuple(bins)):
            ends = joined_extents(ends, here)
        return ends

    def count(self, rows: TableRows, counts: Counts) -> int:
        """Add the rows of all files to `counts`; return how many lie in bins."""
        rows.total = rows.missing = rows.cut = inside = 0
        for part in self._each(rows, _count, counts.empty()):
            # Each file numbers its groups for itself: their labels relate them.
            counts.join(part.total, None if not rows.by else rows.groups.of(part.labels))
            rows.total, rows.missing, rows.cut = (
                int(n) for n in np.array([rows.total, rows.missing, rows.cut]) + part.rows[:3]
            )
            inside += int(part.rows[3])
        rows.check_not_empty()
        return inside

    def _each(self, rows: TableRows, function: Callable[..., Any], *args: Any) -> Iterator[Any]:
        """Yield what `function` returns for each file, in any order."""
        from distributed import as_completed

        request = rows.columns, rows.weights, rows.by, rows.condition, rows.dtypes, rows.numeric
        submit = self._client.submit
        # Not pure: a file may have changed since an equal call, whose result Dask would return.
        futures = [submit(function, request, str(t.path.absolute()), *args, pure=False) for t in rows.tables]
        for done, future in enumerate(as_completed(futures, loop=self._client.loop)):
            yield future.result()
            rows.progress((done + 1) / len(futures))


def connect(address: str) -> Any:
    """Return a client of the scheduler at an address.

    Raises
    ------
    ImportError, ValueError
        If distributed is not installed, or no scheduler answers within five seconds.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise ImportError('--scheduler: needs Dask: pip install "clhist[dask]"') from error
    try:
        return Client(address, timeout=5, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise ValueError(f"--scheduler: expected a Dask scheduler at {address}, got no answer: {error}") from error


@dataclass(frozen=True)
class _FilePart:
    """The counts of one file by a worker: the bins, the labels of its groups by their numbers, and how many rows there
    are in all, missing, left out by the condition, and in bins."""

    total: Array
    labels: list[Any]
    rows: Array


def _rows(request: tuple[Any, ...], path: str) -> TableRows:
    columns, weights, by, condition, dtypes, numeric = request
    table = open_table(Path(path))
    rows = TableRows((table,), columns, weights, None, by, condition, lambda part: None, is_part=True)
    # Types are those of all files, which a worker with one of them cannot know.
    rows.dtypes, rows.numeric = dtypes, numeric
    return rows


def _extents(request: tuple[Any, ...], path: str, bins: Sequence[Bins]) -> Extents:
    """Return the extents of one file, in a worker."""
    return extents_of(_rows(request, path), bins)


def _count(request: tuple[Any, ...], path: str, counts: Counts) -> _FilePart:
    """Count one file, in a worker."""
    rows, inside = _rows(request, path), 0
    for piece in rows.pieces():
        counts.add(piece, 1 if not rows.by else len(rows.groups))
        inside += int(np.count_nonzero(within(piece, counts.edges)))
    return _FilePart(counts.total, rows.groups.labels, np.array([rows.total, rows.missing, rows.cut, inside]))
