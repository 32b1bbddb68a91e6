"""One of those that `clhist bench --suite peers` compares with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.peer_problems import Arrays, Fields, Problem, fields

Way = Callable[..., Any]  # of a problem's arrays, as `put` makes them, and the number of bins


def _nothing(result: Any) -> None:
    """All is complete when the call returns."""


@dataclass(frozen=True)
class Peer:
    """One way to compute histograms.

    Attributes
    ----------
    name : str
        What to call it.
    ways : mapping
        By names of problems, how it computes each that it can.
    of_rows : mapping
        The same of those whose values are rows.
    put : callable
        Makes of a problem's NumPy arrays those that the ways take, before anything is timed.
    finish : callable
        Gets what the last call returned and waits until everything is complete.
    fetch : callable
        Makes NumPy's arrays of what a call returned.
    on_device : bool
        Whether its arrays live on a GPU.
    is_ours : bool
        Whether it is clhist.
    chosen : callable
        ``chosen(problem, num_bins)`` says which of its strategies it takes, if it has several, after the first call.
    """

    name: str
    ways: Mapping[str, Way]
    put: Callable[[Arrays], tuple[Any, ...]] = tuple
    finish: Callable[[Any], Any] = _nothing
    fetch: Callable[[Any], Fields] = fields
    on_device: bool = False
    is_ours: bool = False
    chosen: Callable[[str, int], str] = lambda problem, num_bins: ""
    of_rows: Mapping[str, Way] = field(default_factory=dict)

    def way(self, problem: Problem) -> Way | None:
        """Return how it computes a problem; None if it cannot."""
        return (self.ways if problem.components == 1 else self.of_rows).get(problem.name)
