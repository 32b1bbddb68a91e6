"""Fills that repeat earlier ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from clhist.binning.sweep import Sweep
from clhist.hist.columns import Columns, is_column, looks_at_content


class KnownFill(NamedTuple):
    """A fill but for its arrays.

    Attributes
    ----------
    sweep : Sweep
        What computes its sums.
    scale : float, str or None
        What these are multiplied with in the end; "each" of weights that are an array.
    places : tuple of int
        Which of the arguments of the fill the sweep takes, in its order.
    """

    sweep: Sweep
    scale: Any
    places: tuple[int, ...]

    @classmethod
    def of(cls, h: Any, given: Sequence[Any], columns: Columns, sweep: Sweep, scale: Any) -> KnownFill | None:
        """Return it, or None if a fill with arrays alike may differ; `given` ends in weight and sample."""
        dims = len(given) - 2
        places = [n for n in (*reversed(range(dims)), dims, dims + 1) if is_column(given[n])]
        arrays = columns.arrays
        as_given = len(arrays) == len(places) and all(a is given[n] for a, n in zip(arrays, places, strict=True))
        if not as_given or any(looks_at_content(ax, each) for ax, each in zip(h.axes, given, strict=False)):
            return None
        return cls(sweep, scale, tuple(places))

    def arrays(self, given: Sequence[Any]) -> list[Any]:
        """Return the arrays of another fill that the sweep takes."""
        return [given[n] for n in self.places]
