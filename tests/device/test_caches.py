"""What is kept for later calls is bounded."""

from __future__ import annotations

import numpy as np
import pyopencl as cl

import clhist
from clhist.opencl import memory as scratch
from clhist.opencl import program


def test_programs(queue, monkeypatch):
    monkeypatch.setattr(program, "_MOST_VALUES", 3)
    context = cl.Context([queue.device])  # which has no cache yet
    sources = [f"kernel void clhist_cache{n}(global int *x) {{ x[0] = {n}; }}" for n in range(5)]
    before = program.programs_built()
    first = program.build(context, sources[0])
    for source in sources:
        program.build(context, source)
        assert program.build(context, sources[0]) is first  # used again and again
    assert program.programs_built() == before + 5
    program.build(context, sources[1])  # which was dropped
    assert program.programs_built() == before + 6


def test_scratch_memory(queue, monkeypatch):
    """Calls of ever other sizes would leave a block of each."""
    x, held = np.zeros(100, np.int32), {}
    for part in (scratch._MOST_IDLE, 2**62):  # of the device's memory may be idle: one eighth, nothing
        clhist.free_scratch()
        monkeypatch.setattr(scratch, "_MOST_IDLE", part)
        for bins in (100_000, 200_000, 300_000, 400_000):
            clhist.reduce_by_index(np.zeros(bins, np.int32), np.add, x, 1, memory="global", copies=2, queue=queue)
        held[part] = scratch.scratch_bytes()
    clhist.free_scratch()
    assert scratch.scratch_bytes() == 0
    assert 4 * 2 * 400_000 <= held[2**62] < 4 * 2 * 600_000  # of the last call; blocks are rounded up by an eighth
    assert held[8] >= 4 * 2 * 1_000_000
