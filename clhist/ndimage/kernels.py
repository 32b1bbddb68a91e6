"""The kernels of `clhist.ndimage` that are no statistics of `clhist.group_by`: centres of mass, and histograms."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pyopencl as cl

from clhist import operators
from clhist._core.spi import Array, Engine, is_device_array, kept_by_context, kernel_dtype, on_host, zeros
from clhist.binned.spi import Binned, BinnedKind, numpy_axis
from clhist.groupby import GroupBy
from clhist.operators.c_types import c_name


def center_kernel(groups: GroupBy, values: Array, shape: tuple[int, ...]) -> np.ndarray:
    """Return the mass of each group, and the sums of mass times each coordinate, as rows of float64 on the host."""
    data, keys, queue = groups.kernel_arrays("input", values)
    kernel = _centers(queue.context, keys.dtype, kernel_dtype(values.dtype), len(shape))
    strides = [int(prod(shape[d + 1 :])) for d in range(len(shape))]
    result: Any = kernel(keys, data, *strides, *shape, num_bins=groups.num_groups, queue=queue)
    host = on_host(result, queue)
    return np.stack([host[name] for name in host.dtype.names], axis=-1)


def histogram_kernel(groups: GroupBy, values: Array, edges: np.ndarray) -> Array:
    """Return the counts of each group between even `edges`, as rows of int64, of the kind of `values`."""
    data, keys, queue = groups.kernel_arrays("input", values)
    shape = groups.num_groups, len(edges) - 1
    axis = numpy_axis(edges, kernel_dtype(data.dtype), queue, ends=(edges[0], edges[-1]))
    if axis is None:  # no number of the dtype lies between the edges
        return zeros(queue, shape, np.dtype(np.int64)) if is_device_array(values) else np.zeros(shape, np.int64)
    binned = Binned((axis,), (data,), None, data.size)
    kernel = _histograms(queue.context, keys.dtype, binned.kind)
    counts: Any = kernel(keys, groups.num_groups, *binned.arguments(queue), num_bins=shape, queue=queue)
    return counts if is_device_array(values) else on_host(counts, queue)


@kept_by_context
def _centers(context: cl.Context, keys: np.dtype, values: np.dtype, dimensions: int) -> Engine:
    real = np.dtype(np.float64)
    names = ["mass", *(f"x{d}" for d in range(dimensions))]
    # The coordinate of element i in dimension d, in C order: divide by its stride, modulo its length.
    coordinates = "".join(f", (double)v * (i / s{d} % n{d})" for d in range(dimensions))
    sizes = "".join(f", const long {name}{d}" for name in "sn" for d in range(dimensions))
    return Engine.of(
        context,
        operators.product({name: operators.add(real) for name in names}),
        arguments=f"const {c_name(keys)} *keys, const {c_name(values)} *values{sizes}",
        map=f"const {c_name(values)} v = values[i]; EMIT(keys[i], ((value_t){{v{coordinates}}}))",
        emits=1,
    )


@kept_by_context
def _histograms(context: cl.Context, keys: np.dtype, kind: BinnedKind) -> Engine:
    # A bin outside of its row would have the flat number of another group's bin: check it before the product.
    code = f"{kind.code()} const long g = keys[i]; if (bin >= 0 && g >= 0 && g < groups) EMIT(g * size0 + bin, 1);"
    return kind.engine(
        context, operators.count(np.int64), code, before=(f"const {c_name(keys)} *keys", "const long groups")
    )
