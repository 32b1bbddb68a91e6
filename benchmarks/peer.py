"""One of those that `clhist bench --suite peers` compares with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.peer_problems import Arrays, Fields, fields

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
