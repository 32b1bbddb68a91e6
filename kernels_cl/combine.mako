## The kernels before and after the sweep: `clhist_clear` sets shared copies to the identity element, and
## `clhist_combine_copies` combines all copies of a bin with `dest`, finishes it and writes it to `out`.
##
##   copy 0   | b0 b1 b2 ..      columns: bins, one for each work-item of a row
##   copy 1   | b0 b1 b2 ..      rows: `spec.rows` of a work-group; each takes every n-th copy, then a tree adds them up
##     ..     |  |  |  |
##   dest  +  |  v  v  v  -> out      on CPUs (blocked) a work-item has a block of bins and takes all copies
##
## In the program of a sweep (`is_within`), types and functions of the operator are the sweep's, and work-items set
## their own copies, so that nothing clears them. A sweep that
## combines its copies itself has a function in place of both kernels (`clhist_combine_bins`, or
## `clhist_write_bin` for one bin).
##
## Plans: all with copies. Paper: SC'20, section III. Decision 0016 for one launch. The narrow and packed
## features replace the section `combine`.
<%namespace name="types" file="types.mako"/>
<%namespace name="section" file="section.mako"/>
<%!
    from clhist._core.kernels import combine_code
    from clhist._core.kernels.state import wrapped
%>\
% if not is_within:
// The second stage: copies are cleared before the sweep, and combined after it with what dest has.
${types.of_operator(spec.operator, preamble, declared_types)}
% endif
${combine_code.rounding_error(state)}
${combine_code.finish(state)}

${types.whole(spec.operator)}
// The accumulator of a cell, of which each part has an array.
accumulator_t clhist_cell_of(${state.for_each_part("__global const cell{n}_t *cells{n}", ", ")}, const ulong at)
{
    accumulator_t held;
${state.for_each_part("    held{accessor} = cells{n}[at].value;")}
    return held;
}

% if state.has_bytes:
${types.choice()}
% endif
% if function == "clhist_write_bin":
${write_bin()}
% elif function == "clhist_combine_bins":
${combine_bins()}
% else:
${kernels()}
% endif

<%def name="write_bin()">
// Combines what the pairs of a bin make with what dest has, writes the result, and returns its accumulator.
accumulator_t clhist_write_bin(
${wrapped(["const ulong k", "const accumulator_t held", *[p.declaration for p in result_parameters]])})
{
${combine_code.result_arrays(state)}
    const accumulator_t total = clhist_combine(${state.dest_or_neutral("has_dest", "k")}, held);
    ${state.store("k")}
    return total;
}
${combine_code.has_value(state)}
</%def>

<%def name="combine_bins()">
${combine_code.rows_in_words(state)}
void clhist_combine_bins(
    const ulong begin, const ulong end, const ulong step,
${wrapped([parameter.declaration for parameter in combine_parameters])})
{
${combine(is_function=True)}
}
</%def>

<%def name="kernels()">
% if clear_parameters:
// Sets shared copies to the neutral element, and their locks free.
__kernel ${combine_code.alone(spec)}void clhist_clear(
${wrapped([parameter.declaration for parameter in clear_parameters])})
{
${combine_code.clear(state)}
}

% endif
${combine_code.rows_in_words(state)}
__kernel ${combine_code.alone(spec)}void clhist_combine_copies(
${wrapped([parameter.declaration for parameter in combine_parameters])})
{
${combine()}
}
</%def>

## The second stage of all bins, in a kernel or in a function for the bins `begin`, `begin + step` .. of a sweep.
<%def name="combine(is_function=False)">
${section.fill("leave")}
${combine_code.cell_arrays(state)}
${combine_code.result_arrays(state)}
% if state.is_replaced:
${section.fill("combine")}
% elif is_function or spec.order == "blocked":
${one_after_another(is_function)}
% else:
${in_rows()}
% endif
</%def>

## A work-item has several bins, and takes all copies of each.
<%def name="one_after_another(is_function)">
${combine_code.none_reported(state)}
${combine_code.loop_over_bins(is_function)}
        // In a batch, the copies of a histogram are neighbours: `at` is the bin in the first of them.
        ${state.place}
        accumulator_t total = ${state.dest_or_neutral("has_dest", "k")};
${combine_code.without_copies(state)}
${combine_code.add_copies(state)}
        ${state.store("k")}
${combine_code.see_bin(state)}
    }
${combine_code.report(state)}
</%def>

## A work-item of a row has one bin, and takes every n-th copy of it.
<%def name="in_rows()">
    const uint row = get_local_id(0) / ${spec.columns};
    const ulong k = get_group_id(0) * ${spec.columns} + get_local_id(0) % ${spec.columns};
    accumulator_t total = clhist_neutral();
    if (k < clhist_num_bins) {
        ${state.place}
${combine_code.dest_in_first_row(state)}
${combine_code.without_copies(state)}
        for (ulong copy = row; copy < copies; copy += ${spec.rows})
            total = clhist_combine(total, ${state.copy});
    }
${combine_code.tree_of_rows(state)}
    if (row == 0 && k < clhist_num_bins) {
        ${state.store("k")}
${combine_code.report_bin(state)}
    }
</%def>
