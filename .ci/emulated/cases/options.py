"""Cases of options of a call that are no choices of a plan: where results go, in which memory, after which events."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pyopencl.tools as cl_tools

import clhist
from clhist import operators
from emulated.cases.case import Action, Case, bins_of, folded, same
from emulated.device import launched

_SIZE, _BINS = 6000, 300


def _input(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    bins = bins_of("outside", rng, _SIZE, _BINS)
    return bins, folded(np.add, bins, np.ones(_SIZE), np.zeros(_BINS, np.int32)), np.arange(_BINS, dtype=np.int32)


def _kernel(queue: cl.CommandQueue) -> clhist.HistogramKernel:
    return clhist.HistogramKernel(queue.context, operators.add(np.int32), arguments="const int *x", map="EMIT(x[i], 1)")


def _dest(queue: cl.CommandQueue, rng: np.random.Generator) -> None:
    bins, counts, before = _input(rng)
    same(_kernel(queue)(bins, num_bins=_BINS, queue=queue, dest=before), counts + before)


def _out(queue: cl.CommandQueue, rng: np.random.Generator) -> None:
    bins, counts, _ = _input(rng)
    out = np.empty(_BINS, np.int32)
    _kernel(queue)(bins, num_bins=_BINS, queue=queue, out=out)
    same(out, counts)


def _size(queue: cl.CommandQueue, rng: np.random.Generator) -> None:
    bins, _, _ = _input(rng)
    found = _kernel(queue)(bins, num_bins=_BINS, queue=queue, size=1000)
    same(found, folded(np.add, bins[:1000], np.ones(1000), np.zeros(_BINS, np.int32)))


def _events(queue: cl.CommandQueue, rng: np.random.Generator) -> None:
    bins, counts, _ = _input(rng)
    given = cl_array.empty(queue, _SIZE, np.int32)
    copied = cl.enqueue_copy(queue, given.data, bins, is_blocking=False)
    found, event = _kernel(queue)(given, num_bins=_BINS, queue=queue, wait_for=[copied], return_event=True)
    event.wait()
    same(found.get(), counts)


def _allocator(queue: cl.CommandQueue, rng: np.random.Generator) -> None:
    bins, counts, _ = _input(rng)
    pool = cl_tools.MemoryPool(cl_tools.ImmediateAllocator(queue))
    given = cl_array.to_device(queue, bins)
    same(_kernel(queue)(given, num_bins=_BINS, queue=queue, allocator=pool).get(), counts)


def _budget(queue: cl.CommandQueue, rng: np.random.Generator) -> None:
    bins = bins_of("half", rng, _SIZE, 20000)
    found = _kernel(queue)(bins, num_bins=20000, queue=queue, memory="global", memory_budget=200_000)
    same(found, np.bincount(bins, minlength=20000).astype(np.int32))


def _sampled(mode: str) -> Action:
    def action(queue: cl.CommandQueue, rng: np.random.Generator) -> None:
        bins = bins_of("half", rng, _SIZE, 20000)
        found = _kernel(queue)(bins, num_bins=20000, queue=queue, race_factor=mode)
        same(found, np.bincount(bins, minlength=20000).astype(np.int32))

    return action


def _group_by(queue: cl.CommandQueue, rng: np.random.Generator) -> None:
    keys, values = rng.integers(0, 40, _SIZE), rng.integers(-99, 99, _SIZE).astype(np.float32)
    found = clhist.group_by(keys, queue=queue).sum(values)
    same(np.asarray(found, np.float32), folded(np.add, keys, values, np.zeros(40, np.float32)))


def _bincount(queue: cl.CommandQueue, rng: np.random.Generator) -> None:
    bins = rng.integers(0, 300, _SIZE)
    same(np.asarray(clhist.bincount(bins, queue=queue), np.int64), np.bincount(bins))


def _local_memory(most: int) -> Action:
    """Bins for which 64 KiB of local memory do in one pass, and 32 KiB in two."""

    def action(queue: cl.CommandQueue, rng: np.random.Generator) -> None:
        profile = replace(clhist.device_profile(queue.device), local_memory=most)
        kernel = clhist.HistogramKernel(
            queue.context, operators.add(np.int32), arguments="const int *x", map="EMIT(x[i], 1)", profile=profile
        )
        bins, (passes, least) = bins_of("half", rng, _SIZE, 12_281), {2**15: (2, 0), 2**16: (1, 2**15)}[most]
        plan = kernel.plan(_SIZE, 12_281, queue=queue, memory="local", copies=1, counter_bits=32)
        found = kernel(bins, num_bins=12_281, queue=queue, memory="local", copies=1, counter_bits=32)
        same(found, np.bincount(bins, minlength=12_281).astype(np.int32))
        used = max(code.kernels[name].local_bytes for code, name in launched.kernels)
        assert plan.passes == passes, f"{plan.passes} passes"
        assert least < used <= most, f"{used} bytes of local memory"

    return action


def option_cases() -> Iterator[Case]:
    """Yield a case for each."""
    for name, action, *covers in (
        ("dest", _dest, "dest", "queue"),
        ("out", _out, "out"),
        ("size", _size, "size"),
        ("events", _events, "wait_for", "return_event"),
        ("allocator", _allocator, "allocator"),
        ("memory budget", _budget, "memory_budget", "memory", "memory global"),
        ("race factor sampled", _sampled("sample"), "race_factor", "race_factor sample"),
        ("race factor sampled once", _sampled("sample once"), "race_factor", "race_factor sample once"),
        ("32 KiB of local memory", _local_memory(2**15), "memory", "memory local"),
        ("64 KiB of local memory", _local_memory(2**16), "memory", "memory local"),
        ("group_by", _group_by),
        ("bincount", _bincount),
    ):
        yield Case(f"option: {name}" if covers else name, action, covers=frozenset(covers))
