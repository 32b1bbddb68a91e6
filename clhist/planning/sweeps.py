"""From operators and numbers to sweeps: which form of an operator, which updates, which histograms together.

Pure: `clhist.planning.choose` plans one sweep, this module decides what a sweep consists of.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from clhist.codegen.specs import Output
from clhist.hardware.atomics import MEMORIES, UPDATES, choose_updates, enough_copies, part_loops, slowest, update_kind
from clhist.hardware.profile import Profile
from clhist.operators.operator import Operator
from clhist.planning import choose as model
from clhist.planning.plan import Forced, Plan
from clhist.planning.times import BIN_NUMBER_BYTES

# On an H200 a compare-exchange of 32 bits in local memory takes 115 us for 50 million saturating sums, an addition of
# 64 bits 191; in three passes and more the addition in global memory is ahead (docs/performance.md).
_PASSES_WORTH_A_WIDER_BIN = 2

T = TypeVar("T")


@dataclass(frozen=True)
class Target:
    """A histogram that is asked for.

    Attributes
    ----------
    operator : Operator
        Its operator.
    suffix : str
        What its ``EMIT`` ends in.
    emits : int or None
        How many values one element has for it at most; None if that is not known.
    value : str or None
        The C of the value that all pairs have; None if they differ.
    """

    operator: Operator
    suffix: str
    emits: int | None
    value: str | None = None

    @property
    def counts(self) -> bool:
        """Whether every value is 1."""
        return self.value == "1"


@dataclass(frozen=True)
class Problem:
    """What is to be planned; see `clhist.model.plan`.

    Attributes
    ----------
    size : int
        N.
    bins : tuple of int
        H of each histogram.
    num_histograms : int or None
        N_out of a batch.
    race_factor : float
        RF.
    forced : Forced
        The caller's choices.
    memory_budget : int
        Bytes that copies may take in global memory.
    emits : int
        How many values an element has for a histogram, as far as that is known.
    even : bool
        Whether each histogram of a batch has as many elements.
    read_bytes : int
        What the map reads for an element, as far as that is known.
    refused : tuple of (str, str)
        Updates, each with its memory, that the compiler would not have.
    """

    size: int
    bins: tuple[int, ...]
    num_histograms: int | None
    race_factor: float
    forced: Forced
    memory_budget: int
    emits: int = 1
    even: bool = True
    read_bytes: int = BIN_NUMBER_BYTES
    refused: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class PlannedSweep:
    """One sweep: its plan, its outputs, and which of the histograms asked for these are."""

    plan: Plan
    outputs: tuple[Output, ...]
    numbers: tuple[int, ...]


def plan_sweeps(
    targets: Sequence[Target],
    problem: Problem,
    profile: Profile,
    features: Collection[str],
    numbers: Collection[int] | None = None,
) -> tuple[PlannedSweep, ...]:
    """Return the sweeps that compute all of `targets`, or those of these `numbers`.

    An operator takes the form, its own or a lifted one, whose update is best where work-items share copies. Histograms
    are filled by one sweep as long as that reads the input no more often than one sweep each would, and moves none of
    them out of local memory.

    Raises
    ------
    ValueError, MemoryError
        As `clhist.model.plan`, and for an update that an operator cannot have.
    """
    wanted = range(len(targets)) if numbers is None else numbers
    each = [_best_form(targets[number], number, problem, profile, features) for number in wanted]
    return tuple(grouped(each, lambda first, second: _joined(first, second, problem, profile, features)))


def grouped(each: Sequence[T], join: Callable[[T, T], T | None]) -> list[T]:
    """Return what is left when each is joined with the first that it can be joined with."""
    found: list[T] = []
    for one in each:
        for k, other in enumerate(found):
            joint = join(other, one)
            if joint is not None:
                found[k] = joint
                break
        else:
            found.append(one)
    return found


def pays(joint: Plan, first: Plan, second: Plan) -> bool:
    """Whether one sweep for both is better than one each: the same memory, and the input read no more often."""
    return joint.memory == first.memory == second.memory and joint.passes <= first.passes + second.passes


def emits_of(name: str, code: str, preamble: str = "") -> int | None:
    """Return how many values the map `code` has at most for one element by the macro `name`, or None if a loop, or a
    macro or function of the preamble, may repeat it."""
    loop, used = r"\b(for|while|do|goto)\b", rf"\b{name}\b"
    macros = re.findall(r"^\s*#\s*define\b(?:.*\\\n)*.*", preamble, re.MULTILINE)
    if re.search(loop, code) or re.search(r"#\s*define\b", code) or re.search(used, preamble):
        return None
    if any(re.search(rf"{loop}|##", macro) for macro in macros):
        return None
    wrappers = [found for macro in macros for found in re.findall(r"#\s*define\s+(\w+)\(", macro)]
    if any(re.search(rf"\b{wrapper}\s*\([^;]*{used}", code) for wrapper in wrappers):
        return None
    return len(re.findall(rf"\b{name}\b", code))


def _best_form(
    target: Target, number: int, problem: Problem, profile: Profile, features: Collection[str]
) -> PlannedSweep:
    best, failed = None, None
    for operator in _forms(target, problem.size):
        try:
            output = Output(operator, (), target.suffix)
            sweep = _plan_one((output,), (number,), problem, profile, features, target)
        except ValueError as error:
            failed = failed or error
            continue
        if sweep.plan.update == "private":
            return sweep if best is None else best
        if best is None or _is_better(sweep, best):
            best = sweep
        if problem.forced.update is not None:
            break  # the operator's own form, where that has it
    if best is None:
        assert failed is not None
        raise failed
    return best


def _is_better(lifted: PlannedSweep, own: PlannedSweep) -> bool:
    """Whether the better update of a lifted form is worth its larger bins; in local memory it is not (measured)."""
    if _rank(lifted.plan) >= _rank(own.plan):
        return False
    wider = lifted.outputs[0].operator.bin_bytes > own.outputs[0].operator.bin_bytes
    return not (wider and own.plan.memory == "local" and own.plan.passes <= _PASSES_WORTH_A_WIDER_BIN)


def _rank(plan: Plan) -> int:
    """Return how good an update is, 0 being the best; sorting was taken in the place of locks."""
    return UPDATES.index("lock" if plan.update == "sort" else plan.update)


def _forms(target: Target, size: int) -> Iterator[Operator]:
    yield target.operator
    for lifted in target.operator.lifted:
        most, emits = lifted.most_values, target.emits
        if most is None or (emits is not None and size * emits < most):  # one more for dest
            yield lifted.operator


def _joined(
    first: PlannedSweep, second: PlannedSweep, problem: Problem, profile: Profile, features: Collection[str]
) -> PlannedSweep | None:
    """Return the two as one sweep if that pays; pairs that are sorted are those of one histogram."""
    if "sort" in (first.plan.update, second.plan.update) or first.plan.partitions or second.plan.partitions:
        return None
    try:
        joint = _plan_one(first.outputs + second.outputs, first.numbers + second.numbers, problem, profile, features)
    except (ValueError, MemoryError):  # too many copies, or too much for the budget
        return None
    return joint if pays(joint.plan, first.plan, second.plan) else None


def _plan_one(
    outputs: tuple[Output, ...],
    numbers: tuple[int, ...],
    problem: Problem,
    profile: Profile,
    features: Collection[str],
    target: Target | None = None,
) -> PlannedSweep:
    forced = problem.forced
    shared = None if forced.update in ("private", "sort") else forced.update
    updates = _shared_updates(outputs, forced.memory, features, shared, problem.refused)
    worst = {m: slowest(u for each in found for u in each) for m, found in updates.items()}
    any_memory = next(iter(updates.values()))
    enough = [
        enough_copies(update, problem.bins[number], loops=part_loops(part), read_bytes=problem.read_bytes or 4)
        for output, each, number in zip(outputs, updates.get("local", ()), numbers, strict=False)
        for part, update in zip(output.operator.parts, each, strict=True)
    ]
    plan = model.plan(
        problem.size,
        tuple(problem.bins[number] for number in numbers),
        profile,
        local_update=worst.get("local", "lock"),
        global_update=worst.get("global", "lock"),
        bin_bytes=tuple(output.operator.bin_bytes for output in outputs),
        arrays=max(len(output.operator.parts) for output in outputs),
        locked=tuple(each.count("lock") for each in any_memory),
        race_factor=problem.race_factor,
        forced=forced,
        memory_budget=problem.memory_budget,
        num_histograms=problem.num_histograms,
        even=problem.even,
        emits=problem.emits,
        most_emits=None if target is None else target.emits,
        enough_copies=max(enough, default=None),
        value_bytes=0 if target is not None and target.value is not None else outputs[0].operator.dtype.itemsize,
        counts=target is not None and target.counts and _can_be_packed(outputs[0].operator),
        kinds=_kinds(outputs, updates),
        read_bytes=problem.read_bytes,
    )
    if plan.update in ("private", "sort"):
        chosen = [(plan.update,) * len(output.operator.parts) for output in outputs]
    else:
        chosen = updates[plan.memory]
    names = tuple(output.suffix.removeprefix("_") for output in outputs if output.suffix)
    return PlannedSweep(
        replace(plan, outputs=names, refused=tuple(f"{update} in {memory}" for update, memory in problem.refused)),
        tuple(replace(output, updates=each) for output, each in zip(outputs, chosen, strict=True)),
        numbers,
    )


def _kinds(outputs: Sequence[Output], updates: dict[str, list[tuple[str, ...]]]) -> tuple[str, str]:
    """Return what rates depend on, for each memory: of one histogram whose operator has one part."""
    parts = [part for output in outputs for part in output.operator.parts]
    if len(parts) > 1:
        return "", ""
    local, everywhere = (update_kind(parts[0], updates[m][0][0]) if m in updates else "" for m in MEMORIES)
    return local, everywhere


def _can_be_packed(operator: Operator) -> bool:
    """Whether accumulators are 32-bit integers that are added, and 1 is lifted to 1."""
    part = operator.parts[0]
    sums = len(operator.parts) == 1 and part.operation == "add" and operator.accumulator.kind in "iu"
    return sums and operator.accumulator.itemsize == 4 and operator.lift == "v"


def _shared_updates(
    outputs: Sequence[Output],
    memory: str | None,
    features: Collection[str],
    forced: str | None,
    refused: Collection[tuple[str, str]],
) -> dict[str, list[tuple[str, ...]]]:
    """Return the update of each part of each output, for each memory that the copies may be in."""
    memories = (memory,) if memory in MEMORIES else MEMORIES
    return {m: [choose_updates(output.operator, m, features, forced, refused) for output in outputs] for m in memories}
