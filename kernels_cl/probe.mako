## Programs that prove whether a hardware atomic, or a fence, works on a device; see
## clhist/_core/opencl/probe.py. Where the compiler lacks it, the program has no kernel for it. Decision 0010.
##
##   global   all work-groups update the same cells      local   each work-group updates its own cells
##
## NVIDIA's driver crashes when queried for the kernels of a program without any; hence `clhist_nothing`.
__kernel void clhist_nothing(void) {}
#ifdef __has_builtin
#define CLHIST_HAS_BUILTIN(name) __has_builtin(name)
#else
#define CLHIST_HAS_BUILTIN(name) 0
#endif
% for n, atomic in enumerate(atomics):
<% word = atomic.word %>
#if ${atomic.guard}
% if word == "double":
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
% endif
void clhist_update${n}(__${atomic.memory} ${word} *cell, const ${word} v)
{
    volatile __${atomic.memory} ${word} *p = (volatile __${atomic.memory} ${word} *)cell;
    ${atomic.code}
}
## In global memory all work-groups update the same cells, in local memory each its own.
__kernel void clhist_prove${n}(__global ${word} *cells, __global const ${word} *values, const uint each)
{
    const uint lane = get_local_id(0), lanes = get_local_size(0), group = get_group_id(0);
% if atomic.memory == "local":
    __local ${word} own[${cells}];
    if (lane < ${cells})
        own[lane] = cells[group * ${cells} + lane];
    // Barrier: the cells are loaded before others update them.
    barrier(CLK_LOCAL_MEM_FENCE);
% else:
    __global ${word} *own = cells;
% endif
    for (uint i = lane; i < each; i += lanes)
        clhist_update${n}(own + i % ${cells}, values[group * each + i]);
% if atomic.memory == "local":
    // Barrier: all updates are done.
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lane < ${cells})
        cells[group * ${cells} + lane] = own[lane];
% endif
}
#endif
% endfor
% if fence:
#if defined(__opencl_c_atomic_scope_device) && defined(__opencl_c_atomic_order_acq_rel)
__kernel void clhist_prove_fence(__global int *counters, volatile __global int *locks, const uint each)
{
    for (uint i = 0; i < each; ++i) {
        volatile __global int *counter = counters + i % ${cells}, *lock = locks + i % ${cells};
        int done = 0;
        while (!done) {
            if (atomic_xchg(lock, 1) == 0) {
                ${fence};
                *counter += 1;
                ${fence};
                done = atomic_xchg(lock, 0);
            }
        }
    }
}
#endif
% endif
