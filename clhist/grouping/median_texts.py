"""C of the kernels that find medians of groups: one text with two recipes, for GPUs and for CPUs. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from clhist import operators
from clhist.operators.c_types import c_name
from clhist.operators.equivalents import decoded, encoded
from clhist.operators.operator import Operator


@dataclass(frozen=True)
class Recipe:
    """Where the counts of digits lie, and how the next value above the middle one is found.

    Attributes
    ----------
    bin : str
        C of the bin of a digit of group `g`, with ``{digit}`` for C of the digit.
    first : str
        C declared before the counts of group `i` are read.
    at : str
        C of the place of the count of digit `d` of group `i`.
    takes_groups : bool
        Whether `first` or `at` needs `groups`, the number of groups.
    next_above : callable
        The operator, for a dtype, of what `emit` emits.
    emit : str
        C run for each value of key `k` in group `g` whose middle value has the key ``found[g]``.
    above : str
        C that makes the key of the next value above of ``found[i]`` and ``above[i]``, the result of these.
    """

    bin: str
    first: str
    at: str
    takes_groups: bool
    next_above: Callable[[np.dtype], Operator]
    emit: str
    above: str


GPU = Recipe(
    bin="((long)g << bits) + {digit}",
    first="first = (long)i << bits, ",
    at="first + d",
    takes_groups=False,
    next_above=operators.minimum,
    emit="if (k > found[g]) EMIT0(g, k); ",
    above="above[i]",
)

# Most values share a few digits: where the bins of a digit are neighbours, these few are in the cache. Half of the
# values are above the middle, in no order, and a branch would be mispredicted: modulo 2^32 or 2^64 `found[g] - k` is
# largest for the next value above, and small for all that are not above. (A minimum of `k - found[g] - 1` of 64 bits
# crashes the compiler of Intel's runtime.)
CPU = Recipe(
    bin="{digit} * groups + g",
    first="",
    at="i + d * groups",
    takes_groups=True,
    next_above=operators.maximum,
    emit="EMIT0(g, found[g] - k); ",
    above="found[i] - above[i]",
)


@dataclass(frozen=True)
class Texts:
    """C of the kernels: a map or body of each, and its arguments."""

    digits_arguments: str
    digits: str
    following_arguments: str
    following: str
    choose_arguments: str
    choose: str
    finish_arguments: str
    finish: str


def key_type(dtype: np.dtype) -> np.dtype:
    """Return the unsigned integers in the order of the values."""
    return np.dtype(np.uint64 if dtype.itemsize == 8 else np.uint32)


def texts(group: np.dtype, dtype: np.dtype, result: np.dtype, recipe: Recipe, *, nan: bool) -> Texts:
    """Return the C for keys of groups of dtype `group`, values of `dtype` and medians of `result`.

    `nan` says whether a NaN makes the median of its group NaN, rather than being no value.
    """
    unsigned, ones = c_name(key_type(dtype)), f"({c_name(key_type(dtype))})-1"
    value, back = encoded("v", dtype), decoded("k", dtype)
    if dtype.kind == "f":
        value = f"(v != v ? {ones} : {value})"  # no number has this key
    keep = "" if nan or dtype.kind != "f" else " && v == v"
    arguments = (
        f"const {c_name(group)} *keys, const {c_name(dtype)} *values, const {unsigned} *found, const long groups"
    )
    start = (
        f"const {c_name(group)} g = keys[i]; const {c_name(dtype)} v = values[i]; "
        f"if (g >= 0 && g < groups{keep}) {{ const {unsigned} k = {value}; "
    )
    place = recipe.bin.format(digit=f"(long)(k >> shift & (((({unsigned})1) << bits) - 1))")
    return Texts(
        digits_arguments=f"{arguments}, const uint shift, const uint bits, const int whole",
        digits=f"{start}if (whole || k >> shift >> bits == found[g]) EMIT({place}, 1); }}",
        following_arguments=arguments,
        following=f"{start}{recipe.emit}{'EMIT1(g, k); ' if nan else ''}}}",
        choose_arguments=f"const uint *counts, {unsigned} *found, long *rank, long *size, uint *equal, uint bits, "
        f"int whole{', long groups' if recipe.takes_groups else ''}",
        choose=f"""
            const long {recipe.first}last = (1l << bits) - 1;
            if (whole) {{
                for (long d = 0; d <= last; ++d) size[i] += counts[{recipe.at}];
                rank[i] = (size[i] - 1) / 2;
            }}
            long left = rank[i], d = 0;
            for (; d < last && left >= counts[{recipe.at}]; ++d) left -= counts[{recipe.at}];
            rank[i] = left;
            equal[i] = counts[{recipe.at}];
            found[i] = (whole ? 0 : found[i] << bits) | d;
            """,
        finish_arguments=f"const {unsigned} *found, const {unsigned} *above, const {unsigned} *top, const long *rank, "
        f"const long *size, const uint *equal, {c_name(result)} *medians",
        finish=f"""
            const {unsigned} higher = rank[i] + 1 < equal[i] ? found[i] : {recipe.above};
            {unsigned} k = found[i];
            const {c_name(result)} low = {back};
            k = size[i] % 2 ? k : higher;
            const {c_name(result)} high = {back};
            const int missing = size[i] == 0{f" || top[i] == {ones}" if nan else ""};
            medians[i] = missing ? NAN : low == high ? low : (low + high) / 2;
            """,
    )
