"""Pairs of particles closer than a cut-off in a periodic box, found on the device by a list of cells.

Counting is a histogram: particles per cell, then a prefix sum says where each cell begins. The pairs are found twice by
one kernel, which first counts the pairs of each row and then, behind another prefix sum, writes them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
from pyopencl.elementwise import ElementwiseKernel
from pyopencl.scan import ExclusiveScanKernel
from pyopencl.tools import dtype_to_ctype

from clhist import bincount, default_queue
from clhist.binned.spi import as_array

__all__ = ["Neighbours", "find_neighbours"]

# A particle pairs with others in its own box, or shifted by one edge along any axes: 3**3 images.
_IMAGES = 27
_LARGEST = 2**31 - 1  # numbers of rows and of pairs are int32

_WRAP = """
    const real3 wide = (real3)(real_x, real_y, real_z), at = vload3(i, given);
    const real3 moved = at - wide * floor(at / wide);
    const real3 clamped = select(clamp(moved, (real3)(0), wide), moved, isnan(moved)); /* NaN is near nothing */
    const float3 edges = (float3)(edge_x, edge_y, edge_z), inside = convert_float3(clamped);
    const int3 cells = (int3)(cells_x, cells_y, cells_z);
    const int3 c = clamp(convert_int3_sat(inside / edges * convert_float3(cells)), (int3)(0), cells - 1);
    vstore3(inside, i, position);
    cell[i] = (c.z * cells.y + c.y) * cells.x + c.x
"""

# The atomics make the order within a cell a matter of chance; the ranks make it that of the particles again.
_PLACE = "placed[first[cell[i]] + atomic_inc(&filled[cell[i]])] = i"

_RANK = """
    const int p = placed[i];
    const long begin = first[cell[p]], end = first[cell[p] + 1];
    long rank = begin;
    for (long k = begin; k < end; ++k) rank += placed[k] < p;
    order[rank] = p
"""

# By how many edges a particle moves to meet those of a cell beyond the first or the last.
_PREAMBLE = "int wrapped(int c, int cells) { return c < 0 ? 1 : (c >= cells ? -1 : 0); }"

# Whether a pair is within the cut-off is rounded: fma, so that counting and writing round alike on every device.
_PAIRS = """
    const int image = i / n, p = order[i % n];
    const int sx = image % 3 - 1, sy = image / 3 % 3 - 1, sz = image / 9 - 1;
    const int cx = cell[p] % cells_x, cy = cell[p] / cells_x % cells_y, cz = cell[p] / cells_x / cells_y;
    const float3 here = vload3(p, position) + (float3)(sx * edge_x, sy * edge_y, sz * edge_z);
    long slot = writing ? row_start[i] : 0;
    for (int z = cz - 1; z <= cz + 1; ++z) if (wrapped(z, cells_z) == sz)
    for (int y = cy - 1; y <= cy + 1; ++y) if (wrapped(y, cells_y) == sy)
    for (int x = cx - 1; x <= cx + 1; ++x) if (wrapped(x, cells_x) == sx) {
        const int c = ((z + sz * cells_z) * cells_y + y + sy * cells_y) * cells_x + x + sx * cells_x;
        for (long k = first[c]; k < first[c + 1]; ++k) {
            const int q = order[k];
            const float3 d = here - vload3(q, position);
            /* Both see the pair; the lower of the two owns it if their sum is odd: rows of about equal length. */
            const int owned = (p + q) % 2 ? p < q : q < p;
            if (owned && molecule[p] != molecule[q] && fma(d.z, d.z, fma(d.y, d.y, d.x * d.x)) < cutoff2) {
                if (writing) { owner[slot] = i; neighbour[slot] = q; }
                ++slot;
            }
        }
    }
    if (!writing) row_start[i] = slot
"""


@dataclass(frozen=True)
class Neighbours:
    """Pairs of particles, on the device: what `clhist.cases.gromacs.force_kernel` takes.

    Row ``r`` pairs particle ``particle[r]``, moved by ``shift_vector[shift[r]]``, with ``neighbour[k]`` for each k in
    [row_start[r], row_start[r + 1]). There are 27 rows a particle, one for each image of the box, most of them empty.

    Attributes
    ----------
    owner, neighbour : int32 arrays, shape (num_pairs,)
        The row that each pair belongs to, and its other particle.
    row_start : int64 array, shape (27 * n + 1,)
        Where each row begins.
    particle, shift : int32 arrays, shape (27 * n,)
        Of each row.
    shift_vector : float32 array, shape (27, 3)
        Multiples of the edges, nm; x changes first, 13 is none.
    position : float32 array, shape (n, 3)
        The positions moved into the box, nm.

    Examples
    --------
    >>> import clhist.cases
    >>> positions = np.array([[0.1, 0, 0], [0.3, 0, 0], [1, 1, 1]])
    >>> pairs = clhist.cases.find_neighbours(positions, [2.0, 2.0, 2.0], 0.5, np.array([0, 1, 2]))
    >>> pairs.neighbour.size
    1
    """

    owner: cl_array.Array
    neighbour: cl_array.Array
    row_start: cl_array.Array
    particle: cl_array.Array
    shift: cl_array.Array
    shift_vector: cl_array.Array
    position: cl_array.Array


def find_neighbours(
    positions: np.ndarray | cl_array.Array,
    box: Sequence[float] | np.ndarray,
    cutoff: float,
    molecule: np.ndarray | cl_array.Array,
    *,
    queue: cl.CommandQueue | None = None,
) -> Neighbours:
    """List all pairs of particles of different molecules that are closer than a cut-off, each once.

    Parameters
    ----------
    positions : array of shape (n, 3)
        nm; in the box or out of it. NumPy's or PyOpenCL's. They are moved into the box in float64, then rounded to
        float32. Of PyOpenCL's it is not checked whether they are finite: a particle elsewhere has no neighbours.
    box : sequence of 3 floats
        Edges of the rectangular periodic box, nm.
    cutoff : float
        nm; at most half the shortest edge, so that a pair is met in one image only.
    molecule : integer array of shape (n,)
        No pairs are made of particles with equal numbers.
    queue : pyopencl.CommandQueue, optional
        Defaults to that of `positions`, or the default one.

    Returns
    -------
    Neighbours
        A pair whose distance is the cut-off within the rounding of float32 (some 2**-23 of the longest edge) is
        there or not; others are there exactly if they are closer.

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong; it is named.

    Examples
    --------
    >>> import clhist.cases
    >>> positions = np.array([[0.1, 0, 0], [0.3, 0, 0], [1, 1, 1]])
    >>> pairs = clhist.cases.find_neighbours(positions, [2.0, 2.0, 2.0], 0.5, np.array([0, 1, 2]))
    >>> pairs.neighbour.get()
    array([1], dtype=int32)
    """
    n, edges = _check(positions, box, cutoff, molecule)
    queue = queue or default_queue(positions)
    cells = _cells(edges, cutoff, n)
    sizes = (*(np.float32(edge) for edge in edges), *(np.int32(count) for count in cells))
    real = np.dtype(np.float64 if queue.device.double_fp_config else np.float32)
    # Wrap before rounding: far from the box, rounded positions have lost digits.
    if real == np.float32 and positions.dtype.itemsize > 4:
        far = np.asarray(positions if isinstance(positions, np.ndarray) else positions.get(), np.float64)
        positions = far - edges * np.floor(far / edges)
    unwrapped = _on_device(queue, positions, real).ravel()
    # Only equality counts, which reinterpreting integers of one width keeps.
    label = np.dtype(np.int64 if molecule.dtype.itemsize > 4 else np.int32)
    molecules = _on_device(queue, molecule, label)
    kernels = _Kernels.of(queue.context, real, label)

    position = cl_array.empty(queue, (n, 3), np.float32)
    cell, placed, order = (cl_array.empty(queue, n, np.int32) for _ in range(3))
    wide = (real.type(edge) for edge in edges)
    kernels.wrap(unwrapped, position.ravel(), cell, *wide, *sizes, queue=queue, range=slice(n))
    # One cell more, without particles, so that the prefix sum ends with n.
    first = kernels.prefix_sum(bincount(cell, minlength=math.prod(cells) + 1, queue=queue))
    kernels.place(cell, first, cl_array.zeros(queue, first.size, np.int32), placed, queue=queue, range=slice(n))
    kernels.rank(cell, first, placed, order, queue=queue, range=slice(n))

    row_start = cl_array.zeros(queue, _IMAGES * n + 1, np.int64)

    def pairs(owner: cl_array.Array, neighbour: cl_array.Array, *, writing: bool) -> None:
        arrays = (order, cell, first, position.ravel(), molecules, row_start, owner, neighbour)
        kernels.pairs(*arrays, *sizes, np.float32(cutoff) ** 2, n, int(writing), queue=queue, range=slice(_IMAGES * n))

    pairs(placed, placed, writing=False)
    row_start = kernels.prefix_sum(row_start)
    num_pairs = int(row_start[-1].get())
    if num_pairs > _LARGEST:
        raise ValueError(f"cutoff: expected one with at most {_LARGEST} pairs, got {num_pairs} with {cutoff}")
    owner, neighbour = (cl_array.empty(queue, max(1, num_pairs), np.int32)[:num_pairs] for _ in range(2))
    if num_pairs:
        pairs(owner, neighbour, writing=True)
    particle, shift = (cl_array.empty(queue, _IMAGES * n, np.int32) for _ in range(2))
    kernels.rows(order, particle, shift, n, queue=queue, range=slice(_IMAGES * n))
    steps = np.array(list(product((-1, 0, 1), repeat=3)))[:, ::-1]
    shift_vector = cl_array.to_device(queue, (steps * edges).astype(np.float32))
    return Neighbours(owner, neighbour, row_start, particle, shift, shift_vector, position)


@dataclass(frozen=True)
class _Kernels:
    """The kernels in the order of their use; each runs for `i` in a range."""

    wrap: ElementwiseKernel
    prefix_sum: ExclusiveScanKernel
    place: ElementwiseKernel
    rank: ElementwiseKernel
    pairs: ElementwiseKernel
    rows: ElementwiseKernel

    @classmethod
    @lru_cache(maxsize=16)
    def of(cls, context: cl.Context, real: np.dtype, label: np.dtype) -> _Kernels:
        sizes = "float edge_x, float edge_y, float edge_z, int cells_x, int cells_y, int cells_z"
        lists = f"int *order, int *cell, long *first, float *position, {dtype_to_ctype(label)} *molecule"
        of_real = dtype_to_ctype(real)
        wide = ", ".join(f"{of_real} real_{axis}" for axis in "xyz")
        return cls(
            ElementwiseKernel(
                context,
                f"{of_real} *given, float *position, int *cell, {wide}, {sizes}",
                _WRAP,
                "wrap",
                preamble=f"typedef {of_real}3 real3;",
            ),
            ExclusiveScanKernel(context, np.dtype(np.int64), "a + b", "0"),
            ElementwiseKernel(context, "int *cell, long *first, int *filled, int *placed", _PLACE, "place"),
            ElementwiseKernel(context, "int *cell, long *first, int *placed, int *order", _RANK, "rank"),
            ElementwiseKernel(
                context,
                f"{lists}, long *row_start, int *owner, int *neighbour, {sizes}, float cutoff2, int n, int writing",
                _PAIRS,
                "pairs",
                preamble=_PREAMBLE,
            ),
            ElementwiseKernel(
                context, "int *order, int *particle, int *shift, int n", "particle[i] = order[i % n]; shift[i] = i / n"
            ),
        )


def _cells(edges: np.ndarray, cutoff: float, n: int) -> list[int]:
    """How many cells there are along each axis: wider than the cut-off, and no more in all than particles."""
    width = cutoff
    while True:
        # The rounding of a position may put it into the next cell.
        cells = [max(1, int(edge / (width + 1e-6 * edge))) for edge in edges.tolist()]
        if math.prod(cells) <= n:
            return cells
        width *= 1.25


def _on_device(queue: cl.CommandQueue, array: np.ndarray | cl_array.Array, dtype: np.dtype) -> cl_array.Array:
    if not isinstance(array, cl_array.Array):
        return cl_array.to_device(queue, np.ascontiguousarray(array, dtype))
    on_queue: cl_array.Array = array.with_queue(queue)
    return on_queue if on_queue.dtype == dtype else on_queue.astype(dtype)


def _check(positions: Any, box: Any, cutoff: float, molecule: Any) -> tuple[int, np.ndarray]:
    for name, array, kinds in (("positions", positions, "f"), ("molecule", molecule, "iu")):
        if not isinstance(array, np.ndarray | cl_array.Array) or array.dtype.kind not in kinds:
            what = {"f": "floats", "iu": "integers"}[kinds]
            raise TypeError(f"{name}: expected an array of {what}, got {getattr(array, 'dtype', array)!r}")
        # Raises if elements are missing.
        as_array(name, array)
    n = len(positions)
    if positions.shape != (n, 3) or not 1 <= n <= _LARGEST // _IMAGES:
        raise ValueError(f"positions: expected shape (n, 3), n from 1 to {_LARGEST // _IMAGES}, got {positions.shape}")
    if isinstance(positions, np.ndarray) and not np.isfinite(positions).all():
        raise ValueError("positions: expected finite numbers, got others")
    if molecule.shape != (n,):
        raise ValueError(f"molecule: expected shape ({n},), as many as positions, got {molecule.shape}")
    edges = np.asarray(as_array("box", box), np.float64)
    if edges.shape != (3,) or not np.isfinite(edges).all() or not (edges > 0).all():
        raise ValueError(f"box: expected three positive edges in nm, got {box}")
    if not 0 < cutoff <= edges.min() / 2:
        limit = f"half the shortest edge, {edges.min() / 2:.6g} nm"
        raise ValueError(f"cutoff: expected more than 0 and at most {limit}, got {cutoff}")
    return n, edges
