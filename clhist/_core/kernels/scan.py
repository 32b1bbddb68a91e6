"""A segmented scan: what it combines, and the sizes of its kernels. Pure."""

from __future__ import annotations

from dataclasses import dataclass

_MOST_LANES = 256


@dataclass(frozen=True)
class ScanSpec:
    """An inclusive scan of elements, each of which is `i`, a long, in C.

    Attributes
    ----------
    name : str
        The kernels'.
    arguments : str
        Their parameters in C: pointers to arrays, and numbers.
    item, item_bytes : str, int
        The type of what is combined, in C, and its size.
    input : str
        C of the item of an element.
    combine, neutral : str
        C that combines `a`, of the elements before, and `b`, commutative or not; and C of what changes nothing.
    output : str
        Statements in C with `item`, which all elements of the segment up to `i` are combined to. They may write what
        `input` reads of this element.
    begins : str
        C of whether a segment begins at an element, but for the first, which begins one; empty if none does.
    preamble : str
        C in front of the kernels.
    """

    name: str
    arguments: str
    item: str
    item_bytes: int
    input: str
    combine: str
    neutral: str
    output: str
    begins: str = ""
    preamble: str = ""


def each_of(item_bytes: int) -> int:
    """Return the elements of a tile for each work-item."""
    return 8 if item_bytes <= 4 else 4


def lanes_of(item_bytes: int, most: int, local_memory: int) -> int:
    """Return the work-items of a work-group: so many at most, and as a quarter of local memory has room for."""
    # Tiles take at most a quarter of local memory, for Oclgrind.
    lane = (each_of(item_bytes) + 3) * item_bytes + each_of(item_bytes) + 2
    return 1 << (max(1, min(_MOST_LANES, most, local_memory // 4 // lane)).bit_length() - 1)
