"""`MultiAccumulator`: a stream of chunks over several devices of one host."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from typing import Any, Self

import pyopencl as cl

from clhist._core.kinds import may_be_cuda
from clhist._core.opencl.arrays import is_device_array
from clhist._core.opencl.cuda_arrays import CudaArray
from clhist._core.opencl.lost import check_process
from clhist._core.opencl.several import device_name, queues_of
from clhist._core.runtime.chunks import Piece
from clhist._core.runtime.cuda_entry import takes_cuda
from clhist._core.runtime.pool import Pool, Worker
from clhist._core.runtime.progress import Progress, reported
from clhist._core.runtime.streams import check_numbers
from clhist.accumulator import CHUNK_BYTES, Accumulator
from clhist.partial import Partial, combined, neutral_arrays
from clhist.typing import Chunk, Devices, HostArray, Made, NumBins, Streamed


class MultiAccumulator(Accumulator[HostArray, Made]):
    """A histogram over a stream of chunks, computed by several devices: an `Accumulator` and a thread for each.

    A chunk goes to whichever device is free. A device that fails is left out from then on, with a warning; what it had
    not handed over is computed again by the others.

    Parameters
    ----------
    operator : Operator, numpy.ufunc, str or HistogramKernel
        As of `Accumulator`. A kernel is built for each device.
    num_bins : int, or tuple of int
        H, as in `HistogramKernel.__call__`.
    devices : "all", or sequence of pyopencl.Device, optional
        "all", the default, is every GPU or, where there is none, the default device.
    queues : sequence of pyopencl.CommandQueue, optional
        Instead of `devices`; each device or context should occur once.
    dtype, dest, chunk_bytes, first_index, start, **options
        As of `Accumulator`.

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong; it is named.

    Examples
    --------
    >>> counts = clhist.MultiAccumulator("count", 3)
    >>> counts.add(np.array([0, 2, 2], np.int32), 1).result()
    array([1, 0, 2])
    """

    def __init__(
        self,
        operator: Streamed[Made],
        num_bins: NumBins,
        *,
        devices: Devices | None = None,
        queues: Sequence[cl.CommandQueue] | None = None,
        dtype: Any = None,
        dest: Any = None,
        chunk_bytes: int = CHUNK_BYTES,
        first_index: str | None = None,
        start: int | None = None,
        **options: Any,
    ) -> None:
        check_process()
        if devices is not None and queues is not None:
            raise TypeError(f"devices: expected none beside queues, got {devices!r}")
        all_queues = queues_of("all" if devices is None else devices) if queues is None else queues_of(queues, "queues")
        engine = getattr(operator, "engine", None)  # of a kernel
        options |= {"dtype": dtype, "chunk_bytes": chunk_bytes, "first_index": first_index, "start": start}

        def on(queue: cl.CommandQueue) -> Any:
            return operator if engine is None else engine.on(queue.context)

        self._made = lambda queue: _Device(Accumulator(on(queue), num_bins, queue=queue, **options))
        self._devices = [self._made(queue) for queue in all_queues]
        # Bins for CUDA arrays are in memory of their library, beside the OpenCL bins of the same devices.
        self._of_cuda: dict[int, _Device] = {}
        self._pool: Pool[Piece, Partial] = Pool(self._devices, self._collect)
        super().__init__(on(all_queues[0]), num_bins, queue=all_queues[0], dest=dest, **options)
        # Initial contents move to the host, where no failure of a device can lose them.
        self._added, self._is_shared = super().partial(), False
        del self._held  # the base class's bins: parts are on the host, or in the accumulators of the devices
        self._finishes_on = self._like = None

    @property
    def failed(self) -> dict[str, BaseException]:
        """The devices that failed, by name, and why."""
        return {worker.name: error for worker, error in self._pool.failed.items()}

    @takes_cuda
    def add(self, *args: Chunk[Any], size: int | None = None) -> Self:  # type: ignore[override]
        """Add a chunk of the stream, and return the accumulator; in chunks of `chunk_bytes` if its arrays are NumPy's.

        Parameters
        ----------
        *args, size
            As of `Accumulator.add`. Device arrays, CUDA's among them, go to the device that they are on, which is not
            waited for: several devices compute at the same time.

        Raises
        ------
        TypeError, ValueError, OverflowError
            If an argument is wrong; it is named, and nothing is added.
        Exception
            What the last device raised that was left, or the one that the arrays are on.

        Warns
        -----
        RuntimeWarning
            If a device failed and others did its work.
        """
        with self._resumable():
            self.feed(self.piece(args, size))
        return self

    def extend(self, iterable: Iterable[Any], total: int | None = None, progress: bool | Progress = False) -> Self:
        """Add chunk after chunk, and return the accumulator; several are computed at the same time.

        Parameters
        ----------
        iterable : iterable of tuple, or of array
            What `add` takes: its arguments, or its only one. If it raises, what came before stays added. Arrays must
            not be changed before this returns.
        total, progress
            As of `Accumulator.extend`.
        """
        done = 0
        with reported(iterable, total, progress) as (chunks, report):

            def report_piece(piece: Piece) -> None:
                nonlocal done
                done += piece.size
                report(done)

            # CUDA chunks are added one by one on their device, in memory of their library.
            for are_cuda, run in groupby(chunks, lambda chunk: may_be_cuda(tuple(chunk))):
                if not are_cuda:
                    with self._resumable():
                        self._run((part for chunk in run for part in self.piece(chunk).parts()), report_piece)
                    continue
                for chunk in run:
                    before = self._size
                    self.add(*chunk)
                    done += self._size - before
                    report(done)
        return self

    def partial(self) -> Partial[Made]:
        """Return the accumulators of all that has been added and merged, and of `dest`; see `Accumulator.partial`."""
        self._check_device()
        self._is_shared = True
        assert self._added is not None
        return self._added

    def piece(self, args: Sequence[Any], size: int | None = None, position: int | None = None) -> Piece:
        """Return the checked arguments of `add`; the next piece follows it."""
        position = self._position if position is None else position
        whole = self._device_of(args).accumulator.piece(args, size, position)
        self._check_place(whole)
        # Each device counts its own values alone; a piece that exceeds the operator's limit is refused as a whole.
        devices = (device for device in (*self._devices, *self._of_cuda.values()) if device.holds_arrays)
        count = sum(device.accumulator._count for device in devices)  # noqa: SLF001
        assert self._added is not None
        check_numbers(self._forms, self._portable.operators, self._emits, whole, count, self._added.values)
        self._position = position + whole.size
        return whole

    def _device_of(self, args: Sequence[Any]) -> _Device:
        """Return the device that the arrays in `args` are on, or the first that has not failed if they are NumPy's."""
        array, failed = next(filter(is_device_array, args), None), self._pool.failed
        if array is None:
            return next((device for device in self._devices if device not in failed), self._devices[0])
        if isinstance(array, CudaArray):
            number, queue = array.memory.device, array.stands_for
            if number not in self._of_cuda:
                self._of_cuda[number] = self._made(cl.CommandQueue(queue.context, queue.device))
            device = self._of_cuda[number]
            device.accumulator._go_to(args)  # noqa: SLF001  # as its own `add` does
            return device
        context = array.context
        # Arrays of another context are refused by whichever device is asked.
        device = next((one for one in self._devices if one.accumulator.queue.context == context), self._devices[0])
        # What a failed device had not handed over was computed elsewhere, and is still in its bins.
        if device in failed:
            raise failed[device]
        return device

    @contextmanager
    def _resumable(self) -> Iterator[None]:
        """On an exception, set the position behind the elements that were added."""
        first, before = self._position, self._size
        try:
            yield
        except BaseException:
            self._position = first + self._size - before
            raise

    def feed(self, piece: Piece) -> None:
        """Add a piece from `piece`."""
        self._run(piece.parts())

    def _check_device(self) -> None:
        """Raise in a forked process; merge the parts of all devices on the host."""
        check_process()
        self._pool.join()
        self._settle()

    def _hold(self, added: Partial | None, size: int, position: int, has_gaps: bool) -> None:
        """Replace everything by `added`, and continue at `position`."""
        if added is None:
            added = Partial(self._portable, neutral_arrays(self._portable, self._shapes), 0, 0, ())
        self._added, self._source = added, ""
        self._size, self._position, self._has_gaps = size, position, has_gaps

    def _place(self) -> str:
        return ", ".join(device.name for device in self._devices)

    def _run(self, pieces: Iterable[Piece], on_done: Callable[[Piece], None] = lambda piece: None) -> None:
        """Compute pieces: those of device arrays on their device, the others by the pool of all devices."""
        for on_device, run in groupby(pieces, lambda piece: piece.on_device):
            if not on_device:
                # The pool may drop a failed device; the results of its own device arrays would be lost with it.
                self._settle()
                self._pool.run(run, on_done)
                continue
            for piece in run:
                self._feed(self._device_of(piece.args), piece)
                on_done(piece)

    def _feed(self, device: _Device, piece: Piece) -> None:
        """Add a piece of a device's own arrays there."""
        self._updates.check()
        before, device.holds_arrays = device.accumulator.size, True
        self._updates.begin()
        try:
            device.accumulator.feed(piece)
        # An exception may come after some chunks of the piece: count those that the device added.
        finally:
            self._size += device.accumulator.size - before
            self._updates.end()

    def _settle(self) -> None:
        """Wait for the results of device arrays, and merge them on the host."""
        self._updates.check()
        for device in (*self._devices, *self._of_cuda.values()):
            if device.holds_arrays:
                assert self._added is not None
                part = self._of_this_stream(device.accumulator.partial())
                # All devices add to one stream, so equal sources are no repetition here.
                added = combined(self._added, part, "partial", allow_repeat=True)
                # Only now may the device's bins be emptied: an exception before this line loses nothing.
                self._updates.begin()
                device.accumulator.take()
                self._added, self._is_shared, device.holds_arrays = added, False, False
                self._updates.end()

    def _of_this_stream(self, part: Partial) -> Partial:
        """Return a partial result with the identity of this stream, whichever device computed it."""
        self._source = self._source or uuid.uuid4().hex
        return replace(part, sources=frozenset((self._source,)))

    def _collect(self, part: Partial, pieces: Sequence[Piece]) -> None:
        assert self._added is not None
        part = self._of_this_stream(part)
        self._updates.begin()
        # A partial result that the caller may hold must not change: merge into a copy then.
        try:
            whole = combined(self._added, part, "partial", in_place=not self._is_shared, allow_repeat=True)
        except OverflowError:
            # Refused before bins change: the stream goes on without this part.
            self._updates.end()
            raise
        self._added, self._is_shared = whole, False
        self._size += sum(piece.size for piece in pieces)
        self._updates.end()


class _Device(Worker[Piece, Partial]):
    """The accumulator of one device."""

    def __init__(self, accumulator: Accumulator) -> None:
        super().__init__(device_name(accumulator.queue), accumulator.feed, accumulator.take)
        self.accumulator = accumulator
        self.holds_arrays = False
