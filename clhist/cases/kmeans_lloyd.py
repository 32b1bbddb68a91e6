"""Points on a device and Lloyd's iteration over them: the steps that `clhist.cases.kmeans` is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from clhist import device_profile
from clhist.cases.kmeans_assign import ROWS, Tile
from clhist.cases.kmeans_kernels import PICK, Shape, kernels

FUSED_CELLS = 64  # up to so many components of centers one sweep does it all: sums are held in registers
_CHUNK = 64 * ROWS  # points that a work-item of a CPU assigns
_ROUNDS = 256  # vectors of points that are added up before a histogram gets them, on a CPU


@dataclass
class Step:
    """What one iteration leaves on the device.

    Attributes
    ----------
    label : int32 or uint8 array of shape (n,) or a little more
        The nearest of the centers that the iteration began with.
    histograms : dict of arrays
        Of the labels: "count" (k,), "sum" (k, d), "inertia" (d,), by feature, and "changed" (1,).
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
    """What the host must know of a step."""

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
    ) -> None:
        (self.n, self.d), self.k, self.queue = points.shape, k, queue
        profile = device_profile(queue.device)
        self.fused = k * self.d <= FUSED_CELLS if fused is None else fused
        self.shape = Shape(
            np.dtype(points.dtype),
            np.dtype(np.float64 if queue.device.double_fp_config else np.float32),
            self.d,
            k if self.fused else 0,
            profile.kind == "cpu" if on_cpu is None else on_cpu,
            tile or Tile(block=8 if points.dtype == np.float32 else 4),
        )
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
        self._size = self._elements if self.fused else self.n * self.d // self.shape.width
        self._num_bins = {"count": k, "sum": (k, self.d), "inertia": self.d, "changed": 1}
        self._centre(points)

    def _centre(self, points: cl_array.Array) -> None:
        """Subtract their mean from the points, and see whether they are finite: no sum with a NaN or infinity is."""
        wanted = (self.d, self._stride) if self.fused else (self.n, self.d)
        self.points = cl_array.zeros(self.queue, wanted, self.shape.dtype)
        size = self.n * self.d // self.shape.width

        def sums(mean: np.ndarray) -> dict[str, cl_array.Array]:
            given = (points, cl_array.to_device(self.queue, mean), self.points, self._stride)
            return self._kernels.centre(*given, num_bins=self.d, size=size, queue=self.queue)

        with np.errstate(over="ignore"):
            self.mean = (sums(np.zeros(self.d, self.shape.dtype))["sum"].get() / self.n).astype(self.shape.dtype)
        self.variance = float(sums(self.mean)["square"].get().sum() / (self.n * self.d))

    def new_step(self) -> Step:
        """Return room for what a step leaves; no label is that of a cluster yet."""

        def zeros(shape: Any, dtype: np.dtype) -> cl_array.Array:
            return cl_array.zeros(self.queue, shape, dtype)

        real, label, tiles = self.shape.dtype, self.shape.label, -(-self.k // self.shape.columns)
        dtypes = {"count": np.dtype(np.int32), "sum": real, "inertia": self.shape.wide, "changed": np.dtype(np.int32)}
        half_norm = np.full(tiles * self.shape.columns, np.inf, real)  # of no center: the last to be nearest
        return Step(
            cl_array.empty(self.queue, self._stride, label).fill(np.iinfo(label).max),
            {name: zeros(bins, dtypes[name]) for name, bins in self._num_bins.items()},
            zeros((self.k, self.d), real),
            zeros((tiles, self.shape.depths, self.shape.columns), real),
            cl_array.to_device(self.queue, half_norm),
            zeros(self.k, real),
        )

    def start(self, centers: np.ndarray) -> Step:
        """Return the step before the first, which leaves `centers`, an array of shape (k, d)."""
        step = self.new_step()
        step.histograms["count"].fill(1)
        step.histograms["sum"].set(np.ascontiguousarray(centers - self.mean, self.shape.dtype))
        self._move(step, step)
        return step

    def iterate(self, before: Step, step: Step) -> None:
        """Enqueue an iteration that begins with the centers of `before`, into `step`."""
        self._assign(before, step)
        self._kernels.update(
            *self._arguments(before, step),
            num_bins=self._num_bins,
            size=self._size,
            out=step.histograms,
            queue=self.queue,
        )
        step.done = self._move(before, step)
        self.queue.flush()

    def timed(self, before: Step, step: Step) -> dict[str, float]:
        """Iterate, and return the seconds that each kernel took; the queue must have PROFILING_ENABLE."""
        assigned = self._assign(before, step)
        choices: dict[str, Any] = {"size": self._size, "out": step.histograms, "queue": self.queue}
        _, stages = self._kernels.update.timed(*self._arguments(before, step), num_bins=self._num_bins, **choices)
        moved = self._move(before, step)
        moved.wait()
        events = {"move": moved} if assigned is None else {"assign": assigned, "move": moved}
        seconds = {name: (event.profile.end - event.profile.start) * 1e-9 for name, event in events.items()}
        return seconds | {f"update: {stage}": value for stage, value in stages.items()}

    def plan(self) -> tuple[Any, ...]:
        """Return the plans of the sweeps that an iteration makes."""
        return self._kernels.update.plan(self._size, self._num_bins, queue=self.queue)

    def read(self, step: Step) -> Status:
        """Wait for a step, and no longer, and return what came of it."""
        assert step.done is not None  # it was enqueued
        waiting = [step.done]

        def read(array: cl_array.Array) -> np.ndarray:
            host = np.empty(array.shape, array.dtype)
            cl.enqueue_copy(self._reader, host, _buffer(array), wait_for=waiting)
            return host

        found = {name: read(step.histograms[name]) for name in ("inertia", "changed", "count")}
        shift = float(read(step.shift).sum(dtype=np.float64))
        return Status(float(found["inertia"].sum()), shift, bool(found["changed"][0]), not found["count"].all())

    def relocate(self, before: Step, step: Step, points: Any) -> None:
        """Give the empty clusters of `step` the points that are farthest from their centers, as scikit-learn does.

        On the host: it is seldom needed. `points` are those of the caller; a cluster for which none is left goes to
        the center of the largest.
        """
        distance = cl_array.empty(self.queue, self.n, self.shape.dtype)
        buffers = map(_buffer, (before.centers, step.label, distance))
        self._distances(self.queue, (self.n,), None, _buffer(self.points), np.int64(self._stride), *buffers)
        count, sums = (step.histograms[name].get() for name in ("count", "sum"))
        label, far = step.label.get(), distance.get()
        empty = np.flatnonzero(count == 0)
        if far.max() > 0:
            for cluster, p in zip(empty, np.argpartition(far, -len(empty))[: -len(empty) - 1 : -1], strict=True):
                x = rows(points, [p])[0] - self.mean
                sums[label[p]] -= x
                count[label[p]] -= 1
                sums[cluster], count[cluster] = x, 1
        empty, largest = np.flatnonzero(count == 0), count.argmax()
        sums[empty], count[empty] = sums[largest] / count[largest], 1
        step.histograms["count"].set(count)
        step.histograms["sum"].set(sums)
        step.done = self._move(before, step)

    def spread(self, first: int, seed: int) -> list[int]:
        """Return the points that k-means++ begins with (Arthur and Vassilvitskii 2007), the first of them given."""
        nearest = cl_array.empty(self.queue, self.n, self.shape.dtype).fill(np.inf)
        scale = 1 / self.variance if self.variance > 0 else 1.0
        picks = [cl_array.to_device(self.queue, np.array([(0, first)], PICK.dtype))]
        for number in range(1, self.k):
            given = (self.points, self._stride, picks[-1], nearest, scale, number, seed)
            picks.append(self._kernels.seed(*given, num_bins=1, size=self.n, queue=self.queue))
        return [int(pick.get()["index"][0]) for pick in picks]

    def _arguments(self, before: Step, step: Step) -> tuple[Any, ...]:
        labels = (before.label, step.label)
        return self.points, self._stride, before.centers, *labels, self.n, self._rounds, self._elements

    def _assign(self, before: Step, step: Step) -> cl.Event | None:
        if self._assign_kernel is None:
            return None  # the map does it
        buffers = map(_buffer, (self.points, before.packed, before.half_norm, step.label))
        numbers = map(np.int32, (self.n, before.packed.shape[0], _CHUNK))
        if self.shape.on_cpu:
            sizes = (-(-self.n // _CHUNK),), (1,)
        else:
            sizes = (-(-self.n // self.shape.columns) * 256,), (256,)
        return self._assign_kernel(self.queue, *sizes, *buffers, *numbers)

    def _move(self, before: Step, step: Step) -> cl.Event:
        group, found = self.shape.group, (step.histograms["count"], step.histograms["sum"])
        arrays = (*found, before.centers, step.centers, step.packed, step.half_norm, step.shift)
        return self._move_kernel(self.queue, (self.k * group,), (group,), *map(_buffer, arrays))


def _buffer(array: cl_array.Array) -> Any:
    return array.data


def rows(points: Any, indices: Any) -> np.ndarray:
    """Return some rows of an array of NumPy or PyOpenCL."""
    if isinstance(points, np.ndarray):
        return points[indices]
    return np.stack([points[int(index)].get() for index in indices])
