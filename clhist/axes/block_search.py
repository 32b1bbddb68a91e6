"""The bins of a block of elements at once, for CPUs.

Compilers for CPUs do not make vectors of a loop that updates bins. So a kernel finds the bins of a block of elements
first, without a branch, and updates them one after the other then. Bins of one width are found by a loop that compilers
make vectors of, the few elements near an edge after it; bins of a table by such a loop that finds cells.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np

from clhist._core.elements import bits_of, key_of_bits
from clhist._core.keys import bits_dtype, key_dtype
from clhist.operators.c_types import c_name

EVEN, LINEAR, KEYED = "even", "linear", "keyed"  # guesses, see `clhist.axes.edges`
# Elements of a block: memory works while their bins are computed. Note [Blocks of 128 elements], docs/decisions/0028.
BLOCK = 128
# Elements ahead that are prefetched: a page or two, since hardware prefetchers stop at a page.
_AHEAD = 1024
ABSENT, UNSURE = "-1", -2
# Unrolled by Intel's compiler before it makes vectors, such a loop reads and writes every fourth number.
LOOP = '_Pragma("clang loop unroll(disable)") for (int e = 0; e < length; ++e)'

# Of float64 PoCL's compiler would take four elements at a time.
_WIDE = "#pragma clang loop vectorize_width(16)"

# Of bins of one width: a guess that is sure, what is clearly outside, or UNSURE. A guess below `-margin` is one of a
# number below all bins, since guesses of floats grow with the number; those of integers begin again.
_QUICK = {
    "f": """
int quick_{name}(const {bits} bits, {parameters}, const int first, const int below, const int above)
{{
    const float guess = {one_guess};
    const float within = guess > 0 ? (guess < num_bins ? guess : 0) : 0;  // 0 of NaN, too
    const int k = (int)within;
    const float part = within - k;
    const int found = ((part > margin) & (part < 1 - margin)) ? k + first : {unsure};
    return guess > num_bins + margin ? above : (guess < -margin ? below : found);
}}
""",
    "iu": """
int quick_{name}(const {bits} bits, {parameters}, const int first, const int below, const int above)
{{
    const {key} key = bits;
    const float guess = {one_guess};
    const float within = guess < num_bins ? guess : 0;
    const int k = (int)within;
    const float part = within - k;
    const int found = ((part > margin) & (part < 1 - margin)) ? k + first : {unsure};
    return key > last ? above : (key < start ? below : found);
}}
""",
}

# Of a table: cells in a loop that compilers make vectors of, then what lies in these. There are no calls, not even of
# `min` or `clamp`, which PoCL as PyPI has it does not inline.
_TABLE = """{{
    {key} numbers[{block}];
    {wide}
    {loop} {{
        const {bits} bits = {loaded};
        const {key} key = {key_of};
        {cell}
        numbers[e] = key;
        {target}[e] = {result};
    }}
    {loop} {{
        const {key} key = numbers[e];
        {search}
    }}
    {then}
}}"""
_LINEAR_CELL = """const float guess = {guess}, top = num_cells - 1, positive = guess > 0 ? guess : 0;
        const int cell = (int)(positive < top ? positive : top);"""
_KEYED_CELL = """const {key} within = key > start ? (key < last ? key : last) : start;
        const int cell = (int)((({unsigned})within - ({unsigned})start) >> shift);"""
# Of a packed table, by the bytes of a key: what is loaded, the bin and the limit in it.
_PACKED = {
    4: ("cells[{target}[e]]", "(int)entry", "(entry >> 32)"),
    8: ("cells[2 * {target}[e] + 1]", "(int)cells[2 * {target}[e]]", "entry"),
}


class Edges(Protocol):
    """The part of `clhist.axes.edges.EdgesKind` that the search by blocks uses."""

    @property
    def dtype(self) -> np.dtype: ...
    @property
    def kind(self) -> str: ...
    @property
    def packed(self) -> bool: ...
    @property
    def data(self) -> np.dtype: ...
    @property
    def name(self) -> str: ...
    @property
    def parameter_names(self) -> tuple[str, ...]: ...
    def declared_parameters(self) -> str: ...
    def call_arguments(self, n: int | str) -> str: ...
    def search(self) -> list[str]: ...
    def call(self, element: str, n: int) -> str: ...


def supports(axis: Edges) -> bool:
    """Whether the search by blocks supports this axis: 32- and 64-bit types native to the device."""
    return axis.dtype.itemsize >= 4 and axis.data.kind in "iuf"


def functions(axis: Edges) -> tuple[str, ...]:
    """Return C of the functions that `edges_block` calls; those of one element come before it."""
    if axis.kind != EVEN:
        return ()
    key, bits = key_dtype(axis.dtype), bits_dtype(axis.dtype)
    text = next(text for kinds, text in _QUICK.items() if axis.dtype.kind in kinds)
    types = {
        "name": axis.name,
        "bits": c_name(bits),
        "key": c_name(key),
        "unsure": UNSURE,
        "parameters": axis.declared_parameters(),
        "one_guess": _guess(axis),
    }
    return (text.format(**types),)


def ahead_of(arrays: Iterable[str]) -> str:
    """Return C that asks memory for what later blocks read of these arrays, about element `i`."""
    return " ".join(f"CLHIST_AHEAD({array} + i + {_AHEAD});" for array in dict.fromkeys(arrays))


def edges_block(axis: Edges, array: str, n: int, target: str, absent: str = ABSENT) -> str:
    """Return C that makes ``target[e]`` the bin on axis `n` of element ``begin + e`` of `array`, or `absent`."""
    if axis.kind == EVEN:
        return quick_block(axis, array, n, target, axis.call(f"{array}[begin + e]", n), absent)
    return table_block(axis, array, n, target) + with_absent(target, absent)


def table_block(axis: Edges, array: str, n: int, target: str, then: str = "") -> str:
    """Return the same for bins of a table, -1 for none; `then` is C that may use the keys, `numbers`."""
    key = key_dtype(axis.dtype)
    types = {"key": c_name(key), "unsigned": _unsigned(axis), "guess": _guess(axis)}
    inside = "((key >= start) & (key <= last))"
    if axis.packed:
        # Entry 0 is for what lies outside; the entries of cells follow.
        result = f"{inside} ? cell + 1 : 0"
        entry, k, limit = _PACKED[key.itemsize]
        search = f"const long entry = {entry}; {target}[e] = {k} + (key > ({types['key']}){limit});"
    else:
        # Keys outside have a clamped cell, so that every load is valid; their bin becomes -1 at the end.
        result = "cell"
        search = f"""int k = cells[{target}[e]];
        {" ".join(axis.search())}
        k = k < num_bins ? k : num_bins - 1;
        {target}[e] = {inside} ? k : -1;"""
    text = _TABLE.format(
        **types,
        block=BLOCK,
        wide=_WIDE,
        loop=LOOP,
        bits=c_name(bits_dtype(axis.dtype)),
        loaded=bits_of(f"{array}[begin + e]", axis.data),
        key_of=key_of_bits(axis.dtype),
        target=target,
        cell=(_LINEAR_CELL if axis.kind == LINEAR else _KEYED_CELL).format(**types),
        result=result,
        search=search.format(target=target),
        then=then,
    )
    # Each parameter gets the number of its axis, since one kernel may have several.
    return re.sub(rf"\b({'|'.join(axis.parameter_names)})\b", rf"\g<1>{n}", text)


def with_absent(target: str, absent: str) -> str:
    """Return C that makes each bin that is negative `absent`."""
    return "" if absent == ABSENT else f"\n{LOOP} {target}[e] = {_or_absent(f'{target}[e]', absent)};"


def _or_absent(bin: str, absent: str) -> str:
    return bin if absent == ABSENT else f"({bin} < 0 ? {absent} : {bin})"


def quick_block(
    axis: Edges,
    array: str,
    n: int,
    target: str,
    call: str,
    absent: str = ABSENT,
    numbers: tuple[str, str, str] = ("0", ABSENT, ABSENT),
) -> str:
    """Return the same for bins of one width.

    Parameters
    ----------
    axis, array, n, target, absent
        As of `edges_block`.
    call : str
        C of the bin of one element, where the guess is not sure.
    numbers : tuple of str
        C of the number of the first bin, and of those of what lies below and above all.
    """
    passed = ", ".join([numbers[0], *(_or_absent(number, absent) for number in numbers[1:])])
    quick = f"quick_{axis.name}({bits_of(f'{array}[begin + e]', axis.data)}, {axis.call_arguments(n)}, {passed})"
    return f"""{{
    int unsure = 0;
    {_WIDE}
    {LOOP} {{
        {target}[e] = {quick};
        unsure |= {target}[e] == {UNSURE};
    }}
    if (unsure) {LOOP}
        if ({target}[e] == {UNSURE}) {{ const int k = {call}; {target}[e] = {_or_absent("k", absent)}; }}
}}"""


# Of bins of one width with bins below and above, numbered in order. What lies outside is moved to the middle of a bin
# there; `off` is how far a number is from the middle of its bin, as an integer of the same order.
_STEP = """{{
            const {bits} bits = {loaded};
            const float guess = {one_guess};
            const float at_most = guess < top{n} ? guess : top{n};  // of NaN as well
            const float place = (at_most > -0.5f ? at_most : -0.5f) + 1;
            const int k = (int)place;
            const int off = as_int(place - k - 0.5f) & 0x7fffffff;
            farthest{n} = off > farthest{n} ? off : farthest{n};
            bin = bin * size{n} + k + below{n};
        }}"""


def joint_block(axes: Sequence[Edges], careful: str) -> str:
    """Return C that makes ``bins[e]`` the bin of element ``begin + e`` on all axes together.

    Parameters
    ----------
    axes : sequence of Edges
        Of floats, with bins of one width; below and above them are bins, too.
    careful : str
        C that does the same where a guess is not sure, or where an axis lacks these bins.
    """
    numbers = range(len(axes))
    # Indices of bins ascend: below, the inner ones, above. NaN must have the bin above, too.
    in_order = " & ".join(
        f"(below{n} >= 0) & (first{n} == below{n} + 1) & (above{n} == first{n} + num_bins{n}) & (none{n} == above{n})"
        for n in numbers
    )
    declared = " ".join(f"const float top{n} = num_bins{n} + 0.5f; int farthest{n} = 0;" for n in numbers)
    steps = "\n        ".join(
        _STEP.format(
            n=n,
            bits=c_name(bits_dtype(axis.dtype)),
            loaded=bits_of(f"x{n}[begin + e]", axis.data),
            one_guess=re.sub(r"\b(low|scale)\b", rf"\g<1>{n}", _guess(axis)),
        )
        for n, axis in enumerate(axes)
    )
    # One element near an edge makes the whole block take the careful way.
    sure = " & ".join(f"(farthest{n} < as_int(0.5f - margin{n}))" for n in numbers)
    return f"""int sure = {in_order};
if (sure) {{
    {declared}
    {_WIDE}
    {LOOP} {{
        int bin = 0;
        {steps}
        bins[e] = bin;
    }}
    sure = {sure};
}}
if (!sure) {{
{careful}
}}"""


def _guess(axis: Edges) -> str:
    if axis.dtype.kind == "f":
        value = "double" if axis.dtype.itemsize == 8 else "float"
        return f"(float)((as_{value}(bits) - low) * scale)"
    unsigned = _unsigned(axis)
    return f"((float)(({unsigned})bits - ({unsigned})low) + 0.5f) * scale"


def _unsigned(axis: Edges) -> str:
    return c_name(np.dtype(f"u{key_dtype(axis.dtype).itemsize}"))
