"""Memory of results that are gone, let go of many at a time."""

from __future__ import annotations

import threading
from typing import Any


class _Held:
    """Buffers of results, held a while after their arrays are gone and let go many at a time.

    To free memory on a GPU is to wait for all that it has to do: 60 us a call that otherwise waits for nothing.
    """

    most, most_bytes = 64, 256 * 2**20

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._buffers: list[Any] = []
        self._bytes = 0

    def add(self, buffer: Any, size: int) -> None:
        if size > self.most_bytes // 4:
            return
        with self._lock:
            self._buffers.append(buffer)
            self._bytes += size
            full = len(self._buffers) >= self.most or self._bytes > self.most_bytes
        if full:
            self.release()

    def release(self) -> bool:
        """Let go of all; return whether there were any."""
        with self._lock:
            found, self._buffers, self._bytes = self._buffers, [], 0
        return bool(found)


held_results = _Held()
