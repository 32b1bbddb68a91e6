"""C statements of a sweep's kernel that depend on one condition; ``sweep.mako`` and its parts have the others.

A pass has a range of neighbouring bins. `CyclicPasses` give it every S-th bin instead, so that hot neighbours spread
over passes::

    bins        0 1 2 3 4 5 6 7 8      S = 3
    pass 0      0     3     6          bin within the pass = bin / S
    copies      | pass 0: 0 3 6 | pass 1: 1 4 7 | pass 2: 2 5 8 |

Note [Passes side by side], docs/decisions/0007.
"""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import indent
from typing import TYPE_CHECKING

from clhist._core.kernels.state import PART, TERMS, wrapped
from clhist._core.model.feature import CyclicPasses

if TYPE_CHECKING:
    from clhist._core.kernels.specs import Output, SweepPart
    from clhist._core.kernels.state import SweepState


def updates(state: SweepState, output: Output, kind: str = "", value: str = "") -> str:
    """Return the statements that update the cell of `bin` of each part of an output."""
    return "\n".join(state.update_call(part, kind, value) for part in state.parts_of(output))


def take(state: SweepState, output: Output) -> str:
    """Return the statement that combines `value` into `bin`, or into the bin that the work-item holds in registers."""
    s = output.suffix
    if state.spec.hot_bin:
        return f"    clhist_accumulate(bin, clhist_lift{s}(value), CLHIST_STATE);"
    return f"    clhist_update_bin{s}(bin, {state.lifted(output, 'value')}, CLHIST_STATE);"


def emit_macros(state: SweepState) -> str:
    """Return the macros that the caller's map calls, one for each output."""
    return "\n".join(state.emit_macro(output) for output in state.spec.outputs)


def common_factor(state: SweepState) -> str:
    """Return the declaration of the factor of all pairs, if all have one value."""
    if not state.spec.factor:
        return ""
    s = state.spec.outputs[0].suffix
    return f"    const accumulator{s}_t clhist_factor = clhist_lift{s}({state.spec.factor});  // of all pairs"


def number_of_item(state: SweepState) -> str:
    """Return declarations of the number of the work-item among all, where it is needed."""
    if not state.needs_items:
        return ""
    return "    const size_t clhist_item = get_global_id(0), clhist_items = get_global_size(0);"


def number_in_team(state: SweepState) -> str:
    """Return the declaration of the number of the work-item in its team, which may be the whole work-group."""
    team = "" if state.spec.team_size == state.spec.work_group_size else f" % {state.spec.team_size}"
    return f"    const uint clhist_lane = get_local_id(0){team};"


def number_of_copy(state: SweepState) -> str:
    """Return declarations of the number of the work-group in its pass, and of the copies that the work-item updates.

    Indices are signed, of 32 bits for most inputs, and so are these numbers where they are part of one.
    """
    lines = []
    if state.spec.order != "blocked":
        lines += [
            "    const clhist_index_t clhist_group = (clhist_index_t)get_group_id(0);",
            "    const clhist_index_t clhist_groups = (clhist_index_t)get_num_groups(0);",
        ]
    # Copies in global memory are divided among all work-items: neighbours share one.
    slot = "get_group_id(0)" if state.is_local else "clhist_item * clhist_copies / clhist_items"
    lines.append(f"    const size_t clhist_slot = {slot};")
    if state.takes_turns:
        constant = "" if state.may_use_fewer_turns else "const "
        lines.append(
            f"    {constant}uint clhist_turns = clhist_copies / (uint)clhist_items;  "
            "// copies that neighbouring elements go to in turn"
        )
    return "\n".join(lines)


def combine_within(state: SweepState, combining: Sequence[str]) -> str:
    """Return the call by which the one work-group of a launch combines its copies itself."""
    if not state.spec.fused_combine:
        return ""
    group = state.spec.work_group_size
    # A single work-item sees its own writes without a barrier.
    barrier = "    barrier(CLK_GLOBAL_MEM_FENCE);\n" if group > 1 else ""
    arguments = wrapped(["get_local_id(0)", "clhist_num_bins", str(group), *combining], "        ")
    return f"""
    // All copies are of this one work-group, so that a barrier is enough before it combines them.
{barrier}    clhist_combine_bins(
{arguments});"""


def emit_without_comparison(state: SweepState, output: Output) -> str:
    """Return the function that takes a pair whose bin is in the pass, if there are such pairs."""
    spec, s = state.spec, output.suffix
    # Terms of a block are added later, without pairs.
    if not spec.in_range and (not spec.block or spec.makes_terms):
        return ""
    why, name = "as has been compared", f"clhist_emit_inside{s}"
    if spec.in_range:
        why, name = "every bin that the map emits is", f"clhist_emit{s}"
    separator = ":" if spec.in_range else ","
    return f"""\
// An update of a bin that is in the pass{separator} {why}.
{state.inlined}void {name}(
    const clhist_bin_t bin, const value{s}_t value, CLHIST_STATE_PARAMETERS)
{{
{take(state, output)}
}}"""


def emit_with_comparison(state: SweepState, output: Output) -> str:
    """Return the function that takes a pair if its bin is in the pass, unless all pairs are."""
    if state.spec.in_range:
        return ""
    s = output.suffix
    return f"""\
// Takes a pair of the map, if its bin is in this pass.
void clhist_emit{s}(const clhist_bin_t target, const value{s}_t value, CLHIST_STATE_PARAMETERS)
{{
{bin_in_pass(state, s)}
    if (bin < clhist_count{s}) {{
{indent(take(state, output), "    ")}
    }}
}}"""


def map_pair(state: SweepState, body: str) -> str:
    """Return the map that stores the pair of an element, where pairs are joined with those of neighbours."""
    if state.spec.joined == 1:
        return ""
    # The map is compiled once more, with an EMIT that stores the pair instead of updating a bin.
    output = state.spec.outputs[0]
    s, target = output.suffix, state.target_of(output)
    parameters = ["clhist_bin_t *clhist_target", f"value{s}_t *clhist_value"]
    return f"""\
// The same for an element whose pair is joined with those of its neighbours.
#undef EMIT{s}
#define EMIT{s}(bin, value) (*clhist_target = {target}, *clhist_value = (value))
void clhist_map_pair(
{wrapped([*parameters, *state.map_parameters, state.map_declared])})
{{
    *clhist_target = ~(clhist_bin_t)0;  // none
    {body};
}}"""


def map_inside(state: SweepState, body: str) -> str:
    """Return the map of an element of a block, whose bins a CPU has compared with those of the pass."""
    if not state.spec.block:
        return ""
    s = state.spec.outputs[0].suffix
    what = "an element whose bin has been compared with those of the pass"
    emit = f"clhist_emit_inside{s}(clhist_target, (value), CLHIST_STATE)"
    parameters = ["const clhist_bin_t clhist_target"]
    if state.spec.makes_terms:
        what = "the term of an element, which is added later"
        emit = "clhist_make_term(clhist_parts, clhist_flags, (value), clhist_base, clhist_most)"
        parameters = [f"{state.word_of_terms} *clhist_parts", "uint *clhist_flags"]
    # An element in no bin of the pass has the spare bin as its target, so the map need not ask.
    in_pass = "#undef CLHIST_IN_PASS\n#define CLHIST_IN_PASS(bin, num_bins) true\n" if state.asks_for_pass else ""
    return f"""\
// The same for {what}.
#undef EMIT{s}
#define EMIT{s}(bin, value) {emit}
{in_pass}{state.inlined}void clhist_map_inside(
{wrapped([*parameters, *state.map_parameters, "CLHIST_STATE_PARAMETERS"])})
{{
    {body};
}}"""


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


def range_of_item(state: SweepState) -> str:
    """Return declarations of the first element of the work-item, `i`, and of the one behind its last.

    It has a part of its team's chunk, or of the input. Casts to ulong: the product exceeds 32 bits.
    """
    if state.has_tasks:
        # A chunk is divided among the work-items of the team that has it, not among all.
        size, team = "(ulong)(clhist_end - clhist_begin)", state.spec.team_size
        return f"""\
    const clhist_index_t clhist_last
        = clhist_begin + (clhist_index_t)({size} * (clhist_lane + 1) / {team});
    clhist_index_t i = clhist_begin + (clhist_index_t)({size} * clhist_lane / {team});"""
    return """\
    const clhist_index_t clhist_last = (clhist_index_t)((ulong)clhist_size * (clhist_item + 1) / clhist_items);
    clhist_index_t i = (clhist_index_t)((ulong)clhist_size * clhist_item / clhist_items);"""


def first_copies(state: SweepState) -> str:
    """Return declarations of the first copies of a work-item that has several, of each part."""
    if not state.takes_turns:
        return ""
    return state.for_each_part(f"    {state.space} cell{{n}}_t *clhist_first_copy{{n}} = clhist_cells{{n}};")


def copies_of_turn(state: SweepState) -> str:
    """Return declarations of the copies of an element, of a work-item that has several."""
    if not state.takes_turns:
        return ""
    cells = state.for_each_part(
        f"            {state.space} cell{{n}}_t *clhist_cells{{n}} = clhist_first_copy{{n}} + clhist_turn;"
    )
    stride = state.stride(state.spec.outputs[0].suffix)
    return f"""\
            // Neighbouring elements go to different copies, so that an update need not wait for the one before it.
            const size_t clhist_turn = (size_t)(clhist_k & (clhist_turns - 1)) * {stride};
{cells}"""


def prefetch(state: SweepState, first: str) -> str:
    """Return the statements that ask memory for later elements, while a round from `first` on is updated."""
    if not state.spec.streamed:
        return ""
    return "\n".join(
        [
            f"        // {state.spec.round} elements, while memory is asked for those that are read later.",
            *(f"        CLHIST_AHEAD({ahead});" for ahead in state.asked_ahead(first)),
        ]
    )


def update_of_element(state: SweepState, function: str, first: str, leading: Sequence[str]) -> str:
    """Return the statement that takes element `clhist_k` of a round: a call of the map, or the addition of its term."""
    if state.spec.makes_terms and leading:
        return f"""\
            clhist_add_term(
                clhist_cells{state.spec.parts[0].n} + {leading[0]},
                clhist_terms + {state.terms_of("(clhist_round + clhist_k)")});"""
    element = f"{first} + clhist_k"
    return state.map_call(3, lambda a: f"{a.name}[{element}]", element, function, leading)


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
