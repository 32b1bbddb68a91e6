"""Arguments, sizes, barriers and atomics of a launch."""

import numpy as np
import pytest
from emulated.launch import KernelFaultError, Local, settings, totals
from kernels import run

IDS = """
__kernel void k(__global int *out, int factor, char small, double real) {
    size_t x = get_global_id(0), y = get_global_id(1), z = get_global_id(2);
    size_t at = (z * get_global_size(1) + y) * get_global_size(0) + x - get_global_offset(0);
    out[at] = factor * (int)(get_group_id(0) + 10 * get_group_id(1) + 100 * get_group_id(2))
        + (int)(get_local_id(0) + get_local_size(1) * 1000) + small + (int)real
        + (int)(get_num_groups(2) * 100000 + get_work_dim() * 1000000);
}
"""


def test_ids_sizes_and_values(target):
    out = np.zeros((4, 6, 8), np.int32)
    run(target, IDS, (8, 6, 4), (4, 3, 2), out, np.int32(7), np.int8(-3), np.float64(2.5))
    z, y, x = np.indices(out.shape)
    groups = x // 4 + 10 * (y // 3) + 100 * (z // 2)
    np.testing.assert_array_equal(out, 7 * groups + x % 4 + 3000 - 3 + 2 + 200000 + 3000000)


def test_an_offset(target):
    out = np.zeros(128, np.int32)
    run(target, IDS, 128, 64, out, np.int32(1), np.int8(0), np.float64(0), offset=(500,))
    expected = np.arange(128) // 64 + np.arange(128) % 64 + 1000 + 100000 + 1000000
    np.testing.assert_array_equal(out, expected)


def test_a_group_that_fills_no_wave(target):
    out = np.zeros(30, np.int32)
    run(target, "__kernel void k(__global int *x) { x[get_global_id(0)] = get_local_id(0) + 1; }", 30, 10, out)
    np.testing.assert_array_equal(out, np.tile(np.arange(1, 11), 3))


REVERSED = """
__kernel void k(__global int *x, __local int *held) {
    int i = get_local_id(0), n = get_local_size(0);
    held[i] = x[get_global_id(0)];
    BARRIER
    x[get_global_id(0)] = held[n - 1 - i];
}
"""


def test_barriers_order_local_memory(target):
    x = np.arange(1024, dtype=np.int32)
    run(target, REVERSED.replace("BARRIER", "barrier(CLK_LOCAL_MEM_FENCE);"), 1024, 256, x, Local(1024))
    np.testing.assert_array_equal(x, np.arange(1024).reshape(4, 256)[:, ::-1].ravel())


def test_a_missing_barrier_is_seen(target):
    x = np.arange(1024, dtype=np.int32)
    run(target, REVERSED.replace("BARRIER", ""), 1024, 256, x, Local(1024))
    assert (x != np.arange(1024).reshape(4, 256)[:, ::-1].ravel()).any()


RETURNED = """
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
__kernel void k(__global TYPE *counter, __global TYPE *taken, __global TYPE *first) {
    __local TYPE own;
    if (get_local_id(0) == 0) own = 1000;
    barrier(CLK_LOCAL_MEM_FENCE);
    taken[get_global_id(0)] = NAME_add(counter, (TYPE)2);
    NAME_add(&own, (TYPE)3);
    barrier(CLK_LOCAL_MEM_FENCE);
    taken[get_global_size(0) + get_global_id(0)] = NAME_xchg(&own, (TYPE)get_local_id(0));
    NAME_cmpxchg(first, (TYPE)0, (TYPE)(get_global_id(0) + 1));
}
"""


@pytest.mark.parametrize(("name", "dtype"), [("atomic", np.int32), ("atom", np.int64)])
def test_atomics_return_what_was_there(target, name, dtype):
    counter, taken, first = np.full(1, 2**31 - 200, dtype), np.zeros(2 * 512, dtype), np.zeros(1, dtype)
    text = RETURNED.replace("TYPE", "int" if dtype == np.int32 else "long").replace("NAME", name)
    run(target, text, 512, 128, counter, taken, first)
    with np.errstate(over="ignore"):
        expected = (np.arange(512, dtype=dtype) * 2 + dtype(2**31 - 200)).astype(dtype)
    np.testing.assert_array_equal(np.sort(taken[:512]), np.sort(expected))
    # Of each group, every exchange returns what an earlier one left, the first one the sum.
    for group in taken[512:].reshape(4, 128):
        assert group.max() == 1000 + 3 * 128
        assert len(set(group.tolist())) == 128
    assert 1 <= first[0] <= 512


PASSED_ON = """
__kernel void k(__global int *data, __global VOLATILE int *flag, __global int *seen) {
    if (get_group_id(0) == 0) {
        if (get_local_id(0) == 0) { data[0] = 42; FENCE atomic_xchg(flag, 1); }
    } else if (get_local_id(0) == 0) {
        seen[0] = data[0];
        while (atomic_add(flag, 0) == 0);
        FENCE
        seen[1] = data[0];
    }
}
"""


@pytest.mark.parametrize("fenced", [True, False])
def test_what_another_group_wrote_needs_a_fence(target, fenced):
    """A group sees what another wrote if both have a fence; without one, an old value for some seed."""
    fence = '__builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent");' if fenced else ""
    text = PASSED_ON.replace("VOLATILE", "volatile").replace("FENCE", fence)
    found = set()
    for seed in range(12):
        settings.restart(seed)
        data, flag, seen = np.zeros(32, np.int32), np.zeros(1, np.int32), np.zeros(32, np.int32)
        run(target, text, 128, 64, data, flag, seen)
        found.add(int(seen[1]))
    assert found == {42} if fenced else 0 in found


def test_the_same_seed_gives_the_same_run(target):
    def steps(seed):
        settings.restart(seed)
        before, lock = totals["steps"], np.zeros(1, np.int32)
        text = """__kernel void k(__global int *lock) {
            int done = 0;
            while (!done) if (atomic_xchg(lock, 1) == 0) done = 1 + atomic_xchg(lock, 0);
        }"""
        run(target, text, 256, 64, lock)
        return totals["steps"] - before

    assert steps(1) == steps(1)
    assert len({steps(seed) for seed in range(5)}) > 1


@pytest.mark.parametrize(
    ("size", "group", "message"),
    [(100, 64, "of a launch of"), (128, 128, "which requires"), (4096, 2048, "of a launch of")],
)
def test_sizes_that_do_not_fit(target, size, group, message):
    text = "__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void k(__global int *x) { x[0] = 1; }"
    with pytest.raises(KernelFaultError, match=message):
        run(target, text, size, group, np.zeros(1, np.int32))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.zeros(1, np.int32),), "1 arguments where it has 2"),
        ((np.zeros(1, np.int32), np.int64(1)), "argument 1 is by_value of 4 bytes"),
        ((np.int32(1), np.int32(1)), "argument 0 is global_buffer of 8 bytes"),
    ],
)
def test_arguments_that_do_not_fit(target, arguments, message):
    with pytest.raises(KernelFaultError, match=message):
        run(target, "__kernel void k(__global int *x, int n) { x[0] = n; }", 64, 64, *arguments)


def test_more_local_memory_than_there_is(target):
    with pytest.raises(KernelFaultError, match="70000 bytes of local memory where"):
        run(target, "__kernel void k(__local int *x) { x[0] = 1; }", 64, 64, Local(70000))
