"""Combinations that cover every pair (or triple) of values, in the place of all combinations.

Most faults depend on two or three choices at once (Kuhn, Wallace, Gallo 2004): arrays that cover those find them with a
fraction of the cases. `pytest --exhaustive` takes all combinations instead.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations, product
from typing import Any

import pytest

exhaustive = False  # set by conftest


def covering(*axes: Sequence[Any], strength: int = 2, seed: object = 0) -> list[tuple[Any, ...]]:
    """Return rows of one value of each axis, in which all combinations of values of any `strength` axes occur.

    Other seeds give other rows: tests with other fixed choices take another one each, and together cover more.
    """
    listed = [list(axis) for axis in axes]
    if exhaustive or len(axes) <= strength:
        return list(product(*listed))
    rows = _rows(tuple(map(len, listed)), strength, str(seed))
    return [tuple(axis[k] for axis, k in zip(listed, row, strict=True)) for row in rows]


@lru_cache(maxsize=1024)
def _rows(sizes: tuple[int, ...], strength: int, seed: str) -> list[tuple[int, ...]]:
    """Return rows of indices: each begins with a combination that is missing, and takes the most others along."""
    rng = random.Random(f"{sizes}{strength}{seed}")
    axes = range(len(sizes))
    missing = {
        chosen: set(product(*(range(sizes[axis]) for axis in chosen))) for chosen in combinations(axes, strength)
    }
    waiting = [(chosen, values) for chosen, combined in missing.items() for values in sorted(combined)]
    rng.shuffle(waiting)
    rows_of_axes = []
    for chosen, values in waiting:
        if values not in missing[chosen]:
            continue
        row = dict(zip(chosen, values, strict=True))
        rest = [axis for axis in axes if axis not in row]
        rng.shuffle(rest)
        for axis in rest:
            candidates = list(range(sizes[axis]))
            rng.shuffle(candidates)
            # Values on both sides of the axis, for combinations with it that still miss some.
            sides = [
                (combined, tuple(row[a] for a in others if a < axis), tuple(row[a] for a in others if a > axis))
                for others in combinations(sorted(row), strength - 1)
                if (combined := missing[tuple(sorted((*others, axis)))])
            ]
            row[axis] = max(candidates, key=lambda k: sum((*low, k, *high) in some for some, low, high in sides))
        for chosen, combined in missing.items():
            combined.discard(tuple(row[axis] for axis in chosen))
        rows_of_axes.append(tuple(row[axis] for axis in axes))
    return rows_of_axes


def mostly_slow(rows: Sequence[Any], every: int = 3) -> list[Any]:
    """Return rows as parameters of which one of `every` so many is for each run, and the others are slow."""
    return [
        pytest.param(*(row if isinstance(row, tuple) else (row,)), marks=[pytest.mark.slow] * (k % every != 0))
        for k, row in enumerate(rows)
    ]


def each_value_quick(rows: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Return rows as parameters of which every run takes those that have each value of each axis; the others are slow.

    For axes of which each value is another program, but hardly any pair another fault.
    """
    values = [[(axis, f"{type(value)} {value}") for axis, value in enumerate(row)] for row in rows]
    uses, quick = {value: 0 for row in values for value in row}, set()
    while 0 in uses.values():
        # Among rows with as many new values, prefer one whose other values were used least.
        best = max(
            range(len(rows)), key=lambda k: (sum(not uses[v] for v in values[k]), -sum(map(uses.get, values[k])))
        )
        quick.add(best)
        for value in values[best]:
            uses[value] += 1
    return [pytest.param(*row, marks=[pytest.mark.slow] * (k not in quick)) for k, row in enumerate(rows)]
