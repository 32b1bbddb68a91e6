"""Sort and scan (SC'20, Listing 4): sort the pairs of a map by bin, and combine those of each bin by a scan.

No two work-items update the same bin, so none waits, however few bins there are. The sort is stable and the order of
the scan is fixed on a device, so float sums are reproducible there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyopencl as cl

from clhist._core.kernel_code import KernelCode
from clhist._core.kernels.from_plan import Programs
from clhist._core.kernels.parameters import accumulator_words, pairs_parameters
from clhist._core.kernels.render import render_sort_pairs, render_sort_scan
from clhist._core.kernels.scan import ScanSpec
from clhist._core.kernels.specs import SweepSpec
from clhist._core.model.plan import Plan
from clhist._core.opencl.program import kept_by_context
from clhist._core.runtime.chain import Chain
from clhist._core.runtime.digit_sort import sorted_by_digits
from clhist._core.runtime.prepared import SortPairs
from clhist._core.runtime.scan import Scan
from clhist._core.runtime.stages import Commands, Sweep, Tasks
from clhist.operators.operator import Operator

_WORD_BYTES = 4  # of a key, a position, and a word of an accumulator


@dataclass(frozen=True, eq=False, kw_only=True)
class SortedSweep(Sweep):
    """Three steps: a kernel writes (bin, position) and the accumulator of each pair, then the sort, then the scan.

    Attributes
    ----------
    pairs_per_element : int
        Pairs that the map emits for an element.
    checks_pairs : bool
        Whether an element may emit more, which raises.
    """

    pairs_per_element: int
    checks_pairs: bool

    def add_to(self, commands: Commands, tasks: Tasks, values: Mapping[str, Any]) -> None:
        """Append all three steps to the stage "sweep"; the cells are cleared before, since empty bins get no total."""
        plan, operator = self.plan, self.spec.outputs[0].operator
        # Each element has room for a fixed number of pairs; unused ones get the key without a bin.
        pairs, size = plan.num_elements * self.pairs_per_element, plan.work_group_size
        words = (1, 1, accumulator_words(operator))
        keys, positions, accumulators = (commands.room(_WORD_BYTES * n * pairs, purpose_of(pairs)) for n in words)
        no_bin = plan.num_bins * plan.num_histograms  # the key of pairs without a bin sorts last
        arguments = {
            **values,
            "clhist_num_bins": plan.num_bins,
            "clhist_no_bin": no_bin,
            "clhist_keys": keys,
            "clhist_positions": positions,
            "clhist_accumulators": accumulators,
        }
        commands.add("sweep", self.kernel, (plan.work_groups * size,), (size,), arguments)
        places = tuple(values[f"clhist_place{n}"] for n in range(len(operator.parts)))
        cells = values["clhist_scratch"]
        most = self.pairs_per_element if self.checks_pairs else None
        commands.commands.append(
            SortPairs("sweep", operator, pairs, no_bin, keys, positions, accumulators, cells, places, most)
        )


def purpose_of(pairs: int) -> str:
    """Return the purpose of memory for sorting, in the words of an error."""
    return f"more to sort {pairs} (bin, value) pairs; another update= than 'sort' needs less"


def sorted_sweep(plan: Plan, programs: Programs, options: tuple[str, ...]) -> Sweep:
    """Return the sweep of a plan whose update is "sort".

    Raises
    ------
    ValueError
        If the elements of a batch are not equal shares.
    """
    if plan.is_batch and not plan.equal_shares:
        raise ValueError("update: 'sort' takes batches of equal shares, by num_histograms=, got others, by offsets=")
    most, checked = programs.sorted_pairs, programs.checks_pairs
    kernel = _pairs(programs.sweep, most, checked, options)
    return SortedSweep(plan=plan, spec=programs.sweep, kernel=kernel, pairs_per_element=most, checks_pairs=checked)


@lru_cache(maxsize=256)
def _pairs(spec: SweepSpec, pairs_per_element: int, checked: bool, options: tuple[str, ...]) -> KernelCode:
    text = render_sort_pairs(spec, pairs_per_element, checked=checked)
    return KernelCode(text, options, "clhist_pairs", pairs_parameters(spec))


def build_sort(context: cl.Context, operator: Operator) -> None:
    """Build the kernels that sort pairs of `operator`; raise BuildError if the compiler rejects its C."""
    _scan(context, operator)


def enqueue_sort(command: SortPairs, chain: Chain, blocks: Sequence[Any]) -> Iterator[None]:
    """Enqueue the sort and then the scan, yielding after each; `blocks` is the scratch memory of the part.

    Raises
    ------
    ValueError
        If an element emitted more pairs than the kernel states. No result has been written then.
    """
    pairs, checked, scan = (
        command.pairs,
        command.checked_pairs is not None,
        _scan(chain.queue.context, command.operator),
    )
    # Only these bits can differ, which saves passes; with a check, one more key than `no_bin` marks excess pairs.
    bits = (command.no_bin + checked).bit_length()
    keys, positions = blocks[command.keys.number], blocks[command.positions.number]
    in_order = sorted_by_digits(chain, keys, positions, pairs, np.dtype(np.uint32), bits)
    yield
    # The key that marks an element with more pairs than it has room for is the largest.
    if checked and pairs and chain.fetched(in_order[0], 1, np.uint32, 4 * (pairs - 1))[0] > command.no_bin:
        raise ValueError(
            f"emits: expected at most {command.checked_pairs} pairs of each element, as the kernel states, got an "
            "element with more; pass a larger emits="
        )
    accumulators, cells = blocks[command.accumulators.number], blocks[command.cells.number]
    scan(chain, pairs, [*in_order, accumulators, cells, command.no_bin, *command.places])
    yield


def pairs_scan(operator: Operator) -> ScanSpec:
    """Return the scan of sorted pairs. Pairs without a bin do not take part, since their accumulators are undefined."""
    arrays = "const uint *clhist_keys, const uint *clhist_positions, const uint *clhist_held, uchar *clhist_scratch"
    places = [f"clhist_place{n}" for n in range(len(operator.parts))]
    return ScanSpec(
        "sorted_pairs",
        ", ".join([arrays, "const uint clhist_no_bin", *(f"const ulong {place}" for place in places)]),
        "clhist_held_t",
        4 * accumulator_words(operator),
        "clhist_read(clhist_keys[i] < clhist_no_bin, clhist_held, clhist_positions[i])",
        "clhist_joined(a, b)",
        "clhist_no_words()",
        "if (clhist_keys[i] < clhist_no_bin && (i + 1 == size || clhist_keys[i + 1] != clhist_keys[i]))\n"
        f"            clhist_publish(item, clhist_keys[i], clhist_scratch, {', '.join(places)});",
        "clhist_keys[i] != clhist_keys[i - 1]",
        render_sort_scan(operator),
    )


@kept_by_context
def _scan(context: cl.Context, operator: Operator) -> Scan:
    return Scan(context, pairs_scan(operator))
