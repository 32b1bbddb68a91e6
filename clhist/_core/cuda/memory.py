"""Memory of CUDA that belongs to none of its libraries: tables and words that many calls read.

To free memory waits for all that the device has to do, and to allocate it takes 60 us. So what is small is a part of a
larger block, which is used again once all of its parts are gone.
"""

from __future__ import annotations

import threading
import weakref
from contextlib import suppress

from clhist._core.cuda.driver import CudaError, driver

# Larger allocations than a quarter of a block get memory of their own; parts are aligned as cuMemAlloc aligns.
_BLOCK_BYTES, _MOST_BYTES, _ALIGNMENT = 1 << 16, 1 << 14, 256


class _Block:
    """A block of memory for small allocations: the bytes in use, and the number of live parts."""

    __slots__ = ("address", "parts", "used")

    def __init__(self, address: int) -> None:
        self.address, self.used, self.parts = address, 0, 0


class _Blocks:
    """The blocks of one device, which live as long as the process."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a part may go while another is made: by the collection of garbage
        self._current: _Block | None = None
        self._unused: list[_Block] = []

    def part(self, size: int) -> tuple[int, _Block]:
        """Return the address of so many bytes on the device that calls go to, and their block."""
        with self._lock:
            # The rest of a block stays unused until all of its parts are gone.
            if self._current is None or self._current.used + size > _BLOCK_BYTES:
                self._current = self._next()
            block = self._current
            address = block.address + block.used
            block.used += -(-size // _ALIGNMENT) * _ALIGNMENT
            block.parts += 1
            return address, block

    def _next(self) -> _Block:
        # From here on `release` returns the old block itself, once its last part goes.
        before, self._current = self._current, None
        if before is not None and not before.parts:
            self._unused.append(before)
        if not self._unused:
            return _Block(driver().allocate(_BLOCK_BYTES))
        driver().wait_for_all()  # kernels may still read parts that were released
        block = self._unused.pop()
        block.used = 0
        return block

    def release(self, block: _Block) -> None:
        with self._lock:
            block.parts -= 1
            if not block.parts and block is not self._current:
                self._unused.append(block)

    def free(self) -> None:
        """Free the blocks without a live part."""
        with self._lock:
            if self._current is not None and not self._current.parts:
                block, self._current = self._current, None  # first: it must not be in both places
                self._unused.append(block)
            while self._unused:
                driver().free(self._unused.pop().address)


def free_unused() -> None:
    """Free the blocks of all devices that have no live part."""
    for device, blocks in list(_blocks.items()):
        with suppress(CudaError), driver().on(device):
            blocks.free()


_blocks: dict[int, _Blocks] = {}


class Allocation:
    """Memory of a device, at least one byte; freed with this object."""

    def __init__(self, device: int, size: int) -> None:
        with driver().on(device):
            if size > _MOST_BYTES:
                self.address = driver().allocate(size)
                weakref.finalize(self, _freed, device, self.address)
                return
            # `setdefault` is one operation: two threads get the same blocks.
            blocks = _blocks.setdefault(device, _Blocks())
            self.address, block = blocks.part(max(1, size))
        weakref.finalize(self, blocks.release, block)


def _freed(device: int, address: int) -> None:
    with suppress(CudaError), driver().on(device):  # at the end of the process it may be gone
        driver().free(address)
