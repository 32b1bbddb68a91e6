"""Points on a device and Lloyd's iteration over them: the steps that `clhist.cases.kmeans` is made of."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from clhist import Bound, HistogramKernel, device_profile
from clhist.cases.kmeans_assign import ROWS, Tile
from clhist.cases.kmeans_kernels import PICK, ROUND, Shape, kernels, sums_of_slices

# Up to so many components of centers, one fused sweep holds the sums in registers.
FUSED_CELLS = 64
# Features of a slice, the better first: a warp reads whole lines of 128 or 64 bytes of float32.
_SLICES = 32, 16
# Bytes of local memory from which on the assignment uses two buffers on a GPU.
_TWO_BUFFERS = 48 << 10
_CHUNK = 64 * ROWS  # points that a work-item of a CPU assigns
# Centers of k-means++ that are chosen between two waits for the device.
_PICKS = 16
# Vectors of points that a CPU adds up before it updates the histogram.
_ROUNDS = 256


@dataclass
class LloydStep:
    """The results of one iteration, on the device.

    Attributes
    ----------
    label : int32 or uint8 array of shape (n,) or a little more
        The nearest of the centers that the iteration began with.
    histograms : dict of arrays
        Of the labels: "count" (k,), "sum" (slices, k, features of a slice), "inertia" (d,), by feature, and "changed"
        (1,). There is one slice of d features unless `Shape.slice` says otherwise.
    centers : array of shape (k, d)
        Where it moved them; `packed` and `half_norm` are the same as `assign` takes them, `shift` how far, squared.
    """

    label: cl_array.Array
    histograms: dict[str, cl_array.Array]
    centers: cl_array.Array
    packed: cl_array.Array
    half_norm: cl_array.Array
    shift: cl_array.Array
    done: cl.Event | None = None


class Status(NamedTuple):
    """The numbers of a step that the host reads."""

    inertia: float
    shift: float
    changed: bool
    empty: bool


class Lloyd:
    """Points on a device, centred, and Lloyd's iteration over them.

    Parameters
    ----------
    points : pyopencl.array.Array of shape (n, d)
        float32 or float64.
    k : int
        How many clusters.
    queue : pyopencl.CommandQueue
        In order.
    tile : Tile, optional
        How a GPU assigns; defaults to what suits the dtype.
    fused : bool, optional
        Whether one sweep does it all; defaults to whether the centers have few enough components.
    on_cpu : bool, optional
        Whether to compute as suits a CPU; defaults to what the device is.
    exact : bool, optional
        Whether the sums of clusters are exact, so that the same labels give the same means, bit for bit, on every
        device that has double precision. Not in one sweep, which adds up in registers.

    Attributes
    ----------
    mean : array of shape (d,)
        What was subtracted from the points.
    variance : float
        Mean of the variances of the features. It and `mean` are not finite if the points are not.
    """

    def __init__(
        self,
        points: cl_array.Array,
        k: int,
        queue: cl.CommandQueue,
        *,
        tile: Tile | None = None,
        fused: bool | None = None,
        on_cpu: bool | None = None,
        exact: bool = False,
    ) -> None:
        (self.n, self.d), self.k, self.queue = points.shape, k, queue
        profile = device_profile(queue.device)
        self.fused = not exact and (k * self.d <= FUSED_CELLS if fused is None else fused)
        self.shape = Shape(
            np.dtype(points.dtype),
            np.dtype(np.float64 if queue.device.double_fp_config else np.float32),
            self.d,
            k if self.fused else 0,
            profile.kind == "cpu" if on_cpu is None else on_cpu,
            tile or Tile(8 if points.dtype == np.float32 else 4, buffers=1 + (profile.local_memory >= _TWO_BUFFERS)),
            vector_bytes=_vector_bytes(queue.device),
            exact=exact,
        )
        if not self.fused and not self.shape.on_cpu:
            room = profile.local_memory // self.shape.add(self.shape.dtype).accumulator.itemsize
            self.shape = self.shape._replace(slice=_slice(k, self.d, room))
        self._kernels = kernels(queue.context, self.shape)
        # Kernels of its own: they hold their arguments, which another thread would change.
        program = self._kernels.program
        self._move_kernel, self._distances = cl.Kernel(program, "move"), cl.Kernel(program, "distances")
        self._assign_kernel = None if self.fused else cl.Kernel(program, "assign")
        self._reader = cl.CommandQueue(queue.context, queue.device)
        lanes = self.shape.lanes
        self._stride = -(-self.n // lanes) * lanes
        groups = self._stride // lanes
        elements = profile.hardware_threads if self.shape.on_cpu else max(1, profile.hardware_threads // 2)
        self._rounds = -(-groups // elements)
        if self.shape.on_cpu:
            self._rounds = min(self._rounds, _ROUNDS)
        self._elements = -(-groups // self._rounds)
        size = self._elements if self.fused else self.n * self.d // self.shape.width
        num_bins: dict[str, Any] = {"count": k, "sum": (1, k, self.d), "inertia": self.d, "changed": 1}
        self._updates: dict[str, tuple[HistogramKernel, dict[str, Any]]] = {}
        if self.shape.slice:
            num_bins.pop("sum")
            slices, wide = self.shape.slices, self.shape.slice
            choices = {"num_bins": (k, wide), "num_histograms": slices}
            # Use global memory: partitioning so few, adjacent bins is slow.
            if slices == 1:
                choices = {"num_bins": (1, k, wide), "memory": "global"}
            kernel = sums_of_slices(queue.context, self.shape, self.n)
            self._updates["sums"] = kernel, choices | {"size": self.n * wide * slices}
            size = -(-self.n // ROUND) * self.d
        self._updates["update"] = self._kernels.update, {"num_bins": num_bins, "size": size}
        self._calls: dict[tuple[int, int], tuple[LloydStep, LloydStep, dict[str, Bound]]] = {}
        self._centre(points)

    def _centre(self, points: cl_array.Array) -> None:
        """Subtract their mean from the points, and see whether they are finite: no sum with a NaN or infinity is."""
        wanted = (self.d, self._stride) if self.fused else (self.n, self.d)
        self.points = cl_array.zeros(self.queue, wanted, self.shape.dtype)
        size = self.n * self.d // self.shape.width

        def sums(mean: np.ndarray) -> dict[str, cl_array.Array]:
            arguments = (points, cl_array.to_device(self.queue, mean), self.points, self._stride)
            return self._kernels.centre(*arguments, num_bins=self.d, size=size, queue=self.queue)

        with np.errstate(over="ignore"):
            self.mean = (sums(np.zeros(self.d, self.shape.dtype))["sum"].get() / self.n).astype(self.shape.dtype)
        self.variance = float(sums(self.mean)["square"].get().sum() / (self.n * self.d))

    def new_step(self) -> LloydStep:
        """Return room for what a step leaves; no label is that of a cluster yet."""

        def zeros(shape: Any, dtype: np.dtype) -> cl_array.Array:
            return cl_array.zeros(self.queue, shape, dtype)

        real, label, tiles = self.shape.dtype, self.shape.label, -(-self.k // self.shape.columns)
        sums = self.shape.slices, self.k, self.shape.slice or self.d
        half_norm = np.full(tiles * self.shape.columns, np.inf, real)  # of no center: the last to be nearest
        return LloydStep(
            cl_array.empty(self.queue, self._stride, label).fill(np.iinfo(label).max),
            {
                "count": zeros(self.k, np.dtype(np.int32)),
                "sum": zeros(sums, real),
                "inertia": zeros(self.d, self.shape.wide),
                "changed": zeros(1, np.dtype(np.int32)),
            },
            zeros((self.k, self.d), real),
            zeros((tiles, self.shape.depths, self.shape.columns), real),
            cl_array.to_device(self.queue, half_norm),
            zeros(self.k, real),
        )

    def start(self, centers: np.ndarray) -> LloydStep:
        """Return the step before the first, which leaves `centers`, an array of shape (k, d)."""
        step = self.new_step()
        step.centers.set(np.ascontiguousarray(centers - self.mean, self.shape.dtype))
        # No cluster has a point yet, so the centers stay where they are.
        self._move(step, step)
        return step

    def iterate(self, before: LloydStep, step: LloydStep) -> None:
        """Enqueue an iteration that begins with the centers of `before`, into `step`."""
        self._assign(before, step)
        for bound in self._bound(before, step).values():
            bound()
        step.done = self._move(before, step)
        self.queue.flush()

    def timed(self, before: LloydStep, step: LloydStep) -> dict[str, float]:
        """Iterate, and return the seconds that each kernel took; the queue must have PROFILING_ENABLE."""
        assigned, stages = self._assign(before, step), dict[str, float]()
        for name, bound in self._bound(before, step).items():
            (kernel_stages,) = bound.timed()
            stages |= {f"{name}: {stage}": value for stage, value in kernel_stages.items()}
        moved = self._move(before, step)
        moved.wait()
        events = {"move": moved} if assigned is None else {"assign": assigned, "move": moved}
        seconds = {name: (event.profile.end - event.profile.start) * 1e-9 for name, event in events.items()}
        return seconds | stages

    def plan(self) -> tuple[Any, ...]:
        """Return the plans of the sweeps that an iteration makes."""
        plans = (kernel.plan(queue=self.queue, **choices) for kernel, choices in self._updates.values())
        return tuple(
            plan
            for kernel_plans in plans
            for plan in (kernel_plans if isinstance(kernel_plans, tuple) else (kernel_plans,))
        )

    def read(self, step: LloydStep) -> Status:
        """Wait for a step, and no longer, and return what came of it."""
        assert step.done is not None  # it was enqueued
        waiting = [step.done]

        def read(array: cl_array.Array) -> np.ndarray:
            host = np.empty(array.shape, array.dtype)
            cl.enqueue_copy(self._reader, host, _buffer(array), wait_for=waiting)
            return host

        results = {name: read(step.histograms[name]) for name in ("inertia", "changed", "count")}
        shift = float(read(step.shift).sum(dtype=np.float64))
        return Status(float(results["inertia"].sum()), shift, bool(results["changed"][0]), not results["count"].all())

    def relocate(self, before: LloydStep, step: LloydStep, points: Any) -> None:
        """Give the empty clusters of `step` the points that are farthest from their centers, as scikit-learn does.

        On the host: it is seldom needed. `points` are those of the caller; a cluster for which none is left goes to
        the center of the largest. Where all points of a cluster are equal, they are not apart from its center, even if
        that is rounded: moving them would never end.
        """
        distance = cl_array.empty(self.queue, self.n, self.shape.dtype)
        buffers = map(_buffer, (before.centers, step.label, distance))
        self._distances(self.queue, (self.n,), None, _buffer(self.points), np.int64(self._stride), *buffers)
        count, sums = (step.histograms[name].get() for name in ("count", "sum"))
        label, far = step.label.get(), distance.get()
        of_cluster = sums.swapaxes(0, 1)  # the same numbers, of shape (k, slices, features of a slice)
        padding = (0, of_cluster[0].size - self.d)
        empty = np.flatnonzero(count == 0)
        if far[~_of_equal_points(points, label)].max(initial=0) > 0:
            for cluster, p in zip(empty, np.argpartition(far, -len(empty))[: -len(empty) - 1 : -1], strict=True):
                x = np.pad(rows(points, [p])[0] - self.mean, padding).reshape(of_cluster.shape[1:])
                of_cluster[label[p]] -= x
                count[label[p]] -= 1
                of_cluster[cluster], count[cluster] = x, 1
        empty, largest = np.flatnonzero(count == 0), count.argmax()
        # The sums of the largest cluster make a center with the same bits.
        of_cluster[empty], count[empty] = of_cluster[largest], count[largest]
        step.histograms["count"].set(count)
        step.histograms["sum"].set(sums)
        step.done = self._move(before, step)

    def spread(self, first: int, seed: int, chosen: Callable[[int], object] | None = None) -> list[int]:
        """Return the points that k-means++ begins with (Arthur and Vassilvitskii 2007), the first of them given.

        `chosen` is called every now and then with how many there are.
        """
        nearest = cl_array.empty(self.queue, self.n, self.shape.dtype).fill(np.inf)
        scale = 1 / self.variance if self.variance > 0 else 1.0
        picks = [cl_array.to_device(self.queue, np.array([(0, first)], PICK.dtype))]
        for number in range(1, self.k):
            arguments = (self.points, self._stride, picks[-1], nearest, scale, number, seed)
            picks.append(self._kernels.seed(*arguments, num_bins=1, size=self.n, queue=self.queue))
            if chosen is not None and (number % _PICKS == 0 or number == self.k - 1):
                self.queue.finish()
                chosen(number + 1)
        return [int(pick.get()["index"][0]) for pick in picks]

    def _bound(self, before: LloydStep, step: LloydStep) -> dict[str, Bound]:
        """Return the histograms of an iteration as bound calls: a run has few steps, which take turns."""
        # The cached calls keep the steps alive, so their ids are not reused.
        key = id(before), id(step)
        if key not in self._calls:
            calls = {}
            for name, (kernel, choices) in self._updates.items():
                arguments, out = self._arguments(name, before, step)
                calls[name] = kernel.bind(*arguments, out=out, queue=self.queue, **choices)
            self._calls[key] = before, step, calls
        return self._calls[key][2]

    def _arguments(self, name: str, before: LloydStep, step: LloydStep) -> tuple[tuple[Any, ...], Any]:
        """Return the arguments of one of the histograms, and its outputs."""
        out = step.histograms
        if name == "sums":
            return (self.points, step.label), out["sum"]
        if self.shape.slice:
            out = {output: array for output, array in out.items() if output != "sum"}
        labels = (before.label, step.label)
        return (self.points, self._stride, before.centers, *labels, self.n, self._rounds, self._elements), out

    def _assign(self, before: LloydStep, step: LloydStep) -> cl.Event | None:
        if self._assign_kernel is None:
            return None  # the map does it
        buffers = map(_buffer, (self.points, before.packed, before.half_norm, step.label))
        numbers = map(np.int32, (self.n, before.packed.shape[0], _CHUNK))
        if self.shape.on_cpu:
            sizes = (-(-self.n // _CHUNK),), (1,)
        else:
            sizes = (-(-self.n // self.shape.columns) * 256,), (256,)
        return self._assign_kernel(self.queue, *sizes, *buffers, *numbers)

    def _move(self, before: LloydStep, step: LloydStep) -> cl.Event:
        group, totals = self.shape.group, (step.histograms["count"], step.histograms["sum"])
        arrays = (*totals, before.centers, step.centers, step.packed, step.half_norm, step.shift)
        return self._move_kernel(self.queue, (self.k * group,), (group,), *map(_buffer, arrays))


def _vector_bytes(device: cl.Device) -> int:
    """Return the size of a CPU's vectors.

    PoCL before 4.0 knows no newer processors: with functions of vectors of 64 bytes its compiler never ends there.
    """
    version = re.search(r"PoCL (\d+)", device.platform.version)
    return 32 if version is not None and int(version[1]) < 4 else 64


def _slice(k: int, d: int, room: int) -> int:
    """Return how many features a GPU adds up at a time: all by themselves if no slice has bins that local memory holds.

    `room` is how many bins that are. It is 0 if all fit: then one sweep makes all histograms of the labels.
    """
    if k * d <= room:
        return 0
    return next((width for width in _SLICES if k * width <= room), d)


def _of_equal_points(points: Any, label: np.ndarray) -> np.ndarray:
    """Return which points are in clusters of equal points only."""
    host = points.get() if isinstance(points, cl_array.Array) else points
    label = label[: len(host)]
    first = np.zeros(int(label.max()) + 1, np.intp)
    first[label[::-1]] = np.arange(len(host))[::-1]
    differs = (host != host[first[label]]).any(axis=1)
    are_equal: np.ndarray = np.bincount(label, differs, len(first))[label] == 0
    return are_equal


def _buffer(array: cl_array.Array) -> Any:
    return array.data


def rows(points: Any, indices: Any) -> np.ndarray:
    """Return some rows of an array of NumPy or PyOpenCL."""
    if isinstance(points, np.ndarray):
        return points[indices]
    return np.stack([points[int(index)].get() for index in indices])
