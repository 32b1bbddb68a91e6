"""`dest` and `out` of the outputs of a call, as one array or one for each field."""

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
    """Return what each output combines with and writes, arrays by number, and the arrays: None for a new one.

    An array that is there twice has one number.
    """
    arrays: list[Array | None] = []
    found = []
    for each in targets:
        dest = None if each.dest is None else tuple([index_in(array, arrays) for array in each.dest])
        given = each.out or (None,) * (len(each.fields) or 1)
        out = tuple([index_in(array, arrays) for array in given])
        found.append((dest, out, each.out is None, each.fields, each.dest_is_partial, each.out_is_partial))
    return tuple(found), arrays


def index_in(array: Array | None, arrays: list[Any]) -> int:
    """Return the number of an array among `arrays`, where it is afterwards; one that is None is new each time."""
    if array is not None:
        for n, each in enumerate(arrays):
            if each is array:
                return n
    arrays.append(array)
    return len(arrays) - 1


def forms_of(targets: Sequence[ResultArrays], first: int) -> ResultForms:
    """Return what a call combines with and writes without its arrays; the slots are numbered from `first` on."""
    slots: list[ArraySlot] = []
    forms, results = [], []

    def slot(n: int, name: str, *, read: bool, new: Any = None) -> str:
        if n < len(slots):
            before = slots[n]
            slots[n] = ArraySlot(before.name, before.is_read or read, before.is_written or not read)
        else:
            slots.append(ArraySlot(f"clhist_{name}", read, not read, new))  # no argument of a map has such a name
        return slots[n].name

    numbers, _ = numbered(targets)
    for k, (each, (dests, outs, *_)) in enumerate(zip(targets, numbers, strict=True)):  # names may be the same
        suffixes = [f"{k}.{field}" for field in each.fields] or [str(k)]
        dest = None
        if dests is not None:
            dest = tuple(slot(n, f"dest{suffix}", read=True) for n, suffix in zip(dests, suffixes, strict=True))
        out = tuple(
            slot(n, f"out{suffix}", read=False, new=(each.shape, dtype) if each.out is None else None)
            for n, suffix, dtype in zip(outs, suffixes, each.dtypes(partial=each.out_is_partial), strict=True)
        )
        fields = tuple((name, c_name(each.operator.dtype[name])) for name in each.fields)
        forms.append(Result(dest, out, fields, each.dest_is_partial, each.out_is_partial))
        results.append(ResultSlots(tuple(first + n for n in outs), bool(fields), each.name, each.operator))
    is_partial = any(each.out_is_partial for each in targets)
    return ResultForms(tuple(slots), tuple(forms), tuple(results), is_partial)


def check_disjoint(targets: Sequence[ResultArrays]) -> None:
    """Raise ValueError if the results of two outputs share memory."""
    seen: list[tuple[str, Array]] = []
    for each in targets:
        own = [(f"out{each.name}", array) for array in each.out or ()]
        for name, array in own:
            for other, before in seen:
                if overlap(array, before):
                    raise ValueError(f"{name}: expected an array of its own, got one that overlaps {other}")
        seen += own
