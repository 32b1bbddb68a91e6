"""Looks at some elements of an input on the device: how many bins their pairs go to, and which values these have."""

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

_WORD_BITS = 32
_TOTALS = 2  # words before the bits
_GROUPS = 16  # work-groups for each compute unit
_LOOKED_AT, _MOST_VALUES = 256, 4  # elements whose values are looked at, and values of one element and output
_ALIGNMENT = 128  # of the values of each output, as of the longest vector of C


@kept_by_context
def sample_kernel(context: cl.Context, spec: SampleSpec, options: tuple[str, ...]) -> Kernel:
    """Return the built kernel of `spec`."""
    return Kernel(build(context, render_sample(spec), options), "clhist_count_distinct", sample_parameters(spec))


class Sampler:
    """Looks at the elements of one map.

    Parameters
    ----------
    source : Source
        The map.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._kernels: dict[tuple[int, bool], tuple[Kernel, int]] = {}  # and work-items of a group

    def count_distinct(self, profile: Profile, checked: CheckedCall, length: int, windows: int) -> tuple[int, int]:
        """Return the pairs of evenly spread windows, and the sum of the distinct bins of each; the queue is waited for.

        Parameters
        ----------
        profile : Profile
            Of the device.
        checked : CheckedCall
            The arguments of a call, checked.
        length : int
            Consecutive elements of a window.
        windows : int
            How many.

        Raises
        ------
        MemoryError
            If there is no memory for a bit for each bin and window.
        """
        queue = checked.queue
        lost.check_queue(queue)
        with lost.settled(queue, MemoryError):  # what a lost device answers as well
            kernel, group = self._kernel(profile, checked)
            return _count_distinct(kernel, group, self._source, checked, length, windows)

    def _kernel(self, profile: Profile, checked: CheckedCall) -> tuple[Kernel, int]:
        bins = sum(prod(shape) for shape in checked.shapes)
        wide = checked.size > NARROW_ELEMENTS or bins > NARROW_BINS
        key = (checked.queue.device.int_ptr, wide)
        if key not in self._kernels:  # by the whole specification it would take 20 us to find
            spec = windows_spec(self._source, profile, wide=wide)
            found = sample_kernel(checked.queue.context, spec, self._source.options)
            self._kernels[key] = found, spec.sweep.work_group_size
        return self._kernels[key]


def _count_distinct(
    kernel: Kernel, group: int, source: Source, checked: CheckedCall, length: int, windows: int
) -> tuple[int, int]:
    queue = checked.queue
    words = -(-sum(prod(shape) for shape in checked.shapes) // _WORD_BITS)
    from clhist._core.runtime.chain import chain_on

    chain = chain_on(queue, "to measure the race factor; give it as a number instead")
    chain.events += checked.wait_for
    scratch = chain.filled(_TOTALS + words * windows, np.uint32, 0)
    values, written = _arguments(chain, source, checked, scratch, length, words)
    groups = max(1, min(-(-length // group), _GROUPS * queue.device.max_compute_units // windows))
    chain.run(kernel, groups, group, kernel.ordered(values), windows)
    pairs, distinct = chain.fetched(scratch, _TOTALS, np.uint32).tolist()
    for each in written:
        each.retrieve()
    return pairs, distinct


def emitted_values(source: Source, profile: Profile, checked: CheckedCall) -> list[np.ndarray]:
    """Return some values that a map emits to each of its outputs, for bins that exist; the queue is waited for.

    The map must write no argument. `checked` is a call of at least one element.
    """
    queue = checked.queue
    lost.check_queue(queue)
    bins = sum(prod(shape) for shape in checked.shapes)
    spec = windows_spec(source, profile, wide=checked.size > NARROW_ELEMENTS or bins > NARROW_BINS)
    group = spec.sweep.work_group_size
    groups = -(-min(checked.size, _LOOKED_AT) // group)
    slots = groups * group * _MOST_VALUES
    dtypes = [number_of(operator.dtype) for operator in source.operators]
    places, end = [], 4 * slots * len(dtypes)
    for dtype in dtypes:
        places.append(-(-end // _ALIGNMENT) * _ALIGNMENT)
        end = places[-1] + slots * dtype.itemsize
    program = build(queue.context, render_emitted(spec, places, slots, _MOST_VALUES), source.options)
    kernel = Kernel(program, "clhist_emitted", sample_parameters(spec))
    from clhist._core.runtime.chain import chain_on

    with lost.settled(queue, MemoryError):
        chain = chain_on(queue, "to check the operator; verified=True of clhist.Operator skips that")
        chain.events += checked.wait_for
        scratch = chain.filled(-(-end // 4), np.uint32, 0)
        values, _ = _arguments(chain, source, checked, scratch, min(checked.size, _LOOKED_AT), 0)
        chain.run(kernel, groups, group, kernel.ordered(values))
        memory = chain.fetched(scratch, -(-end // 4) * 4, np.uint8)
    stored = memory[: 4 * slots * len(dtypes)].view(np.uint32).reshape(len(dtypes), slots) != 0
    each = zip(places, dtypes, stored, strict=True)
    return [memory[n : n + slots * dtype.itemsize].view(dtype)[there] for n, dtype, there in each]


def _arguments(
    chain: Chain, source: Source, checked: CheckedCall, scratch: object, length: int, words: int
) -> tuple[dict[str, object], list[Operand]]:
    """Return the arguments of a kernel that looks at elements, by name, and the arrays of NumPy that it may write."""
    queue, bins = checked.queue, [prod(shape) for shape in checked.shapes]
    values: dict[str, object] = {"clhist_size": checked.size, "clhist_scratch": scratch}
    values |= {"clhist_length": length, "clhist_words": words}
    values |= {f"clhist_num_bins{suffix}": n for suffix, n in zip(source.suffixes, bins, strict=True)}
    written = []
    for argument, value in zip(source.arguments, checked.values, strict=True):
        if not argument.is_array:
            values[argument.name] = value
            continue
        if argument.is_const or is_device_array(value):
            memory, offset = chain.place(value)
        else:
            written.append(found := operand(value, queue, written=True))
            memory, offset = found.buffer, found.offset
        values |= {f"{argument.name}__base": memory, f"{argument.name}__offset": offset}
    return values, written
