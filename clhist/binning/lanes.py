"""The bins of eight elements at once, for CPUs: the functions of `clhist.binning.axis` on vectors.

Compilers for CPUs do not make vectors of a loop that updates bins. So a kernel finds the bins of a block of elements
first, without a branch, and updates them one after the other then.
"""

from __future__ import annotations

from clhist.binning.axis import EVEN, LINEAR, AxisKind, bits_of, key_of_bits
from clhist.binning.keys import bits_dtype, key_dtype
from clhist.operators.c_types import c_name

LANES = 8
BLOCK = 32  # elements

_HEAD = "int{w} {name}(const {bits}{w} bits, {parameters})\n{{"

_TABLE = """
    const {key}{w} key = {key_of};
    const int{w} cell = {cell};
    int{w} k = {cells};
    {search}
    return select((int{w})(-1), min(k, num_bins - 1), {inside});
}}
"""

# Where all eight lie well within their guessed bins there is nothing to compare with.
_EVEN = """
    const float{w} guess = {guess};
    const int{w} k = convert_int{w}(guess);
    const float{w} part = guess - convert_float{w}(k);
    if (all(guess > 0.0f && guess < (float)num_bins && part > margin && part < 1.0f - margin)) return k;
    {bits} each[{w}];
    int found[{w}];
    vstore{w}(bits, 0, each);
    for (int n = 0; n < {w}; ++n) found[n] = {one}(each[n], {given});
    return vload{w}(0, found);
}}
"""


def has_lanes(axis: AxisKind) -> bool:
    """Whether there is such a function: for numbers of 32 and 64 bits that kernels get as they are."""
    return axis.dtype.itemsize >= 4 and axis.data.kind in "iuf"


def find_function(axis: AxisKind) -> str:
    """Return C of the function that finds the bins of eight elements; that of one element comes before it."""
    key, bits = key_dtype(axis.dtype), bits_dtype(axis.dtype)
    wide = key.itemsize == 8
    unsigned = f"u{c_name(key).removeprefix('u')}"
    names = axis.parameter_names
    types = {
        "w": LANES,
        "name": f"{axis.name}_lanes",
        "one": axis.name,
        "bits": c_name(bits),
        "key": c_name(key),
        "parameters": axis.declared_parameters(),
        "given": ", ".join(names),
        "key_of": _key_of(axis),
        "guess": _guess(axis, unsigned),
    }
    if axis.kind == EVEN:
        return (_HEAD + _EVEN).format(**types)
    if axis.kind == LINEAR:
        cell = f"clamp(convert_int{LANES}({types['guess']}), 0, num_cells - 1)"
    else:
        offset = f"as_{unsigned}{LANES}(clamp(key, start, last)) - ({unsigned})start"
        cell = f"convert_int{LANES}(({offset}) >> ({unsigned})shift)"
    types |= {
        "cell": cell,
        "cells": _gathered("int", "cells", "cell"),
        "search": "\n    ".join(_step(c_name(key), 2**s, wide) for s in reversed(range(axis.steps))),
        "inside": _mask("key >= start && key <= last", wide),
    }
    return (_HEAD + _TABLE).format(**types)


def call(axis: AxisKind, array: str, first: str, n: int) -> str:
    """Return C that finds the bins of the eight elements of `array` from `first`, on axis `n`."""
    loaded = bits_of(f"vload{LANES}(0, {array} + {first})", axis.data, LANES)
    return f"{axis.name}_lanes({loaded}, {axis.given(n)})"


def _key_of(axis: AxisKind) -> str:
    return key_of_bits(axis.dtype)  # of 32 and 64 bits keys have the type of the bits


def _guess(axis: AxisKind, unsigned: str) -> str:
    if axis.dtype.kind == "f":
        value = "double" if axis.dtype.itemsize == 8 else "float"
        return f"convert_float{LANES}((as_{value}{LANES}(bits) - low) * scale)"
    return f"(convert_float{LANES}(as_{unsigned}{LANES}(bits) - ({unsigned})low) + 0.5f) * scale"


def _gathered(kind: str, array: str, index: str) -> str:
    return f"({kind}{LANES})({', '.join(f'{array}[{index}.s{n:x}]' for n in range(LANES))})"


def _step(key: str, step: int, wide: bool) -> str:
    edges = _gathered(key, "keys", "at")
    return f"{{ const int{LANES} at = k + {step}; k -= {step} * {_mask(f'key >= {edges}', wide)}; }}"


def _mask(condition: str, wide: bool) -> str:
    return f"convert_int{LANES}({condition})" if wide else f"({condition})"
