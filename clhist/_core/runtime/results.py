"""`dest` and `out` of the outputs of a call, as one array or one for each field."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from clhist._core.opencl.arrays import Array, check_array, overlap
from clhist._core.runtime.prepare import ResultForms
from clhist._core.runtime.prepared import ArraySlot, ResultSlots
from clhist._core.runtime.stages import Result
from clhist.operators.c_types import c_name, shown_dtype
from clhist.operators.operator import Operator


@dataclass
class ResultArrays:
    """`dest` and `out` of one output, checked.

    Attributes
    ----------
    name : str
        What errors add to "dest" and "out".
    operator : Operator
        Of the output.
    shape : tuple of int
        Of the result.
    fields : tuple of str
        If the values' fields have an array each, their names.
    dest, out : tuple of arrays, or None
        One array, or one for each field.
    dest_is_partial, out_is_partial : bool
        Whether these hold accumulators, neither lifted nor finished.
    """

    name: str
    operator: Operator
    shape: tuple[int, ...]
    fields: tuple[str, ...]
    dest: tuple[Array, ...] | None
    out: tuple[Array, ...] | None
    dest_is_partial: bool = False
    out_is_partial: bool = False

    @property
    def named(self) -> list[tuple[str, Array]]:
        """The arrays with their names."""
        found: list[tuple[str, Array]] = []
        if self.dest is not None:
            found += zip(self._names("dest"), self.dest, strict=True)
        if self.out is not None:
            found += zip(self._names("out"), self.out, strict=True)
        return found

    def _names(self, kind: str) -> list[str]:
        return [f"{kind}{self.name}[{field!r}]" for field in self.fields] or [f"{kind}{self.name}"]

    def dtypes(self, *, partial: bool) -> list[Any]:
        """Return the dtype of each array of the result, or of what it is combined with."""
        if self.fields:
            return [self.operator.dtype[field] for field in self.fields]
        return [self.operator.accumulator if partial else self.operator.dtype]

    def check(self) -> None:
        """Raise for an array of another kind, dtype or shape; copy a `dest` that `out` overlaps."""
        if self.out is not None:
            dtypes = self.dtypes(partial=self.out_is_partial)
            expected = zip(self._names("out"), self.out, dtypes, strict=True)
            self.out = tuple(
                check_array(n, array, dtype, written=True, shape=self.shape) for n, array, dtype in expected
            )
            for k, array in enumerate(self.out):
                if any(overlap(array, other) for other in self.out[:k]):
                    raise ValueError(
                        f"out{self.name}: expected arrays that do not overlap, got {self.fields[k]!r} twice"
                    )
        if self.dest is not None:
            if not self.dest_is_partial:
                check_dest(f"dest{self.name}", self.operator)
            dtypes = self.dtypes(partial=self.dest_is_partial)
            found = []
            for k, (n, array, dtype) in enumerate(zip(self._names("dest"), self.dest, dtypes, strict=True)):
                if self.out is None or array is not self.out[k]:
                    array = check_array(n, array, dtype, written=False, shape=self.shape)
                    if self.out is not None and any(overlap(array, other) for other in self.out):
                        array = array.copy()
                found.append(array)
            self.dest = tuple(found)


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


def check_dest(name: str, operator: Operator) -> None:
    """Raise ValueError if accumulators of `operator` cannot hold what `dest` may."""
    if operator.narrows:
        raise ValueError(
            f"{name}: expected none for {operator.name}, whose bins are {shown_dtype(operator.accumulator)} until "
            f"they are read and cannot hold {shown_dtype(operator.dtype)}; clhist.operators.add can"
        )


def target(
    name: str,
    operator: Operator,
    shape: tuple[int, ...],
    dest: Any,
    out: Any,
    *,
    dest_is_partial: bool = False,
    out_is_partial: bool = False,
) -> ResultArrays:
    """Return `dest` and `out` of one output, checked; a tuple of arrays stands for the fields of a structured dtype.

    Raises
    ------
    TypeError, ValueError
        If one of them is wrong; it is named.
    """
    fields: tuple[str, ...] = ()
    if isinstance(dest, tuple) or isinstance(out, tuple):
        fields, shown = operator.dtype.names or (), shown_dtype(operator.dtype)
        if not fields:
            kind = "dest" if isinstance(dest, tuple) else "out"
            raise TypeError(f"{kind}{name}: expected one array of {shown}, which has no fields, got a tuple")
        for kind, given in (("dest", dest), ("out", out)):
            if given is not None and (not isinstance(given, tuple) or len(given) != len(fields)):
                raise TypeError(
                    f"{kind}{name}: expected a tuple of {len(fields)} arrays, one for each field of {shown}, "
                    f"got {type(given).__name__}{f' of {len(given)}' if isinstance(given, tuple) else ''}"
                )
        if any(operator.dtype[field].names or operator.dtype[field].subdtype for field in fields):
            raise TypeError(f"dest{name}: expected one array of {shown}, whose fields are no scalars, got a tuple")

    def arrays(given: Any) -> tuple[Array, ...] | None:
        return None if given is None else given if fields else (given,)

    found = ResultArrays(name, operator, shape, fields, arrays(dest), arrays(out), dest_is_partial, out_is_partial)
    found.check()
    return found


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
