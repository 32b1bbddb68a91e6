"""C statements of a sweep's kernel that depend on one condition; ``sweep.mako`` and ``emit.mako`` have the others."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import indent
from typing import TYPE_CHECKING

from clhist._core.kernels.bins_of_pass import bin_in_pass
from clhist._core.kernels.state import wrapped

if TYPE_CHECKING:
    from clhist._core.kernels.specs import Output
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
