"""C snippets of one second stage: where the copies of a bin are, and how results are read and written."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clhist._core.kernels.specs import CombineSpec
from clhist._core.kernels.state import repeated
from clhist._core.model.feature import CyclicPasses
from clhist.operators.c_types import scalars_of
from clhist.operators.halves import ELEMENT, half_name, loaded, stored


@dataclass(frozen=True)
class CombineState:
    """Snippets of C for the templates of a second stage; pure text that follows from its specification.

    Attributes
    ----------
    spec : CombineSpec
        What the source depends on.
    """

    spec: CombineSpec

    @property
    def dest_type(self) -> str:
        """C type of an element of `dest`."""
        return "accumulator_t" if self.spec.dest_is_partial else self._element

    @property
    def out_type(self) -> str:
        """C type of an element of `out`."""
        return "accumulator_t" if self.spec.out_is_partial else self._element

    @property
    def _element(self) -> str:
        return ELEMENT if half_name(self.spec.operator.dtype) else "value_t"

    @property
    def arrays(self) -> tuple[tuple[str, str, str], ...]:
        """The arrays of results: what their names end in, and the C types of those of `dest` and `out`."""
        # Structured values may have an array for each field; all others have one array.
        fields = tuple((f"_{name}", kind, kind) for name, kind in self.spec.fields)
        return fields or (("", self.dest_type, self.out_type),)

    def for_each_part(self, text: str, separator: str = "\n") -> str:
        """Return C once for each part, with its number for ``{n}`` and its accessor for ``{accessor}``."""
        parts = enumerate(self.spec.operator.parts)
        return repeated(text, [{"n": n, "accessor": part.accessor} for n, part in parts], separator)

    @property
    def is_replaced(self) -> bool:
        """Whether a feature has a second stage of its own."""
        return any("combine" in feature.sections for feature in self.spec.features)

    @property
    def place(self) -> str:
        """Statement that says where the copies of bin k of all histograms begin, `at`, and how many `copies` it has."""
        if self.spec.feature(CyclicPasses):
            # A copy has one cyclic pass after another: bin k is number k / S of pass k % S.
            at = "k % clhist_passes * (clhist_bins / clhist_passes) + k / clhist_passes"
            return f"const ulong copies = clhist_copies, at = {at};"
        if self.spec.batch == "ragged":
            # The table has the first copy of each histogram, and the one behind its last.
            copies = "copies = clhist_first[2 * (k / clhist_bins) + 1] - first"
            at = "at = first * clhist_bins + k % clhist_bins"
            return f"const ulong first = clhist_first[2 * (k / clhist_bins)], {copies}, {at};"
        at = "k / clhist_bins * copies * clhist_bins + k % clhist_bins" if self.spec.batch else "k"
        return f"const ulong copies = clhist_copies, at = {at};"

    @property
    def copy(self) -> str:
        """The accumulator of the copy number `copy` of that bin."""
        cells = self.for_each_part("cells{n}, ", "")
        return f"whole[{self.cell}]" if self.spec.whole else f"clhist_cell_of({cells}{self.cell})"

    @property
    def cell(self) -> str:
        """Index of the cell of that copy."""
        return "at + copy * clhist_bins"

    @property
    def sums(self) -> tuple[str, ...]:
        """Accessors of the sums of float64 in an accumulator of a CPU, whose cores may be many."""
        if self.spec.order != "blocked" or self.is_replaced:
            return ()
        return tuple(part.accessor + name for part in self.spec.operator.parts for name in part.float64_sums)

    @property
    def has_bytes(self) -> bool:
        """Whether values of `dest` have numbers of one byte: see `dest_or_neutral`."""
        return has_bytes(self.spec.operator.dtype)

    def dest_or_neutral(self, condition: str, index: str) -> str:
        """Return the accumulator that `dest` has for a bin, the neutral element where the condition is false."""
        return dest_or_neutral(condition, self.dest(index), self.spec.operator.dtype)

    def dest(self, index: str) -> str:
        """Return the accumulator that `dest` has for a bin."""
        operator = self.spec.operator
        if self.spec.fields and not self.spec.dest_is_partial:
            fields = ", ".join(f"dest_{name}[{index}]" for name, _ in self.spec.fields)
            return f"clhist_lift((value_t){{{fields}}})"
        dtype = operator.accumulator if self.spec.dest_is_partial else operator.dtype
        return f"dest[{index}]" if self.spec.dest_is_partial else f"clhist_lift({loaded(f'dest[{index}]', dtype)})"

    def store(self, index: str) -> str:
        """Return the statement that writes the result of a bin."""
        if self.spec.out_is_partial:
            return f"out[{index}] = total;"
        if self.spec.fields:
            stores = " ".join(f"out_{name}[{index}] = result.{name};" for name, _ in self.spec.fields)
            return f"const value_t result = clhist_finish(total); {stores}"
        return f"out[{index}] = {stored('clhist_finish(total)', self.spec.operator.dtype)};"


def has_bytes(dtype: np.dtype) -> bool:
    """Return whether a dtype has numbers of one byte."""
    return any(scalar.itemsize == 1 for scalar in scalars_of(dtype))


def dest_or_neutral(condition: str, value: str, dtype: np.dtype) -> str:
    """Return C of `value`, which is read from `dest`, or of the neutral element where the condition is false.

    llvmpipe of Mesa 25.0.7 ends the process where a branch chooses between a byte and a constant: a macro for bytes.
    """
    return f"CLHIST_CHOICE({condition}, {value})" if has_bytes(dtype) else f"{condition} ? {value} : clhist_neutral()"
