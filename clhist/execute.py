"""Carrying out a plan: scratch memory, kernels and launches, in the order clear, sweep, combine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyopencl as cl
from pyopencl.tools import ImmediateAllocator, MemoryPool

from clhist.arrays import Operand
from clhist.atomics import choose_update
from clhist.model import LOCK_BYTES, Plan
from clhist.operator import Operator
from clhist.profile import Profile
from clhist.program import Kernel, build
from clhist.render import CombineSpec, SweepSpec, render_combine, render_sweep

Allocator = Callable[[int], Any]

# Below these, elements and bins are counted in 32 bits; a work-item's next element must not overflow either.
NARROW_ELEMENTS = 2**31 - 2**24
NARROW_BINS = 2**31 - 1

_COMBINE_COLUMNS = 32
_COMBINE_ROWS = 16

_pools: dict[int, tuple[cl.CommandQueue, MemoryPool]] = {}
_pools_lock = threading.Lock()


def order_of(profile: Profile) -> str:
    """Return in which order the work-items of a device should go through the input."""
    return "blocked" if profile.kind == "cpu" else "interleaved"


def is_wide(plan: Plan) -> bool:
    """Whether a kernel for `plan` counts elements and bins in 64 bits."""
    return plan.num_elements > NARROW_ELEMENTS or plan.num_bins > NARROW_BINS


def local_capacity(plan: Plan, operator: Operator, profile: Profile) -> int:
    """Return the cells of the local array: a quarter, a half or all of local memory, so that few kernels are built."""
    if plan.memory == "global":
        return 0
    most = profile.local_memory // (operator.cell_bytes + (LOCK_BYTES if plan.update == "lock" else 0))
    needed = plan.copies * plan.bins_per_pass
    return next(size for size in (most // 4, most // 2, most) if size >= needed)


@lru_cache(maxsize=1024)
def sweep_kernel(context: cl.Context, spec: SweepSpec, options: tuple[str, ...]) -> Kernel:
    """Return the built sweep of `spec`."""
    return Kernel(build(context, render_sweep(spec), options), "clhist_sweep")


@lru_cache(maxsize=1024)
def combine_kernels(context: cl.Context, spec: CombineSpec) -> tuple[Kernel, Kernel]:
    """Return the built kernels that clear copies and combine them."""
    program = build(context, render_combine(spec))
    return Kernel(program, "clhist_clear"), Kernel(program, "clhist_combine_copies")


@dataclass
class Launch:
    """One histogram on one queue; `run` enqueues it.

    Attributes
    ----------
    plan, profile, operator : Plan, Profile, Operator
        How, on what, of what.
    sweep : Kernel
        The built sweep for this plan.
    arguments : sequence
        The map's arguments: `clhist.arrays.Operand` for arrays, NumPy scalars.
    dest, out : Operand
        What is combined with (or None), and what is written.
    reach : pyopencl.Buffer, optional
        One 32-bit word that gets the largest bin emitted.
    """

    plan: Plan
    profile: Profile
    operator: Operator
    sweep: Kernel
    arguments: Sequence[Operand | np.generic]
    dest: Operand | None
    out: Operand
    reach: cl.Buffer | None = None

    def run(self, queue: cl.CommandQueue, allocator: Allocator | None, wait_for: Sequence[cl.Event]) -> cl.Event:
        """Enqueue all and return the event of the last command, after which `out` is written.

        Raises
        ------
        MemoryError
            If the copies cannot be allocated.
        """
        plan = self.plan
        in_order = not queue.properties & cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
        allocate = allocator or scratch_allocator(queue)
        clear, combine = combine_kernels(queue.context, self._combine_spec(queue.device))
        copies, cells, locks = 0, None, None
        pending = list(wait_for)
        if plan.num_elements:
            copies = plan.global_copies
            cells = _allocate(allocate, copies * plan.num_bins * self.operator.cell_bytes, plan)
            if plan.memory == "global" and plan.update != "private":
                if plan.update == "lock":
                    locks = _allocate(allocate, copies * plan.num_bins * LOCK_BYTES, plan)
                pending = self._clear(queue, clear, cells, locks, pending, in_order)
            pending = self._sweep(queue, cells, locks, pending, in_order)
        return self._combine(queue, combine, cells, copies, pending)

    def _clear(
        self, queue: cl.CommandQueue, kernel: Kernel, cells: Any, locks: Any, wait_for: list[cl.Event], in_order: bool
    ) -> list[cl.Event]:
        count = self.plan.global_copies * self.plan.num_bins
        group = 1 if self.profile.kind == "cpu" else min(256, self.profile.work_group_size)
        groups = min(-(-count // group), 16 * queue.device.max_compute_units)
        event = kernel.enqueue(
            queue, (groups * group,), (group,), (cells, locks, np.uint64(count), np.int32(locks is not None)), wait_for
        )
        return [] if in_order else [event]

    def _sweep(
        self, queue: cl.CommandQueue, cells: Any, locks: Any, wait_for: list[cl.Event], in_order: bool
    ) -> list[cl.Event]:
        plan = self.plan
        index, bins = (np.int64, np.uint64) if is_wide(plan) else (np.int32, np.uint32)
        given: list[object] = []
        for argument in self.arguments:
            given += [argument.buffer, np.uint64(argument.offset)] if isinstance(argument, Operand) else [argument]
        event = self.sweep.enqueue(
            queue,
            (plan.work_groups * plan.work_group_size, plan.passes),
            (plan.work_group_size, 1),
            (
                *given,
                index(plan.num_elements),
                bins(plan.num_bins),
                bins(plan.bins_per_pass),
                np.uint32(plan.copies),
                cells,
                locks,
                self.reach,
            ),
            wait_for,
        )
        return [] if in_order else [event]

    def _combine(
        self, queue: cl.CommandQueue, kernel: Kernel, cells: Any, copies: int, wait_for: list[cl.Event]
    ) -> cl.Event:
        bins, spec = self.plan.num_bins, self._combine_spec(queue.device)
        if spec.order == "blocked":
            group, groups = 1, min(bins, 4 * queue.device.max_compute_units)
        else:
            group, groups = spec.columns * spec.rows, -(-bins // spec.columns)
        dest = self.dest or self.out
        return kernel.enqueue(
            queue,
            (groups * group,),
            (group,),
            (
                cells,
                np.uint64(bins),
                np.uint64(copies),
                dest.buffer,
                np.uint64(dest.offset),
                np.int32(self.dest is not None),
                self.out.buffer,
                np.uint64(self.out.offset),
            ),
            wait_for,
        )

    def _combine_spec(self, device: cl.Device) -> CombineSpec:
        order = order_of(self.profile)
        if order == "blocked":
            return CombineSpec(self.operator, order)
        largest = device.max_work_group_size
        if self.plan.global_copies < _COMBINE_ROWS:
            return CombineSpec(self.operator, order, columns=min(256, largest))
        return CombineSpec(
            self.operator,
            order,
            min(_COMBINE_COLUMNS, largest),
            max(1, min(_COMBINE_ROWS, largest // _COMBINE_COLUMNS)),
        )


def scratch_allocator(queue: cl.CommandQueue) -> Allocator:
    """Return where the copies of a call on `queue` come from: a pool, so that the next call need not allocate again.

    A pool hands out memory as soon as its last holder is gone, which is right only for commands that run in order.
    """
    if queue.properties & cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE:
        return ImmediateAllocator(queue)
    with _pools_lock:
        if queue.int_ptr not in _pools:
            _pools[queue.int_ptr] = (
                queue,
                MemoryPool(ImmediateAllocator(queue)),
            )  # keeps the queue: pointers get reused
        return _pools[queue.int_ptr][1]


def free_scratch() -> None:
    """Give back to the devices the scratch memory that is kept for later calls."""
    with _pools_lock:
        for queue, pool in _pools.values():
            queue.finish()
            pool.free_held()
        _pools.clear()


def updates_for(operator: Operator, features: frozenset[str], forced: str | None) -> tuple[str, str]:
    """Return the updates for shared copies in local and in global memory, with the forced one checked in both."""
    if forced == "private":
        forced = None
    return (choose_update(operator, "local", features, forced), choose_update(operator, "global", features, forced))


def _allocate(allocate: Allocator, size: int, plan: Plan) -> Any:
    try:
        return allocate(size)
    except cl.MemoryError as error:
        raise MemoryError(
            f"the device has no {size} bytes for {plan.global_copies} copies of {plan.num_bins} bins; "
            "give copies= or memory_budget= to use fewer copies"
        ) from error
