"""C of the bins of one pass: which they are, what number one of them has there, and where their results are.

A pass has a range of neighbouring bins. `CyclicPasses` give it every S-th bin instead, so that hot neighbours spread
over passes::

    bins        0 1 2 3 4 5 6 7 8      S = 3
    pass 0      0     3     6          bin within the pass = bin / S
    copies      | pass 0: 0 3 6 | pass 1: 1 4 7 | pass 2: 2 5 8 |

Note [Passes side by side], docs/decisions/0007.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clhist._core.model.feature import CyclicPasses

if TYPE_CHECKING:
    from clhist._core.kernels.state import SweepState


def ranges_of_bins(state: SweepState) -> str:
    """Return declarations of the first bin of the pass and of the number of its bins, for each output."""
    range_of = _every_sth_bin if state.spec.feature(CyclicPasses) else _neighbouring_bins
    return "\n".join(range_of(state, output.suffix) for output in state.spec.outputs)


def _neighbouring_bins(state: SweepState, s: str) -> str:
    is_open = "clhist_is_open && " if state.has_tasks else ""  # a team without a task has no bins
    return f"""\
    const clhist_bin_t clhist_first{s} = (clhist_bin_t)get_group_id(1) * clhist_bins_per_pass{s};
    const clhist_bin_t clhist_count{s} = {is_open}clhist_first{s} < clhist_num_bins{s}
        ? min(clhist_bins_per_pass{s}, clhist_num_bins{s} - clhist_first{s}) : 0;"""


def _every_sth_bin(state: SweepState, s: str) -> str:
    return f"""\
    const clhist_bin_t clhist_first{s} = get_group_id(1);  // every bin of which this is the rest
    const clhist_bin_t clhist_count{s} = clhist_first{s} < clhist_num_bins{s}
        ? (clhist_num_bins{s} - clhist_first{s} - 1) / clhist_passes + 1 : 0;"""


def bin_in_pass(state: SweepState, s: str) -> str:
    """Return the declaration of `bin`, the number within the pass of the bin `target`."""
    # The remainder decides whether a bin is in the pass: it is compared by multiplying back.
    if state.spec.feature(CyclicPasses):
        return f"""\
    const clhist_bin_t bin = mul_hi(target, clhist_magic) >> clhist_shift;  // target / clhist_passes
    if (bin * clhist_passes + clhist_first{s} != target)
        return;"""
    return (
        f"    const clhist_bin_t bin = target - clhist_first{s};  "
        "// unsigned: what lies before the first is beyond the last"
    )


def result_of_copy(state: SweepState, n: int, s: str) -> str:
    """Return the declaration of where the bins of the pass lie in a copy of part `n` in global memory."""
    result = f"        __global cell{n}_t *clhist_result"
    if state.spec.feature(CyclicPasses):  # the bins of a pass are neighbours
        return f"""\
{result}
            = clhist_all{n} + (clhist_slot * clhist_passes + clhist_first{s}) * clhist_bins_per_pass{s};"""
    return f"{result} = clhist_all{n} + clhist_slot * clhist_num_bins{s} + clhist_first{s};"
