## The sweep over the input: every element is mapped to (bin, value) pairs, and each pair updates one copy of its bin.
## A launch has its work-groups along dimension 0; dimension 1 counts the passes, each over its own range of bins.
## One sweep may fill several outputs, each a histogram with its own operator. The parts of a product operator have
## separate arrays and are updated separately.
## This file is the skeleton; each idea has its own file. Those that few kernels need are loaded where they are used:
## Mako compiles each in 5 to 45 ms.
<%namespace name="types" file="types.mako"/>
<%namespace name="update" file="update.mako"/>
<%namespace name="copies" file="copies.mako"/>
<%namespace name="walk" file="walk.mako"/>
<%!
    from clhist.planning.packed import RAISED
%>\
<%
    known = {}  # structured types that have a C name already
%>
% if any(output.operator.needs_fp64 for output in (*spec.outputs, *spec.ignored)):
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
% endif
% if any(part.part.cell_bytes == 8 or part.update == "native" for part in parts):
#ifdef cl_khr_int64_base_atomics
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
#endif
#ifdef cl_khr_int64_extended_atomics
#pragma OPENCL EXTENSION cl_khr_int64_extended_atomics : enable
#endif
% endif
% for output in (*spec.outputs, *spec.ignored):
${types.values(output.operator, output.suffix, declare, known)}
% endfor

${types.bins(spec.wide)}
${types.relaxed_access()}
% for output in spec.ignored:
% if preamble_of[output]:
#define value_t value${output.suffix}_t
#define accumulator_t accumulator${output.suffix}_t
${preamble_of[output]}
#undef value_t
#undef accumulator_t
% endif
% endfor
% for output in spec.outputs:
<%types:functions operator="${output.operator}" suffix="${output.suffix}" preamble="${preamble_of[output]}">
% for part in parts:
% if part.output is output:
${types.part(part.part, part.n, c_name, part.combine)}
${update.of(part, state.space, spec.fence, bins_are_computed)}
% if spec.hot_bin and state.is_local:
${update.attempt(part, state.space, spec.fence)}
% endif
% endif
% endfor
</%types:functions>
% endfor

% if spec.counter_bits:
${local.get_namespace("packed.mako").emit(spec.outputs[0].suffix)}
% endif
% for output in [] if spec.counter_bits else spec.outputs:
<% s = output.suffix %>\
void clhist_update_bin${s}(const clhist_bin_t bin, const accumulator${s}_t lifted, ${state.declared})
{
% for part in parts:
% if part.output is output:
    ${state.condition(part)}clhist_update${part.n}(clhist_cells${part.n} + ${state.cell}, ${state.lock_argument(part)}lifted${part.part.accessor});
% endif
% endfor
}

% if spec.hot_bin:
${local.get_namespace("hot_bin.mako").accumulate(s)}
% endif
% if spec.bucketed:
${local.get_namespace("buckets.mako").emptied(s, bins_are_computed)}
% endif
% if spec.covered or spec.block:
${emit_inside(f"clhist_emit{s}" if spec.covered else f"clhist_emit_inside{s}", s)}
% endif
% if not spec.covered:
void clhist_emit${s}(const clhist_bin_t target, const value${s}_t value, ${state.declared})
{
% if spec.is_dealt:
    const clhist_bin_t bin = mul_hi(target, clhist_magic) >> clhist_shift;  // target / clhist_passes
    if (bin * clhist_passes + clhist_first${s} == target && bin < clhist_count${s}) {
% else:
    const clhist_bin_t bin = target - clhist_first${s};  // unsigned: what lies before the first is beyond the last
    if (bin < clhist_count${s}) {
% endif
% if spec.bucketed:
${local.get_namespace("buckets.mako").append(s, bins_are_computed)}
% elif spec.hot_bin:
        clhist_accumulate(bin, clhist_lift${s}(value), ${state.passed});
% else:
        clhist_update_bin${s}(bin, clhist_lift${s}(value), ${state.passed});
% endif
    }
}
% endif
% endfor

% if spec.combines:
## Before the caller's code, whose macros then do not apply to it.
${second_stage}
% endif

${types.caller_code(spec, declare, known)}

% if state.is_flat:
${local.get_namespace("batch.mako").flat_bin()}
% endif
% for output in spec.outputs:
#define EMIT${output.suffix}(bin, value) clhist_emit${output.suffix}(${state.emitted_bin(output)}, (value), ${state.passed})
% endfor
void clhist_map(${state.map_parameters}, ${state.declared})
{
    ${map_body};
}
% if spec.counter_bits:
${local.get_namespace("packed.mako").map_ahead(spec.outputs[0].suffix)}
% endif
% if spec.block:
<% s = spec.outputs[0].suffix %>\
#undef EMIT${s}
#define EMIT${s}(bin, value) clhist_emit_inside${s}(clhist_target, (value), ${state.passed})
% if "CLHIST_IN_PASS" in spec.map:
#undef CLHIST_IN_PASS
#define CLHIST_IN_PASS(bin) true
% endif
void clhist_map_inside(const clhist_bin_t clhist_target, ${state.map_parameters}, ${state.declared})
{
    ${map_body};
}
% endif

% if spec.batch == "equal":
${local.get_namespace("batch.mako").chunk_begin()}
% elif state.is_partitioned:
${local.get_namespace("partitioned.mako").group_of()}
% endif
__kernel __attribute__((reqd_work_group_size(${spec.work_group_size}, 1, 1)))
void clhist_sweep(${", ".join(parameter.declaration for parameter in kernel_parameters)})
{
% if spec.after_flag:
    ## The second stage asks whether this was called; it lowers the flag itself.
    __global uint *clhist_call = (__global uint *)(clhist_scratch + clhist_flag_place);
    const bool clhist_is_called = clhist_call[0] == ${hex(RAISED)}u;
    if (get_global_id(0) == 0 && get_global_id(1) == 0)
        clhist_call[1] = clhist_is_called;
    if (!clhist_is_called)
        return;
% endif
${types.arrays(spec)}\
    const size_t clhist_item = get_global_id(0), clhist_items = get_global_size(0);
% if spec.hot_bin:
${local.get_namespace("hot_bin.mako").variables()}
% endif
    const uint clhist_lane = get_local_id(0)${"" if spec.team_size == spec.work_group_size else f" % {spec.team_size}"};
% if state.is_local:
${copies.pool()}
% endif
${copies.arrays()}

% if state.has_tasks:
${local.get_namespace("batch.mako").begin_task()}
% elif state.is_partitioned:
${local.get_namespace("partitioned.mako").begin_part()}
% else:
    const bool clhist_is_open = true;
    const clhist_index_t clhist_begin = 0, clhist_end = clhist_size;
    const clhist_index_t clhist_rank = (clhist_index_t)get_group_id(0), clhist_ranks = (clhist_index_t)get_num_groups(0);
    const size_t clhist_slot = ${"get_group_id(0)" if state.is_local else "clhist_item * clhist_copies / clhist_items"};
% if state.takes_turns:
    const uint clhist_turns = clhist_copies / (uint)clhist_items;  // copies that neighbouring elements go to in turn
% endif
% endif

% for output in spec.outputs:
<% s = output.suffix %>\
% if spec.is_dealt:
    const clhist_bin_t clhist_first${s} = get_group_id(1);  // every bin of which this is the rest
    const clhist_bin_t clhist_count${s} = clhist_first${s} < clhist_num_bins${s}
        ? (clhist_num_bins${s} - clhist_first${s} - 1) / clhist_passes + 1 : 0;
% else:
    const clhist_bin_t clhist_first${s} = (clhist_bin_t)get_group_id(1) * clhist_bins_per_pass${s};
    const clhist_bin_t clhist_count${s} = clhist_is_open && clhist_first${s} < clhist_num_bins${s}
        ? min(clhist_bins_per_pass${s}, clhist_num_bins${s} - clhist_first${s}) : 0;
% endif
% endfor
${copies.cells_and_locks()}

${copies.initialise()}

% if spec.bucketed:
${local.get_namespace("buckets.mako").start(spec.outputs[0].suffix)}
% endif
% if spec.hot_bin and not state.is_partitioned:
${local.get_namespace("hot_bin.mako").start()}
% endif
% if state.is_partitioned:
${local.get_namespace("partitioned.mako").walk()}
% elif spec.order == "blocked":
${walk.blocked()}
% else:
${walk.striped()}
% endif
% if spec.bucketed:
${local.get_namespace("buckets.mako").finish(spec.outputs[0].suffix)}
% endif
% if spec.hot_bin:
${local.get_namespace("hot_bin.mako").finish()}
% endif
% if state.is_local:

${copies.flush()}
% endif
% if spec.combines:
## All copies are of this one work-group, so that a barrier is enough.
% if spec.work_group_size > 1:
    barrier(CLK_GLOBAL_MEM_FENCE);
% endif
    clhist_combine_bins(get_local_id(0), clhist_num_bins, ${spec.work_group_size}, ${combining});
% endif
% if state.is_partitioned:
    clhist_before = clhist_after;
% endif
% if state.has_tasks or state.is_partitioned:
    }
% endif
}

## Updates a bin of the pass: of a type each value of which has one, or one that has been compared.
<%def name="emit_inside(name, s)">
void ${name}(const clhist_bin_t bin, const value${s}_t value, ${state.declared})
{
% if spec.bucketed:
    {
${local.get_namespace("buckets.mako").append(s, bins_are_computed)}
    }
% else:
    clhist_update_bin${s}(bin, clhist_lift${s}(value), ${state.passed});
% endif
}
</%def>
