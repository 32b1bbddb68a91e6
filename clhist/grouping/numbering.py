"""Keys of any range as the numbers of their groups, on the device.

Integers close to each other are marked in a table by themselves; all others are put into a hash table of open
addressing, which grows where it is too small. The different keys are sorted by their digits, or ordered by their first
positions. Then each element looks the number of its key up. Memory beyond the input: 4 bytes an element, and the table.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from math import ceil, expm1, log2
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl

from clhist.codegen.key_table import BLOCK, EACH, LANES, NONE, KeySpec, key_parameters
from clhist.codegen.render import render_keys
from clhist.engine.digit_sort import sorted_by_digits
from clhist.engine.extremes import extremes
from clhist.opencl.arrays import Array, empty, is_device_array
from clhist.opencl.cuda_arrays import NotDirectError, is_cuda
from clhist.opencl.device import device_kind
from clhist.opencl.lost import fetched
from clhist.opencl.memory import allocated, scratch_allocator
from clhist.opencl.operands import Operand, operand
from clhist.opencl.program import Kernel, build, kept_by_context

MOST_ELEMENTS = NONE
"""Positions and slots are counted in 32 bits."""

# Of some elements, this part of all within these numbers, the different keys are counted to know how large a table is
# needed, with room for more keys than that says. One that is too small grows so much at least, less if it is large.
_PART, _FEWEST_SOME, _MOST_SOME = 4, 1 << 12, 1 << 16
_SPARE, _GROWTH_BITS, _LARGE_BITS, _MOST_BITS = 1.2, (4, 2), 22, 31
_TOLD = 64  # keys that a work-group adds before it says so, at most
# Marks are used where they are as few as the elements, within these. Keys too far apart mostly are so at the ends.
_FEWEST_MARKS, _MOST_MARKS, _ENDS = 1 << 16, 1 << 27, 256
_GROUPS = 8  # work-groups for each compute unit

_NONE = np.array([NONE], np.uint32)


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
        Whether `keys` may be returned as the numbers, if they are; `keys` of the result is an array of NumPy then.
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
    if not keys.size:
        places = is_device_array(keys)
        numbers, labels, positions = (
            empty(queue, (0,), np.dtype(dtype), on_device)
            for dtype, on_device in ((np.int32, not on_host), (keys.dtype, places), (np.int64, places))
        )
        return Numbering(numbers, labels, positions if first else None)
    work = _Work(spec, keys, queue, sort=sort, missing=missing, as_is=as_is, on_host=on_host)
    numbers, labels, positions = work.run()
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
        self.queue = queue
        self._sort, self._missing, self._as_is = sort, missing, as_is
        self.keys, self.size = keys, keys.size
        self._allocate = scratch_allocator(queue)
        self.spec = spec
        self._groups = queue.device.max_compute_units * _GROUPS
        self._lanes = 1 if device_kind(queue.device) == "cpu" else min(LANES, queue.device.max_work_group_size)
        self._on_device, self._keys_on_device = not on_host, is_device_array(keys)
        self._events = list(keys.events) if self._keys_on_device else []
        self._written: list[tuple[Array, Operand]] = []  # what the caller gets

    def run(self) -> tuple[Array, Array, Array | None]:
        """Return the numbers of the elements, the keys in their order, and the first positions."""
        if (extent := self._extent()) is not None:
            self.spec = replace(self.spec, marked=True)
            self._by_marks(*extent)
        else:
            self._by_table()
        for array, operand_ in self._written:
            if is_device_array(array):
                for event in self._events:
                    array.add_event(event)
            else:
                cl.wait_for_events(self._events)
                operand_.retrieve()
        return self.numbers, self._labels, self._positions

    def _extent(self) -> tuple[int, int] | None:
        """Return the least word and how many there are up to the largest, where marks are enough."""
        if self.spec.dtype.kind not in "iub":
            return None
        if self.spec.dtype.kind == "b":
            return 0, 2
        most = max(_FEWEST_MARKS, min(_MOST_MARKS, self.size))
        ends = [self.keys[:_ENDS], self.keys[-_ENDS:]] if self.size > 2 * _ENDS else []
        if ends:
            some = np.concatenate([fetched(each, self.queue) if self._keys_on_device else each for each in ends])
            if int(some.max()) - int(some.min()) >= most:
                return None
        largest, least = extremes(self.keys, self.queue)
        if largest - least >= most:
            return None
        return int(self.spec.words_of(np.array([least], self.spec.dtype))[0]), largest - least + 1

    def _by_marks(self, least: int, slots: int) -> None:
        marks, first = self._filled(slots, np.uint8, 0), self._filled(slots, np.uint32, NONE, only=self.spec.first)
        self._read = operand(self.keys, self.queue, written=False)
        self._enqueue("mark", self._groups_of(self.size), *self._data(), least, marks, first)
        state = self._filled(1, np.uint32, 0)
        listed = self._tallied(marks, slots, least, state)
        number = int(self._fetched(state, 1, np.uint32)[0])
        if self._as_is and number == slots and int(self.spec.words_of(np.zeros(1, self.spec.dtype))[0]) == least:
            self.numbers, self._positions = self.keys, None
            self._labels = np.arange(number, dtype=np.int64).astype(self.spec.dtype)
            return
        ranks = self._rank(number, slots, marks, least, *self._ordered(number, *listed, first), first)
        self.numbers, numbers = self._new_array(self.size, np.dtype(np.int32), self._on_device)
        self._enqueue("look_up", self._groups_of(self.size), *self._data(), least, ranks, numbers)

    def _by_table(self) -> None:
        self._read = operand(self.keys, self.queue, written=False)
        self.numbers, numbers = self._new_array(self.size, np.dtype(np.int32), self._on_device)
        groups, some = self._groups_of(self.size), min(self.size // _PART, _MOST_SOME)
        size, stride = (some, self.size // some) if some >= _FEWEST_SOME else (self.size, 1)
        bits = min(_MOST_BITS, _bits_of(size))
        while True:
            slots = 1 << bits
            most, state = slots // 2, self._filled(5, np.uint32, 0)
            table = self._filled(slots, self.spec.word, -1)
            first = self._filled(slots + 2, np.uint32, NONE, only=self.spec.first)
            told = min(_TOLD, max(1, most // groups))
            given = (size, stride, table, slots - 1, most, told, secrets.randbits(64), state, numbers, first)
            self._enqueue("insert", groups, *self._data()[:2], *given)
            added, is_full, has_ones, has_missing, seen = self._fetched(state, 5, np.uint32).tolist()
            if not is_full and size == self.size:
                break
            needed = _bits_of(_SPARE * _different(added, seen, self.size))
            if is_full:
                if bits == _MOST_BITS:
                    raise MemoryError(f"keys: expected at most {most} different ones, got more")
                needed = max(needed, bits + _GROWTH_BITS[bits >= _LARGE_BITS])
            bits, size, stride = min(_MOST_BITS, needed, _bits_of(self.size)), self.size, 1
        has_missing = int(self._missing and has_missing)
        listed = self._tallied(table, slots + 1 + has_missing, slots, state)
        number = added + has_ones + has_missing
        ordered = self._ordered(number, *listed, first)
        ranks = self._rank(number, slots + 2, table, slots, *ordered, first)
        self._enqueue("number", groups, numbers, self.size, ranks)

    def _tallied(self, table: Any, slots: int, least: int, state: Any) -> tuple[Any, ...]:
        """Count the keys of shares of the slots; return what the kernel that lists them takes first."""
        tile = self._lanes * EACH
        share = tile * max(1, -(-slots // (tile * self._groups)))
        self._shares, tallies = -(-slots // share), self._new(self._groups, np.uint32)
        self._enqueue("tally", self._shares, table, slots, share, least, state, tallies)
        return table, slots, share, least, state, tallies

    def _ordered(self, number: int, *listed: Any) -> tuple[Any, int, Any]:
        """Return the words of the keys in their order, whether they are, and the slots."""
        sorts, places = self._new(max(1, number), self.spec.word), self._new(max(1, number), np.uint32)
        self._enqueue("list", self._shares, *listed, int(not self._sort), sorts, places)
        if number < 2 or (self._sort and self.spec.marked):
            return sorts, int(self._sort), places
        bits = 8 * self.spec.word.itemsize if self._sort else 32
        sorts, places, self._events = sorted_by_digits(
            self.queue, sorts, places, number, self.spec.word, bits, self._allocate, self._events
        )
        return sorts, int(self._sort), places

    def _rank(
        self, number: int, slots: int, table: Any, least: int, sorts: Any, by_words: int, places: Any, first: Any
    ) -> Any:
        """Return the numbers of the slots; make the results of the keys."""
        self._labels, labels = self._new_array(number, self.spec.dtype, self._keys_on_device)
        self._positions, positions = None, None
        if self.spec.first:
            self._positions, positions = self._new_array(number, np.dtype(np.int64), self._keys_on_device)
        ranks = self._new(slots, np.uint32)
        if not self.spec.marked:  # elements without a key have the last slot
            self._events = [cl.enqueue_fill_buffer(self.queue, ranks, _NONE, 4 * (slots - 1), 4, self._events)]
        if number:
            groups = self._groups_of(number)
            self._enqueue(
                "rank", groups, table, least, sorts, by_words, places, number, first, ranks, labels, positions
            )
        return ranks

    def _new_array(self, size: int, dtype: np.dtype, on_device: bool) -> tuple[Array, Any]:
        """Return an array for the caller, which a kernel writes, and its memory."""
        array = empty(self.queue, (size,), dtype, on_device)
        found = operand(array, self.queue, written=True, read=False)
        self._written.append((array, found))
        return array, found.buffer

    def _data(self) -> tuple[Any, ...]:
        return self._read.buffer, self._read.offset, self.size

    def _groups_of(self, elements: int) -> int:
        return max(1, min(self._groups, -(-elements // BLOCK)))

    def _enqueue(self, name: str, groups: int, *arguments: Any) -> None:
        kernel = _kernels(self.queue.context, self.spec)[name]
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

    def _fetched(self, memory: Any, number: int, dtype: Any) -> np.ndarray:
        found = np.empty(number, dtype)
        cl.enqueue_copy(self.queue, found, memory, wait_for=self._events)
        return found


def _different(added: int, seen: int, size: int) -> float:
    """Return how many different keys there are, of which `seen` elements have had `added`, if all are as frequent."""
    added = max(1, added)
    least, most = float(added), float(max(size, added))
    for _ in range(30):
        middle = (least * most) ** 0.5
        least, most = (middle, most) if -expm1(-seen / middle) * middle < added else (least, middle)
    return most


def _bits_of(keys: float) -> int:
    """Return the bits of the number of slots for so many keys."""
    return max(1, ceil(log2(2 * keys)))


@kept_by_context
def _kernels(context: cl.Context, spec: KeySpec) -> dict[str, Kernel]:
    program = build(context, render_keys(spec))
    return {name: Kernel(program, f"clhist_{name}", parameters) for name, parameters in key_parameters(spec).items()}
