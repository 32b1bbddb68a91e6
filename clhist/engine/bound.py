"""A call that repeats the one before: the same arrays of PyOpenCL, unchanged, and the same numbers. It needs no checks.

Nothing of the caller's is kept alive: arrays are known by weak references.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyopencl as cl
import pyopencl.array as cl_array

from clhist.opencl.arrays import Array


@dataclass(frozen=True, slots=True)
class _Seen:
    """An array as it was; its type and shape are the same objects as long as nobody replaced them."""

    reference: weakref.ref[Any]
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Any

    def is_still(self, value: Any) -> bool:
        if self.reference() is not value:
            return False
        array: Array = value
        is_same = array.shape is self.shape and array.strides is self.strides and array.dtype is self.dtype
        return is_same and bool(array.offset == self.offset)


@dataclass(slots=True)
class Repeat:
    """What was given to a call, and what came of the checks.

    Attributes
    ----------
    numbers : tuple
        Whatever decides on the plan, besides the arrays.
    given : tuple
        The arguments, `dest` and `out`: arrays as they were, other values as they are.
    values : tuple
        The scalar arguments as the kernel takes them, None for arrays.
    queue : pyopencl.CommandQueue
        What it ran on.
    prepared : object
        The plan, built.
    like : array or None
        What the result was like, without its memory.
    """

    numbers: tuple[Any, ...]
    given: tuple[Any, ...]
    values: tuple[Any, ...]
    queue: cl.CommandQueue
    prepared: Any
    like: Array | None = None

    @classmethod
    def of(
        cls,
        numbers: tuple[Any, ...],
        given: Sequence[Any],
        values: Sequence[Any],
        queue: cl.CommandQueue,
        prepared: Any,
    ) -> Repeat:
        """Return it for a call whose arrays are all PyOpenCL's."""
        seen = tuple(_seen(value) if isinstance(value, cl_array.Array) else value for value in given)
        kept = tuple(None if isinstance(value, cl_array.Array) else value for value in values)
        return cls(numbers, seen, kept, queue, prepared)

    def fits(self, numbers: tuple[Any, ...], given: Sequence[Any]) -> bool:
        """Whether a call with these is the same."""
        if numbers != self.numbers or len(given) != len(self.given):
            return False
        for known, value in zip(self.given, given, strict=True):
            if isinstance(known, _Seen):
                if not known.is_still(value):
                    return False
            elif known is not value and (type(known) is not type(value) or known != value):
                return False
        return True

    def values_of(self, args: Sequence[Any]) -> list[Array]:
        """Return the arguments as the kernel takes them."""
        return [value if known is None else known for known, value in zip(self.values, args, strict=True)]


def _seen(array: Array) -> _Seen:
    return _Seen(weakref.ref(array), array.offset, array.shape, array.strides, array.dtype)
