"""Pairs of points on the sky, counted by their angle: the batch of histograms behind the case `clhist.cases.tpacf`.

Angles are compared as squared chords, ``|a - b|^2 = 4 sin(angle / 2)^2``: near 0 the cosine of an angle has lost it to
rounding, in float32 below 1 arcmin. No pair is ever stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyopencl as cl
import pyopencl.array as cl_array

from clhist import HistogramKernel, Plan, default_queue, device_profile, operators
from clhist.cases.tpacf_data import angular_edges, check_edges, squared_chords, unit_vectors

# Work-items of a work-group of a GPU. The counts of all edges are in registers, of which 1024 work-items have too few:
# an H200 takes 51 ms in float64 where it takes 108 with the model's.
_GPU_GROUP = 256
# Points with which an element of the map compares its own.
_BLOCK = 256
# Pairs of one histogram, which counts in 32 bits; a launch has about as many.
_MOST_PAIRS = 2**31

# Points `a` to `a + rows`, each compared with so many `columns` from `b` on, or of point `b + row` if they `slide`; the
# first `longer` points with one more. The elements of the map from `start` on are theirs.
_TASK = np.dtype(
    [("start", np.int64), *((name, np.int32) for name in ("a", "rows", "b", "columns", "slide", "longer"))], align=True
)

_ARGUMENTS = (
    "const {real} *x, const {real} *y, const {real} *z, const {real} *bounds, const task_t *tasks, int num_tasks"
)

_ELEMENT = """
    int which = 0;
    for (int end = num_tasks; end - which > 1;) {
        const int middle = (which + end) / 2;
        if (tasks[middle].start <= i) which = middle; else end = middle;
    }
    const task_t task = tasks[which];
    const uint element = i - task.start;
    const int row = element % task.rows, begin = element / task.rows * BLOCK;
    const int columns = min(BLOCK, task.columns + (row < task.longer) - begin);
    const int p = task.a + row, q = task.b + row * task.slide + begin;
    const real px = x[p], py = y[p], pz = z[p];
"""

# Counting what is nearer than each edge takes no branches, so that compilers keep the counts in registers and compare
# several points at once: on a CPU six times as fast as a search for each pair, with 21 edges.
_FEW_EDGES = 100
_COUNT = """
    int nearer[EDGES];
    #pragma unroll
    for (int k = 0; k < EDGES; ++k)
        nearer[k] = 0;
    for (int j = q; j < q + columns; ++j) {
        const real dx = x[j] - px, dy = y[j] - py, dz = z[j] - pz;
        const real squared = dx * dx + dy * dy + dz * dz;
        #pragma unroll
        for (int k = 0; k < EDGES; ++k)
            nearer[k] += squared < bounds[k];
    }
    EMIT(0, nearer[0]);
    #pragma unroll
    for (int k = 1; k < EDGES; ++k)
        EMIT(k, nearer[k] - nearer[k - 1]);
    EMIT(EDGES, max(columns, 0) - nearer[EDGES - 1]);
"""

_SEARCH = """
    for (int j = q; j < q + columns; ++j) {
        const real dx = x[j] - px, dy = y[j] - py, dz = z[j] - pz;
        const real squared = dx * dx + dy * dy + dz * dz;
        int bin = 0;
        for (int end = EDGES; bin < end;) {
            const int middle = (bin + end) / 2;
            if (squared < bounds[middle]) end = middle; else bin = middle + 1;
        }
        EMIT(bin, 1);
    }
"""


def _real(dtype: npt.DTypeLike | None, device: cl.Device) -> np.dtype:
    if dtype is None:
        return np.dtype(np.float64 if device.double_fp_config else np.float32)
    real = np.dtype(dtype)
    if real not in (np.float32, np.float64):
        raise TypeError(f"dtype: expected float32 or float64, got {real}")
    return real


@lru_cache(maxsize=16)
def pair_kernel(context: cl.Context, num_edges: int, dtype: np.dtype) -> HistogramKernel:
    """Return the histogram of pairs by angle: one element a point and up to 256 others, one bin more than edges."""
    real = {np.dtype(np.float32): "float", np.dtype(np.float64): "double"}[dtype]
    few = num_edges <= _FEW_EDGES
    return HistogramKernel(
        context,
        operators.count(),
        arguments=_ARGUMENTS.format(real=real),
        map=_ELEMENT + (_COUNT if few else _SEARCH),
        preamble=f"typedef {real} real;\n#define EDGES {num_edges}\n#define BLOCK {_BLOCK}\n",
        structs={"task_t": _TASK},
        emits=num_edges + 1 if few else _BLOCK,
    )


class CataloguePairs:
    """Catalogues on a device, and which of them are paired: the histograms that one batch counts.

    Parameters
    ----------
    catalogues : mapping of str to float64 array of shape (n, 3)
        Unit vectors, as `unit_vectors` makes them, by name.
    pairings : sequence of (str, str)
        Which catalogues are paired; one with itself has each unordered pair of different points once.
    edges, queue, dtype
        As in `pair_counts`, which says what is raised.

    Attributes
    ----------
    num_pairs : int64 array of shape (pairings,)
        How many pairs each has.
    """

    def __init__(
        self,
        catalogues: Mapping[str, Any],
        pairings: Sequence[tuple[str, str]],
        edges: npt.ArrayLike | None = None,
        *,
        queue: cl.CommandQueue | None = None,
        dtype: npt.DTypeLike | None = None,
    ) -> None:
        self.queue = queue or default_queue()
        self.edges = check_edges(angular_edges() if edges is None else edges)
        self.dtype = _real(dtype, self.queue.device)
        self.kernel = pair_kernel(self.queue.context, self.edges.size, self.dtype)
        profile = device_profile(self.queue.device)
        self._choices = {"work_group_size": min(_GPU_GROUP, profile.work_group_size)} if profile.kind == "gpu" else {}
        # The first half of each catalogue is there again behind its end: a point that is paired with the half that
        # follows it, around the end, makes each pair of its catalogue once, and all points have as many.
        parts = [part for points in catalogues.values() for part in (points, points[: len(points) // 2])]
        begins = dict(zip(catalogues, np.cumsum([0, *map(len, parts)])[::2].tolist(), strict=False))
        split = [
            (number, task)
            for number, (a, b) in enumerate(pairings)
            for task in _tasks(begins[a], len(catalogues[a]), begins[b], None if a == b else len(catalogues[b]))
        ]
        tasks = np.array([(0, *task) for _, task in split], _TASK)
        blocks = -(-(tasks["columns"] + (tasks["longer"] > 0)) // _BLOCK)
        self._offsets = np.cumsum([0, *(tasks["rows"] * blocks.astype(np.int64))])
        tasks["start"] = self._offsets[:-1]
        self._pairing = np.array([number for number, _ in split], np.int64)
        self._pairs = tasks["rows"] * tasks["columns"].astype(np.int64) + tasks["longer"]
        self.num_pairs = np.zeros(len(pairings), np.int64)
        np.add.at(self.num_pairs, self._pairing, self._pairs)
        self._arguments: tuple[Any, ...] = ()
        if split:
            coordinates = np.concatenate(parts).T.astype(self.dtype, order="C")
            bounds = squared_chords(self.edges).astype(self.dtype)
            arrays = (cl_array.to_device(self.queue, array) for array in (*coordinates, bounds, tasks))
            self._arguments = (*arrays, len(tasks))

    def counts(self, *, progress: Callable[[int], Any] | None = None, **options: Any) -> npt.NDArray[np.int64]:
        """Return the pairs of each pairing and bin, int64 of shape (pairings, edges + 1); the last bins are open.

        `progress` is called after each launch with the number of pairs that it had; `options` are those of
        `clhist.HistogramKernel.__call__`.
        """
        choices = self._choices | options
        return self._count(lambda *a, **kw: self.kernel(*a, queue=self.queue, **kw, **choices), progress)

    def timed(
        self, *, progress: Callable[[int], Any] | None = None, **options: Any
    ) -> tuple[npt.NDArray[np.int64], dict[str, float]]:
        """Return the same, and the seconds of each stage on the device."""
        profiling = cl.CommandQueue(self.queue.context, self.queue.device, cl.command_queue_properties.PROFILING_ENABLE)
        choices, seconds = self._choices | options, dict[str, float]()

        def call(*args: Any, **kw: Any) -> cl_array.Array:
            counts, stages = self.kernel.timed(*args, queue=profiling, **kw, **choices)
            seconds.update({stage: seconds.get(stage, 0) + spent for stage, spent in stages.items()})
            return counts

        return self._count(call, progress), seconds

    def plan(self, **options: Any) -> Plan:
        """Return how the first launch is computed."""
        tasks = self._launches()[0].stop if self._arguments else 1
        size = int(self._offsets[tasks]) if self._arguments else 0
        choices = self._choices | options
        return self.kernel.plan(size, self.edges.size + 1, queue=self.queue, num_histograms=tasks, **choices)

    def _launches(self) -> list[slice]:
        """Return the tasks of each launch: as many as have about `_MOST_PAIRS` pairs."""
        number = (np.cumsum(self._pairs) - self._pairs) // _MOST_PAIRS
        begins = np.flatnonzero(np.diff(number, prepend=-1)).tolist()
        return [slice(*bounds) for bounds in pairwise([*begins, number.size])]

    def _count(self, call: Callable[..., cl_array.Array], progress: Callable[[int], Any] | None) -> Any:
        counts = np.zeros((self.num_pairs.size, self.edges.size + 1), np.int64)
        for tasks in self._launches():
            offsets = self._offsets[tasks.start : tasks.stop + 1]
            batch = call(*self._arguments, num_bins=counts.shape[1], size=int(self._offsets[-1]), offsets=offsets)
            np.add.at(counts, self._pairing[tasks], batch.get())
            if progress is not None:
                progress(int(self._pairs[tasks].sum()))
        return counts


def _tasks(a: int, num_a: int, b: int, num_b: int | None) -> Iterator[tuple[int, ...]]:
    """Yield a, rows, b, columns, slide and longer of each task for the points at `a` with those at `b`.

    `num_b` is None for the pairs of the points at `a` among themselves.
    """
    auto = num_b is None
    columns = max(0, num_a - 1) // 2 if num_b is None else num_b
    # For an even number of points, half of them have one partner more.
    longer = num_a // 2 if auto and num_a % 2 == 0 else 0
    most = max(1, _MOST_PAIRS // (columns + 1))
    for row in range(0, num_a, most):
        rows, more = min(most, num_a - row), min(max(0, longer - row), most)
        if columns or more:
            yield a + row, rows, a + row + 1 if auto else b, columns, int(auto), more


def pair_counts(
    a: Any,
    b: Any = None,
    edges: npt.ArrayLike | None = None,
    *,
    queue: cl.CommandQueue | None = None,
    dtype: npt.DTypeLike | None = None,
    **options: Any,
) -> npt.NDArray[np.int64]:
    """Return how many pairs of points there are in each range of angles.

    Parameters
    ----------
    a : array of shape (n, 2)
        Right ascension (-360 to 360) and declination (-90 to 90) of each point, in degrees.
    b : array of shape (m, 2), optional
        Every point of `a` is paired with every one of `b`. Without it the points of `a` are paired with each other,
        each unordered pair once.
    edges : array of shape (k,), optional
        Increasing angles in arcmin, 0 to 10800. Defaults to `angular_edges` ().
    queue : pyopencl.CommandQueue, optional
        Defaults to the default device's.
    dtype : dtype-like, optional
        In what angles are computed: float64, or float32, which may misplace pairs within 0.0005 arcmin of an edge at
        1 arcmin, and within 0.02 of one at 10000. Defaults to float64 where the device has it.
    **options
        Of `clhist.HistogramKernel.__call__`, such as `memory`.

    Returns
    -------
    int64 array of shape (k + 1,)
        Pairs nearer than ``edges[0]``, those in each ``edges[j] <= angle < edges[j + 1]``, and those beyond. An edge
        of 10800, 180 degrees, has the pairs at it before it.

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong; it is named, and nothing is enqueued.
    UnsupportedError
        If float64 is asked for on a device that lacks it.

    Examples
    --------
    >>> import clhist.cases
    >>> sky = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.5]])
    >>> clhist.cases.pair_counts(sky, edges=[70.0, 100.0])
    array([1, 1, 1])
    """
    catalogues = {"a": unit_vectors(a, "a")}
    if b is not None:
        catalogues["b"] = unit_vectors(b, "b")
    pairs = CataloguePairs(catalogues, [("a", "a" if b is None else "b")], edges, queue=queue, dtype=dtype)
    return pairs.counts(**options)[0]
