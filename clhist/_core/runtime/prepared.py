"""A prepared call: every launch as a plain value, without device, queue or arrays.

`runtime.prepare` makes it; a launcher runs it on its own memory, as `runtime.launcher` does by OpenCL.
Commands run one after the other: each begins when the one before it has ended. The first waits for the events of the
arrays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from clhist._core.kernel_code import KernelCode
from clhist._core.model.plan import Plan
from clhist.operators.operator import Operator

MEMORY, OFFSET, VALUE = "memory", "offset", "value"


class Slot(NamedTuple):
    """A kernel argument that each call fills in.

    Attributes
    ----------
    name : str
        The name of an `ArraySlot`, or of a scalar.
    what : {"memory", "offset", "value"}
        The buffer of an array, the byte offset (uint64) of its first element, or a scalar.
    """

    name: str
    what: str


class New(NamedTuple):
    """Requests a new result array whose shape differs from that of its slot."""

    shape: tuple[int, ...]


class Scratch(NamedTuple):
    """A kernel argument in scratch memory: the index of a block of its part."""

    number: int


# Compared by identity: equality of arrays has no single truth value, and each table is uploaded once.
@dataclass(frozen=True, eq=False)
class Table:
    """A kernel argument that is the same read-only array in all calls."""

    array: np.ndarray


Argument = Slot | Scratch | Table | np.generic | int | float | bool | None


class Launch(NamedTuple):
    """One launch of a kernel.

    Attributes
    ----------
    stage : {"clear", "sweep", "combine"}
        Copies are initialised, filled, combined. After "combine" the results are complete.
    kernel : KernelCode
        Its program, name and parameters. Local memory is declared in the program, never passed.
    global_size, local_size : tuple of int
        Work-items in all, and of one work-group.
    arguments : tuple
        In the order of the parameters: a `Slot`, `Scratch` or `Table`, a number, or None for no memory.
    """

    stage: str
    kernel: KernelCode
    global_size: tuple[int, ...]
    local_size: tuple[int, ...]
    arguments: tuple[Argument, ...]


class SortPairs(NamedTuple):
    """A stable sort of (bin, position) pairs by bin, and a segmented scan that stores the total of each bin.

    Attributes
    ----------
    stage : str
        As of `Launch`.
    operator : Operator
        Combines the accumulators.
    pairs : int
        The number of pairs.
    no_bin : int
        The key of pairs without a bin; greater than all bins.
    keys, positions : Scratch
        The bin and the position of each pair, uint32.
    accumulators : Scratch
        The accumulator of each position.
    cells : Scratch
        Receives the totals.
    places : tuple of int
        Byte offsets in `cells`, one for each part of the operator.
    checked_pairs : int or None
        Pairs that an element may emit, if the call waits for the sort to check that none emitted more.
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
    checked_pairs: int | None = None


Command = Launch | SortPairs


class Block(NamedTuple):
    """Uninitialised scratch memory: its bytes, and its purpose in the words of an error."""

    size: int
    purpose: str


class Part(NamedTuple):
    """The commands of one sweep over the input; its scratch memory is free after the last of them.

    Attributes
    ----------
    plan : Plan or None
        The plan; None if there is no sweep.
    scratch : tuple of Block
        Memory that the commands need.
    commands : tuple of Launch or SortPairs
        In order.
    least_bytes : int
        Scratch memory below which no other plan can replace this part.
    """

    plan: Plan | None
    scratch: tuple[Block, ...]
    commands: tuple[Command, ...]
    least_bytes: int = 0


class ArraySlot(NamedTuple):
    """The place of one array in a prepared call.

    Attributes
    ----------
    name : str
        Its name in errors.
    is_read, is_written : bool
        Whether its content before the call matters, and whether the call changes it.
    new : tuple of (shape, dtype), or None
        Shape and dtype of a result that the launcher allocates.
    """

    name: str
    is_read: bool
    is_written: bool
    new: tuple[tuple[int, ...], np.dtype] | None = None


class ResultSlots(NamedTuple):
    """One result of a call, as it is returned.

    Attributes
    ----------
    slots : tuple of int
        Indices of its arrays: a single one, or one for each field.
    has_fields : bool
        Whether the result is a tuple of arrays.
    label : str
        Suffix of the argument's name in errors.
    operator : Operator
        Of the output.
    """

    slots: tuple[int, ...]
    has_fields: bool
    label: str
    operator: Operator


@dataclass(frozen=True)
class Prepared:
    """All launches of a call, with slots for its arrays and scalars.

    Attributes
    ----------
    arrays : tuple of ArraySlot
        In the order of a call: the map's arrays, `dest` and `out`, new results.
    scalars : tuple of str
        The scalars of a call, in order.
    parts : tuple of Part
        One for each sweep over the input, in order.
    results : tuple of ResultSlots
        One for each output.
    is_checked : bool
        Whether results in NumPy arrays are checked against the range of their operators.
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
        # Launches refer to arrays and scalars by name, so a name that occurs twice would be ambiguous.
        names = [*(slot.name for slot in self.arrays), *self.scalars]
        if len(set(names)) < len(names):
            raise ValueError(f"arrays: expected slots with names of their own, got {names}")

    @property
    def is_of_one(self) -> bool:
        """Whether there is one result and one part, so that refused memory means that nothing was enqueued."""
        return len(self.parts) == len(self.results) == 1

    @property
    def commands(self) -> Iterator[Command]:
        """All commands, in order."""
        return (command for part in self.parts for command in part.commands)
