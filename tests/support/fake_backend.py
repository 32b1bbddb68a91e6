"""A back end without a device: it runs prepared calls on memory of the host, by functions in the place of kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from clhist._core.opencl.memory import OutOfMemoryError
from clhist._core.runtime.call import Outcome
from clhist._core.runtime.executable import Executable
from clhist._core.runtime.prepared import MEMORY, Part, Prepared, Scratch, Slot, SortPairs


@dataclass
class BuiltPart:
    """A part of a prepared call, which nothing has to be built for."""

    part: Part


class FakeExecutable(Executable):
    """Runs a prepared call; arrays are pairs of memory and the offset of the first element.

    Parameters
    ----------
    prepared : Prepared
        The call.
    does : dict
        By the names of kernels, what they do with their arguments, by the names of parameters. Others do nothing.
    smaller : callable, optional
        As of `Executable`.
    most : int, optional
        Bytes of scratch memory that a part may have.
    refuses : exception, optional
        What is raised when a part has to be built that replaces another.

    Attributes
    ----------
    launches : list of (stage, kernel, arguments)
        What was launched.
    """

    def __init__(
        self,
        prepared: Prepared,
        does: dict[str, Callable[..., None]] | None = None,
        smaller: Callable[[Part, int], Sequence[Part]] | None = None,
        most: int | None = None,
        refuses: Exception | None = None,
    ) -> None:
        queue: Any = None
        super().__init__(queue, prepared, smaller)
        self.does, self.most, self.refuses = does or {}, most, refuses
        self.launches: list[tuple[str, str, dict[str, Any]]] = []

    def load_all(self, arrays: Sequence[Any]) -> None:
        """Do nothing: there are no kernels."""

    def run(
        self, queue: Any, arrays: Any, scalars: Any, on_device: Any, wait_for: Any = (), allocator: Any = None,
        begun: Any = None,
    ) -> Outcome:  # fmt: skip
        numbers = [*(offset for _, offset in arrays), *scalars]
        call = [memory for memory, _ in arrays], numbers
        for n, part in enumerate(map(BuiltPart, self.prepared.parts)):
            try:
                self._run_part(part, call)
            except OutOfMemoryError as error:
                self._run_smaller(part, call, None, error, n > 0)
        return Outcome(self._collected(arrays), {}, {})

    def _built(self, part: Part, run: Any = None) -> BuiltPart:
        if self.refuses is not None:
            raise self.refuses
        return BuiltPart(part)

    def _run_part(self, part: BuiltPart, run: Any, wait_for: Any = None) -> None:
        memory, numbers = run
        size = sum(block.size for block in part.part.scratch)
        if self.most is not None and size > self.most:
            raise OutOfMemoryError(f"no {size} bytes", size)
        # Scratch memory contains anything at first.
        blocks = [bytearray(b"\xa5" * block.size) for block in part.part.scratch]
        for command in part.part.commands:
            if isinstance(command, SortPairs):
                self.launches.append((command.stage, "sort", {"cells": blocks[command.cells.number]}))
                continue
            arguments = {}
            for parameter, value in zip(command.kernel.parameters, command.arguments, strict=True):
                if isinstance(value, Slot):
                    arguments[parameter.name] = (memory if value.what == MEMORY else numbers)[self._places[value]]
                else:
                    arguments[parameter.name] = blocks[value.number] if isinstance(value, Scratch) else value
            self.launches.append((command.stage, command.kernel.name, arguments))
            self.does.get(command.kernel.name, lambda **_: None)(**arguments)
