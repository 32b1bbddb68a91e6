"""`Accumulator`: histograms of input that comes piece by piece, or that is larger than the device's memory.

What a bin holds between two pieces is an accumulator of the operator, neither lifted nor finished, on the device.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, Self, Unpack, overload

import numpy as np
import pyopencl as cl

from clhist._core.model.problem import CHOICES, Choices
from clhist._core.opencl.arrays import Array
from clhist._core.opencl.cuda_arrays import CudaArray
from clhist._core.opencl.cuda_kinds import NotDirectError, cuda_device_of
from clhist._core.opencl.device import device_profile
from clhist._core.opencl.lost import check_process
from clhist._core.opencl.new_arrays import to_device
from clhist._core.opencl.on_device import HoldsBins
from clhist._core.runtime import streams
from clhist._core.runtime.call import Call, queue_for
from clhist._core.runtime.chunks import Chunks, Piece
from clhist._core.runtime.cuda_calls import first_of_cuda
from clhist._core.runtime.cuda_entry import takes_cuda, takes_cuda_as
from clhist._core.runtime.device_accumulators import DeviceAccumulators, Updates, empty_bins
from clhist._core.runtime.engine import Engine
from clhist._core.runtime.outputs import Outputs
from clhist._core.runtime.progress import Progress, reported
from clhist._core.runtime.scatter import with_arrays
from clhist._core.runtime.shown_options import shows
from clhist._core.runtime.signature import Remembered, signature_of_arguments
from clhist.operators.c_types import check_booleans, integer
from clhist.operators.fixed_point import check_range
from clhist.operators.names import COUNT
from clhist.partial import Partial, bins_text, combined, joined, merge, portable_outputs
from clhist.race_factor import run
from clhist.typing import A, Chunk, Made, Named, NumBins, One, Ordered, Own, RaceFactorMode, StreamChoices, Streamed

CHUNK_BYTES = 64 << 20  # 800 MB of NumPy arrays to a GPU by PCIe take 91 to 104 ms (H200), in one call 510
INSTEAD = "its partial() can be, and a clhist.Spec, which says what to compute"


class Accumulator(HoldsBins, Generic[A, Made], instead=INSTEAD):
    """A histogram over a stream of chunks: `reduce_by_index` or a `HistogramKernel`, chunk by chunk.

    Parameters
    ----------
    operator : Operator, numpy.ufunc, str or HistogramKernel
        How values are combined, as in `clhist.reduce_by_index`; or a kernel with one or several operators.
    num_bins : int, or tuple of int
        H, as in `HistogramKernel.__call__`.
    dtype : dtype-like, optional
        Type of the bins, for a ufunc, name or expression. Defaults to that of `dest`.
    dest : array of shape (num_bins,), optional
        Initial contents of the bins; with several operators a sequence or mapping.
    queue : pyopencl.CommandQueue, optional
        Where arrays of NumPy and PyOpenCL go. Defaults to the default one, or the kernel's.
    chunk_bytes : int
        Larger NumPy arrays are split into chunks of at most this size. On a device with its own memory each argument
        takes twice that there.
    race_factor : float, "sample" or "sample once"
        As in `HistogramKernel.__call__`, for each chunk.
    first_index : str, optional
        The scalar argument of the kernel's map that gets the position in the stream of the element 0 of a chunk, so
        that ``first + i`` is the position of an element. It is left out of what is added.
    start : int, optional
        The position of the first element, for a stream that is a later part of another. Defaults to 0, or to the
        position behind a partial result that is merged first. Where it is given or values get their positions, partial
        results say which positions they have, and those that have the same are not merged.
    **choices
        `update`, `memory`, `copies`, `passes`, `work_group_size`, `locks`, `pass_order`, `counter_bits` and
        `memory_budget` of `HistogramKernel.__call__`.

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong; it is named.
    RuntimeError
        When it is used after an exception, such as that of Ctrl-C, ended a call while it changed the bins. After all
        other exceptions the bins hold the `size` elements that were added.

    Examples
    --------
    >>> sums = clhist.Accumulator(np.add, 3, dtype=np.float32)
    >>> chunks = ((np.array([0, 2]), np.array([k, 1], np.float32)) for k in range(4))
    >>> sums.extend(chunks).result()
    array([6., 0., 4.], dtype=float32)

    Notes
    -----
    One thread at a time may use it. Sums of floats are those of one call but for rounding; other results are the same.
    Bins are on the device of CUDA's arrays, in memory of their library, and go by the host where other chunks follow.
    """

    _position: int
    _has_positions: bool

    @takes_cuda
    @shows(StreamChoices)
    def __init__(
        self,
        operator: Streamed[Made],
        num_bins: NumBins,
        *,
        dtype: Any = None,
        dest: Any = None,
        queue: cl.CommandQueue | None = None,
        chunk_bytes: int = CHUNK_BYTES,
        race_factor: float | RaceFactorMode = 1.0,
        first_index: str | None = None,
        start: int | None = None,
        **choices: Unpack[StreamChoices],
    ) -> None:
        check_process()
        self._counts = isinstance(operator, str) and operator == COUNT
        forced: dict[str, Any] = dict(choices)
        self._budget = forced.pop("memory_budget", None)
        if unknown := forced.keys() - set(CHOICES):
            raise TypeError(f"{min(unknown)}: expected one of {', '.join(sorted(CHOICES))} or memory_budget")
        self._choices, self._race_factor = Choices(**forced), race_factor
        chunk_bytes = integer("chunk_bytes", chunk_bytes, 1)
        self.seek(start if start is None else integer("start", start, 0))
        self._size = self._count = 0  # elements that were added, and those that are held
        self._updates = Updates(type(self).__name__)
        self._ranges: list[tuple[int, int]] = []
        self._source, self._has_dest = "", dest is not None  # identity of what is held, once a partial has it
        self._is_numbered = False  # whether elements got their positions
        engine = operator if isinstance(operator, Engine) else getattr(operator, "engine", None)  # an operator has none
        # A kernel brings its context, map and numbers of emitted pairs; an operator alone takes (index, value) pairs.
        if isinstance(engine, Engine):
            if dtype is not None:
                raise TypeError(f"dtype: expected none, since the kernel's operators have theirs; got {dtype!r}")
            self._outputs, self.queue = engine.outputs, queue_for(queue, engine.context)
            profile = engine.profile_of(self.queue.device)
        else:
            engine, self._outputs = None, Outputs.of(streams.stream_operator(operator, dtype, dest))
            self.queue = queue_for(queue)
            profile = device_profile(self.queue.device)
        self._own_queue, self._like = self.queue, streams.library_of(dest)
        self._finishes_on: cl.CommandQueue | None = self.queue
        self._came_from: CudaArray | None = None
        self._shapes = self._outputs.shapes(num_bins)
        # Accumulators go from call to call: the operators may not take another form in the next.
        self._forms = [streams.held_form(op, cpu=profile.kind == "cpu") for op in self._outputs.operators]
        # Partial results have the same form on all devices, whatever form the bins have here.
        self._portable = portable_outputs(self._outputs)
        self._added: Partial | None = None  # what was merged, and counts that 32 bits could not go on with
        self._emits = [emits or 1 for emits in engine.output_emits] if engine is not None else [1]
        self._engine = None if engine is None else engine.with_operators(self._forms)
        self._first = None if engine is None else streams.first_argument(engine, first_index)
        if engine is None and first_index is not None:
            raise TypeError(f"first_index: expected none, since there is no map; got {first_index!r}")
        if engine is None and len(self._shapes[0]) > 1:
            raise ValueError(f"num_bins: expected one dimension for an operator, got {num_bins}")
        # A stream repeats few signatures of chunks: those of a cached one need no further checks.
        self._templates: Remembered[Piece] = Remembered(4)
        dests = streams.checked_dests(self._outputs, self._forms, self._shapes, dest, self.queue.context)
        self._on_device = False
        self._held = DeviceAccumulators(
            self.queue, profile, self._forms, empty_bins(self.queue, self._forms, self._shapes)
        )
        self._chunk_bytes, self._chunks = chunk_bytes, Chunks(self.queue, chunk_bytes)
        self._held.begin(self._updates, dests)
        self._updates.end()

    def __repr__(self) -> str:
        name, operators = type(self).__name__, ", ".join(map(str, self._outputs.operators))
        return f"<{name} {operators}: {bins_text(self._shapes)} bins, {self.size:,} added, on {self._place()}>"

    def _place(self) -> str:
        return str(self.queue.device.name.strip())

    @property
    def size(self) -> int:
        """How many elements, each an `i` of the map or an index, have been added or merged."""
        return self._size

    @takes_cuda
    def add(self, *args: Chunk[Own], size: int | None = None) -> Accumulator[Own, Made]:
        """Add a chunk of the stream, and return the accumulator.

        Parameters
        ----------
        *args : array or scalar
            For an operator, indices and values as in `clhist.reduce_by_index`; positions count over the whole stream.
            For a kernel, the map's arguments without `first_index`, none of them masked.
        size : int, optional
            N, as in `HistogramKernel.__call__`; only for a kernel.

        Raises
        ------
        TypeError, ValueError
            If an argument is wrong; it is named, and nothing is added. So too if NumPy arrays are larger than
            `chunk_bytes` and the map uses `i` other than for their elements, unless there is a `first_index`.
        OverflowError
            If a bin may have more values then than its operator can take, such as those of
            `clhist.operators.reproducible_add`; nothing is added. Counts go on in 64 bits.
        MemoryError
            If the device has no room. Chunks before this one stay added; `size` says how many elements.

        Notes
        -----
        NumPy arrays that the map uses only at ``[i]`` are split into chunks along their first axis; others and scalars
        go whole with each chunk. Device arrays are not split. When `add` returns, NumPy arrays may be changed.
        If anything is raised meanwhile, Ctrl-C included, finished chunks stay added and the device is waited for. If
        that was while a chunk was written to the bins, all later calls raise RuntimeError: a part of it may be there.
        """
        self._go_to(args)
        try:
            self.feed(self.piece(args, size))
        except NotDirectError:
            self._came_from = self._like
            raise
        return self  # type: ignore[return-value]

    def extend(self, iterable: Iterable[Any], total: int | None = None, progress: bool | Progress = False) -> Self:
        """Add chunk after chunk, and return the accumulator.

        Parameters
        ----------
        iterable : iterable of tuple, or of array
            What `add` takes: its arguments, or its only one. If it raises, what came before stays added.
        total : int, optional
            How many elements there will be, for `progress`.
        progress : bool or callable
            True shows a bar on the standard error. A callable gets the number of elements after each piece, and
            `total`.
        """
        before = self._size
        with reported(iterable, total, progress) as (chunks, report):
            for chunk in chunks:
                self.add(*chunk)
                report(self._size - before)
        return self

    @overload
    def result(self: Accumulator[A, One]) -> A: ...  # type: ignore[overload-overlap]
    @overload
    def result(self: Accumulator[A, Named]) -> dict[str, A]: ...
    @overload
    def result(self: Accumulator[A, Ordered]) -> tuple[A, ...]: ...
    @takes_cuda_as("_like")
    def result(self) -> Any:
        """Return the histogram of all that has been added; more can be added then.

        Returns
        -------
        array of shape (num_bins,)
            Of the operator's dtype, and PyOpenCL's, or of a library of CUDA, if what was added last was. With several
            operators a tuple, or a dict if they are a mapping.
        """
        self._check_device()
        if self._added is not None or (self._like is not None and cuda_device_of(self.queue) is None):
            # Merge on the host, then copy the result to where the last chunk came from.
            results = self.partial().results(self._finishes_on)
            place = self.queue if self._like is None else self._like.stands_for
            placed = self._on_device or self._like is not None
            return self._outputs.collect([to_device(place, result) if placed else result for result in results])
        results = self._held.results(self._on_device)
        for label, form, result in zip(self._outputs.labels, self._forms, results, strict=True):
            # Fixed-point results are checked where this needs no extra wait for the device.
            if not self._on_device and form.largest is not None:
                check_range(label, form, result)
        return self._outputs.collect(results)

    def partial(self) -> Partial[Made]:
        """Return the accumulators of all that has been added and merged, and of `dest`.

        They are on the host, and can be pickled, saved, and merged anywhere.
        """
        self._check_device()
        # Without start= or numbered elements every stream counts from 0: claim no ranges, which could overlap.
        is_placed = self._has_positions or self._is_numbered or not self._count
        ranges = joined(self._ranges) if is_placed else None
        # Upper bound of the values of one bin: all pairs that the elements may emit.
        values = self._count * max(self._emits)
        arrays = self._held.portable(self._portable.operators)
        own = Partial(self._portable, arrays, self._count, values, ranges, self._sources())
        return own if self._added is None else merge([own, self._added])

    def merge(self, other: Accumulator[Any, Made] | Partial[Made], *, allow_repeat: bool = False) -> Self:
        """Add what another accumulator has been given, on whatever device, and return this one.

        `size` counts its elements, too. The next element has the position behind them, unless `start` was given and
        says otherwise: an accumulator that begins with `merge` goes on with the stream of a saved partial result.

        Parameters
        ----------
        other : Accumulator or Partial
            Of the same operators and `num_bins`, and left as it is. What `dest` it was made with counts as well.
        allow_repeat : bool
            Whether elements that have been merged before may be merged again, and count as often.

        Raises
        ------
        TypeError, ValueError
            If it is of other operators, another number of bins, or has elements of a stream or call, or of positions,
            that are here already; nothing is added then.
        OverflowError
            If a bin may have more values then than its operator can take.
        """
        check_booleans(allow_repeat=allow_repeat)
        self._check_device()
        part = other.partial() if isinstance(other, Accumulator) else other
        if not isinstance(part, Partial):
            raise TypeError(f"other: expected an Accumulator or a clhist.Partial, got {type(other).__name__}")
        part.check(self._portable, self._shapes, "other")
        merged = combined(self.partial(), part, "other", allow_repeat=allow_repeat)
        position, ranges = self._position, merged.positions or ()
        # Continue behind the merged elements: after the only range, the range at this position, or by their number.
        if self._size == 0 and not self._has_positions and len(ranges) == 1:
            position = ranges[0][1]
        elif ranges:
            position = next((high for low, high in ranges if low <= position < high), position)
        elif not self._has_positions:
            position += part.size
        has_gaps = not self._has_positions and bool(ranges) and (len(ranges) > 1 or ranges[0][1] != position)
        self._hold(merged, self._size + part.size, position, has_gaps)
        return self

    def take(self) -> Partial[Made]:
        """Return `partial`, and hold nothing any more; `size` stays as it is."""
        part = self.partial()
        self._hold(None, self._size, self._position, self._has_gaps)
        self._is_numbered = False
        return part

    def seek(self, position: int | None) -> None:
        """Set the position of the next chunk in the stream, or None; the accumulator must be empty."""
        self._position = position or 0
        self._has_positions = position is not None
        self._has_gaps = False  # whether the position of the next element is unknown, after a merge with gaps

    def piece(self, args: Sequence[Any], size: int | None = None, position: int | None = None) -> Piece:
        """Return the checked arguments of `add` for elements from `position` on. Another thread may `feed`."""
        check_process()
        self._held.check()
        position = self._position if position is None else position
        template = self._templates.get(key := signature_of_arguments((*args, size)))
        if template is not None:
            piece = template.with_arrays(args, position)
        else:
            piece = self._checked(args, size, position)
            self._templates.put(key, piece.template(args))
        # The position of a pair is the index of its value, of the operator's type.
        if piece.first is not None and self._engine is None:
            last, index = position + piece.size - 1, self._forms[0].dtype["index"]
            if last > np.iinfo(index).max:
                raise ValueError(f"indices: the position {last} does not fit {index} of the index")
        return piece

    def _checked(self, args: Sequence[Any], size: int | None, position: int) -> Piece:
        if self._engine is None:
            if len(args) != 2 or size is not None:
                raise TypeError(f"add: expected indices and values, got {len(args)} arguments and size={size}")
            operators = self._forms[0], self._outputs.operators[0]
            pairs = streams.checked_pairs(*operators, self._counts, self.queue, *args)
            return self._chunks.check(*pairs, position)
        values, first, arguments = list(args), self._first, self._engine.arguments
        if first is not None:
            if len(args) != len(arguments) - 1:
                names = ", ".join(a.name for n, a in enumerate(arguments) if n != first)
                raise TypeError(f"add: expected {len(arguments) - 1} arguments ({names}), got {len(args)}")
            values.insert(first, 0)
        return self._chunks.check(self._engine, with_arrays(arguments, values), size, first, position)

    def feed(self, piece: Piece) -> None:
        """Add a piece from `piece`, here or in an accumulator of the same arguments on another device."""
        engine = piece.engine.on(self.queue.context).with_operators(self._forms)
        merged = 0 if self._added is None else self._added.values
        # All checks precede the first command that changes bins, so that a refused piece adds nothing.
        streams.check_numbers(self._forms, self._portable.operators, self._emits, piece, self._count, merged)
        piece.check_position()
        if self._updates.is_open:
            self._updates.check()
        self._check_place(piece)
        self._position = piece.position
        self._chunks.feed(piece, lambda chunk, length: self._continue(engine, chunk, length))
        self._on_device = piece.on_device

    def _sources(self) -> frozenset[str]:
        """Return the identity of the accumulated elements, if there are any."""
        if not self._count and not self._has_dest:
            return frozenset()
        self._source = self._source or uuid.uuid4().hex
        return frozenset((self._source,))

    def _check_place(self, piece: Piece) -> None:
        """Raise ValueError if the positions of a piece are unknown, or overlap those of merged elements."""
        is_numbered = self._is_numbered or piece.first is not None
        if self._added is None or not piece.size or not (is_numbered or self._has_positions):
            self._is_numbered = is_numbered
            return
        ranges = self._added.positions or ()
        if self._has_gaps:
            shown = ", ".join(f"{low} to {high - 1}" for low, high in ranges)
            raise ValueError(
                f"add: expected start= of the accumulator, since elements at positions {shown} were merged and the "
                "position of the next one is unknown; got none"
            )
        begin, end = piece.position, piece.position + piece.size
        if clash := next(((low, high) for low, high in ranges if low < end and begin < high), None):
            both = max(begin, clash[0]), min(end, clash[1]) - 1
            raise ValueError(
                f"add: expected other elements, got those at positions {both[0]} to {both[1]} again; start= of the "
                "accumulator says where a part begins"
            )
        self._is_numbered = is_numbered

    def _go_to(self, args: Sequence[Any]) -> None:
        """Move the bins to where the chunk is: memory of its CUDA library, otherwise the accumulator's own queue."""
        first, like = first_of_cuda(args), self._came_from
        array, queue, accumulators, chunks = self._held.arrays[0], self._own_queue, self._held, self._chunks
        if first is not None:
            # Keep the bins if they are in memory of this chunk's CUDA library already.
            is_there = isinstance(array, CudaArray) and array.memory.is_like(first.memory)
            like, queue = array if is_there else streams.library_of(first), first.stands_for
        if queue is not self.queue or not (first is None or like is array):
            # Bins move through the host: the last chunk on a CUDA stream must be finished.
            self._check_device()
            accumulators, chunks = accumulators.on(queue), Chunks(queue, self._chunk_bytes)
        self._held, self.queue, self._chunks, self._like, self._came_from = accumulators, queue, chunks, like, None

    def _check_device(self) -> None:
        """Raise in a forked process and if the device was lost; wait for the last chunk on a CUDA stream."""
        check_process()
        self._held.check()
        self._updates.check()

    def _continue(self, engine: Engine, args: list[Any], size: int) -> list[cl.Event]:
        """Enqueue the histogram of one chunk, combined with the accumulators."""
        outputs = self._outputs
        # Before a bin could get more values than its accumulator takes, move all bins to a host partial and start anew.
        room = (form.most_values for form in self._forms if form.most_values is not None)
        if (self._count + size) * max(self._emits) > min(room, default=np.inf):
            self._hold(self.partial(), self._size, self._position, self._has_gaps)
        more: Any = {"race_factor": self._race_factor, "choices": self._choices, "memory_budget": self._budget}

        def enqueue(dests: list[Array], outs: list[Array], begun: Callable[[], None] | None) -> cl.Event:
            shapes, dest, out = map(outputs.like, (list(self._shapes), dests, outs))
            call = Call(shapes, size, dest, out, self.queue, partial=("dest", "out"), begun=begun, **more)
            return run(engine, args, call).event

        event = self._held.join(enqueue, self._updates)
        # A chunk that follows the last one extends its range, so that a long stream has few ranges.
        follows = self._ranges and self._ranges[-1][1] == self._position
        self._ranges.append((self._ranges.pop()[0] if follows else self._position, self._position + size))
        self._position += size
        self._size, self._count = self._size + size, self._count + size
        self._updates.is_open = False
        return [event]

    def _hold(self, added: Partial | None, size: int, position: int, has_gaps: bool) -> None:
        """Reset the accumulators on the device; keep `added` beside them, and continue at `position`."""
        self._held.begin(self._updates)
        self._added, self._count, self._ranges = added, 0, []
        self._source, self._has_dest = "", False
        self._size, self._position, self._has_gaps = size, position, has_gaps
        self._updates.end()
