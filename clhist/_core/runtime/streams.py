"""Forms of operators and maps for streams: the accumulators that stay on the device, and the positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyopencl as cl

from clhist._core.opencl.arrays import (
    Array,
    check_array,
    check_context,
    common_kind,
    leave_out,
    mask_of,
    mask_of_values,
)
from clhist._core.opencl.cuda_arrays import CudaArray
from clhist._core.opencl.new_arrays import empty
from clhist._core.runtime.chunks import Piece
from clhist._core.runtime.cuda_calls import first_of_cuda
from clhist._core.runtime.engine import Engine, check_number
from clhist._core.runtime.outputs import Outputs
from clhist._core.runtime.reading import as_indices
from clhist._core.runtime.result_arrays import check_dest
from clhist._core.runtime.scatter import arguments_of, pair_spec, scatter_engine
from clhist._core.runtime.values import checked_values, ones
from clhist.operators.names import COUNT, operator_on_bins, operator_on_values
from clhist.operators.operator import Operator


def stream_operator(op: Any, dtype: Any, dest: Any) -> Operator:
    """Return the operator that the first argument, on the dtype of the others, stands for."""
    if dtype is None:
        dtype = op.dtype if isinstance(op, Operator) else getattr(dest, "dtype", None)
    if op == COUNT and dtype is None:
        dtype = np.int64
    if dtype is None and isinstance(op, np.ufunc | str):
        raise TypeError(f"dtype: expected that of the bins for {op!r}, since there is no dest; got none")
    return (operator_on_bins if dest is not None else operator_on_values)(op, dtype, "operator")


def held_form(operator: Operator, *, cpu: bool) -> Operator:
    """Return the form whose bins stay on the device between chunks; portable accumulators can be made of them."""
    plain = operator.fixed(shared=False)
    # On a CPU each work-item has private copies, so the plain form will do if its accumulators are values.
    return plain if cpu and plain.holds_values else operator.fixed(shared=True)


def first_argument(engine: Engine, name: str | None) -> int | None:
    """Return the index of the scalar argument of this name; None if there is no name."""
    if name is None:
        return None
    for n, argument in enumerate(engine.arguments):
        if argument.name == name and not argument.is_array and argument.dtype.kind in "iu":
            return n
    raise ValueError(f"first_index: expected the name of a scalar argument of an integer type, got {name!r}")


def checked_dests(
    outputs: Outputs, forms: Sequence[Operator], shapes: Sequence[tuple[int, ...]], dest: Any, context: cl.Context
) -> list[Array | None]:
    """Return the checked initial values of each output; None of an output without."""
    if dest is None:
        return [None] * len(forms)
    names = [f"dest{label}" for label in outputs.labels]
    arrays = [dest] if outputs.is_single else outputs.per_output("dest", dest)
    dests = []
    for name, form, array, shape in zip(names, forms, arrays, shapes, strict=True):
        if array is not None:  # of several, some may have no dest
            array = array.get() if isinstance(array, CudaArray) else array
            array = check_array(name, array, form.dtype, written=False, shape=shape)
            check_dest(name, form)
        dests.append(array)
    check_context(zip(names, dests, strict=True), context)
    return dests


def checked_pairs(
    form: Operator, operator: Operator, counts: bool, queue: cl.CommandQueue, indices: Any, values: Any
) -> tuple[Engine, list[Any], int, int | None]:
    """Return the engine of (index, value) pairs, its arguments, the number of pairs, and the index of the position."""
    of_indices, of_values = mask_of(indices), mask_of_values(values)
    indices = as_indices(indices, "indices, values")
    if counts:
        values = ones(values, indices.shape)
    values, with_position = checked_values(values, operator, indices.shape, ())
    if of_indices is not None or of_values is not None:
        arrays = values if isinstance(values, tuple) else ()
        common_kind([("indices", indices), *(("values", v) for v in arrays)])
        indices, values = leave_out(indices, values, of_indices, of_values)
    spec = pair_spec(form, indices, values, 1, queue.device, with_position)
    engine = scatter_engine(queue.context, replace(spec, from_first=with_position))
    args = list(arguments_of(spec, indices, values, 0))
    return engine, [*args, 0] if with_position else args, indices.size, len(args) if with_position else None


def library_of(arrays: Any) -> CudaArray | None:
    """Return an array without the caller's memory that says of which library of CUDA some are; None of others."""
    first = first_of_cuda(arrays)
    return None if first is None else empty(first.stands_for, (1,), np.dtype(np.uint8), True)


def check_numbers(
    forms: Sequence[Operator],
    portable: Sequence[Operator],
    emits: Sequence[int],
    piece: Piece,
    count: int,
    merged: int,
) -> None:
    """Raise OverflowError if a bin may have more values with `piece` than one of the operators can take.

    `count` elements have been added, and merged accumulators have at most `merged` values of a bin.
    """
    for form, portable_form, most_pairs in zip(forms, portable, emits, strict=True):
        # The same accumulators take all elements of the stream, so all count together.
        if portable_form.most_values == form.most_values:
            check_number(form, (piece.size + count) * most_pairs + merged)
        else:  # full bins move to a portable partial before each chunk, so one chunk has to fit
            check_number(form, min(piece.size, piece.step) * most_pairs)
