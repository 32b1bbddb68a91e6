"""Number keys of any range on the device: the number of each element's group, and the distinct keys.

Integers of a small range are marked in a table that their value indexes. GPUs sample other keys first and choose by
the sample; see `clhist.grouped.sampled_keys`. The remaining keys, and those of CPUs, go into a hash table of open
addressing, which grows if it is too small. The distinct keys are sorted by digits, or ordered by first position, and
each element looks up the number of its key. Memory beyond the input: 4 bytes an element, and the table; by ranges 17
to 25 bytes an element for keys of 64 bits, and 13 to 17 for keys of 32 bits.
"""

from __future__ import annotations

import secrets
from collections.abc import Hashable
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
from clhist._core.opencl.lost import fetched
from clhist._core.opencl.new_arrays import empty, to_device
from clhist._core.opencl.program import Kernel, kept_by_context, kernels_of
from clhist._core.recording import unheard
from clhist._core.runtime.chain import Chain
from clhist._core.runtime.counting import extremes
from clhist._core.runtime.digit_sort import sorted_by_digits
from clhist._core.runtime.launcher import chain_on
from clhist._core.runtime.signature import call_templates
from clhist.grouped.distinct_keys import distinct_on_device
from clhist.grouped.keys import Numbering, distinct
from clhist.grouped.sampled_keys import (
    FEWEST,
    LOCAL_MEMORY,
    SPARE,
    DistinctKeys,
    Sample,
    SampledKeys,
    bits_of,
    different,
)

MOST_ELEMENTS = NONE
"""Positions and slots are counted in 32 bits."""

# The distinct keys of a part of the elements, within these bounds, predict the size of the table; SPARE adds room.
# A table that is too small grows by at least so many bits of its size: 4, or 2 from 2**22 slots on.
_PART, _FEWEST_SOME, _MOST_SOME = 4, 1 << 12, 1 << 16
_GROWTH_BITS, _LARGE_BITS, _MOST_BITS = (4, 2), 22, 31
_TOLD = 64  # keys that a work-group inserts before it adds them to the shared count, at most
# Marks are used for a range of keys below the number of elements, within these bounds. The first and last elements
# often show that the range is larger, without a pass over all keys.
_FEWEST_MARKS, _MOST_MARKS, _ENDS = 1 << 16, 1 << 27, 256
# On a GPU a pass over fewer keys adds little to the read that follows it: the extremes of 10^3 and of 10^7 int64 take
# 73 and 102 µs on an H200, whole calls in a loop.
_FEWEST_WITH_ENDS = 1 << 22
_GROUPS = 8  # work-groups for each compute unit
# A CPU numbers the keys of so many first elements before the others, if they are few. log2 of the least and of the most
# slots of their table, and its slots for each key: 256 keys take 6.0 ns an element in 2^10 slots, 3.8 in 2^12, on an
# EPYC core (Zen 3) with PoCL 3.0.
_FIRST_ELEMENTS, _FIRST_BITS, _FIRST_SLOTS = 1 << 14, (12, 16), 16
# Nanoseconds for each of 10^6 and 4*10^6 different float64 and int64: NumPy's sort, and a table on one compute unit.
# Both take two thirds of it for numbers of 32 bits. An EPYC (family 25, model 1) with Intel's runtime and PoCL.
_SORTED, _INSERTED = 17.0, 105.0
_FEW_KEYS = 1 << 12  # the host orders up to so many, which compiles no kernels; the kernels are faster for more
_ORDERING = {"tally", "list", "rank"}  # kernels


def can_number(dtype: np.dtype, device: cl.Device) -> bool:
    """Whether a device can number keys of a type: keys of 64 bits need a compare-and-swap of 64 bits."""
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
    bound: int | None = None,
    as_is: bool = False,
    on_host: bool | None = None,
    only_keys: bool = False,
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
    bound : int, optional
        All keys are integers in [0, bound), so that no kernel need search for their range.
    as_is : bool
        Whether `keys` may be returned as the numbers, if they are; `keys` of the result is an array of NumPy then.
    on_host : bool, optional
        Whether numbers are an array of NumPy. Defaults to whether `keys` is one, as of the other results.
    only_keys : bool
        Whether the numbers are not needed; they are undefined then.

    Raises
    ------
    ValueError
        If there are too many elements.
    MemoryError
        If the device has no room, or there are more than 2**30 different keys.
    """
    if is_cuda(keys):
        with unheard():
            keys.check_not_captured()
    if keys.size >= MOST_ELEMENTS:
        raise ValueError(f"keys: expected less than {MOST_ELEMENTS} elements, got {keys.size}")
    has_all = missing or keys.dtype.kind != "f"  # NaN is a key there
    if only_keys and sort and has_all and not first and none is None and is_device_array(keys):
        labels = distinct_on_device(keys, queue)
        if labels is not None:
            return Numbering(None, labels, None)
    on_host = not is_device_array(keys) if on_host is None else on_host
    spec = KeySpec(np.dtype(keys.dtype), none, first or not sort)
    if not keys.size:
        places = is_device_array(keys)
        numbers, labels, positions = (
            empty(queue, (0,), np.dtype(dtype), on_device)
            for dtype, on_device in ((np.int32, not on_host), (keys.dtype, places), (np.int64, places))
        )
        return Numbering(numbers, labels, positions if first else None)
    more: dict[str, Any] = {"as_is": as_is, "on_host": on_host, "only_keys": only_keys, "bound": bound}
    work = _Work(spec, keys, queue, sort=sort, missing=missing, **more)
    numbers, labels, positions = work.run()
    return Numbering(numbers, labels, positions if first else None)


class _Table(NamedTuple):
    """A hash table of keys, with the arguments of the kernels that insert keys."""

    slots: int
    arguments: tuple[Any, ...]
    state: Any
    first: Any

    @property
    def words(self) -> Any:
        return self.arguments[0]


class _Work:
    """One numbering: a chain of kernels on one queue."""

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
        only_keys: bool = False,
        bound: int | None = None,
        chain: Chain | None = None,
    ) -> None:
        self.queue, self.spec, self._bound = queue, spec, bound
        self._sort, self._missing, self._as_is, self._only_keys = sort, missing, as_is, only_keys
        self.keys, self.size = keys, keys.size
        units, most, self._room = _limits(queue.context)
        self._groups, self._lanes = units * _GROUPS, 1 if device_kind(queue.device) == "cpu" else min(LANES, most)
        self._on_device, self.keys_on_device = not on_host, is_device_array(keys)
        self._chain = chain or chain_on(queue, "to number keys")
        self._key_memory, self.memory = self._chain.place(keys), None
        self.numbers: Any = None
        self._positions: Array | None = None

    def run(self) -> tuple[Array, Array, Array | None]:
        """Return the numbers of the elements, the keys in their order, and the first positions."""
        samples = sample = None
        extent = None if self._bound is None or self._bound > self._most_marks else (0, max(1, self._bound))
        if extent is None:
            # Keys of 8 or 16 bits have few distinct values; a table of these is small in any case.
            is_small = self.size < FEWEST or self.spec.dtype.itemsize < 4
            if may_have_marks := not is_small and self._looks_at_range_first():
                extent = self._range()
        if extent is None:
            samples = None if self._lanes == 1 or is_small or self._room < LOCAL_MEMORY else self._samples()
            # Allocate the result while the device samples; keys that may be their own numbers might not need it.
            sample = None if samples is None else samples.look(lambda: None if self._as_is else self._make_numbers())
            if not may_have_marks:
                extent = self._extent(sample)
        # Cheapest first: marks need no hashing, a sample keeps distinct keys in local memory, a table takes any keys.
        if extent is not None:
            self.by_marks(*extent)
        elif samples is None or sample is None or not self._by_sample(samples, sample):
            self._by_table(None if sample is None else sample.expected)
        self._chain.finish()
        return self.numbers, self.labels, self._positions

    def _make_numbers(self) -> None:
        if self._only_keys and self._lanes == 1:
            return  # a CPU's kernels write no slots then
        if self.memory is None and self._only_keys:
            self.memory = self._chain.new(self.size, np.int32)  # of slots, by which the keys are found
        elif self.memory is None:
            self.numbers, self.memory = self._chain.result(self.size, np.int32, self._on_device)

    def _samples(self) -> SampledKeys:
        more = {"missing": self._missing, "by_slots": not self._sort}
        return SampledKeys(self._chain, self.spec, self._key_memory, self.size, **more)

    @property
    def _most_marks(self) -> int:  # the longest range of keys that has a mark for each value
        return max(_FEWEST_MARKS, min(_MOST_MARKS, self.size))

    def _extent(self, sample: Sample | None) -> tuple[int, int] | None:
        """Return the least key and the length of the range of the keys, or None if marks would be too many."""
        if self.spec.dtype.kind not in "iub":
            return None
        # Booleans need no pass: both values are in the range.
        if self.spec.dtype.kind == "b":
            return 0, 2
        most = self._most_marks
        # The range of the sample is a lower bound of that of all keys.
        if sample is not None:
            if sample.greatest - sample.least >= most:
                return None
        elif self.size > (_FEWEST_WITH_ENDS if self.keys_on_device and self._lanes > 1 else 2 * _ENDS):
            some = self._ends()
            if int(some.max()) - int(some.min()) >= most:
                return None
        return self._range()

    def _range(self) -> tuple[int, int] | None:
        """Return the least key and the length of the range by a pass over all keys, or None; see `_extent`."""
        largest, least = extremes(self.keys, self.queue)
        if largest - least < self._most_marks:
            return least, largest - least + 1
        if self._lanes > 1:
            call_templates.put(self._of_long_range, True)
        return None

    def _looks_at_range_first(self) -> bool:
        """Whether a pass over few integers on a GPU spares the sample; not if keys like them had too long a range."""
        are_few = self._lanes > 1 and self.keys_on_device and self.size <= _FEWEST_WITH_ENDS
        return are_few and self.spec.dtype.kind in "iu" and not call_templates.get(self._of_long_range)

    @property
    def _of_long_range(self) -> Hashable:
        return "range without marks", self.queue, self.spec.dtype, self.size

    def _ends(self) -> np.ndarray:
        if not self.keys_on_device:
            return np.append(self.keys[:_ENDS], self.keys[-_ENDS:])
        memory, offset = self._key_memory
        step = (self.size - _ENDS) * self.spec.dtype.itemsize
        return self._chain.fetched_rows(memory, (2, _ENDS), self.spec.dtype, offset, step)

    def by_marks(self, least_key: int, slots: int) -> None:
        """Number integers in [least_key, least_key + slots), with a mark for each value that occurs."""
        self.spec = replace(self.spec, marked=True)
        least = int(self.spec.words_of(np.array([least_key], self.spec.dtype))[0])
        marks, first = self._chain.filled(slots, np.uint8, 0), self._firsts(slots)
        self._enqueue("mark", self._groups_of(self.size), *self._key_memory, self.size, least, marks, first)
        # A CPU's marks are in the host's memory, where few are numbered sooner than kernels for it are compiled.
        are_few = self._lanes == 1 and slots <= _FEWEST_MARKS
        if are_few and self._number_marks(marks, least_key, slots, least, first):
            return
        state = self._chain.filled(1, np.uint32, 0)
        listed = self._tallied(marks, slots, least, state)
        number = int(self._chain.fetched(state, 1, np.uint32)[0])
        if self._are_numbers(number, least_key, slots):
            return
        # Each value that occurs gets its rank; then every element looks up the rank of its value.
        ranks = self._rank(number, slots, marks, least, self._ordered(number, listed, first), first)
        self._look_up(least, ranks)

    def _number_marks(self, marks: Any, least_key: int, slots: int, least: int, first: Any) -> bool:
        """Number marked integers by the host; return False if there are too many to order them by first positions."""
        places = np.flatnonzero(self._chain.fetched(marks, slots, np.uint8))
        if self._are_numbers(len(places), least_key, slots):
            return True
        if not self._sort and len(places) > _FEW_KEYS:
            return False
        # Modulo the range of the type, as kernels add.
        keys = places.astype(self.spec.dtype) + np.array([least_key], self.spec.dtype)
        ranks = self._ranked_by_host(places, keys, slots, first)
        self._look_up(least, None if self._only_keys else self._chain.copied(ranks))
        return True

    def _ranked_by_host(self, places: np.ndarray, keys: np.ndarray, slots: int, first: Any) -> np.ndarray:
        """Return the rank of each slot, from those of keys in sorted order; make the results of the keys."""
        if self.spec.first:
            positions = self._chain.fetched(first, slots, np.uint32)[places].astype(np.int64)
            if not self._sort:
                order = positions.argsort()
                places, keys, positions = places[order], keys[order], positions[order]
            self._positions = to_device(self.queue, positions) if self.keys_on_device else positions
        self.labels = to_device(self.queue, keys) if self.keys_on_device else keys
        ranks = np.full(slots, NONE, np.uint32)
        ranks[places] = np.arange(len(places))
        return ranks

    def _are_numbers(self, number: int, least_key: int, slots: int) -> bool:
        """Make the keys their own numbers if they may be and are 0 to number - 1; return whether they are."""
        if not self._as_is or number < slots or least_key:
            return False
        self.numbers, self._positions = self.keys, None
        self.labels = np.arange(number, dtype=np.int64).astype(self.spec.dtype)
        return True

    def _look_up(self, least: int, ranks: Any) -> None:
        """Write the number of each element, from those of the slots."""
        if self._only_keys:
            return
        self._make_numbers()
        self._enqueue("look_up", self._groups_of(self.size), *self._key_memory, self.size, least, ranks, self.memory)

    def _by_sample(self, samples: SampledKeys, sample: Sample) -> bool:
        """Number the elements with the help of a sample; return False if the sample does not allow it."""
        self._make_numbers()
        number = sample.number
        # Look up every element among the sampled keys, and once more if keys were added.
        while (distinct := samples.find(sample, self.memory, number)) is not None:
            if self._sort:
                ordered = distinct.words, distinct.slots
                self._rank(
                    distinct.groups, distinct.number + 2, distinct.words, distinct.number, ordered, distinct.first
                )
            if (outcome := samples.outcome()) is None:
                break
            if outcome.number == number:
                if not self._sort:
                    ranks = self._ranks_of_distinct(distinct)
                    self._enqueue("number", self._groups_of(self.size), self.memory, self.size, ranks)
                return True
            # Elements had keys that the sample lacked; these are added now, so look all elements up again.
            number = outcome.number
        try:
            # More keys than local memory holds: number them range by range.
            if not samples.divide(sample):
                return False
        except MemoryError:
            return False  # the caller uses a table, which needs less memory
        if self._sort and not self._only_keys:
            # Enqueued before the outcome is read, so that the device does not wait for the host.
            samples.put_back(self.memory)
        if (distinct := samples.outcome()) is None:
            return False
        if self._sort:
            samples.write(*self._results(distinct.groups))
            return True
        first, positions = self._chain.result(distinct.groups, np.int64)
        samples.write(None, positions)
        # For the order of first occurrence the distinct first positions are numbered as keys, by marks.
        of_positions = KeySpec(np.dtype(np.int64)), first, self.queue
        order = _Work(*of_positions, sort=True, missing=False, as_is=False, on_host=False, chain=self._chain)
        order.keys_on_device = self.keys_on_device
        order.by_marks(0, self.size)
        self.labels, labels = self._chain.result(distinct.groups, self.spec.dtype, self.keys_on_device)
        samples.write(labels, None, order.memory)
        samples.put_back(self.memory, order.memory)
        self._positions = order.labels
        return True

    def _ranks_of_distinct(self, distinct: DistinctKeys) -> Any:
        """Return the ranks of distinct keys in the order of their first positions; make the results of the keys."""
        state = self._chain.filled(5, np.uint32, 0)
        for place, there in ((2, distinct.has_ones), (3, distinct.has_missing)):
            if there:
                self._chain.fill(state, np.uint32, -1, 1, place)
        return self._ranks_of(_Table(distinct.number, (distinct.words,), state, distinct.first), distinct)

    def _by_table(self, expected: float | None) -> None:
        """Number the elements by a hash table; `expected` is an estimate of the number of distinct keys, or None."""
        self._make_numbers()
        if self._lanes == 1 and expected is None and (self._by_first_elements() or self._by_sort_of_host()):
            return None
        some = min(self.size // _PART, _MOST_SOME)
        can_look = some >= _FEWEST_SOME and expected is None
        # Without an estimate, insert a strided part of the elements first, which predicts the size of the table.
        size, stride = (some, self.size // some) if can_look else (self.size, 1)
        bits = min(_MOST_BITS, bits_of(size if expected is None else min(size, SPARE * expected)))
        while True:
            table = self._table(bits)
            distinct, is_full, seen = self._inserted(table, size, stride)
            # All elements are in the table: rank its keys, and replace the slot of each element by its rank.
            if not is_full and size == self.size:
                return self._renumber(self._ranks_of(table, distinct))
            needed = bits_of(SPARE * different(distinct.number, seen, self.size))
            if is_full:
                if bits == _MOST_BITS:
                    raise MemoryError(f"keys: expected at most {table.slots // 2} different ones, got more")
                # A full table saw part of the keys, so the estimate may be too small: grow in any case.
                needed = max(needed, bits + _GROWTH_BITS[bits >= _LARGE_BITS])
            # Next all elements, in a table for the predicted number of keys.
            bits, size, stride = min(_MOST_BITS, needed, bits_of(self.size)), self.size, 1

    def _by_first_elements(self) -> bool:
        """Number the elements of a CPU by the keys of the first ones; return False if there may be many keys.

        One pass writes the numbers then. Keys that the first elements lack have codes beyond these numbers; if there
        are such keys, another pass replaces the codes.
        """
        some = min(self.size // _PART, _FIRST_ELEMENTS)
        if some < _FEWEST_SOME:
            return False
        bits, most_bits = _FIRST_BITS
        while True:
            table = self._table(bits)
            distinct, is_full, seen = self._inserted(table, some, 1, has_slots=False)
            needed = ceil(log2(_FIRST_SLOTS * max(1, different(distinct.number, seen, self.size))))
            if needed <= bits and not is_full:
                break
            bits = max(needed, bits + 1)
            if bits > most_bits:
                return False
        ranks, number = self._ranks_of_few(table, distinct), distinct.groups
        is_new = ranks == NONE
        is_new[-1] &= self._missing  # elements without a key have no number otherwise
        codes = np.where(is_new, np.arange(number, number + len(ranks), dtype=np.uint32), ranks)
        distinct, is_full, _ = self._inserted(table, self.size, 1, codes=self._chain.copied(codes))
        if is_full:
            return False
        if distinct.groups > number:
            ranks = self._ranks_of_few(table, distinct)
            places = np.flatnonzero(~is_new & (codes != NONE))
            self._renumber(self._chain.copied(np.append(ranks[places[codes[places].argsort()]], ranks)))
        return True

    def _by_sort_of_host(self) -> bool:
        """Let the host of a CPU sort many different keys, if only these are needed and it takes less time."""
        has_all = self._missing or self.spec.dtype.kind in "iu"  # NaN is a key
        is_alone = self._only_keys and self._sort and not self.spec.first and self.spec.none is None and has_all
        units = self.queue.device.max_compute_units
        if not is_alone or self.spec.dtype.kind not in "iuf" or _SORTED * units > _INSERTED:
            return False
        labels = distinct(fetched(self.keys, self.queue) if self.keys_on_device else self.keys)
        self.labels = to_device(self.queue, labels) if self.keys_on_device else labels
        return True

    def _inserted(
        self, table: _Table, size: int, stride: int, *, codes: Any = None, has_slots: bool = True
    ) -> tuple[DistinctKeys, bool, int]:
        """Insert elements; return the keys of the table, whether it is too full, and the number of these elements."""
        groups, own = self._groups_of(self.size), () if self._lanes > 1 else (codes,)
        slots = self.memory if has_slots else None
        arguments = (*table.arguments, table.state, slots, table.first, *own)
        self._enqueue("insert", groups, *self._key_memory, size, stride, *arguments)
        added, is_full, ones, missing, seen = self._chain.fetched(table.state, 5, np.uint32).tolist()
        return DistinctKeys(added, bool(ones), bool(missing) and self._missing), bool(is_full), seen

    def _renumber(self, numbers: Any) -> None:
        """Replace the slot or code of each element by its number."""
        if not self._only_keys:
            self._enqueue("number", self._groups_of(self.size), self.memory, self.size, numbers)

    def _table(self, bits: int) -> _Table:
        """Return an empty table of 2**bits slots."""
        # At most half of the slots may be filled, which keeps probe sequences short.
        slots, most = 1 << bits, 1 << bits - 1
        # The keys that work-groups have inserted but not announced must fit beside `most` announced ones.
        told = min(_TOLD, max(1, most // self._groups_of(self.size)))
        # All bits set mark an empty slot; a random seed of the hash keeps inputs from colliding on purpose.
        words = self._chain.filled(slots, self.spec.word, -1)
        arguments = words, slots - 1, most, told, secrets.randbits(64)
        return _Table(slots, arguments, self._chain.filled(5, np.uint32, 0), self._firsts(slots + 2))

    def _ranks_of(self, table: _Table, distinct: DistinctKeys) -> Any:
        """Return the rank of the key of each slot; make the results of the keys."""
        if self._lanes == 1 and distinct.groups <= _FEW_KEYS:
            return self._chain.copied(self._ranks_of_few(table, distinct))
        # Behind the slots come two more: the key like an empty slot, and elements without a key.
        listed = self._tallied(table.words, table.slots + 1 + distinct.has_missing, table.slots, table.state)
        number = distinct.groups
        ordered = self._ordered(number, listed, table.first)
        ranks = self._rank(number, table.slots + 2, table.words, table.slots, ordered, table.first)
        if not distinct.has_missing:
            # Elements without a key share a slot, whose rank reads as -1 in int32.
            self._chain.fill(ranks, np.uint32, NONE, 1, table.slots + 1)
        return ranks

    def _ranks_of_few(self, table: _Table, distinct: DistinctKeys) -> np.ndarray:
        """Return the rank of the key of each slot, computed by the host; make the results of the keys."""
        words = self._chain.fetched(table.words, table.slots, self.spec.word)
        places = np.flatnonzero(words != ~self.spec.word.type(0))
        places = places[words[places].argsort()]
        if distinct.has_ones:
            places, words = np.append(places, table.slots), np.append(words, ~self.spec.word.type(0))
        keys = self.spec.keys_of(words[places])
        if distinct.has_missing:
            places, keys = np.append(places, table.slots + 1), np.append(keys, self.spec.missing)
        return self._ranked_by_host(places, keys, table.slots + 2, table.first)

    def _firsts(self, number: int) -> Any:
        return self._chain.filled(number, np.uint32, NONE) if self.spec.first else None

    def _tallied(self, table: Any, slots: int, least: int, state: Any) -> tuple[Any, ...]:
        """Count the keys in each share of the slots; return the first arguments of the kernel that lists them."""
        tile = self._lanes * EACH
        share = tile * max(1, -(-slots // (tile * self._groups)))
        self._shares, tallies = -(-slots // share), self._chain.new(self._groups, np.uint32)
        self._enqueue("tally", self._shares, table, slots, share, least, state, tallies)
        return table, slots, share, least, state, tallies

    def _ordered(self, number: int, listed: tuple[Any, ...], first: Any) -> tuple[Any, Any]:
        """Return the words of the keys, or their first positions, in sorted order, and the slot of each."""
        word, new = self.spec.word, self._chain.new
        words_and_slots = new(number, word), new(number, np.uint32)
        # List the keys, each work-group behind the tallies of those before it.
        self._enqueue("list", self._shares, *listed, first, int(not self._sort), *words_and_slots)
        # Marks list keys in ascending order already.
        if number < 2 or (self.spec.marked and self._sort):
            return words_and_slots
        return sorted_by_digits(self._chain, *words_and_slots, number, word, 8 * word.itemsize if self._sort else 32)

    def _rank(self, number: int, slots: int, table: Any, least: int, ordered: tuple[Any, Any], first: Any) -> Any:
        """Return the rank of the key in each slot that has one; make the results of the keys."""
        labels, positions = self._results(number)
        ranks = self._chain.new(slots, np.uint32)
        if number:
            arguments = table, least, ordered[0], int(self._sort), ordered[1], number
            self._enqueue("rank", self._groups_of(number), *arguments, first, ranks, labels, positions)
        return ranks

    def _results(self, number: int) -> tuple[Any, Any]:
        """Allocate the results for so many keys: labels and first positions; return their memory."""
        self.labels, labels = self._chain.result(number, self.spec.dtype, self.keys_on_device)
        positions = None
        if self.spec.first:
            self._positions, positions = self._chain.result(number, np.int64, self.keys_on_device)
        return labels, positions

    def _groups_of(self, elements: int) -> int:
        return max(1, min(self._groups, -(-elements // BLOCK)))

    def _enqueue(self, name: str, groups: int, *arguments: Any) -> None:
        # A CPU has the kernels that order keys in a program of their own, since few keys need none of them.
        several = self._lanes > 1
        kernel = _kernels(self.queue.context, self.spec, several, several or name in _ORDERING)[name]
        self._chain.run(kernel, groups, self._lanes, arguments)


@kept_by_context
def _limits(context: cl.Context) -> tuple[int, int, int]:
    device = context.devices[0]
    return device.max_compute_units, device.max_work_group_size, device.local_mem_size


@kept_by_context
def _kernels(context: cl.Context, spec: KeySpec, several: bool, in_order: bool) -> dict[str, Kernel]:
    return kernels_of(context, render_keys(spec, several=several, in_order=in_order))
