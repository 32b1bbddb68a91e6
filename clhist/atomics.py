"""Which update an operator gets: the one table of hardware atomics, and the choice (SC'20, section III-B).

From the most to the least efficient: ``private`` (a work-item owns its copy: no atomic), ``native`` (a hardware atomic;
HDW in the paper), ``cas`` (a loop of compare and exchange; CAS) and ``lock`` (a spinlock a bin; XCG).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import numpy as np

from clhist.operator import Operator, Part

UPDATES = ("private", "native", "cas", "lock")
STRATEGIES = (*UPDATES, "sort")  # what a caller may ask for: sorting the pairs takes the place of updating bins
MEMORIES = ("local", "global")

# What a device may have besides OpenCL C 1.2 with its 32-bit atomics.
FEATURES = {
    "int64_base_atomics": "64-bit add, exchange and compare-exchange (cl_khr_int64_base_atomics)",
    "int64_extended_atomics": "64-bit min, max, and, or, xor (cl_khr_int64_extended_atomics)",
    "fp64": "double precision (cl_khr_fp64)",
    "nvidia_ptx": "inline PTX: atomic add of float32 and float64, device-wide fence",
    "amd_fence": "AMD's device-wide fence (__builtin_amdgcn_fence)",
}


@dataclass(frozen=True)
class NativeAtomic:
    """One row of the table.

    Attributes
    ----------
    code : str
        C statement of a pointer `p` to the word and an operand `v`, both of C type `word`.
    word : str
        C type of the word that is updated.
    feature : str or None
        What the device must have; None if every OpenCL 1.1 device has it.
    """

    code: str
    word: str
    feature: str | None


_EXTENDED = {
    "minimum": "min",
    "maximum": "max",
    "bitwise_and": "and",
    "bitwise_or": "or",
    "bitwise_xor": "xor",
}


def native_atomic(operation: str | None, dtype: np.dtype, memory: str) -> NativeAtomic | None:
    """Return the hardware atomic for `operation` on `dtype` in `memory` that some device has, or None.

    Parameters
    ----------
    operation : str or None
        NumPy's name of it, as `clhist.recognition.recognise` gives it.
    dtype : numpy.dtype
        Type of the accumulators.
    memory : {"local", "global"}
        Where the copies are.
    """
    if operation is None or dtype.names is not None:
        return None
    if dtype.kind in "iu" and dtype.itemsize in (4, 8):
        wide = dtype.itemsize == 8
        sign = "" if dtype.kind == "i" else "u"
        word = sign + ("long" if wide else "int")
        prefix = "atom" if wide else "atomic"  # the names of cl_khr_int64_*, and those of the core
        if operation == "add":
            return NativeAtomic(f"{prefix}_add(p, v);", word, "int64_base_atomics" if wide else None)
        if operation in _EXTENDED:
            feature = "int64_extended_atomics" if wide else None
            return NativeAtomic(f"{prefix}_{_EXTENDED[operation]}(p, v);", word, feature)
    if operation == "add" and dtype in (np.dtype(np.float32), np.dtype(np.float64)):
        space = "shared" if memory == "local" else "global"
        bits, constraint, word = (32, "f", "float") if dtype.itemsize == 4 else (64, "d", "double")
        return NativeAtomic(
            f'__asm__ volatile("red.{space}.add.f{bits} [%0], %1;" :: "l"(p), "{constraint}"(v) : "memory");',
            word,
            "nvidia_ptx",
        )
    return None


def available_updates(operator: Operator, memory: str, features: Collection[str]) -> tuple[str, ...]:
    """Return the updates that can serve every part of `operator` when work-items share a copy, best first.

    Parameters
    ----------
    operator : Operator
        The combining operator.
    memory : {"local", "global"}
        Where the copies are.
    features : collection of str
        What the device has, of `FEATURES`.

    Returns
    -------
    tuple of str
        Of ``"native"``, ``"cas"`` and ``"lock"``; the last is always there.
    """
    each = [_updates_of(part, memory, features) for part in operator.parts]
    return tuple(update for update in UPDATES if all(update in updates for updates in each))


def choose_updates(
    operator: Operator, memory: str, features: Collection[str], forced: str | None = None
) -> tuple[str, ...]:
    """Return the update of each part of `operator` when work-items share a copy: the best available, or the forced one.

    Raises
    ------
    ValueError
        If `forced` is not an update, or is one that this operator cannot have on this device.
    """
    if forced is None:
        return tuple(_updates_of(part, memory, features)[0] for part in operator.parts)
    if forced not in UPDATES:
        raise ValueError(f"update: expected one of {', '.join(STRATEGIES)}, got {forced!r}")
    available = available_updates(operator, memory, features)
    if forced != "private" and forced not in available:
        raise ValueError(
            f"update: {forced!r} is not available for {operator.name} on {operator.accumulator} in {memory} "
            f"memory on this device; available: {', '.join(('private', *available))}"
        )
    return (forced,) * len(operator.parts)


def slowest(updates: Iterable[str]) -> str:
    """Return the least efficient of `updates`."""
    return max(updates, key=UPDATES.index)


def _updates_of(part: Part, memory: str, features: Collection[str]) -> tuple[str, ...]:
    found = []
    native = native_atomic(part.operation, part.dtype, memory)
    if native is not None and (native.feature is None or native.feature in features):
        found.append("native")
    if part.cell_bytes == 4 or (part.cell_bytes == 8 and "int64_base_atomics" in features):
        found.append("cas")
    return (*found, "lock")
