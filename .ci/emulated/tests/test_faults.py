"""Faults of kernels: accesses out of bounds or unaligned, endless loops, and instructions that the emulator lacks."""

import numpy as np
import pytest
from emulated import decode as decoding
from emulated.alu import UnsupportedInstructionError
from emulated.launch import KernelFaultError, KernelHangsError, Local, settings
from emulated.outcomes import FAULTY, HANGS, LACKS, RIGHT, WRONG, outcome
from kernels import run

COPY = "__kernel void k(__global TYPE *x, int at) { x[get_global_id(0)] = x[get_global_id(0) + at]; }"


@pytest.mark.parametrize(("dtype", "name"), [(np.uint8, "uchar"), (np.int32, "int"), (np.float64, "double")])
@pytest.mark.parametrize("at", [1, -1])
def test_one_element_beyond_an_array(target, dtype, name, at):
    x = np.zeros(64, dtype)
    with pytest.raises(KernelFaultError, match=rf"global load of {x.itemsize} bytes .*(?s:.*)global_load"):
        run(target, COPY.replace("TYPE", name), 64, 64, x, np.int32(at))


def test_a_store_beyond_an_array(target):
    with pytest.raises(KernelFaultError, match=r"global store of 4 bytes .*it is \+256 bytes from the start of 256"):
        run(target, "__kernel void k(__global int *x) { x[get_global_id(0) + 1] = 1; }", 64, 64, np.zeros(64, np.int32))


def test_beyond_local_memory(target):
    text = "__kernel void k(__global int *x, __local int *y) { y[get_local_id(0)] = 1; x[0] = y[0]; }"
    with pytest.raises(KernelFaultError, match=r"local store of 4 bytes at 0x(20, lane 8|80, lane 0), out of bounds"):
        run(target, text, 64, 64, np.zeros(64, np.int32), Local(32))


def test_an_atomic_that_is_not_aligned(target):
    text = "__kernel void k(__global char *x) { atomic_inc((__global int *)(x + 2)); }"
    with pytest.raises(KernelFaultError, match="global atomic of 4 bytes"):
        run(target, text, 64, 64, np.zeros(64, np.int32))


def test_code_and_arguments_may_not_be_written(target):
    text = "__constant int table[2] = {1, 2}; __kernel void k(int n) { *(__global int *)(ulong)&table[n & 1] = 1; }"
    with pytest.raises(KernelFaultError, match="global store"):
        run(target, text, 64, 64, np.int32(1))


def test_a_loop_without_end(target):
    text = "__kernel void k(__global volatile int *x) { while (x[0] == 0); }"
    with pytest.raises(KernelHangsError, match="no end after 2000000 instructions, most of a wave"):
        run(target, text, 64, 64, np.zeros(64, np.int32))


def test_waiting_for_a_group_that_is_not_resident(target, monkeypatch):
    """Two groups of which the first waits for the second: with one resident at a time it never comes."""
    monkeypatch.setattr(settings, "resident", 1)
    text = """__kernel void k(__global volatile int *x) {
        if (get_group_id(0) == 1) { atomic_xchg(x, 1); return; }
        while (atomic_add(x, 0) == 0);
    }"""
    with pytest.raises(KernelHangsError):
        run(target, text, 128, 64, np.zeros(64, np.int32))
    monkeypatch.setattr(settings, "resident", 2)
    run(target, text, 128, 64, np.zeros(64, np.int32))


def test_garbage_at_the_start(target):
    """Nobody clears local memory."""
    x = np.zeros(64, np.uint32)
    text = "__kernel void k(__global uint *x, __local uint *y) { x[get_global_id(0)] = y[get_local_id(0)]; }"
    run(target, text, 64, 64, x, Local(256))
    assert (x == 0xA5A5A5A5).all()


def test_an_instruction_that_the_emulator_lacks_is_no_result(target, monkeypatch):
    def lacks(*_):
        raise UnsupportedInstructionError("v_nothing_b32")

    monkeypatch.setattr(decoding.alu, "machine_code", lacks)
    text = f"__kernel void k(__global int *x) {{ x[get_global_id(0)] *= {hash(target.name) & 0xFFFF | 1}; }}"
    found = outcome(lambda: run(target, text, 64, 64, np.ones(64, np.int32)))
    assert found.word == LACKS
    assert "the emulator does not know v_nothing_b32" in found.text


def test_outcomes_have_their_words():
    def fails(error):
        def action():
            raise error

        return action

    assert outcome(lambda: None).word == RIGHT
    assert outcome(fails(AssertionError("3 bins"))) == (WRONG, "3 bins")
    assert outcome(fails(KernelHangsError("x"))).word == HANGS
    assert outcome(fails(KernelFaultError("x"))).word == FAULTY
    assert all(outcome(fails(error)).is_bad for error in (AssertionError(), KeyError("x"), KernelHangsError()))
