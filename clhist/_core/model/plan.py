"""A plan: how a histogram is computed, and the steps by which the model came to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, ClassVar, NamedTuple, TypeVar

from clhist._core.model.feature import Feature
from clhist._core.model.problem import IN_TURN, SIDE_BY_SIDE, Choices
from clhist._core.model.updates import WITHOUT_UPDATES, WORDS
from clhist._core.model.workload import LOCK_BYTES, Workload
from clhist.operators.operator import Operator

GLOBAL_WORK_GROUP = 256  # section V-A: "block sizes 1024 and 256 for shared and global memory"


class Step(NamedTuple):
    """One intermediate of a plan: its letter, its value, where the paper defines it, and the formula."""

    symbol: str
    value: float
    equation: str
    formula: str


class Trace:
    """The steps of one attempt at a plan; `steps` is the value that the plan keeps."""

    def __init__(self) -> None:
        self._steps: list[Step] = []

    def step(self, symbol: str, value: float, equation: str, formula: str) -> float:
        """Note an intermediate, and return its value."""
        self._steps.append(Step(symbol, value, equation, formula))
        return value

    def extend(self, steps: Iterable[Step]) -> None:
        """Note the steps of another attempt."""
        self._steps.extend(steps)

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps noted so far."""
        return tuple(self._steps)


@dataclass(frozen=True)
class Output:
    """One histogram that a sweep fills.

    Attributes
    ----------
    operator : Operator
        Its combining operator, in the form that the plan chose.
    updates : tuple of str
        How each of the operator's parts is updated, as in `Plan`.
    suffix : str
        What its ``EMIT``, and its types and functions, end in; nothing for the only one of a kernel.
    """

    operator: Operator
    updates: tuple[str, ...]
    suffix: str = ""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The plan of one sweep over the input, which computes one histogram or several. Each strategy has a class.

    A strategy sets `strategy` and overrides `choices` if others force it, `features` if the kernel's text differs, and
    the class attributes and properties below whose value is another one.

    Attributes
    ----------
    strategy : str
        Which of `clhist._core.model.shared.STRATEGIES` it is.
    memory : {"local", "global"}
        Where the copies are.
    update : {"private", "native", "cas", "lock", "sort", "gather"}
        How a bin is updated; "sort" if the pairs are sorted instead (Listing 4), "gather" if rows are gathered.
    copies : int
        Number of copies: of a work-group in local memory, of the device in global memory.
    cooperation : int
        Number of work-items that share one copy.
    passes, bins_per_pass : int
        Number of passes, and of bins in each.
    pass_order : {"in turn", "side by side"}
        How passes over local memory follow one another.
    cyclic_passes : bool
        Whether pass p has the bins b with b % passes == p, rather than a contiguous range.
    work_group_size, work_groups : int
        Work-items of a work-group, and work-groups launched in each pass.
    num_elements, num_bins : int
        Number of elements, and of bins: the sum over the histograms of one sweep.
    race_factor : float
        The race factor that the plan assumes.
    profile : str
        Name of the device.
    steps : tuple of Step
        How it came about.
    bins : tuple of int
        Number of bins of each histogram that one sweep fills.
    num_histograms : int
        Number of histograms in a batch; 1 for no batch.
    is_batch, equal_shares : bool
        Whether it is for a batch, which may be of one histogram, and whether each has as many elements.
    teams : int
        How many teams, each with a chunk of one histogram's elements, a work-group has.
    locks : int or None
        How many locks all bins share; None for one a bin.
    outputs : tuple of Output
        The histograms that the sweep fills, with the form and the updates of each; empty if only numbers were planned.
    output_indices : tuple of int
        Which of the histograms asked for these are.
    seconds : float or None
        How long it is predicted to take on the device (`clhist._core.model.times`); None without measured rates.
    is_one_launch : bool
        Whether its one work-group combines the copies itself, in the launch of the sweep.
    refused : tuple of str
        Updates that were to be taken, and that the device's compiler refused: "native in global".
    again : Plan or None
        What computes if this one raises its flag: of narrow sums, again where values do not fit these
        (`clhist._core.model.narrow`).

    Examples
    --------
    >>> problem = clhist.Problem.of(clhist.operators.count(), 2041, 50_000_000)
    >>> plan = clhist.plan(problem, clhist.named_profile("nvidia-h200"))
    >>> plan.memory, plan.passes
    ('local', 1)
    """

    strategy: ClassVar[str] = ""
    rate: ClassVar[str | None] = None  # which of the measured ways it is, of `clhist._core.model.times`
    kernels: ClassVar[int] = 3  # that are launched
    fills_local_memory: ClassVar[bool] = False  # whatever the number of bins
    more_local_bytes: ClassVar[int] = 0  # of local memory besides the copies
    sorts_pairs: ClassVar[bool] = False  # and scans them, instead of updating bins
    is_joinable: ClassVar[bool] = True  # whether one sweep may fill several histograms
    why_again: ClassVar[tuple[str, str]] = ("if values are of very different sizes", "summed again")
    takes_fewer: ClassVar[bool] = False  # elements and bins than planned, whose number kernels are given

    memory: str
    update: str
    copies: int
    cooperation: int
    passes: int
    bins_per_pass: int
    work_group_size: int
    work_groups: int
    num_elements: int
    num_bins: int
    race_factor: float
    profile: str
    steps: tuple[Step, ...]
    bins: tuple[int, ...] = ()
    num_histograms: int = 1
    is_batch: bool = False
    equal_shares: bool = True
    teams: int = 1
    locks: int | None = None
    outputs: tuple[Output, ...] = ()
    output_indices: tuple[int, ...] = ()
    seconds: float | None = None
    refused: tuple[str, ...] = ()
    pass_order: str = IN_TURN
    cyclic_passes: bool = False
    is_one_launch: bool = False
    again: Plan | None = None

    def __str__(self) -> str:
        named = [output.suffix.removeprefix("_") for output in self.outputs if output.suffix]
        names = f"{', '.join(named)}: " if named else ""
        refused = f" (the compiler refused {', '.join(self.refused)} memory)" if self.refused else ""
        aside = f" {self.pass_order}" if self.pass_order == SIDE_BY_SIDE else ""
        return (
            f"{names}{self.num_elements:,} elements into {self.what()} on {self.profile}: {self.update} updates in "
            f"{self.memory} memory{self.how()}{refused}, copies M = {self.copies}, cooperation C = {self.cooperation}, "
            f"passes S = {self.passes} of {self.bins_per_pass:,} bins{aside}, {self.groups()}"
            + (f", predicted {self.seconds * 1e6:.0f} µs" if self.seconds else "")
        )

    def _repr_html_(self) -> str:
        """Return the plan for a notebook: itself in words, and its steps as a table."""
        # Imported here, since only notebooks need it.
        from html import escape

        head = "".join(f"<th>{title}</th>" for title in ("", "value", "SC'20", "formula"))
        rows = (
            f"<tr><td>{escape(step.symbol)}</td><td>{step.value:,.6g}</td><td>{escape(step.equation)}</td>"
            f"<td>{escape(step.formula)}</td></tr>"
            for step in self.steps
        )
        return f"<p>{escape(str(self))}</p><table><tr>{head}</tr>{''.join(rows)}</table>"

    @property
    def is_for_fewer(self) -> bool:
        """Whether what is launched is right for fewer elements and bins, once kernels are given their number."""
        behind = self.behind
        return self.takes_fewer and not self.is_batch and (behind is None or behind.is_for_fewer)

    @property
    def launches(self) -> int:
        """The number of kernels that run, one after the other."""
        return 1 if self.is_one_launch else self.kernels

    def groups(self) -> str:
        """Return how many work-groups there are, in words."""
        if self.is_one_launch:
            return f"one work-group of {self.work_group_size}, one launch"
        return f"{self.work_groups} work-groups of {self.work_group_size}"

    def what(self) -> str:
        """Return a description of the histograms that are filled."""
        return f"{' + '.join(f'{bins:,}' for bins in self.bins or (self.num_bins,))} bins"

    def how(self) -> str:
        """Return a description of the strategy beyond `update` and `memory`."""
        return ""

    @property
    def global_copies(self) -> int:
        """Copies of all bins of one histogram that are in global memory, to be combined in the end."""
        return self.copies if self.memory == "global" else self.work_groups

    @property
    def filled_cells(self) -> int:
        """Bins of the first histogram that are filled and combined, in all copies."""
        return self.global_copies * self.copy_bins[0]

    @property
    def team_size(self) -> int:
        """Work-items that go through the same elements together."""
        return self.work_group_size // self.teams

    @property
    def elements_each(self) -> int:
        """Elements of each histogram of a batch of equal shares."""
        return self.num_elements // self.num_histograms

    @property
    def chunks_each(self) -> int:
        """Chunks of the elements of each of these."""
        return 1

    @property
    def tasks(self) -> int:
        """Chunks of all histograms."""
        return self.num_histograms * self.chunks_each

    @property
    def task_limit(self) -> int | None:
        """The number of chunks of all histograms for whose copies the budget has memory; None without a limit."""
        return None

    @property
    def has_table(self) -> bool:
        """Whether a table says where the chunks of a batch begin and end."""
        return False

    @property
    def owns_copies(self) -> bool:
        """Whether each work-item has copies of its own in global memory."""
        return False

    @property
    def writes_results(self) -> bool:
        """Whether its kernels write the results themselves, and no second stage combines copies."""
        return self.is_one_launch

    @property
    def ranges(self) -> int:
        """Ranges of bins by which kernels before the sweep group the pairs; 0 without such kernels."""
        return 0

    def by_copies(self) -> Plan:
        """Return the plan whose results are combined from copies, by a second stage that may be left out."""
        return self

    @property
    def behind(self) -> Plan | None:
        """The plan that counts again if this one gives up."""
        return self.again

    def features(self, value: str | None) -> tuple[Feature, ...]:
        """Return the features that the strategy adds to the sweep; `value` is the C of the value of all pairs."""
        return ()

    def filling(self, outputs: tuple[Output, ...], indices: tuple[int, ...]) -> Plan:
        """Return the plan for these outputs, which are those of `indices` among the histograms asked for."""
        return replace(self, outputs=outputs, output_indices=indices)

    @property
    def choices(self) -> dict[str, Any]:
        """The arguments of a call that force memory, copies and passes to be those of this plan."""
        return {"memory": self.memory, "copies": self.copies, "passes": self.passes}

    @property
    def copy_bins(self) -> tuple[int, ...]:
        """The number of bins of each histogram in a copy in global memory."""
        # A copy has the bins of cyclic passes one pass after another, all of the same size.
        return tuple(self.passes * chunk for chunk in self.chunks()) if self.cyclic_passes else self.bins

    def chunks(self) -> tuple[int, ...]:
        """Return how many bins of each histogram one pass has."""
        return tuple(ceil(bins / self.passes) for bins in self.bins)

    def way(self) -> str:
        """Return what the update and the memory do not say of how pairs reach their bins, in words."""
        return "private copies" if self.update == "private" else ""

    def memory_bytes(self, sizes: Sequence[int]) -> tuple[int, int]:
        """Return the bytes that copies take in the local memory of a work-group, and in global memory.

        `sizes` are the bytes of a bin of each histogram, without locks.
        """
        lock = self.lock_bytes
        chunk = sum(n * (size + lock) for n, size in zip(self.chunks(), sizes, strict=True))
        local = self.copies * self.teams * chunk if self.memory == "local" else 0
        # Copies of local memory reach global memory without their locks.
        one = sum(n * (size + (0 if local else lock)) for n, size in zip(self.bins, sizes, strict=True))
        return local, self.global_copies * self.num_histograms * one

    @property
    def lock_bytes(self) -> int:
        """Bytes of a bin's lock."""
        return LOCK_BYTES if self.update == "lock" and self.locks is None else 0

    def words(self) -> list[tuple[str, str]]:
        """Return the plan in words: rows of a name and what it is."""
        owner = "in each work-group" if self.memory == "local" else "on the device"
        rows = [
            ("memory", self.memory),
            ("update", f"{self.update} ({WORDS[self.update]})"),
            ("copies (M)", f"{self.copies:,} {'of each histogram' if self.is_batch else owner}"),
            ("cooperation (C)", f"{self.cooperation:,} work-items share a copy" if self.cooperation > 1 else "1"),
            ("passes (S)", f"{self.passes:,}" + (f" {self.pass_order}" if self.passes > 1 else "")),
            ("bins per pass (H_chk)", f"{self.bins_per_pass:,}"),
            ("work-groups", self._group_words()),
        ]
        if self.again is not None:
            label, what = self.why_again
            rows.append((label, f"{what}: {self.again}"))
        own = self.own_words()
        rows = [row for row_of_all in rows for row in (row_of_all, *own.get(row_of_all[0], ()))]
        return rows if self.locks is None else [*rows, ("locks", f"{self.locks:,} for all bins")]

    def _group_words(self) -> str:
        if self.is_one_launch:
            return f"one work-group of {self.work_group_size:,} work-items, one launch: it combines its copies itself"
        return f"{self.work_groups:,} of {self.work_group_size:,} work-items"

    def own_words(self) -> Mapping[str, Sequence[tuple[str, str]]]:
        """Return the rows that a strategy adds to `words`, by the name of the row that they follow."""
        return {}

    def in_global_memory(self) -> str:
        """Return a description of the arrays in global memory."""
        copies = "one copy" if self.global_copies == 1 else f"{self.global_copies:,} copies"
        return f"{copies} of all bins{' of each histogram' if self.is_batch else ''}"


# Choices that a plan may have to reduce, and what limits them.
_LIMITS = {
    "copies": "limited by the work-items of a group or by memory_budget",
    "work_group_size": "limited by the number of copies",
    "passes": "no more than bins",
}

P = TypeVar("P", bound=Plan)


def make_plan(
    kind: type[P],
    load: Workload,
    trace: Trace,
    *,
    memory: str,
    update: str,
    copies: int,
    passes: int,
    group: int,
    groups: int,
    sharers: int,
    **details: Any,
) -> P:
    """Return the plan of a strategy: `sharers` work-items share `copies` copies; `details` are of its class.

    If each copy belongs to one work-item, the update becomes "private". A strategy that gets this update with fewer
    copies must raise ValueError instead.
    """
    cooperation = ceil(sharers / copies)
    # Note [Native atomics beat private copies in local memory], docs/decisions/0007.
    native_on_gpu = update == "native" and not load.on_cpu
    # A copy that no other work-item updates needs no atomic, unless the caller forced one.
    if cooperation == 1 and load.choices.update is None and update not in WITHOUT_UPDATES and not native_on_gpu:
        update = "private"
    return kind(
        memory=memory,
        update=update,
        copies=copies,
        cooperation=cooperation,
        passes=passes,
        # Each histogram rounds up its own share of a pass.
        bins_per_pass=sum(ceil(bins / passes) for bins in load.bins),
        work_group_size=group,
        work_groups=groups,
        num_elements=load.size,
        num_bins=load.num_bins,
        race_factor=load.race_factor,
        profile=load.profile.name,
        steps=trace.steps,
        bins=load.bins,
        num_histograms=load.histograms,
        is_batch=load.num_histograms is not None,
        equal_shares=load.equal_shares,
        # The update may have become private: such copies have no locks.
        locks=load.choices.locks if update == "lock" else None,
        **details,
    )


def unheeded(choices: Choices, plans: Sequence[Plan]) -> list[str]:
    """Return a warning for each choice of the caller that a plan could use only in part, or not at all."""
    texts = []
    for name, limit in _LIMITS.items():
        requested = getattr(choices, name)
        # Partitions take `passes` as the least number of ranges.
        if requested is None or (name == "passes" and choices.memory == "partitioned"):
            continue
        used = min((getattr(plan, name) for plan in plans), default=requested)
        if used < requested:
            texts.append(f"{name}: {requested} requested, {used} used: {limit}")
    order = choices.pass_order
    others = [plan for plan in plans if plan.passes > 1 and plan.pass_order != order]
    if order is not None and others:
        texts.append(f"pass_order: {order!r} requested, {others[0].pass_order!r} used in {others[0].memory} memory")
    return texts


def after(steps: tuple[Step, ...], plan: P) -> P:
    """Return `plan` with the steps of an attempt before it in front of its own."""
    return replace(plan, steps=(*steps, *plan.steps))
