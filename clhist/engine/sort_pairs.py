"""`clhist.engine.prepared.SortPairs`: a sort by digits, and PyOpenCL's scan, for many work-items and for one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
from pyopencl.tools import ScalarArg, VectorArg, dtype_to_ctype, get_or_register_dtype

from clhist.codegen.parameters import accumulator_words
from clhist.codegen.render import render_sort_scan
from clhist.engine.chain import Chain
from clhist.engine.digit_sort import sorted_by_digits
from clhist.engine.prepared import SortPairs
from clhist.errors import BuildError
from clhist.opencl.cuda_arrays import NotDirectError, cuda_device_of
from clhist.opencl.device import device_kind
from clhist.opencl.memory import Allocator, allocated
from clhist.opencl.program import building, kept_by_context
from clhist.opencl.quiet import silent
from clhist.operators.operator import Operator

if TYPE_CHECKING:
    from pyopencl.scan import GenericDebugScanKernel, GenericScanKernel

# PyOpenCL's kernels keep their arguments: only one thread may be between setting and enqueuing them.
enqueuing = threading.Lock()

_UINT = np.dtype(np.uint32)

# Compute units of a CPU, up to which one work-item scans alone. On two EPYC cores that took a quarter of the time on
# PoCL, three quarters on Intel's runtime, and both compilers a quarter.
_FEW_UNITS = 4


def build_sort(context: cl.Context, operator: Operator) -> None:
    """Build the kernels that sort pairs of `operator`; raises BuildError if the compiler refuses it."""
    _scan(context, operator)


def enqueue_sort(
    command: SortPairs,
    queue: cl.CommandQueue,
    blocks: Sequence[Any],
    allocate: Allocator,
    wait_for: Sequence[cl.Event],
    then: Callable[[cl.Event], Sequence[cl.Event]],
) -> None:
    """Enqueue a sort and the scan after it.

    Parameters
    ----------
    command : SortPairs
        What.
    queue : pyopencl.CommandQueue
        Where.
    blocks : sequence of buffer
        The scratch memory.
    allocate : callable
        Where more comes from.
    wait_for : sequence of pyopencl.Event
        What the first command waits for.
    then : callable
        Gets the last event of each of the two; returns what the next one waits for.
    """
    pairs = command.pairs

    def room(size: int) -> Any:
        purpose = f"more to sort {pairs} (bin, value) pairs; another update= than 'sort' needs less"
        return allocated(allocate, size, purpose)

    def array(block: Any, size: int, dtype: np.dtype) -> cl_array.Array:
        return cl_array.Array(queue, size, dtype, data=blocks[block.number], allocator=room)

    held = array(command.accumulators, pairs, _held_dtype(command.operator))
    cells = array(command.cells, 1, np.dtype(np.uint8))
    scan, bits = _scan(queue.context, command.operator), command.no_bin.bit_length()
    keys, positions = blocks[command.keys.number], blocks[command.positions.number]
    chain = Chain(queue, "", wait_for, room)
    memory = sorted_by_digits(chain, keys, positions, pairs, _UINT, bits)
    waited = then(chain.events[0])
    keys, positions = (cl_array.Array(queue, pairs, _UINT, data=each) for each in memory)
    with enqueuing:
        given = (keys, positions, held, cells, command.no_bin, *command.places)
        then(scan(*given, queue=queue, allocator=room, wait_for=list(waited)))


def check_scanned_by_opencl(queue: cl.CommandQueue) -> None:
    """Raise NotDirectError if a queue stands for a CUDA device, which cannot run PyOpenCL's scans."""
    if cuda_device_of(queue) is not None:
        raise NotDirectError("to scan elements that are sorted by group")


def scan_class(context: cl.Context) -> type[GenericScanKernel] | type[GenericDebugScanKernel]:
    from pyopencl.scan import GenericDebugScanKernel, GenericScanKernel  # here: a tenth of a second

    few = all(device_kind(device) == "cpu" and device.max_compute_units <= _FEW_UNITS for device in context.devices)
    return GenericDebugScanKernel if few else GenericScanKernel


@kept_by_context
def _scan(context: cl.Context, operator: Operator) -> GenericScanKernel | GenericDebugScanKernel:
    """Return the scan over sorted pairs; what has no bin takes no part, its accumulator may be anything."""
    dtype = _held_dtype(operator)
    parts = range(len(operator.parts))
    names = ("clhist_keys", "clhist_positions", "clhist_accumulators", "clhist_scratch")
    dtypes: tuple[np.dtype, ...] = (_UINT, _UINT, dtype, np.dtype(np.uint8))
    arguments = [
        *(VectorArg(of, name) for of, name in zip(dtypes, names, strict=True)),
        ScalarArg(_UINT, "clhist_no_bin"),
        *(ScalarArg(np.dtype(np.uint64), f"clhist_place{n}") for n in parts),
    ]
    places = ", ".join(f"clhist_place{n}" for n in parts)
    try:
        with building():
            return scan_class(context)(
                context,
                dtype,
                arguments,
                input_expr=(
                    "clhist_keys[i] < clhist_no_bin ? clhist_accumulators[clhist_positions[i]] : clhist_neutral()"
                ),
                scan_expr="clhist_joined(a, b, across_seg_boundary)",
                neutral="clhist_neutral()",
                is_segment_start_expr="i == 0 || clhist_keys[i] != clhist_keys[i - 1]",
                output_statement=(
                    "if (clhist_keys[i] < clhist_no_bin && (i + 1 == N || clhist_keys[i + 1] != clhist_keys[i])) "
                    f"clhist_publish(item, clhist_keys[i], clhist_scratch, {places});"
                ),
                preamble=render_sort_scan(operator, dtype_to_ctype(dtype)),
                name_prefix="clhist_scan",
                options=list(silent(context)),
            )
    except cl.Error as error:
        log = str(error)
    raise BuildError(f"the OpenCL compiler refused the scan of sorted pairs with {operator}:\n{log}", log=log)


def _held_dtype(operator: Operator) -> np.dtype:
    """Return PyOpenCL's dtype of an accumulator, so many words of which kernels know what they are."""
    words = accumulator_words(operator)
    return get_or_register_dtype(f"clhist_accumulators{words}_t", np.dtype([("clhist_words", np.uint32, (words,))]))
