## Copies in global memory, which all work-items share, or of which each work-item has its own.
##
##   shared    `clhist_all`:  | copy 0: bin 0 .. H-1 | copy 1 | .. |     locks: | of copy 0 | of copy 1 | ..
##   private   `clhist_all`:  | copy 0: bin 0 .. H-1 | pad | copy 1 | ..   the pad is for CPUs, see decision 0002
##
## The kernel `clhist_clear` of combine.mako has cleared shared copies before the sweep; a work-item sets its own. The
## second stage combines them. With `spec.block` a spare bin behind those of a copy takes what is not in the pass.
##
## Part of sweep.mako. Plans: GlobalPlan, PrivatePlan. Paper: SC'20, section III.
<%! from clhist._core.kernels.sweep_code import set_to_neutral, spare_bin %>\
## The memory of the copies, and of their locks.
<%def name="memory()">
${state.all_copies}
${state.for_each_part("""
    volatile __global int *clhist_locks{n}
        = (volatile __global int *)(clhist_scratch + clhist_lock_place{n});""", state.locked)}
</%def>

## The cells that this work-item updates, and the number of the lock of its bin 0.
<%def name="cells_and_locks()">
${state.for_each_part("""
    __global cell{n}_t *clhist_cells{n}
        = clhist_all{n} + clhist_slot * {stride}{s} + clhist_first{s};""", stride=state.stride(""))}
${state.for_each_lock("    const ulong clhist_lock_base{s} = clhist_slot * clhist_num_bins{s} + clhist_first{s};")}
</%def>

## Sets the copies of the work-item to the neutral element.
<%def name="initialise()">
${spare_bin(state)}
${set_to_neutral(state)}
</%def>

<%def name="flush()"></%def>
