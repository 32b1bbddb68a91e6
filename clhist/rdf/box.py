"""Boxes of simulations: their edges, which of them are periodic, and the grid of cells in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from clhist._core.spi import check_unmasked

_TILTS = ("Lx", "Ly", "Lz", "xy", "xz", "yz")
_WIDER = 1e-5  # than asked for: rounding may put a particle into the next cell


@dataclass(frozen=True)
class Box:
    """The box of a system.

    Attributes
    ----------
    matrix : float64 array of shape (3, 3)
        Its edges, in columns.
    periodic : tuple of bool
        Along which edges it repeats.
    origin : float64 array of shape (3,)
        A corner.
    is_flat : bool
        Whether it has two dimensions.
    """

    matrix: np.ndarray
    periodic: tuple[bool, bool, bool]
    origin: np.ndarray
    is_flat: bool = False

    @property
    def volume(self) -> float:
        """The volume of the box; the area of a flat one."""
        return float(abs(np.linalg.det(self.matrix[:2, :2] if self.is_flat else self.matrix)))

    @property
    def heights(self) -> np.ndarray:
        """How far apart opposite faces are."""
        found: np.ndarray = 1 / np.linalg.norm(np.linalg.inv(self.matrix), axis=1)
        return found

    @property
    def most(self) -> float:
        """The largest distance within which a pair is met in one image alone."""
        return min((h / 2 for h, p in zip(self.heights.tolist(), self.periodic, strict=True) if p), default=np.inf)

    def cells(self, width: float, number: int) -> list[int]:
        """Return how many cells there are along each edge: no narrower, and no more in all than particles."""
        while True:
            found = [max(1, int(h / (width * (1 + _WIDER) + _WIDER * h))) for h in self.heights.tolist()]
            found = [1 if self.is_flat and k == 2 else each for k, each in enumerate(found)]
            if prod(found) <= max(1, number):
                return found
            width *= 1.25

    def wrapped(self, positions: np.ndarray) -> np.ndarray:
        """Return positions moved into the box, in float64."""
        part = (positions - self.origin) @ np.linalg.inv(self.matrix).T
        found: np.ndarray = positions - (np.floor(part) * self.periodic) @ self.matrix.T
        return found

    def frame(self, dtype: np.dtype) -> np.ndarray:
        """Return what kernels take: the matrix, its inverse and the origin."""
        return np.concatenate([self.matrix.ravel(), np.linalg.inv(self.matrix).ravel(), self.origin]).astype(dtype)


def box_of(box: Any, *positions: np.ndarray) -> Box:
    """Return a box from what packages have for it; None is as large as the positions, and not periodic.

    Raises
    ------
    ValueError
        If it is none.
    """
    if box is None:
        least = np.min([each.min(axis=0, initial=np.inf) for each in positions], axis=0)
        largest = np.max([each.max(axis=0, initial=-np.inf) for each in positions], axis=0)
        least = np.where(np.isfinite(least), least, 0).astype(np.float64)
        size = np.where(np.isfinite(largest), largest, 0) - least
        return Box(np.diag(np.where(size > 0, size, 1.0)), (False, False, False), least)
    periodic: tuple[bool, ...] = (True, True, True)
    if hasattr(box, "to_matrix"):  # freud's
        periodic = tuple(map(bool, getattr(box, "periodic", periodic)))
        found = np.asarray(box.to_matrix(), np.float64)
    elif isinstance(box, Mapping):
        found = _tilted(*(float(box.get(name, 0)) for name in _TILTS))
    else:
        found = _matrix(box)
    flat = found.shape == (3, 3) and not found[2].any()
    if flat:
        found = found.copy()
        found[:, 2] = 0, 0, 1
    if not np.isfinite(found).all() or not abs(np.linalg.det(found)) > 0:
        raise ValueError(f"box: expected edges that span a volume, got {box!r:.200}")
    x, y, z = periodic
    return Box(found, (x, y, z and not flat), -found.sum(axis=1) / 2 * (1, 1, not flat), flat)


def _matrix(box: Any) -> np.ndarray:
    check_unmasked("box", box)
    try:
        given = np.asarray(box, np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"box: expected lengths of edges, or a matrix of them, got {box!r:.200}") from error
    if given.shape in ((2,), (3,)):
        return _tilted(*given, *[0.0] * (6 - given.size))
    if given.shape == (6,):
        return _angled(*given)
    if given.shape == (3, 3) and (given == np.triu(given)).all():
        return given  # in columns, as in freud
    if given.shape == (3, 3) and (given == np.tril(given)).all():
        return given.T  # in rows, as in MDAnalysis
    raise ValueError(
        "box: expected 3 lengths, 6 lengths and angles, a matrix with the edges as columns, 0 below the diagonal, or "
        f"as rows, 0 above it; got {box!r:.200}"
    )


def _tilted(lx: float, ly: float, lz: float, xy: float = 0, xz: float = 0, yz: float = 0) -> np.ndarray:
    """Return edges as freud and HOOMD-blue have them."""
    return np.array([[lx, xy * ly, xz * lz], [0, ly, yz * lz], [0, 0, lz]], np.float64)


def _angled(a: float, b: float, c: float, alpha: float, beta: float, gamma: float) -> np.ndarray:
    """Return edges of these lengths, with these angles in degrees, as MDAnalysis has them."""
    of_bc, of_ac, of_ab = (0.0 if angle == 90 else float(np.cos(np.deg2rad(angle))) for angle in (alpha, beta, gamma))
    sine = 1.0 if gamma == 90 else float(np.sin(np.deg2rad(gamma)))
    y = (of_bc - of_ac * of_ab) / sine
    with np.errstate(invalid="ignore"):
        z = np.sqrt(1 - of_ac**2 - y**2)
    return np.array([[a, b * of_ab, c * of_ac], [0, b * sine, c * y], [0, 0, c * z]])
