"""The calls for the chunks of a stream: chunks like one before are enqueued again, without checks and planning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyopencl as cl

from clhist.engine.engine import Engine
from clhist.engine.given import Call
from clhist.engine.replay import Recording, Replay
from clhist.opencl import lost
from clhist.opencl.arrays import Array
from clhist.opencl.memory import OutOfMemoryError

_MOST_KINDS = 8
_LOAD_BYTES = 16


@dataclass(slots=True)
class _Kind:
    """Chunks that are alike: how many there were, and from the second on what repeats it, if anything can."""

    number: int = 0
    replay: Replay | None = None
    called: Any = None  # as `clhist.opencl.lost` shows it


class ChunkCalls:
    """The calls of one stream, whose arguments have been checked; one thread at a time makes them.

    Chunks are alike if they have the same engine, number of elements and alignment. Their arrays, where these begin,
    and scalars such as the position of the first element may differ: these are arguments of the kernels.
    """

    def __init__(self, queue: cl.CommandQueue) -> None:
        self._queue = queue
        self._kinds: dict[tuple[Engine, int | None, bool], _Kind] = {}

    def run(
        self, engine: Engine, args: Sequence[Any], call: Call, held: Sequence[Array], spare: Sequence[Array]
    ) -> cl.Event:
        """Enqueue one, and return the event after which it is complete.

        Parameters
        ----------
        engine : Engine
            Of the map.
        args : sequence
            Of the map: PyOpenCL arrays and NumPy scalars.
        call : Call
            On partial results, with the size.
        held, spare : sequence of pyopencl.array.Array
            `dest` and `out` of each of its outputs.
        """
        kind = self._kind(engine, args, call)
        if kind.replay is not None:
            event = self._again(kind, kind.replay, engine, args, held, spare)
            if event is not None:
                return event
        recording = Recording() if kind.number == 1 else None
        given = engine.check(args, call)
        outcome = engine.enqueue(given, call, engine.prepared(given, call), recording)
        kind.number += 1
        if recording is not None and call.size:
            names = [parameter.name for argument in engine.arguments for parameter in argument.kernel_parameters]
            kind.called = lost.last_call
            kind.replay = recording.replay(self._queue, _memory(held, spare), names)
        return outcome.event

    def _kind(self, engine: Engine, args: Sequence[Any], call: Call) -> _Kind:
        arrays = (value for argument, value in zip(engine.arguments, args, strict=True) if argument.is_array)
        key = engine, call.size, all(array.offset % _LOAD_BYTES == 0 for array in arrays)
        kind = self._kinds.get(key)
        if kind is None:
            if len(self._kinds) >= _MOST_KINDS:
                del self._kinds[next(iter(self._kinds))]
            kind = self._kinds[key] = _Kind()
        return kind

    def _again(
        self,
        kind: _Kind,
        replay: Replay,
        engine: Engine,
        args: Sequence[Any],
        held: Sequence[Array],
        spare: Sequence[Array],
    ) -> cl.Event | None:
        """Enqueue one like those before; return None if there is no scratch memory."""
        arrays, written, memory = [*held, *spare], list(spare), _memory(held, spare)
        for argument, value in zip(engine.arguments, args, strict=True):
            if not argument.is_array:
                memory.append(value)
                continue
            memory += (value.base_data, np.uint64(value.offset))
            arrays.append(value)
            if not argument.is_const:
                written.append(value)
        lost.last_call = kind.called
        try:
            return replay.enqueue(memory, arrays, written, ())
        except OutOfMemoryError:  # the call as a whole makes do with less
            return None


def _memory(held: Sequence[Array], spare: Sequence[Array]) -> list[Any]:
    return [array.base_data for array in (held if held is spare else [*held, *spare])]
