"""Pieces of a stream on their way to the device: NumPy arrays are split into chunks, PyOpenCL's where asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyopencl as cl

from clhist._core.kernels.maps import Argument
from clhist._core.opencl import lost
from clhist._core.opencl.arrays import check_array, check_context, check_unmasked, common_kind, is_array
from clhist._core.opencl.new_arrays import shares_memory
from clhist._core.runtime.staging import InPlace, Staging
from clhist.operators.c_types import scalar

if TYPE_CHECKING:
    from clhist._core.runtime.engine import Engine

_MULTIPLE = 128  # elements: chunks begin as their arrays do at an address for wide loads


class Piece(NamedTuple):
    """The arguments of a map for one piece of a stream, checked.

    Attributes
    ----------
    engine : Engine
        Of the map.
    args : list
        The arguments; a template has None for each array.
    size : int
        N.
    on_device : bool
        Whether the arrays are PyOpenCL's.
    step : int
        How many elements a chunk has at most.
    first : int or None
        The index in `args` of the scalar that gets the position in the stream of a chunk's first element.
    position : int
        The position of the piece's first element.
    """

    engine: Engine
    args: list[Any]
    size: int
    on_device: bool
    step: int
    first: int | None
    position: int

    @property
    def split(self) -> tuple[int, ...]:
        """The indices in `args` of the arrays that are split into chunks."""
        return () if self.on_device and self.step >= self.size else self.engine.source.sized

    def parts(self) -> Iterator[Piece]:
        """Yield it in pieces of at most `step` elements; nothing if it has none."""
        # Flattening copies nothing; a slice of an array with gaps copies that slice alone.
        arrays = [(n, _flat(self.args[n])) for n in self.split]
        for begin in range(0, self.size, self.step):
            end, args = min(begin + self.step, self.size), [*self.args]
            for n, array in arrays:
                args[n] = array[begin:end]
            rest = self.on_device, self.step, self.first, self.position + begin
            yield Piece(self.engine, args, end - begin, *rest)

    def check_position(self) -> None:
        """Raise ValueError if the position of the last element does not fit its argument."""
        if self.first is not None:
            scalar(self.engine.arguments[self.first], self.position + max(self.size, 1) - 1)

    def template(self, args: Sequence[Any]) -> Piece | None:
        """Return it without arrays, for `with_arrays`; None if an array of `args` was copied or converted."""
        # A template is cached, so it refers to no array of the caller.
        slots = [None if is_array(value) else value for value in self.args]
        arrays = [id(value) for value in self.args if is_array(value)]
        return self._replace(args=slots) if arrays == [id(value) for value in args if is_array(value)] else None

    def with_arrays(self, args: Sequence[Any], position: int) -> Piece:
        """Return the piece of a template for `args`, which have the signature of those that it was made of."""
        arrays = filter(is_array, args)
        filled = [next(arrays) if value is None else value for value in self.args]
        return Piece(self.engine, filled, self.size, self.on_device, self.step, self.first, position)


class Chunks:
    """Takes pieces to the device of a queue.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        Where chunks are computed.
    most_bytes : int
        Of one argument's elements in a chunk.
    """

    def __init__(self, queue: cl.CommandQueue, most_bytes: int) -> None:
        self._queue, self._most_bytes = queue, most_bytes
        self.staging = None if shares_memory(queue.device) else Staging(queue, most_bytes)

    def check(self, engine: Engine, args: Sequence[Any], size: int | None, first: int | None, position: int) -> Piece:
        """Return a piece, without a copy of arrays that are going to be split.

        Raises
        ------
        TypeError, ValueError
            If an argument is wrong, or would have to be split and cannot; it is named.
        """
        # Everything is checked before the first chunk, so that a wrong argument adds no part of a piece.
        engine.check_number_of_arguments(args)
        elementwise = engine.source.elementwise
        values = [
            _checked(argument, value, elementwise) for argument, value in zip(engine.arguments, args, strict=True)
        ]
        arrays = [(a.name, value) for a, value in zip(engine.arguments, values, strict=True) if a.is_array]
        on_device = common_kind(arrays)
        check_context(arrays, self._queue.context)
        size = engine.size_of(size, values)
        step = self._step(engine, () if on_device else elementwise, size, first)
        return Piece(engine, values, size, on_device, step, first, position)

    def feed(self, piece: Piece, compute: Callable[[list[Any], int], list[cl.Event]]) -> None:
        """Call `compute` with the arguments of each chunk, on the device, and its number of elements.

        NumPy arrays may be changed when this returns; if anything is raised, the queue is waited for.
        """
        # Arrays that are not split go to the device once; chunks of the others are staged, or used in place on a CPU.
        whole, chunks = InPlace(self._queue), self.staging or InPlace(self._queue)
        arguments, split, events = piece.engine.arguments, piece.split, list[cl.Event]()
        # Whatever is raised, the queue is waited for: a kernel may still use the memory of NumPy arrays.
        with lost.settled(self._queue, BaseException):
            if not piece.on_device:
                piece = piece._replace(args=[*piece.args])
                others = [n for n, argument in enumerate(arguments) if argument.is_array and n not in split]
                whole.take(arguments, piece.args, others)
            for part in piece.parts():
                if not piece.on_device:
                    chunks.take(arguments, part.args, split)
                if part.first is not None:
                    part.args[part.first] = scalar(arguments[part.first], part.position)
                events = compute(part.args, part.size)
                chunks.done(events)
            whole.done(events)

    def _step(self, engine: Engine, split: Sequence[Argument], size: int, first: int | None) -> int:
        """Return how many elements a chunk has."""
        if not split or not size:
            return max(1, size)
        widest = max(split, key=lambda argument: argument.dtype.itemsize)
        # The widest array sets the chunk, so that no argument takes more than `most_bytes`.
        step = max(1, self._most_bytes // widest.dtype.itemsize)
        if step < size and first is None and engine.uses_position:
            raise ValueError(
                f"{widest.name}: expected at most {self._most_bytes} bytes (chunk_bytes), got "
                f"{size * widest.dtype.itemsize}, which cannot be split since the map uses i by itself; let "
                "first_index name a scalar argument and use its sum with i, or choose another chunk_bytes"
            )
        return step if step < _MULTIPLE else step // _MULTIPLE * _MULTIPLE


def _checked(argument: Argument, value: Any, elementwise: Sequence[Argument]) -> Any:
    if not argument.is_array:
        return scalar(argument, value)
    if isinstance(value, np.ndarray) and argument.is_const and argument in elementwise:
        check_unmasked(argument.name, value)
        # An empty slice has the dtype to check; the conversion is left to each chunk.
        check_array(argument.name, _flat(value)[:0], argument.dtype, written=False)
        return value  # and no copy of all of it
    return check_array(argument.name, value, argument.dtype, written=not argument.is_const)


def _flat(array: np.ndarray) -> Any:
    """Return what slices of `array`, in C order, can be taken of without a copy of all of it."""
    return array.reshape(-1) if array.ndim < 2 or array.flags.c_contiguous else array.flat
