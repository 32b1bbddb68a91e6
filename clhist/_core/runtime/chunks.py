"""Pieces of a stream on their way to the device: NumPy arrays are split into chunks, PyOpenCL's where asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyopencl as cl

from clhist._core.kernels.maps import Argument
from clhist._core.opencl import lost
from clhist._core.opencl.arrays import check_array, check_context, check_unmasked, common_kind, is_array
from clhist._core.opencl.new_arrays import shares_memory
from clhist._core.opencl.staging import InPlace, Staging
from clhist.operators.c_types import scalar

if TYPE_CHECKING:
    from clhist._core.runtime.engine import Engine

_MULTIPLE = 128  # elements: chunks begin as their arrays do at an address for wide loads


@dataclass(frozen=True)
class Piece:
    """The arguments of a map for one piece of a stream, checked.

    Attributes
    ----------
    engine : Engine
        Of the map.
    values : dict of str to object
        The arguments by name.
    size : int
        N.
    on_device : bool
        Whether the arrays are PyOpenCL's.
    step : int
        How many elements a chunk has at most.
    first : Argument or None
        The scalar argument that gets the position in the stream of a chunk's first element.
    position : int
        That of the piece's first element.
    """

    engine: Engine
    values: dict[str, Any]
    size: int
    on_device: bool
    step: int
    first: Argument | None
    position: int

    @property
    def split(self) -> tuple[Argument, ...]:
        """The arrays that are split into chunks."""
        return () if self.on_device and self.step >= self.size else self.engine.source.elementwise

    def of(self, engine: Engine) -> Piece:
        """Return the same for an engine of the same map."""
        return self if engine is self.engine else replace(self, engine=engine)

    def parts(self) -> Iterator[Piece]:
        """Yield it in pieces of `step` elements; what has no arrays to split is one."""
        if not self.split or self.size <= self.step:
            yield self
            return
        for begin, end, arrays in self.slices():
            values = self.values | {argument.name: array for argument, array in arrays.items()}
            yield replace(self, values=values, size=end - begin, position=self.position + begin)

    def slices(self) -> Iterator[tuple[int, int, dict[Argument, Any]]]:
        """Yield where each chunk begins and ends, and its part of the arrays that are split."""
        # Flattening copies nothing; a slice of an array with gaps copies that slice alone.
        flat = {argument: _flat(self.values[argument.name]) for argument in self.split}
        for begin in range(0, self.size, self.step):
            end = min(begin + self.step, self.size)
            yield begin, end, {argument: array[begin:end] for argument, array in flat.items()}

    def check_position(self) -> None:
        """Raise ValueError if the position of the last element does not fit its argument."""
        if self.first is not None:
            scalar(self.first, self.position + max(self.size, 1) - 1)


class KnownPiece(NamedTuple):
    """A validated piece without its arrays: pieces with the same signature skip validation.

    Attributes
    ----------
    piece : Piece
        Without arrays.
    names : tuple of str
        The map's arguments that are arrays, which are those of the addition, in order.
    last : int or None
        The largest position that an element may have; None if any.
    """

    piece: Piece
    names: tuple[str, ...]
    last: int | None

    @classmethod
    def of(cls, args: Sequence[Any], piece: Piece, last: int | None) -> KnownPiece | None:
        """Return the template of `piece`, or None if an array of `args` was copied or converted."""
        # By identity: a copied or converted array would have to be made anew for each piece.
        named = [(name, value) for name, value in piece.values.items() if is_array(value)]
        arrays = [value for value in args if is_array(value)]
        names = {id(value): name for name, value in named}
        if len(names) != len(named) or [*names] != [id(array) for array in arrays]:
            return None
        # A template lives in a cache, so it refers to no array of the caller.
        without = replace(piece, values=piece.values | dict.fromkeys(names.values()))
        return cls(without, tuple(names.values()), last)

    def again(self, args: Sequence[Any], position: int) -> Piece | None:
        """Return the piece for other arguments of the same signature; None if its positions are too large."""
        piece = self.piece
        if self.last is not None and position + piece.size - 1 > self.last:
            return None
        values = piece.values | dict(zip(self.names, filter(is_array, args), strict=True))
        return Piece(piece.engine, values, piece.size, piece.on_device, piece.step, piece.first, position)


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

    def check(
        self, engine: Engine, args: Sequence[Any], size: int | None, first: Argument | None, position: int
    ) -> Piece:
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
        named = {argument.name: value for argument, value in zip(engine.arguments, values, strict=True)}
        step = self._step(engine, () if on_device else elementwise, size, first)
        return Piece(engine, named, size, on_device, step, first, position)

    def feed(self, piece: Piece, compute: Callable[[Mapping[str, Any], int], list[cl.Event]]) -> None:
        """Call `compute` with the arguments of each chunk, on the device, and its number of elements.

        NumPy arrays may be changed when this returns; if anything is raised, the queue is waited for.
        """
        # Arrays that are not split go to the device once; chunks of the others are staged, or used in place on a CPU.
        whole, chunks = InPlace(self._queue), self.staging or InPlace(self._queue)
        values, split, position = piece.values, piece.split, piece.position
        events: list[cl.Event] = []
        # Whatever is raised, the queue is waited for: a kernel may still use the memory of NumPy arrays.
        with lost.settled(self._queue, BaseException):
            others = [
                argument
                for argument in piece.engine.arguments
                if argument.is_array and argument not in split and not piece.on_device
            ]
            arguments = {**values, **whole.take({a: values[a.name] for a in others})}
            for begin, end, parts in piece.slices():
                arguments |= {a.name: part for a, part in parts.items()} if piece.on_device else chunks.take(parts)
                if piece.first is not None:
                    arguments[piece.first.name] = scalar(piece.first, position + begin)
                events = compute(arguments, end - begin)
                chunks.done(events)
            whole.done(events)

    def _step(self, engine: Engine, split: Sequence[Argument], size: int, first: Argument | None) -> int:
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
