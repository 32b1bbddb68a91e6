"""The problem to be planned: histograms, sizes, and the choices that a caller makes instead of the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from math import inf
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from clhist.operators.c_types import integer
from clhist.operators.operator import Operator

# What a caller may force. "partitioned" groups the pairs by ranges of bins first.
Memory: TypeAlias = Literal["local", "global", "partitioned"]
PassOrder: TypeAlias = Literal["in turn", "side by side"]  # of passes over local memory
CounterBits: TypeAlias = Literal[4, 8, 16, 32]  # of counters in local memory

PLACES: tuple[str, ...] = get_args(Memory)
IN_TURN, SIDE_BY_SIDE = PASS_ORDERS = ("in turn", "side by side")
COUNTER_BITS: tuple[int, ...] = get_args(CounterBits)
BIN_NUMBER_BYTES = 4  # of an element: one 32-bit bin, what rates are measured with


def _number(letter: str, words: str, forces: str | None) -> Any:
    """A choice that is a number of at least 1; `letter` and `words` are for the help of the command line."""
    return field(default=None, metadata={"letter": letter, "help": words, "forces": forces})


def _one_of(values: Sequence[object], words: str, forces: str | None) -> Any:
    """A choice among values."""
    return field(default=None, metadata={"values": values, "help": words, "forces": forces})


@dataclass(frozen=True)
class Choices:
    """Choices that the caller makes; None leaves one to the model. See `clhist.HistogramKernel.__call__`.

    Each says in its metadata what of a plan it `forces`; None for one that every strategy heeds, which changes no plan.

    Examples
    --------
    >>> clhist.Choices(memory="global").memory
    'global'
    """

    update: str | None = field(default=None, metadata={"forces": "update"})
    memory: str | None = _one_of(PLACES, "Force the memory of the copies, or partition the pairs.", "memory")
    copies: int | None = _number("M", "Force the number of copies.", "copies")
    passes: int | None = _number("S", "Force the number of passes.", "passes")
    work_group_size: int | None = _number("B", "Force the size of work-groups.", "work-groups")
    locks: int | None = _number("LOCKS", "Locks shared by all bins. [default: one per bin]", "locks")
    pass_order: str | None = _one_of(PASS_ORDERS, "Force the order of passes over local memory.", "passes")
    counter_bits: int | None = _one_of(
        COUNTER_BITS, "With --counts: force the width of counters in local memory.", "counters"
    )

    def __post_init__(self) -> None:
        for name in NUMBERS:  # before anything is looked up by choices: 2.0 would be found as 2
            if (value := getattr(self, name)) is not None:
                integer(name, value, 1)

    @cached_property
    def forced(self) -> frozenset[str]:
        """The choices that the caller forced. The model chooses among the strategies that heed all of them."""
        chosen = {choice.metadata["forces"] for choice in fields(self) if getattr(self, choice.name) is not None}
        return frozenset(chosen - {None})

    def only(self, *forced: str) -> Choices:
        """Return these choices but for those that force anything else."""
        others = [choice.name for choice in fields(self) if choice.metadata["forces"] not in (None, *forced)]
        return replace(self, **dict.fromkeys(others))


class Rows(NamedTuple):
    """A call whose values are rows, each of which goes to the components of one bin.

    Attributes
    ----------
    components : int
        D: of a row.
    is_element : bool
        Whether an element of the map is a row, rather than one component.
    is_sorted : bool
        Whether the rows are in the order of their bins, by the caller's word.
    """

    components: int
    is_element: bool
    is_sorted: bool = False

    def elements(self, size: int) -> int:
        """Return how many rows so many elements of the map are."""
        return size if self.is_element else size // self.components


def planned_size(size: int) -> int:
    """Return the number of elements, or bins, at most a quarter more, that calls of close ones are planned for."""
    # Three leading bits are kept: a step is more than an eighth, and at most a quarter, of the size.
    step = 1 << max(0, size.bit_length() - 3)
    return -(-size // step) * step


CHOICES = tuple(choice.name for choice in fields(Choices))
NUMBERS = tuple(choice.name for choice in fields(Choices) if "letter" in choice.metadata)
FREE = Choices()


@dataclass(frozen=True)
class Histogram:
    """One histogram that is asked for.

    Attributes
    ----------
    operator : Operator
        How its values are combined.
    bins : int
        Number of bins.
    suffix : str
        What its ``EMIT`` ends in; nothing for the only one of a kernel.
    max_pairs : int or None
        Upper bound on the (bin, value) pairs that one element emits to it; None if unknown.
    value : str or None
        C expression of the value that all pairs share; None if values differ.
    may_exceed : bool
        Whether an element may emit more than `max_pairs`, which the caller states; a sort then checks it.

    Examples
    --------
    >>> clhist.Histogram(clhist.operators.count(), 2041).bins
    2041
    """

    operator: Operator
    bins: int
    suffix: str = ""
    max_pairs: int | None = 1
    value: str | None = None
    may_exceed: bool = False

    @property
    def counts(self) -> bool:
        """Whether every value is 1."""
        return self.value == "1"


@dataclass(frozen=True)
class Problem:
    """The problem to be planned: the histograms of one call, and its numbers.

    Attributes
    ----------
    histograms : tuple of Histogram
        What the call computes.
    size : int
        Number of elements of the input.
    num_histograms : int or None
        Number of histograms in a batch; None if the call is none.
    equal_shares : bool
        Whether each histogram of a batch has the same number of elements.
    race_factor : float
        Bins divided by the distinct bins that as many consecutive elements touch.
    choices : Choices
        Made by the caller.
    memory_budget : int or None
        Bytes of global memory that copies may take; None for no limit.
    read_bytes : int
        Bytes that the map reads for one element.
    refused : tuple of (str, str)
        Updates, each with its memory, that the device's compiler rejected.
    one_launch : bool
        Whether sweep and combine may be one launch where elements are few: not of partial results, one array for each
        field of a struct, several operators, or the caller's compiler options, whose second stages are other programs.
    rows : Rows or None
        If values are rows.

    Examples
    --------
    >>> problem = clhist.Problem.of(clhist.operators.count(), 2041, 50_000_000)
    >>> problem.size
    50000000
    """

    histograms: tuple[Histogram, ...]
    size: int
    num_histograms: int | None = None
    equal_shares: bool = True
    race_factor: float = 1.0
    choices: Choices = FREE
    memory_budget: int | None = None
    read_bytes: int = BIN_NUMBER_BYTES
    refused: tuple[tuple[str, str], ...] = ()
    one_launch: bool = True
    rows: Rows | None = None

    @classmethod
    def of(cls, operator: Operator, bins: int, size: int, **more: object) -> Problem:
        """Return the problem of one histogram of plain (bin, value) pairs.

        Parameters
        ----------
        operator : Operator
            How values are combined.
        bins, size : int
            Number of bins, and of elements.
        **more
            Further attributes of `Problem`; `value` and `max_pairs` are those of the `Histogram`.
        """
        own = {name: more.pop(name) for name in ("value", "max_pairs") if name in more}
        return cls((Histogram(operator, bins, **own),), size, **more)  # type: ignore[arg-type]

    @property
    def pairs_per_element(self) -> int:
        """Pairs that an element emits to one histogram, as far as that is known; at least 1."""
        return max(1, *(histogram.max_pairs or 1 for histogram in self.histograms))


def check_choices(choices: Choices, most_work_items: int | None, device: str) -> None:
    """Raise ValueError for choices that no plan on a device can have, whatever the numbers.

    Parameters
    ----------
    choices : Choices
        Made by the caller.
    most_work_items : int or None
        Of a work-group; None if that is not known.
    device : str
        Its name.
    """
    # Kernels find the lock of a bin by a mask, `number & (locks - 1)`.
    if choices.locks is not None and choices.locks & (choices.locks - 1):
        raise ValueError(f"locks: expected a power of two, got {choices.locks}")
    # Other updates take no lock: the number would have no effect, without notice.
    if choices.locks is not None and choices.update not in (None, "lock"):
        got = f"update={choices.update!r}, got {choices.locks}"
        raise ValueError(f"locks: expected none with {got}; pass update='lock'")
    group = choices.work_group_size
    if group is not None and most_work_items is not None and group > most_work_items:
        raise ValueError(f"work_group_size: expected at most the {most_work_items} of {device}, got {group}")


def check_numbers(named: Sequence[tuple[str, int | None, int]], race_factor: float, choices: Choices) -> None:
    """Raise ValueError for a number below its least value, and for choices that do not exist.

    Parameters
    ----------
    named : sequence of (str, int or None, int)
        Name, value and least value of each number; None passes.
    race_factor : float
        RF.
    choices : Choices
        Made by the caller.
    """
    for name, value, least in named:
        if value is not None and value < least:
            raise ValueError(f"{name}: expected at least {least}, got {value}")
    # NaN compares false, so it is refused as well.
    if not 1 <= race_factor < inf:
        raise ValueError(f"race_factor: expected a finite number of at least 1, got {race_factor}")
    for choice in fields(Choices):
        value, values = getattr(choices, choice.name), choice.metadata.get("values", ())
        if values and value not in (None, *values):
            raise ValueError(f"{choice.name}: expected one of {', '.join(map(str, values))}, got {value!r}")
    # 32 bits are the width of plain counters, which any memory has.
    if choices.counter_bits not in (None, 32) and choices.memory not in (None, "local"):
        raise ValueError(f"counter_bits: narrow counters are in local memory, got memory={choices.memory!r}")
    if choices.pass_order == SIDE_BY_SIDE and choices.memory not in (None, "local"):
        raise ValueError(f"pass_order: {SIDE_BY_SIDE!r} is of passes over local memory, got memory={choices.memory!r}")
