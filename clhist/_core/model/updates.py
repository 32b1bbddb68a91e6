"""Updates of a bin: one record for each, and the choice for each part of an operator (SC'20, section III-B).

From the most to the least efficient: ``private`` (a work-item owns its copy: no atomic), ``native`` (a hardware atomic;
HDW in the paper), ``carry`` (hardware additions of the words of a long integer, each of which passes on its carry),
``cas`` (a loop of compare and exchange; CAS) and ``lock`` (a spinlock a bin; XCG).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Literal, NamedTuple, TypeAlias, get_args

from clhist._core.devices.vendors import ALL_FEATURES, FEATURES, native_atomic
from clhist.operators.c_types import shown_dtype
from clhist.operators.operator import Operator, Part


class Update(NamedTuple):
    """One way to update a bin, and what every other module asks about it.

    Attributes
    ----------
    name : str
        As a caller and a plan name it, and as the template of updates names its functions.
    words : str
        What it is, for people.
    atomic : {"", "operation", "compare-exchange", "exchange"}
        The hardware's atomic that it is made of.
    is_available : callable
        Whether it can serve a part of an operator in a copy that work-items share: in a memory, on a device with
        certain features.
    waits : bool
        Whether updates of one bin wait for each other.
    useful_copies : int
        Copies of a work-group in local memory beyond which none is faster on an H200: initialising and combining them
        costs more than collisions. Note [Useful copies in local memory], docs/decisions/0007.
    rate : str
        Name of its rates in a profile, where ``{bits}`` is the size of a cell and ``{type}`` that of its number;
        nothing if none are measured.
    cooperation_factor : int
        u of equation 6.
    most_local_passes : int
        Passes over local memory up to which it is preferred to global memory: the switching point of section V-A.
    replaceable : bool
        Whether the next one takes its place where a compiler rejects it.
    """

    name: str
    words: str
    atomic: str
    is_available: Callable[[Part, str, Collection[str]], bool]
    waits: bool
    useful_copies: int
    rate: str
    cooperation_factor: int = 1
    most_local_passes: int = 1
    replaceable: bool = False


def _has_atomic(part: Part, memory: str, features: Collection[str]) -> bool:
    return native_atomic(part.operation, part.dtype, memory, features) is not None


def _has_exchange(part: Part, memory: str, features: Collection[str]) -> bool:
    """Whether cells are words that can be compared and exchanged."""
    return part.cell_bytes == 4 or (part.cell_bytes == 8 and "int64_base_atomics" in features)


# What callers may name; see `FORCEABLE`.
Name: TypeAlias = Literal["private", "native", "carry", "cas", "lock", "sort", "gather"]

PRIVATE = Update("private", "a work-item owns its copy: no atomic", "", lambda *_: False, False, 1, "")
# Additions of floats and of 64 bits are loops in NVIDIA's local memory, and have as many useful copies as are here.
NATIVE = Update(
    "native", "a hardware atomic, HDW in the paper", "operation", _has_atomic, False, 128, "native {type}",
    2, 3, replaceable=True,
)  # fmt: skip
# As 32-bit integer additions are, which the hardware makes one of where they meet in a word.
CARRY = Update(
    "carry", "hardware additions of the words of a long integer, with carries", "operation",
    lambda part, *_: part.words > 0, False, 4, "carry {bits}", 2, 3,
)  # fmt: skip
CAS = Update(
    "cas", "a loop of compare and exchange, CAS in the paper", "compare-exchange", _has_exchange, True, 512,
    "cas {bits}", 1, 4, replaceable=True,
)  # fmt: skip
LOCK = Update("lock", "a spinlock for each bin, XCG in the paper", "exchange", lambda *_: True, True, 256, "lock", 1, 6)

BY_NAME = {update.name: update for update in (PRIVATE, NATIVE, CARRY, CAS, LOCK)}
UPDATES = tuple(BY_NAME)
REPLACEABLE = tuple(update.name for update in BY_NAME.values() if update.replaceable)
# What a caller may ask for besides: sorting pairs, or gathering rows, takes the place of updating bins.
SORT, GATHER = "sort", "gather"
WITHOUT_UPDATES = (SORT, GATHER)
FORCEABLE: tuple[str, ...] = get_args(Name)
WORDS = {name: update.words for name, update in BY_NAME.items()} | {
    SORT: "pairs are sorted by bin and scanned, Listing 4 of the paper",
    GATHER: "the rows of a bin are gathered and combined in registers",
}

# Cells and copies in local memory that pay off for hardware atomics. On an H200 counts of 2,041 bins take 71 us with
# all copies that fit, 60 with eight; 8-bit images take 92 with 32 copies instead of 115; no command was recorded.
# Note [Useful copies in local memory], docs/decisions/0007.
_USEFUL_CELLS, MOST_NATIVE_COPIES, _MOST_FAST_COPIES = 8192, 8, 32


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
        What the device has, of `clhist._core.devices.atomics.ALL_FEATURES`.

    Returns
    -------
    tuple of str
        Of ``"native"``, ``"carry"``, ``"cas"`` and ``"lock"``; the last is always there.
    """
    of_parts = [_updates_of(part, memory, features) for part in operator.parts]
    return tuple(update for update in UPDATES if all(update in updates for updates in of_parts))


def _missing_feature(operator: Operator, memory: str, features: Collection[str], update: str) -> str:
    """Return words for the first feature with which a device has the update; none if no device has it."""
    for name, words in FEATURES.items():
        # A feature may be proven for single operations ("name:..."): try all of these at once.
        proven = {feature for feature in ALL_FEATURES if feature.partition(":")[0] == name}
        if update in available_updates(operator, memory, {*features, *proven}):
            return f"; {update!r} needs {words}"
    return ""


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
        candidates = (_updates_of(part, memory, features) for part in operator.parts)
        return tuple(next(u for u in updates if (u, memory) not in refused) for updates in candidates)
    if forced not in UPDATES:
        raise ValueError(f"update: expected one of {', '.join(FORCEABLE)}, got {forced!r}")
    available = available_updates(operator, memory, features)
    # Private copies need no atomics, so every operator can have them.
    if forced != "private" and forced not in available:
        raise ValueError(
            f"update: {forced!r} is not available for {operator.name} on "
            f"{shown_dtype(operator.accumulator)} in {memory} "
            f"memory on this device; available: {', '.join(('private', *available))}"
            + _missing_feature(operator, memory, features, forced)
        )
    return (forced,) * len(operator.parts)


def useful_copies(
    update: str, num_bins: int, *, loops: bool = False, read_bytes: int = 4, most: float = MOST_NATIVE_COPIES
) -> int:
    """Return how many copies of `num_bins` bins in a work-group's local memory pay off.

    `loops` says that the hardware atomic is a loop itself, see `part_loops`. Where less than four bytes are read for an
    update, as from an image, the updates dominate, and a bank for each of 32 neighbouring work-items pays. `most` is
    how many do otherwise.
    """
    if update == "native" and not loops:
        enough = int(most) if read_bytes >= 4 else _MOST_FAST_COPIES
        return max(1, min(enough, _USEFUL_CELLS // num_bins))
    return BY_NAME[update].useful_copies


def part_loops(part: Part) -> bool:
    """Whether the hardware atomic for `part` is a loop in local memory: additions of floats and of 64 bits."""
    return part.operation == "add" and (part.dtype.kind == "f" or part.cell_bytes == 8)


def takes_term(part: Part, update: str) -> bool:
    """Whether an update adds the term of a value, rather than an accumulator: to the words of a long integer."""
    return part.words > 0 and update in (PRIVATE.name, CARRY.name)


def waits(update: str) -> bool:
    """Whether updates of one bin wait for each other; those of a hardware atomic may, too: see `part_loops`."""
    return update in BY_NAME and BY_NAME[update].waits


def rate_kind(part: Part, update: str) -> str:
    """Return what the speed of an update depends on: "native float32", "cas 64" or "lock"; empty for others."""
    size = part.cell_bytes
    if update == CARRY.name:
        # Long sums are as fast as the longest narrow form, whose rates are measured: few of their words change. That
        # has five words for float64, of which all values take 67, and three for float32, of which they take 10.
        size = min(size, 20 if part.words == 5 or part.words > 10 else 12)
    bits = 8 * size
    return BY_NAME[update].rate.format(bits=bits, type=f"{'float' if part.dtype.kind == 'f' else 'int'}{bits}")


def slowest(updates: Iterable[str]) -> str:
    """Return the least efficient of `updates`; sorting is less so than any."""
    return max(updates, key=FORCEABLE.index)


def _updates_of(part: Part, memory: str, features: Collection[str]) -> tuple[str, ...]:
    return tuple(update.name for update in BY_NAME.values() if update.is_available(part, memory, features))
