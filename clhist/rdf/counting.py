"""Counting pairs of particles by distance: cells of particles, and one histogram of what is near each of them."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from clhist import operators
from clhist._core.spi import (
    Elementwise,
    Scan,
    ScanSpec,
    chain_on,
    default_queue,
    device_kind,
    is_device_array,
    kept_by_context,
    on_host,
)
from clhist.bincount import bincount
from clhist.kernel import HistogramKernel
from clhist.rdf import texts
from clhist.rdf.box import Box, box_of

_MOST_NEAR = 2**31 - 1  # a particle has no more neighbours
# Part of half a period by which `r_max` may exceed it, since edges are rounded to float32.
_SLACK = 1e-6
# Elements that vector loads read beyond the last one.
_PAD = 16


class Particles(NamedTuple):
    """One set of particles.

    Attributes
    ----------
    positions : array of shape (n, 3), float32 or float64
        Of NumPy or PyOpenCL.
    types, groups : int32 array of shape (n,), optional
        What they are, from 0 on; and groups of which none are paired.
    """

    positions: Any
    types: Any = None
    groups: Any = None


class _Placed(NamedTuple):
    """Particles in the order of their cells, on the device."""

    x: cl_array.Array
    y: cl_array.Array
    z: cl_array.Array
    cells: cl_array.Array
    first: cl_array.Array
    labels: tuple[cl_array.Array, ...]


class PairCounter:
    """Counts of pairs by distance, of any number of frames, on a device.

    Parameters
    ----------
    bins : int
        How many bins of equal width.
    r_min, r_max : float
        Where the first begins and the last ends.
    types : int
        How many types there are; each pair of them has its own counts. 1 for none.
    excludes : bool
        Whether particles have groups.
    same : bool
        Whether particles are paired with each other, each unordered pair once.
    closed : bool
        Whether a distance of `r_max` is in the last bin.
    dtype : numpy.dtype
        float32 or float64, in which distances are computed.
    queue : pyopencl.CommandQueue, optional
        Defaults to the default one.
    """

    def __init__(
        self, bins: int, r_min: float, r_max: float, *, types: int = 1, excludes: bool = False, same: bool = True,
        closed: bool = False, dtype: np.dtype, queue: cl.CommandQueue | None = None,
    ) -> None:  # fmt: skip
        self.queue = queue or default_queue()
        if dtype == np.float64 and not self.queue.device.double_fp_config:
            dtype = np.dtype(np.float32)
        self._bins, self._r_max, self._same, self._dtype = bins, r_max, same, dtype
        self._types, self._excludes = types, excludes
        # If particles are paired with each other, two types in either order share their counts.
        first, second = np.triu_indices(types) if same else np.indices((types, types)).reshape(2, -1)
        self._pairs, table = (first, second), np.zeros((types, types), np.int32)
        table[first, second] = np.arange(first.size)
        if same:
            table[second, first] = table[first, second]
        self._lanes = _lanes(self.queue.device, dtype)
        self._key = (same, types > 1, excludes)
        self._closed = closed
        edges = np.linspace(r_min, r_max, bins + 1)
        # The square of a negative edge would be positive: such an edge excludes no distance.
        squares = np.where(edges < 0, 0.0, edges**2)
        rounded = squares.astype(dtype)
        # The least number of this precision that is not less than the square.
        rounded = np.where(rounded.astype(np.float64) < squares, np.nextafter(rounded, dtype.type(np.inf)), rounded)
        if closed:
            # The next number above lets the comparison `<` include the upper end.
            rounded[-1] = np.nextafter(squares.astype(dtype)[-1], dtype.type(np.inf))
        self.edges = edges
        self._squares, self._table = self._sent(rounded), self._sent(table.ravel())
        self._scalars = dtype.type(r_min), dtype.type(bins / (r_max - r_min))
        # Lanes without a pair add to bins beyond the last, which takes no branch.
        self._counts = cl_array.zeros(self.queue, first.size * bins + _PAD, np.int64)

    def add(
        self,
        box: Box,
        points: Particles,
        queries: Particles | None = None,
        begun: Callable[[], None] = lambda: None,
    ) -> None:
        """Count the pairs of points, or of each query with each point, in a box of `box_within`.

        `begun` is called before counts change.
        """
        sets = [particles for particles in (points, queries) if particles is not None]
        number = len(points.positions)
        if not all(len(particles.positions) for particles in sets):
            return
        # Rows of cells of half the cut-off are more, and have less in them that is too far.
        # A row of 5 such cells must have as many particles as the device has lanes, 8 at least, on average.
        reach = 2 if 5 * number * (self._r_max / 2) ** 3 >= max(8, self._lanes) * _space(box, self._r_max) else 1
        cells = box.cells(self._r_max / reach, number)
        widths = [h / c for h, c in zip(box.heights.tolist(), cells, strict=True) if c > 1]
        # A coarse grid has wider cells, fewer of which reach as far as the cut-off.
        reach = ceil(self._r_max / min(widths, default=self._r_max))
        grid = self._sent(np.array([*cells, *box.periodic, reach], np.int32))
        frame = self._sent(box.frame(self._dtype))
        to = self._placed(points, box, frame, grid, int(np.prod(cells)))
        of = to if queries is None else self._placed(queries, box, frame, grid, int(np.prod(cells)))
        arrays = [of.x, of.y, of.z, of.cells, to.x, to.y, to.z, to.first, frame, grid, self._squares, *self._scalars]
        labels = iter(zip(of.labels, to.labels, strict=True))
        if self._types > 1:
            arrays += [*next(labels), self._table, np.int32(self._types)]
        if self._excludes:
            arrays += next(labels)
        # Further than half a period, and at it, a pair may be met in two images.
        halves = self._r_max > box.most or (self._closed and self._r_max >= box.most * (1 - _SLACK))
        lanes = 1 if halves else self._lanes
        kernel = _kernel(self.queue.context, self._dtype, self._bins, self._pairs[0].size, lanes, *self._key, halves)
        options: dict[str, Any] = {"dest": self._counts, "out": self._counts, "queue": self.queue}
        begun()
        kernel(*arrays, num_bins=int(self._counts.size), size=int(of.cells.size), **options)

    def counts(self) -> np.ndarray:
        """Return the counts so far, int64 of shape (types, types, bins), of ordered pairs."""
        counts = self._counts.get(self.queue)[:-_PAD].reshape(-1, self._bins)
        first, second = self._pairs
        table = np.zeros((self._types, self._types, self._bins), np.int64)
        np.add.at(table, (first, second), counts)
        if self._same:
            # Each unordered pair is two ordered ones, also if both particles have one type.
            np.add.at(table, (second, first), counts)
        return table

    def clear(self) -> None:
        """Begin at 0 again."""
        self._counts.fill(0)

    def _sent(self, array: np.ndarray) -> cl_array.Array:
        return cl_array.to_device(self.queue, array)

    def _placed(self, particles: Particles, box: Box, frame: Any, grid: Any, cells: int) -> _Placed:
        queue, number = self.queue, len(particles.positions)
        kernels = _placing(queue.context, self._dtype)
        positions = particles.positions
        # Wrap before rounding: far from the box, rounded positions have lost digits.
        if positions.dtype.itemsize > self._dtype.itemsize:
            positions = box.wrapped(np.asarray(on_host(positions), np.float64))
        if is_device_array(positions):
            positions = positions if positions.dtype == self._dtype else positions.astype(self._dtype, queue=queue)
        else:
            positions = self._sent(np.ascontiguousarray(positions, self._dtype))
        inside, cell = cl_array.empty(queue, 3 * number, self._dtype), cl_array.empty(queue, number, np.uint32)
        _run(kernels.wrap, queue, number, [positions, inside, cell, frame, grid], [inside, cell])
        # A scan of the counts gives the first slot of each cell; each particle then takes the next free one.
        sums = cl_array.zeros(queue, cells + 1, np.uint32)
        numbers = bincount(cell, minlength=cells, queue=queue)
        _run(kernels.sums, queue, cells, [numbers, sums], [sums])
        filled = cl_array.zeros(queue, cells, np.int32)
        x, y, z = (cl_array.zeros(queue, number + _PAD, self._dtype) for _ in range(3))
        of, order = (cl_array.empty(queue, number, np.uint32) for _ in range(2))
        made = [x, y, z, of, order]
        _run(kernels.place, queue, number, [inside, cell, sums, filled, *made], made)
        labels = []
        for marks in (particles.types, particles.groups):
            if marks is not None:
                if len(marks) != number:
                    raise ValueError(f"groups: expected one label for each of {number} positions, got {len(marks)}")
                placed = cl_array.zeros(queue, number + _PAD, np.int32)
                _run(kernels.label, queue, number, [self._sent(marks), order, placed], [placed])
                labels.append(placed)
        return _Placed(x, y, z, of, sums, tuple(labels))


def _run(
    kernel: Elementwise | Scan, queue: cl.CommandQueue, size: int, arguments: list[Any], made: list[cl_array.Array]
) -> None:
    chain = chain_on(queue, "to place particles")
    kernel(chain, size, arguments)
    chain.finish(*made)


def box_within(box: Any, r_max: float, *positions: Any) -> Box:
    """Return a box from what packages have for it, in which pairs nearer than `r_max` are met in one image alone.

    Raises
    ------
    ValueError
        If it is none; of another that a pair might be met in two.
    """
    arrays = [np.asarray(on_host(array)) for array in positions] if box is None else []
    simulation_box = box_of(box, *arrays)
    if r_max > simulation_box.most * (1 + _SLACK):
        raise ValueError(
            "r_max: expected at most half the distance of opposite faces of the box, "
            f"{simulation_box.most:.6g}, got {r_max:.6g}"
        )
    return simulation_box


def _space(box: Box, r_max: float) -> float:
    """Return the volume, of a flat box with a height of the cut-off."""
    return box.volume * (r_max if box.is_flat else 1)


def _lanes(device: cl.Device, dtype: np.dtype) -> int:
    return texts.VECTOR_BYTES // dtype.itemsize if device_kind(device) == "cpu" else 1


@kept_by_context
def _kernel(
    context: cl.Context,
    dtype: np.dtype,
    bins: int,
    pairs: int,
    lanes: int,
    same: bool,
    typed: bool,
    excluded: bool,
    halves: bool,
) -> HistogramKernel:
    real = "float" if dtype == np.float32 else "double"
    return HistogramKernel(
        context,
        operators.add(np.int64),
        arguments=texts.arguments(real, typed, excluded),
        map=texts.body(lanes),
        preamble=texts.preamble(real, bins, pairs, lanes, same, typed, excluded, halves),
        emits=_MOST_NEAR,
    )


class _Placing(NamedTuple):
    """The kernels that put particles into cells."""

    wrap: Elementwise
    sums: Scan
    place: Elementwise
    label: Elementwise


@kept_by_context
def _placing(context: cl.Context, dtype: np.dtype) -> _Placing:
    real = "float" if dtype == np.float32 else "double"
    types = f"typedef {real} real; typedef {real}3 real3;"
    wrapping = f"const {real} *given, {real} *inside, uint *cell, const {real} *frame, const int *grid"
    cells = f"const {real} *inside, const uint *cell, const uint *first, int *filled"
    made = f"{real} *x, {real} *y, {real} *z, uint *cells, uint *order"
    labels = "const int *given, const uint *order, int *placed"
    numbers, output = "const long *numbers, uint *first", "first[i + 1] = item;"
    parts = [
        (wrapping, texts.WRAPPED, "clhist_wrap_particles"),
        (f"{cells}, {made}", texts.PLACED, "clhist_place_particles"),
        (labels, "placed[i] = given[order[i]]", "clhist_labels"),
    ]
    wrap, place, label = Elementwise.together(context, parts, types)
    return _Placing(
        wrap,
        Scan(context, ScanSpec("first_of_cells", numbers, "uint", 4, "(uint)numbers[i]", "a + b", "0", output)),
        place,
        label,
    )
