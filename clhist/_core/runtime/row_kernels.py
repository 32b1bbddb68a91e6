"""Rows made from the rows of bins: means of sums, and the gradients of reductions by index.

Each is one kernel that reads every array once, on arrays of NumPy, PyOpenCL or CUDA.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import pyopencl as cl

from clhist._core.kernels.render import render_row_kernel
from clhist._core.kernels.row_kernels import ARRAYS, NUMBERS, SIZES, VECTOR_BYTES, RowKernelSpec
from clhist._core.opencl.arrays import Array, as_bytes, is_aligned, is_device_array
from clhist._core.opencl.cuda_kinds import is_cuda
from clhist._core.opencl.device import device_kind
from clhist._core.opencl.new_arrays import kept_on_device
from clhist._core.opencl.program import kept_by_context
from clhist._core.runtime.call import Outcome, queue_for, queue_of
from clhist._core.runtime.executable import Executable
from clhist._core.runtime.prepared import ArraySlot, New
from clhist._core.runtime.signature import call_templates, signature_of
from clhist._core.runtime.single_kernel import single_kernel
from clhist.operators.halves import number_of

_LANES, _GPU_GROUPS, _CPU_SHARES = 256, 16, 8  # work-items of a group; groups, and shares, for each compute unit
_LONG = 2**31  # vectors, from which their numbers need 64 bits


def gather(table: Array, indices: Array) -> Array:
    """Return the row of `table` that each index names, and zeros for an index outside the table.

    Parameters
    ----------
    table : array of shape (H, ...)
        Contiguous; numbers of any dtype.
    indices : array of shape (N,) of integers
        Of the same kind as `table`.

    Returns
    -------
    array of shape (N, ...)
        Of the kind and dtype of `table`.
    """
    return _run("gather", (table, indices), (*indices.shape, *table.shape[1:]), table.dtype)


def picked(table: Array, index: np.ndarray) -> Array:
    """Return the rows of an array of the device that `index` has the numbers of, all of which are in the table.

    Parameters
    ----------
    table : array of shape (H, ...)
        Contiguous.
    index : numpy.ndarray of integers
        On the host.

    Returns
    -------
    array of the shape of `index`, and of a row
        In the memory of the table, where the rows follow one another.
    """
    shape, first = (*index.shape, *table.shape[1:]), int(index.flat[0]) if index.size else 0
    # Consecutive numbers, such as those of all regions, need no copy; but PyOpenCL gives no buffer of a part.
    if np.array_equal(index.ravel(), np.arange(first, first + index.size)):
        if index.size == table.shape[0]:
            return table.reshape(shape)
        if is_cuda(table) or not index.size:
            return table[first : first + index.size].reshape(shape)
    queue = queue_of(table)
    assert queue is not None
    # Numbers stay on the device for later calls, which read nothing of the host then and can be repeated.
    key = signature_of("rows picked", queue, index)
    numbers = call_templates.get(key)
    if numbers is None:
        numbers = kept_on_device(queue, index.ravel())
        call_templates.put(key, numbers)
    is_bool = table.dtype.kind == "b"
    rows = gather(as_bytes(table) if is_bool else table, numbers).reshape(shape)
    return rows.view(np.bool_) if is_bool else rows


def mean_gradient(gradient: Array, indices: Array, counts: Array) -> Array:
    """Return `gather` of gradients of means, each divided by the count of its bin (int64, of shape (H,))."""
    shape = (*indices.shape, *gradient.shape[1:])
    return _run("mean_gradient", (gradient, indices, counts), shape, gradient.dtype)


def means(sums: Array, counts: Array, dtype: np.dtype, queue: cl.CommandQueue | None = None) -> Array:
    """Return sums of rows, of shape (H, ...), divided by the number of rows of each bin, as an array of `dtype`.

    Bins of several histograms follow each other: `counts` has a number for each.
    """
    return _run("mean", (sums, counts), sums.shape, dtype, queue=queue)


def write_means(sums: Array, counts: Array, out: Array, queue: cl.CommandQueue) -> cl.Event:
    """Write `means` to an array, and return the event after which they are there."""
    return _outcome("mean", (sums, counts), sums.shape, out.dtype, queue=queue, out=out).event


def filled(values: Array, counts: Array, empty: float) -> Array:
    """Return the rows of `values`, and rows of `empty` for bins whose count is 0."""
    return _run("filled", (values, counts), values.shape, values.dtype, empty)


def exponentials(source: Array, maxima: Array, indices: Array, dtype: np.dtype) -> Array:
    """Return ``exp(source - maxima[bin])`` of each component as an array of `dtype`; 0 of rows outside the bins."""
    return _run("exponential", (source, maxima, indices), source.shape, dtype)


def quotients(source: Array, divisors: Array, indices: Array, dtype: np.dtype) -> Array:
    """Return ``source / divisors[bin]`` of each component as an array of `dtype`; 0 of rows outside the bins."""
    return _run("quotient", (source, divisors, indices), source.shape, dtype)


def log_sums(sums: Array, maxima: Array, empty: float) -> Array:
    """Return ``log(sums) + maxima``, of the dtype of `maxima`, and `empty` of bins without rows.

    `sums` are those of `exponentials` of each bin.
    """
    return _run("log_sum", (sums, maxima), maxima.shape, maxima.dtype, empty)


def log_sum_gradient(source: Array, maxima: Array, sums: Array, indices: Array, gradient: Array) -> Array:
    """Return the gradient of `log_sums`: that of each bin, shared by its rows as their softmax."""
    return _run("log_sum_gradient", (source, maxima, sums, indices, gradient), source.shape, source.dtype)


def softmax_gradient(result: Array, sums: Array, indices: Array, gradient: Array) -> Array:
    """Return ``result * (gradient - sums[bin])``: `sums` are those of ``result * gradient`` of each bin."""
    return _run("softmax_gradient", (result, sums, indices, gradient), result.shape, result.dtype)


def moments_gradient(source: Array, means: Array, indices: Array, slope: Array, gradient: Array) -> Array:
    """Return ``(source - means[bin]) * slope[bin] + gradient[bin]``: the gradient of means and variances."""
    return _run("moments_gradient", (source, means, indices, slope, gradient), source.shape, source.dtype)


def spreads(squares: Array, counts: Array, correction: int, empty: float, *, is_root: bool) -> Array:
    """Return variances, or their roots, from sums of squares of deviations and the number of rows of each bin.

    Bins of at most `correction` rows have `empty`.
    """
    return _run("spread", (squares, counts), squares.shape, squares.dtype, correction, is_root, empty)


def spread_gradient(
    source: Array,
    means: Array,
    spreads: Array,
    indices: Array,
    gradient: Array,
    counts: Array,
    correction: int,
    *,
    is_root: bool,
) -> Array:
    """Return the gradient of `spreads`; 0 where a root is 0, and in bins of at most `correction` rows."""
    arrays = source, means, spreads, indices, gradient, counts
    return _run("spread_gradient", arrays, source.shape, source.dtype, correction, is_root)


def extreme_gradient(source: Array, extremes: Array, indices: Array, gradient: Array, winners: Array) -> Array:
    """Return the gradient of minima or maxima: that of each bin, shared equally by the values that are its extreme.

    Parameters
    ----------
    source : array of shape (N, ...)
        The values.
    extremes, gradient, winners : arrays of shape (H, ...)
        The result of the reduction, its gradient, and how many values of each bin equal the extreme (int32).
    indices : array of shape (N,) of integers
        The bin of each row of values.
    """
    share = _run("share", (gradient, winners), gradient.shape, gradient.dtype)
    return _run("extreme_share", (source, extremes, indices, share), source.shape, gradient.dtype)


def extreme_gradient_by_ties(source: Array, extremes: Array, indices: Array, gradient: Array) -> Array:
    """Return `extreme_gradient`, on a GPU: what equals the extreme is counted by atomics, since most values do not.

    The gradient of each bin is divided before it is gathered, so that one table less is read for each row.
    """
    # The counts of winners begin as zeros, to which the second kernel adds one for each tie.
    winners = _run("none", (extremes,), extremes.shape, np.dtype(np.int32))
    _outcome("ties", (source, extremes, indices), source.shape, winners.dtype, out=winners)
    return extreme_gradient(source, extremes, indices, gradient, winners)


def _run(
    kind: str,
    arrays: tuple[Array, ...],
    shape: tuple[int, ...],
    dtype: np.dtype,
    *numbers: float,
    queue: cl.CommandQueue | None = None,
) -> Array:
    """Run the kernel of this kind on contiguous arrays and return the new array of this shape."""
    return _outcome(kind, arrays, shape, dtype, *numbers, queue=queue).results[0]


def _outcome(
    kind: str,
    arrays: tuple[Array, ...],
    shape: tuple[int, ...],
    dtype: np.dtype,
    *numbers: float,
    queue: cl.CommandQueue | None = None,
    out: Array | None = None,
) -> Outcome:
    named = dict(zip(ARRAYS[kind], arrays, strict=True))
    table, of_rows, on_device = named["table"], named.get("indices"), is_device_array(arrays[0])
    # Rows of the result: one for each element of `indices`, or for each bin if there are no indices.
    rows = shape[0] if kind in ("none", "share", "log_sum") else (arrays[-1] if of_rows is None else of_rows).size
    queue = queue_for(queue, arrays[0].context if on_device else None, queue_of(*arrays))
    components = prod(shape) // rows
    # Only arrays of rows are loaded as vectors; indices and counts are single numbers.
    vectors = [array for name, array in named.items() if ARRAYS[kind][name] in ("element", "bin")]
    vector = _vector([*vectors, *([] if out is None else [out])], components, dtype)
    size = prod(shape) // vector
    # The table may have more vectors than the result.
    is_long = max(size, prod(table.shape) // vector) >= _LONG
    is_cpu = device_kind(queue.device) == "cpu"
    dtypes = (*(array.dtype for array in arrays), dtype)
    spec = RowKernelSpec(kind, dtypes, components // vector, vector, is_long, is_cpu)
    # Vectors of a share, for CPUs: each work-item takes consecutive ones.
    share = -(-size // (queue.device.max_compute_units * _CPU_SHARES))
    scalars: list[Any] = [np.uint64(number) for number in (size, table.shape[0], max(1, share))]
    number_type = np.uint8 if dtype.kind == "b" else number_of(dtype).type  # kernels have no boolean arguments
    scalars += [number_type(number) for number in numbers]
    executable = _executable(queue.context, queue, spec)
    return executable.run(queue, [*arrays, New(shape) if out is None else out], scalars, on_device)


def _vector(arrays: Sequence[Array], components: int, dtype: np.dtype) -> int:
    """Return the components of a vector: at most 16 bytes of the widest array, whose addresses are multiples of them.

    `arrays` have rows of so many components; those of the result are of `dtype`.
    """
    vector, item = 1, max(dtype.itemsize, *(array.dtype.itemsize for array in arrays))
    # A vector must not cross rows, so it divides the components.
    while 2 * vector * item <= VECTOR_BYTES and components % (2 * vector) == 0:
        vector *= 2
    return vector if all(is_aligned(array, vector * array.dtype.itemsize) for array in arrays) else 1


@kept_by_context
def _executable(context: cl.Context, queue: cl.CommandQueue, spec: RowKernelSpec) -> Executable:
    slots = [ArraySlot(name, True, False) for name in ARRAYS[spec.kind]]
    slots.append(ArraySlot("out", False, True, ((1,), spec.result)))
    units = queue.device.max_compute_units
    # A work-group of a CPU is one work-item with a share of the rows; a GPU has several groups for each unit.
    lanes = 1 if spec.blocked else min(_LANES, queue.device.max_work_group_size)
    sizes = (units * _CPU_SHARES, 1) if spec.blocked else (units * _GPU_GROUPS * lanes, lanes)
    name, source = f"row_{spec.kind}", render_row_kernel(spec)
    scalars = (*SIZES, *NUMBERS.get(spec.kind, ()))
    return single_kernel(queue, name, source, tuple(slots), scalars, sizes, "rows of bins", _options(queue.device))


def _options(device: cl.Device) -> tuple[str, ...]:
    """Return the options by which single precision divides as IEEE 754 has it: means do not depend on the device."""
    is_optional = device.single_fp_config & cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT
    return ("-cl-fp32-correctly-rounded-divide-sqrt",) if is_optional else ()
