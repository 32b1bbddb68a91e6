"""Checks of every update in every memory on every type, with inputs that make trouble."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pyopencl as cl

from clhist import Profile
from clhist.atomics import PLACES, available_updates, native_atomic
from clhist.operator import Operator
from clhist.selftest.cases import CASES, MORE, NUM_BINS, PRODUCTS, Case, pair_kernel, ufunc_case
from clhist.selftest.checks import Check, NotAvailableError
from clhist.selftest.inputs import drawn
from clhist.selftest.reference import groups_of

ROWS = [(update, memory) for update in ("private", "native", "cas", "lock") for memory in PLACES]
ROWS.remove(("private", "partitioned"))
ROWS.append(("sort", "global"))

# Operators for each type; where there is an atomic for each, all of `NATIVE`.
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
    "float64": ["add float64", "fmin float64", "variance float64"],
    "complex64": ["add complex64"],
    "complex128": ["multiply complex128"],
    "pair": ["argmax float32", "argmin int64", "first float32"],
    "struct": ["two largest", "mixed product", "mean float32"],
}
QUICK = {
    "private": ["add float32"],
    "native": ["add int32", "add uint64", "add float32"],
    "cas": ["gcd int8", "add float32"],
    "lock": ["two largest"],
    "sort": ["two largest"],
}
NATIVE = (np.add, np.minimum, np.maximum, np.bitwise_and, np.bitwise_or, np.bitwise_xor)
_ATOMIC_TYPES = ("int32", "uint32", "int64", "uint64")

PLAIN = ("uniform, some outside", 1511, NUM_BINS)

# Forced (M, S), from one of each to more than there are work-items and bins.
COPIES_AND_PASSES = [(1, 1), (3, 2), (16, 5), (10_000, 10_000)]

_THOROUGH = ("int32", "float32", "struct")  # types with more copies, passes and inputs, which are kernels to build
_MANY_BINS = 1000  # of which local memory may not hold so many copies

# Distribution, elements, bins: none, one, one bin, more bins than elements, lengths that nothing divides.
INPUTS = [
    ("uniform, some outside", 0, 7),
    ("uniform, some outside", 1, 1),
    ("all in one", 1021, 1),
    ("all in one", 2053, 41),
    ("half in one", 1499, 3),
    ("sorted", 1999, 61),
    ("uniform, some outside", 257, 5003),
    ("all behind the last", 307, 5),
    ("few inside", 997, 31),
]


def update_checks(queue: cl.CommandQueue, profile: Profile, *, quick: bool = False) -> Iterator[Check]:
    """Yield the checks of all updates.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        Of the device.
    profile : Profile
        What is planned for, with its features; one of a GPU, or like one, or else nothing is shared.
    quick : bool
        Whether a few types and inputs are enough.
    """
    features = profile.features or frozenset()
    for update, memory in ROWS:
        row, shared_in = row_name(update, memory), "local" if memory == "partitioned" else memory
        for column, names in COLUMNS.items():
            if update == "native" and column in _ATOMIC_TYPES:
                names = [f"{ufunc.__name__} {column}" for ufunc in NATIVE]
            if shared_in != memory or (update, memory) == ("private", "local"):
                names = names[:1]  # the type decides here, less the operator
            for name in names:
                if quick and name not in QUICK[update]:
                    continue
                needs = needed_features(_case(name).operator, update, shared_in, features)
                thorough = not quick and column in _THOROUGH
                action = partial(_check, name, update, memory, queue, profile, needs is not None, thorough)
                yield Check(row, column, name, action, needs or frozenset())


def row_name(update: str, memory: str) -> str:
    """Return what a row of the table is called."""
    return update if update == "sort" else f"{update}, {memory}"


def needed_features(operator: Operator, update: str, memory: str, features: Collection[str]) -> frozenset[str] | None:
    """Return by which of `features` an operator, or its first form that can be, is updated so; None if none can be."""
    for form in (operator, *(lifted.operator for lifted in operator.lifted)):
        if update in ("private", "sort", "lock"):
            return frozenset()
        if update not in available_updates(form, memory, features):
            continue
        if update == "cas":
            return frozenset(["int64_base_atomics"] if any(part.cell_bytes == 8 for part in form.parts) else [])
        rows = [native_atomic(part.operation, part.dtype, memory, features) for part in form.parts]
        return frozenset(row.feature for row in rows if row is not None and row.feature is not None)
    return None


def _check(
    name: str, update: str, memory: str, queue: cl.CommandQueue, profile: Profile, available: bool, thorough: bool
) -> None:
    kernel = pair_kernel(_case(name).operator, profile, context=queue.context)
    bins, values, check = _input(name, *PLAIN)
    run = partial(kernel, queue=queue, update=update, memory=None if update == "sort" else memory)
    if not available:
        try:
            run(bins, values, num_bins=NUM_BINS)
        except ValueError as error:
            if str(error).startswith(f"update: '{update}' is not available"):
                raise NotAvailableError(str(error)) from None
            raise
        raise AssertionError(f"expected {update} updates to be refused, got a result")
    choices: list[dict[str, Any]] = [{}]
    if memory == "partitioned":
        choices = [{}, {"passes": 3}] if thorough else [{"passes": 3}]
    elif update != "sort":
        choices = [{"copies": m, "passes": s} for m, s in (COPIES_AND_PASSES if thorough else COPIES_AND_PASSES[1:2])]
    for number, (distribution, size, num_bins) in enumerate(
        [PLAIN] * len(choices) + (INPUTS if thorough else INPUTS[::3])
    ):
        bins, values, check = _input(name, distribution, size, num_bins)
        each = choices[number % len(choices)] if num_bins < _MANY_BINS else {}  # kernels take their time to build
        expect(check, run(bins, values, num_bins=num_bins, **each), bins=distribution, N=size, H=num_bins, **each)
    bins, values, dest, check = _with_dest(name)
    expect(check, run(bins, values, num_bins=NUM_BINS, dest=dest, **choices[0]), dest="given", **choices[0])


def expect(check: Callable[[np.ndarray], None], result: np.ndarray, **where: object) -> None:
    """Check a result, and say of which call it is if it is wrong."""
    try:
        check(result)
    except AssertionError as error:
        said = ", ".join(f"{key} {value}" for key, value in where.items())
        raise AssertionError(f"{said}: {error}" if said else str(error)) from None


@lru_cache(maxsize=256)
def _case(name: str) -> Case:
    known = CASES | PRODUCTS | MORE
    operation, _, dtype = name.partition(" ")
    return known[name] if name in known else ufunc_case(getattr(np, operation), dtype)


@lru_cache(maxsize=1024)
def _input(
    name: str, distribution: str, size: int, num_bins: int
) -> tuple[np.ndarray, np.ndarray, Callable[[np.ndarray], None]]:
    """Return bins, values, and the check of their histogram."""
    rng, case = np.random.default_rng(size), _case(name)
    bins, values = drawn(distribution, rng, size, num_bins), case.draw(rng, size)
    return bins, values, case.check(groups_of(bins, values, num_bins))


@lru_cache(maxsize=64)
def _with_dest(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, Callable[[np.ndarray], None]]:
    """Return bins, values and what the bins hold before, which takes part once."""
    (bins, values, _), case = _input(name, *PLAIN), _case(name)
    dest = case.draw(np.random.default_rng(1), NUM_BINS)
    if "index" in (case.operator.dtype.names or ()):
        dest["index"] += bins.size  # all indices differ
    groups = groups_of(np.concatenate([np.arange(NUM_BINS), bins]), np.concatenate([dest, values]), NUM_BINS)
    return bins, values, dest, case.check(groups)
