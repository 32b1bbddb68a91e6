"""The model: how many copies, how many passes, in which memory (SC'20, section III, equations 1 to 6).

Pure functions of numbers. Every intermediate is kept, so that a person can read why a plan is as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from math import inf

from clhist.hardware.atomics import MEMORIES, PLACES, STRATEGIES
from clhist.hardware.profile import Profile
from clhist.planning.batch import batched
from clhist.planning.equations import (
    MAX_LOCAL_PASSES,
    can_pack,
    global_copies,
    local_copies,
    needs_passes,
    packed_counters,
    private_copies,
)
from clhist.planning.partition import MOST_PREDICTED, is_worth_partitioning, partitioned
from clhist.planning.plan import Draft, Forced, Plan
from clhist.planning.sort import global_or_sorted, sorted_pairs
from clhist.planning.times import BIN_NUMBER_BYTES, COUNT, Times

PREDICTED = ("t_local", "t_partitioned", "t_global")  # steps of a plan that was chosen by its time


@lru_cache(maxsize=4096)
def plan(
    num_elements: int,
    num_bins: int | tuple[int, ...],
    profile: Profile,
    *,
    local_update: str = "native",
    global_update: str = "native",
    bin_bytes: int | tuple[int, ...] = 4,
    arrays: int = 1,
    locked: int | tuple[int, ...] = 1,
    race_factor: float = 1.0,
    forced: Forced = Forced(),
    memory_budget: int | None = None,
    num_histograms: int | None = None,
    even: bool = True,
    emits: int = 1,
    most_emits: int | None = None,
    enough_copies: int | None = None,
    value_bytes: int = 4,
    counts: bool = False,
    kinds: tuple[str, str] = ("", ""),
    read_bytes: int = BIN_NUMBER_BYTES,
) -> Plan:
    """Return how to compute a histogram (SC'20, section III, equations 1 to 6 and the switching point of V-A).

    Where the profile has rates of these kinds of updates, the plan is the one that is predicted to be the fastest.

    Parameters
    ----------
    num_elements : int
        N, at least 0.
    num_bins : int, or tuple of int
        H, at least 1; one for each of the histograms that one sweep fills together.
    profile : Profile
        The device's numbers.
    local_update, global_update : {"native", "cas", "lock"}
        The update that work-items which share a copy would use, in each memory.
    bin_bytes : int, or tuple of int
        Bytes of one bin's accumulator, without a lock; one for each of the histograms.
    arrays : int
        Number of arrays that an accumulator is laid out in: 1 for a scalar or an array of structs, q for q arrays.
    locked : int, or tuple of int
        How many locks a bin has, where the update is a lock: one for each part that is updated by itself.
    race_factor : float
        RF, at least 1: H consecutive elements touch H / RF distinct bins.
    forced : Forced
        Choices made by the caller. A forced update takes the place of `local_update` and `global_update`. More copies
        than work-items are not made, nor more passes than bins.
    memory_budget : int, optional
        Bytes that the copies may take in global memory.
    num_histograms : int, optional
        N_out, for a batch: the elements are those of so many histograms, one after the other (section IV-C).
    even : bool
        Whether each histogram of a batch has as many elements.
    emits : int
        How many (bin, value) pairs an element has.
    most_emits : int, optional
        How many it has at most, if that is known: only then can the pairs be sorted.
    enough_copies : int, optional
        How many copies of a work-group in local memory are of use. By default as many as fit, as in the paper.
    value_bytes : int
        Bytes of a value where pairs are written to memory; 0 if all have the same.
    counts : bool
        Whether 32-bit integers are added of which each is 1: two counters of 16 bits may then share a word.
    kinds : tuple of str
        `clhist.hardware.atomics.update_kind` of the update in local and in global memory; empty if not known.
    read_bytes : int
        What the map reads for an element.

    Raises
    ------
    ValueError
        If an argument is out of range, or the forced choices contradict each other or the device.
    MemoryError
        If not even one copy fits the budget.
    """
    bins, bytes_each, locks = _tuple(num_bins), _tuple(bin_bytes), _tuple(locked)
    if len(bytes_each) != len(bins):
        raise ValueError(f"bin_bytes: expected one for each of {len(bins)} histograms, got {bin_bytes}")
    locks = locks * (len(bins) // len(locks))
    _check(
        num_elements,
        bins,
        bytes_each,
        arrays,
        race_factor,
        forced,
        memory_budget,
        num_histograms,
        most_emits,
        enough_copies,
    )
    draft = Draft(
        num_elements,
        bins,
        profile,
        bytes_each,
        arrays,
        locks,
        float(race_factor),
        forced,
        memory_budget,
        num_histograms,
        emits,
        most_emits=most_emits,
        even=even,
        enough_copies=enough_copies,
        value_bytes=value_bytes,
        counts=counts,
    )
    times = {
        memory: Times(
            profile.rates,
            COUNT if counts else kind,
            draft.element_bytes(update)[0],
            value_bytes,
            read_bytes,
            most_emits,
        )
        for memory, kind, update in zip(MEMORIES, kinds, (local_update, global_update), strict=True)
    }
    chosen = _chosen(draft, local_update, global_update, times)
    return replace(chosen, seconds=times[chosen.memory].seconds(chosen))


def _chosen(draft: Draft, local_update: str, global_update: str, times: dict[str, Times]) -> Plan:
    forced = draft.forced
    local_update, global_update = forced.update or local_update, forced.update or global_update
    if forced.update == "sort" and forced.memory != "partitioned":
        return sorted_pairs(draft)
    if draft.num_histograms is not None and forced.memory != "partitioned":
        return batched(draft, local_update, global_update)
    if forced.memory == "partitioned":
        return partitioned(draft, local_update)
    if forced.memory == "local":
        return _local(draft, local_update)
    on_cpu = draft.profile.kind == "cpu"
    if forced.update == "private" or (forced.update is None and forced.copies is None and on_cpu):
        return private_copies(draft)
    if forced.memory is None:
        free = replace(forced, update=None, locks=None) == Forced() and not on_cpu
        found = _fastest(draft, local_update, global_update, times) if free else None
        found = found or _by_passes(draft, local_update)
        if found is not None and found.memory == "local":
            return found
    return global_or_sorted(draft, global_update)


def _local(draft: Draft, update: str) -> Plan:
    if needs_passes(draft) and can_pack(draft, update):
        return packed_counters(draft)
    return local_copies(draft, update)


def _fastest(draft: Draft, local_update: str, global_update: str, times: dict[str, Times]) -> Plan | None:
    """Return the plan that is predicted to take the least time; None where that of a possible one is not known."""
    makers: tuple[Callable[[], Plan], ...] = (
        lambda: _local(draft, local_update),
        lambda: _partitioned(draft, local_update),
        lambda: global_copies(draft, global_update),
    )
    found: dict[str, tuple[float, Plan]] = {}
    for symbol, make in zip(PREDICTED, makers, strict=True):
        draft.steps.clear()
        try:
            plan = make()
        except (ValueError, MemoryError):  # cannot be, or is more than the budget allows
            continue
        seconds = times[plan.memory].seconds(plan)
        if seconds is None:
            draft.steps.clear()
            return None
        found[symbol] = seconds, replace(plan, steps=tuple(draft.steps))
    draft.steps.clear()
    if not {PREDICTED[0], PREDICTED[-1]} <= found.keys():
        return None
    best = min(found, key=lambda symbol: found[symbol][0])
    for symbol, (seconds, _) in found.items():
        draft.step(symbol, seconds * 1e6, "", "predicted from measured rates, us")
    return replace(found[best][1], steps=(*found[best][1].steps, *draft.steps))


def _partitioned(draft: Draft, update: str) -> Plan:
    plan = partitioned(draft, update)
    if plan.partitions > MOST_PREDICTED:
        raise ValueError(f"memory: expected at most {MOST_PREDICTED} partitions, got {plan.partitions}")
    return plan


def _by_passes(draft: Draft, update: str) -> Plan | None:
    """Return the plan in local memory unless that takes too many passes: the paper's rule, and one for partitioning."""
    try:
        local = _local(draft, update)
    except ValueError:  # what is forced does not fit local memory
        draft.steps.clear()
        return None
    if local.packed:
        return local
    if is_worth_partitioning(draft, update, local.passes):
        return partitioned(draft, update)
    limit = MAX_LOCAL_PASSES[update]
    draft.step("S_max", limit, "V-A", "3, 4, 6 passes in local memory for native, cas, lock")
    return replace(local, steps=tuple(draft.steps)) if local.passes <= limit else None


def _tuple(value: int | tuple[int, ...]) -> tuple[int, ...]:
    return value if isinstance(value, tuple) else (value,)


def _check(
    num_elements: int,
    bins: tuple[int, ...],
    bin_bytes: tuple[int, ...],
    arrays: int,
    race_factor: float,
    forced: Forced,
    memory_budget: int | None,
    num_histograms: int | None,
    most_emits: int | None,
    enough_copies: int | None,
) -> None:
    for name, value, least in (
        ("num_elements", num_elements, 0),
        *(("num_bins", bins_each, 1) for bins_each in bins),
        *(("bin_bytes", size, 1) for size in bin_bytes),
        ("copies", forced.copies, 1),
        ("passes", forced.passes, 1),
        ("work_group_size", forced.work_group_size, 1),
        ("locks", forced.locks, 1),
        ("arrays", arrays, 1),
        ("memory_budget", memory_budget, 1),
        ("num_histograms", num_histograms, 1),
        ("most_emits", most_emits, 1),
        ("enough_copies", enough_copies, 1),
    ):
        if value is not None and value < least:
            raise ValueError(f"{name}: expected at least {least}, got {value}")
    if not 1 <= race_factor < inf:
        raise ValueError(f"race_factor: expected a finite number of at least 1, got {race_factor}")
    if forced.memory not in (None, *PLACES):
        raise ValueError(f"memory: expected one of {', '.join(PLACES)}, got {forced.memory!r}")
    if forced.update not in (None, *STRATEGIES):
        raise ValueError(f"update: expected one of {', '.join(STRATEGIES)}, got {forced.update!r}")
