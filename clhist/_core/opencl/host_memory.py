"""Memory of large results in NumPy arrays, kept when they are gone: the system clears new pages one by one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

# Bytes; glibc returns blocks from this size on to the system. Bin numbers of 100,000 elements take 0.32 ms, and 0.40 ms
# in new memory; on an EPYC of Zen 4.
LEAST_KEPT = 2**17
_MOST_BLOCKS = 64  # idle, which are searched one by one
_MOST_IDLE_BYTES, _SHARE = 2**29, 16  # and at most one part in so many of the memory that this process may have
_LIMITS = "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"  # of a container
_STEPS = 8  # sizes between two powers of two, so that blocks suit results of nearly the same size


def most_idle_bytes() -> int:
    """Return how many bytes are kept at most: few in a container that has little memory."""
    limits = [_SHARE * _MOST_IDLE_BYTES]
    for name in _LIMITS:
        try:
            limits.append(int(Path(name).read_text()))
        except (OSError, ValueError):  # of another system, or "max"
            continue
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(size for size in limits if size > 0) // _SHARE


class _Lent:
    """A block that an array has, until the array and all of its views are gone."""

    _block: np.ndarray | None = None  # of one that was never made

    def __init__(self, blocks: HostMemory, block: np.ndarray) -> None:
        self._blocks, self._block = blocks, block
        self.__array_interface__: dict[str, Any] = block.__array_interface__

    def __del__(self) -> None:
        if self._block is not None:
            self._blocks.give(self._block)


class HostMemory:
    """Blocks of host memory that nobody has at present, at most so many bytes.

    An array may go in any thread, in the midst of any line, even of these: without a lock, each step is one operation
    on a dictionary.
    """

    def __init__(self, most_idle: int | None = None) -> None:
        self._most_idle = most_idle_bytes() if most_idle is None else most_idle
        self._idle: dict[int, np.ndarray] = {}

    @property
    def idle_bytes(self) -> int:
        """Bytes that are kept for later results."""
        return sum(block.nbytes for block in list(self._idle.values()))

    def new(self, size: int) -> np.ndarray:
        """Return at least `size` bytes, with whatever they hold; raise MemoryError if there are none."""
        # Sizes are rounded up to one of eight steps between two powers of two, at most an eighth more than needed.
        step = 1 << max(0, size.bit_length() - _STEPS.bit_length())
        wanted = -(-size // step) * step
        for key, block in list(self._idle.items()):
            # Another thread may have taken the block since the list was copied: only one of them pops it.
            if block.nbytes == wanted and self._idle.pop(key, None) is not None:
                return np.asarray(_Lent(self, block))
        return np.asarray(_Lent(self, self._from_system(wanted)))

    def give(self, block: np.ndarray) -> None:
        """Keep a block for a later result, in the place of those that have waited longest if they are too many."""
        if block.nbytes > self._most_idle:
            return
        self._idle[id(block)] = block
        # A dictionary keeps the order of insertion: the oldest blocks come first.
        for key in list(self._idle):
            if len(self._idle) <= _MOST_BLOCKS and self.idle_bytes <= self._most_idle:
                return
            self._idle.pop(key, None)

    def free(self) -> None:
        """Let go of all."""
        for key in list(self._idle):
            self._idle.pop(key, None)

    def _from_system(self, size: int) -> np.ndarray:
        try:
            return np.empty(size, np.uint8)
        except MemoryError:
            # Blocks that wait for a later result are the only memory that can be given back here.
            self.free()
            return np.empty(size, np.uint8)


host_memory = HostMemory()


def converted(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return a contiguous array of one dimension as one of `dtype`, in memory that is kept if it is large."""
    size = array.size * dtype.itemsize
    if array.dtype == dtype or size < LEAST_KEPT:
        return array.astype(dtype, copy=False)
    result: np.ndarray = host_memory.new(size)[:size].view(dtype)
    result[...] = array
    return result
