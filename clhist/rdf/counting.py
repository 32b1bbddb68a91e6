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
_SLACK = 1e-6  # of half a period, up to which `r_max` may be more: edges are rounded to float32
_PAD = 16  # elements that are read beyond the last


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
        first, second = np.triu_indices(types) if same else np.indices((types, types)).reshape(2, -1)
        self._pairs, table = (first, second), np.zeros((types, types), np.int32)
        table[first, second] = np.arange(first.size)
        if same:
            table[second, first] = table[first, second]
        self._lanes = _lanes(self.queue.device, dtype)
        self._key = (same, types > 1, excludes)
        self._closed = closed
        edges = np.linspace(r_min, r_max, bins + 1)
        squares = np.where(edges < 0, 0.0, edges**2)
        rounded = squares.astype(dtype)
        # The least number of this precision that is not less than the square.
        rounded = np.where(rounded.astype(np.float64) < squares, np.nextafter(rounded, dtype.type(np.inf)), rounded)
        if closed:
            rounded[-1] = np.nextafter(squares.astype(dtype)[-1], dtype.type(np.inf))
        self.edges = edges
        self._squares, self._table = self._sent(rounded), self._sent(table.ravel())
        self._scalars = dtype.type(r_min), dtype.type(bins / (r_max - r_min))
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
        given = [each for each in (points, queries) if each is not None]
        number = len(points.positions)
        if not all(len(each.positions) for each in given):
            return
        # Rows of cells of half the cut-off are more, and have less in them that is too far.
        reach = 2 if 5 * number * (self._r_max / 2) ** 3 >= max(8, self._lanes) * _space(box, self._r_max) else 1
        cells = box.cells(self._r_max / reach, number)
        widths = [h / c for h, c in zip(box.heights.tolist(), cells, strict=True) if c > 1]
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
        found = self._counts.get(self.queue)[:-_PAD].reshape(-1, self._bins)
        first, second = self._pairs
        table = np.zeros((self._types, self._types, self._bins), np.int64)
        np.add.at(table, (first, second), found)
        if self._same:
            np.add.at(table, (second, first), found)
        return table

    def clear(self) -> None:
        """Begin at 0 again."""
        self._counts.fill(0)

    def _sent(self, array: np.ndarray) -> cl_array.Array:
        return cl_array.to_device(self.queue, array)

    def _placed(self, particles: Particles, box: Box, frame: Any, grid: Any, cells: int) -> _Placed:
        queue, number = self.queue, len(particles.positions)
        kernels = _placing(queue.context, self._dtype)
        given = particles.positions
        if given.dtype.itemsize > self._dtype.itemsize:  # rounded first, they would lose digits far from the box
            given = box.wrapped(np.asarray(on_host(given), np.float64))
        if is_device_array(given):
            given = given if given.dtype == self._dtype else given.astype(self._dtype, queue=queue)
        else:
            given = self._sent(np.ascontiguousarray(given, self._dtype))
        inside, cell = cl_array.empty(queue, 3 * number, self._dtype), cl_array.empty(queue, number, np.uint32)
        _run(kernels.wrap, queue, number, [given, inside, cell, frame, grid], [inside, cell])
        sums = cl_array.zeros(queue, cells + 1, np.uint32)
        numbers = bincount(cell, minlength=cells, queue=queue)
        _run(kernels.sums, queue, cells, [numbers, sums], [sums])
        filled = cl_array.zeros(queue, cells, np.int32)
        x, y, z = (cl_array.zeros(queue, number + _PAD, self._dtype) for _ in range(3))
        of, order = (cl_array.empty(queue, number, np.uint32) for _ in range(2))
        made = [x, y, z, of, order]
        _run(kernels.place, queue, number, [inside, cell, sums, filled, *made], made)
        labels = []
        for each in (particles.types, particles.groups):
            if each is not None:
                if len(each) != number:
                    raise ValueError(f"groups: expected one label for each of {number} positions, got {len(each)}")
                placed = cl_array.zeros(queue, number + _PAD, np.int32)
                _run(kernels.label, queue, number, [self._sent(each), order, placed], [placed])
                labels.append(placed)
        return _Placed(x, y, z, of, sums, tuple(labels))


def _run(
    kernel: Elementwise | Scan, queue: cl.CommandQueue, size: int, given: list[Any], made: list[cl_array.Array]
) -> None:
    chain = chain_on(queue, "to place particles")
    kernel(chain, size, given)
    chain.finish(*made)


def box_within(box: Any, r_max: float, *positions: Any) -> Box:
    """Return a box from what packages have for it, in which pairs nearer than `r_max` are met in one image alone.

    Raises
    ------
    ValueError
        If it is none; of another that a pair might be met in two.
    """
    arrays = [np.asarray(on_host(each)) for each in positions] if box is None else []
    found = box_of(box, *arrays)
    if r_max > found.most * (1 + _SLACK):
        raise ValueError(
            f"r_max: expected at most half the distance of opposite faces of the box, {found.most:.6g}, got {r_max:.6g}"
        )
    return found


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
    given = f"const {real} *given, {real} *inside, uint *cell, const {real} *frame, const int *grid"
    cells = f"const {real} *inside, const uint *cell, const uint *first, int *filled"
    made = f"{real} *x, {real} *y, {real} *z, uint *cells, uint *order"
    labels = "const int *given, const uint *order, int *placed"
    numbers, output = "const long *numbers, uint *first", "first[i + 1] = item;"
    return _Placing(
        Elementwise(context, given, texts.WRAPPED, "clhist_wrap_particles", types),
        Scan(context, ScanSpec("first_of_cells", numbers, "uint", 4, "(uint)numbers[i]", "a + b", "0", output)),
        Elementwise(context, f"{cells}, {made}", texts.PLACED, "clhist_place_particles"),
        Elementwise(context, labels, "placed[i] = given[order[i]]", "clhist_labels"),
    )
