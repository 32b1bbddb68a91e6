"""Rows of CUDA combined by index and finished with the number of rows of each bin, where the plan is to gather them.

Then a mean, or a result with a number in empty bins, is one call: no counts are made, nor rows written twice.
"""

from __future__ import annotations

from math import prod

import pyopencl as cl

from clhist._core.model.rows import RowsPlan
from clhist._core.opencl.arrays import Array
from clhist._core.opencl.cuda_kinds import is_cuda
from clhist._core.opencl.program import kept_by_context
from clhist._core.runtime.scatter import ScatterSpec, elements, native, scatter_engine
from clhist.operators.by_count import finished_by_count
from clhist.operators.halves import number_of
from clhist.operators.names import operator_on_bins
from clhist.operators.operator import Operator


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
