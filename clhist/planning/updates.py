"""How a bin is updated: one record for each update, and the choice for each part of an operator (SC'20, section III-B).

From the most to the least efficient: ``private`` (a work-item owns its copy: no atomic), ``native`` (a hardware atomic;
HDW in the paper), ``cas`` (a loop of compare and exchange; CAS) and ``lock`` (a spinlock a bin; XCG).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from clhist.hardware.atomics import native_atomic
from clhist.operators.operator import Operator, Part


class Update(NamedTuple):
    """One way to update a bin, and what the model knows of it.

    Attributes
    ----------
    name : str
        As a caller and a plan name it.
    words : str
        What it is, for people.
    cooperation_factor : int
        u of equation 6.
    most_local_passes : int
        Passes over local memory up to which it is preferred to global memory: the switching point of section V-A.
    passes_worth_partitioning, most_partitions : int or None
        Passes from which partitioning the pairs was faster on an H200, and the partitions up to which
        (docs/notebook); None if never.
    replaceable : bool
        Whether the next one takes its place where a compiler rejects it.
    """

    name: str
    words: str
    cooperation_factor: int = 1
    most_local_passes: int = 1
    passes_worth_partitioning: int | None = None
    most_partitions: int = 0
    replaceable: bool = False


PRIVATE = Update("private", "a work-item owns its copy: no atomic")
NATIVE = Update("native", "a hardware atomic, HDW in the paper", 2, 3, 4, 256, replaceable=True)
CAS = Update("cas", "a loop of compare and exchange, CAS in the paper", 1, 4, 2, 128, replaceable=True)
LOCK = Update("lock", "a spinlock for each bin, XCG in the paper", 1, 6, 4, 160)

BY_NAME = {update.name: update for update in (PRIVATE, NATIVE, CAS, LOCK)}
UPDATES = tuple(BY_NAME)
REPLACEABLE = tuple(update.name for update in BY_NAME.values() if update.replaceable)
SORT = "sort"  # what a caller may ask for besides: sorting the pairs takes the place of updating bins
SORT_WORDS = "pairs are sorted by bin and scanned, Listing 4 of the paper"
FORCEABLE = (*UPDATES, SORT)

# Copies of a work-group beyond which none is faster, measured on an H200 (docs/notebook): filling and combining
# them costs more than work-items that collide in a bin. 64-bit and float additions are loops in NVIDIA's local memory.
_USEFUL_COPIES = {"private": 1, "looping": 128, "cas": 512, "lock": 256}
_USEFUL_CELLS, _MOST_NATIVE_COPIES, _MOST_FAST_COPIES = 8192, 8, 32


def check_update(update: str | None) -> None:
    """Raise ValueError if a caller forces an update that does not exist."""
    if update not in (None, *FORCEABLE):
        raise ValueError(f"update: expected one of {', '.join(FORCEABLE)}, got {update!r}")


def available_updates(operator: Operator, memory: str, features: Collection[str]) -> tuple[str, ...]:
    """Return the updates that can serve every part of `operator` when work-items share a copy, best first.

    Parameters
    ----------
    operator : Operator
        The combining operator.
    memory : {"local", "global"}
        Where the copies are.
    features : collection of str
        What the device has, of `clhist.hardware.atomics.ALL_FEATURES`.

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

    `refused` are updates, each with its memory, that the device's compiler rejected.

    Raises
    ------
    ValueError
        If `forced` is not an update, or is one that this operator cannot have on this device.
    """
    if forced is None:
        each = (_updates_of(part, memory, features) for part in operator.parts)
        return tuple(next(u for u in updates if (u, memory) not in refused) for updates in each)
    if forced not in UPDATES:
        raise ValueError(f"update: expected one of {', '.join(FORCEABLE)}, got {forced!r}")
    available = available_updates(operator, memory, features)
    if forced != "private" and forced not in available:
        raise ValueError(
            f"update: {forced!r} is not available for {operator.name} on {operator.accumulator} in {memory} "
            f"memory on this device; available: {', '.join(('private', *available))}"
        )
    return (forced,) * len(operator.parts)


def useful_copies(update: str, num_bins: int, *, loops: bool = False, read_bytes: int = 4) -> int:
    """Return how many copies of `num_bins` bins in a work-group's local memory are of use.

    `loops` says that the hardware atomic is a loop itself, see `part_loops`. Where less than four bytes are read for an
    update, as from an image, the updates dominate, and a bank for each of 32 neighbouring work-items pays.
    """
    if update == "native" and not loops:
        most = _MOST_NATIVE_COPIES if read_bytes >= 4 else _MOST_FAST_COPIES
        return max(1, min(most, _USEFUL_CELLS // num_bins))
    return _USEFUL_COPIES["looping" if update == "native" else update]


def part_loops(part: Part) -> bool:
    """Whether the hardware atomic for `part` is a loop in local memory: additions of floats and of 64 bits."""
    return part.operation == "add" and (part.dtype.kind == "f" or part.cell_bytes == 8)


def rate_kind(part: Part, update: str) -> str:
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
