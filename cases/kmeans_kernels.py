"""The kernels of k-means: histograms of points and of labels, and how centers move to the mean of their points.

Few clusters of few features are done in one sweep over the points: the map of the histogram finds the nearest center
and adds up in registers. Otherwise there are two, of `clhist.cases.kmeans_assign` and of the histogram of the labels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyopencl as cl

from clhist import HistogramKernel, Operator, operators
from clhist.cases.kmeans_assign import ON_CPU, ON_GPU, ROWS, VECTORS, Tile


class Shape(NamedTuple):
    """The parameters of the kernels' source.

    `clusters` is 0 unless one sweep does it all: otherwise a program serves any number of them. `slice` is 0 unless
    vector sums are a sweep of their own: of so many features at a time, see `sums_of_slices`. `wide` is what long sums
    are made in: float64 where the device has it. With `exact` the vector sums are, and the means rounded alike.
    """

    dtype: np.dtype
    wide: np.dtype
    features: int
    clusters: int
    on_cpu: bool
    tile: Tile
    slice: int = 0
    vector_bytes: int = 64
    exact: bool = False

    @property
    def lanes(self) -> int:
        """How many points (in `assign` centers) are one vector, of `vector_bytes` on a CPU."""
        return self.vector_bytes // self.dtype.itemsize if self.on_cpu else 1

    @property
    def columns(self) -> int:
        """The number of centers that are packed together."""
        return VECTORS * self.lanes if self.on_cpu else 16 * self.tile.block

    @property
    def depths(self) -> int:
        """How many features a packed center has; those beyond `features` are 0."""
        return self.features if self.on_cpu else -(-self.features // self.tile.depth) * self.tile.depth

    @property
    def label(self) -> np.dtype:
        """The dtype of labels, bytes for few clusters, where reading them would take a large part of the time."""
        return np.dtype(np.uint8 if 0 < self.clusters < 256 else np.int32)

    @property
    def group(self) -> int:
        """Work-items for a center in `move`."""
        return 1 if self.on_cpu else 64

    @property
    def width(self) -> int:
        """Components of a point that are one element of a sweep."""
        return self.features if self.on_cpu else 1

    @property
    def add(self) -> Callable[[np.dtype], Operator]:
        """The operator of sums that are exact if any is, by dtype."""
        return operators.reproducible_add if self.exact else operators.add

    @property
    def slices(self) -> int:
        """How many slices the features are divided into; the last may be wider than what is left of them."""
        return -(-self.features // self.slice) if self.slice else 1


# Sums over the points, and over their squares, less `mean`; what is left of the points is kept.
_CENTRE_MAP = """
    const int p = i / (FEATURES / WIDTH), first = i % (FEATURES / WIDTH) * WIDTH;
    for (int j = first; j < first + WIDTH; ++j) {
        const real x = points[(size_t)p * FEATURES + j] - mean[j];
        centred[PLACE(p, j)] = x;
        EMIT_sum(j, x);
        EMIT_square(j, (wide)x * x);
    }
"""

_UPDATE_ARGUMENTS = """
    const {real} *points, long stride, const {real} *centers, const {label} *previous, {written} *label,
    int n, int rounds, int elements
"""

_TOTAL = """
real total(const lanes_t values)
{
    real lane[LANES], sum = 0;
    STORE(values, lane, 0);
    for (int l = 0; l < LANES; ++l)
        sum += lane[l];
    return sum;
}
"""

# The whole iteration. An element is what one work-item does: `rounds` groups of LANES points each.
_FUSED_MAP = """
    real center[CLUSTERS][FEATURES];
    for (int c = 0; c < CLUSTERS; ++c)
        for (int j = 0; j < FEATURES; ++j)
            center[c][j] = centers[c * FEATURES + j];
    lanes_t sum[CLUSTERS][FEATURES], inertia = 0;
    index_t count[CLUSTERS], changed = 0;
    for (int c = 0; c < CLUSTERS; ++c) {
        count[c] = 0;
        for (int j = 0; j < FEATURES; ++j)
            sum[c][j] = 0;
    }
    const int groups = (n + LANES - 1) / LANES;
    for (int round = 0; round < rounds && GROUP(i, round) < groups; ++round) {
        const int g = GROUP(i, round);
        lanes_t x[FEATURES], least = INFINITY;
        for (int j = 0; j < FEATURES; ++j)
            x[j] = LOAD(points + j * stride, g);
        index_t nearest = 0;
        for (int c = 0; c < CLUSTERS; ++c) {
            lanes_t distance = 0;
            for (int j = 0; j < FEATURES; ++j)
                distance = fma(x[j] - center[c][j], x[j] - center[c][j], distance);
            nearest = distance < least ? (index_t)c : nearest;
            least = fmin(distance, least);
        }
        const labels_t found = TO_LABELS(nearest), before = LOAD(previous, g);
        STORE(found, label, g);
        const index_t inside = TO_INDEX(LANE + g * LANES < n);
        nearest = inside ? nearest : (index_t)-1;
        inertia += inside ? least : (lanes_t)0;
        changed += inside && TO_INDEX(found != before) ? (index_t)1 : (index_t)0;
        for (int c = 0; c < CLUSTERS; ++c) {
            count[c] += nearest == c ? (index_t)1 : (index_t)0;
            for (int j = 0; j < FEATURES; ++j)
                sum[c][j] += nearest == c ? x[j] : (lanes_t)0;
        }
    }
    for (int c = 0; c < CLUSTERS; ++c) {
        EMIT_count(c, (int)total(TO_LANES(count[c])));
        for (int j = 0; j < FEATURES; ++j)
            EMIT_sum(c * FEATURES + j, total(sum[c][j]));
    }
    EMIT_inertia(i % FEATURES, total(inertia));
    EMIT_changed(0, (int)total(TO_LANES(changed)));
"""

# The second of two sweeps. An element is WIDTH components of a point: all of them on a CPU; one on a GPU, where
# neighbouring work-items then add to neighbouring bins.
_UPDATE_MAP = """
    const int p = i / (FEATURES / WIDTH), first = i % (FEATURES / WIDTH) * WIDTH, c = label[p];
    if (first == 0) {
        EMIT_count(c, 1);
        EMIT_changed(0, c != previous[p]);
    }
    for (int j = first; j < first + WIDTH; ++j) {
        const real x = points[PLACE(p, j)], difference = x - centers[c * FEATURES + j];
        EMIT_sum(c * FEATURES + j, x);
        EMIT_inertia(j, (wide)difference * difference);
    }
"""

# The same without the sums, where these are a sweep of their own: an element is one component of ROUND points.
ROUND = 16
_REST_MAP = """
    const int j = i % FEATURES, first = i / FEATURES * ROUND;
    wide inertia = 0;
    for (int p = first; p < min(first + ROUND, n); ++p) {
        const int c = label[p];
        if (j == 0) {
            EMIT_count(c, 1);
            EMIT_changed(0, c != previous[p]);
        }
        const real difference = points[PLACE(p, j)] - centers[c * FEATURES + j];
        inertia += (wide)difference * difference;
    }
    EMIT_inertia(j, inertia);
"""

# A third: a histogram for each slice of features, whose elements are one component each, point by point.
_SUM_MAP = """
    const int p = i % ELEMENTS / SLICE, feature = i / ELEMENTS * SLICE + i % SLICE;
    if (feature < FEATURES)
        EMIT(label[p] * SLICE + i % SLICE, points[PLACE(p, feature)]);
"""

# One work-group for each center: the mean of its points, packed for `assign` as well, half its square, and how far it
# went. A cluster without points stays where it is until the host relocates it.
_MOVE = """
kernel __attribute__((reqd_work_group_size(GROUP_SIZE, 1, 1)))
void move(global const int *count, global const real *sum, global const real *old,
          global real *centers, global real *packed, global real *half_norm, global real *shift)
{
    local real of_norm[GROUP_SIZE], of_shift[GROUP_SIZE];
    const int c = get_group_id(0), l = get_local_id(0), number = count[c], clusters = get_num_groups(0);
    real norm = 0, moved = 0;
    for (int j = l; j < FEATURES; j += GROUP_SIZE) {
        const size_t at = ((size_t)(j / SLICE) * clusters + c) * SLICE + j % SLICE;
        const real before = old[c * FEATURES + j], x = number > 0 ? (real)((quotient)sum[at] / number) : before;
        centers[c * FEATURES + j] = x;
        packed[((size_t)(c / COLUMNS) * DEPTHS + j) * COLUMNS + c % COLUMNS] = x;
        norm += x * x;
        moved += (x - before) * (x - before);
    }
    of_norm[l] = norm;
    of_shift[l] = moved;
    barrier(CLK_LOCAL_MEM_FENCE);
    // The barrier comes last: Intel's CPU runtime, with its vectorizer off, is wrong where a loop begins with one.
    for (int span = GROUP_SIZE / 2; span > 0; span /= 2) {
        if (l < span) {
            of_norm[l] += of_norm[l + span];
            of_shift[l] += of_shift[l + span];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (l == 0) {
        half_norm[c] = of_norm[0] / 2;
        shift[c] = of_shift[0];
    }
}
"""

# k-means++: the next center is a point, drawn with the square of its distance to the nearest one yet as its weight. Of
# exponentially distributed times, each divided by its weight, the least is such a draw, so that it is one argmax.
_SEED_MAP = """
    const int center = last[0].index;
    real distance = 0;
    for (int j = 0; j < FEATURES; ++j) {
        const real difference = points[PLACE(i, j)] - points[PLACE(center, j)];
        distance += difference * difference;
    }
    distance = fmin(distance, nearest[i]);
    nearest[i] = distance;
    const float uniform = ((float)mix((uint)i + mix(number + mix(seed))) + 0.5f) * 0x1p-32f;
    EMIT(0, ((value_t){(float)(distance * scale) / -log1p(-uniform), i}));
"""
_MIX = """
uint mix(uint x)  // MurmurHash3's last step: all bits of x change all of the result
{
    x = (x ^ x >> 16) * 0x85ebca6bu;
    x = (x ^ x >> 13) * 0xc2b2ae35u;
    return x ^ x >> 16;
}
"""

# How far each point is from its center.
_DISTANCE = """
kernel void distances(global const real *points, const long stride, global const real *centers,
                      global const label_t *label, global real *distance)
{
    const size_t p = get_global_id(0);
    real sum = 0;
    for (int j = 0; j < FEATURES; ++j) {
        const real difference = points[PLACE(p, j)] - centers[label[p] * FEATURES + j];
        sum = fma(difference, difference, sum);
    }
    distance[p] = sum;
}
"""

PICK = operators.argmax(np.float32)


class Kernels(NamedTuple):
    """The histograms of one shape, and the program of `assign` (of two sweeps), `move` and `distances`."""

    centre: HistogramKernel[Mapping[str, object]]
    seed: HistogramKernel
    update: HistogramKernel
    program: cl.Program


@lru_cache(maxsize=32)
def kernels(context: cl.Context, shape: Shape) -> Kernels:
    """Return the kernels of `shape`, compiled when they are first used."""
    real, common = c_name(shape.dtype), _common(shape)
    # What does not depend on the number of clusters: the same source for all of them is compiled once.
    features = _common(shape._replace(clusters=min(shape.clusters, 1), tile=Tile(), slice=0))
    wide, count = operators.add(shape.wide), operators.add(np.int32)
    centre = HistogramKernel(
        context,
        {"sum": shape.add(shape.wide), "square": wide},
        arguments=f"const {real} *points, const {real} *mean, {real} *centred, long stride",
        map=_CENTRE_MAP,
        preamble=features,
        emits=shape.width,
    )
    seed = HistogramKernel(
        context,
        PICK,
        arguments=f"const {real} *points, long stride, const pick_t *last, {real} *nearest, {real} scale, "
        "uint number, uint seed",
        map=_SEED_MAP,
        preamble=features + _MIX,
        structs={"pick_t": PICK.dtype},
        # Lets compilers reassociate the sums of distances, and so vectorise them.
        options=["-cl-unsafe-math-optimizations"],
    )
    fused, label = shape.clusters > 0, c_name(shape.label)
    sums = {} if shape.slice else {"sum": shape.add(shape.dtype)}
    update = HistogramKernel(
        context,
        {"count": count, **sums, "inertia": wide, "changed": count},
        arguments=_UPDATE_ARGUMENTS.format(real=real, label=label, written=label if fused else f"const {label}"),
        map=_FUSED_MAP if fused else _REST_MAP if shape.slice else _UPDATE_MAP,
        preamble=common,
        emits=shape.clusters * shape.features if fused else ROUND if shape.slice else shape.width,
    )
    assign = "" if fused else ON_CPU if shape.on_cpu else ON_GPU
    program = cl.Program(context, common + _MOVE + _DISTANCE + assign).build(options=["-w"])  # no compiler's words
    return Kernels(centre, seed, update, program)


@lru_cache(maxsize=32)
def sums_of_slices(context: cl.Context, shape: Shape, n: int) -> HistogramKernel:
    """Return the sums of `n` points as a batch with a histogram of (clusters, slice) bins for each slice of features.

    Its bins fit local memory where those of all features do not. The work-items of a warp read neighbouring features
    of one point, and add to neighbouring bins. `n` is in the source since dividing by it for each element would cost.
    """
    real = c_name(shape.dtype)
    return HistogramKernel(
        context,
        shape.add(shape.dtype),
        arguments=f"const {real} *points, const int *label",
        map=_SUM_MAP,
        preamble=f"{_common(shape)}\n#define ELEMENTS {n * shape.slice}\n",
    )


def c_name(dtype: np.dtype) -> str:
    """Return C's name of a type."""
    return {"float32": "float", "float64": "double", "int32": "int", "uint8": "uchar"}[dtype.name]


def _common(shape: Shape) -> str:
    """Return the numbers and types of `shape`, as C."""
    real, integer = c_name(shape.dtype), "int" if shape.dtype == np.float32 else "long"
    fused, n, label = shape.clusters > 0, shape.lanes, c_name(shape.label)
    vector = "" if n == 1 else str(n)
    defines = {
        "FEATURES": shape.features,
        "CLUSTERS": shape.clusters,
        "WIDTH": shape.width,
        "SLICE": shape.slice or shape.features,
        "COLUMNS": shape.columns,
        "DEPTHS": shape.depths,
        "GROUP_SIZE": shape.group,
        "ROUND": ROUND,
        "ROWS": ROWS,
        "VECTORS": VECTORS,
        "BLOCK": shape.tile.block,
        "DEPTH": shape.tile.depth,
        "BUFFERS": shape.tile.buffers,
        "LANES": n,
        "LOAD(p, g)": "(p)[g]" if n == 1 else f"vload{n}(g, p)",
        "STORE(v, p, g)": "(p)[g] = (v)" if n == 1 else f"vstore{n}(v, g, p)",
        "TO_LABELS": f"convert_{label}{vector}",
        "TO_INDEX": f"convert_{integer}{vector}",
        "TO_LANES": f"convert_{real}{vector}",
        "LANE": f"((int{vector})({', '.join(map(str, range(n)))}))",
        "PLACE(p, j)": "((size_t)(j) * stride + (p))" if fused else "((size_t)(p) * FEATURES + (j))",
        "GROUP(i, round)": "((i) * rounds + (round))" if shape.on_cpu else "((i) + (round) * elements)",
        "UNROLL": '_Pragma("unroll")',
    }
    types = {
        "real": real,
        "wide": c_name(shape.wide),
        "quotient": c_name(shape.wide) if shape.exact else real,
        "real4_t": f"{real}4",
        "lanes_t": f"{real}{vector}",
        "index_t": f"{integer}{vector}",
        "label_t": label,
        "labels_t": f"{label}{vector}",
    }
    lines = ["#pragma OPENCL EXTENSION cl_khr_fp64 : enable"] if np.float64 in (shape.dtype, shape.wide) else []
    lines += [f"#define {name} {value}" for name, value in defines.items()]
    lines += [f"typedef {meaning} {name};" for name, meaning in types.items()]
    return "\n".join(lines) + _TOTAL
