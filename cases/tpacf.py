"""Two-point angular correlation (TPACF of Parboil; SC'20, section V-D2 and Table III) of points on the sky.

The pairs within the data (DD), between the data and each random catalogue (DR) and within each random catalogue (RR)
are counted by their angle, in one batch of histograms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyopencl as cl

from clhist.cases.tpacf_data import unit_vectors
from clhist.cases.tpacf_pairs import CataloguePairs

ESTIMATORS: dict[str, Callable[..., npt.NDArray[np.float64]]] = {
    "landy-szalay": lambda dd, dr, rr: (dd - 2 * dr + rr) / rr,
    "hamilton": lambda dd, dr, rr: dd * rr / dr**2 - 1,
    "davis-peebles": lambda dd, dr, rr: dd / dr - 1,
    "natural": lambda dd, dr, rr: dd / rr - 1,
}


@dataclass(frozen=True)
class AngularCorrelation:
    """The correlation function w of angles between `edges`, and the pairs that it was made of.

    Attributes
    ----------
    edges : float64 array of shape (k + 1,)
        In arcmin.
    dd, dr, rr : int64 arrays of shape (k + 2,), (sets, k + 2), (sets, k + 2)
        Pairs of the data, of the data with each random catalogue, and of each random catalogue. The first and the last
        bins are those nearer than the first edge and beyond the last.
    w, error : float64 arrays of shape (k,)
        w(theta) and its Poisson error ``(1 + w) / sqrt(dd)``. NaN or infinite where there are no pairs to divide by.

    Examples
    --------
    >>> import clhist.cases
    >>> rng = np.random.default_rng(0)
    >>> data, random = rng.uniform(0, 10, (200, 2)), rng.uniform(0, 10, (400, 2))
    >>> correlation = clhist.cases.angular_correlation(data, random, edges=[60.0, 120.0, 240.0])
    >>> correlation.w.shape, int(correlation.dd.sum())
    ((2,), 19900)
    """

    edges: npt.NDArray[np.float64]
    dd: npt.NDArray[np.int64]
    dr: npt.NDArray[np.int64]
    rr: npt.NDArray[np.int64]
    w: npt.NDArray[np.float64]
    error: npt.NDArray[np.float64]

    @classmethod
    def of_counts(
        cls, edges: npt.NDArray[np.float64], counts: npt.NDArray[np.int64], estimator: str = "landy-szalay"
    ) -> AngularCorrelation:
        """Return the correlation of what `correlation_pairs` has counted; `estimator` is one of `ESTIMATORS`."""
        dd, dr, rr = counts[0], counts[1::2], counts[2::2]
        # Of all pairs there are; the sum of all random catalogues counts as one large one.
        shares = [histogram[1:-1] / histogram.sum() for histogram in (dd, dr.sum(0), rr.sum(0))]
        with np.errstate(divide="ignore", invalid="ignore"):
            w = ESTIMATORS[estimator](*shares)
            error = (1 + w) / np.sqrt(dd[1:-1])
        return cls(edges, dd, dr, rr, w, error)


def correlation_pairs(
    data: Any,
    random: Any,
    edges: npt.ArrayLike | None = None,
    *,
    queue: cl.CommandQueue | None = None,
    dtype: npt.DTypeLike | None = None,
) -> CataloguePairs:
    """Return what `angular_correlation` counts, on the device: DD, then DR and RR of each random catalogue."""
    several = isinstance(random, list | tuple) or np.ndim(random) == 3
    sets = {f"random[{k}]": random[k] for k in range(len(random))} if several else {"random": random}
    if not sets:
        raise ValueError("random: expected at least one catalogue, got none")
    catalogues = {name: unit_vectors(points, name) for name, points in {"data": data, **sets}.items()}
    for name, points in catalogues.items():
        if len(points) < 2:
            raise ValueError(f"{name}: expected at least 2 points, got {len(points)}")
    pairings = [(first, name) for name in sets for first in ("data", name)]
    return CataloguePairs(catalogues, [("data", "data"), *pairings], edges, queue=queue, dtype=dtype)


def angular_correlation(
    data: Any,
    random: Any,
    *,
    edges: npt.ArrayLike | None = None,
    estimator: str = "landy-szalay",
    queue: cl.CommandQueue | None = None,
    dtype: npt.DTypeLike | None = None,
    **options: Any,
) -> AngularCorrelation:
    """Return the two-point angular correlation function of points on the sky.

    Parameters
    ----------
    data : array of shape (n, 2)
        Right ascension and declination of each point, in degrees.
    random : array of shape (m, 2) or (sets, m, 2), or list of arrays of shape (m, 2)
        Points without correlation on the same part of the sky, or several sets of them.
    edges, queue, dtype, **options
        As in `pair_counts`; `progress` is called with numbers of pairs as they are done.
    estimator : {"landy-szalay", "hamilton", "davis-peebles", "natural"}
        ``(DD - 2 DR + RR) / RR`` (Landy and Szalay 1993), ``DD RR / DR^2 - 1``, ``DD / DR - 1`` or ``DD / RR - 1``, of
        shares of all pairs.

    Returns
    -------
    AngularCorrelation
        w, its error, and the counts.

    Raises
    ------
    TypeError, ValueError, UnsupportedError
        As `pair_counts`.

    Examples
    --------
    >>> import clhist.cases
    >>> rng = np.random.default_rng(0)
    >>> data, random = rng.uniform(0, 10, (200, 2)), rng.uniform(0, 10, (400, 2))
    >>> correlation = clhist.cases.angular_correlation(data, random, edges=[60.0, 120.0, 240.0])
    >>> correlation.edges, int(correlation.rr.sum())
    (array([ 60., 120., 240.]), 79800)
    """
    if estimator not in ESTIMATORS:
        raise ValueError(f"estimator: expected one of {', '.join(ESTIMATORS)}, got {estimator!r}")
    pairs = correlation_pairs(data, random, edges, queue=queue, dtype=dtype)
    return AngularCorrelation.of_counts(pairs.edges, pairs.counts(**options), estimator)
