"""The outputs of a kernel: one histogram, or several from one sweep, and arguments with a value for each."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from clhist._core.kernels.maps import unbalanced
from clhist._core.runtime.prepare import check_disjoint
from clhist._core.runtime.result_arrays import ResultArrays, target
from clhist.operators.c_types import IDENTIFIER, integer
from clhist.operators.operator import Operator


class Outputs(NamedTuple):
    """The operators of a kernel and the names of its outputs.

    Attributes
    ----------
    operators : tuple of Operator
        One for each histogram.
    suffixes : tuple of str
        The suffix of ``EMIT`` for each: "" for a single one, "0", "1", ... or "_name".
    names : tuple of str, or None
        The names of the outputs, if the caller passed a mapping.
    by_fields : bool
        Whether a new result of a structured dtype is a tuple of arrays, one for each field.
    """

    operators: tuple[Operator, ...]
    suffixes: tuple[str, ...]
    names: tuple[str, ...] | None = None
    by_fields: bool = False

    @classmethod
    def of(cls, operator: Any) -> Outputs:
        """Return the outputs of an operator, or of a sequence or mapping of operators.

        Raises
        ------
        TypeError, ValueError
            If `operator` is none of these.
        """
        if isinstance(operator, Operator):
            return cls((operator,), ("",))
        if isinstance(operator, Mapping):
            # Names become the ends of C identifiers, such as EMIT_name.
            names = tuple(operator)
            for name in names:
                if not isinstance(name, str) or not IDENTIFIER.match(f"_{name}"):
                    raise ValueError(f"operator: expected names that C identifiers can end in, got {name!r}")
            outputs = cls(tuple(operator.values()), tuple(f"_{name}" for name in names), names)
        elif isinstance(operator, Sequence) and not isinstance(operator, str):
            outputs = cls(tuple(operator), tuple(str(k) for k in range(len(operator))))
        else:
            hint = _hint(operator) or "; several are given as a sequence or mapping"
            raise TypeError(f"operator: expected a clhist.Operator, got {operator!r}{hint}")
        if not outputs.operators:
            raise ValueError("operator: expected at least one, got none")
        for label, candidate in zip(outputs.labels, outputs.operators, strict=True):
            if not isinstance(candidate, Operator):
                raise TypeError(f"operator{label}: expected a clhist.Operator, got {candidate!r}{_hint(candidate)}")
        return outputs

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
        """Raise ValueError if the map lacks the EMIT of an output, has one of no output, or has unbalanced brackets."""
        # The map is searched rather than parsed: a misspelt EMIT would otherwise show as an error of the compiler.
        expected = [f"EMIT{suffix}" for suffix in self.suffixes]
        used = set(re.findall(r"\bEMIT\w*", code)) if isinstance(code, str) else set()
        missing = [name for name in expected if name not in used]
        extra = sorted(used - set(expected))
        calls = " and ".join(f"{name}(bin, value)" for name in expected)
        if missing:
            raise ValueError(f"map: expected C that calls {calls}, got {code!r}, which lacks {', '.join(missing)}")
        if extra:
            raise ValueError(
                f"map: expected calls of {calls} for {len(expected)} operator{'s'[: len(expected) != 1]}, "
                f"got {', '.join(extra)} as well"
            )
        if wrong := unbalanced(code, preamble if isinstance(preamble, str) else ""):
            raise ValueError(f"map: expected C whose brackets and quotes match, got {code!r}: {wrong}")

    def shapes(self, num_bins: Any) -> tuple[tuple[int, ...], ...]:
        """Return the shape of each result from `num_bins`, which is one for all outputs or one for each.

        Raises
        ------
        TypeError, ValueError
            If a number or shape is not positive, or if there is not one for each output.
        """
        if self.is_single:
            return (_shape("num_bins", num_bins),)
        # With named outputs a tuple is a shape for all of them, since one for each would be a mapping.
        is_shape = isinstance(num_bins, tuple) and self.names is not None
        if isinstance(num_bins, Mapping | list | tuple) and not is_shape:
            counts = self.per_output("num_bins", num_bins)
        else:
            counts = [num_bins] * len(self.operators)
        return tuple(_shape(f"num_bins{label}", count) for label, count in zip(self.labels, counts, strict=True))

    def targets(
        self, shapes: Sequence[tuple[int, ...]], dest: Any, out: Any, partial: Sequence[str]
    ) -> list[ResultArrays]:
        """Validate `dest` and `out` of each output; `partial` lists which of "dest" and "out" hold accumulators."""
        form = {"dest_is_partial": "dest" in partial, "out_is_partial": "out" in partial, "by_fields": self.by_fields}
        if self.is_single:
            return [target("", self.operators[0], shapes[0], dest, out, **form)]
        missing = [None] * len(self.operators)
        dests = missing if dest is None else self.per_output("dest", dest)
        outs = missing if out is None else self.per_output("out", out)
        targets = [
            target(label, operator, shape, initial, where, **form)
            for label, operator, shape, initial, where in zip(
                self.labels, self.operators, shapes, dests, outs, strict=True
            )
        ]
        # Two outputs that overlap would overwrite each other's bins.
        check_disjoint(targets)
        return targets

    def like(self, values: list[Any]) -> Any:
        """Return one value for each output in the form of an argument: the value, a list, or a mapping by name."""
        if self.is_single:
            return values[0]
        return values if self.names is None else dict(zip(self.names, values, strict=True))

    def collect(self, results: list[Any]) -> Any:
        """Return the results in the form of a call's result: the result itself, a tuple, or a mapping by name."""
        if self.is_single:
            return results[0]
        return tuple(results) if self.names is None else dict(zip(self.names, results, strict=True))

    def per_output(self, argument: str, value: Any) -> list[Any]:
        """Return the elements of `value`, one for each of several outputs; the inverse of `like`.

        Parameters
        ----------
        argument : str
            The name of the argument in errors.
        value : sequence or mapping
            As many as outputs, or by their names. Except for `num_bins`, a missing name means None.

        Raises
        ------
        TypeError
            If `value` is neither.
        """
        if self.names is not None:
            if not isinstance(value, Mapping) or set(value) - set(self.names):
                got = sorted(map(str, value)) if isinstance(value, Mapping) else type(value).__name__
                raise TypeError(f"{argument}: expected a mapping of {', '.join(self.names)}, got {got}")
            # Without a number of bins an output has no size, whereas `dest` and `out` have defaults.
            lacking = [name for name in self.names if name not in value]
            if lacking and argument == "num_bins":
                raise TypeError(f"{argument}: expected a mapping of {', '.join(self.names)}; {lacking[0]} is missing")
            return [value.get(name) for name in self.names]
        if not isinstance(value, list | tuple) or len(value) != len(self.operators):
            got = f"{len(value)}" if isinstance(value, list | tuple) else type(value).__name__
            raise TypeError(
                f"{argument}: expected a sequence of {len(self.operators)}, one for each operator, got {got}"
            )
        return list(value)


def _shape(name: str, num_bins: Any) -> tuple[int, ...]:
    if isinstance(num_bins, tuple):
        if not num_bins:
            raise ValueError(f"{name}: expected at least one dimension, got ()")
        return tuple(integer(name, n, 1) for n in num_bins)
    return (integer(name, num_bins, 1),)


def _hint(operator: object) -> str:
    """Return a hint for what is no operator; empty if there is none."""
    from clhist.operators.names import name_hint  # imported here, since they know all operators
    from clhist.operators.ufuncs import factory_hint

    return factory_hint(operator) or name_hint(operator)
