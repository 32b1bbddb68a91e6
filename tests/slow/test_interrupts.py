"""Calls that Ctrl-C or an error ends at any place: each place of each call."""

from __future__ import annotations

import pytest
from interrupted_calls import cases, fillers, streams
from interrupts import lost_device, signals, sweep

ERRORS = {"ctrl-c": KeyboardInterrupt, "memory": MemoryError, "lost": lost_device}


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("name", cases(None))
def test_calls(name, error, queue):
    case, step = cases(queue)[name](), 1 if error == "ctrl-c" else 5
    sweep(case.first, case.check, ERRORS[error], step=step, waited=case.waited)
    sweep(case.again, case.check, ERRORS[error], step=2 * step, waited=case.waited)


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("name", streams(None))
def test_streams(name, error, queue):
    stream = streams(queue)[name]()
    sweep(stream.first, stream.check, ERRORS[error], waited=False)


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("name", fillers(None))
def test_fillers(name, error, queue):
    filler = fillers(queue)[name]()
    sweep(filler.first, filler.check, ERRORS[error], waited=False)


@pytest.mark.parametrize("name", ["reduce", "bincount on device", "kernel", "chunks", "counts"])
def test_signals(name, queue, rng):
    makers = {**cases(queue), **streams(queue), **fillers(queue)}
    assert signals(makers[name](), 80, rng) > 20
