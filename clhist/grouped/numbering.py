"""Keys of any range as the numbers of their groups, on the device.

Integers close to each other are marked in a table by themselves. A GPU numbers others as a sample of them says; see
`clhist.grouped.sampled_keys`. All that is left, and those of CPUs, are put into a hash table of open addressing, which
grows where it is too small; the different keys are sorted by their digits, or ordered by their first positions, and
each element looks the number of its key up. Memory beyond the input: 4 bytes an element, and the table; by ranges 17
to 25 bytes an element where keys have 64 bits, and 13 to 17 where they have 32.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from math import ceil, log2
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl

from clhist._core.kernels.key_table import BLOCK, EACH, LANES, NONE, KeySpec
from clhist._core.kernels.render import render_keys
from clhist._core.opencl.arrays import Array, is_device_array
from clhist._core.opencl.cuda_kinds import is_cuda
from clhist._core.opencl.device import claims, device_kind
from clhist._core.opencl.new_arrays import empty
from clhist._core.opencl.program import Kernel, kept_by_context, kernels_of
from clhist._core.runtime.chain import Chain, chain_on
from clhist._core.runtime.digit_sort import sorted_by_digits
from clhist._core.runtime.extremes import extremes
from clhist.grouped.keys import Numbering
from clhist.grouped.sampled_keys import FEWEST, LOCAL_MEMORY, Known, Sample, SampledKeys, different

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


def can_number(dtype: np.dtype, device: cl.Device) -> bool:
    """Whether keys of a type can be numbered on a device: 64 bits need a compare-exchange of as many."""
    if dtype.kind not in "iufbmM" or dtype.itemsize not in (1, 2, 4, 8):
        return False
    return dtype.itemsize < 8 or claims(device, "int64_base_atomics")


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
        keys.check_not_captured()
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


class _Table(NamedTuple):
    """A hash table in which keys are: its slots and what kernels that put keys there need, in their order."""

    slots: int
    given: tuple[Any, ...]
    state: Any
    first: Any

    @property
    def words(self) -> Any:
        return self.given[0]


class _Work:
    """One numbering: kernels that follow each other on a device."""

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
        chain: Chain | None = None,
    ) -> None:
        self.queue, self.spec = queue, spec
        self._sort, self._missing, self._as_is = sort, missing, as_is
        self.keys, self.size = keys, keys.size
        units, most, self._room = _limits(queue.context)
        self._groups, self._lanes = units * _GROUPS, 1 if device_kind(queue.device) == "cpu" else min(LANES, most)
        self._on_device, self.keys_on_device = not on_host, is_device_array(keys)
        self._chain = chain or chain_on(queue, "to number keys")
        self._given, self.memory = self._chain.place(keys), None
        self._positions: Array | None = None

    def run(self) -> tuple[Array, Array, Array | None]:
        """Return the numbers of the elements, the keys in their order, and the first positions."""
        is_small = self.size < FEWEST or self.spec.dtype.itemsize < 4
        samples = None if self._lanes == 1 or is_small or self._room < LOCAL_MEMORY else self._samples()
        sample = None if samples is None else samples.look(lambda: None if self._as_is else self._make_numbers())
        if (extent := self._extent(sample)) is not None:
            self.by_marks(*extent)
        elif samples is None or sample is None or not self._by_sample(samples, sample):
            self._by_table(None if sample is None else sample.expected)
        self._chain.finish()
        return self.numbers, self.labels, self._positions

    def _make_numbers(self) -> None:
        if self.memory is None:
            self.numbers, self.memory = self._chain.result(self.size, np.int32, self._on_device)

    def _samples(self) -> SampledKeys:
        more = {"missing": self._missing, "by_slots": not self._sort}
        return SampledKeys(self._chain, self.spec, self._given, self.size, **more)

    def _extent(self, sample: Sample | None) -> tuple[int, int] | None:
        """Return the least key and how many there are up to the largest, where marks are enough."""
        if self.spec.dtype.kind not in "iub":
            return None
        if self.spec.dtype.kind == "b":
            return 0, 2
        most = max(_FEWEST_MARKS, min(_MOST_MARKS, self.size))
        if sample is not None:
            if sample.greatest - sample.least >= most:
                return None
        elif self.size > 2 * _ENDS:
            some = self._ends()
            if int(some.max()) - int(some.min()) >= most:
                return None
        largest, least = extremes(self.keys, self.queue)
        return None if largest - least >= most else (least, largest - least + 1)

    def _ends(self) -> np.ndarray:
        if not self.keys_on_device:
            return np.append(self.keys[:_ENDS], self.keys[-_ENDS:])
        memory, offset = self._given
        step = (self.size - _ENDS) * self.spec.dtype.itemsize
        return self._chain.fetched_rows(memory, (2, _ENDS), self.spec.dtype, offset, step)

    def by_marks(self, least_key: int, slots: int) -> None:
        self.spec = replace(self.spec, marked=True)
        least = int(self.spec.words_of(np.array([least_key], self.spec.dtype))[0])
        marks, first = self._chain.filled(slots, np.uint8, 0), self._firsts(slots)
        self._enqueue("mark", self._groups_of(self.size), *self._given, self.size, least, marks, first)
        state = self._chain.filled(1, np.uint32, 0)
        listed = self._tallied(marks, slots, least, state)
        number = int(self._chain.fetched(state, 1, np.uint32)[0])
        if self._as_is and number == slots and not least_key:
            self.numbers, self._positions = self.keys, None
            self.labels = np.arange(number, dtype=np.int64).astype(self.spec.dtype)
            return
        ranks = self._rank(number, slots, marks, least, self._ordered(number, listed, first), first)
        self._make_numbers()
        self._enqueue("look_up", self._groups_of(self.size), *self._given, self.size, least, ranks, self.memory)

    def _by_sample(self, samples: SampledKeys, sample: Sample) -> bool:
        """Number the elements as a sample says; return whether that was possible."""
        self._make_numbers()
        number = sample.number
        while (known := samples.find(sample, self.memory, number)) is not None:
            if self._sort:
                ordered = known.words, known.slots
                self._rank(known.groups, known.number + 2, known.words, known.number, ordered, known.first)
            if (found := samples.known()) is None:
                break
            if found.number == number:
                if not self._sort:
                    ranks = self._ranks_of_known(known)
                    self._enqueue("number", self._groups_of(self.size), self.memory, self.size, ranks)
                return True
            number = found.number  # with those that the sample had not
        try:
            if not samples.divide(sample):
                return False
        except MemoryError:  # a table needs less
            return False
        if self._sort:
            samples.put_back(self.memory)  # which is for nothing if there was no room
        if (known := samples.known()) is None:
            return False
        if self._sort:
            samples.write(*self._results(known.groups))
            return True
        first, positions = self._chain.result(known.groups, np.int64)
        samples.write(None, positions)
        # In the order of the positions, which are keys themselves.
        of_positions = KeySpec(np.dtype(np.int64)), first, self.queue
        order = _Work(*of_positions, sort=True, missing=False, as_is=False, on_host=False, chain=self._chain)
        order.keys_on_device = self.keys_on_device
        order.by_marks(0, self.size)
        self.labels, labels = self._chain.result(known.groups, self.spec.dtype, self.keys_on_device)
        samples.write(labels, None, order.memory)
        samples.put_back(self.memory, order.memory)
        self._positions = order.labels
        return True

    def _ranks_of_known(self, known: Known) -> Any:
        """Return the numbers of keys that are in order; make their results."""
        state = self._chain.filled(5, np.uint32, 0)
        for place, there in ((2, known.has_ones), (3, known.has_missing)):
            if there:
                self._chain.fill(state, np.uint32, -1, 1, place)
        return self._ranks_of(_Table(known.number, (known.words,), state, known.first), known)

    def _by_table(self, expected: float | None) -> None:
        """Number the elements, which have about as many keys as `expected`, if that is known."""
        self._make_numbers()
        numbers, groups, some = self.memory, self._groups_of(self.size), min(self.size // _PART, _MOST_SOME)
        can_look = some >= _FEWEST_SOME and expected is None
        size, stride = (some, self.size // some) if can_look else (self.size, 1)
        bits = min(_MOST_BITS, _bits_of(size if expected is None else min(size, _SPARE * expected)))
        while True:
            table = self._table(bits)
            self._enqueue("insert", groups, *self._given, size, stride, *table.given, table.state, numbers, table.first)
            added, is_full, ones, missing, seen = self._chain.fetched(table.state, 5, np.uint32).tolist()
            if not is_full and size == self.size:
                ranks = self._ranks_of(table, Known(added, bool(ones), bool(missing) and self._missing))
                return self._enqueue("number", groups, numbers, self.size, ranks)
            needed = _bits_of(_SPARE * different(added, seen, self.size))
            if is_full:
                if bits == _MOST_BITS:
                    raise MemoryError(f"keys: expected at most {table.slots // 2} different ones, got more")
                needed = max(needed, bits + _GROWTH_BITS[bits >= _LARGE_BITS])
            bits, size, stride = min(_MOST_BITS, needed, _bits_of(self.size)), self.size, 1

    def _table(self, bits: int) -> _Table:
        """Return a table of so many slots, which is empty."""
        slots, most = 1 << bits, 1 << bits - 1
        told = min(_TOLD, max(1, most // self._groups_of(self.size)))
        words = self._chain.filled(slots, self.spec.word, -1)
        given = words, slots - 1, most, told, secrets.randbits(64)
        return _Table(slots, given, self._chain.filled(5, np.uint32, 0), self._firsts(slots + 2))

    def _ranks_of(self, table: _Table, known: Known) -> Any:
        """Return the numbers of the slots; make the results of the keys."""
        listed = self._tallied(table.words, table.slots + 1 + known.has_missing, table.slots, table.state)
        number = known.groups
        ordered = self._ordered(number, listed, table.first)
        ranks = self._rank(number, table.slots + 2, table.words, table.slots, ordered, table.first)
        if not known.has_missing:
            self._chain.fill(ranks, np.uint32, NONE, 1, table.slots + 1)
        return ranks

    def _firsts(self, number: int) -> Any:
        return self._chain.filled(number, np.uint32, NONE) if self.spec.first else None

    def _tallied(self, table: Any, slots: int, least: int, state: Any) -> tuple[Any, ...]:
        """Count the keys of shares of the slots; return what the kernel that lists them takes first."""
        tile = self._lanes * EACH
        share = tile * max(1, -(-slots // (tile * self._groups)))
        self._shares, tallies = -(-slots // share), self._chain.new(self._groups, np.uint32)
        self._enqueue("tally", self._shares, table, slots, share, least, state, tallies)
        return table, slots, share, least, state, tallies

    def _ordered(self, number: int, listed: tuple[Any, ...], first: Any) -> tuple[Any, Any]:
        """Return words of the keys in their order, or their first positions, in order, and the slots of each."""
        word, new = self.spec.word, self._chain.new
        found = new(number, word), new(number, np.uint32)
        self._enqueue("list", self._shares, *listed, first, int(not self._sort), *found)
        if number < 2 or (self.spec.marked and self._sort):
            return found
        return sorted_by_digits(self._chain, *found, number, word, 8 * word.itemsize if self._sort else 32)

    def _rank(self, number: int, slots: int, table: Any, least: int, ordered: tuple[Any, Any], first: Any) -> Any:
        """Return the numbers of the slots that have a key; make the results of the keys."""
        labels, positions = self._results(number)
        ranks = self._chain.new(slots, np.uint32)
        if number:
            given = table, least, ordered[0], int(self._sort), ordered[1], number
            self._enqueue("rank", self._groups_of(number), *given, first, ranks, labels, positions)
        return ranks

    def _results(self, number: int) -> tuple[Any, Any]:
        """Make the arrays of so many keys, and of their first positions; return their memory."""
        self.labels, labels = self._chain.result(number, self.spec.dtype, self.keys_on_device)
        positions = None
        if self.spec.first:
            self._positions, positions = self._chain.result(number, np.int64, self.keys_on_device)
        return labels, positions

    def _groups_of(self, elements: int) -> int:
        return max(1, min(self._groups, -(-elements // BLOCK)))

    def _enqueue(self, name: str, groups: int, *arguments: Any) -> None:
        kernel = _kernels(self.queue.context, self.spec, self._lanes > 1)[name]
        self._chain.run(kernel, groups, self._lanes, arguments)


def _bits_of(keys: float) -> int:
    """Return the bits of the number of slots for so many keys."""
    return max(1, ceil(log2(2 * keys)))


@kept_by_context
def _limits(context: cl.Context) -> tuple[int, int, int]:
    device = context.devices[0]
    return device.max_compute_units, device.max_work_group_size, device.local_mem_size


@kept_by_context
def _kernels(context: cl.Context, spec: KeySpec, several: bool) -> dict[str, Kernel]:
    return kernels_of(context, render_keys(spec, several=several))
