"""Order statistics by radix selection: histograms of the digits of keys, the highest first, of all data or by bins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyopencl as cl

from clhist import operators
from clhist.axes.elements import bits_of, has_no_type, key_of_bits
from clhist.axes.keys import bits_dtype, from_keys, key_dtype
from clhist.binning.sweep import Binned, BinnedKind
from clhist.engine.engine import Engine
from clhist.opencl.arrays import is_device_array, to_device
from clhist.opencl.program import kept_by_context
from clhist.operators.c_types import c_name

_DIGIT = 16  # bits that one sweep finds
_PREFIXES = 4  # keys that are looked for at once
_MOST_DIGITS = 2**21  # counts of digits by bins


def order_statistics(
    array: Any, where: Any, bounds: tuple[int, int], ranks: Sequence[int], queue: cl.CommandQueue, *, fp64: bool
) -> np.ndarray:
    """Return the elements of these ranks, counted from 0, of a flat array: its 0th is the least.

    Parameters
    ----------
    array : array
        Flat; NaN must not be within `bounds`.
    where : array of bool, or None
        Which elements count.
    bounds : (int, int)
        Least and greatest key of the elements that count.
    ranks : sequence of int
        At most four.
    queue : pyopencl.CommandQueue
        Where it runs.
    fp64 : bool
        Whether the device has double precision.
    """
    dtype = array.dtype
    key = key_dtype(dtype)
    as_bits = has_no_type(dtype, fp64)
    data = array.view(bits_dtype(dtype)) if as_bits else array
    kernel = _digits_kernel(queue.context, dtype, as_bits, where is not None)
    lowest = int(np.iinfo(key).min)
    width = 8 * key.itemsize
    prefixes, left = [0] * len(ranks), list(ranks)  # digits found, and ranks among the elements that have them
    for shift in range(width - _DIGIT, -1, -_DIGIT):
        distinct = sorted(set(prefixes))
        given = [np.uint64(distinct[min(k, len(distinct) - 1)]) for k in range(_PREFIXES)]
        arguments = [data, *([] if where is None else [where]), *(key.type(b) for b in bounds), *given]
        counts = kernel(
            *arguments,
            len(distinct),
            shift,
            num_bins=(_PREFIXES, 2**_DIGIT),
            size=array.size,
            queue=queue,
        )
        counts = counts.get(queue) if is_device_array(counts) else counts
        sums = np.cumsum(counts, axis=1)
        for k, prefix in enumerate(prefixes):
            row = sums[distinct.index(prefix)]
            digit = int(np.searchsorted(row, left[k], "right"))
            left[k] -= int(row[digit - 1]) if digit else 0
            prefixes[k] = prefix << _DIGIT | digit
    return from_keys(np.array([prefix + lowest for prefix in prefixes], key), dtype)


@kept_by_context
def _digits_kernel(context: cl.Context, dtype: np.dtype, as_bits: bool, masked: bool) -> Engine:
    """Return the kernel that counts the next digit of keys, less the least one, that begin with one of the prefixes."""
    key, bits = key_dtype(dtype), bits_dtype(dtype)
    data = bits if as_bits else dtype
    unsigned = np.dtype(f"u{key.itemsize}")
    top = "0" if key.kind == "u" else f"(({c_name(unsigned)})1 << {8 * key.itemsize - 1})"
    code = f"""
        const {c_name(bits)} bits = {bits_of("x[i]", data)};
        const {c_name(key)} key = {key_of_bits(dtype)};
        const {c_name(unsigned)} steps = ({c_name(unsigned)})key ^ {top};
        const ulong head = shift == {8 * key.itemsize - _DIGIT} ? 0 : steps >> (shift + {_DIGIT});
        int row = head == p0 ? 0 : head == p1 ? 1 : head == p2 ? 2 : head == p3 ? 3 : -1;
        if (key < low || key > high{" || !where[i]" if masked else ""}) row = -1;
        EMIT(row < 0 ? -1 : row * {2**_DIGIT} + (int)((steps >> shift) & {2**_DIGIT - 1}), 1);
    """
    mask = "const uchar *where, " if masked else ""
    arguments = f"const {c_name(data)} *x, {mask}{c_name(key)} low, {c_name(key)} high, "
    arguments += ", ".join(f"ulong p{n}" for n in range(_PREFIXES)) + ", int rows, int shift"
    return Engine.of(context, operators.count(np.intp), arguments=arguments, map=code, emits=1)


def bin_medians(binned: Binned, values: Any, counts: np.ndarray, queue: cl.CommandQueue) -> np.ndarray:
    """Return the median of the values in each bin, NaN of none, on the host.

    Parameters
    ----------
    binned : Binned
        What bins the values.
    values : array
        One for each element; NaN is greater than all others.
    counts : array
        How many values each bin has.
    queue : pyopencl.CommandQueue
        Where it runs.
    """
    dtype = np.dtype(np.uint8) if values.dtype.kind == "b" else values.dtype
    key = key_dtype(dtype)
    width = 8 * key.itemsize
    total = counts.size
    digit = next(bits for bits in (16, 8, 4) if total << bits <= _MOST_DIGITS or bits == 4)
    kernel = _bin_digits_kernel(queue.context, binned.kind, dtype)
    on_device = is_device_array(values)
    heads, left = np.zeros(total, np.uint64), np.maximum(counts.reshape(-1) - 1, 0) // 2
    group = np.zeros(total, np.int64)

    def arguments() -> list[Any]:
        given = to_device(queue, heads) if on_device else heads
        return [*binned.arguments(queue), values, given]

    for shift in range(width - digit, -1, -digit):
        found = kernel(*arguments(), shift, digit, size=binned.size, num_bins=(total, 2**digit), queue=queue)
        sums = np.cumsum(found.get(queue) if on_device else found, axis=1)
        digits = np.minimum((sums <= left[:, None]).sum(axis=1), 2**digit - 1)
        before = np.where(digits > 0, np.take_along_axis(sums, np.maximum(digits - 1, 0)[:, None], 1)[:, 0], 0)
        group = np.take_along_axis(sums, digits[:, None], 1)[:, 0] - before
        left, heads = left - before, heads << np.uint64(digit) | digits.astype(np.uint64)
    upper = heads
    apart = (counts.reshape(-1) % 2 == 0) & (left + 1 >= group) & (counts.reshape(-1) > 0)
    if apart.any():  # the next greater value is the upper of the two in the middle
        kernel = _next_kernel(queue.context, binned.kind, dtype)
        above = kernel(*arguments(), size=binned.size, num_bins=total, queue=queue)
        upper = np.where(apart, above.get(queue) if on_device else above, heads)
    lowest = np.uint64(int(np.iinfo(key).min) % 2**64)
    low, high = (from_keys((each + lowest).astype(key), dtype) for each in (heads, upper))
    if dtype.kind != "f":
        low, high = low.astype(np.float64), high.astype(np.float64)
    medians = ((low + high) / 2).astype(np.float64)
    return np.where(counts > 0, medians.reshape(counts.shape), np.nan)


def _steps_of_value(dtype: np.dtype) -> str:
    """Return C of `steps`, how many keys the key of a value is above the least one; NaN has all bits set."""
    key, bits = key_dtype(dtype), bits_dtype(dtype)
    unsigned = c_name(np.dtype(f"u{key.itemsize}"))
    top = "0" if key.kind == "u" else f"(({unsigned})1 << {8 * key.itemsize - 1})"
    nan = "v0[i] != v0[i] ? ~0ul : " if dtype.kind == "f" else ""
    return f"""
        const {c_name(bits)} bits = {bits_of("v0[i]", dtype)};
        const ulong steps = {nan}({unsigned})((({unsigned}){key_of_bits(dtype)}) ^ {top});
    """.replace("~0ul", f"({unsigned})~0ul")


def _value_arguments(kind: BinnedKind, dtype: np.dtype) -> str:
    return ", ".join([*kind.arguments(), f"const {c_name(dtype)} *v0", "const ulong *heads"])


@kept_by_context
def _bin_digits_kernel(context: cl.Context, kind: BinnedKind, dtype: np.dtype) -> Engine:
    """Return the kernel that counts the next digit of the values of each bin whose higher digits are its head."""
    width = 8 * key_dtype(dtype).itemsize
    code = f"""
        {kind.code()}
        {_steps_of_value(dtype)}
        const ulong head = shift == {width} - digit ? 0 : steps >> (shift + digit);
        if (bin >= 0 && head != heads[bin]) bin = -1;
        EMIT(bin < 0 ? -1 : ((long)bin << digit) + (long)((steps >> shift) & ((1ul << digit) - 1)), 1);
    """
    arguments = _value_arguments(kind, dtype) + ", int shift, int digit"
    operator = operators.count(np.intp)
    return Engine.of(context, operator, arguments=arguments, map=code, preamble=kind.functions(), emits=1)


@kept_by_context
def _next_kernel(context: cl.Context, kind: BinnedKind, dtype: np.dtype) -> Engine:
    """Return the kernel that finds the least value of each bin above its head."""
    code = f"""
        {kind.code()}
        {_steps_of_value(dtype)}
        if (bin >= 0 && steps <= heads[bin]) bin = -1;
        EMIT(bin, steps);
    """
    arguments = _value_arguments(kind, dtype)
    operator = operators.minimum(np.uint64)
    return Engine.of(context, operator, arguments=arguments, map=code, preamble=kind.functions(), emits=1)
