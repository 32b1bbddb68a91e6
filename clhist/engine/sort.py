"""Sort and scan (SC'20, Listing 4): the pairs of a map are sorted by bin, and those of each bin combined by a scan.

No bin is updated by two work-items, so nothing waits, however few bins there are. The sort is stable and the scan has
one order on one device, so that sums of floats come out the same every time. Both are PyOpenCL's.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
from pyopencl.tools import ScalarArg, VectorArg, dtype_to_ctype, get_or_register_dtype

from clhist.codegen.parameters import accumulator_words, pairs_parameters
from clhist.codegen.render import render_sort_pairs, render_sort_scan
from clhist.codegen.specs import SweepSpec
from clhist.engine.stages import Enqueued, Sweep, Tasks
from clhist.errors import BuildError
from clhist.opencl.memory import Allocator, allocated
from clhist.opencl.program import Kernel, build, building, kept_by_context
from clhist.operators.operator import Operator
from clhist.planning.plan import Plan

if TYPE_CHECKING:
    from pyopencl.algorithm import RadixSort
    from pyopencl.scan import GenericScanKernel

# PyOpenCL's kernels keep their arguments: only one thread may be between setting and enqueuing them.
_enqueuing = threading.Lock()

_UINT = np.dtype(np.uint32)


@dataclass(frozen=True, eq=False, kw_only=True)
class SortedSweep(Sweep):
    """A kernel that writes the pairs, their sort, and the scan of the sorted ones.

    Attributes
    ----------
    kernel : Kernel
        Writes bins, positions and accumulators.
    sort : pyopencl.algorithm.RadixSort
        Sorts bins, and the positions with them.
    scan : pyopencl.scan.GenericScanKernel
        Combines the accumulators of each bin and writes the last of each.
    pairs_per_element : int
        How many pairs each element has.
    """

    sort: RadixSort
    scan: GenericScanKernel
    pairs_per_element: int

    def enqueue(self, enqueued: Enqueued, tasks: Tasks, values: Mapping[str, object], allocate: Allocator) -> None:
        """Enqueue all three as parts of the stage "sweep"; the cells in the scratch memory have been cleared.

        Raises
        ------
        MemoryError
            If the pairs cannot be allocated.
        """
        plan, operator = self.plan, self.spec.outputs[0].operator
        pairs = plan.num_elements * self.pairs_per_element

        def room(size: int) -> Any:
            purpose = f"more to sort {pairs} (bin, value) pairs; another update= than 'sort' needs less"
            return allocated(allocate, size, purpose)

        def array(dtype: np.dtype) -> cl_array.Array:
            return cl_array.empty(queue, pairs, dtype, allocator=room)

        queue, size = enqueued.queue, plan.work_group_size
        no_bin = plan.num_bins * plan.num_histograms
        keys, positions, held = (array(dtype) for dtype in (_UINT, _UINT, _held_dtype(operator)))
        arguments = {
            **values,
            "clhist_num_bins": plan.num_bins,
            "clhist_no_bin": no_bin,
            "clhist_keys": keys.base_data,
            "clhist_positions": positions.base_data,
            "clhist_accumulators": held.base_data,
        }
        enqueued.add("sweep", self.kernel, (plan.work_groups * size,), (size,), arguments)
        places = [values[f"clhist_place{n}"] for n in range(len(operator.parts))]
        scratch = cl_array.Array(queue, 1, np.uint8, data=values["clhist_scratch"])
        with _enqueuing:
            (keys, positions), event = self.sort(
                keys,
                positions,
                queue=queue,
                allocator=room,
                key_bits=no_bin.bit_length(),
                wait_for=enqueued.wait_for,
            )
            enqueued.add_last("sweep", event)
            event = self.scan(
                keys,
                positions,
                held,
                scratch,
                no_bin,
                *places,
                queue=queue,
                allocator=room,
                wait_for=enqueued.wait_for,
            )
            enqueued.add_last("sweep", event)


def sorted_sweep(
    context: cl.Context, plan: Plan, spec: SweepSpec, options: tuple[str, ...], *, pairs_per_element: int
) -> Sweep:
    """Return the built sweep of a plan whose update is "sort".

    Raises
    ------
    ValueError
        If the elements of a batch are not equal shares.
    BuildError
        If the compiler refuses the operator or the map.
    """
    if spec.batch == "ragged":
        raise ValueError("update: 'sort' takes batches of equal shares, by num_histograms=, got others, by offsets=")
    return SortedSweep(
        plan=plan,
        spec=spec,
        kernel=_pairs(context, spec, pairs_per_element, options),
        sort=_sort(context),
        scan=_scan(context, spec.outputs[0].operator),
        pairs_per_element=pairs_per_element,
    )


@kept_by_context
def _pairs(context: cl.Context, spec: SweepSpec, pairs_per_element: int, options: tuple[str, ...]) -> Kernel:
    program = build(context, render_sort_pairs(spec, pairs_per_element), options)
    return Kernel(program, "clhist_pairs", pairs_parameters(spec))


@kept_by_context
def _sort(context: cl.Context) -> RadixSort:
    arguments = [VectorArg(_UINT, "keys"), VectorArg(_UINT, "positions")]
    from pyopencl.algorithm import RadixSort  # here, since it takes a tenth of a second, and caches that can be written

    with building():
        return RadixSort(context, arguments, key_expr="keys[i]", sort_arg_names=["keys", "positions"])


@kept_by_context
def _scan(context: cl.Context, operator: Operator) -> GenericScanKernel:
    """Return the scan over sorted pairs; what has no bin takes no part, its accumulator may be anything."""
    from pyopencl.scan import GenericScanKernel  # as above

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
            return GenericScanKernel(
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
            )
    except cl.Error as error:
        log = str(error)
    raise BuildError(f"the OpenCL compiler refused the scan of sorted pairs with {operator}:\n{log}", log=log)


def _held_dtype(operator: Operator) -> np.dtype:
    """Return PyOpenCL's dtype of an accumulator, so many words of which kernels know what they are."""
    words = accumulator_words(operator)
    return get_or_register_dtype(f"clhist_accumulators{words}_t", np.dtype([("clhist_words", np.uint32, (words,))]))
