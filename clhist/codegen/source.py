"""`Source`: what a map is made of, as one value; its operators come besides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from clhist.codegen.arguments import check_structs, integer, parse_arguments
from clhist.codegen.maps import Argument, is_elementwise


@dataclass(frozen=True, eq=False)
class Source:
    """A map in C and all that it names.

    Attributes
    ----------
    arguments : tuple of Argument
        As they were declared.
    map, preamble : str
        C.
    structs : mapping of str to numpy.dtype
        Structured types that the C names.
    options : tuple of str
        For the compiler.
    emits : int or None
        How many values an element has at most for one histogram, if the caller says so.
    """

    arguments: tuple[Argument, ...]
    map: str
    preamble: str
    structs: Mapping[str, np.dtype]
    options: tuple[str, ...]
    emits: int | None

    @classmethod
    def of(
        cls,
        arguments: str,
        map: str,
        value_types: Mapping[str, np.dtype],
        *,
        preamble: str = "",
        structs: Mapping[str, Any] | None = None,
        options: Sequence[str] = (),
        emits: int | None = None,
    ) -> Source:
        """Return the source that a caller's text stands for; `value_types` are those of the operators, by C name.

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
        known = check_structs(structs)
        parsed = parse_arguments(arguments, {**value_types, **known})
        return cls(parsed, map, preamble, known, tuple(options), None if emits is None else integer("emits", emits, 1))

    @cached_property
    def elementwise(self) -> tuple[Argument, ...]:
        """The arrays that the map uses only at ``[i]``."""
        return tuple(each for each in self.arguments if is_elementwise(each, self.map, self.preamble))

    @cached_property
    def sized(self) -> tuple[int, ...]:
        """The positions of these among the arguments: they must have as many elements as the map runs for."""
        return tuple(n for n, argument in enumerate(self.arguments) if argument in self.elementwise)

    @cached_property
    def sizing(self) -> int | None:
        """The position of the array whose size is N where the caller gives none; None without arrays."""
        arrays = (n for n, argument in enumerate(self.arguments) if argument.is_array)
        return next((n for n in (*self.sized, *arrays)), None)
