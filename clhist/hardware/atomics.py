"""Which update an operator gets: the one table of hardware atomics, and the choice (SC'20, section III-B).

From the most to the least efficient: ``private`` (a work-item owns its copy: no atomic), ``native`` (a hardware atomic;
HDW in the paper), ``cas`` (a loop of compare and exchange; CAS) and ``lock`` (a spinlock a bin; XCG).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import product

import numpy as np

from clhist.hardware.vendors import FEATURES, MEMORIES, VENDOR_PATHS, NativeAtomic
from clhist.operators.operator import Operator, Part

UPDATES = ("private", "native", "cas", "lock")
REPLACEABLE = ("native", "cas")  # by the next, where a compiler refuses them
STRATEGIES = (*UPDATES, "sort")  # what a caller may ask for: sorting the pairs takes the place of updating bins
PLACES = (*MEMORIES, "partitioned")  # what a caller may ask for: copies in local memory of pairs that were partitioned


def _integer_rows() -> Iterator[NativeAtomic]:
    names = {"add": "add", "minimum": "min", "maximum": "max"}
    names |= {"bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor"}
    for (operation, name), kind, memory in product(names.items(), ("i4", "u4", "i8", "u8"), MEMORIES):
        dtype = np.dtype(kind)
        wide, word = dtype.itemsize == 8, "u" * (dtype.kind == "u")
        prefix = "atom" if wide else "atomic"  # the names of cl_khr_int64_*, and those of the core
        path = ("int64_base_atomics" if operation == "add" else "int64_extended_atomics") if wide else None
        yield NativeAtomic(
            operation, dtype, memory, f"{prefix}_{name}(p, v);", word + ("long" if wide else "int"), path
        )


NATIVE_ATOMICS = (*_integer_rows(), *(atomic for path in VENDOR_PATHS for atomic in path.atomics))
ALL_FEATURES = frozenset(FEATURES) | {atomic.feature for atomic in NATIVE_ATOMICS if atomic.feature is not None}


def native_atomic(
    operation: str | None, dtype: np.dtype, memory: str, features: Collection[str] = ALL_FEATURES
) -> NativeAtomic | None:
    """Return the hardware atomic for `operation` on `dtype` in `memory`, or None.

    Parameters
    ----------
    operation : str or None
        NumPy's name of it, as `clhist.operators.recognition.recognise` gives it.
    dtype : numpy.dtype
        Type of the accumulators.
    memory : {"local", "global"}
        Where the copies are.
    features : collection of str
        What the device has, of `ALL_FEATURES`; defaults to what some device has.
    """
    rows = _BY_KEY.get((operation or "", str(dtype), memory), ())
    return next((row for row in rows if row.feature is None or row.feature in features), None)


_BY_KEY: dict[tuple[str, str, str], list[NativeAtomic]] = {}
for _row in NATIVE_ATOMICS:
    _BY_KEY.setdefault((_row.operation, str(_row.dtype), _row.memory), []).append(_row)


def to_prove(features: Collection[str]) -> tuple[NativeAtomic, ...]:
    """Return the atomics that a device with these `features` may have, but must show that it has."""
    return tuple(row for row in NATIVE_ATOMICS if row.guard and row.path in features)


def native_table(features: Collection[str]) -> dict[tuple[str, str, str], str]:
    """Return by which way, of `FEATURES` or "core", a device has each (operation, dtype, memory) that it has."""
    found = {key: native_atomic(key[0], np.dtype(key[1]), key[2], features) for key in _BY_KEY}
    return {key: row.path or "core" for key, row in found.items() if row is not None}


def available_updates(operator: Operator, memory: str, features: Collection[str]) -> tuple[str, ...]:
    """Return the updates that can serve every part of `operator` when work-items share a copy, best first.

    Parameters
    ----------
    operator : Operator
        The combining operator.
    memory : {"local", "global"}
        Where the copies are.
    features : collection of str
        What the device has, of `ALL_FEATURES`.

    Returns
    -------
    tuple of str
        Of ``"native"``, ``"cas"`` and ``"lock"``; the last is always there.
    """
    each = [_updates_of(part, memory, features) for part in operator.parts]
    return tuple(update for update in UPDATES if all(update in updates for updates in each))


def choose_updates(
    operator: Operator,
    memory: str,
    features: Collection[str],
    forced: str | None = None,
    refused: Collection[tuple[str, str]] = (),
) -> tuple[str, ...]:
    """Return the update of each part of `operator` when work-items share a copy: the best available, or the forced one.

    `refused` are updates, each with its memory, that the compiler would not have.

    Raises
    ------
    ValueError
        If `forced` is not an update, or is one that this operator cannot have on this device.
    """
    if forced is None:
        each = (_updates_of(part, memory, features) for part in operator.parts)
        return tuple(next(u for u in updates if (u, memory) not in refused) for updates in each)
    if forced not in UPDATES:
        raise ValueError(f"update: expected one of {', '.join(STRATEGIES)}, got {forced!r}")
    available = available_updates(operator, memory, features)
    if forced != "private" and forced not in available:
        raise ValueError(
            f"update: {forced!r} is not available for {operator.name} on {operator.accumulator} in {memory} "
            f"memory on this device; available: {', '.join(('private', *available))}"
        )
    return (forced,) * len(operator.parts)


# Copies of a work-group beyond which none is faster, measured on an H200 (docs/performance.md): filling and combining
# them costs more than work-items that meet in a bin. 64-bit and float additions are loops in NVIDIA's local memory.
_ENOUGH_COPIES = {"private": 1, "looping": 128, "cas": 512, "lock": 256}
_ENOUGH_CELLS, _MOST_NATIVE_COPIES, _MOST_FAST_COPIES = 8192, 8, 32


def enough_copies(update: str, num_bins: int, *, loops: bool = False, read_bytes: int = 4) -> int:
    """Return how many copies of `num_bins` bins in a work-group's local memory are of use.

    `loops` says that the hardware atomic is a loop itself, see `part_loops`. Where less than four bytes are read for an
    update, as of an image, updates are what takes the time, and a bank for each of 32 neighbouring work-items pays.
    """
    if update == "native" and not loops:
        most = _MOST_NATIVE_COPIES if read_bytes >= 4 else _MOST_FAST_COPIES
        return max(1, min(most, _ENOUGH_CELLS // num_bins))
    return _ENOUGH_COPIES["looping" if update == "native" else update]


def part_loops(part: Part) -> bool:
    """Whether the hardware atomic for `part` is a loop in local memory: additions of floats and of 64 bits."""
    return part.operation == "add" and (part.dtype.kind == "f" or part.cell_bytes == 8)


def update_kind(part: Part, update: str) -> str:
    """Return what the speed of an update depends on: "native float32", "cas 64" or "lock"; empty for others."""
    if update == "lock":
        return "lock"
    if update == "cas":
        return f"cas {8 * part.cell_bytes}"
    bits = 8 * part.cell_bytes
    name = f"{'float' if part.dtype.kind == 'f' else 'int'}{bits}"
    return f"native {name}" if update == "native" else ""


def slowest(updates: Iterable[str]) -> str:
    """Return the least efficient of `updates`."""
    return max(updates, key=UPDATES.index)


def _updates_of(part: Part, memory: str, features: Collection[str]) -> tuple[str, ...]:
    found = []
    if native_atomic(part.operation, part.dtype, memory, features) is not None:
        found.append("native")
    if part.cell_bytes == 4 or (part.cell_bytes == 8 and "int64_base_atomics" in features):
        found.append("cas")
    return (*found, "lock")
