"""Covering arrays have what they promise, and are much smaller than all combinations."""

from __future__ import annotations

from itertools import combinations, product

import covering
import numpy as np
import pytest


@pytest.fixture(autouse=True)
def never_exhaustive(monkeypatch):
    monkeypatch.setattr(covering, "exhaustive", False)


@pytest.mark.parametrize(
    ("sizes", "strength", "most"),
    [((13, 4, 2, 2), 2, 56), ((5, 3, 6, 4, 5), 3, 200), ((2,) * 10, 2, 12), ((3, 1, 4), 2, 12), ((7,), 2, 7)],
)
def test_every_combination_occurs(sizes, strength, most):
    axes = [[f"{axis}{k}" for k in range(size)] for axis, size in enumerate(sizes)]
    rows = covering.covering(*axes, strength=strength)
    assert len(set(rows)) == len(rows) <= most
    for chosen in combinations(range(len(sizes)), min(strength, len(sizes))):
        wanted = set(product(*(axes[axis] for axis in chosen)))
        assert {tuple(row[axis] for axis in chosen) for row in rows} == wanted
    assert rows == covering.covering(*axes, strength=strength), "the same in every run and every process"


def test_another_seed_takes_other_rows():
    axes = (range(5),) * 4
    assert set(covering.covering(*axes, seed="a")) != set(covering.covering(*axes, seed="b"))


def test_all_combinations_on_demand(monkeypatch):
    monkeypatch.setattr(covering, "exhaustive", True)
    assert covering.covering("ab", "cd", "ef") == list(product("ab", "cd", "ef"))


def test_quick_rows_have_each_value():
    rows = list(product(range(5), "abc", [np.int32, np.int64]))
    quick = [each.values for each in covering.each_value_quick(rows) if not each.marks]
    assert [{*axis} for axis in zip(*quick, strict=True)] == [{*axis} for axis in zip(*rows, strict=True)]
    assert len(quick) == 5
    assert min(sum(np.int64 in row for row in quick), sum(np.int32 in row for row in quick)) == 2
