"""Boxes of simulations: their edges, which of them are periodic, and the grid of cells in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from clhist._core.spi import check_unmasked

_TILTS = ("Lx", "Ly", "Lz", "xy", "xz", "yz")
# Relative margin of the cells: rounding may put a particle into the next cell.
_WIDER = 1e-5


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
        """The distances of opposite faces."""
        heights: np.ndarray = 1 / np.linalg.norm(np.linalg.inv(self.matrix), axis=1)
        return heights

    @property
    def most(self) -> float:
        """The largest distance within which a pair is met in one image alone."""
        return min((h / 2 for h, p in zip(self.heights.tolist(), self.periodic, strict=True) if p), default=np.inf)

    def cells(self, width: float, number: int) -> list[int]:
        """Return how many cells there are along each edge: no narrower, and no more in all than particles."""
        while True:
            counts = [max(1, int(h / (width * (1 + _WIDER) + _WIDER * h))) for h in self.heights.tolist()]
            counts = [1 if self.is_flat and k == 2 else count for k, count in enumerate(counts)]
            if prod(counts) <= max(1, number):
                return counts
            width *= 1.25

    def wrapped(self, positions: np.ndarray) -> np.ndarray:
        """Return positions moved into the box, in float64."""
        part = (positions - self.origin) @ np.linalg.inv(self.matrix).T
        wrapped: np.ndarray = positions - (np.floor(part) * self.periodic) @ self.matrix.T
        return wrapped

    def frame(self, dtype: np.dtype) -> np.ndarray:
        """Return the numbers that kernels take: the matrix, its inverse and the origin."""
        return np.concatenate([self.matrix.ravel(), np.linalg.inv(self.matrix).ravel(), self.origin]).astype(dtype)


def box_of(box: Any, *positions: np.ndarray) -> Box:
    """Return a box from what packages have for it; None is as large as the positions, and not periodic.

    Raises
    ------
    ValueError
        If it is none.
    """
    if box is None:
        least = np.min([array.min(axis=0, initial=np.inf) for array in positions], axis=0)
        largest = np.max([array.max(axis=0, initial=-np.inf) for array in positions], axis=0)
        # Sets without particles have no extent.
        least = np.where(np.isfinite(least), least, 0).astype(np.float64)
        size = np.where(np.isfinite(largest), largest, 0) - least
        # Particles in one plane have no extent across it: a length of 1 keeps the matrix invertible.
        return Box(np.diag(np.where(size > 0, size, 1.0)), (False, False, False), least)
    periodic: tuple[bool, ...] = (True, True, True)
    if hasattr(box, "to_matrix"):  # freud's
        periodic = tuple(map(bool, getattr(box, "periodic", periodic)))
        matrix = np.asarray(box.to_matrix(), np.float64)
    elif isinstance(box, Mapping):
        matrix = _tilted(*(float(box.get(name, 0)) for name in _TILTS))
    else:
        matrix = _matrix(box)
    flat = matrix.shape == (3, 3) and not matrix[2].any()
    # A flat box gets a third edge of length 1, so that its matrix is invertible.
    if flat:
        matrix = matrix.copy()
        matrix[:, 2] = 0, 0, 1
    if not np.isfinite(matrix).all() or not abs(np.linalg.det(matrix)) > 0:
        raise ValueError(f"box: expected edges that span a volume, got {box!r:.200}")
    if np.ndim(box) != 2 and (np.diag(matrix) < 0).any():  # edges as vectors may point anywhere
        raise ValueError(f"box: expected lengths that are not negative, got {box!r:.200}")
    x, y, z = periodic
    return Box(matrix, (x, y, z and not flat), -matrix.sum(axis=1) / 2 * (1, 1, not flat), flat)


def _matrix(box: Any) -> np.ndarray:
    check_unmasked("box", box)
    try:
        values = np.asarray(box, np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"box: expected lengths of edges, or a matrix of them, got {box!r:.200}") from error
    if values.shape in ((2,), (3,)):
        return _tilted(*values, *[0.0] * (6 - values.size))
    if values.shape == (6,):
        return _angled(*values)
    if values.shape == (3, 3) and (values == np.triu(values)).all():
        # Upper triangular: freud's convention, with the vectors in columns.
        return values
    if values.shape == (3, 3) and (values == np.tril(values)).all():
        # Lower triangular: the convention of MDAnalysis, with the vectors in rows.
        return values.T
    raise ValueError(
        "box: expected 3 lengths, 6 lengths and angles, a matrix with the edges as columns, 0 below the diagonal, or "
        f"as rows, 0 above it; got {box!r:.200}"
    )


def _tilted(lx: float, ly: float, lz: float, xy: float = 0, xz: float = 0, yz: float = 0) -> np.ndarray:
    """Return edges as freud and HOOMD-blue have them."""
    return np.array([[lx, xy * ly, xz * lz], [0, ly, yz * lz], [0, 0, lz]], np.float64)


def _angled(a: float, b: float, c: float, alpha: float, beta: float, gamma: float) -> np.ndarray:
    """Return edges of these lengths, with these angles in degrees, as MDAnalysis has them."""
    # The cosine of 90 degrees in radians is not exactly 0, and would tilt a rectangular box.
    of_bc, of_ac, of_ab = (0.0 if angle == 90 else float(np.cos(np.deg2rad(angle))) for angle in (alpha, beta, gamma))
    sine = 1.0 if gamma == 90 else float(np.sin(np.deg2rad(gamma)))
    y = (of_bc - of_ac * of_ab) / sine
    # Angles that span no volume give NaN, which `box_of` refuses.
    with np.errstate(invalid="ignore"):
        z = np.sqrt(1 - of_ac**2 - y**2)
    return np.array([[a, b * of_ab, c * of_ac], [0, b * sine, c * y], [0, 0, c * z]])
