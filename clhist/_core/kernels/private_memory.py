"""C that sets the copies of a work-item to the identity element; see ``copies_global.mako``.

Both functions return nothing for copies that work-items share, which the kernel `clhist_clear` sets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clhist._core.kernels.specs import SweepPart
    from clhist._core.kernels.state import SweepState


def spare_bin(state: SweepState) -> str:
    """Return the declaration of the bin that takes what is not in the pass, where a CPU compares bins by blocks."""
    if not state.is_private or not state.spec.block:
        return ""
    s = state.spec.outputs[0].suffix
    return f"""\
    // Behind the bins there is one for each pass, which takes what is not in the pass.
    const clhist_bin_t clhist_spare = clhist_num_bins{s} + (clhist_bin_t)get_group_id(1) - clhist_first{s};"""


def set_to_neutral(state: SweepState) -> str:
    """Return the loops over the bins of the work-item's copies, for each part."""
    if not state.is_private:
        return ""
    # The copies of a work-item are a stride apart, and all of them start from the identity element.
    if state.takes_turns:
        return "\n".join(
            f"""\
    for (uint turn = 0; turn < clhist_turns; ++turn) {{
{_set_bins(state, f"(size_t)turn * {state.stride(part.output.suffix)} + ", "        ", part)}
    }}"""
            for part in state.spec.parts
        )
    if state.spec.order == "interleaved":
        return state.for_each_part(_BRANCH_IN_LOOP)
    return "\n".join(_set_bins(state, "", "    ", part) for part in state.spec.parts)


# clspv makes pointers of the index of a loop that ends with `clhist_count`, and then rejects their comparison.
_BRANCH_IN_LOOP = """\
    for (clhist_bin_t k = 0; k < clhist_bins_per_pass{s}; ++k)
        if (k < clhist_count{s})
            clhist_cells{n}[k].value = clhist_neutral{n}();"""


def _set_bins(state: SweepState, copy: str, indent: str, part: SweepPart) -> str:
    """Return the loop over the bins of the pass in one copy, whose offset is `copy`, and what sets its spare bin."""
    n, s = part.n, part.output.suffix
    loop = f"""\
{indent}for (clhist_bin_t k = 0; k < clhist_count{s}; ++k)
{indent}    clhist_cells{n}[{copy}k].value = clhist_neutral{n}();"""
    spare = f"{indent}clhist_cells{n}[{copy}clhist_spare].value = clhist_neutral{n}();"
    return f"{loop}\n{spare}" if state.spec.block else loop
