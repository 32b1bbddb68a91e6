"""The checks of `clhist selftest` as pytest's parameters: the self-test is the conformance suite."""

from __future__ import annotations

from collections.abc import Sequence

import covering
import pytest

import clhist
from clhist._core.model.problem import PLACES
from clhist.selftest.checks import HOLDS, UNAVAILABLE, Check
from clhist.selftest.forms import DIGESTS
from clhist.selftest.suite import checks
from clhist.selftest.updates import ATOMIC_TYPES, COLUMNS, NATIVE, ROWS, row_name

LONG = "more than 2^31 elements"
OF_FILES = (*DIGESTS, LONG)  # which have a file of their own


def each_check(row: str | None = None, *, quick: bool = False) -> pytest.MarkDecorator:
    """Return the mark that gives a test each check of the default device.

    They are those of a row, or without one of all rows that have no file of their own. Checks of updates are of an
    update, a memory and a type; beyond those that cover all pairs of these they are slow.
    """
    of_device = checks(clhist.default_queue(), quick=quick)
    every = [check for check in of_device if (check.row == row if row else check.row not in OF_FILES)]
    wanted = pairs_of_updates()
    slow = [
        not quick and c.column in COLUMNS and ((c.row, c.column) not in wanted or _is_every_other_atomic(c))
        for c in every
    ]
    given = [
        pytest.param(check, id=check.label, marks=[pytest.mark.slow] * each)
        for check, each in zip(every, slow, strict=True)
    ]
    return pytest.mark.parametrize("check", given)


def _is_every_other_atomic(check: Check) -> bool:
    """Tell whether this is one of the half of all atomics that is slow: the other half has each operation and type."""
    operation, _, dtype = check.name.partition(" ")
    names, types = [ufunc.__name__ for ufunc in NATIVE], list(COLUMNS)
    is_atomic = check.row.startswith("native, ") and operation in names and check.column in ATOMIC_TYPES
    return is_atomic and not covering.exhaustive and (names.index(operation) + types.index(dtype)) % 2 == 1


def pairs_of_updates() -> set[tuple[str, str]]:
    """Return rows and columns of the self-test's table in which every two of update, memory and type meet."""
    updates = list(dict.fromkeys(update for update, _ in ROWS))

    def row(update: str, turn: int) -> str:
        memories: Sequence[str] = [memory for memory in PLACES if (update, memory) in ROWS]
        return row_name(update, memories[turn % len(memories)])

    if covering.exhaustive:
        return {(row_name(*each), column) for each in ROWS for column in COLUMNS}
    # As in a Latin square: each type has its updates in one memory after the other.
    return {(row(update, u + c), column) for u, update in enumerate(updates) for c, column in enumerate(COLUMNS)}


def holds(check: Check) -> None:
    """Run a check; what the device cannot have must have been refused, as the check has seen."""
    outcome = check.run()
    assert outcome.status in (HOLDS, UNAVAILABLE), outcome.words
