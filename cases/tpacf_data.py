"""Points on the sky for the case `clhist.cases.tpacf`: checked, as unit vectors, and made up."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyopencl.array as cl_array

from clhist.binned.spi import as_array

HALF_TURN = 180 * 60.0  # arcmin: the largest angle that there is

# Of the made-up data: points of a cluster, and the angles from its centre.
_CLUSTER = 10
_NEAREST, _FARTHEST = 1.0, 300.0  # arcmin


def unit_vectors(points: Any, name: str = "points") -> npt.NDArray[np.float64]:
    """Return points on the sky as unit vectors.

    Parameters
    ----------
    points : array of shape (n, 2)
        Right ascension (-360 to 360) and declination (-90 to 90) in degrees.
    name : str
        What errors call it.

    Returns
    -------
    float64 array of shape (n, 3)

    Raises
    ------
    TypeError, ValueError
        If that is not what `points` are.
    """
    points = as_array(name, points)
    host = points.get() if isinstance(points, cl_array.Array) else points
    if host.ndim != 2 or host.shape[1] != 2:
        raise ValueError(f"{name}: expected right ascension and declination, shape (n, 2), got shape {host.shape}")
    if host.dtype.kind not in "iuf":
        raise TypeError(f"{name}: expected numbers in degrees, got {host.dtype}")
    degrees = host.astype(np.float64)
    for column, what, limit in ((0, "right ascensions", 360), (1, "declinations", 90)):
        # The negation also finds NaN.
        wrong = np.flatnonzero(~(np.abs(degrees[:, column]) <= limit))
        if wrong.size:
            row = wrong[0]
            raise ValueError(
                f"{name}: expected {what} of -{limit} to {limit} degrees, got {degrees[row, column]:g} at point {row}"
            )
    longitude, latitude = np.radians(degrees.T)
    across = np.cos(latitude)
    return np.stack([across * np.cos(longitude), across * np.sin(longitude), np.sin(latitude)], axis=1)


def angular_edges(bins_per_decade: int = 5, smallest: float = 1.0, largest: float = 10000.0) -> npt.NDArray[np.float64]:
    """Return edges of bins in arcmin, `bins_per_decade` up from `smallest`; the last one, `largest`, may come sooner.

    The defaults are Parboil's: 20 bins.

    Raises
    ------
    ValueError
        If the angles are not 0 < smallest < largest <= 10800, or there is no bin in a decade.
    """
    if not 0 < smallest < largest <= HALF_TURN:
        raise ValueError(f"smallest, largest: expected 0 < smallest < largest <= 10800, got {smallest:g}, {largest:g}")
    if bins_per_decade < 1:
        raise ValueError(f"bins_per_decade: expected at least 1, got {bins_per_decade}")
    # The margin keeps a whole number from being rounded up.
    num_bins = np.ceil(bins_per_decade * np.log10(largest / smallest) - 1e-9)
    return np.append(smallest * 10 ** (np.arange(num_bins) / bins_per_decade), largest)


def check_edges(edges: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return `edges` in arcmin as float64; raise ValueError unless they increase from 0 or more to 10800 or less."""
    angles = np.asarray(as_array("edges", edges), np.float64)
    if angles.ndim != 1 or angles.size < 2:
        raise ValueError(f"edges: expected one dimension and at least 2 angles, got shape {angles.shape}")
    if not (angles[0] >= 0 and angles[-1] <= HALF_TURN and (np.diff(angles) > 0).all()):
        raise ValueError(f"edges: expected angles that increase, 0 to 10800 arcmin, got {angles}")
    return angles


def squared_chords(angles: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return the squared distances of unit vectors at `angles` in arcmin; that of 10800 is infinite: all are nearer."""
    arcmin = np.asarray(angles, np.float64)
    return np.where(arcmin < HALF_TURN, 4 * np.sin(np.radians(arcmin / 60) / 2) ** 2, np.inf)


def random_catalogue(num_points: int, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Return points without correlation, uniform on the whole sky: degrees, shape (num_points, 2)."""
    declination = np.degrees(np.arcsin(rng.uniform(-1, 1, num_points)))
    return np.stack([rng.uniform(0, 360, num_points), declination], axis=1)


def clustered_catalogue(num_points: int, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Return points of which half are in clusters, the others uniform: degrees, shape (num_points, 2).

    A cluster has ten points on average, at angles of 1 to 300 arcmin from its centre, as many in each octave.
    """
    points = random_catalogue(num_points, rng)
    members = num_points // 2
    centres = unit_vectors(random_catalogue(max(1, members // _CLUSTER), rng))
    centre = centres[rng.integers(0, len(centres), members)]
    angle = np.radians(np.exp(rng.uniform(np.log(_NEAREST), np.log(_FARTHEST), members)) / 60)
    step = rng.normal(size=(members, 3))
    # The remainder is tangential to the sphere.
    step -= (step * centre).sum(1, keepdims=True) * centre
    step /= np.linalg.norm(step, axis=1, keepdims=True)
    x, y, z = (np.cos(angle)[:, None] * centre + np.sin(angle)[:, None] * step).T
    points[:members] = np.degrees(np.stack([np.arctan2(y, x) % (2 * np.pi), np.arcsin(np.clip(z, -1, 1))], axis=1))
    return points
