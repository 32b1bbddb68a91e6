"""Checks of every update in every memory on every type, with inputs that make trouble."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pyopencl as cl

from clhist import Profile
from clhist._core.devices.vendors import native_atomic
from clhist._core.model.problem import PLACES
from clhist._core.model.updates import UPDATES, available_updates
from clhist.operators.operator import Operator
from clhist.selftest.cases import CASES, MORE, NUM_BINS, PRODUCTS, Case, pair_kernel, ufunc_case
from clhist.selftest.checks import Check, NotAvailableError
from clhist.selftest.inputs import drawn
from clhist.selftest.places import HOST, Host, PlacedKernel
from clhist.selftest.reference import groups_of

ROWS = [(update, memory) for update in UPDATES for memory in PLACES]
ROWS.remove(("private", "partitioned"))
ROWS.append(("sort", "global"))

# Operators for each type, the first of which is checked everywhere; where each has an atomic, all of `NATIVE`.
COLUMNS = {
    "bool": ["logical_or bool"],
    "int8": ["gcd int8", "maximum int8"],
    "uint8": ["saturating_add uint8"],
    "int16": ["add int16"],
    "uint16": ["add uint16"],
    "int32": ["add int32"],
    "uint32": ["add uint32"],
    "int64": ["add int64"],
    "uint64": ["add uint64"],
    "float32": ["add float32", "maximum float32", "fmin float32"],
    "float64": ["add float64", "fmin float64"],
    "complex64": ["add complex64"],
    "complex128": ["multiply complex128"],
    "pair": ["argmax float32", "argmin int64", "first float32"],
    "struct": ["two largest"],
    "words": ["reproducible_add float32"],
    "parts": ["mixed product", "mean float32", "variance float64"],
}
QUICK = {
    "private": ["add float32"],
    "native": ["add int32", "add uint64", "add float32"],
    "carry": ["reproducible_add float32"],
    "cas": ["gcd int8", "add float32"],
    "lock": ["two largest"],
    "sort": ["two largest"],
}
TINY = {
    "private": ["add int32"],
    "native": ["add int32", "add uint64"],
    "carry": ["reproducible_add float32"],
    "cas": ["maximum int8", "add float32", "add float64"],
    "lock": ["maximum int8", "add int32", "two largest"],
    "sort": ["add int32", "two largest"],
}
NATIVE = (np.add, np.minimum, np.maximum, np.bitwise_and, np.bitwise_or, np.bitwise_xor)
ATOMIC_TYPES = ("int32", "uint32", "int64", "uint64")

# Where the type decides more than the operator: what differs between two operators was checked in other rows.
_FIRST_ONLY = {("private", "local"), ("cas", "global"), ("lock", "local"), ("lock", "global"), ("sort", "global")}

PLAIN = ("uniform, some outside", 1511, NUM_BINS)

# Forced (M, S); the last is more than there are work-items and bins. Each may be another program to build.
_COPIES_AND_PASSES = [(1, 1), (16, 5), (10_000, 10_000)]

# Distribution, elements, bins: one bin of many, more bins than elements, lengths that nothing divides. For these every
# type has one program.
INPUTS = [PLAIN, ("all in one", 2053, 41), ("uniform, some outside", 101, 257), ("few inside", 997, 31)]

# For four types, of one word, of float updates, of long integers and of a lock: also none, one, skew, order, and bins
# of which local memory may not hold so many copies.
_THOROUGH = ("add int32", "add float32", "reproducible_add float32", "two largest")
_MORE_INPUTS = [
    ("uniform, some outside", 0, 7),
    ("uniform, some outside", 1, 1),
    ("all in one", 1021, 1),
    ("half in one", 1499, 3),
    ("sorted", 1999, 61),
    ("all behind the last", 307, 5),
]
# For a simulator, besides `PLAIN`: half of the elements in one bin, as many bins as there are elements.
_TINY_INPUTS = [("half in one", 1501, 300), ("half in one", 1501, 1500)]
_MANY_BINS = ("uniform, some outside", 257, 5003)


def update_checks(
    queue: cl.CommandQueue, profile: Profile, *, size: str = "full", place: Host = HOST
) -> Iterator[Check]:
    """Yield the checks of all updates.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        Of the device.
    profile : Profile
        What is planned for, with its features; one of a GPU, or like one, or else nothing is shared.
    size : {"full", "quick", "tiny"}
        "quick" is a few types, "tiny" besides a few inputs, for a simulator.
    place : Host
        Where the arrays are.
    """
    few = {"full": None, "quick": QUICK, "tiny": TINY}[size]
    features = profile.features or frozenset()
    for update, memory in ROWS:
        # Each range of a partition is combined in local memory, whose atomics it needs.
        row, shared_in = row_name(update, memory), "local" if memory == "partitioned" else memory
        for column, names in COLUMNS.items():
            if update == "native" and column in ATOMIC_TYPES:
                # Each operation is another atomic of the device.
                names = [f"{ufunc.__name__} {column}" for ufunc in NATIVE]
            if size != "tiny" and (memory == "partitioned" or (update, memory) in _FIRST_ONLY):
                names = names[:1]
            for name in names:
                if few is not None and name not in few[update]:
                    continue
                needs = needed_features(_case(name).operator, update, shared_in, features)
                inputs = "tiny" if size == "tiny" else "thorough" if size == "full" and name in _THOROUGH else "some"
                action = partial(_check, name, update, memory, queue, profile, needs is not None, inputs, place)
                yield Check(row, column, name, action, needs or frozenset())


def row_name(update: str, memory: str) -> str:
    """Return the name of a row of the table."""
    return update if update == "sort" else f"{update}, {memory}"


def needed_features(operator: Operator, update: str, memory: str, features: Collection[str]) -> frozenset[str] | None:
    """Return by which of `features` an operator, or its first form that can be, is updated so; None if none can be."""
    for form in (operator, *(other.operator for other in operator.equivalents)):
        if update in ("private", "sort", "lock"):
            return frozenset()
        if update not in available_updates(form, memory, features):
            continue
        if update == "carry":
            return frozenset()
        if update == "cas":
            return frozenset(["int64_base_atomics"] if any(part.cell_bytes == 8 for part in form.parts) else [])
        rows = [native_atomic(part.operation, part.dtype, memory, features) for part in form.parts]
        return frozenset(row.feature for row in rows if row is not None and row.feature is not None)
    return None


def _check(
    name: str,
    update: str,
    memory: str,
    queue: cl.CommandQueue,
    profile: Profile,
    available: bool,
    inputs: str,
    place: Host,
) -> None:
    kernel = PlacedKernel(place, pair_kernel(_case(name).operator, profile, context=queue.context))
    bins, values, check = _input(name, *PLAIN)
    run = partial(kernel, queue=queue, update=update, memory=None if update == "sort" else memory)
    # An update that the device lacks must be refused, instead of being replaced by another.
    if not available:
        try:
            run(bins, values, num_bins=NUM_BINS)
        except ValueError as error:
            if str(error).startswith(f"update: '{update}' is not available"):
                raise NotAvailableError(str(error)) from None
            raise
        raise AssertionError(f"expected {update} updates to be refused, got a result")
    forced = _forced(update, memory)
    thorough = inputs == "thorough"
    calls = [(item, forced) for item in INPUTS]
    if inputs == "tiny":
        most = 300 if update == "private" else 1500  # a copy for each work-item takes long to clear
        calls = [(PLAIN, forced)] + [(item, {}) for item in _TINY_INPUTS if item[2] <= most]
        calls += [(_MANY_BINS, forced)] * (memory == "partitioned")  # most partitions are empty
    if thorough:
        calls += [(item, forced) for item in _MORE_INPUTS] + [(_MANY_BINS, {})]
    if thorough and memory != "partitioned" and update != "sort":
        calls += [(PLAIN, {"copies": m, "passes": s}) for m, s in _COPIES_AND_PASSES]
    for (distribution, size, num_bins), choices in calls:
        bins, values, check = _input(name, distribution, size, num_bins)
        result = _forced_run(run, bins, values, num_bins=num_bins, **choices)
        expect(check, result, bins=distribution, N=size, H=num_bins, **choices)
    bins, values, dest, check = _with_dest(name)
    expect(check, _forced_run(run, bins, values, num_bins=NUM_BINS, dest=dest, **forced), dest="given", **forced)


def _forced_run(run: Callable[..., np.ndarray], *arrays: np.ndarray, **choices: Any) -> np.ndarray:
    """Run with these choices, in more passes or fewer copies where they do not fit a small device's local memory."""
    try:
        return run(*arrays, **choices)
    except ValueError as error:
        # Where another form of the operator is updated so, the planner reports the operator's own.
        refused = ("copies: ",) if choices.get("passes") == 2 else ("copies: ", "update: ")
        if str(error).startswith(refused) and choices.get("copies", 1) > 1:
            return _forced_run(run, *arrays, **choices | {"copies": choices["copies"] // 2})
        if choices.get("passes") != 2 or not str(error).startswith(("passes: expected at least", "update: ")):
            raise
        return run(*arrays, **choices | {"passes": 8})


def _forced(update: str, memory: str) -> dict[str, Any]:
    """Return choices by which one program does for all of `INPUTS`."""
    if update == "sort":
        return {}
    if memory == "partitioned":
        return {"passes": 3}
    if (update, memory) == ("private", "local"):
        return {"work_group_size": 4, "passes": 2}  # a copy for each work-item
    return {"copies": 3, "passes": 2}


def expect(check: Callable[[np.ndarray], None], result: np.ndarray, **where: object) -> None:
    """Check a result, and say of which call it is if it is wrong."""
    try:
        check(result)
    except AssertionError as error:
        said = ", ".join(f"{key} {value}" for key, value in where.items())
        raise AssertionError(f"{said}: {error}" if said else str(error)) from None


@lru_cache(maxsize=256)
def _case(name: str) -> Case:
    cases = CASES | PRODUCTS | MORE
    operation, _, dtype = name.partition(" ")
    return cases[name] if name in cases else ufunc_case(getattr(np, operation), dtype)


@lru_cache(maxsize=1024)
def _input(
    name: str, distribution: str, size: int, num_bins: int
) -> tuple[np.ndarray, np.ndarray, Callable[[np.ndarray], None]]:
    """Return bins, values, and the check of their histogram."""
    rng, case = np.random.default_rng(size), _case(name)
    bins, values = drawn(distribution, rng, size, num_bins), case.draw(rng, size)
    return bins, values, case.check(groups_of(bins, values, num_bins))


def checked_input(
    name: str, distribution: str, size: int, num_bins: int
) -> tuple[Operator, np.ndarray, np.ndarray, Callable[[np.ndarray], None]]:
    """Return the operator of a case, bins and values for it, and the check of their histogram."""
    return _case(name).operator, *_input(name, distribution, size, num_bins)


@lru_cache(maxsize=64)
def _with_dest(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, Callable[[np.ndarray], None]]:
    """Return bins, values and what the bins hold before, which takes part once."""
    (bins, values, _), case = _input(name, *PLAIN), _case(name)
    dest = case.draw(np.random.default_rng(1), NUM_BINS)
    if "index" in (case.operator.dtype.names or ()):
        dest["index"] += bins.size  # all indices differ
    groups = groups_of(np.concatenate([np.arange(NUM_BINS), bins]), np.concatenate([dest, values]), NUM_BINS)
    return bins, values, dest, case.check(groups)
