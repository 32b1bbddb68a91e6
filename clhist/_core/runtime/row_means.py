"""Means of vectors, by separate calls for the sums and for the number of vectors of each bin, or by one on CUDA.

An accumulator with a sum and a number for each component would have 16 bytes, four times those of a float32, and sums
of vectors have faster plans (`clhist._core.model.rows`) than pairs of numbers. Rows of CUDA that the plan gathers are
finished by their number: no counts are made, nor rows written twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pyopencl as cl

from clhist._core.model.rows import RowsPlan
from clhist._core.opencl.arrays import Array, note_event
from clhist._core.opencl.cuda_kinds import cuda_device_of, is_cuda
from clhist._core.opencl.memory import scratch_allocator
from clhist._core.opencl.new_arrays import empty, survey
from clhist._core.opencl.program import kept_by_context
from clhist._core.runtime import row_kernels
from clhist._core.runtime.call import Call, Outcome
from clhist._core.runtime.engine import Engine
from clhist._core.runtime.result_arrays import target
from clhist._core.runtime.scatter import ScatterSpec, elements, native, scatter_engine
from clhist.operators.by_count import finished_by_count
from clhist.operators.halves import number_of
from clhist.operators.names import operator_on_bins
from clhist.operators.operator import Operator
from clhist.operators.statistics import sum_and_number

Run = Callable[[Engine, Sequence[Any], Call], Outcome]


def are_row_means(spec: ScatterSpec, call: Call) -> bool:
    """Whether `row_means` computes a call.

    It does not with a `dest`, each component of which counts as one value. Neither does it with choices, which are
    for the plan of the operator itself, nor with `offsets` on a GPU, which are those of components.
    """
    is_plain = spec.vector > 1 and spec.values is not None and call.dest is None and not call.choices.forced
    return is_plain and (spec.by_rows or call.offsets is None) and sum_and_number(spec.operator) is not None


def row_means(
    run: Run, spec: ScatterSpec, call: Call, shape: tuple[int, ...], args: Sequence[Any]
) -> tuple[Array, cl.Event]:
    """Return the means, and the event of the command that writes them.

    Parameters
    ----------
    run : callable
        Runs a call of an engine.
    spec : ScatterSpec
        Of the arrays, with a mean as its operator.
    call : Call
        Of that operator, with the queue where it runs.
    shape : tuple of int
        Of the means: of all histograms of a batch.
    args : sequence
        What the engine of `spec` takes: indices, values and the number of rows.

    Raises
    ------
    TypeError, ValueError
        If `out` is wrong.
    """
    queue, parts = call.queue, sum_and_number(spec.operator)
    assert queue is not None
    assert parts is not None
    indices, values = args[:2]
    out = target("", spec.operator, shape, None, call.out)
    arrays = survey([("indices", indices), ("values", values), *out.named], queue.context, 1)
    # Sums and numbers never leave this function, so they reuse scratch memory: new device memory takes time.
    own = arrays.on_device and call.allocator is None and cuda_device_of(queue) is None
    allocator = scratch_allocator(queue) if own else call.allocator
    base_call = replace(call, out=None, allocator=allocator)
    # Two calls: sums of the rows, and one count for each row, whatever its components.
    of_sums = scatter_engine(queue.context, replace(spec, operator=parts.sum, read_as=spec.operator.dtype))
    of_numbers = scatter_engine(queue.context, ScatterSpec(parts.number, spec.index, None))
    sum_outcome = run(of_sums, args, base_call)
    counted = replace(base_call, num_bins=call.num_bins[:1], size=indices.size)
    number = run(of_numbers, (indices, 1), counted)
    dtype = spec.operator.dtype
    # On CUDA's stream, means are new arrays of the library, and no event has to be noted.
    if cuda_device_of(queue) is not None and out.out is None and dtype.kind != "c":
        return row_kernels.means(sum_outcome.results[0], number.results[0], dtype, queue), number.event
    means = (out.out or (empty(queue, shape, dtype, arrays.on_device, call.allocator),))[0]
    return _divided(queue, means, sum_outcome, number, arrays.on_device, arrays.events)


def _divided(
    queue: cl.CommandQueue,
    means: Array,
    sum_outcome: Outcome,
    number: Outcome,
    on_device: bool,
    wait_for: Sequence[cl.Event],
) -> tuple[Array, cl.Event]:
    (sums,), (numbers,) = sum_outcome.results, number.results
    sum_dtype, result = _real(sums.dtype), _real(means.dtype)
    if not on_device:
        # A count divides all components of its row; 0 / 0 gives the NaN of an empty bin without a warning.
        divisor = numbers.astype(sum_dtype).reshape(*numbers.shape, *[1] * (sums.ndim - numbers.ndim))
        with np.errstate(all="ignore"):
            np.divide(sums.view(sum_dtype), divisor, out=means.view(result), casting="same_kind")
        return means, number.event
    # Complex numbers are divided as pairs of floats, since their divisor is real.
    written = means.view(result)
    event = row_kernels.write_means(sums.view(sum_dtype), numbers, written, queue)
    if event is not None:  # CUDA's stream orders what is done
        note_event(means, event, [sum_outcome.event, number.event, *wait_for])
    return means, event


def _real(dtype: np.dtype) -> np.dtype:
    """Return the dtype of the parts of complex numbers; other dtypes as they are."""
    return np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype


def operator_by_count(
    reduce: str, indices: Array, values: Array, shape: tuple[int, ...], empty: float | None
) -> Operator | None:
    """Return the operator whose rows `update="gather"` combines; None where other plans are faster, or on a CPU.

    Parameters
    ----------
    reduce, empty
        As of `clhist.operators.by_count.finished_by_count`.
    indices, values : arrays
        Of shapes (N,) and (N, ...).
    shape : tuple of int
        Of the result.
    """
    vector = prod(shape[1:])
    if not is_cuda(values) or vector < 2 or not indices.size:
        return None
    queue = values.queue
    assert queue is not None
    # The plan is that of sums, or of the reduction, of plain numbers: wider accumulators take no longer where rows are
    # gathered, and are not known to the model.
    number = native(number_of(values.dtype))
    plain = operator_on_bins("sum" if reduce == "mean" else reduce, number)
    spec = ScatterSpec(plain, native(indices.dtype), (number,), vector)
    if not _gathers(queue.context, queue.device, spec, elements(spec, indices), shape):
        return None
    return finished_by_count(reduce, values.dtype, empty)


@kept_by_context
def _gathers(context: cl.Context, device: cl.Device, spec: ScatterSpec, size: int, shape: tuple[int, ...]) -> bool:
    """Whether rows of this number of elements are gathered by a GPU."""
    # Neither several sweeps nor a row plan with parts, which is a CPU's, gather rows.
    plan, *others = scatter_engine(context, spec).plan(device, size, (shape,))
    return not others and isinstance(plan, RowsPlan) and not plan.parts
