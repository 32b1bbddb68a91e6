"""Counts of transactions, conflicts and atomics, where they are known beforehand."""

import numpy as np
import pytest
from emulated.launch import settings, totals
from kernels import run


@pytest.fixture
def counted(monkeypatch):
    monkeypatch.setattr(settings, "counts", True)

    def counted(*arguments):
        before = dict(totals)
        run(*arguments)
        return {name: totals[name] - before[name] for name in before}

    return counted


LOCAL = """
__kernel void k(__global int *x, int factor) {
    __local volatile int held[2048];
    int i = get_local_id(0);
    held[i * factor] = x[i];
}
"""


@pytest.mark.parametrize(("factor", "cycles"), [(1, 1), (2, 2), (3, 1), (8, 8), (32, 32), (0, 1)])
def test_conflicts_of_banks(target, counted, factor, cycles):
    """32 lanes at a time, 32 banks of 4 bytes; one word is stored once."""
    found = counted(target, LOCAL, 64, 64, np.zeros(64, np.int32), np.int32(factor))
    assert found["local_cycles"] == 2 * cycles
    assert found["conflicts"] == 2 * (cycles - 1)


def test_lines_of_global_memory(target, counted):
    text = "__kernel void k(__global int *x, int step) { x[get_global_id(0) * step] = 1; }"
    x = np.zeros(64 * 64 + 32, np.int32)
    x = x[-x.ctypes.data % 128 // 4 :]
    assert counted(target, text, 64, 64, x, np.int32(1))["global_lines"] == 64 * 4 // target.line_bytes
    assert counted(target, text, 64, 64, x, np.int32(32))["global_lines"] == 64


ATOMICS = "__kernel void k(__global int *x, int most) { atomic_inc(x + min((int)get_local_id(0), most)); }"


@pytest.mark.parametrize(("most", "distinct"), [(63, 64), (0, 2), (15, 17)])
def test_atomics_and_those_that_repeat(target, counted, most, distinct):
    """In a wave of 64 lanes, one lane has each address first; in two waves of 32, one lane of each."""
    found = counted(target, ATOMICS, 64, 64, np.zeros(64, np.int32), np.int32(most))
    distinct -= target.lanes == 64 and most < 63
    assert found["atomics"] == 64
    assert found["repeated"] == 64 - distinct


def test_nothing_but_instructions_is_counted_unless_asked(target):
    before = dict(totals)
    run(target, ATOMICS, 64, 64, np.zeros(64, np.int32), np.int32(3))
    assert totals["steps"] > before["steps"]
    assert totals["atomics"] == before["atomics"]
