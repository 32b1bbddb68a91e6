"""Numbers the arrays of `dest` and `out`, so that a call is prepared without its arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clhist._core.opencl.arrays import Array, overlap
from clhist._core.runtime.prepare import ResultForms
from clhist._core.runtime.prepared import ArraySlot, ResultSlots
from clhist._core.runtime.result_arrays import ResultArrays
from clhist._core.runtime.stages import Result
from clhist.operators.c_types import c_name

Numbers = tuple[tuple[tuple[int, ...] | None, tuple[int, ...], bool, tuple[str, ...], bool, bool], ...]


def numbered(targets: Sequence[ResultArrays]) -> tuple[Numbers, list[Array | None]]:
    """Return (dest, out, ...) of each output with indices in place of arrays, and the list of arrays.

    An array that occurs twice has one index. None in the list stands for a new array.
    """
    arrays: list[Array | None] = []
    numbers = []
    for target in targets:
        dest = None if target.dest is None else tuple([index_in(array, arrays) for array in target.dest])
        # A result without an array in `out` is new, one for each field.
        outs = target.out or (None,) * (len(target.fields) or 1)
        out = tuple([index_in(array, arrays) for array in outs])
        numbers.append((dest, out, target.out is None, target.fields, target.dest_is_partial, target.out_is_partial))
    return tuple(numbers), arrays


def index_in(array: Array | None, arrays: list[Any]) -> int:
    """Return the index of an array in `arrays`, and append it if it is missing; each None is appended."""
    # By identity: equal arrays at different addresses are different slots.
    if array is not None:
        for n, other in enumerate(arrays):
            if other is array:
                return n
    arrays.append(array)
    return len(arrays) - 1


def forms_of(targets: Sequence[ResultArrays], first: int) -> ResultForms:
    """Return `dest` and `out` of all outputs as slots; the call has `first` arrays of the map before them."""
    slots: list[ArraySlot] = []
    forms, results = [], []

    def slot(n: int, name: str, *, read: bool, new: Any = None) -> str:
        if n < len(slots):  # an array that occurred before: it may be both read and written
            before = slots[n]
            slots[n] = ArraySlot(before.name, before.is_read or read, before.is_written or not read)
        else:
            slots.append(
                ArraySlot(f"clhist_{name}", read, not read, new)
            )  # a prefix that arguments of maps must not have
        return slots[n].name

    numbers, _ = numbered(targets)
    # Slots are named by the number of the output: two outputs may have fields with the same name.
    for k, (target, (dests, outs, *_)) in enumerate(zip(targets, numbers, strict=True)):
        suffixes = [f"{k}.{field}" for field in target.fields] or [str(k)]
        dest = None
        if dests is not None:
            dest = tuple(slot(n, f"dest{suffix}", read=True) for n, suffix in zip(dests, suffixes, strict=True))
        out = tuple(
            slot(n, f"out{suffix}", read=False, new=(target.shape, dtype) if target.out is None else None)
            for n, suffix, dtype in zip(outs, suffixes, target.dtypes(partial=target.out_is_partial), strict=True)
        )
        fields = tuple((name, c_name(target.operator.dtype[name])) for name in target.fields)
        forms.append(Result(dest, out, fields, target.dest_is_partial, target.out_is_partial))
        results.append(ResultSlots(tuple(first + n for n in outs), bool(fields), target.name, target.operator))
    is_partial = any(target.out_is_partial for target in targets)
    return ResultForms(tuple(slots), tuple(forms), tuple(results), is_partial)


def check_disjoint(targets: Sequence[ResultArrays]) -> None:
    """Raise ValueError if the results of two outputs share memory."""
    # Each output writes its bins without regard to the others, so any overlap loses results.
    seen: list[tuple[str, Array]] = []
    for target in targets:
        outs = [(f"out{target.name}", array) for array in target.out or ()]
        for name, array in outs:
            for other, before in seen:
                if overlap(array, before):
                    raise ValueError(f"{name}: expected an array of its own, got one that overlaps {other}")
        seen += outs
