"""C that longer sums add to the walk of a CPU's work-items; all functions return nothing without them.

See ``long_sums.mako``, which has the functions that these statements call.
"""

from __future__ import annotations

from textwrap import indent
from typing import TYPE_CHECKING

from clhist._core.kernels.state import PART, TERMS

if TYPE_CHECKING:
    from clhist._core.kernels.specs import SweepPart
    from clhist._core.kernels.state import SweepState


def begin_sums(state: SweepState) -> str:
    """Return declarations of the longer sums, to which those of copies are added before they have `TERMS` or so."""
    if not state.sums:
        return ""
    spec, s, is_single = state.spec, state.sums[0][0].output.suffix, state.pairs_of_sums == 1
    # Counted once for each round or block; with several pairs of an element, once for each element.
    terms = f"{TERMS}{' * clhist_turns' if state.takes_turns else ''} * (size_t)clhist_count{s}"
    divisor = (PART if spec.block else spec.round) if is_single else state.pairs_of_sums
    elements = f"(size_t)(clhist_last - i){f' / {divisor}' if is_single else ''}"
    # Without longer sums the counter begins at the largest number, which no loop counts down to 0.
    declared = "\n".join(_set_to_neutral(state, *sums) for sums in state.sums)
    return f"""\
    // Work-items with elements for several such sums add those up, with their rounding errors.
    const size_t clhist_interval = max({terms} / {divisor}, (size_t)1);
    const bool clhist_adds_up = {elements} > 2 * clhist_interval;
    size_t clhist_left = clhist_adds_up ? clhist_interval : ~(size_t)0;
{declared}"""


def _set_to_neutral(state: SweepState, part: SweepPart, accessor: str, name: str) -> str:
    s = part.output.suffix
    return f"""\
    __global double *{name} = clhist_sums + {state.place_of_sums(name)} + clhist_first{s};
    for (clhist_bin_t k = 0; clhist_adds_up && k < clhist_count{s}; ++k) {{
        {name}[k] = clhist_neutral{part.n}(){accessor};
        {name}[k + {state.stride(s)}] = 0;
    }}"""


def add_up_by_round(state: SweepState) -> str:
    """Return the statement behind a round of elements that adds up sums, where an element has one pair."""
    return _add_up_all(state) if state.adds_up_by_round else ""


def add_up_by_element(state: SweepState) -> str:
    """Return the statement behind an element that adds up sums, where an element has several pairs."""
    return indent(_add_up_all(state), "    ") if state.pairs_of_sums > 1 else ""


def _add_up_all(state: SweepState) -> str:
    calls = "\n".join(f"            {_add_up(state, part, name)}" for part, _, name in state.sums)
    return f"""\
        if (--clhist_left == 0) {{
{calls}
            clhist_left = clhist_interval;
        }}"""


def end_sums(state: SweepState) -> str:
    """Return the statement that gives the copies the sums which they have at the end."""
    if not state.sums:
        return ""
    corrected = "\n".join(_correct(state, *sums) for sums in state.sums)
    return f"""\
    if (clhist_adds_up) {{
{corrected}
    }}"""


def _correct(state: SweepState, part: SweepPart, accessor: str, name: str) -> str:
    s = part.output.suffix
    return f"""\
        {_add_up(state, part, name)}
        for (clhist_bin_t k = 0; k < clhist_count{s}; ++k)
            {_copy_of(state, part)}[k].value{accessor} = clhist_corrected({name}[k], {name}[k + {state.stride(s)}]);"""


def _add_up(state: SweepState, part: SweepPart, name: str) -> str:
    s, turns = part.output.suffix, "clhist_turns" if state.takes_turns else 1
    return f"{name}_add({_copy_of(state, part)}, {name}, {turns}, {state.stride(s)}, clhist_count{s});"


def _copy_of(state: SweepState, part: SweepPart) -> str:
    return f"{'clhist_first_copy' if state.takes_turns else 'clhist_cells'}{part.n}"
