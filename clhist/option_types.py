"""Types of the options of calls, which are public in `clhist.typing`.

Functions show these options in their signatures. The types of their values are in `clhist.typing`, which imports
PyOpenCL; so that is the `__module__` in which they are looked up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyopencl as cl

    from clhist._core.model.problem import CounterBits, Memory, PassOrder
    from clhist._core.model.updates import Name as Update

Allocator: TypeAlias = Callable[[int], Any]
RaceFactorMode: TypeAlias = Literal["sample", "sample once"]


# Pyright finds a field called "update" in a TypedDict's own body only: in an inherited one it sees the method of
# dictionaries. So each public class declares it.
class _Choices(TypedDict, total=False):
    __module__ = "clhist.typing"  # type: ignore[misc]
    memory: Memory | None
    copies: int | None
    passes: int | None
    work_group_size: int | None
    locks: int | None
    pass_order: PassOrder | None
    counter_bits: CounterBits | None


class _Stream(_Choices, total=False):
    __module__ = "clhist.typing"  # type: ignore[misc]
    memory_budget: int | None


class _Call(_Stream, total=False):
    __module__ = "clhist.typing"  # type: ignore[misc]
    allocator: Allocator | None
    wait_for: Sequence[cl.Event] | None
    race_factor: float | RaceFactorMode


class CallOptions(_Call, total=False):
    """Keywords of `clhist.reduce_by_index` besides its own.

    Type checkers know the result without its event only: a second signature would print both, with all options, of
    every wrong call. With ``return_event=True`` write a `typing.cast`, or bind a kernel: `Bound` has both.
    """

    __module__ = "clhist.typing"  # type: ignore[misc]

    update: Update | None
    return_event: Literal[False]
