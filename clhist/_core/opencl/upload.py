"""NumPy arrays on their way to a device's own memory, through page-locked memory.

From there a device fetches by DMA, several times as fast as drivers copy from pageable memory. Threads copy an array
part by part into pieces that are kept; each part goes on to the device as soon as it is there.
"""

from __future__ import annotations

import os
import queue
import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pyopencl as cl

from clhist._core.opencl.lost import is_forked
from clhist._core.opencl.program import kept_by_context

# Bytes: with fewer the threads wait for Python's lock. Note [Parts of 4 MiB], docs/decisions/0017.
_PART = 4 << 20
_THREADS = max(1, min(8, (os.cpu_count() or 1) // 2))
# Bytes of an array from which this way is faster. Note [Small uploads go directly], docs/decisions/0017.
FEWEST_BYTES = 3 * _PART


@dataclass
class _Piece:
    """Page-locked memory for one part, and the event after which it is free."""

    memory: np.ndarray
    event: cl.Event | None = None


class Uploads:
    """Uploads to one device by a queue of their own, which runs in order; threads may share it.

    Parameters
    ----------
    context : pyopencl.Context
        Of the buffers.
    device : pyopencl.Device
        Where they go.
    part, threads : int
        Bytes that are copied at a time, and by how many threads.
    """

    def __init__(self, context: cl.Context, device: cl.Device, *, part: int = _PART, threads: int = _THREADS) -> None:
        self._part, self._threads = part, threads
        self._queue = cl.CommandQueue(context, device)
        self._free: queue.SimpleQueue[_Piece] = queue.SimpleQueue()
        self._pieces: list[_Piece] = []
        self._lock = threading.Lock()
        self._executor = ThreadPoolExecutor(threads, "clhist-upload")  # whose threads are made when needed, and kept
        # With the context: on Intel's CPU runtime a queue does not keep its own alive.
        weakref.finalize(self, _unmap, self._pieces, self._queue, context)

    def upload(
        self, buffer: cl.Buffer, array: np.ndarray, dtype: np.dtype, wait_for: Sequence[cl.Event] = ()
    ) -> cl.Event:
        """Copy `array`, of one dimension, to `buffer` as elements of `dtype`; it may be changed when this returns.

        Parameters
        ----------
        buffer : pyopencl.Buffer
            At least as large.
        array : numpy.ndarray
            In whatever order of bytes, with gaps or without.
        dtype : numpy.dtype
            What it becomes.
        wait_for : sequence of pyopencl.Event
            What uses `buffer` until then.

        Returns
        -------
        pyopencl.Event
            When all is there.

        Raises
        ------
        MemoryError
            If there is no page-locked memory.
        """
        # Whole elements, so that none is split between two parts.
        step = max(1, self._part // dtype.itemsize)
        begins = range(0, array.size, step)
        waited = list(wait_for) or None
        # After an error no other thread may enqueue a copy to the buffer, which is the caller's again.
        sending, ended = threading.Lock(), list[bool]()

        def send(begin: int) -> None:
            part = array[begin : begin + step]
            piece = self._free.get()
            try:
                if piece.event is not None:
                    piece.event.wait()
                locked = piece.memory[: part.size * dtype.itemsize].view(dtype)
                # This copy also converts, swaps bytes and closes gaps, on the host.
                np.copyto(locked, part, casting="unsafe")
                place = begin * dtype.itemsize
                with sending:
                    if ended:  # `buffer` may have another use by now
                        return
                    piece.event = cl.enqueue_copy(
                        self._queue, buffer, locked, dst_offset=place, wait_for=waited, is_blocking=False
                    )
                self._queue.flush()
            finally:
                self._free.put(piece)

        try:
            self._make_pieces(len(begins) + 1)
            if min(self._threads, len(begins)) > 1:
                list(self._executor.map(send, begins))
            else:
                for begin in begins:
                    send(begin)
            # The queue runs in order: the marker ends after all parts.
            event = cl.enqueue_marker(self._queue)
            self._queue.flush()
            return event
        except BaseException:  # Ctrl-C may arrive while nobody has a piece: later calls begin with new ones
            with sending:
                ended.append(True)
            uploads.cache_clear()
            raise

    def _make_pieces(self, wanted: int) -> None:
        """See that there are as many pieces, or as many as there may be."""
        with self._lock:
            # Some are being filled, and some are on their way.
            while len(self._pieces) < min(wanted, self._threads + 2):
                flags = cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR
                try:
                    host = cl.Buffer(self._queue.context, flags, self._part)
                    memory, _ = cl.enqueue_map_buffer(
                        self._queue, host, cl.map_flags.WRITE, 0, (self._part,), np.dtype(np.uint8), is_blocking=True
                    )
                except (cl.MemoryError, cl.LogicError) as error:
                    # Fewer pieces make uploads slower, not wrong.
                    if self._pieces:
                        return
                    raise MemoryError(f"no {self._part} bytes of page-locked memory: {error}") from error
                self._pieces.append(_Piece(memory))
                self._free.put(self._pieces[-1])


def _unmap(pieces: Sequence[_Piece], queue: cl.CommandQueue, context: cl.Context) -> None:
    """Give the page-locked memory back while `context` is there."""
    if is_forked():  # nor is anything of it here
        return
    queue.finish()
    for piece in pieces:
        piece.memory.base.release(queue)  # type: ignore[union-attr]
    queue.finish()


@kept_by_context
def uploads(context: cl.Context, device: cl.Device) -> Uploads:
    """Return the uploads to `device`, whose page-locked memory is kept."""
    return Uploads(context, device)
