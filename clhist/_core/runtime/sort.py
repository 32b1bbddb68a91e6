"""Sort and scan (SC'20, Listing 4): sort the pairs of a map by bin, and combine those of each bin by a scan.

No two work-items update the same bin, so none waits, however few bins there are. The sort is stable and the order of
the scan is fixed on a device, so float sums are reproducible there.
"""

from __future__ import annotations

from collections.abc import Mapping
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
from clhist._records import record

_WORD_BYTES = 4  # of a key, a position, and a word of an accumulator


@record(eq=False, kw_only=True)
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
