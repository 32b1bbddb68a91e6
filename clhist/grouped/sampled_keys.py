"""Number keys of any range on a GPU with the help of a sorted sample.

If the sample has few distinct keys, each work-group looks its elements up among them in local memory. Otherwise the
sample splits the keys into ranges of about equally many elements, as in a sample sort; one work-group a range then
numbers the distinct keys in local memory.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from math import ceil, exp, expm1, log, log1p, log2
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl

from clhist._core.kernels.key_ranges import BITS, CHUNK, KNOWN, MERGING, MOST_LANES, PIECES, KeySizes, key_sizes
from clhist._core.kernels.key_table import NONE, KeySpec
from clhist._core.kernels.render import render_sampled_keys
from clhist._core.opencl.device import planning_profile
from clhist._core.opencl.program import Kernel, kept_by_context, kernels_of
from clhist._core.runtime.chain import Chain

FEWEST = 1 << 12
"""Least number of elements for which a sample pays off."""

LOCAL_MEMORY = 1 << 15
"""Most bytes of local memory that the kernels need; a Raspberry Pi has half as many."""

# Samples: one of 4 elements at most, and 64 Ki; the distinct keys of up to 512 Ki elements are counted approximately.
_PART, _MOST_SAMPLES, _MOST_SEEN = 4, 1 << 16, 1 << 19
_SURE = 0.99  # largest expected share of the keys that the lookup has room for
# Target load of a range's table; uneven ranges reach twice that. Note [Load of a range], docs/decisions/0019.
_FILLED = 0.45
_SAMPLES, _PIECE_SAMPLES, _ELEMENTS = 8, 10, 1024  # at least: samples a range, samples a piece, elements a range
_RANGES = 4  # for each compute unit at least, to balance the load
# A table is as fast as ranges for keys that have so many bytes of the last-level cache each, of more than so many
# elements: 262,144 of 50 million on an H200, whole calls of `clhist.factorize`.
_CACHED_BYTES, _TABLE_ELEMENTS = 240, 1 << 24
SPARE = 1.2  # times the predicted keys are room for those of a table
_POSITION_BYTES = 4  # of a first position, beside the word of a slot
_ROOM = 2, 8  # memory for twice the expected keys, or for an eighth of the elements if these are more
_BLOCK = 1024  # elements of one step of a work-group, in kernels without tiles
_UNKNOWN = NONE - 1
_STATE, _TABLE = 12, 6  # words: those of `sampled_keys.mako`, and of them those of a table


class Sample(NamedTuple):
    """Keys of some elements.

    Attributes
    ----------
    words, different : memory
        In order; those that differ, in any, if they are few.
    size, number, once : int
        How many of `words` are of keys, how many differ, and how many of these are there once.
    expected : float
        How many differ in all elements, about.
    has_ones, has_missing : bool
        Whether there are the key like an empty slot, and elements without one.
    least, greatest : int
        Words.
    """

    words: Any
    different: Any
    size: int
    number: int
    once: int
    expected: float
    has_ones: bool
    has_missing: bool
    least: int
    greatest: int


class DistinctKeys(NamedTuple):
    """The distinct keys of an array.

    Attributes
    ----------
    number : int
        How many there are.
    has_ones, has_missing : bool
        Whether there are the two others besides: that like an empty slot, and that of elements without a key.
    words, slots, first : memory
        Of keys in order. Behind the words there is room for the two others; the place of each; first positions.
    """

    number: int
    has_ones: bool
    has_missing: bool
    words: Any = None
    slots: Any = None
    first: Any = None

    @property
    def groups(self) -> int:
        """How many groups they make."""
        return self.number + self.has_ones + self.has_missing


class SampledKeys:
    """The kernels that number keys as a sample says.

    Parameters
    ----------
    chain : Chain
        What enqueues them.
    spec : KeySpec
        The keys.
    key_memory : tuple
        The memory of the keys, and their offset in bytes.
    size : int
        How many there are.
    missing : bool
        Whether elements without a key are one more group.
    by_slots : bool
        Whether elements get the places of their keys in order, which are numbered after that.
    """

    def __init__(
        self, chain: Chain, spec: KeySpec, key_memory: tuple[Any, int], size: int, *, missing: bool, by_slots: bool
    ) -> None:
        self._chain, self._spec, self._keys = chain, spec, (*key_memory, size)
        self._size, self._missing, self._by_slots = size, missing, by_slots
        profile = planning_profile(chain.queue.device)
        self._cache = profile.l2_cache
        self._sizes, self._units, self._lanes = _sizes(chain.queue.context, spec, profile.local_memory)
        self._known = max(KNOWN, self._sizes.more_known)
        self._seed, self._state, self._has_failed = secrets.randbits(64), chain.new(_STATE, np.uint32), False

    def look(self, meanwhile: Callable[[], None], most: int = _MOST_SAMPLES) -> Sample:
        """Return a sample of at most `most` elements; call `meanwhile` before waiting for it."""
        new, word, samples = self._chain.new, self._spec.word, min(self._size // _PART, most)
        chunks, more = ceil(samples / CHUNK), min(self._size, _MOST_SEEN)
        size = chunks * CHUNK
        unsorted, words, others = new(size, word), new(size, word), new(2 * chunks, np.uint32)
        different, bits = new(self._known, word), new(BITS // 32, np.uint32)
        # Each work-group sorts a chunk of the sample; then chunks are merged, and more elements set bits by hash.
        kernels, lanes = self._kernels("sample"), self._sizes.lanes
        self._run(kernels["sample"], chunks, samples, self._seed, unsorted, others, bits, self._state, lanes=lanes)
        arguments = more, self._seed, unsorted, others, size, samples, words, different, bits, self._state
        self._run(kernels["merge"], size // max(1, self._lanes // MERGING) + ceil(more / _BLOCK), *arguments)
        # The host works while the device samples.
        meanwhile()
        state = self._chain.fetched(self._state, _STATE, np.uint32)
        number, _, ones, missing, _, once, are_set, seen = state[:8].tolist()
        least, greatest = state[8:].view(np.uint64).tolist()
        some = samples - ones - missing
        # Linear counting: the share of unset bits estimates how many distinct keys set them.
        expected = _expected(number, some, -BITS * log1p(-are_set / BITS), seen, self._size)
        return Sample(words, different, some, number, once, expected, ones > 0, missing > 0, least, greatest)

    def find(self, sample: Sample, numbers: Any, number: int) -> DistinctKeys | None:
        """Write the place of each element's key among the first `number` distinct keys of a sample; None if too many.

        Keys that the sample lacks are added to the distinct ones, if the sample predicts such keys.
        """
        # A key met once in the sample predicts keys that it lacks; these are added to at most KNOWN distinct keys only.
        if sample.expected > self._known * _SURE or number > (KNOWN if sample.once else self._known):
            return None
        new, has_missing = self._chain.new, sample.has_missing and self._missing
        words, slots = new(number + 2, self._spec.word), new(number + 2, np.uint32)
        first = self._chain.filled(number + 2, np.uint32, NONE) if self._spec.first else None
        are_many = number > KNOWN
        name, lanes = ("find_more", self._sizes.lanes) if are_many else ("find", self._lanes)
        kernels, different = self._kernels(name), (sample.different, number, int(sample.has_ones))
        self._run_alone(kernels["known"], number + 2, self._lanes, *different, words, slots)
        # The place of an element without a key: a group behind all others, unknown, or none.
        missing = number + (1 if self._by_slots else sample.has_ones)
        # The sample met no missing key though it would be a group: an element without a key must report failure.
        if has_missing != self._missing:
            missing = _UNKNOWN
        elif not self._missing and not self._by_slots:
            missing = NONE
        groups = min(self._units * (1 if are_many else self._sizes.groups), ceil(self._size / _BLOCK))
        # Without a key that occurs once, all keys are taken to be in the sample: no table for others.
        table = self._chain.filled(self._known, self._spec.word, -1) if sample.once else None
        arguments = _BLOCK, words, number, number if sample.has_ones else _UNKNOWN, missing, self._seed
        self._run(kernels[name], groups, *arguments, sample.different, table, self._state, numbers, first, lanes=lanes)
        return DistinctKeys(number, sample.has_ones, has_missing, words, slots, first)

    def divide(self, sample: Sample) -> bool:
        """Number the keys range by range; return False if there are too many keys, or a table is as fast."""
        sizes, new, spec, expected = self._sizes, self._chain.new, self._spec, sample.expected
        if self._prefers_table(expected):
            return False
        # So many keys need more ranges, and the bounds of these a larger sample.
        if _PIECE_SAMPLES * expected > _FILLED * sizes.most_keys * sample.size:
            sample = self.look(lambda: None, 4 * _MOST_SAMPLES)
        most = min(sizes.most_ranges, sample.size // _SAMPLES, self._size // _ELEMENTS)
        if most < 1:
            return False
        # As many ranges as occupy the device and as their tables need, with enough samples for the bounds.
        ranges = min(most, max(self._units * _RANGES, ceil(expected / (_FILLED * sizes.most_keys))))
        pieces = 1 << (ceil(expected / (_FILLED * sizes.most_keys * ranges)) - 1).bit_length()
        # A range of too many keys for local memory is numbered a piece after the other, between further samples.
        if pieces > PIECES:
            return False
        # Memory for the keys is allocated before their number is known; the kernels report if it is too small.
        room = min(self._size, max(int(_ROOM[0] * expected), self._size // _ROOM[1]))
        # Two more parts than ranges: the key like an empty slot, and elements without a key.
        tiles, parts = ceil(self._size / sizes.tile), ranges + 2
        words, places, own = (new(tiles * sizes.tile, dtype) for dtype in (spec.word, np.uint16, np.uint16))
        starts, starts_of_tiles = (new((parts + 1) * tiles, np.uint16) for _ in range(2))
        cells = new(ranges, spec.word), new(sizes.cells, np.uint32)
        counts, where, begins = (new(parts * PIECES, np.uint32) for _ in range(3))
        key_words, first = new(room, spec.word), new(room, np.uint32) if spec.first else None
        # After a failure of `find` its counters are those of a part of the keys: clear them.
        if self._has_failed:
            self._chain.fill(self._state, np.uint32, 0, _TABLE)
        kernels = self._kernels("ranges")
        common, lanes = (sample.words, sample.size, ranges, tiles), sizes.lanes
        self._run_alone(kernels["begin_cells"], sizes.cells // self._lanes, self._lanes, *common[:3], *cells)
        self._run(kernels["divide"], tiles, *common, *cells, words, places, starts, starts_of_tiles, lanes=lanes)
        grouped, to = (words, places, starts, *common), (room, counts, where, key_words, first, own, self._state)
        self._run_alone(kernels["number_range"], parts, sizes.numbering_lanes, *grouped, pieces, self._seed, *to)
        self._run_alone(kernels["begin_ranges"], 1, lanes, counts, ranges, int(self._missing), begins, self._state)
        self._tiled = tiles, (places, own, starts_of_tiles, begins, parts, self._size)
        self._ranged = parts, (key_words, first, counts, where, begins, ranges)
        return True

    def _prefers_table(self, expected: float) -> bool:
        """Whether a table of `expected` keys stays in the last-level cache, where it is as fast as ranges."""
        if not self._by_slots:
            return self._size > _TABLE_ELEMENTS and expected * _CACHED_BYTES <= self._cache
        # In the order of first positions ranges need two more kernels: any table is preferred that fits the cache.
        return (self._spec.word.itemsize + _POSITION_BYTES) << bits_of(SPARE * expected) <= self._cache

    def put_back(self, numbers: Any, ranks: Any = None) -> None:
        """Write the number of each element; with `ranks`, the rank of that number."""
        tiles, arguments = self._tiled
        self._run_alone(self._kernels("ranges")["put_back"], tiles, self._sizes.lanes, *arguments, ranks, numbers)

    def outcome(self) -> DistinctKeys | None:
        """Wait for `find` or `divide`; return the count of distinct keys, or None if there was no room.

        The result of `find` may count keys that its sample lacked. The memory of the keys is not in the result.
        """
        number, failed, ones, missing = self._chain.fetched(self._state, 4, np.uint32).tolist()
        self._has_failed = bool(failed)
        return None if failed else DistinctKeys(number, bool(ones), bool(missing) and self._missing)

    def write(self, labels: Any, positions: Any, ranks: Any = None) -> None:
        """Write the keys of all ranges, in order or by ranks, and their first positions; None stands for neither."""
        (parts, arguments), kernel = self._ranged, self._kernels("ranges")["join_ranges"]
        self._run_alone(kernel, parts, self._lanes, *arguments, ranks, labels, positions)

    def _kernels(self, stage: str) -> dict[str, Kernel]:
        """Return the kernels of a stage, which are built when they are first needed."""
        return _kernels(self._chain.queue.context, self._spec, self._sizes, stage)

    def _run(self, kernel: Kernel, groups: int, *arguments: Any, lanes: int = 0) -> None:
        """Enqueue a kernel that reads the keys."""
        self._run_alone(kernel, groups, lanes or self._lanes, *self._keys, *arguments)

    def _run_alone(self, kernel: Kernel, groups: int, lanes: int, *arguments: Any) -> None:
        self._chain.run(kernel, groups, lanes, arguments)


def bits_of(keys: float) -> int:
    """Return log2 of the number of slots for so many keys, at a load of at most 1/2."""
    return max(1, ceil(log2(2 * keys)))


def different(added: float, seen: int, size: int) -> float:
    """Estimate the number of distinct keys, if `seen` elements have `added` and all are equally frequent."""
    added = max(1, added)
    if added >= seen:
        return max(size, added)
    # If each key is seen x times on average, (1 - exp(-x)) / x of the elements are new. Start above the solution.
    part = added / seen
    often = min(1, 2 * (1 - part)) / part
    for _ in range(5):  # Newton's method
        often -= (-expm1(-often) - part * often) / (exp(-often) - part)
    return min(size, max(added, seen / often))


def _expected(number: int, some: int, more_number: float, more: int, size: int) -> float:
    """Return an estimate of the distinct keys of `size` elements, from two parts of them.

    `some` elements have `number` distinct keys, `more` others have `more_number`. If all keys are equally frequent,
    both predict the same. Otherwise the prediction grows with the part, and the growth is extrapolated.
    """
    least, most = different(number, some, size), different(more_number, more, size)
    if more < size and more > some and number:
        most *= max(1.0, most / least) ** (log(size / more) / log(more / some))
    return min(size, most)


@kept_by_context
def _sizes(context: cl.Context, spec: KeySpec, room: int) -> tuple[KeySizes, int, int]:
    """Return sizes, the compute units of the device, and work-items of a work-group without a tile."""
    device = context.devices[0]
    units, most = device.max_compute_units, device.max_work_group_size
    sizes = key_sizes(spec.word, room, most, first=spec.first)
    return sizes, units, min(MOST_LANES, 1 << most.bit_length() - 1)


@kept_by_context
def _kernels(context: cl.Context, spec: KeySpec, sizes: KeySizes, stage: str) -> dict[str, Kernel]:
    return kernels_of(context, render_sampled_keys(spec, sizes, stage))
