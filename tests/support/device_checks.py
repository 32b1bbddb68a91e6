"""The checks of `clhist selftest` as pytest's parameters: the self-test is the conformance suite."""

from __future__ import annotations

import pytest

import clhist
from clhist.selftest.checks import HOLDS, UNAVAILABLE, Check
from clhist.selftest.suite import checks


def each_check(*, quick: bool = False) -> pytest.MarkDecorator:
    """Return the mark that gives a test each check of the default device."""
    every = list(checks(clhist.default_queue(), quick=quick))
    return pytest.mark.parametrize("check", every, ids=[check.label for check in every])


def holds(check: Check) -> None:
    """Run a check; what the device cannot have must have been refused, as the check has seen."""
    outcome = check.run()
    assert outcome.status in (HOLDS, UNAVAILABLE), outcome.words
