"""Division of a call's histograms into sweeps: forms of operators, updates, and histograms that share a sweep.

Pure: `clhist._core.model.choose` plans one sweep, this module decides what a sweep consists of.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, TypeVar

from clhist._core.devices.profile import Profile
from clhist._core.devices.vendors import MEMORIES, vector_atomic
from clhist._core.model.choose import plan_sweep
from clhist._core.model.plan import Output, Plan
from clhist._core.model.problem import Histogram, Problem
from clhist._core.model.times import NATIVE_COPIES
from clhist._core.model.updates import (
    CARRY,
    GATHER,
    MOST_NATIVE_COPIES,
    UPDATES,
    WITHOUT_UPDATES,
    choose_updates,
    part_loops,
    rate_kind,
    slowest,
    useful_copies,
)
from clhist._core.model.workload import Workload
from clhist.operators.halves import number_of
from clhist.operators.operator import Operator, merged

# On an H200 a compare-exchange of 32 bits in local memory takes 115 us for 50 million saturating sums,
# an addition of 64 bits 191; from three passes on the addition in global memory is ahead.
# Note [When a wider bin pays], docs/decisions/0010. Predicted times would choose 1 % of an H200's plans otherwise.
_PASSES_WORTH_A_WIDER_BIN = 2
_MANY_ELEMENTS = 2**24  # to which looking at some values is little beside the sweep (measured there, too)

T = TypeVar("T")


def plan(problem: Problem, profile: Profile) -> Plan:
    """Return how a device computes the histograms of a problem in one sweep over the input.

    Parameters
    ----------
    problem : Problem
        What is asked for.
    profile : Profile
        The device.

    Raises
    ------
    ValueError
        If a number is out of range, the choices contradict each other or the device, or the histograms take more
        than one sweep: `plan_sweeps` plans those.
    MemoryError
        If not even one copy fits the budget.

    Examples
    --------
    >>> problem = clhist.Problem.of(clhist.operators.count(), 2041, 50_000_000)
    >>> clhist.plan(problem, clhist.named_profile("nvidia-h200")).update
    'native'
    """
    plans = plan_sweeps(problem, profile)
    if len(plans) != 1:
        raise ValueError(f"problem: expected histograms that one sweep fills, got {len(plans)} sweeps; use plan_sweeps")
    return plans[0]


def plan_sweeps(problem: Problem, profile: Profile, indices: Collection[int] | None = None) -> tuple[Plan, ...]:
    """Return the sweeps that compute all histograms of `problem`, or those of these `indices`.

    An operator takes the form, its own or an equivalent one, whose update is best where work-items share copies.
    Histograms are filled by one sweep as long as that reads the input no more often than one sweep each would, and
    moves none of them out of local memory.

    Raises
    ------
    ValueError, MemoryError
        As `clhist._core.model.choose.plan_sweep`, and for an update that an operator cannot have.

    Examples
    --------
    >>> problem = clhist.Problem.of(clhist.operators.count(), 2041, 50_000_000)
    >>> len(clhist.plan_sweeps(problem, clhist.named_profile("nvidia-h200")))
    1
    """
    wanted = range(len(problem.histograms)) if indices is None else indices
    separate = [_best_form(index, problem, profile) for index in wanted]
    sweeps = join_sweeps(separate, lambda first, second: _joined(first, second, problem, profile))
    if profile.kind == "cpu":  # work-items own their copies: a cell needs no atomic, so it may have any size
        sweeps = [_side_by_side(plan) for plan in sweeps]
    return tuple(_narrowed(plan, problem, profile) for plan in sweeps)


def join_sweeps(sweeps: Sequence[T], join: Callable[[T, T], T | None]) -> list[T]:
    """Return the sweeps, each joined with the first that it can be joined with."""
    joined: list[T] = []
    for one in sweeps:
        for k, other in enumerate(joined):
            joint = join(other, one)
            if joint is not None:
                joined[k] = joint
                break
        else:
            joined.append(one)
    return joined


def is_worth_joining(joint: Plan, first: Plan, second: Plan) -> bool:
    """Whether one sweep for both is better than one each: the same memory, and the input read no more often."""
    return joint.memory == first.memory == second.memory and joint.passes <= first.passes + second.passes


def _side_by_side(plan: Plan) -> Plan:
    """Return the plan with the parts of each product in one cell where every work-item has copies of its own."""
    if not plan.owns_copies or plan.is_batch:
        return plan
    return replace(plan, outputs=tuple(_in_one_cell(output) for output in plan.outputs))


def _narrowed(plan: Plan, problem: Problem, profile: Profile) -> Plan:
    """Return the plan behind one that tries narrow sums, where it may."""
    if len(plan.outputs) != 1 or not plan.outputs[0].operator.narrow:
        return plan
    from clhist._core.model.narrow import before, narrow_form, saves_a_pass

    histogram = problem.histograms[plan.output_indices[0]]
    most_pairs = None if histogram.may_exceed else histogram.max_pairs
    form = narrow_form(plan, most_pairs, on_cpu=profile.kind == "cpu")
    if form is None:
        return plan

    def planned(outputs: tuple[Output, ...], base: Problem, **forced: Any) -> Plan:
        forced_problem = replace(base, choices=replace(base.choices, **forced))
        return _plan_one(outputs, plan.output_indices, forced_problem, profile, histogram)

    # The second stage asks for the flag, so narrow sweeps must not write results themselves.
    with_copies = replace(problem, one_launch=False)
    try:
        narrow = planned((Output(form, (), histogram.suffix),), with_copies)
        # Carries are hardware atomics already: narrow sums must save a pass.
        if form.largest is not None and plan.update == CARRY.name:
            if problem.choices.memory is None:
                narrow = planned(narrow.outputs, with_copies, memory="local")
            return before(narrow, plan) if saves_a_pass(narrow, plan) else plan
        # On a GPU both plans must update in the same memory, see `before`: try the ranges of the exact sums first.
        if narrow.memory != plan.memory and profile.kind != "cpu" and plan.ranges:
            narrow = planned(narrow.outputs, with_copies, memory="partitioned")
        elif narrow.memory == "global" and profile.kind != "cpu":
            return plan
        elif narrow.memory != plan.memory and profile.kind != "cpu":
            # Else the exact sums move to the memory of the narrow ones.
            plan = planned(plan.outputs, problem, memory=narrow.memory, update=narrow.update)
        return before(narrow, plan)
    except (ValueError, MemoryError):  # what is forced is impossible for one of them
        return plan


def _in_one_cell(output: Output) -> Output:
    operator = merged(output.operator)
    return replace(output, operator=operator, updates=output.updates[: len(operator.parts)])


def _best_form(index: int, problem: Problem, profile: Profile) -> Plan:
    best, failed = None, None
    histogram = problem.histograms[index]
    for operator in _forms(histogram, problem.size):
        try:
            plan = _plan_one((Output(operator, (), histogram.suffix),), (index,), problem, profile, histogram)
        except ValueError as error:
            failed = failed or error
            continue
        except MemoryError:
            if best is None:
                raise
            continue
        # Without atomics no other form updates faster, and wider bins only cost memory.
        # Private copies in local memory are an exception on devices whose instructions were counted.
        is_shared = NATIVE_COPIES in profile.rates and plan.memory == "local" and problem.choices.update is None
        if plan.update == GATHER or (plan.update == "private" and not is_shared):
            return plan if best is None else best
        if best is None or _is_better(plan, best, problem, profile):
            best = plan
        if problem.choices.update is not None:
            break  # the operator's own form, where that has it
    if best is None:
        assert failed is not None
        raise failed
    return best


def _is_better(other: Plan, own: Plan, problem: Problem, profile: Profile) -> bool:
    """Whether the better update of an equivalent form is worth its larger bins; not in local memory (measured)."""
    # Private copies take the place of locks. Counted on AMD, a native update takes half the instructions.
    if own.update == "private":
        return other.update == "native"
    if _rank(other) >= _rank(own):
        return False
    if other.update == CARRY.name:
        return _is_worth_carrying(other, own, problem, profile)
    wider = other.outputs[0].operator.bin_bytes > own.outputs[0].operator.bin_bytes
    return not (wider and own.memory == "local" and own.passes <= _PASSES_WORTH_A_WIDER_BIN)


def _is_worth_carrying(exact: Plan, own: Plan, problem: Problem, profile: Profile) -> bool:
    """Whether exact sums take the place of plain ones whose updates wait: always faster by skew, else about as fast."""
    is_alone = len(problem.histograms) == 1 and problem.num_histograms is None
    if not is_alone or problem.size < _MANY_ELEMENTS or not problem.choices.forced <= {"memory"}:
        return False
    narrow = _narrowed(exact, problem, profile)
    if narrow.again is None:
        return False
    # Plain sums are ahead only if uniform bins fit one pass over local memory, and exact ones do not.
    return narrow.passes == 1 or own.passes > 1 or own.strategy != "local" or problem.race_factor > 1


def _rank(plan: Plan) -> int:
    """Return how good an update is, 0 being the best; sorting was taken in the place of locks."""
    return UPDATES.index("lock" if plan.update in WITHOUT_UPDATES else plan.update)


def _forms(histogram: Histogram, size: int) -> Iterator[Operator]:
    yield histogram.operator
    for other in histogram.operator.equivalents:
        most, pairs = other.most_values, histogram.max_pairs
        # Fewer than 2^32 values are exceeded by calls of any size, where elements emit more than stated.
        if most is not None and most < 2**32 - 1 and histogram.may_exceed:
            continue
        if most is None or (pairs is not None and size * pairs < most):  # one more for dest
            yield other.operator


def _joined(first: Plan, second: Plan, problem: Problem, profile: Profile) -> Plan | None:
    """Return the two as one sweep if that pays; sorted or partitioned pairs are those of one."""
    if not (first.is_joinable and second.is_joinable):
        return None
    indices = first.output_indices + second.output_indices
    try:
        joint = _plan_one(first.outputs + second.outputs, indices, problem, profile)
    except (ValueError, MemoryError):  # too many copies, or too much for the budget
        return None
    return joint if is_worth_joining(joint, first, second) else None


def _plan_one(
    outputs: tuple[Output, ...],
    indices: tuple[int, ...],
    problem: Problem,
    profile: Profile,
    single: Histogram | None = None,
) -> Plan:
    """Return the plan of one sweep for `outputs`; `single` is the histogram asked for if there is only one."""
    choices = problem.choices
    features = profile.features or frozenset()
    # Strategies without shared copies force none: the workload still needs the best one, for bytes and rates.
    shared = None if choices.update in ("private", *WITHOUT_UPDATES) else choices.update
    updates = _shared_updates(outputs, choices.memory, features, shared, problem.refused)
    plan = plan_sweep(_workload(outputs, indices, problem, profile, single, updates))
    refused = tuple(f"{update} in {memory}" for update, memory in problem.refused)
    return replace(_filling(plan, outputs, indices, updates), refused=refused)


def _filling(
    plan: Plan, outputs: tuple[Output, ...], indices: tuple[int, ...], updates: dict[str, list[tuple[str, ...]]]
) -> Plan:
    """Return the plan, and that of what computes again behind it, for these outputs with the updates that they take."""
    if plan.again is not None:
        # A fallback computes the same outputs, but may have other updates.
        plan = replace(plan, again=_filling(plan.again, outputs, indices, updates))
    if plan.update in ("private", *WITHOUT_UPDATES):
        chosen = [(plan.update,) * len(output.operator.parts) for output in outputs]
    else:
        chosen = updates[plan.memory]
    filled = tuple(
        replace(output, updates=output_updates) for output, output_updates in zip(outputs, chosen, strict=True)
    )
    return plan.filling(filled, indices)


def _workload(
    outputs: tuple[Output, ...],
    indices: tuple[int, ...],
    problem: Problem,
    profile: Profile,
    single: Histogram | None,
    updates: dict[str, list[tuple[str, ...]]],
) -> Workload:
    """Return the numbers of a sweep that fills `outputs`."""
    bins = tuple(problem.histograms[index].bins for index in indices)
    # One sweep makes the updates of all parts, so its copies and passes are those of the slowest.
    worst = {memory: slowest(u for names in rows for u in names) for memory, rows in updates.items()}
    most = profile.rates.get(NATIVE_COPIES, MOST_NATIVE_COPIES)
    useful = [
        useful_copies(update, number, loops=part_loops(part), read_bytes=problem.read_bytes or 4, most=most)
        for output, part_updates, number in zip(outputs, updates.get("local", ()), bins, strict=False)
        for part, update in zip(output.operator.parts, part_updates, strict=True)
    ]
    return Workload(
        size=problem.size,
        bins=bins,
        profile=profile,
        local_update=worst.get("local", "lock"),
        global_update=worst.get("global", "lock"),
        bin_bytes=tuple(output.operator.bin_bytes for output in outputs),
        arrays=max(len(output.operator.parts) for output in outputs),
        locked=tuple(part_updates.count("lock") for part_updates in next(iter(updates.values()))),
        race_factor=problem.race_factor,
        choices=problem.choices,
        memory_budget=problem.memory_budget,
        num_histograms=problem.num_histograms,
        equal_shares=problem.equal_shares,
        pairs_per_element=problem.pairs_per_element,
        useful_copies=max(useful, default=None),
        rate_kinds=_rate_kinds(outputs, updates),
        read_bytes=problem.read_bytes,
        loops=any(part_loops(part) for output in outputs for part in output.operator.parts),
        one_launch=problem.one_launch,
        **_of_one(outputs[0].operator, problem, profile, single),
    )


def _of_one(operator: Operator, problem: Problem, profile: Profile, single: Histogram | None) -> dict[str, Any]:
    """Return what a workload has of the only histogram of a sweep."""
    value_bytes = number_of(operator.dtype).itemsize
    if single is None:
        return {"value_bytes": value_bytes}
    features = profile.features or ()
    atomic = vector_atomic(operator.operation, operator.dtype, features) if operator.holds_values else None
    return {
        "max_pairs": single.max_pairs,
        "may_exceed": single.may_exceed,
        "value_bytes": 0 if single.value is not None else value_bytes,
        "counts": single.counts and _can_be_packed(operator),
        "rows": problem.rows,
        "holds_values": operator.holds_values,
        "vector_numbers": 0 if atomic is None else atomic.numbers,
        "has_doubles": "fp64" in features and _has_doubles(operator),
    }


def _has_doubles(operator: Operator) -> bool:
    """Whether sums in double precision may be those of `operator`, a long integer."""
    if not operator.parts[0].words:
        return False
    from clhist.operators.doubles import has_doubles

    return has_doubles(operator)


def _rate_kinds(
    outputs: Sequence[Output], updates: dict[str, list[tuple[str, ...]]]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what the rates of the updates of a pair depend on, for each memory."""
    parts = [part for output in outputs for part in output.operator.parts]
    local, everywhere = (tuple(map(rate_kind, parts, chain(*updates.get(memory, ())))) for memory in MEMORIES)
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
