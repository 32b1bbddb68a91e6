"""`Source`: a map, its operators and everything that their C names, as one value. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from clhist._core.kernels.arguments import check_structs, parse_arguments
from clhist._core.kernels.maps import (
    Argument,
    RowText,
    is_elementwise,
    is_streamed,
    max_pairs_of,
    uniform_value,
    uses_position,
)
from clhist._core.model.problem import Histogram
from clhist.operators.c_types import integer, needs_fp64
from clhist.operators.halves import half_name, with_numbers
from clhist.operators.operator import Operator


@dataclass(frozen=True)
class Source:
    """The parts of a kernel that all its calls share.

    Attributes
    ----------
    arguments : tuple of Argument
        Inputs of the map.
    map : str
        C run for each `i`, with ``EMIT(bin, value)`` of each output.
    operators : tuple of Operator
        How the values of each output are combined.
    suffixes : tuple of str
        What the ``EMIT`` of each output ends in; nothing for a single one.
    preamble : str
        C before the map.
    structs : tuple of (str, numpy.dtype)
        Structured types that the C names.
    options : tuple of str
        Compiler options.
    emits : int or None
        Upper bound on the pairs that one element emits to one output, as the caller states it; None if not stated.
    trusts_emits : bool
        Whether that is known to be right. If not, only plans that check it rely on it.
    covered : bool
        Whether the map emits no bin outside those that there are: sweeps need not check.
    rows : RowText or None
        If values are rows.
    """

    arguments: tuple[Argument, ...]
    map: str
    operators: tuple[Operator, ...]
    suffixes: tuple[str, ...] = ("",)
    preamble: str = ""
    structs: tuple[tuple[str, np.dtype], ...] = ()
    options: tuple[str, ...] = ()
    emits: int | None = None
    trusts_emits: bool = True
    covered: bool = False
    rows: RowText | None = None

    @classmethod
    def of(
        cls,
        arguments: str,
        map: str,
        operators: Sequence[Operator],
        suffixes: Sequence[str] = ("",),
        *,
        preamble: str = "",
        structs: Mapping[str, Any] | None = None,
        options: Sequence[str] = (),
        emits: int | None = None,
        covered: bool = False,
        rows: RowText | None = None,
    ) -> Source:
        """Return the source that a caller's text stands for.

        Parameters
        ----------
        arguments : str
            C declarations; see `clhist._core.kernels.arguments.parse_arguments`.
        map, operators, suffixes, preamble, options, emits, covered, rows
            As the attributes.
        structs : mapping of str to dtype-like, optional
            Structured types by name. The values of each operator are known as ``value_t`` with its suffix.

        Raises
        ------
        TypeError, ValueError
            If an argument is wrong; it is named.
        """
        for name, text in (("arguments", arguments), ("map", map), ("preamble", preamble)):
            if not isinstance(text, str):
                raise TypeError(f"{name}: expected C as a str, got {text!r}")
        if isinstance(options, str):
            raise TypeError(f"options: expected a sequence of str, such as [{options!r}], got a str")
        values = {f"value{suffix}_t": operator.dtype for suffix, operator in zip(suffixes, operators, strict=True)}
        struct_types = check_structs(structs)
        parsed = parse_arguments(arguments, {**values, **struct_types})
        return cls(
            parsed,
            _with_numbers(parsed, map, preamble),
            tuple(operators),
            tuple(suffixes),
            preamble,
            tuple(struct_types.items()),
            tuple(options),
            None if emits is None else integer("emits", emits, 1),
            covered=covered,
            rows=rows
            and rows._replace(value=_with_numbers(parsed, rows.value), of_row=_with_numbers(parsed, rows.of_row)),
        )

    def with_operators(self, operators: Sequence[Operator]) -> Source:
        """Return the source of the same map with other operators, one for each of its own, on the same dtypes."""
        return replace(self, operators=tuple(operators))

    @cached_property
    def elementwise(self) -> tuple[Argument, ...]:
        """The arrays that the map uses only at ``[i]``."""
        return tuple(argument for argument in self.arguments if is_elementwise(argument, self.map, self.preamble))

    @cached_property
    def sized(self) -> tuple[int, ...]:
        """Positions of these among the arguments: each must have at least as many elements as the map runs for."""
        return tuple(n for n, argument in enumerate(self.arguments) if argument in self.elementwise)

    @cached_property
    def sizing(self) -> int | None:
        """Position of the array whose size is N if a call gives none; None without arrays."""
        # Elementwise arrays come first: N must not exceed their size.
        arrays = (n for n, argument in enumerate(self.arguments) if argument.is_array and not argument.is_first)
        return next(iter((*self.sized, *arrays)), None)

    @cached_property
    def streamed(self) -> tuple[Argument, ...]:
        """The arrays whose elements can be loaded ahead."""
        return tuple(argument for argument in self.arguments if is_streamed(argument, self.map, self.preamble))

    @cached_property
    def read_bytes(self) -> int:
        """Bytes of these arrays that the map reads for one element."""
        return sum(argument.dtype.itemsize for argument in self.streamed)

    @cached_property
    def uses_position(self) -> bool:
        """Whether the map may use `i` for anything but the elements of the `elementwise` arrays."""
        return uses_position(self.elementwise, self.map, self._preambles)

    @cached_property
    def max_pairs(self) -> tuple[int | None, ...]:
        """Upper bound on the pairs that one element emits to each output; None where it is unknown."""
        # A bound that the caller states is trusted only if it is known to be right; else the text may raise it.
        if self.emits is None:
            return self._counted_pairs
        if self.trusts_emits:
            return (self.emits,) * len(self.operators)
        return tuple(max(self.emits, counted or 0) for counted in self._counted_pairs)

    @cached_property
    def _counted_pairs(self) -> tuple[int | None, ...]:
        """How often the map names the ``EMIT`` of each output; None where that may be repeated."""
        return tuple(max_pairs_of(f"EMIT{suffix}", self.map, self._preambles) for suffix in self.suffixes)

    @cached_property
    def may_exceed(self) -> tuple[bool, ...]:
        """Whether an element may emit more pairs to each output than `max_pairs`, which the caller states."""
        # Where the text of the map shows a bound, `max_pairs` is at least that, so it cannot be exceeded.
        is_stated = self.emits is not None and not self.trusts_emits
        return tuple(is_stated and counted is None for counted in self._counted_pairs)

    @property
    def pairs_per_element(self) -> int:
        """The largest of these bounds, as far as they are known; at least 1."""
        return max(1, *(most or 1 for most in self.max_pairs))

    @property
    def has_single_pair(self) -> bool:
        """Whether there is one output, and an element emits at most one pair to it."""
        return self.max_pairs == (1,) and not self.may_exceed[0]

    @cached_property
    def indices(self) -> Argument | None:
        """The array whose element `i` is the bin of each pair that the map may emit; None if there is none."""
        if not self.has_single_pair:
            return None
        # Only the text decides: the bin must be an element of one array, without any arithmetic.
        emit = rf"\bEMIT{self.suffixes[0]}\("
        return next((a for a in self.elementwise if re.search(rf"{emit}\s*{a.name}\[i\],", self.map)), None)

    @property
    def is_repeatable(self) -> bool:
        """Whether the map may be called twice for an element: it does nothing but emit a pair, whose bin is read.

        Those of the library that ask whether a bin is in the pass only set a word besides.
        """
        if self.indices is None:
            return False
        if "CLHIST_IN_PASS" in self.map:
            return True
        code = f"{self._preambles} {self.map}"
        # A second call could read what the first has written.
        written = (argument.name for argument in self.arguments if argument.is_array and not argument.is_const)
        writes = any(re.search(rf"\b{name}\b", code) for name in written)
        # The map must be a single EMIT, without other statements, blocks or directives.
        plain = rf"EMIT{self.suffixes[0]}\(\s*{self.indices.name}\[i\],[^;{{}}#]*\);?"
        return not writes and re.fullmatch(plain, self.map.strip()) is not None

    @property
    def may_combine(self) -> bool:
        """Whether a sweep may combine its copies itself: of one operator, and without compiler options, which are the
        caller's for the map.
        """
        return self.suffixes == ("",) and not self.options

    @property
    def index_values(self) -> int | None:
        """The number of bins that an element can name if its bin is of an array of uint8 or uint16; None otherwise."""
        dtype = None if self.indices is None else self.indices.dtype
        return None if dtype is None or dtype.kind != "u" or dtype.itemsize > 2 else 1 << 8 * dtype.itemsize

    @cached_property
    def values(self) -> tuple[str | None, ...]:
        """C expression of the value that all pairs of each output share; None where values differ."""
        return tuple(uniform_value(suffix, self.map, self.arguments, self._preambles) for suffix in self.suffixes)

    def histograms(self, bins: Sequence[int]) -> tuple[Histogram, ...]:
        """Return the histograms that are to be planned, with these numbers of bins."""
        # What writes to its arrays is not called a second time.
        reads = all(argument.is_const for argument in self.arguments if argument.is_array)
        operators = self.operators if reads else [_called_once(operator) for operator in self.operators]
        histograms = zip(operators, bins, self.suffixes, self.max_pairs, self.values, self.may_exceed, strict=True)
        return tuple(Histogram(*facts) for facts in histograms)

    @property
    def needs_fp64(self) -> tuple[str, ...]:
        """The parts that need double precision: ``"operator"``, or names of arguments."""
        operators = ["operator"] * any(operator.needs_fp64 for operator in self.operators)
        return (*operators, *(argument.name for argument in self.arguments if needs_fp64(argument.dtype)))

    @property
    def _preambles(self) -> str:
        """All C in which a macro may use the map's names."""
        return "\n".join([self.preamble, *(operator.preamble for operator in self.operators)])


def _with_numbers(arguments: Sequence[Argument], code: str, preamble: str = "") -> str:
    """Return C with numbers in the place of elements of half precision; raises ValueError if it cannot."""
    for argument in arguments:
        if not (argument.is_array and half_name(argument.dtype)) or argument.is_first:
            continue
        # The compiler expands macros after this substitution, so elements that they name would stay halves.
        macros = re.findall(r"^\s*#\s*define\b(?:.*\\\n)*.*", preamble, re.MULTILINE)
        if not argument.is_const or any(re.search(rf"\b{argument.name}\b", macro) for macro in macros):
            use = "an array that is read" if not argument.is_const else "no use in a macro of the preamble"
            raise ValueError(f"arguments: expected {use} for {argument.name!r}, whose elements are {argument.dtype}")
        code = with_numbers(argument.name, argument.dtype, code)
    return code


def _called_once(operator: Operator) -> Operator:
    """Return an operator without the forms for which the map may be called again."""
    return operator.changed(narrow=(), equivalents=tuple(o for o in operator.equivalents if not o.operator.narrow))
