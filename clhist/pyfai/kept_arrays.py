"""Arrays of a geometry that stay on a device from frame to frame."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from functools import partial
from typing import Any

import numpy as np
import pyopencl.array as cl_array

from clhist._core.spi import default_queue
from clhist.pyfai.frames import extent, flattened

_OF_FRAMES = ("raw", "variance")
_MOST = 32


class KeptArrays:
    """Copies of NumPy arrays on the default device, as long as the caller has these.

    Those that are the same objects as before are not sent again; `raw` and `variance` are of a frame, and always are.

    Examples
    --------
    >>> from clhist.pyfai import KeptArrays, histogram1d_engine
    >>> radial, frame = np.array([[0, 1], [2, 3]]), np.array([[1, 2], [4, 3]], np.float32)
    >>> kept = KeptArrays()
    >>> result = histogram1d_engine(radial, 2, frame, kept=kept)
    >>> len(kept)
    1
    """

    def __init__(self) -> None:
        self._found: OrderedDict[int, tuple[weakref.ref, cl_array.Array]] = OrderedDict()
        # Of positions and masks that are alive, by their numbers.
        self._ranges: dict[int, tuple[weakref.ref | None, tuple[float, float]]] = {}
        # Reentrant: an array may be freed, and so removed by its callback, while the lock is held.
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._found)

    def all_of(self, arrays: dict[str, Any]) -> dict[str, Any]:
        """Return the arrays of a call by their names, with copies on the device of those that stay."""
        return {
            name: array if name in _OF_FRAMES or type(array) is not np.ndarray else self._kept(name, array)[1]
            for name, array in arrays.items()
        }

    def range_of(self, name: str, positions: Any, ends: Any, mask: Any = None) -> Any:
        """Return the ends of an axis, or those of positions that are not masked."""
        is_none = mask is None or mask is False
        if ends is not None or type(positions) is not np.ndarray or not (is_none or type(mask) is np.ndarray):
            return ends
        with self._lock:
            self._kept(name, positions)
            of_mask, limits = self._ranges.get(id(positions), (None, None))
            # The range depends on the mask: another mask, or none, needs another one.
            if limits is None or (of_mask is not None if is_none else of_mask is None or of_mask() is not mask):
                limits = extent(positions, mask)
                self._ranges[id(positions)] = None if is_none else weakref.ref(mask), limits
        return limits

    def _kept(self, name: str, array: np.ndarray) -> tuple[weakref.ref, cl_array.Array]:
        queue = default_queue()
        with self._lock:
            entry = self._found.get(id(array))
            # Python reuses ids of freed arrays: an entry counts only if its array is still the same object.
            if entry is None or entry[0]() is not array or entry[1].context != queue.context:
                copy = cl_array.to_device(queue, flattened(name, array))
                # The event of the copy would keep the array alive.
                copy.finish()
                entry = weakref.ref(array, partial(self._forget, id(array))), copy
                self._found[id(array)] = entry
                self._ranges.pop(id(array), None)
            self._found.move_to_end(id(array))
            # The first entries are those that were not used for the longest time.
            while len(self._found) > _MOST:
                self._ranges.pop(self._found.popitem(last=False)[0], None)
        return entry

    def _forget(self, key: int, reference: weakref.ref) -> None:
        with self._lock:
            # The id may belong to a newer array by now, whose entry stays.
            if key in self._found and self._found[key][0] is reference:
                del self._found[key]
                self._ranges.pop(key, None)
