"""A case for each ready-made operator, on types that between them are all of the library's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from math import isclose
from typing import Any

import numpy as np
import pyopencl as cl

from clhist import operators
from clhist.selftest import cases as known
from clhist.selftest.cases import pair_kernel, ufunc_case
from clhist.selftest.inputs import drawn
from clhist.selftest.reference import groups_of
from emulated.cases.case import Action, Case, same

_SIZE, _BINS = 3001, 37
_DRAWS = {"variance": 700, "mean": 1500, "multiply": 700}  # exact rational references take their time

# Ready-made operators that the self-test's list does not name, by ufuncs.
_UFUNCS = {
    "bitwise_and": (np.bitwise_and, np.uint32),
    "bitwise_or": (np.bitwise_or, np.int64),
    "bitwise_xor": (np.bitwise_xor, np.uint64),
    "logical_and": (np.logical_and, np.bool_),
    "logical_xor": (np.logical_xor, np.bool_),
    "minimum": (np.minimum, np.float64),
    "fmax": (np.fmax, np.float32),
}
# What an operator of the self-test's list is called there, where it is not its own name.
_CALLED = {"mixed product": "product", "two largest": "", "gcd int8": ""}
_SAME = {"logical_or": "any", "logical_and": "all"}  # two names of one operator


def operator_cases() -> Iterator[Case]:
    """Yield a case for each."""
    for label, case in (known.CASES | known.PRODUCTS | known.MORE).items():
        name = _CALLED.get(label, label.partition(" ")[0])
        yield _case(f"operator: {label}", name, case.operator.dtype, partial(_checked, case, _DRAWS.get(name, _SIZE)))
    for name, (ufunc, dtype) in _UFUNCS.items():
        found = ufunc_case(ufunc, dtype)
        if name == "fmax":
            found = replace(found, draw=_with_nan)
        yield _case(f"operator: {name} {np.dtype(dtype)}", name, dtype, partial(_checked, found, _SIZE))
    yield _case("operator: last float64", "last", np.float64, lambda: _last)
    yield _case("operator: count uint32", "count", np.uint32, lambda: _count)
    yield _case("operator: standard_deviation float64", "standard_deviation", np.float64, lambda: _deviation)
    yield _case("operator: reproducible_add float32, a window", "reproducible_add", np.float32, lambda: _reproducible)


def _case(label: str, name: str, dtype: Any, action: Callable[[], Action]) -> Case:
    words = [f"operator {each}" for each in (name, _SAME.get(name, "")) if each]
    return Case(label, lambda queue, rng: action()(queue, rng), covers=frozenset([*words, *_types(np.dtype(dtype))]))


def _types(dtype: np.dtype) -> list[str]:
    if dtype.names is None:
        return [f"dtype {dtype.name}"]
    return ["dtype struct", *(word for name in dtype.names for word in _types(dtype[name]))]


def _checked(case: known.Case, size: int) -> Action:
    """Return the call of an operator of the self-test on bins some of which do not exist, and its check."""

    def action(queue: cl.CommandQueue, rng: np.random.Generator) -> None:
        bins, values = drawn("uniform, some outside", rng, size, _BINS), case.draw(rng, size)
        kernel = pair_kernel(case.operator, context=queue.context)
        case.check(groups_of(bins, values, _BINS))(kernel(bins, values, num_bins=_BINS, queue=queue))

    return action


def _with_nan(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.where(rng.random(n) < 0.02, np.float32(np.nan), rng.standard_normal(n).astype(np.float32))


def _last(queue: cl.CommandQueue, rng: np.random.Generator) -> None:
    bins, operator = drawn("half in one", rng, _SIZE, _BINS), operators.last(np.float64)
    values = np.zeros(_SIZE, operator.dtype)
    values["value"], values["index"] = rng.standard_normal(_SIZE), np.arange(_SIZE)
    found = pair_kernel(operator, context=queue.context)(bins, values, num_bins=_BINS, queue=queue)
    latest = np.full(_BINS, -1)
    np.maximum.at(latest, bins, np.arange(_SIZE))
    there = latest >= 0
    same(found["value"][there], values["value"][latest[there]])


def _count(queue: cl.CommandQueue, rng: np.random.Generator) -> None:
    bins, operator = drawn("half in one", rng, _SIZE, _BINS), operators.count(np.uint32)
    ones = np.ones(_SIZE, operator.dtype)
    found = pair_kernel(operator, context=queue.context)(bins, ones, num_bins=_BINS, queue=queue)
    same(found, np.bincount(bins, minlength=_BINS).astype(np.uint32))


def _deviation(queue: cl.CommandQueue, rng: np.random.Generator) -> None:
    bins, values = drawn("half in one", rng, _SIZE, _BINS), rng.standard_normal(_SIZE)
    operator = operators.standard_deviation(np.float64)
    found = pair_kernel(operator, context=queue.context)(bins, values, num_bins=_BINS, queue=queue)
    for bin, group in enumerate(groups_of(bins, values, _BINS)):
        assert isclose(found[bin], np.std(group), rel_tol=1e-10), f"bin {bin}: {found[bin]}, expected {np.std(group)}"


def _reproducible(queue: cl.CommandQueue, rng: np.random.Generator) -> None:
    bins, values = drawn("half in one", rng, _SIZE, _BINS), rng.integers(-999, 999, _SIZE).astype(np.float32)
    operator = operators.reproducible_add(np.float32, 999.0)
    found = pair_kernel(operator, context=queue.context)(bins, values, num_bins=_BINS, queue=queue)
    expected = np.zeros(_BINS, np.float32)
    np.add.at(expected, bins, values)
    assert np.abs(found - expected).max() <= 999 * _SIZE * 2.0**-29
