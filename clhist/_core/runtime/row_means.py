"""Means of vectors: their sums and the number of vectors of each bin are calls of their own, and the sums divided.

A sum and a number for each component would be 16 bytes, four times as many as those of a float32, and sums of vectors
have faster ways (`clhist._core.model.rows`) than pairs of numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyopencl as cl

from clhist._core.opencl.arrays import Array, note_event
from clhist._core.opencl.cuda_kinds import cuda_device_of
from clhist._core.opencl.memory import scratch_allocator
from clhist._core.opencl.new_arrays import empty, survey
from clhist._core.runtime import row_kernels
from clhist._core.runtime.call import Call, Outcome
from clhist._core.runtime.engine import Engine
from clhist._core.runtime.result_arrays import target
from clhist._core.runtime.scatter import ScatterSpec, scatter_engine
from clhist.operators.statistics import sum_and_number

Run = Callable[[Engine, Sequence[Any], Call], Outcome]


def are_row_means(spec: ScatterSpec, call: Call) -> bool:
    """Whether a call is left to `row_means`.

    With a `dest` it is not, whose components count as one value each; nor with choices, which are for the sweep of the
    operator itself, nor with `offsets` on a GPU, which are those of components.
    """
    is_plain = spec.vector > 1 and spec.values is not None and call.dest is None and not call.choices.forced
    return is_plain and (spec.by_rows or call.offsets is None) and sum_and_number(spec.operator) is not None


def row_means(
    run: Run, spec: ScatterSpec, call: Call, shape: tuple[int, ...], args: Sequence[Any]
) -> tuple[Array, cl.Event]:
    """Return the means, and the event after which they are there.

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
    # Device memory that is new takes time, and nobody else sees these.
    own = arrays.on_device and call.allocator is None and cuda_device_of(queue) is None
    allocator = scratch_allocator(queue) if own else call.allocator
    given = replace(call, out=None, allocator=allocator)
    of_sums = scatter_engine(queue.context, replace(spec, operator=parts.sum, read_as=spec.operator.dtype))
    of_numbers = scatter_engine(queue.context, ScatterSpec(parts.number, spec.index, None))
    found = run(of_sums, args, given)
    counted = replace(given, num_bins=call.num_bins[:1], size=indices.size)
    number = run(of_numbers, (indices, 1), counted)
    dtype = spec.operator.dtype
    if cuda_device_of(queue) is not None and out.out is None and dtype.kind != "c":
        return row_kernels.means(found.results[0], number.results[0], dtype, queue), number.event
    means = (out.out or (empty(queue, shape, dtype, arrays.on_device, call.allocator),))[0]
    return _divided(queue, means, found, number, arrays.on_device, arrays.events)


def _divided(
    queue: cl.CommandQueue, means: Array, found: Outcome, number: Outcome, on_device: bool, wait_for: Sequence[cl.Event]
) -> tuple[Array, cl.Event]:
    (sums,), (numbers,) = found.results, number.results
    held, result = _real(sums.dtype), _real(means.dtype)
    if not on_device:
        divisor = numbers.astype(held).reshape(*numbers.shape, *[1] * (sums.ndim - numbers.ndim))
        with np.errstate(all="ignore"):
            np.divide(sums.view(held), divisor, out=means.view(result), casting="same_kind")
        return means, number.event
    written = means.view(result)
    event = row_kernels.write_means(sums.view(held), numbers, written, queue)
    if event is not None:  # CUDA's stream orders what is done
        note_event(means, event, [found.event, number.event, *wait_for])
    return means, event


def _real(dtype: np.dtype) -> np.dtype:
    """Return the type of the parts of complex numbers, and that of others."""
    return np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype
