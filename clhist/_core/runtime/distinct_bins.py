"""Samples an input on the device: counts distinct bins for the race factor, or fetches values for operator checks."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np
import pyopencl as cl

from clhist._core.devices.profile import Profile
from clhist._core.kernels.from_plan import windows_spec
from clhist._core.kernels.parameters import sample_parameters
from clhist._core.kernels.render import render_emitted, render_sample
from clhist._core.kernels.source import Source
from clhist._core.kernels.specs import SampleSpec
from clhist._core.model.workload import NARROW_BINS, NARROW_ELEMENTS
from clhist._core.opencl import lost
from clhist._core.opencl.arrays import is_device_array
from clhist._core.opencl.operands import Operand, operand
from clhist._core.opencl.program import Kernel, build, kept_by_context
from clhist._core.runtime.call import CheckedCall
from clhist.operators.halves import number_of

if TYPE_CHECKING:
    from clhist._core.runtime.chain import Chain

_WORD_BITS = 32  # one bit for each bin
_TOTALS = 2  # words before the bits
_GROUPS = 16  # work-groups for each compute unit
_SAMPLED, _MOST_VALUES = 256, 4  # elements whose values are fetched, and values of one element and output
_PAIRS = "EMIT(indices[i], values[i])"  # a map that emits the elements of two arrays
_ALIGNMENT = 128  # bytes, of the longest vector type of OpenCL C (16 doubles)


@kept_by_context
def sample_kernel(context: cl.Context, spec: SampleSpec, options: tuple[str, ...]) -> Kernel:
    """Return the built kernel of `spec`."""
    return Kernel(build(context, render_sample(spec), options), "clhist_count_distinct", sample_parameters(spec))


class Sampler:
    """Samples the pairs of one map.

    Parameters
    ----------
    source : Source
        The map.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._kernels: dict[tuple[int, bool], tuple[Kernel, int]] = {}  # with the work-group size

    def count_distinct(self, profile: Profile, checked: CheckedCall, length: int, windows: int) -> tuple[int, int]:
        """Wait for the queue, and count pairs and distinct bins in evenly spaced windows of the input.

        Parameters
        ----------
        profile : Profile
            Of the device.
        checked : CheckedCall
            The validated call.
        length : int
            Consecutive elements of a window.
        windows : int
            The number of windows.

        Returns
        -------
        pairs : int
            Pairs with an existing bin, in all windows.
        distinct : int
            The distinct bins of each window, added up.

        Raises
        ------
        MemoryError
            If a bit for each bin and window does not fit into memory.
        """
        queue = checked.queue
        lost.check_queue(queue)
        with lost.settled(queue, MemoryError):  # a lost device raises MemoryError, too
            kernel, group = self._kernel(profile, checked)
            return _count_distinct(kernel, group, self._source, checked, length, windows)

    def _kernel(self, profile: Profile, checked: CheckedCall) -> tuple[Kernel, int]:
        """Return the kernel and its work-group size, cached by device and index width."""
        bins = sum(prod(shape) for shape in checked.shapes)
        wide = checked.size > NARROW_ELEMENTS or bins > NARROW_BINS
        key = (checked.queue.device.int_ptr, wide)
        if key not in self._kernels:  # a key of the whole specification would take 20 us to look up
            spec = windows_spec(self._source, profile, wide=wide)
            kernel = sample_kernel(checked.queue.context, spec, self._source.options)
            self._kernels[key] = kernel, spec.sweep.work_group_size
        return self._kernels[key]


def _count_distinct(
    kernel: Kernel, group: int, source: Source, checked: CheckedCall, length: int, windows: int
) -> tuple[int, int]:
    queue = checked.queue
    words = -(-sum(prod(shape) for shape in checked.shapes) // _WORD_BITS)
    from clhist._core.runtime.launcher import chain_on

    chain = chain_on(queue, "to measure the race factor; give it as a number instead")
    chain.events += checked.wait_for
    scratch = chain.filled(_TOTALS + words * windows, np.uint32, 0)
    values, written = _arguments(chain, source, checked, scratch, length, words)
    # The second dimension is the window, so the work-groups of the device are divided among the windows.
    groups = max(1, min(-(-length // group), _GROUPS * queue.device.max_compute_units // windows))
    chain.run(kernel, groups, group, kernel.ordered(values), windows)
    pairs, distinct = chain.fetched(scratch, _TOTALS, np.uint32).tolist()
    for host_operand in written:
        host_operand.retrieve()
    return pairs, distinct


def emitted_values(source: Source, profile: Profile, checked: CheckedCall) -> list[np.ndarray]:
    """Wait for the queue, and return some values that the map emits to each output, for bins that exist.

    The map must not write an argument, since the call itself runs it again. `checked` has at least one element.
    """
    queue = checked.queue
    lost.check_queue(queue)
    # The host reads pairs of its arrays itself: a program for that would take a tenth of a second to compile.
    if _has_pairs(source) and not checked.on_device:
        indices, values = (array.reshape(-1) for array in checked.values)
        if values.dtype == source.operators[0].dtype == number_of(values.dtype):
            some = np.linspace(0, checked.size - 1, min(checked.size, _SAMPLED)).astype(np.intp)
            is_inside = (indices[some] >= 0) & (indices[some] < prod(checked.shapes[0]))
            return [values[some][is_inside]]
    bins = sum(prod(shape) for shape in checked.shapes)
    spec = windows_spec(source, profile, wide=checked.size > NARROW_ELEMENTS or bins > NARROW_BINS)
    group = spec.sweep.work_group_size
    groups = -(-min(checked.size, _SAMPLED) // group)
    # The memory begins with a flag for each slot: whether the map has stored a value there.
    slots = groups * group * _MOST_VALUES
    dtypes = [number_of(operator.dtype) for operator in source.operators]
    places, end = [], 4 * slots * len(dtypes)
    # The values of each output begin at an aligned address.
    for dtype in dtypes:
        places.append(-(-end // _ALIGNMENT) * _ALIGNMENT)
        end = places[-1] + slots * dtype.itemsize
    program = build(queue.context, render_emitted(spec, places, slots, _MOST_VALUES), source.options)
    kernel = Kernel(program, "clhist_emitted", sample_parameters(spec))
    from clhist._core.runtime.launcher import chain_on

    with lost.settled(queue, MemoryError):
        chain = chain_on(queue, "to check the operator; verified=True of clhist.Operator skips that")
        chain.events += checked.wait_for
        scratch = chain.filled(-(-end // 4), np.uint32, 0)
        values, _ = _arguments(chain, source, checked, scratch, min(checked.size, _SAMPLED), 0)
        chain.run(kernel, groups, group, kernel.ordered(values))
        memory = chain.fetched(scratch, -(-end // 4) * 4, np.uint8)
    # Pairs without a bin, and elements that emit less, leave their flags at 0: only stored values are returned.
    stored = memory[: 4 * slots * len(dtypes)].view(np.uint32).reshape(len(dtypes), slots) != 0
    outputs = zip(places, dtypes, stored, strict=True)
    return [memory[n : n + slots * dtype.itemsize].view(dtype)[there] for n, dtype, there in outputs]


def _has_pairs(source: Source) -> bool:
    """Return whether a map emits an element of each of two arrays, and no code of the caller changes that."""
    names = [argument.name for argument in source.arguments if argument.is_array]
    is_plain = not source.preamble and not source.options
    return is_plain and source.map == _PAIRS and names == ["indices", "values"] and len(source.arguments) == 2


def _arguments(
    chain: Chain, source: Source, checked: CheckedCall, scratch: object, length: int, words: int
) -> tuple[dict[str, object], list[Operand]]:
    """Return the arguments of a sampling kernel by parameter name, and the NumPy arrays that it may write."""
    queue, bins = checked.queue, [prod(shape) for shape in checked.shapes]
    values: dict[str, object] = {"clhist_size": checked.size, "clhist_scratch": scratch}
    values |= {"clhist_length": length, "clhist_words": words}
    values |= {f"clhist_num_bins{suffix}": n for suffix, n in zip(source.suffixes, bins, strict=True)}
    written = []
    # Maps may write arrays: those of NumPy need a copy that is retrieved, all others are placed by the chain.
    for argument, value in zip(source.arguments, checked.values, strict=True):
        if not argument.is_array:
            values[argument.name] = value
            continue
        if argument.is_const or is_device_array(value):
            memory, offset = chain.place(value)
        else:
            written.append(host_operand := operand(value, queue, written=True))
            memory, offset = host_operand.buffer, host_operand.offset
        values |= {f"{argument.name}__base": memory, f"{argument.name}__offset": offset}
    return values, written
