"""Places and ranks of elements in their groups, on the device.

Elements are sorted by group, and for ranks by value before that. Places and ranks are segmented scans in this order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl

from clhist._core.kernels.scan import ScanSpec
from clhist._core.opencl.arrays import Array, is_device_array
from clhist._core.opencl.new_arrays import empty, to_device
from clhist._core.opencl.program import kept_by_context
from clhist._core.runtime.call import queue_for, queue_of
from clhist._core.runtime.chain import Chain
from clhist._core.runtime.digit_sort import sorted_by_digits
from clhist._core.runtime.elementwise_kernel import Elementwise
from clhist._core.runtime.launcher import chain_on
from clhist._core.runtime.scan import Scan
from clhist._core.runtime.small import is_small
from clhist.operators.c_types import c_name, literal
from clhist.operators.equivalents import encoded

_UINT, _INT64 = np.dtype(np.uint32), np.dtype(np.int64)
MOST_ELEMENTS = 2**31 - 1

_RANK_TEXTS = {
    "average": "(low + high) / ({real})2",
    "min": "low",
    "max": "high",
    "dense": "dense",
    "first": "i - begin + 1",
}
"""C of the rank by pandas' name of its method: of the `i`-th element in order, whose group begins at `begin`."""


class CountingSort(NamedTuple):
    """The stable order of elements by key.

    Attributes
    ----------
    counts : array of int64 of shape (H,)
        Elements of each key.
    offsets : array of int64 of shape (H + 1,)
        Where each key begins in the order; last the number of elements with a key.
    permutation : array of int64 of shape (N,)
        Positions of the elements: by key, elements of equal keys by position, and those without a key last.
    """

    counts: Array
    offsets: Array
    permutation: Array


class Ordered(NamedTuple):
    """Elements in the order of their groups.

    Attributes
    ----------
    groups, positions : memory of uint32
        Of the elements, the last group of those in none; and where they are.
    begins, ends : memory of uint32
        Where each group begins and ends in this order; of those without elements they are 0 and 0.
    """

    groups: Any
    positions: Any
    begins: Any
    ends: Any


def in_order(
    keys: Array,
    num_groups: int,
    chain: Chain,
    values: Array | None = None,
    descending: bool = False,
    is_date: bool = False,
) -> Ordered:
    """Return the elements sorted by group, and within a group by value if there are values; NaN and NaT are in none."""
    if keys.size > MOST_ELEMENTS:
        raise ValueError(f"keys: expected at most {MOST_ELEMENTS} elements, which are sorted by group, got {keys.size}")
    size, dtype = keys.size, None if values is None else values.dtype
    kernels = _sorting(chain.queue.context, keys.dtype, dtype, descending, is_date)
    groups, positions = chain.new(size, _UINT), chain.new(size, _UINT)
    if values is not None:
        word = _word(values.dtype)
        keyed = chain.new(size, word)
        kernels["words"](chain, size, [values, keyed, positions])
        # The digit sort is stable: sorted by value first, elements of a group stay in the order of their values.
        _, positions = sorted_by_digits(chain, keyed, positions, size, word, 8 * word.itemsize)
    # Elements in no group, and NaN and NaT of values, get the number behind all groups and sort last.
    kernels["groups"](chain, size, [keys, *([] if values is None else [values]), groups, positions, num_groups])
    bits = max(1, num_groups.bit_length())  # elements outside of all groups have the number num_groups
    groups, positions = sorted_by_digits(chain, groups, positions, size, _UINT, bits)
    # One entry more, for the elements in no group; groups without elements keep 0 and 0.
    begins, ends = (chain.filled(num_groups + 1, _UINT, 0) for _ in range(2))
    kernels["ends"](chain, size, [groups, begins, ends])
    return Ordered(groups, positions, begins, ends)


def counting_sort(keys: Array, num_keys: int) -> CountingSort:
    """Return counts, offsets and the stable order of integers; those outside [0, `num_keys`) have no key.

    `keys` is an array of NumPy, PyOpenCL or CUDA with at least one element. Device arrays are not read to the host.
    """
    on_device = is_device_array(keys)
    if not on_device and is_small("group_by", max(keys.size, num_keys), None):
        return _counting_sort_on_host(keys, num_keys)
    if keys.size > MOST_ELEMENTS:
        raise ValueError(f"keys: expected at most {MOST_ELEMENTS} elements, got {keys.size}")
    queue = queue_for(None, keys.context if on_device else None, queue_of(keys))
    size, chain = keys.size, chain_on(queue, PURPOSE)
    sorting = _sorting(queue.context, keys.dtype, None, False, False)
    words, positions = chain.new(size, _UINT), chain.new(size, _UINT)
    sorting["groups"](chain, size, [keys, words, positions, num_keys])
    words, positions = sorted_by_digits(chain, words, positions, size, _UINT, num_keys.bit_length())
    counts, counts_memory = chain.result(num_keys, _INT64, on_device)
    offsets, offsets_memory = chain.result(num_keys + 1, _INT64, on_device)
    order, order_memory = chain.result(size, _INT64, on_device)
    # One work-item for each offset: there is one more than counts.
    _offsets(queue.context)(chain, num_keys + 1, [words, counts_memory, offsets_memory, size])
    _positions(queue.context)(chain, size, [positions, order_memory])
    chain.finish()
    return CountingSort(counts, offsets, order)


def _counting_sort_on_host(keys: Array, num_keys: int) -> CountingSort:
    has_key = (keys >= 0) & (keys < num_keys)
    words = np.where(has_key, keys, np.int64(num_keys))  # the dtype of the keys may be too narrow for num_keys
    # NumPy sorts integers of 16 bits by radix sort.
    words = words.astype(np.uint16 if num_keys < 1 << 16 else np.int64)
    counts = np.bincount(words[has_key], minlength=num_keys)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64, copy=False)
    return CountingSort(counts.astype(np.int64, copy=False), offsets, np.argsort(words, kind="stable"))


def place_of_each(keys: Array, num_groups: int, queue: cl.CommandQueue, ascending: bool = True) -> Array:
    """Return how many elements of its group come before each element, or after it; -1 of one that is in no group."""
    places = empty(queue, (keys.size,), _INT64, True)
    if not keys.size:
        return places
    chain = chain_on(queue, PURPOSE)
    order = in_order(keys, num_groups, chain)
    _placing(queue.context)(chain, keys.size, [*order, places, num_groups, int(ascending)])
    chain.finish(places)
    return places


def rank_of_each(
    keys: Array,
    num_groups: int,
    values: Array,
    method: str,
    ascending: bool,
    pct: bool,
    is_date: bool,
    real: np.dtype,
    queue: cl.CommandQueue,
) -> Array:
    """Return the rank of each value in its group, from 1 on, or its part of the largest; NaN of NaN and NaT."""
    size = keys.size
    ranks = empty(queue, (size,), real, True)
    if not size:
        return ranks
    chain = chain_on(queue, PURPOSE)
    order = in_order(keys, num_groups, chain, values, not ascending, is_date)
    # Number the runs of equal values in a group by a scan over marks; `firsts` ends with the end of the last run.
    runs, firsts = chain.new(size, _UINT), chain.new(size + 1, _UINT)
    mark, rank = _ranking(queue.context, values.dtype, method, pct, real)
    mark(chain, size, [*order[:2], values, runs])
    _runs(queue.context)(chain, size, [runs, firsts])
    rank(chain, size, [*order, runs, firsts, ranks, num_groups])
    chain.finish(ranks)
    return ranks


def nth_of_groups(keys: Array, num_groups: int, values: Array, n: int, none: Any, queue: cl.CommandQueue) -> Array:
    """Return the n-th value of each group, from its end if `n` is negative; `none` where there are fewer."""
    if not keys.size:
        return to_device(queue, np.full(num_groups, none, values.dtype))
    chain = chain_on(queue, PURPOSE)
    order = in_order(keys, num_groups, chain)
    nth_values = empty(queue, (num_groups,), values.dtype, True)
    arguments = [order.positions, order.begins, order.ends, values, nth_values, n, none]
    _nth(queue.context, values.dtype)(chain, num_groups, arguments)
    chain.finish(nth_values)
    return nth_values


PURPOSE = "to sort elements by group"


def _word(dtype: np.dtype) -> np.dtype:
    return np.dtype(np.uint64 if dtype.itemsize == 8 else np.uint32)


@kept_by_context
def _sorting(
    context: cl.Context, keys: np.dtype, values: np.dtype | None, descending: bool, is_date: bool
) -> dict[str, Elementwise]:
    key, at, counts, parts = c_name(keys), "i", "", {}
    if values is None:
        # Without values the elements are in their first order, and this kernel writes their positions, too.
        parameter, number = "", "positions[i] = i"
    else:
        word, at, parameter, number = c_name(_word(values)), "positions[i]", f"const {c_name(values)} *values, ", ""
        # NaN differs from itself, and NaT is the least integer: elements with these are in no group.
        counts = " && values[at] == values[at]" if values.kind == "f" else ""
        counts = f" && values[at] != {literal(np.iinfo(values).min, values)}" if is_date else counts
        code = encoded("v", values)
        # -0.0 and 0.0 tie, so their encodings must not differ.
        value = "values[i] == 0 ? 0 : values[i]" if values.kind == "f" else "values[i]"
        parts["words"] = (
            f"const {c_name(values)} *values, {word} *words, uint *positions",
            # Complements sort in descending order; reversing the result would reverse ties as well.
            f"const {c_name(values)} v = {value}; "
            f"words[i] = {'~' if descending else ''}({word}){code}; positions[i] = i",
            "clhist_words_of_values",
        )
    parts["groups"] = (
        f"const {key} *keys, {parameter}uint *groups, uint *positions, const uint none",
        f"const ulong at = {at}; groups[i] = (ulong)keys[at] < none{counts} ? (uint)keys[at] : none; {number}",
        "clhist_groups_of_elements",
    )
    parts["ends"] = (
        "const uint *groups, uint *begins, uint *ends",
        "if (i == 0 || groups[i] != groups[i - 1]) begins[groups[i]] = i; "
        "if (i + 1 == size || groups[i] != groups[i + 1]) ends[groups[i]] = i + 1",
        "clhist_ends_of_groups",
    )
    return dict(zip(parts, Elementwise.together(context, [*parts.values()]), strict=True))


@kept_by_context
def _offsets(context: cl.Context) -> Elementwise:
    """Return the kernel that finds where each key begins in sorted keys, and how many elements it has."""
    return Elementwise(
        context,
        "const uint *keys, long *counts, long *offsets, const uint number",
        "const uint begin = clhist_lower_bound(keys, number, (uint)i); offsets[i] = begin; "
        "if (i + 1 < size) counts[i] = clhist_lower_bound(keys, number, (uint)i + 1) - begin",
        "clhist_offsets_of_keys",
        """uint clhist_lower_bound(__global const uint *keys, const uint number, const uint key)
{
    uint low = 0;
    for (uint high = number; low < high;) {
        const uint middle = low + (high - low) / 2;
        if (keys[middle] < key) low = middle + 1; else high = middle;
    }
    return low;
}
""",
    )


@kept_by_context
def _positions(context: cl.Context) -> Elementwise:
    return Elementwise(
        context, "const uint *positions, long *order", "order[i] = positions[i]", "clhist_order_of_positions"
    )


@kept_by_context
def _placing(context: cl.Context) -> Elementwise:
    return Elementwise(
        context,
        "const uint *groups, const uint *positions, const uint *begins, const uint *ends, long *places, "
        "const uint none, const int ascending",
        "const uint g = groups[i]; "
        "places[positions[i]] = g == none ? -1 : ascending ? i - begins[g] : (long)ends[g] - 1 - i",
        "clhist_places_in_groups",
    )


@kept_by_context
def _runs(context: cl.Context) -> Scan:
    """Return the scan that numbers runs of equal elements: it replaces the marks of first elements by run numbers."""
    output = "if (runs[i]) firsts[item - 1] = i; if (i + 1 == size) firsts[item] = size; runs[i] = item - 1;"
    return Scan(context, ScanSpec("runs", "uint *runs, uint *firsts", "uint", 4, "runs[i]", "a + b", "0", output))


@kept_by_context
def _ranking(context: cl.Context, values: np.dtype, method: str, pct: bool, real: np.dtype) -> list[Elementwise]:
    mark = (
        f"const uint *groups, const uint *positions, const {c_name(values)} *values, uint *runs",
        "runs[i] = i == 0 || groups[i] != groups[i - 1] || values[positions[i]] != values[positions[i - 1]]",
        "clhist_begins_of_runs",
    )
    number, kind = c_name(real), _RANK_TEXTS[method].format(real=c_name(real))
    of_all = "runs[end - 1] - runs[begin] + 1" if method == "dense" else "end - begin"
    rank = (
        "const uint *groups, const uint *positions, const uint *begins, const uint *ends, const uint *runs, "
        f"const uint *firsts, {number} *found, const uint none",
        f"""const uint g = groups[i], begin = begins[g], end = ends[g], run = runs[i];
        const {number} low = firsts[run] - begin + 1, high = firsts[run + 1] - begin;
        const {number} dense = run - runs[begin] + 1;
        found[positions[i]] = g == none ? NAN : ({number})({kind}){f" / ({of_all})" if pct else ""}""",
        "clhist_rank_in_groups",
    )
    return Elementwise.together(context, [mark, rank])


@kept_by_context
def _nth(context: cl.Context, values: np.dtype) -> Elementwise:
    value = c_name(values)
    return Elementwise(
        context,
        f"const uint *positions, const uint *begins, const uint *ends, const {value} *values, {value} *found, "
        f"const long n, const {value} none",
        "const long at = n < 0 ? ends[i] + n : begins[i] + n; "
        "found[i] = at < begins[i] || at >= ends[i] ? none : values[positions[at]]",
        "clhist_nth_of_groups",
    )
