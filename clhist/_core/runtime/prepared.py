"""A prepared call: all that it enqueues, as a plain value that no device, queue or array is part of.

`runtime.prepare` makes it; a launcher runs it on its own memory, as `runtime.launcher` does by OpenCL.
Commands run one after the other: each begins when the one before it has ended. Before the first one the launcher waits
for whatever the arrays of the call wait for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from clhist._core.kernels.kernel_code import KernelCode
from clhist._core.model.plan import Plan
from clhist.operators.operator import Operator

MEMORY, OFFSET, VALUE = "memory", "offset", "value"


class Slot(NamedTuple):
    """An argument of a kernel that is another one in each call.

    Attributes
    ----------
    name : str
        Of an `ArraySlot`, or of a scalar.
    what : {"memory", "offset", "value"}
        The memory that an array is in, the bytes (uint64) from its start to the first element, or a scalar.
    """

    name: str
    what: str


class New(NamedTuple):
    """In the place of an array of a call: a new one, of another shape than its slot has."""

    shape: tuple[int, ...]


class Scratch(NamedTuple):
    """An argument of a kernel that is scratch memory: the block of this number of its part."""

    number: int


@dataclass(frozen=True, eq=False)
class Table:
    """An argument of a kernel that is the same read-only array in all calls."""

    array: np.ndarray


Argument = Slot | Scratch | Table | np.generic | int | float | bool | None


class Launch(NamedTuple):
    """One launch of a kernel.

    Attributes
    ----------
    stage : {"clear", "sweep", "combine"}
        What it is part of: copies are initialised, filled, combined. After "combine" the results are complete.
    kernel : KernelCode
        Its program, name and parameters. Local memory is declared in the program: no argument stands for any.
    global_size, local_size : tuple of int
        Work-items of all work-groups, and of one.
    arguments : tuple
        In the order of the parameters: a `Slot`, `Scratch` or `Table`, a number, or None for no memory.
    """

    stage: str
    kernel: KernelCode
    global_size: tuple[int, ...]
    local_size: tuple[int, ...]
    arguments: tuple[Argument, ...]


class SortPairs(NamedTuple):
    """A stable sort of (bin, position) pairs by bin, and a segmented scan that leaves each bin's total in a cell.

    Attributes
    ----------
    stage : str
        As of `Launch`.
    operator : Operator
        Combines the accumulators.
    pairs : int
        How many.
    no_bin : int
        What pairs without a bin have for one; greater than all others.
    keys, positions, accumulators, cells : Scratch
        Of the pairs: bins and positions (uint32), and the accumulators by position; where the totals go.
    places : tuple of int
        Bytes from the start of `cells` to those of each part of the operator.
    """

    stage: str
    operator: Operator
    pairs: int
    no_bin: int
    keys: Scratch
    positions: Scratch
    accumulators: Scratch
    cells: Scratch
    places: tuple[int, ...]


Command = Launch | SortPairs


class Block(NamedTuple):
    """So many bytes of scratch memory, and what an error says that they are for; their content may be anything."""

    size: int
    purpose: str


@dataclass(frozen=True)
class Part:
    """One sweep over the input with what belongs to it; its scratch memory is free again when it has ended.

    Attributes
    ----------
    plan : Plan
        What it carries out.
    scratch : tuple of Block
        Memory that its commands need.
    commands : tuple of Launch or SortPairs
        In order.
    least_bytes : int
        Of scratch memory, with which another part can take its place.
    """

    plan: Plan | None
    scratch: tuple[Block, ...]
    commands: tuple[Command, ...]
    least_bytes: int = 0


class ArraySlot(NamedTuple):
    """An array of a call.

    Attributes
    ----------
    name : str
        As errors call it.
    is_read, is_written : bool
        Whether its content before the call matters, and whether the call changes it.
    new : tuple of (shape, dtype), or None
        Of a result for which the launcher makes an array.
    """

    name: str
    is_read: bool
    is_written: bool
    new: tuple[tuple[int, ...], np.dtype] | None = None


class ResultSlots(NamedTuple):
    """One result of a call.

    Attributes
    ----------
    slots : tuple of int
        The numbers of its arrays: of one, or of one for each field.
    has_fields : bool
        Whether it is a tuple of these.
    label : str
        What errors add to its name.
    operator : Operator
        Of the output.
    """

    slots: tuple[int, ...]
    has_fields: bool
    label: str
    operator: Operator


@dataclass(frozen=True)
class Prepared:
    """All that a call enqueues.

    Attributes
    ----------
    arrays : tuple of ArraySlot
        The arrays of a call, in the order in which it gives them: those of the map, `dest` and `out`, new results.
    scalars : tuple of str
        The scalars of a call, in order.
    parts : tuple of Part
        One for each sweep over the input, in order.
    results : tuple of ResultSlots
        One for each output.
    is_checked : bool
        Whether results in NumPy arrays are checked for values that their operators do not take.
    call : (str, tuple of Plan)
        The operators and plans, for errors.
    """

    arrays: tuple[ArraySlot, ...]
    scalars: tuple[str, ...]
    parts: tuple[Part, ...]
    results: tuple[ResultSlots, ...]
    is_checked: bool = False
    call: tuple[str, tuple[Plan, ...]] = ("", ())

    def __post_init__(self) -> None:
        names = [*(slot.name for slot in self.arrays), *self.scalars]
        if len(set(names)) < len(names):
            raise ValueError(f"arrays: expected slots with names of their own, got {names}")

    @property
    def is_of_one(self) -> bool:
        """Whether it makes one result in one part: where memory for that is refused, nothing of it was enqueued."""
        return len(self.parts) == len(self.results) == 1

    @property
    def commands(self) -> Iterator[Command]:
        """All commands, in order."""
        return (command for part in self.parts for command in part.commands)
