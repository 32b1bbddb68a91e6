"""The outputs of a kernel: one histogram, or several from one sweep, and how a call speaks of each."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clhist._core.kernels.maps import unbalanced
from clhist._core.runtime.result_arrays import ResultArrays, target
from clhist._core.runtime.results import check_disjoint
from clhist.operators.c_types import IDENTIFIER, integer
from clhist.operators.names import name_hint
from clhist.operators.operator import Operator
from clhist.operators.ufuncs import factory_hint


@dataclass(frozen=True)
class Outputs:
    """The operators of a kernel, and what its results are called.

    Attributes
    ----------
    operators : tuple of Operator
        One for each histogram.
    suffixes : tuple of str
        What the ``EMIT`` of each ends in: nothing for a single one, "0", "1", ... or "_name".
    names : tuple of str, or None
        The names, if the operators were given as a mapping.
    """

    operators: tuple[Operator, ...]
    suffixes: tuple[str, ...]
    names: tuple[str, ...] | None = None

    @classmethod
    def of(cls, operator: Any) -> Outputs:
        """Return the outputs that an operator, or a sequence or mapping of them, stands for.

        Raises
        ------
        TypeError, ValueError
            If it is none of these; what is wrong is named.
        """
        if isinstance(operator, Operator):
            return cls((operator,), ("",))
        if isinstance(operator, Mapping):
            names = tuple(operator)
            for name in names:
                if not isinstance(name, str) or not IDENTIFIER.match(f"_{name}"):
                    raise ValueError(f"operator: expected names that C identifiers can end in, got {name!r}")
            found = cls(tuple(operator.values()), tuple(f"_{name}" for name in names), names)
        elif isinstance(operator, Sequence) and not isinstance(operator, str):
            found = cls(tuple(operator), tuple(str(k) for k in range(len(operator))))
        else:
            hint = factory_hint(operator) or name_hint(operator) or "; several are given as a sequence or mapping"
            raise TypeError(f"operator: expected a clhist.Operator, got {operator!r}{hint}")
        if not found.operators:
            raise ValueError("operator: expected at least one, got none")
        for label, each in zip(found.labels, found.operators, strict=True):
            if not isinstance(each, Operator):
                raise TypeError(
                    f"operator{label}: expected a clhist.Operator, got {each!r}{factory_hint(each) or name_hint(each)}"
                )
        return found

    @property
    def is_single(self) -> bool:
        """Whether a call gives one result rather than a collection."""
        return self.suffixes == ("",)

    @property
    def labels(self) -> tuple[str, ...]:
        """The suffixes that errors add to the name of an argument."""
        if self.is_single:
            return ("",)
        return tuple(f"[{key!r}]" for key in (self.names or range(len(self.operators))))

    def check_map(self, code: str, preamble: str = "") -> None:
        """Raise ValueError if the map does not emit to each output, emits to another, or lacks brackets."""
        known = [f"EMIT{suffix}" for suffix in self.suffixes]
        used = set(re.findall(r"\bEMIT\w*", code)) if isinstance(code, str) else set()
        missing = [name for name in known if name not in used]
        extra = sorted(used - set(known))
        calls = " and ".join(f"{name}(bin, value)" for name in known)
        if missing:
            raise ValueError(f"map: expected C that calls {calls}, got {code!r}, which lacks {', '.join(missing)}")
        if extra:
            raise ValueError(
                f"map: expected calls of {calls} for {len(known)} operator{'s'[: len(known) != 1]}, "
                f"got {', '.join(extra)} as well"
            )
        if wrong := unbalanced(code, preamble if isinstance(preamble, str) else ""):
            raise ValueError(f"map: expected C whose brackets and quotes match, got {code!r}: {wrong}")

    def shapes(self, num_bins: Any) -> tuple[tuple[int, ...], ...]:
        """Return the shape of each result: `num_bins` as a call gives it, for each or one for all.

        Raises
        ------
        TypeError, ValueError
            If it is no positive number or shape, or not one for each output.
        """
        if self.is_single:
            return (_shape("num_bins", num_bins),)
        is_shape = isinstance(num_bins, tuple) and self.names is not None  # one for all: a mapping has one for each
        if isinstance(num_bins, Mapping | list | tuple) and not is_shape:
            each = self.each("num_bins", num_bins)
        else:
            each = [num_bins] * len(self.operators)
        return tuple(_shape(f"num_bins{label}", given) for label, given in zip(self.labels, each, strict=True))

    def targets(
        self, shapes: Sequence[tuple[int, ...]], dest: Any, out: Any, partial: Sequence[str]
    ) -> list[ResultArrays]:
        """Return `dest` and `out` of each output, checked; those that are named in `partial` hold accumulators."""
        form = {"dest_is_partial": "dest" in partial, "out_is_partial": "out" in partial}
        if self.is_single:
            return [target("", self.operators[0], shapes[0], dest, out, **form)]
        missing = [None] * len(self.operators)
        dests = missing if dest is None else self.each("dest", dest)
        outs = missing if out is None else self.each("out", out)
        found = [
            target(label, operator, shape, given, where, **form)
            for label, operator, shape, given, where in zip(
                self.labels, self.operators, shapes, dests, outs, strict=True
            )
        ]
        check_disjoint(found)
        return found

    def like(self, each: list[Any]) -> Any:
        """Return what stands for `each` output in an argument: itself, a list or a mapping."""
        if self.is_single:
            return each[0]
        return each if self.names is None else dict(zip(self.names, each, strict=True))

    def collect(self, results: list[Any]) -> Any:
        """Return the results as a call returns them."""
        if self.is_single:
            return results[0]
        return tuple(results) if self.names is None else dict(zip(self.names, results, strict=True))

    def each(self, argument: str, given: Any) -> list[Any]:
        """Return what `given` for the `argument` has for each of several outputs.

        Raises
        ------
        TypeError
            If it is no mapping of their names, or no sequence of as many.
        """
        if self.names is not None:
            if not isinstance(given, Mapping) or set(given) - set(self.names):
                got = sorted(map(str, given)) if isinstance(given, Mapping) else type(given).__name__
                raise TypeError(f"{argument}: expected a mapping of {', '.join(self.names)}, got {got}")
            lacking = [name for name in self.names if name not in given]
            if lacking and argument == "num_bins":
                raise TypeError(f"{argument}: expected a mapping of {', '.join(self.names)}; {lacking[0]} is missing")
            return [given.get(name) for name in self.names]
        if not isinstance(given, list | tuple) or len(given) != len(self.operators):
            got = f"{len(given)}" if isinstance(given, list | tuple) else type(given).__name__
            raise TypeError(
                f"{argument}: expected a sequence of {len(self.operators)}, one for each operator, got {got}"
            )
        return list(given)


def _shape(name: str, num_bins: Any) -> tuple[int, ...]:
    if isinstance(num_bins, tuple):
        if not num_bins:
            raise ValueError(f"{name}: expected at least one dimension, got ()")
        return tuple(integer(name, n, 1) for n in num_bins)
    return (integer(name, num_bins, 1),)
