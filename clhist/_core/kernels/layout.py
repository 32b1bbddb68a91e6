"""Layout of arrays in scratch memory and in local memory, and order and width in which kernels count. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from clhist._core.devices.profile import Profile
from clhist._core.model.plan import Output, Plan
from clhist._core.model.workload import ALIGNMENT, LOCK_BYTES, NARROW_BINS, NARROW_ELEMENTS

_ALIGNMENT = 128  # bytes: where each array begins in the scratch memory


def order_of(profile: Profile) -> str:
    """Return the order in which the work-items of a device go through the input."""
    return "blocked" if profile.kind == "cpu" else "interleaved"


def is_wide(plan: Plan) -> bool:
    """Whether a kernel for `plan` counts elements and bins in 64 bits."""
    return plan.num_elements > NARROW_ELEMENTS or max(plan.bins) > NARROW_BINS


def scratch_layout(outputs: Sequence[Output], plan: Plan, copies: int) -> tuple[dict[str, int], int]:
    """Return the layout of scratch memory with `copies` copies of all bins, and its size in bytes.

    The layout maps the kernels' parameters to offsets of cells and locks, in bytes, and to numbers of locks.
    """
    places, size, n = {}, 0, 0
    for output, bins in zip(outputs, plan.copy_bins, strict=True):
        cells = copies * bins
        for part, update in zip(output.operator.parts, output.updates, strict=True):
            # Locks of local copies are in local memory: only those of copies in global memory are placed here.
            locks = 0
            if plan.memory == "global" and update == "lock":
                locks = cells if plan.locks is None else min(cells, plan.locks)
            for name, needed in (("place", cells * part.cell_bytes), ("lock_place", locks * LOCK_BYTES)):
                place = -(-size // _ALIGNMENT) * _ALIGNMENT
                places[f"clhist_{name}{n}"] = place
                size = place + needed if needed else size
            places[f"clhist_num_locks{n}"] = locks
            n += 1
    return places, size


def local_capacity(outputs: Sequence[Output], plan: Plan, profile: Profile) -> int:
    """Return the bytes of the local array: a quarter, a half or all of local memory, so that few kernels are built."""
    if plan.memory == "global":
        return 0
    most = profile.local_memory // ALIGNMENT * ALIGNMENT
    if plan.fills_local_memory:
        return most
    # The same sum as in `local_memory.arrays_in_pool`: cells of all parts, locks, then the strategy's bytes.
    end = locks = 0
    for output, bins in zip(outputs, plan.chunks(), strict=True):
        cells = bins * plan.copies * plan.teams
        for part, update in zip(output.operator.parts, output.updates, strict=True):
            end = -(-end // ALIGNMENT) * ALIGNMENT + cells * part.cell_bytes
            locks += (cells if plan.locks is None else min(cells, plan.locks)) * (update == "lock")
    end = -(-end // LOCK_BYTES) * LOCK_BYTES + LOCK_BYTES * locks
    if plan.more_local_bytes:
        end = -(-end // ALIGNMENT) * ALIGNMENT + plan.more_local_bytes
    # Sweeps over partitions use its last words, so its size is a multiple of a word.
    sizes = (most // parts // ALIGNMENT * ALIGNMENT for parts in (4, 2, 1))
    return next((size for size in sizes if size >= end), -(-end // LOCK_BYTES) * LOCK_BYTES)
