"""Locks as compilers translate them: as the kernels are written, and as they must not be."""

import pytest
from emulated.compiler import disassembly
from emulated.objects import load
from isa import lock_faults, of_assembly, of_disassembly

LOCK = """
__kernel void k(__global int *locks, __global VOLATILE long *cells, const __global int *bins) {
    long value = get_global_id(0);
    SPACE int *lock = LOCKS + bins[value];
    int done = 0;
    while (!done) {
        if (atomic_xchg(lock, 1) == 0) {
            FENCE
            cells[bins[value]] = cells[bins[value]] * 3 + value;
            FENCE
            RELEASE
        }
    }
}
"""
FENCE = '__builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent");'


def faults(target, release, fence=FENCE, volatile="volatile", space="__global"):
    text = LOCK.replace("RELEASE", release).replace("FENCE", fence).replace("VOLATILE", volatile)
    if space == "__local":
        text = text.replace("long value", "__local int held[512]; held[get_local_id(0)] = 0; "
                            "barrier(CLK_LOCAL_MEM_FENCE); long value")  # fmt: skip
    text = text.replace("SPACE", space).replace("LOCKS", "locks" if space == "__global" else "held")
    return lock_faults(of_disassembly(disassembly(target, load(target, text).file)))


@pytest.mark.parametrize("space", ["__local", "__global"])
def test_a_lock_that_is_released_by_its_flag_is_right(target, space):
    assert faults(target, "done = atomic_xchg(lock, 0);", space=space) == []


@pytest.mark.parametrize("space", ["__local", "__global"])
def test_a_lock_that_is_released_apart_from_its_flag_hangs(target, space):
    assert any("hangs" in fault for fault in faults(target, "atomic_xchg(lock, 0); done = 1;", space=space))


def test_a_lock_without_fence_and_volatile_loads_from_a_cache(target):
    release = "done = atomic_xchg(lock, 0);"
    assert any("may be old" in fault for fault in faults(target, release, fence="", volatile=""))
    assert faults(target, release, volatile="") == []
    assert faults(target, release, fence="") == []


def test_assembly_is_read_likewise():
    body = "\tds_wrxchg_rtn_b32 v1, v0, v2\n\t{}\n\ts_cbranch_execnz .LBB0_1\n\t{}\n\ts_endpgm\n"
    release = "ds_wrxchg_rtn_b32 v1, v0, v3"
    inside = f"k:\n.LBB0_1:\n{body.format(release, 's_nop 0')}"
    behind = f"k:\n.LBB0_1:\n{body.format('s_nop 0', release)}"
    assert lock_faults(of_assembly(inside)) == []
    assert len(lock_faults(of_assembly(behind))) == 1
