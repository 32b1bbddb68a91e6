"""Order statistics of all data by radix selection: a histogram of each digit of the keys, the highest digit first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyopencl as cl

from clhist import operators
from clhist._core.elements import bits_of, has_no_type, key_of_bits
from clhist._core.keys import bits_dtype, from_keys, key_dtype
from clhist._core.opencl.arrays import on_host
from clhist._core.opencl.device import device_kind, has_fp64
from clhist._core.opencl.program import kept_by_context
from clhist._core.runtime.engine import Engine
from clhist.operators.c_types import c_name

# Bits of a digit, which one sweep counts, at most; and of many elements on a CPU. More bits need fewer sweeps, but the
# host reads their counts: of 10^4, 10^5 and 10^6 float64 an EPYC takes 2, 5 and 27 ms of its cores by 11 bits, and 8, 9
# and 15 by 16; an H200 takes 5 ms by 16 bits.
_BITS, _BITS_OF_MANY, _MANY = 11, 16, 1 << 19
_PREFIXES = 4  # order statistics that a sweep searches for


def order_statistics(
    array: Any, where: Any, bounds: tuple[int, int], ranks: Sequence[int], queue: cl.CommandQueue
) -> np.ndarray:
    """Return the elements of a flat array with these ranks in sorted order, counted from 0.

    Parameters
    ----------
    array : array
        Flat. `bounds` must exclude NaN.
    where : array of bool, or None
        True for elements that count.
    bounds : (int, int)
        Least and greatest key of the elements that count.
    ranks : sequence of int
        At most four.
    queue : pyopencl.CommandQueue
        The queue that computes.
    """
    dtype = array.dtype
    key = key_dtype(dtype)
    as_bits = has_no_type(dtype, has_fp64(queue.device))
    data = array.view(bits_dtype(dtype)) if as_bits else array
    kernel = _digits_kernel(queue.context, dtype, as_bits, where is not None)
    lowest = int(np.iinfo(key).min)
    width = 8 * key.itemsize
    prefixes, left = [0] * len(ranks), list(ranks)  # the digits so far, and the ranks among elements that share them
    are_many = array.size >= _MANY and device_kind(queue.device) == "cpu"
    sweeps = -(-width // (_BITS_OF_MANY if are_many else _BITS))
    digit_bits = -(-width // sweeps)  # the fewest with so many sweeps
    shift = width
    # A sweep for each digit counts the elements by prefix and digit; the ranks then choose the digits.
    while shift:
        bits = min(digit_bits, shift)
        shift -= bits
        # Ranks with the same digits so far share a row of counts; arguments without a row repeat the last prefix.
        distinct = sorted(set(prefixes))
        prefix_arguments = [np.uint64(distinct[min(k, len(distinct) - 1)]) for k in range(_PREFIXES)]
        arguments = [data, *([] if where is None else [where]), *(key.type(b) for b in bounds), *prefix_arguments]
        arguments += [shift, bits, int(shift + bits == width)]
        counts = kernel(*arguments, num_bins=_PREFIXES << digit_bits, size=array.size, queue=queue)
        sums = np.cumsum(on_host(counts, queue)[: _PREFIXES << bits].reshape(_PREFIXES, -1), axis=1)
        for k, prefix in enumerate(prefixes):
            row = sums[distinct.index(prefix)]
            # The digit of the element with this rank, and its rank among elements with that digit.
            digit = int(np.searchsorted(row, left[k], "right"))
            left[k] -= int(row[digit - 1]) if digit else 0
            prefixes[k] = prefix << bits | digit
    return from_keys(np.array([prefix + lowest for prefix in prefixes], key), dtype)


@kept_by_context
def _digits_kernel(context: cl.Context, dtype: np.dtype, as_bits: bool, masked: bool) -> Engine:
    """Return the kernel that counts the next digit of keys by prefix.

    Keys are counted from the least one of the dtype, so that they are unsigned. Row k has the keys with prefix k.
    """
    key, bits = key_dtype(dtype), bits_dtype(dtype)
    data = bits if as_bits else dtype
    unsigned = np.dtype(f"u{key.itemsize}")
    top = "0" if key.kind == "u" else f"(({c_name(unsigned)})1 << {8 * key.itemsize - 1})"
    code = f"""
        const {c_name(bits)} bits = {bits_of("x[i]", data)};
        const {c_name(key)} key = {key_of_bits(dtype)};
        const {c_name(unsigned)} steps = ({c_name(unsigned)})key ^ {top};
        const ulong head = whole ? 0 : (ulong)steps >> (shift + width);
        int row = head == p0 ? 0 : head == p1 ? 1 : head == p2 ? 2 : head == p3 ? 3 : -1;
        if (key < low || key > high{" || !where[i]" if masked else ""}) row = -1;
        EMIT(row < 0 ? -1 : (row << width) + (int)((steps >> shift) & ((1 << width) - 1)), 1);
    """
    mask = "const uchar *where, " if masked else ""
    arguments = f"const {c_name(data)} *x, {mask}{c_name(key)} low, {c_name(key)} high, "
    arguments += ", ".join(f"ulong p{n}" for n in range(_PREFIXES)) + ", int shift, int width, int whole"
    return Engine.of(context, operators.count(np.intp), arguments=arguments, map=code, emits=1)
