"""From operators and numbers to sweeps: which form of an operator, which updates, which histograms together.

Pure: `clhist.model` plans one sweep, this module decides what a sweep consists of.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from clhist import model
from clhist.atomics import MEMORIES, UPDATES, choose_updates, slowest
from clhist.model import Forced, Plan
from clhist.operator import Operator
from clhist.profile import Profile
from clhist.render import Output


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
    """

    operator: Operator
    suffix: str
    emits: int | None


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
    """

    size: int
    bins: tuple[int, ...]
    num_histograms: int | None
    race_factor: float
    forced: Forced
    memory_budget: int


@dataclass(frozen=True)
class PlannedSweep:
    """One sweep: its plan, its outputs, and which of the histograms asked for these are."""

    plan: Plan
    outputs: tuple[Output, ...]
    numbers: tuple[int, ...]


def plan_sweeps(
    targets: Sequence[Target], problem: Problem, profile: Profile, features: Collection[str]
) -> tuple[PlannedSweep, ...]:
    """Return the sweeps that compute all of `targets`.

    An operator takes the form, its own or a lifted one, whose update is best where work-items share copies. Histograms
    are filled by one sweep as long as that reads the input no more often than one sweep each would, and moves none of
    them out of local memory.

    Raises
    ------
    ValueError, MemoryError
        As `clhist.model.plan`, and for an update that an operator cannot have.
    """
    found: list[PlannedSweep] = []
    for number, target in enumerate(targets):
        alone = _best_form(target, number, problem, profile, features)
        for k, sweep in enumerate(found):
            joint = _joined(sweep, alone, problem, profile, features)
            if joint is not None:
                found[k] = joint
                break
        else:
            found.append(alone)
    return tuple(found)


def emits_of(name: str, code: str, preamble: str = "") -> int | None:
    """Return how many values the map `code` has at most for one element by the macro `name`, or None if a loop, or a
    macro or function of the preamble, may repeat it."""
    if re.search(r"\b(for|while|do|goto|return)\b", code) or re.search(rf"\b{name}\b", preamble):
        return None
    return len(re.findall(rf"\b{name}\b", code))


def _best_form(
    target: Target, number: int, problem: Problem, profile: Profile, features: Collection[str]
) -> PlannedSweep:
    best, failed = None, None
    for operator in _forms(target, problem.size):
        try:
            sweep = _plan_one((Output(operator, (), target.suffix),), (number,), problem, profile, features)
        except ValueError as error:
            failed = failed or error
            continue
        if sweep.plan.update == "private":
            return sweep if best is None else best
        if best is None or UPDATES.index(sweep.plan.update) < UPDATES.index(best.plan.update):
            best = sweep
        if problem.forced.update is not None:
            break  # the operator's own form, where that has it
    if best is None:
        assert failed is not None
        raise failed
    return best


def _forms(target: Target, size: int) -> Iterator[Operator]:
    yield target.operator
    for lifted in target.operator.lifted:
        most, emits = lifted.most_values, target.emits
        if most is None or (emits is not None and size * emits < most):  # one more for dest
            yield lifted.operator


def _joined(
    first: PlannedSweep, second: PlannedSweep, problem: Problem, profile: Profile, features: Collection[str]
) -> PlannedSweep | None:
    """Return the two as one sweep if that pays."""
    if first.plan.memory != second.plan.memory:
        return None
    try:
        joint = _plan_one(first.outputs + second.outputs, first.numbers + second.numbers, problem, profile, features)
    except (ValueError, MemoryError):  # too many copies, or too much for the budget
        return None
    plans = (first.plan, second.plan)
    keeps = joint.plan.memory == first.plan.memory and joint.plan.passes <= sum(plan.passes for plan in plans)
    return joint if keeps else None


def _plan_one(
    outputs: tuple[Output, ...],
    numbers: tuple[int, ...],
    problem: Problem,
    profile: Profile,
    features: Collection[str],
) -> PlannedSweep:
    forced = problem.forced
    shared = None if forced.update == "private" else forced.update
    updates = _shared_updates(outputs, forced.memory, features, shared)
    worst = {m: slowest(u for each in found for u in each) for m, found in updates.items()}
    any_memory = next(iter(updates.values()))
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
    )
    if plan.update == "private":
        chosen = [("private",) * len(output.operator.parts) for output in outputs]
    else:
        chosen = updates[plan.memory]
    names = tuple(output.suffix.lstrip("_") for output in outputs if output.suffix)
    return PlannedSweep(
        replace(plan, outputs=names),
        tuple(replace(output, updates=each) for output, each in zip(outputs, chosen, strict=True)),
        numbers,
    )


def _shared_updates(
    outputs: Sequence[Output], memory: str | None, features: Collection[str], forced: str | None
) -> dict[str, list[tuple[str, ...]]]:
    """Return the update of each part of each output, for each memory that the copies may be in."""
    memories = (memory,) if memory in MEMORIES else MEMORIES
    return {m: [choose_updates(output.operator, m, features, forced) for output in outputs] for m in memories}
