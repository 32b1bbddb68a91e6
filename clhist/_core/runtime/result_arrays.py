"""`dest` and `out` of one output of a call, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from clhist._core.opencl.arrays import Array, check_array, overlap
from clhist.operators.c_types import shown_dtype
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
        arrays: list[tuple[str, Array]] = []
        if self.dest is not None:
            arrays += zip(self._names("dest"), self.dest, strict=True)
        if self.out is not None:
            arrays += zip(self._names("out"), self.out, strict=True)
        return arrays

    def _names(self, kind: str) -> list[str]:
        return [f"{kind}{self.name}[{field!r}]" for field in self.fields] or [f"{kind}{self.name}"]

    def dtypes(self, *, partial: bool) -> list[Any]:
        """Return the dtype of each array of the result, or of what it is combined with."""
        if self.fields:
            return [self.operator.dtype[field] for field in self.fields]
        return [self.operator.accumulator if partial else self.operator.dtype]

    def check(self) -> None:
        """Raise for an array of another kind, dtype or shape; copy a `dest` that `out` overlaps."""
        # `out` is checked first, since `dest` is compared with it.
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
            dests = []
            for k, (n, array, dtype) in enumerate(zip(self._names("dest"), self.dest, dtypes, strict=True)):
                # The same array in both is an update in place: each work-item reads and writes only its own bins.
                if self.out is None or array is not self.out[k]:
                    array = check_array(n, array, dtype, written=False, shape=self.shape)
                    # A kernel may write a bin of `out` before another work-item has read that memory as `dest`.
                    if self.out is not None and any(overlap(array, other) for other in self.out):
                        array = array.copy()
                dests.append(array)
            self.dest = tuple(dests)


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
    by_fields: bool = False,
) -> ResultArrays:
    """Return `dest` and `out` of one output, checked; a tuple of arrays stands for the fields of a structured dtype.

    With `by_fields`, a new result is such a tuple.

    Raises
    ------
    TypeError, ValueError
        If one of them is wrong; it is named.
    """
    fields: tuple[str, ...] = ()
    if by_fields and dest is out is None:
        fields = operator.dtype.names or ()
    elif isinstance(dest, tuple) or isinstance(out, tuple):
        fields, shown = operator.dtype.names or (), shown_dtype(operator.dtype)
        if not fields:
            kind = "dest" if isinstance(dest, tuple) else "out"
            raise TypeError(f"{kind}{name}: expected one array of {shown}, which has no fields, got a tuple")
        for kind, value in (("dest", dest), ("out", out)):
            if value is not None and (not isinstance(value, tuple) or len(value) != len(fields)):
                raise TypeError(
                    f"{kind}{name}: expected a tuple of {len(fields)} arrays, one for each field of {shown}, "
                    f"got {type(value).__name__}{f' of {len(value)}' if isinstance(value, tuple) else ''}"
                )
        # Kernels take one array for each scalar field; nested fields and subarrays would need more.
        if any(operator.dtype[field].names or operator.dtype[field].subdtype for field in fields):
            raise TypeError(f"dest{name}: expected one array of {shown}, whose fields are no scalars, got a tuple")

    def arrays(value: Any) -> tuple[Array, ...] | None:
        return None if value is None else value if fields else (value,)

    result = ResultArrays(name, operator, shape, fields, arrays(dest), arrays(out), dest_is_partial, out_is_partial)
    result.check()
    return result
