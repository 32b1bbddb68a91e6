"""Calls that Ctrl-C or an error ends at any place: each place of each call, and signals at any time."""

from __future__ import annotations

import pytest
from interrupted_calls import cases, fillers, streams
from interrupts import lost_device, signals, sweep

ERRORS = {"memory": MemoryError, "lost": lost_device}


@pytest.mark.parametrize("name", cases(None))
def test_calls(name, queue):
    case = cases(queue)[name]()
    sweep(case.first, case.check, step=2, waited=case.waited)
    sweep(case.again, case.check, step=5, waited=case.waited)


@pytest.mark.parametrize("name", [*streams(None), *fillers(None)])
def test_streams(name, queue):
    case = (streams(queue) | fillers(queue))[name]()
    sweep(case.first, case.check, step=2, waited=False)


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("name", ["reduce", "bincount on device", "chunks", "several", "weights"])
def test_errors(name, error, queue):
    case = (cases(queue) | streams(queue) | fillers(queue))[name]()
    sweep(case.first, case.check, ERRORS[error], step=5, waited=False)


@pytest.mark.parametrize("name", ["reduce", "bincount on device", "kernel", "chunks", "counts"])
def test_signals(name, queue, rng):
    case = (cases(queue) | streams(queue) | fillers(queue))[name]()
    assert signals(case, 80, rng) > 20
