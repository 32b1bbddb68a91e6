"""The kernels of `clhist.ndimage` that are no statistics of `clhist.group_by`: centres of mass, and histograms."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from clhist import operators
from clhist.errors import UnsupportedError
from clhist.groupby import GroupBy
from clhist.kernel import HistogramKernel
from clhist.opencl.arrays import Array, is_device_array
from clhist.opencl.program import kept_by_context
from clhist.operators.c_types import c_name


def center_kernel(groups: GroupBy, values: Array, shape: tuple[int, ...]) -> np.ndarray:
    """Return the mass of each group, and the sums of mass times each coordinate, as rows of float64 on the host."""
    given, keys, queue = groups.placed("input", values), groups.codes, groups.queue
    kernel = _centers(queue.context, keys.dtype, _dtype(values), len(shape))
    strides = [int(prod(shape[d + 1 :])) for d in range(len(shape))]
    result = kernel(keys, given, *strides, *shape, num_bins=groups.num_groups, queue=queue)
    host: Any = result.get(queue) if is_device_array(result) else result
    return np.stack([host[name] for name in host.dtype.names], axis=-1)


def histogram_kernel(groups: GroupBy, values: Array, edges: np.ndarray) -> Array:
    """Return the counts of each group between `edges`, as rows of int64, of the kind of `values`."""
    if not groups.queue.device.double_fp_config:
        raise UnsupportedError(f"{groups.queue.device.name.strip()} has no double precision, in which edges are")
    given, keys, queue = groups.placed("input", values), groups.codes, groups.queue
    kernel = _histograms(queue.context, keys.dtype, _dtype(values))
    table = cl_array.to_device(queue, edges) if is_device_array(given) else edges
    bins, width = len(edges) - 1, edges[-1] - edges[0]
    scale = bins / width if width > 0 else 0.0
    shape = groups.num_groups, bins
    found = kernel(keys, given, table, bins, float(scale), groups.num_groups, num_bins=shape, queue=queue)
    return found if is_device_array(values) or not is_device_array(found) else found.get(queue)


def _dtype(values: Array) -> np.dtype:
    return np.dtype(np.uint8) if values.dtype.kind == "b" else values.dtype


@kept_by_context
def _centers(context: cl.Context, keys: np.dtype, values: np.dtype, dimensions: int) -> HistogramKernel:
    real = np.dtype(np.float64)
    names = ["mass", *(f"x{d}" for d in range(dimensions))]
    coordinates = "".join(f", (double)v * (i / s{d} % n{d})" for d in range(dimensions))
    sizes = "".join(f", const long {name}{d}" for name in "sn" for d in range(dimensions))
    return HistogramKernel(
        context,
        operators.product({name: operators.add(real) for name in names}),
        arguments=f"const {c_name(keys)} *keys, const {c_name(values)} *values{sizes}",
        map=f"const {c_name(values)} v = values[i]; EMIT(keys[i], ((value_t){{v{coordinates}}}))",
        emits=1,
    )


@kept_by_context
def _histograms(context: cl.Context, keys: np.dtype, values: np.dtype) -> HistogramKernel:
    # A guess from the even width, and then NumPy's own comparison with the edges.
    return HistogramKernel(
        context,
        operators.count(np.int64),
        arguments=f"const {c_name(keys)} *keys, const {c_name(values)} *values, const double *edges, const int bins, "
        "const double scale, const long groups",
        map="const long g = keys[i]; const double v = values[i]; "
        "if (g >= 0 && g < groups && v >= edges[0] && v <= edges[bins]) { "
        "int k = clamp((int)((v - edges[0]) * scale), 0, bins - 1); "
        "while (k < bins - 1 && v >= edges[k + 1]) ++k; while (k > 0 && v < edges[k]) --k; EMIT(g * bins + k, 1); }",
        emits=1,
    )
