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
from clhist.model import LOCK_BYTES, Plan
from clhist.operator import Operator
from clhist.profile import Profile
from clhist.program import Kernel, build
from clhist.render import CombineSpec, SweepSpec, render_combine, render_sweep

Allocator = Callable[[int], Any]

# Below these, elements and bins are counted in 32 bits; a work-item's next element must not overflow either.
NARROW_ELEMENTS = 2**31 - 2**24
NARROW_BINS = 2**31 - 1

_INT, _UINT, _LONG, _ULONG = (np.dtype(kind) for kind in (np.int32, np.uint32, np.int64, np.uint64))

_COMBINE_COLUMNS = 32
_COMBINE_ROWS = 16

_pools: dict[int, tuple[cl.CommandQueue, MemoryPool]] = {}
_pools_lock = threading.Lock()
_MOST_POOLS = 8


def order_of(profile: Profile) -> str:
    """Return in which order the work-items of a device should go through the input."""
    return "blocked" if profile.kind == "cpu" else "interleaved"


def index_types(wide: bool) -> tuple[np.dtype, np.dtype]:
    """Return the types in which a kernel counts elements and bins."""
    return (_LONG, _ULONG) if wide else (_INT, _UINT)


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
    index, bins = index_types(spec.wide)
    given = [[None, _ULONG] if argument.is_array else [argument.dtype] for argument in spec.arguments]
    dtypes = [*(dtype for group in given for dtype in group), index, bins, bins, _UINT, None, None, None]
    return Kernel(build(context, render_sweep(spec), options), "clhist_sweep", dtypes)


@lru_cache(maxsize=1024)
def combine_kernels(context: cl.Context, spec: CombineSpec) -> tuple[Kernel, Kernel]:
    """Return the built kernels that clear copies and combine them."""
    program = build(context, render_combine(spec))
    clear = Kernel(program, "clhist_clear", [None, None, _ULONG, _INT])
    copies = [None, _ULONG, _ULONG, None, _ULONG, _INT, None, _ULONG]
    return clear, Kernel(program, "clhist_combine_copies", copies)


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
    reach : Operand, optional
        One 32-bit word that gets the largest bin emitted.
    """

    plan: Plan
    profile: Profile
    operator: Operator
    sweep: Kernel
    arguments: Sequence[Operand | np.generic]
    dest: Operand | None
    out: Operand
    reach: Operand | None = None

    def run(
        self, queue: cl.CommandQueue, allocator: Allocator | None, wait_for: Sequence[cl.Event]
    ) -> dict[str, cl.Event]:
        """Enqueue all and return the event of each stage in order; after the last, "combine", `out` is written.

        Raises
        ------
        MemoryError
            If the copies cannot be allocated.
        """
        plan = self.plan
        clear, combine = combine_kernels(queue.context, self._combine_spec(queue.device))
        # A pool hands out memory as soon as its last holder is gone: right only for commands that run in order.
        allocate = allocator if allocator is not None and _in_order(queue) else scratch_allocator(queue)
        events: dict[str, cl.Event] = {}
        copies, cells, locks = 0, None, None
        if plan.num_elements:
            copies = plan.global_copies
            cells = _allocate(allocate, copies * plan.num_bins * self.operator.cell_bytes, plan)
            if plan.memory == "global" and plan.update == "lock":
                locks = _allocate(allocate, copies * plan.num_bins * LOCK_BYTES, plan)
            if plan.memory == "global" and plan.update != "private":
                events["clear"] = self._clear(queue, clear, cells, locks, wait_for)
            events["sweep"] = self._sweep(queue, cells, locks, _after(queue, events, wait_for))
        events["combine"] = self._combine(queue, combine, cells, copies, _after(queue, events, wait_for))
        return events

    def _clear(
        self, queue: cl.CommandQueue, kernel: Kernel, cells: Any, locks: Any, wait_for: Sequence[cl.Event]
    ) -> cl.Event:
        count = self.plan.global_copies * self.plan.num_bins
        group = 1 if self.profile.kind == "cpu" else min(256, self.profile.work_group_size)
        groups = min(-(-count // group), 16 * queue.device.max_compute_units)
        given = (cells, locks, count, locks is not None)
        return kernel.enqueue(queue, (groups * group,), (group,), given, wait_for)

    def _sweep(self, queue: cl.CommandQueue, cells: Any, locks: Any, wait_for: Sequence[cl.Event]) -> cl.Event:
        plan = self.plan
        given: list[object] = []
        for argument in self.arguments:
            given += [argument.buffer, argument.offset] if isinstance(argument, Operand) else [argument]
        given += [plan.num_elements, plan.num_bins, plan.bins_per_pass, plan.copies, cells, locks]
        given += [None if self.reach is None else self.reach.buffer]
        work_items = plan.work_groups * plan.work_group_size
        return self.sweep.enqueue(queue, (work_items, plan.passes), (plan.work_group_size, 1), given, wait_for)

    def _combine(
        self, queue: cl.CommandQueue, kernel: Kernel, cells: Any, copies: int, wait_for: Sequence[cl.Event]
    ) -> cl.Event:
        bins, spec = self.plan.num_bins, self._combine_spec(queue.device)
        if spec.order == "blocked":
            group, groups = 1, min(bins, 4 * queue.device.max_compute_units)
        else:
            group, groups = spec.columns * spec.rows, -(-bins // spec.columns)
        dest = self.dest or self.out
        given = (cells, bins, copies, dest.buffer, dest.offset, self.dest is not None, self.out.buffer, self.out.offset)
        return kernel.enqueue(queue, (groups * group,), (group,), given, wait_for)

    def _combine_spec(self, device: cl.Device) -> CombineSpec:
        order = order_of(self.profile)
        if order == "blocked":
            return CombineSpec(self.operator, order)
        largest = device.max_work_group_size
        if self.plan.global_copies < _COMBINE_ROWS:
            return CombineSpec(self.operator, order, columns=min(256, largest))
        rows = max(1, min(_COMBINE_ROWS, largest // _COMBINE_COLUMNS))
        rows = 1 << (rows.bit_length() - 1)  # they meet in a tree
        return CombineSpec(self.operator, order, min(_COMBINE_COLUMNS, largest), rows)


def _after(queue: cl.CommandQueue, events: dict[str, cl.Event], wait_for: Sequence[cl.Event]) -> Sequence[cl.Event]:
    """Return what the next command must wait for: nothing more than the first did, if the queue keeps the order."""
    if not events:
        return wait_for
    return [] if _in_order(queue) else [next(reversed(events.values()))]


def _in_order(queue: cl.CommandQueue) -> bool:
    return not queue.properties & cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE


def scratch_allocator(queue: cl.CommandQueue) -> Allocator:
    """Return where the copies of a call on `queue` come from: a pool if it runs in order, for the next call's sake."""
    if not _in_order(queue):
        return ImmediateAllocator(queue)
    with _pools_lock:
        # Kept is the queue too, whose pointer would be used again; and only so many.
        if queue.int_ptr not in _pools:
            _pools[queue.int_ptr] = queue, MemoryPool(ImmediateAllocator(queue))
            while len(_pools) > _MOST_POOLS:
                del _pools[next(iter(_pools))]
        return _pools[queue.int_ptr][1]


def free_scratch() -> None:
    """Give back to the devices the scratch memory that is kept for later calls."""
    with _pools_lock:
        for queue, pool in _pools.values():
            queue.finish()
            pool.free_held()
        _pools.clear()


def _allocate(allocate: Allocator, size: int, plan: Plan) -> Any:
    try:
        return allocate(size)
    except (cl.MemoryError, cl.LogicError) as error:  # too much for the device, or for one buffer
        raise MemoryError(
            f"the device has no {size} bytes for {plan.global_copies} copies of {plan.num_bins} bins; "
            "give copies= or memory_budget= to use fewer copies"
        ) from error
