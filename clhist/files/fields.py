"""A block of separated text as fields, and columns of its fields as numbers or keys, by NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_NEWLINE, _RETURN, _QUOTE, _DOT, _MINUS, _PLUS = b'\n\r".-+'
_MISSING = frozenset(("", "na", "n/a", "null", "none", "nan", "-nan"))
_PADDING = 64
# Characters of a number that is parsed here; a key may have twice as many.
_WIDEST = 32
_DIGITS = 18  # of an integer that int64 holds
_WHOLE = 1 << 53  # integers up to here are floats exactly
_POWERS = 10.0 ** np.arange(_DIGITS + 1)  # exact, as all up to 10^22 are


class NotSimple(Exception):
    """A block needs Python's csv module."""


class Fields:
    """The rows of a block that are not empty, and where their fields are.

    Attributes
    ----------
    size : int
        Bytes of the block that belong to whole rows.
    lines : int
        How many lines these are.
    """

    def __init__(self, data: bytes, size: int, separators: Array, ends: Array, has_quotes: bool) -> None:
        self._data, self.size = data, size
        self._bytes = np.frombuffer(data + bytes(_PADDING), np.uint8)
        self._separators = separators
        self._has_quotes = has_quotes
        self.lines = data.count(b"\n", 0, size)
        first = np.zeros(len(ends), np.intp)  # of each row, the number of its first separator
        first[1:] = ends[:-1] + 1
        begin = np.zeros(len(ends), np.intp)
        begin[1:] = separators[ends[:-1]] + 1
        end = separators[ends]
        # The return before a newline is no part of the last field; rows that are empty without it are dropped.
        end = end - ((end > begin) & (self._bytes[end - 1] == _RETURN))
        is_filled = end > begin
        if not is_filled.all():
            first, begin, end, ends = first[is_filled], begin[is_filled], end[is_filled], ends[is_filled]
        self._first, self._begin, self._end, self._number = first, begin, end, ends - first + 1

    @classmethod
    def of(cls, data: bytes, delimiter: int, *, is_last: bool) -> Fields | None:
        """Return the fields of the whole rows in `data`; None if there is none yet.

        Raises
        ------
        NotSimple
            If a quote is inside of a field, or the bytes are no text of lines that end in a newline.
        """
        # A zero byte, and a return without a newline behind it, are left to csv.
        # The block may end between a return and its newline.
        if b"\0" in data or (b"\r" in data and data.count(b"\r") != data.count(b"\r\n") + data.endswith(b"\r")):
            raise NotSimple
        there = np.frombuffer(data, np.uint8)
        is_separator = (there == _NEWLINE) | (there == delimiter)
        has_quotes = b'"' in data
        if has_quotes:
            quotes = there == _QUOTE
            # Behind an odd number of quotes, a separator is a part of a quoted field.
            is_separator &= ~np.bitwise_xor.accumulate(quotes)
        separators = np.flatnonzero(is_separator)
        ends = np.flatnonzero(there[separators] == _NEWLINE)
        if not len(ends):
            if is_last:
                # An unclosed quote.
                raise NotSimple
            return None
        size = int(separators[ends[-1]]) + 1
        if has_quotes and not _is_well_quoted(there, np.flatnonzero(quotes[:size]), delimiter):
            raise NotSimple
        # Bytes behind the last newline of the file belong to a quote that is not closed.
        if is_last and size != len(data):
            raise NotSimple
        if not data.isascii():
            try:
                data[:size].decode()
            except UnicodeDecodeError:
                raise NotSimple from None  # which says where
        return cls(data, size, separators[: ends[-1] + 1], ends, has_quotes)

    def __len__(self) -> int:
        return len(self._first)

    def skip_row(self) -> None:
        """Forget the first row."""
        self._first, self._begin, self._end, self._number = (
            array[1:] for array in (self._first, self._begin, self._end, self._number)
        )

    def row_without(self, place: int) -> tuple[int, int] | None:
        """Return the first row that has no field at `place`, and how many fields it has; None if all have one."""
        short = self._number <= place
        if not short.any():
            return None
        row = int(short.argmax())
        return row, int(self._number[row])

    def row_beyond(self, most: int) -> tuple[int, int] | None:
        """Return the first row of more than `most` fields, and how many it has; None if there is none."""
        long = self._number > most
        if not long.any():
            return None
        row = int(long.argmax())
        return row, int(self._number[row])

    def line_of(self, row: int) -> int:
        """Return how many lines there are before a row."""
        return self._data.count(b"\n", 0, int(self._begin[row]))

    def numbers(self, place: int, error: Callable[[int, str], Exception], *, complete: bool = False) -> Array:
        """Return the numbers at `place` of all rows, as Python's `float` reads them; NaN where one is missing.

        `error` is called with a row and its text for what to raise where there is something else, or, if they must be
        `complete`, nothing.
        """
        begin, end = self._extents(place)
        if self._has_quotes:
            quoted = (self._bytes[begin] == _QUOTE).astype(np.intp)
            begin, end = begin + quoted, end - quoted
        values, is_simple = _decimals(self._bytes, begin, end)
        is_empty = end == begin
        if complete and is_empty.any():
            raise error(int(is_empty.argmax()), "")
        values[is_empty] = np.nan
        rows = np.flatnonzero(~is_simple & ~is_empty)
        if len(rows):
            self._others(values, rows, begin[rows], end[rows], error, complete=complete)
        return values

    def _others(
        self,
        values: Array,
        rows: Array,
        begin: Array,
        end: Array,
        error: Callable[[int, str], Exception],
        *,
        complete: bool,
    ) -> None:
        """Read numbers with exponents or many digits together, words one by one."""
        # `| 0x20` turns ASCII letters into lower case.
        first = self._bytes[begin] | 0x20
        is_word = ((first >= ord("a")) & (first <= ord("z"))) | (end - begin > _WIDEST)
        plain = np.flatnonzero(~is_word)
        if len(plain):
            texts = _fixed_width(self._bytes, begin[plain], end[plain])
            try:
                # NumPy would read 1_000 as a number.
                if b"_" in texts.tobytes():
                    raise ValueError
                values[rows[plain]] = texts.astype(np.float64)
            except ValueError:
                # One bad text fails the conversion of all, so read each of them alone.
                is_word[:] = True
        # Words repeat, such as those for missing values: parse each once.
        cache: dict[bytes, float] = {}
        for row, low, high in zip(*(array[is_word].tolist() for array in (rows, begin, end)), strict=True):
            text = self._data[low:high]
            if text not in cache:
                value = number_of(text.decode().replace('""', '"'), complete=complete)
                if value is None:
                    raise error(row, text.decode())
                cache[text] = value
            values[row] = cache[text]

    def keys(self, place: int, dictionary: Dictionary) -> Array:
        """Return the number in `dictionary` of the text at `place`, of all rows."""
        begin, end = self._extents(place)
        width = int((end - begin).max(initial=0))
        # All rows take as many words as the longest key, so very long ones are looked up one by one.
        if width > 2 * _WIDEST:
            texts = [self._data[low:high] for low, high in zip(begin.tolist(), end.tolist(), strict=True)]
            return np.array([dictionary.number(text) for text in texts], np.int32)
        # Texts as 64-bit words, padded with zero bytes, which no text contains.
        words = np.zeros((max(1, -(-width // 8)), len(begin)), np.uint64)
        lengths = end - begin
        for n in range(width):
            here = np.where(lengths > n, self._bytes[np.minimum(begin + n, len(self._bytes) - 1)], 0)
            words[n // 8] |= here.astype(np.uint64) << np.uint64(8 * (n % 8))
        return dictionary.numbers(words)

    def _extents(self, place: int) -> tuple[Array, Array]:
        """Return where the fields at `place` begin and end."""
        begin = self._begin if place == 0 else self._separators[self._first + place - 1] + 1
        return begin, np.where(self._number == place + 1, self._end, self._separators[self._first + place])


class Dictionary:
    """Numbers for texts, in the order in which they are met.

    Attributes
    ----------
    texts : list of str
        By their numbers.
    """

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._numbers: dict[bytes, int] = {}
        self._known = np.zeros(0, np.uint64)  # hashes in order
        self._of_known = np.zeros(0, np.int32)  # the numbers of their texts
        self._words = np.zeros((1, 0), np.uint64)  # the texts, by number

    def number(self, text: bytes) -> int:
        """Return the number of a field; a new one gets the next."""
        code = self._numbers.setdefault(text, len(self._numbers))
        if code == len(self.texts):
            self.texts.append(_unquoted(text))
        return code

    def numbers(self, words: Array) -> Array:
        """Return the number of each text, given as 8 bytes a row of `words`; new ones get the next."""
        hashes = _hashes(words)
        places = np.searchsorted(self._known, hashes)
        # A hash above all others has no place; the first one differs from it, so it counts as new.
        places[places == len(self._known)] = 0
        new = np.ones(len(hashes), bool) if not len(self._known) else self._known[places] != hashes
        if new.any():
            # New texts get their numbers in the order of their first appearance.
            _, first = np.unique(hashes[new], return_index=True)
            self._add(words[:, np.flatnonzero(new)[np.sort(first)]])
            places = np.searchsorted(self._known, hashes)
        codes = self._of_known[places]
        rows = max(len(words), len(self._words))
        # Equal hashes do not prove equal texts, so compare the words.
        for n in range(rows):
            here = words[n] if n < len(words) else np.uint64(0)
            there = self._words[n][codes] if n < len(self._words) else np.uint64(0)
            # Two texts have the same hash: compare them one by one.
            if np.any(here != there):
                return np.array([self.number(text) for text in _texts(words)], np.int32)
        return codes

    def _add(self, words: Array) -> None:
        numbers = np.array([self.number(text) for text in _texts(words)], np.int32)
        rows = max(len(words), len(self._words))
        places = int(numbers.max()) + 1
        grown = np.zeros((rows, max(places, self._words.shape[1])), np.uint64)
        grown[: len(self._words), : self._words.shape[1]] = self._words
        grown[:, numbers] = 0
        grown[: len(words), numbers] = words
        self._words = grown
        hashes = np.concatenate([self._known, _hashes(words)])
        order = np.argsort(hashes)
        self._known, self._of_known = hashes[order], np.concatenate([self._of_known, numbers])[order]


def number_of(text: str, *, complete: bool = False) -> float | None:
    """Return the number in a field, NaN if it says that it is missing; None if it is something else.

    With `complete`, words for what is missing are something else, too, except "nan".
    """
    try:
        return float_of(text)
    except ValueError:
        return float("nan") if not complete and is_missing(text) else None


def float_of(text: str) -> float:
    """Return the number that a text says in ASCII.

    Raises
    ------
    ValueError
        If it says none. Python's `float` also takes underscores between digits and digits of other scripts.
    """
    if not text.strip().isascii() or "_" in text:
        raise ValueError(f"expected a number, got {text!r}")
    return float(text)


def is_number(text: str) -> bool:
    """Whether a text is a number."""
    return number_of(text, complete=True) is not None


def is_missing(text: str) -> bool:
    """Whether a field says that it is missing: it is empty, or NA, N/A, null, None or NaN in any case."""
    return text.strip().lower() in _MISSING


def _unquoted(text: bytes) -> str:
    decoded = text.decode()
    return decoded[1:-1].replace('""', '"') if decoded.startswith('"') else decoded


def _is_well_quoted(there: Array, quotes: Array, delimiter: int) -> bool:
    """Whether each quote begins or ends a field, or is doubled in one that is quoted."""
    # Quotes open and close in turn. A doubled one closes and opens again, so a quote may also stand beside another.
    opening, closing = quotes[::2], quotes[1::2]
    before = there[opening - 1]
    begins = (opening == 0) | (before == delimiter) | (before == _NEWLINE) | (before == _QUOTE)
    after = there[np.minimum(closing + 1, len(there) - 1)]
    ends = (after == delimiter) | (after == _NEWLINE) | (after == _RETURN) | (after == _QUOTE)
    return len(opening) == len(closing) and bool(begins.all() and ends.all())


def _decimals(there: Array, begin: Array, end: Array) -> tuple[Array, Array]:
    """Return the numbers that are a sign, digits and a point, and which fields are such.

    The digits are an integer below 2^53 and the power of ten is exact, so that the quotient is rounded once: it is the
    float that Python reads.
    """
    lengths = end - begin
    width = min(_WIDEST, int(lengths.max(initial=0)))
    whole = np.zeros(len(begin), np.int64)
    digits, fraction = np.zeros(len(begin), np.uint8), np.zeros(len(begin), np.uint8)
    points = np.zeros(len(begin), np.uint8)
    simple = lengths <= width
    first = there[begin]
    is_minus = first == _MINUS
    has_sign = is_minus | (first == _PLUS)
    # Horner's scheme over character n of all fields at once.
    for n in range(width):
        byte = there[np.minimum(begin + n, len(there) - 1)]
        is_there = lengths > n
        # Bytes below that of 0 wrap, and so are no digits either.
        digit = byte - np.uint8(48)
        is_digit = (digit < 10) & is_there
        is_point = (byte == _DOT) & is_there
        np.multiply(whole, 10, out=whole, where=is_digit)
        np.add(whole, digit, out=whole, where=is_digit)
        digits += is_digit
        fraction += is_digit & (points > 0)
        points += is_point
        simple &= is_digit | is_point | ~is_there | (has_sign if n == 0 else False)
    # More digits than int64 holds wrap silently; their count refuses these fields.
    simple &= (digits > 0) & (digits <= _DIGITS) & (points <= 1) & (whole <= _WHOLE)
    values = whole / _POWERS[np.minimum(fraction, _DIGITS)]
    return np.where(is_minus, -values, values), simple


def _fixed_width(there: Array, begin: Array, end: Array) -> Array:
    """Return fields as an array of bytes."""
    lengths = end - begin
    width = int(lengths.max())
    places = np.arange(width)
    characters = there[np.minimum(begin[:, None] + places, len(there) - 1)]
    characters[places >= lengths[:, None]] = 0
    return np.ascontiguousarray(characters).view(f"S{width}")[:, 0]


def _hashes(words: Array) -> Array:
    # The multiplier is 2^64 divided by the golden ratio, an odd number that mixes all bits.
    hashes = words[0].copy()
    for word in words[1:]:
        # Words of zeros leave the hash unchanged.
        if word.any():
            hashes = np.where(
                word == 0, hashes, (hashes ^ (hashes >> np.uint64(29))) * np.uint64(0x9E3779B97F4A7C15) + word
            )
    return hashes


def _texts(words: Array) -> list[bytes]:
    columns = np.ascontiguousarray(words.T.astype("<u8"))
    return [row.tobytes().rstrip(b"\0") for row in columns]
