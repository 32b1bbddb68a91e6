"""The bins of a block of elements at once, for CPUs.

Compilers for CPUs do not make vectors of a loop that updates bins. So a kernel finds the bins of a block of elements
first, without a branch, and updates them one after the other then. Bins of one width are found by a loop that compilers
make vectors of, the few elements near an edge after it; bins of a table by functions on vectors of eight.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from clhist.binning.axis import EVEN, LINEAR, AxisKind, bits_of, key_of_bits
from clhist.binning.keys import bits_dtype, key_dtype
from clhist.operators.c_types import c_name

LANES = 8
BLOCK = 128  # elements: memory has something to do while they are computed with (docs/notebook/performance.md)
_AHEAD = 512  # elements that memory is asked for before they are read
ABSENT, UNSURE = "-1", -2
FEW = 16  # bins of a table: elements are compared with each of their edges instead
DROPPED = -FEW - 1
LOOP = "for (int e = 0; e < length; ++e)"

# Nothing is read while a block is counted, so later ones are asked for: without this memory has nothing to do.
AHEAD = """
#ifdef __clang__
#pragma clang diagnostic ignored "-Wpass-failed"  // where a loop is not made of vectors
#endif
#if defined(__has_builtin) && !defined(CLHIST_CHECKED)  // Oclgrind has none
#if __has_builtin(__builtin_prefetch)
#define CLHIST_AHEAD(p) __builtin_prefetch(p)
#endif
#endif
#ifndef CLHIST_AHEAD
#define CLHIST_AHEAD(p) ((void)0)
#endif
"""

# Of float64 PoCL's compiler would take four elements at a time.
_WIDE = "#pragma clang loop vectorize_width(16)"

_HEAD = "int{w} {name}(const {bits}{w} bits, {parameters})\n{{"

_TABLE = """
    const {key}{w} key = {key_of};
    const int{w} cell = {cell};
    int{w} k = {cells};
    {search}
    return select((int{w})(-1), min(k, num_bins - 1), {inside});
}}
"""

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


def has_lanes(axis: AxisKind) -> bool:
    """Whether there is such a function: for numbers of 32 and 64 bits that kernels get as they are."""
    return axis.dtype.itemsize >= 4 and axis.data.kind in "iuf"


def block_function(axis: AxisKind) -> str:
    """Return C of the function that `find_block` calls; that of one element comes before it."""
    key, bits = key_dtype(axis.dtype), bits_dtype(axis.dtype)
    wide = key.itemsize == 8
    unsigned = f"u{c_name(key).removeprefix('u')}"
    types: dict[str, Any] = {
        "w": LANES,
        "name": axis.name,
        "bits": c_name(bits),
        "key": c_name(key),
        "unsure": UNSURE,
        "parameters": axis.declared_parameters(),
        "key_of": _key_of(axis),
        "guess": _guess(axis, unsigned),
    }
    if axis.kind == EVEN:
        text = next(text for kinds, text in _QUICK.items() if axis.dtype.kind in kinds)
        return text.format(one_guess=_one_guess(axis, unsigned), **types)
    if axis.kind == LINEAR:
        cell = f"clamp(convert_int{LANES}({types['guess']}), 0, num_cells - 1)"
    else:
        offset = f"as_{unsigned}{LANES}(clamp(key, start, last)) - ({unsigned})start"
        cell = f"convert_int{LANES}(({offset}) >> ({unsigned})shift)"
    types |= {
        "name": f"{axis.name}_lanes",
        "cell": cell,
        "cells": _gathered("int", "cells", "cell"),
        "search": "\n    ".join(_step(c_name(key), 2**s, wide) for s in reversed(range(axis.steps))),
        "inside": _mask("key >= start && key <= last", wide),
    }
    if axis.packed:
        types["cells"] = f"convert_int{LANES}(entry)"
        types["cell"] += f";\n    const long{LANES} entry = {_gathered('long', 'cells', 'cell')}"
        types["search"] = f"k -= key >= convert_int{LANES}(entry >> 32);"
    return (_HEAD + _TABLE).format(**types)


def ahead_of(arrays: Iterable[str]) -> str:
    """Return C that asks memory for what later blocks read of these arrays, about element `i`."""
    return " ".join(f"CLHIST_AHEAD({array} + i + {_AHEAD});" for array in dict.fromkeys(arrays))


def find_block(axis: AxisKind, array: str, n: int, target: str, absent: str = ABSENT) -> str:
    """Return C that makes ``target[e]`` the bin on axis `n` of element ``begin + e`` of `array`, or `absent`."""
    found = axis.call(f"{array}[begin + e]", n)
    if axis.kind == EVEN:
        return quick_block(axis, array, n, target, found, absent)
    loaded = bits_of(f"vload{LANES}(0, {array} + begin + e)", axis.data, LANES)
    bits, key = bits_of(f"{array}[begin + e]", axis.data), c_name(key_dtype(axis.dtype))
    return f"""if (num_bins{n} <= {FEW}) {{
    {key} numbers[{BLOCK}];
    {_WIDE}
    {LOOP} {{
        const {c_name(bits_dtype(axis.dtype))} bits = {bits};
        numbers[e] = {key_of_bits(axis.dtype)};
        {target}[e] = (numbers[e] >= start{n}) & (numbers[e] <= last{n}) ? 0 : {DROPPED};
    }}
    for (int k = 1; k < num_bins{n}; ++k) {{
        const {key} edge = keys{n}[k];
        {_WIDE}
        {LOOP} {target}[e] += numbers[e] >= edge;
    }}
    {_WIDE}
    {LOOP} {target}[e] = max({target}[e], -1);
}} else {{
    int e = 0;
    for (; e + {LANES} <= length; e += {LANES})
        vstore{LANES}({axis.name}_lanes({loaded}, {axis.given(n)}), 0, {target} + e);
    for (; e < length; ++e) {target}[e] = {found};
}}{with_absent(target, absent)}"""


def with_absent(target: str, absent: str) -> str:
    """Return C that makes each bin that is negative `absent`."""
    return "" if absent == ABSENT else f"\n{LOOP} {target}[e] = {_or_absent(f'{target}[e]', absent)};"


def _or_absent(bin: str, absent: str) -> str:
    return bin if absent == ABSENT else f"({bin} < 0 ? {absent} : {bin})"


def quick_block(
    axis: AxisKind,
    array: str,
    n: int,
    target: str,
    found: str,
    absent: str = ABSENT,
    numbers: tuple[str, str, str] = ("0", ABSENT, ABSENT),
) -> str:
    """Return the same for bins of one width.

    Parameters
    ----------
    axis, array, n, target, absent
        As of `find_block`.
    found : str
        C of the bin of one element, where the guess is not sure.
    numbers : tuple of str
        C of the number of the first bin, and of those of what lies below and above all.
    """
    passed = ", ".join([numbers[0], *(_or_absent(number, absent) for number in numbers[1:])])
    quick = f"quick_{axis.name}({bits_of(f'{array}[begin + e]', axis.data)}, {axis.given(n)}, {passed})"
    return f"""{{
    int unsure = 0;
    {_WIDE}
    {LOOP} {{
        {target}[e] = {quick};
        unsure |= {target}[e] == {UNSURE};
    }}
    if (unsure) {LOOP}
        if ({target}[e] == {UNSURE}) {{ const int k = {found}; {target}[e] = {_or_absent("k", absent)}; }}
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


def joint_block(axes: Sequence[AxisKind], careful: str) -> str:
    """Return C that makes ``bins[e]`` the bin of element ``begin + e`` on all axes together.

    Parameters
    ----------
    axes : sequence of AxisKind
        Of floats, with bins of one width; below and above them are bins, too.
    careful : str
        C that does the same where a guess is not sure, or where an axis lacks these bins.
    """
    numbers = range(len(axes))
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
            one_guess=re.sub(r"\b(low|scale)\b", rf"\g<1>{n}", _one_guess(axis, "")),
        )
        for n, axis in enumerate(axes)
    )
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


def _key_of(axis: AxisKind) -> str:
    return key_of_bits(axis.dtype)  # of 32 and 64 bits keys have the type of the bits


def _guess(axis: AxisKind, unsigned: str) -> str:
    if axis.dtype.kind == "f":
        value = "double" if axis.dtype.itemsize == 8 else "float"
        return f"convert_float{LANES}((as_{value}{LANES}(bits) - low) * scale)"
    return f"(convert_float{LANES}(as_{unsigned}{LANES}(bits) - ({unsigned})low) + 0.5f) * scale"


def _one_guess(axis: AxisKind, unsigned: str) -> str:
    if axis.dtype.kind == "f":
        value = "double" if axis.dtype.itemsize == 8 else "float"
        return f"(float)((as_{value}(bits) - low) * scale)"
    return f"((float)(({unsigned})bits - ({unsigned})low) + 0.5f) * scale"


def _gathered(kind: str, array: str, index: str) -> str:
    return f"({kind}{LANES})({', '.join(f'{array}[{index}.s{n:x}]' for n in range(LANES))})"


def _step(key: str, step: int, wide: bool) -> str:
    edges = _gathered(key, "keys", "at")
    return f"{{ const int{LANES} at = k + {step}; k -= {step} * {_mask(f'key >= {edges}', wide)}; }}"


def _mask(condition: str, wide: bool) -> str:
    return f"convert_int{LANES}({condition})" if wide else f"({condition})"
