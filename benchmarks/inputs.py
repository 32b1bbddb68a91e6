"""The inputs of `clhist bench`: made on the device, cold in its cache, and downloaded once for the references."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import ceil
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from clhist._core.opencl.program import build

# C of the bin of element i, from random numbers h and g. The first is SC'20's (V-A): of every RF bins one is used.
DISTRIBUTIONS = {
    "uniform": "h % distinct * race_factor",
    "sorted": "(ulong)num_bins * i / size",
    "zipf": "min((uint)exp2((h >> 8) / 16777216.0f * log2(num_bins + 1.0f)), num_bins) - 1",
    "half in one": "g & 1 ? num_bins / 2 : h % num_bins",
    "all in one": "num_bins / 2",
}

# Odd numbers, so that none is 0 and the sums of billions in one float32 are exact: a lost update cannot hide.
_SOURCE = """
uint mixed(uint x)  // lowbias32 of Chris Wellons
{
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

__kernel void make(__global %(type)s *bins, const ulong weights_at, const ulong size, const ulong num_weights,
                   const uint num_bins, const uint race_factor)
{
    __global float *weights = (__global float *)((__global uchar *)bins + weights_at);
    const uint distinct = max(1u, num_bins / race_factor);
    for (ulong i = get_global_id(0); i < size; i += get_global_size(0)) {
        const uint h = mixed((uint)i ^ 0x9e3779b9u), g = mixed(~(uint)i);
        bins[i] = %(bin)s;
    }
    for (ulong i = get_global_id(0); i < num_weights; i += get_global_size(0))
        weights[i] = 2 * (int)(mixed(~(uint)i) >> 9 & 127) - 127;
}
"""

MULTIPLIER = 2654435761  # odd: what `keys` makes of different positions is different
NO_KEY = -(2**31)  # less than every key
_BOUNDARY = 256  # bytes: where an array begins
_BLOCK = 1 << 22  # numbers that the host makes at a time
_MOST_CHECKED = 1 << 26  # values of rows, whose components are checked one by one
MOST_COPIES = 64
CACHES = 2  # how many times the last-level cache is read before an input comes again


@dataclass(frozen=True)
class InputSpec:
    """An input: N elements for H bins, as int32 or, of an image, as uint8; rows have D `components`."""

    num_elements: int
    num_bins: int
    race_factor: int = 1
    distribution: str = "uniform"
    image: bool = False
    components: int = 1

    @property
    def dtype(self) -> np.dtype:
        """The dtype of the bins."""
        return np.dtype(np.uint8 if self.image else np.int32)

    def offset_of_weights(self) -> int:
        """Return where the weights begin, in bytes."""
        return ceil(self.num_elements * self.dtype.itemsize / _BOUNDARY) * _BOUNDARY

    def nbytes(self, weighted: bool) -> int:
        """Return the bytes of bins, and of weights if there are any."""
        if not weighted:
            return self.num_elements * self.dtype.itemsize
        return self.offset_of_weights() + self.num_weights * np.dtype(np.float32).itemsize

    @property
    def num_weights(self) -> int:
        """The number of weights of all rows."""
        return self.num_elements * self.components

    @property
    def shape(self) -> int | tuple[int, int]:
        """H, or that of a result of rows."""
        return self.num_bins if self.components == 1 else (self.num_bins, self.components)

    def checked_components(self) -> list[int]:
        """Return those components of rows that are compared with the host's: as many as take it seconds."""
        number = min(self.components, max(2, _MOST_CHECKED // self.num_elements))
        return sorted({*np.linspace(0, self.components - 1, number).astype(int).tolist()})


class Input:
    """Bins, and weights if asked for, in one buffer on the device; and equal ones, until the cache is too small.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        Where it is made.
    spec : InputSpec
        What it is.
    weighted : bool
        Whether float32 weights follow the bins.
    cache : int
        Bytes of the device's last-level cache.
    """

    def __init__(self, queue: cl.CommandQueue, spec: InputSpec, *, weighted: bool, cache: int) -> None:
        self.spec = spec
        self._weights_at = spec.offset_of_weights() if weighted else 0
        first = cl_array.empty(queue, spec.nbytes(weighted), np.uint8)
        text = {"type": "uchar" if spec.image else "int", "bin": DISTRIBUTIONS[spec.distribution]}
        kernel = cl.Kernel(build(queue.context, _SOURCE % text), "make")
        numbers: tuple[np.generic, ...] = (np.uint64(self._weights_at), np.uint64(spec.num_elements))
        numbers += (np.uint64(spec.num_weights if weighted else 0),)
        items = min(spec.num_elements, 1 << 20)
        numbers += np.uint32(spec.num_bins), np.uint32(spec.race_factor)
        base: Any = first.base_data
        kernel(queue, (items,), None, base, *numbers)
        needed = ceil(CACHES * cache / spec.nbytes(False))
        self.is_cold = needed <= MOST_COPIES
        self.copies = [first, *(first.copy() for _ in range(min(needed, MOST_COPIES) - 1))]
        queue.finish()

    def arrays(self, names: Sequence[str]) -> list[tuple[cl_array.Array, ...]]:
        """Return the arrays of these `names`, "bins" and "weights", of each of the equal inputs."""
        return [tuple(self._array(copy, name) for name in names) for copy in self.copies]

    def nbytes(self, names: Sequence[str]) -> int:
        """Return the bytes that are read of one of the inputs."""
        return self.spec.nbytes("weights" in names)

    @cached_property
    def host(self) -> Host:
        """The input on the host."""
        return self.host_of(0)

    def host_of(self, component: int) -> Host:
        """Return the same on the host, with one component of the rows."""
        bins = self._array(self.copies[0], "bins").get()
        return Host(bins, self.spec.num_bins, self.spec.components, component)

    def _array(self, copy: cl_array.Array, name: str) -> cl_array.Array:
        if name == "weights":
            return copy[self._weights_at :].view(np.float32)
        return copy[: self.spec.num_elements * self.spec.dtype.itemsize].view(self.spec.dtype)


@dataclass(frozen=True)
class Host:
    """An input on the host with what references are made of, each computed once and by NumPy alone."""

    bins: np.ndarray
    num_bins: int
    components: int = 1
    component: int = 0

    @property
    def weights(self) -> np.ndarray:
        """The weights, or one component of them, whether the device has them or not."""
        return weights(self.bins.size, self.components, self.component)

    @cached_property
    def indices(self) -> np.ndarray:
        """The bins as NumPy likes them best."""
        return self.bins.astype(np.intp)

    @cached_property
    def counts(self) -> np.ndarray:
        """The number of elements of each bin."""
        return np.bincount(self.indices, minlength=self.num_bins)

    @cached_property
    def sums(self) -> np.ndarray:
        """The sum of each bin's weights, exact."""
        return np.bincount(self.indices, self.weights, self.num_bins)

    @cached_property
    def largest(self) -> np.ndarray:
        """The largest weight of each bin, -inf for none."""
        largest = np.full(self.num_bins, -np.inf, np.float32)
        np.maximum.at(largest, self.indices, self.weights)
        return largest

    @cached_property
    def largest_key(self) -> np.ndarray:
        """The largest of `keys` of each bin, `NO_KEY` for none."""
        largest = np.full(self.num_bins, NO_KEY, np.int32)
        np.maximum.at(largest, self.indices, keys(self.bins.size))
        return largest

    def position_of_largest_key(self, none: int) -> np.ndarray:
        """Return where each bin has its largest key, or `none`."""
        position = self.largest_key.view(np.uint32) * np.uint32(pow(MULTIPLIER, -1, 2**32))
        return np.where(self.counts > 0, position.astype(np.int64), none)


@lru_cache(maxsize=1)
def weights(size: int, components: int = 1, component: int = 0) -> np.ndarray:
    """Return what the kernel makes: odd float32 from -127 to 127. Of rows it is one of so many components."""
    values = np.empty(size, np.float32)
    for begin in range(0, size, _BLOCK):
        x: np.ndarray = np.arange(begin, min(size, begin + _BLOCK), dtype=np.uint32)
        x = ~(x * np.uint32(components) + np.uint32(component))
        x = (x ^ x >> 16) * np.uint32(0x7FEB352D)
        x = (x ^ x >> 15) * np.uint32(0x846CA68B)
        values[begin : begin + _BLOCK] = ((x ^ x >> 16) >> 9 & 127).astype(np.float32) * 2 - 127
    return values


@lru_cache(maxsize=1)
def keys(size: int) -> np.ndarray:
    """Return pseudo-random int32, all different: i * MULTIPLIER for each position, what the kernels compute too."""
    return (np.arange(size, dtype=np.uint32) * np.uint32(MULTIPLIER)).view(np.int32)
