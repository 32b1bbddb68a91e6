"""Radial distribution functions: the interface of `freud.density.RDF`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyopencl as cl

from clhist._core.spi import HoldsBins, Updates, check_layout, is_device_array, refuse_missing
from clhist.operators.c_types import check_booleans, integer
from clhist.rdf.box import Box
from clhist.rdf.counting import PairCounter, Particles, box_within

_MODES = ("exact", "finite_size")


class RDF(HoldsBins, instead="its counts can be: rdf.bin_counts"):
    """The radial distribution function of systems of particles: ``freud.density.RDF``.

    Parameters
    ----------
    bins : int
        How many bins of equal width.
    r_max : float
        Where the last one ends, which does not belong to it; at most half the distance of opposite faces of the box.
    r_min : float
        Where the first one begins.
    normalization_mode : {"exact", "finite_size"}
        The latter makes small systems tend to 1 as well, by N / (N - 1).
    queue : pyopencl.CommandQueue, optional
        Defaults to the default one.

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong; it is named.

    Notes
    -----
    Distances are computed in the precision of the positions, and compared with the edges of bins as squares, without
    further rounding: counts are the same on every device.

    Examples
    --------
    >>> from clhist.rdf import RDF
    >>> points = np.random.default_rng(0).uniform(-5, 5, (1000, 3))
    >>> rdf = RDF(bins=50, r_max=4)
    >>> rdf.compute(([10, 10, 10], points)).bin_counts.sum()
    np.int64(267644)
    """

    def __init__(
        self,
        bins: int,
        r_max: float,
        r_min: float = 0,
        normalization_mode: str = "exact",
        *,
        queue: cl.CommandQueue | None = None,
    ) -> None:
        self.nbins = integer("bins", bins, 1)
        self.r_max, self.r_min = edges_of(r_max, r_min)
        self.mode, self._queue = normalization_mode, queue
        self._counter: PairCounter | None = None
        self._key: tuple[Any, ...] | None = None
        self._frames = 0
        self._updates = Updates("RDF", "call compute with reset=True for all systems again")

    @property
    def mode(self) -> str:
        """How it is normalised."""
        return self._mode

    @mode.setter
    def mode(self, value: str) -> None:
        if value not in _MODES:
            raise ValueError(f"normalization_mode: expected one of {', '.join(_MODES)}, got {value!r:.60}")
        self._mode = value

    def compute(
        self,
        system: Any,
        query_points: Any = None,
        neighbors: Mapping[str, Any] | None = None,
        reset: bool = True,
        *,
        types: Any = None,
        query_types: Any = None,
        groups: Any = None,
        query_groups: Any = None,
    ) -> RDF:
        """Count the pairs of a system; return this object.

        Parameters
        ----------
        system : tuple of (box, points), or object with `box` and `points`
            The box is freud's, three lengths, a matrix with the edges as columns, or three lengths and three tilt
            factors; flat if the third length is 0. Points are an array of shape (N, 3), of NumPy or PyOpenCL. A frame
            of MDAnalysis is one, too.
        query_points : array of shape (Q, 3), optional
            Each is paired with each point. Defaults to the points, of which none is paired with itself.
        neighbors : dict, optional
            ``{"exclude_ii": bool}``: whether points and queries with the same number are not paired. Also freud's
            ``"mode"`` and ``"r_max"``, which can only be "ball" and the end of the bins.
        reset : bool
            Whether to forget what was counted before, rather than to add to it.
        types, query_types : array of shape (N,) and (Q,), optional
            Of what type each point is, for `partial_rdf`: numbers or texts.
        groups, query_groups : array of int of shape (N,) and (Q,), optional
            Those of one group, such as a molecule, are not paired.

        Raises
        ------
        TypeError, ValueError
            If an argument is wrong; it is named, and nothing has been counted.
        RuntimeError
            If an exception, such as that of Ctrl-C, ended an earlier call while it changed the counts, and `reset` is
            False.
        """
        check_booleans(reset=reset)
        box, points = system_of(system)
        points = points_of("points", points)
        same = query_points is None
        queries = points if same else points_of("query_points", query_points)
        excluded = self._is_excluded(neighbors, same)
        names, of_points, of_queries = types_of(types, query_types, len(points), None if same else len(queries))
        groups, query_groups = groups_of(groups, query_groups, len(points), None if same else len(queries))
        if excluded and not same:
            if groups is not None:
                raise ValueError("neighbors: expected exclude_ii to be False where there are groups, got True")
            # A group for each number excludes exactly the pairs of equal numbers.
            groups, query_groups = (np.arange(len(positions), dtype=np.int32) for positions in (points, queries))
        simulation_box = box_within(box, self.r_max, *([points] if same else [points, queries]))
        dtype = np.result_type(points.dtype, queries.dtype)
        key = same, excluded, names, groups is not None, dtype
        if reset or self._key is None:
            self._begin(key)
        elif key != self._key:
            raise ValueError("reset: expected True, since types, groups, queries or dtypes differ, got False")
        self._updates.check()
        assert self._counter is not None
        others = None if same else Particles(queries, of_queries, query_groups)
        self._counter.add(simulation_box, Particles(points, of_points, groups), others, self._updates.begin)
        # Until `end`, frames and particles do not match the counts: an exception now must invalidate all of them.
        self._updates.begin()
        self._frames += 1
        self._box: Box = simulation_box
        numbers = [
            np.full(1, len(positions)) if label is None else np.bincount(label, minlength=len(names))
            for positions, label in ((queries, of_points if same else of_queries), (points, of_points))
        ]
        self._numbers = numbers[0], numbers[1]
        # The kernel counts no particle with itself, at distance 0: these pairs are added to the result.
        if same and not excluded and self.r_min <= 0:
            self._own += numbers[0]
        self._updates.end()
        return self

    def _begin(self, key: tuple[Any, ...]) -> None:
        self._updates.begin()
        counter = self._counter
        # Systems of the same kind share buffers and kernels.
        if counter is not None and key == self._key:
            counter.clear()
        else:
            same, _, names, excludes, dtype = key
            options = {"types": len(names), "excludes": excludes, "same": same, "dtype": dtype, "queue": self._queue}
            counter = PairCounter(self.nbins, self.r_min, self.r_max, **options)
        own = np.zeros(len(key[2]), np.int64)
        self._counter, self._key, self._frames, self._own = counter, key, 0, own
        self._updates.end()

    def _is_excluded(self, neighbors: Mapping[str, Any] | None, same: bool) -> bool:
        options = {} if neighbors is None else neighbors
        supported: dict[str, Any] = {"mode": "ball", "r_max": self.r_max}
        if not isinstance(options, Mapping) or {*options} - {*supported, "exclude_ii"}:
            raise TypeError(f"neighbors: expected a dict of mode, r_max and exclude_ii, got {neighbors!r:.60}")
        for name, value in supported.items():
            if options.get(name, value) != value:
                raise ValueError(f"neighbors: expected the {name} {value!r}, got {options[name]!r:.60}")
        check_booleans(exclude_ii=options.get("exclude_ii", same))
        return bool(options.get("exclude_ii", same))

    @property
    def partial_counts(self) -> np.ndarray:
        """Counts of pairs of a query and a point by their types, int64 of shape (types, types, bins)."""
        if not self._frames or self._counter is None:
            raise AttributeError("nothing has been counted yet: call compute first")
        self._updates.check()
        counts = self._counter.counts()
        kinds = np.arange(len(self._own))
        # Each particle with itself, at distance 0.
        counts[kinds, kinds, 0] += self._own
        return counts

    @property
    def bin_counts(self) -> np.ndarray:
        """Counts of pairs of a query and a point, int64 of shape (bins,)."""
        counts: np.ndarray = self.partial_counts.sum(axis=(0, 1))
        return counts

    @property
    def types(self) -> list[Any]:
        """The types, in the order of `partial_counts`."""
        if self._key is None:
            raise AttributeError("nothing has been counted yet: call compute first")
        return list(self._key[2])

    @property
    def bin_edges(self) -> np.ndarray:
        """Edges of the bins, float64 of shape (bins + 1,)."""
        return np.linspace(self.r_min, self.r_max, self.nbins + 1)

    @property
    def bin_centers(self) -> np.ndarray:
        """Middles of the bins, float64 of shape (bins,)."""
        edges = self.bin_edges
        middles: np.ndarray = (edges[1:] + edges[:-1]) / 2
        return middles

    @property
    def bounds(self) -> tuple[float, float]:
        """Where the first bin begins and the last ends."""
        return self.r_min, self.r_max

    @property
    def rdf(self) -> np.ndarray:
        """The radial distribution function, float64 of shape (bins,), for the volume and numbers of the last frame."""
        return self._normalised(self.bin_counts, *(numbers.sum() for numbers in self._numbers))

    @property
    def partial_rdf(self) -> np.ndarray:
        """The same of each two types, float64 of shape (types, types, bins)."""
        queries, points = self._numbers
        return self._normalised(self.partial_counts, queries[:, None, None], points[:, None])

    @property
    def n_r(self) -> np.ndarray:
        """The mean number of points of a query within the end of each bin, float64 of shape (bins,)."""
        with np.errstate(invalid="ignore"):
            neighbors: np.ndarray = np.cumsum(self.bin_counts) / (self._frames * self._numbers[0].sum())
        return neighbors

    def _normalised(self, counts: np.ndarray, queries: Any, points: Any) -> np.ndarray:
        edges = self.bin_edges
        # Areas of rings in a flat box, volumes of shells in others.
        shells = np.pi * np.diff(edges**2) if self._box.is_flat else 4 / 3 * np.pi * np.diff(edges**3)
        # Pairs found per frame over those of uniform points: queries * points * shell / volume.
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio: np.ndarray = counts * self._box.volume / (shells * points * (queries * self._frames))
            return ratio * (queries / (queries - 1)) if self.mode == "finite_size" else ratio


def edges_of(r_max: Any, r_min: Any) -> tuple[float, float]:
    """Return the ends of the bins, checked."""
    for name, value in (("r_max", r_max), ("r_min", r_min)):
        if not isinstance(value, int | float | np.number) or isinstance(value, bool):
            raise TypeError(f"{name}: expected a number, got {value!r:.60}")
    if not 0 <= r_min < r_max < np.inf:
        raise ValueError(f"r_max: expected 0 <= r_min < r_max, got r_min={r_min!r}, r_max={r_max!r}")
    return float(r_max), float(r_min)


def system_of(system: Any) -> tuple[Any, Any]:
    """Return the box and the points of what packages have for a system."""
    if hasattr(system, "triclinic_dimensions"):  # a frame of MDAnalysis
        return system.triclinic_dimensions, system.positions
    if hasattr(system, "box") and hasattr(system, "points"):
        return system.box, system.points
    if not isinstance(system, list | tuple) or len(system) != 2:
        raise TypeError(f"system: expected a tuple of a box and points, got {type(system).__name__}")
    box = system[0]
    # For `box_of` six numbers would be lengths and angles; here they are freud's lengths and tilt factors.
    if not hasattr(box, "to_matrix") and np.shape(box) == (6,):
        box = dict(zip(("Lx", "Ly", "Lz", "xy", "xz", "yz"), np.asarray(box).tolist(), strict=True))
    return box, system[1]


def points_of(name: str, value: Any) -> Any:
    """Return points as an array of float32 or float64."""
    array = value if is_device_array(value) else refuse_missing(name, value)
    if array.dtype.kind not in "iuf":
        raise TypeError(f"{name}: expected an array of real numbers, got {array.dtype}")
    if len(array.shape) != 2 or array.shape[1] != 3:
        raise ValueError(f"{name}: expected shape (N, 3), got {array.shape}")
    if is_device_array(array):
        check_layout(name, array)
    # float32 holds all halves; integers need float64.
    if array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float32 if array.dtype == np.float16 else np.float64)
    if isinstance(array, np.ndarray) and not np.isfinite(array).all():
        raise ValueError(f"{name}: expected finite numbers, got others")
    return array


def types_of(types: Any, query_types: Any, points: int, queries: int | None) -> tuple[tuple[Any, ...], Any, Any]:
    """Return the types, and the number of that of each point and each query."""
    labels = _labels("types", types, points, "query_types", query_types, queries)
    if labels is None:
        return (None,), None, None
    names, numbers = np.unique(np.concatenate(labels), return_inverse=True)
    numbers = numbers.reshape(-1).astype(np.int32)
    # Particles of a single type need no labels: the counts of its pairs are all counts.
    if len(names) == 1:
        return tuple(names.tolist()), None, None
    return tuple(names.tolist()), numbers[:points], numbers[points:] if queries is not None else None


def groups_of(groups: Any, query_groups: Any, points: int, queries: int | None) -> tuple[Any, Any]:
    """Return the number of the group of each point and each query."""
    labels = _labels("groups", groups, points, "query_groups", query_groups, queries)
    if labels is None:
        return None, None
    numbers = np.unique(np.concatenate(labels), return_inverse=True)[1].reshape(-1).astype(np.int32)
    return numbers[:points], numbers[points:] if queries is not None else numbers


def _labels(
    name: str, first: Any, points: int, other: str, second: Any, queries: int | None
) -> list[np.ndarray] | None:
    if queries is None and second is not None:
        raise TypeError(f"{other}: expected none without query_points, got {type(second).__name__}")
    if first is None and second is None:
        return None
    labels = []
    for argument, value, number in ((name, first, points), (other, second, queries)):
        if number is None:
            continue
        if value is None:
            raise TypeError(
                f"{argument}: expected labels, as there are {name if argument == other else other}, got None"
            )
        array = refuse_missing(argument, value)
        if array.shape != (number,):
            raise ValueError(f"{argument}: expected shape ({number},), got {array.shape}")
        labels.append(array)
    return labels
