"""Counting rows by several devices of this machine, or by the workers of a Dask cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyopencl as cl

from clhist.cli.hist.compute import Counts, within
from clhist.cli.hist.rows import Piece, Rows
from clhist.cli.hist.tables import open_table
from clhist.engine.pool import Pool
from clhist.opencl.several import device_name

Array = npt.NDArray[Any]


class _Counter:
    """The worker of one device."""

    def __init__(self, queue: cl.CommandQueue, counts: Counts) -> None:
        self.name, self._queue, self._counts = device_name(queue), queue, counts.empty()

    def takes(self, work: tuple[Piece, int]) -> bool:
        return True

    def compute(self, work: tuple[Piece, int]) -> None:
        self._counts.add(*work, queue=self._queue)

    def give(self) -> Array:
        total, self._counts = self._counts.total, self._counts.empty()
        return total


def count_by_devices(queues: Sequence[cl.CommandQueue], counts: Counts, pieces: Iterable[tuple[Piece, int]]) -> None:
    """Add all pieces, each with the number of groups there are by then, to `counts`; several at the same time."""
    workers = [_Counter(queue, counts) for queue in queues]
    pool: Pool[tuple[Piece, int], Array] = Pool(workers, lambda total, done: counts.join(total))
    pool.run(pieces)


@dataclass(frozen=True)
class _Part:
    """What a worker counted of one file: the bins, and rows in all, missing, left out by the condition, and in bins."""

    total: Array
    rows: Array


def count_by_workers(client: Any, rows: Rows, counts: Counts) -> int:
    """Add the rows of all files, a task for each, to `counts`; return how many lie in bins.

    Workers open the files by the same paths.
    """
    asked = rows.columns, rows.weights, rows.condition, rows.dtypes
    futures = [
        client.submit(_count, asked, str(table.path.absolute()), counts.empty(), pure=False) for table in rows.tables
    ]
    rows.total = rows.missing = rows.cut = inside = 0
    for done, future in enumerate(_in_turn(client, futures)):
        part = future.result()
        counts.join(part.total)
        rows.total, rows.missing, rows.cut = (
            int(n) for n in np.array([rows.total, rows.missing, rows.cut]) + part.rows[:3]
        )
        inside += int(part.rows[3])
        rows.progress((done + 1) / len(futures))
    return inside


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


def _in_turn(client: Any, futures: Sequence[Any]) -> Iterator[Any]:
    from distributed import as_completed

    yield from as_completed(futures, loop=client.loop)


def _count(asked: tuple[Any, ...], path: str, counts: Counts) -> _Part:
    """Count one file, in a worker."""
    columns, weights, condition, dtypes = asked
    rows = Rows((open_table(Path(path)),), columns, weights, None, None, condition, lambda part: None)
    rows.dtypes = dtypes
    inside = 0
    for piece in rows.pieces():
        counts.add(piece, 1)
        inside += int(np.count_nonzero(within(piece, counts.edges)))
    return _Part(counts.total, np.array([rows.total, rows.missing, rows.cut, inside]))
