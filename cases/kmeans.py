"""k-means clustering: Lloyd's algorithm on the device, each update of the centers a histogram (SC'20, section V-D).

Counts and vector sums of clusters are histograms of the labels, together with the inertia and the number of labels that
changed one call. `clhist.cases.kmeans_lloyd` has the steps, `kmeans_assign` and `kmeans_kernels` the OpenCL C.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from clhist import default_queue
from clhist.binned.spi import as_array
from clhist.cases.kmeans_lloyd import Lloyd, rows

__all__ = ["KMeansResult", "blobs", "kmeans"]


@dataclass(frozen=True)
class KMeansResult:
    """Clusters, with scikit-learn's names.

    Attributes
    ----------
    labels : int32 array of shape (n,)
        The nearest center of each point; an array of PyOpenCL if the points were one.
    centers : array of shape (k, d)
        Of the dtype of the points, NumPy's.
    inertia : float
        Sum of the squared distances of the points to their centers.
    n_iter : int
        How many iterations there were.
    history : tuple of float
        The inertia of the centers that each iteration began with, and at last `inertia`.

    Examples
    --------
    >>> import clhist.cases
    >>> points = np.array([[0.0, 0.0], [0.0, 1.0], [9.0, 9.0], [9.0, 8.0]])
    >>> clusters = clhist.cases.kmeans(points, 2, seed=0)
    >>> float(clusters.inertia)
    1.0
    """

    labels: Any
    centers: np.ndarray
    inertia: float
    n_iter: int
    history: tuple[float, ...]


def kmeans(
    points: Any,
    k: int,
    *,
    init: str | np.ndarray = "k-means++",
    max_iter: int = 300,
    tol: float = 1e-4,
    seed: int | None = None,
    queue: cl.CommandQueue | None = None,
    progress: Callable[[int, float], object] | None = None,
    chosen: Callable[[int], object] | None = None,
) -> KMeansResult:
    """Cluster points by Lloyd's algorithm, as ``sklearn.cluster.KMeans(k, n_init=1, algorithm="lloyd")`` does.

    Parameters
    ----------
    points : array of shape (n, d)
        float32 or float64, NumPy's or PyOpenCL's; other real numbers are converted to float64, as by scikit-learn. They
        are copied to the device once, centred.
    k : int
        How many clusters, at most n.
    init : {"k-means++", "random"} or array of shape (k, d)
        The centers to begin with. "random" draws points; "k-means++" draws each with the square of its distance to the
        nearest center so far as its weight: one fused argmax a center on the device, where points and distances stay.
    max_iter : int
        The most iterations.
    tol : float
        Stop when the squared shifts of all centers add up to at most this times the mean variance of the features;
        also when no label changes.
    seed : int, optional
        Of the random numbers for `init`.
    queue : pyopencl.CommandQueue, optional
        In order. Defaults to that of `points`, or the default one.
    progress : callable, optional
        Called after each iteration with its number and the inertia of the centers that it began with.
    chosen : callable, optional
        Called while k-means++ chooses the first centers, with how many there are: k at last.

    Returns
    -------
    KMeansResult
        Labels and inertia are those of the final centers. Where a cluster loses its last point, it gets the point that
        is farthest from its center, as in scikit-learn. With fewer different points than clusters, some clusters stay
        empty, with a UserWarning.

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong; it is named. Points with NaN or infinity are found on the device, before iterating.
    UnsupportedError
        If the points are float64 and the device has no double precision.

    Notes
    -----
    Sums of floats depend on the order of work-items: on a GPU two runs may differ in the last digits.

    With about as few different points as clusters, the number of iterations may differ from scikit-learn's: it
    relocates clusters to points at distances of rounding errors, and points at equal distances are taken in any order.

    Examples
    --------
    >>> import clhist.cases
    >>> points = np.array([[0.0, 0.0], [0.0, 1.0], [9.0, 9.0], [9.0, 8.0]])
    >>> clusters = clhist.cases.kmeans(points, 2, seed=0)
    >>> sorted(clusters.centers.tolist())
    [[0.0, 0.5], [9.0, 8.5]]
    """
    points = _checked_points(points)
    n, d = points.shape
    k, max_iter = _integer("k", k, 1), _integer("max_iter", max_iter, 1)
    if k > n:
        raise ValueError(f"k: expected at most the {n} points, got {k}")
    if isinstance(tol, bool) or not isinstance(tol, int | float | np.number) or not 0 <= tol < np.inf:
        raise ValueError(f"tol: expected a number of at least 0, got {tol!r}")
    random = np.random.default_rng(None if seed is None else _integer("seed", seed, 0))
    init = _checked_init(init, k, d)
    on_device = isinstance(points, cl_array.Array)
    queue = _checked_queue(queue, points)
    if on_device:
        cl.wait_for_events(points.events)
    lloyd = Lloyd(points if on_device else cl_array.to_device(queue, points), k, queue)
    if not np.isfinite(lloyd.mean).all():
        raise ValueError("points: expected finite numbers, got NaN, infinity, or too large ones to add up")
    # An upper bound of the squared distance of any two points.
    if not 4 * lloyd.variance * n * d < float(np.finfo(points.dtype).max):
        raise ValueError(f"points: expected squared distances that {points.dtype} can hold, got too large numbers")
    if isinstance(init, str):
        first, bits = int(random.integers(n)), int(random.integers(2**32))
        chosen_rows = lloyd.spread(first, bits, chosen) if init == "k-means++" else random.choice(n, k, replace=False)
        centers: np.ndarray = rows(points, chosen_rows)
    else:
        centers = init
    return _iterate(lloyd, points, centers, max_iter, tol * lloyd.variance, progress)


def blobs(n: int, d: int, k: int, *, seed: int = 0) -> np.ndarray:
    """Return `n` points of `d` features around `k` centers: float32 of shape (n, d), normally distributed.

    The first two features tell most of them apart, the others a little.
    """
    random = np.random.default_rng(seed)
    centers = random.standard_normal((k, d), np.float32)
    centers[:, :2] *= 20
    points = random.standard_normal((n, d), np.float32)
    points += centers[random.integers(0, k, n)]
    return points


def _iterate(
    lloyd: Lloyd,
    points: Any,
    centers: np.ndarray,
    max_iter: int,
    tolerance: float,
    progress: Callable[[int, float], object] | None,
) -> KMeansResult:
    """Iterate until the centers rest. The host looks at a step while the device is at the following one."""
    before, step, following = lloyd.start(centers), lloyd.new_step(), lloyd.new_step()
    lloyd.iterate(before, step)
    history: list[float] = []
    while True:
        lloyd.iterate(step, following)
        status = lloyd.read(step)
        history.append(status.inertia)
        if status.empty:
            lloyd.relocate(before, step, points)
            lloyd.iterate(step, following)
            status = status._replace(shift=lloyd.read(step).shift)
        if progress is not None:
            progress(len(history), status.inertia)
        if not status.changed or status.shift <= tolerance or len(history) == max_iter:
            break
        before, step, following = step, following, before
    status = lloyd.read(following)
    inertia = status.inertia
    if status.empty:
        number = np.count_nonzero(following.histograms["count"].get())
        warnings.warn(
            f"k: expected at most as many clusters as different points; {number} of {lloyd.k} clusters have points",
            UserWarning,
            stacklevel=3,
        )
    labels = following.label[: lloyd.n].astype(np.int32)
    return KMeansResult(
        labels if isinstance(points, cl_array.Array) else labels.get(),
        step.centers.get() + lloyd.mean,
        inertia,
        len(history),
        (*history, inertia),
    )


def _checked_points(points: Any) -> Any:
    points = as_array("points", points)
    if points.dtype.kind not in "biuf":
        raise TypeError(f"points: expected real numbers, got {points.dtype}")
    if points.ndim != 2 or not points.size:
        raise ValueError(f"points: expected shape (n, d) with at least one point and feature, got {points.shape}")
    if points.shape[0] >= 2**31:
        raise ValueError(f"points: expected less than 2^31, got {points.shape[0]}")
    if points.dtype not in (np.float32, np.float64):
        points = points.astype(np.float64)
    if isinstance(points, np.ndarray):
        return np.ascontiguousarray(points, points.dtype.newbyteorder("="))
    if not points.flags.c_contiguous:
        raise ValueError(f"points: expected a contiguous array, got one with strides {points.strides}")
    return points


def _checked_init(init: Any, k: int, d: int) -> Any:
    if isinstance(init, str):
        if init not in ("k-means++", "random"):
            raise ValueError(f"init: expected 'k-means++', 'random' or an array of centers, got {init!r}")
        return init
    init = as_array("init", init)
    centers = init.get() if isinstance(init, cl_array.Array) else init
    if centers.dtype.kind not in "biuf":
        raise TypeError(f"init: expected 'k-means++', 'random' or an array of centers, got {init!r}")
    if centers.shape != (k, d):
        raise ValueError(f"init: expected shape ({k}, {d}), got {centers.shape}")
    if not np.isfinite(centers).all():
        raise ValueError("init: expected finite numbers, got NaN or infinity")
    return centers


def _checked_queue(queue: Any, points: Any) -> cl.CommandQueue:
    queue = queue or default_queue(points)
    if not isinstance(queue, cl.CommandQueue):
        raise TypeError(f"queue: expected a pyopencl.CommandQueue or None, got {queue!r}")
    if queue.properties & cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE:
        raise ValueError("queue: expected one in order, got one out of order")
    if isinstance(points, cl_array.Array) and points.context != queue.context:
        raise ValueError(f"queue: expected a queue of the context {points.context}, got one of {queue.context}")
    return queue


def _integer(name: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name}: expected an int, got {value!r}")
    if value < least:
        raise ValueError(f"{name}: expected at least {least}, got {value}")
    return int(value)
