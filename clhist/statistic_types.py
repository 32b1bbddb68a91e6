"""The types of the functions of `clhist.ndimage`, which each takes as its own by a decorator."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, overload

import numpy as np

if TYPE_CHECKING:
    from clhist.typing import A, Arrays, Function, Given, HostArray

_Number = TypeVar("_Number", covariant=True)
_Place = TypeVar("_Place")
Region: TypeAlias = int | np.integer[Any]
Place: TypeAlias = tuple[np.integer[Any], ...]
Centre: TypeAlias = tuple[np.float64, ...]


class OfRegions(Protocol[_Number]):
    """A number of one region, an array of several."""

    @overload
    def __call__(self, input: Given[A], labels: Given[A] | None = ..., index: Region | None = ...) -> _Number: ...
    @overload
    def __call__(self, input: Given[A], labels: Given[A], index: Arrays) -> A: ...


class PlacesOfRegions(Protocol[_Place]):
    """A place in one region, a list of those in several."""

    @overload
    def __call__(self, input: Given[A], labels: Given[A] | None = ..., index: Region | None = ...) -> _Place: ...
    @overload
    def __call__(self, input: Given[A], labels: Given[A], index: Arrays) -> list[_Place]: ...


class HistogramOfRegions(Protocol):
    """Counts of one region, or None of one without values; an array of several, of these or of rows."""

    @overload
    def __call__(
        self, input: Given[A], min: float, max: float, bins: int, labels: Given[A] | None = ...,
        index: Region | None = ...,
    ) -> HostArray: ...  # fmt: skip
    @overload
    def __call__(self, input: Given[A], min: float, max: float, bins: int, labels: Given[A], index: Arrays) -> A: ...


class Extrema(Protocol):
    """Least and largest value, and the places of both."""

    @overload
    def __call__(
        self, input: Given[A], labels: Given[A] | None = ..., index: Region | None = ...
    ) -> tuple[np.number[Any], np.number[Any], Place, Place]: ...
    @overload
    def __call__(self, input: Given[A], labels: Given[A], index: Arrays) -> tuple[A, A, list[Place], list[Place]]: ...


def _same(function: Any) -> Any:
    return function


numbers_of_regions: Callable[[Function], OfRegions[np.number[Any]]] = _same
floats_of_regions: Callable[[Function], OfRegions[np.floating[Any]]] = _same
places_of_regions: Callable[[Function], PlacesOfRegions[Place]] = _same
centres_of_regions: Callable[[Function], PlacesOfRegions[Centre]] = _same
histogram_of_regions: Callable[[Function], HistogramOfRegions] = _same
extrema_of_regions: Callable[[Function], Extrema] = _same
