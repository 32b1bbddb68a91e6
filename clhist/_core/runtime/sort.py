"""Sort and scan (SC'20, Listing 4): the pairs of a map are sorted by bin, and those of each bin combined by a scan.

No bin is updated by two work-items, so nothing waits, however few bins there are. The sort is stable and the scan has
one order on one device, so that sums of floats come out the same every time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from clhist._core.kernels.from_plan import Programs
from clhist._core.kernels.kernel_code import KernelCode
from clhist._core.kernels.parameters import accumulator_words, pairs_parameters
from clhist._core.kernels.render import render_sort_pairs
from clhist._core.kernels.specs import SweepSpec
from clhist._core.model.plan import Plan
from clhist._core.runtime.prepared import SortPairs
from clhist._core.runtime.stages import Commands, Sweep, Tasks

_WORD_BYTES = 4


@dataclass(frozen=True, eq=False, kw_only=True)
class SortedSweep(Sweep):
    """A kernel that writes bins, positions and accumulators of the pairs, their sort, and the scan of the sorted ones.

    Attributes
    ----------
    pairs_per_element : int
        How many pairs each element has.
    """

    pairs_per_element: int

    def add_to(self, commands: Commands, tasks: Tasks, values: Mapping[str, Any]) -> None:
        """Add all three as parts of the stage "sweep"; the cells in the scratch memory have been cleared."""
        plan, operator = self.plan, self.spec.outputs[0].operator
        pairs, size = plan.num_elements * self.pairs_per_element, plan.work_group_size
        words = (1, 1, accumulator_words(operator))
        keys, positions, accumulators = (commands.room(_WORD_BYTES * n * pairs, purpose_of(pairs)) for n in words)
        no_bin = plan.num_bins * plan.num_histograms
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
        commands.commands.append(
            SortPairs("sweep", operator, pairs, no_bin, keys, positions, accumulators, cells, places)
        )


def purpose_of(pairs: int) -> str:
    """Return what memory is for, in the words of an error."""
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
    kernel = _pairs(programs.sweep, programs.sorted_pairs, options)
    return SortedSweep(plan=plan, spec=programs.sweep, kernel=kernel, pairs_per_element=programs.sorted_pairs)


@lru_cache(maxsize=256)
def _pairs(spec: SweepSpec, pairs_per_element: int, options: tuple[str, ...]) -> KernelCode:
    return KernelCode(render_sort_pairs(spec, pairs_per_element), options, "clhist_pairs", pairs_parameters(spec))
