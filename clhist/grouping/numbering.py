"""Keys of any range as the numbers of their groups, on the device.

Integers close to each other are marked in a table by themselves; all others are put into a hash table of open
addressing, which grows where it is too small. The different keys are sorted, or ordered by their first positions, and
each element looks the number of its key up. Memory beyond the input: 4 bytes an element, and the table.
"""

from __future__ import annotations

import secrets
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl

from clhist.codegen.key_table import BLOCK, NONE, PARAMETERS, KeySpec
from clhist.codegen.render import render_keys
from clhist.engine.extremes import extremes
from clhist.opencl.arrays import Array, empty, is_device_array, operand, to_device
from clhist.opencl.cuda_arrays import NotDirectError, is_cuda
from clhist.opencl.device import device_kind
from clhist.opencl.memory import allocated, scratch_allocator
from clhist.opencl.program import Kernel, build, kept_by_context

MOST_ELEMENTS = NONE
"""Positions and slots are counted in 32 bits."""

# Of the table: slots at first, which stay in the fastest cache, and what it grows by while it is small and later.
_FIRST_BITS, _MOST_BITS = 12, 31
_SMALL_BITS, _FAST, _SLOW = 16, 4, 2
# Marks are used where they are as few as the elements, within these.
_FEWEST_MARKS, _MOST_MARKS = 1 << 16, 1 << 27
_GROUPS, _LANES = 8, 256  # work-groups for each compute unit, and the work-items of one; of a GPU


class Numbering(NamedTuple):
    """Keys as numbers.

    Attributes
    ----------
    numbers : array of int32
        Of each element; -1 where it has no key.
    keys : array
        The different keys, as many as there are groups.
    first : array of int64, optional
        The first position of each of them.
    """

    numbers: Array
    keys: Array
    first: Array | None


def can_number(dtype: np.dtype, device: cl.Device) -> bool:
    """Whether keys of a type can be numbered on a device: 64 bits need a compare-exchange of as many."""
    if dtype.kind not in "iufbmM" or dtype.itemsize not in (1, 2, 4, 8):
        return False
    return dtype.itemsize < 8 or "cl_khr_int64_base_atomics" in device.extensions


def number_keys(
    keys: Array,
    queue: cl.CommandQueue,
    *,
    sort: bool = True,
    first: bool = False,
    missing: bool = False,
    none: int | None = None,
    as_is: bool = False,
    on_host: bool | None = None,
) -> Numbering:
    """Return the keys of an array as numbers.

    Parameters
    ----------
    keys : array
        Contiguous, of one dimension and native byte order, with less than 2**32 - 1 elements. The two zeros are one.
    queue : pyopencl.CommandQueue
        Where kernels run; it is waited for.
    sort : bool
        Whether keys are numbered in their order, rather than in that of their first positions.
    first : bool
        Whether first positions are returned.
    missing : bool
        Whether NaN and NaT are one more key, the last in their order; else elements of them have none.
    none : int, optional
        An integer that is no key either.
    as_is : bool
        Whether `keys` may be returned as the numbers, if they are.
    on_host : bool, optional
        Whether numbers are an array of NumPy. Defaults to whether `keys` is one, as of the other results.

    Raises
    ------
    ValueError
        If there are too many elements.
    MemoryError
        If the device has no room, or there are more than 2**30 different keys.
    """
    if is_cuda(keys):
        raise NotDirectError("keys, which a hash table numbers")
    if keys.size >= MOST_ELEMENTS:
        raise ValueError(f"keys: expected less than {MOST_ELEMENTS} elements, got {keys.size}")
    on_host = not is_device_array(keys) if on_host is None else on_host
    spec = KeySpec(np.dtype(keys.dtype), none, first or not sort)
    found: tuple[Array, Array, Array | None]
    if keys.size:
        found = _Work(spec, keys, queue, sort=sort, missing=missing, as_is=as_is, on_host=on_host).run()
    else:
        numbers = empty(queue, (0,), np.dtype(np.int32), not on_host)
        found = numbers, np.empty(0, keys.dtype), np.empty(0, np.int64)
    numbers, *others = found
    if is_device_array(keys):
        others = [each if each is None else to_device(queue, each) for each in others]
    labels, positions = others
    return Numbering(numbers, labels, positions if first else None)


class _Work:
    """One numbering: kernels that follow each other on a queue."""

    def __init__(
        self,
        spec: KeySpec,
        keys: Array,
        queue: cl.CommandQueue,
        *,
        sort: bool,
        missing: bool,
        as_is: bool,
        on_host: bool,
    ) -> None:
        self.spec, self.queue = spec, queue
        self._sort, self._missing, self._as_is = sort, missing, as_is
        self.keys, self.size = keys, keys.size
        self._allocate = scratch_allocator(queue)
        self._kernels = _kernels(queue.context, spec)
        cpu = device_kind(queue.device) == "cpu"
        self._groups = queue.device.max_compute_units * _GROUPS
        self._lanes = 1 if cpu else min(_LANES, queue.device.max_work_group_size)
        self._read = operand(keys, queue, written=False)
        self._on_host = on_host
        self._events = list(keys.events) if is_device_array(keys) else []

    def run(self) -> tuple[Array, Array, Array | None]:
        """Return the numbers of the elements, the keys in their order, and the first positions."""
        extent = self._extent()
        keys, positions = self._by_marks(*extent) if extent is not None else self._by_table()
        if self.numbers is not self.keys and not self._on_host:
            self.numbers.add_event(self._events[0])
        elif self.numbers is not self.keys:
            self._events[0].wait()
            self._written.retrieve()
        return self.numbers, keys, positions

    def _extent(self) -> tuple[int, int] | None:
        """Return the least word and how many there are up to the largest, where marks are enough."""
        if self.spec.dtype.kind not in "iub":
            return None
        if self.spec.dtype.kind == "b":
            return 0, 2
        largest, least = extremes(self.keys, self.queue)
        number = largest - least + 1
        if number > max(_FEWEST_MARKS, min(_MOST_MARKS, self.size)):
            return None
        return int(self.spec.words_of(np.array([least], self.spec.dtype))[0]), number

    def _by_marks(self, least: int, number: int) -> tuple[Array, Array | None]:
        marks, first = self._filled(number, np.uint8, 0), self._filled(number, np.uint32, NONE, only=self.spec.first)
        self._enqueue("mark", self.size, *self._data(), least, marks, first)
        marked = self._fetched(marks, number, np.uint8)
        if self._as_is and marked.all() and int(self.spec.words_of(np.zeros(1, self.spec.dtype))[0]) == least:
            self.numbers = self.keys
            return np.arange(number, dtype=np.int64).astype(self.spec.dtype), None
        found = np.flatnonzero(marked)
        positions = self._fetched(first, number, np.uint32)[found].astype(np.int64) if self.spec.first else None
        if not self._sort and positions is not None:
            order = np.argsort(positions)
            found, positions = found[order], positions[order]
        ranks = np.zeros(number, np.uint32)
        ranks[found] = np.arange(len(found), dtype=np.uint32)
        self._enqueue("look_up", self.size, *self._data(), least, self._sent(ranks), self._new_numbers())
        words = (found.astype(np.uint64) + np.uint64(least)).astype(self.spec.word)
        return self.spec.keys_of_words(words), positions

    def _by_table(self) -> tuple[Array, Array | None]:
        word, bits, numbers = self.spec.word, _FIRST_BITS, self._new_numbers()
        while True:
            slots = 1 << bits
            table, state = self._filled(slots, word, -1), self._filled(4, np.uint32, 0)
            first = self._filled(slots + 2, np.uint32, NONE, only=self.spec.first)
            given = (table, slots - 1, slots // 2, secrets.randbits(64), state, numbers, first)
            self._enqueue("insert", self.size, *self._data(), *given)
            added, is_full, has_ones, has_missing = self._fetched(state, 4, np.uint32).tolist()
            if not is_full:
                break
            if bits == _MOST_BITS:
                raise MemoryError(f"keys: expected at most {slots // 2} different ones, got more")
            bits = min(_MOST_BITS, bits + (_FAST if bits < _SMALL_BITS else _SLOW))
        number = added + has_ones
        words, places = self._new(max(1, number), word), self._new(max(1, number), np.uint32)
        self._enqueue("gather", slots + 1, table, slots, state, self._filled(1, np.uint32, 0), words, places)
        found, at = self._fetched(words, number, word), self._fetched(places, number, np.uint32)
        order, keys = np.argsort(found), self.spec.keys_of_words(found)
        if self._missing and has_missing:
            at, keys = np.append(at, np.uint32(slots + 1)), np.append(keys, self.spec.missing).astype(keys.dtype)
            order, number, places = np.append(order, number), number + 1, self._sent(at)
        positions = self._fetched(first, slots + 2, np.uint32)[at].astype(np.int64) if self.spec.first else None
        if not self._sort and positions is not None:
            order = np.argsort(positions)
        ranks = self._filled(slots + 2, np.uint32, NONE)
        if number:
            self._enqueue("rank", number, self._sent(order.astype(np.uint32)), places, number, ranks)
        self._enqueue("number", self.size, numbers, self.size, ranks)
        return keys[order], None if positions is None else positions[order]

    def _new_numbers(self) -> Any:
        """Return the memory of the numbers, which are made now."""
        self.numbers = empty(self.queue, (self.size,), np.dtype(np.int32), not self._on_host)
        self._written = operand(self.numbers, self.queue, written=True, read=False)
        return self._written.buffer

    def _data(self) -> tuple[Any, ...]:
        return self._read.buffer, self._read.offset, self.size

    def _enqueue(self, name: str, elements: int, *arguments: Any) -> None:
        groups = max(1, min(self._groups, -(-elements // BLOCK)))
        kernel = self._kernels[name]
        given = kernel.typed(list(arguments))
        self._events = [kernel.enqueue(self.queue, (groups * self._lanes,), (self._lanes,), given, self._events)]

    def _new(self, number: int, dtype: Any) -> Any:
        return allocated(self._allocate, number * np.dtype(dtype).itemsize, "to number keys")

    def _filled(self, number: int, dtype: Any, value: int, *, only: bool = True) -> Any:
        """Return memory filled with a value; hardly any where it is not used."""
        number = number if only else 1
        dtype = np.dtype(dtype)
        found = self._new(number, dtype)
        pattern = np.array([value % 2 ** (8 * dtype.itemsize)], dtype)
        size = number * dtype.itemsize
        self._events = [cl.enqueue_fill_buffer(self.queue, found, pattern, 0, size, self._events)]
        return found

    def _sent(self, array: np.ndarray) -> Any:
        found = self._new(array.size, array.dtype)
        cl.enqueue_copy(self.queue, found, array, wait_for=self._events)
        return found

    def _fetched(self, memory: Any, number: int, dtype: Any) -> np.ndarray:
        found = np.empty(number, dtype)
        cl.enqueue_copy(self.queue, found, memory, wait_for=self._events)
        return found


@kept_by_context
def _kernels(context: cl.Context, spec: KeySpec) -> dict[str, Kernel]:
    program = build(context, render_keys(spec))
    return {name: Kernel(program, f"clhist_{name}", parameters) for name, parameters in PARAMETERS.items()}
