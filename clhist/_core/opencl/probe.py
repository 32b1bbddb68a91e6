"""Probes of a device: float atomics and fences that its driver or compiler only promises.

An atomic that is promised may still be wrong: AMD's float add does nothing on some memory. Each runs once on a device
and is compared with the host before any histogram uses it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from clhist._core.devices.vendors import PROVEN_FENCE, NativeAtomic, to_prove
from clhist._core.opencl.program import building, compile_program
from clhist._core.templates import render

CELLS = 3  # few, so that many work-items want the same one
_GROUPS = 8  # work-groups, which meet in global memory
_LANES = 64  # work-items of a group, which meet in local memory
_EACH = 301  # values of a work-group


def proven_features(context: cl.Context, device: cl.Device, features: Collection[str]) -> frozenset[str]:
    """Return the `features` that `device` has shown to work, and with them each hardware atomic.

    Parameters
    ----------
    context : pyopencl.Context
        One of the device's.
    device : pyopencl.Device
        To be tried.
    features : collection of str
        What it says it has, of `clhist._core.devices.vendors.FEATURES`.
    """
    queue = cl.CommandQueue(context, device)
    proven = set(features)
    # A device without double precision cannot compile a probe with doubles.
    wanted = [atomic for atomic in to_prove(features) if atomic.word != "double" or "fp64" in features]
    # One program for each path: few builds, and options that only some paths need.
    for _, rows in groupby(wanted, key=lambda atomic: (atomic.path, atomic.options)):
        proven |= {atomic.feature for atomic in _proven(queue, list(rows)) if atomic.feature}
    if PROVEN_FENCE.feature in proven and not _fence_works(queue):
        proven.remove(PROVEN_FENCE.feature)
    return frozenset(proven)


def _proven(queue: cl.CommandQueue, atomics: Sequence[NativeAtomic]) -> Iterator[NativeAtomic]:
    program = _build(queue.context, probe_code(atomics), atomics[0].options)
    if program is None:
        if len(atomics) > 1:  # one that the compiler stumbles over does not take the others with it
            for atomic in atomics:
                yield from _proven(queue, [atomic])
        return
    names = program.kernel_names.split(";")
    for n, atomic in enumerate(atomics):
        if f"clhist_prove{n}" in names and _is_right(queue, getattr(program, f"clhist_prove{n}"), atomic):
            yield atomic


def probe_code(atomics: Sequence[NativeAtomic]) -> str:
    """Return the OpenCL C that proves `atomics`, or the device-wide fence if there are none."""
    return render("probe.mako", atomics=atomics, cells=CELLS, fence="" if atomics else PROVEN_FENCE.fence)


def _build(context: cl.Context, source: str, options: Sequence[str]) -> cl.Program | None:
    with building(context):
        try:
            return compile_program(context, source, options)
        except cl.Error:
            return None


def _is_right(queue: cl.CommandQueue, kernel: Any, atomic: NativeAtomic) -> bool:
    """Whether many work-items that update the same few cells give what NumPy does."""
    values, start = _values(atomic)
    groups = _GROUPS if atomic.memory == "local" else 1  # that have cells of their own
    shape = (groups, CELLS) if atomic.numbers == 1 else (groups, CELLS, atomic.numbers)
    cells = cl_array.to_device(queue, np.full(shape, start, atomic.dtype))
    operands = cl_array.to_device(queue, values)
    try:
        kernel(queue, (_GROUPS * _LANES,), (_LANES,), cells.data, operands.data, np.uint32(_EACH))
        result = cells.get()
    except cl.Error:
        return False
    # Values are multiples of 1/4 and small, so that sums are exact in any order.
    expected = np.full(shape, start, atomic.dtype)
    bins = np.broadcast_to(np.arange(_EACH) % CELLS, values.shape[:2])
    rows = np.broadcast_to(np.arange(_GROUPS)[:, None] % groups, values.shape[:2])
    getattr(np, atomic.operation).at(expected, (rows, bins), values)
    return np.array_equal(result, expected, equal_nan=True)


def _values(atomic: NativeAtomic) -> tuple[np.ndarray, float]:
    """Return the values and the start of the cells: sums that are exact; minima among NaN and infinities."""
    rng = np.random.default_rng(1)
    shape = (_GROUPS, _EACH) if atomic.numbers == 1 else (_GROUPS, _EACH, atomic.numbers)
    values = rng.integers(-1000, 1000, shape).astype(atomic.dtype) / 4
    if atomic.operation == "add":
        return values, 0.0
    # A tenth of the values is NaN, which fmin and fmax must ignore.
    values[rng.random(values.shape) < 0.1] = np.nan
    values[:, ::CELLS] = np.nan  # a cell that gets no number
    values[:, 1::CELLS][rng.random((_GROUPS, len(range(1, _EACH, CELLS)))) < 0.01] = np.inf
    return values, np.nan


def _fence_works(queue: cl.CommandQueue) -> bool:
    """Whether plain counters behind locks miss no count; a device without the fence has no such kernel."""
    program: Any = _build(queue.context, probe_code([]), PROVEN_FENCE.fence_options)
    if program is None or "clhist_prove_fence" not in program.kernel_names.split(";"):
        return False
    counters, locks = (cl_array.zeros(queue, CELLS, np.int32) for _ in range(2))
    try:
        program.clhist_prove_fence(queue, (_GROUPS * _LANES,), (_LANES,), counters.data, locks.data, np.uint32(CELLS))
        return bool((counters.get() == _GROUPS * _LANES).all())
    except cl.Error:
        return False
