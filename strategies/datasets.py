"""Inputs to count: those of the papers, made here, and texts and images that the caller has read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import ceil

import numpy as np
import numpy.typing as npt

LETTERS = 26
SEED = 20

# The thesis' datasets (section 6): bins, and how the indices are distributed.
THESIS_BINS = (16, 256, 4096, 65536)
NORMAL_BINS, NORMAL_MEAN, NORMAL_DEVIATIONS = 2048, 1024, (64, 128, 256, 512)
THESIS = tuple(f"D{k}" for k in range(1, 13))


@dataclass(frozen=True, eq=False)
class DataSet:
    """Elements, and what bin each is in.

    Attributes
    ----------
    name : str
        For people.
    elements : array of shape (N,)
        uint8 or int32.
    num_bins : int
        H.
    bin : str
        C expression of the bin of the element `x`.
    bins : array of shape (N,)
        The same by NumPy; those outside of [0, num_bins) are in no bin.
    race_factor : float
        RF, as far as it is known.
    """

    name: str
    elements: npt.NDArray
    num_bins: int
    bin: str
    bins: npt.NDArray
    race_factor: float = 1.0

    @property
    def element(self) -> str:
        """C type of an element."""
        return {"uint8": "uchar", "int32": "int"}[self.elements.dtype.name]

    @cached_property
    def counts(self) -> npt.NDArray[np.int64]:
        """The number of elements of each bin, by NumPy."""
        inside = self.bins[(self.bins >= 0) & (self.bins < self.num_bins)]
        return np.bincount(inside, minlength=self.num_bins)


def indices(name: str, elements: npt.ArrayLike, num_bins: int, race_factor: float = 1.0) -> DataSet:
    """Return elements that are bins themselves."""
    bins = np.ascontiguousarray(elements, np.int32)
    return DataSet(name, bins, num_bins, "x", bins, race_factor)


def uniform(size: int, num_bins: int, race_factor: int = 1, seed: int = SEED) -> DataSet:
    """Return uniform bins, of every `race_factor` bins one (SC'20, V-A)."""
    if race_factor < 1:
        raise ValueError(f"race_factor: expected at least 1, got {race_factor}")
    distinct = max(1, num_bins // race_factor)
    bins = np.random.default_rng(seed).integers(0, distinct, size, np.int32) * np.int32(min(race_factor, num_bins))
    name = "uniform" if race_factor == 1 else f"RF {race_factor}"
    return indices(name, bins, num_bins, float(race_factor))


def truncated_normal(size: int, num_bins: int, mean: float, deviation: float, seed: int = SEED) -> npt.NDArray:
    """Return bins from a normal distribution; those outside of [0, num_bins) are drawn again."""
    rng = np.random.default_rng(seed)
    bins = np.empty(0)
    while bins.size < size:
        drawn = rng.normal(mean, deviation, size - bins.size)
        bins = np.concatenate([bins, drawn[(drawn >= 0) & (drawn < num_bins)]])
    return bins.astype(np.int32)


def thesis(name: str, size: int, seed: int = SEED) -> DataSet:
    """Return one of the thesis' datasets D1 to D12, of `size` elements; there are 20 million in section 6."""
    if name not in THESIS:
        raise ValueError(f"name: expected D1 to D12, got {name!r}")
    group, place = divmod(int(name[1:]) - 1, 4)
    if group == 1:
        deviation = NORMAL_DEVIATIONS[place]
        return indices(name, truncated_normal(size, NORMAL_BINS, NORMAL_MEAN, deviation, seed), NORMAL_BINS)
    num_bins = THESIS_BINS[place]
    if group == 0:
        bins = np.random.default_rng(seed).integers(0, num_bins, size, np.int32)
    else:
        bins = np.full(size, num_bins // 2, np.int32)
    return indices(name, bins, num_bins)


def letters(name: str, text: bytes, groups: int = 5) -> DataSet:
    """Return the letters a to z of a text in groups of neighbours: the blog's example, which has five of up to six.

    All other bytes are in no bin, capitals too, as in the post.
    """
    if not 1 <= groups <= LETTERS:
        raise ValueError(f"groups: expected 1 to {LETTERS}, got {groups}")
    group_size = ceil(LETTERS / groups)
    elements = np.frombuffer(text, np.uint8).copy()
    place = elements.astype(np.int32) - ord("a")
    bins = np.where((place >= 0) & (place < LETTERS), place // group_size, -1)
    return DataSet(name, elements, groups, f"(uint)(x - 97) < {LETTERS}u ? (x - 97) / {group_size} : -1", bins)


def pixels(name: str, image: npt.NDArray[np.uint8], num_bins: int = 256) -> DataSet:
    """Return the intensities of an image of 8 bits in `num_bins` equal bins, all channels together."""
    if num_bins not in (2**k for k in range(9)):
        raise ValueError(f"num_bins: expected a power of two up to 256, got {num_bins}")
    elements = np.ascontiguousarray(image, np.uint8).reshape(-1)
    shift = 9 - num_bins.bit_length()
    return DataSet(name, elements, num_bins, f"x >> {shift}", elements.astype(np.int32) >> shift)
