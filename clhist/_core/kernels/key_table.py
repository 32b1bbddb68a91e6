"""The kernels that number keys of any range: what they are of. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clhist._core.keys import bits_dtype, from_keys, keys_of
from clhist.operators.c_types import c_name

BLOCK = 1024
"""Elements that a work-group takes at once."""

LANES, EACH = 256, 4
"""Work-items of a work-group, at most, and slots that one takes at once."""

MOST_TRIES = 256
"""Slots that are looked at for one key: a table so full, or a seed so unlucky, is given up."""

AHEAD_FROM = 1 << 18
"""Slots of a table from which on a CPU asks for slots ahead: for fewer, which its caches hold, that takes longer."""

WINDOW, WINDOW_SAMPLES = 1 << 17, 16
"""Values of a window whose bits fill 16 KiB of local memory, and the elements that decide where it begins."""

SORTED_BYTES = 1 << 14
"""Words of keys that one work-group sorts in local memory."""

NONE = 2**32 - 1
"""In the place of the number of an element without a key."""


@dataclass(frozen=True)
class KeySpec:
    """Which keys are numbered.

    Attributes
    ----------
    dtype : numpy.dtype
        Of the keys: booleans, integers, floats, dates or durations. Kernels read their bits as integers, so NaN, zeros
        and subnormal numbers are the same on any device.
    none : int, optional
        The integer that is no key.
    first : bool
        Whether the first position of each key is kept.
    marked : bool
        Whether there is a mark for each key up to the largest, rather than a hash table.
    """

    dtype: np.dtype
    none: int | None = None
    first: bool = False
    marked: bool = False

    @property
    def word(self) -> np.dtype:
        """The unsigned integers in the order of the keys."""
        return np.dtype(np.uint64 if self.dtype.itemsize == 8 else np.uint32)

    @property
    def bits(self) -> np.dtype:
        """The integers that kernels read."""
        return bits_dtype(self.dtype)

    @property
    def is_missing(self) -> str:
        """C of whether an element of bits `b` has no key, as NaN and NaT have none."""
        # Without the sign, the bits of NaN alone are above infinity.
        if self.dtype.kind == "f":
            return f"(b & {self._literal(self._sign - 1)}) > {self._literal(self._infinity)}"
        # NaT is the least integer. The remainder makes a negative integer the bits of its two's complement.
        none = self._sign if self.dtype.kind in "mM" else self.none
        return "false" if none is None else f"b == {self._literal(none % (2 * self._sign))}"

    @property
    def encoded(self) -> str:
        """C of the word of an element of bits `b`; there is one zero."""
        if self.bits.kind == "u":
            return "(word_t)b"
        # The sign bit is flipped, so that negative keys come first; of negative floats all other bits are, too.
        key, width, low = "b", 8 * self.bits.itemsize, self._literal(self._sign - 1)
        if self.dtype.kind == "f":
            key = f"(b == {self._literal(self._sign)} ? 0 : b ^ (b >> {width - 1} & {low}))"
        if self.bits.itemsize == 8:
            return f"((ulong){key} ^ 0x8000000000000000ul)"
        return f"((uint)(int){key} ^ 0x80000000u)"

    @property
    def decoded(self) -> str:
        """C of the bits of the key of word `w`."""
        if self.bits.kind == "u":
            return "(key_t)w"
        # Both steps of `encoded` are their own inverse.
        key = f"(key_t)(w ^ (word_t)1 << {8 * self.word.itemsize - 1})"
        if self.dtype.kind != "f":
            return key
        return f"(key_t)({key} ^ ({key} >> {8 * self.bits.itemsize - 1} & {self._literal(self._sign - 1)}))"

    @property
    def missing_bits(self) -> str:
        """C of the bits of what stands for a key that is missing."""
        return self._literal(int(self.missing.view(self.bits)) % (2 * self._sign))

    def words_of(self, keys: np.ndarray) -> np.ndarray:
        """Return the words that kernels make of keys that are not missing."""
        # Adding 0 makes -0.0 of floats 0.0, as kernels do.
        words = keys_of(keys + keys.dtype.type(0) if self.dtype.kind == "f" else keys)
        return words.astype(self.word) if self.bits.kind == "u" else words.view(self.word) ^ self._word_sign

    def keys_of(self, words: np.ndarray) -> np.ndarray:
        """Return the keys of words of `words_of`."""
        keys = words if self.bits.kind == "u" else (words ^ self._word_sign).view(f"i{self.word.itemsize}")
        return from_keys(keys, self.dtype)

    @property
    def missing(self) -> np.ndarray:
        """The value of a missing key: NaN or NaT; integers have none."""
        return np.array(np.nan if self.dtype.kind == "f" else "NaT" if self.dtype.kind in "mM" else 0, self.dtype)

    @property
    def _word_sign(self) -> np.unsignedinteger:
        return self.word.type(1 << (8 * self.word.itemsize - 1))

    @property
    def _sign(self) -> int:
        return 1 << (8 * self.bits.itemsize - 1)

    @property
    def _infinity(self) -> int:
        return int(np.array(np.inf, self.dtype).view(self.bits))

    def _literal(self, bits: int) -> str:
        """Return C of the integer that has these bits."""
        return f"({c_name(self.bits)})0x{bits:x}{'ul' if self.bits.itemsize == 8 else 'u'}"
