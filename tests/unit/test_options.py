"""The options of a call: those of the planner, of calls, and of what type checkers see are the same."""

from __future__ import annotations

import inspect

import pytest

from clhist.engine.call import Call, call_of
from clhist.kernel import HistogramKernel
from clhist.planning.problem import CHOICES, FREE, Choices
from clhist.typing import CallOptions, KernelOptions, PlanChoices, StreamChoices

OF_KERNELS = {"return_event", "reproducible", "max_abs"}  # which no call of an engine has


def test_type_checkers_see_the_options_of_calls():
    parameters = inspect.signature(HistogramKernel.__call__).parameters.keys() - {"self", "args", "num_bins"}
    assert parameters - {"return_event"} == KernelOptions.__annotations__.keys() - {"return_event"}
    assert set(CHOICES) == PlanChoices.__annotations__.keys() - {"race_factor"}
    assert set(CHOICES) < StreamChoices.__annotations__.keys() < parameters
    assert set(CHOICES) < CallOptions.__annotations__.keys() <= parameters


@pytest.mark.parametrize("name", sorted(KernelOptions.__annotations__.keys() - OF_KERNELS))
def test_a_call_takes_each_option(name):
    value = object()
    call = call_of(9, {name: value})
    expected = Choices(**{name: value}) if name in CHOICES else FREE
    assert call.choices == expected
    assert name in CHOICES or getattr(call, name) is value


@pytest.mark.parametrize("name", ["num_bins", "choices", "largest", "partial", "num_histogram"])
def test_a_call_takes_no_other(name):
    with pytest.raises(TypeError, match=f"^{name}: expected one of allocator, copies,"):
        call_of(9, {name: 1})
    assert call_of(9, {}) == Call(9)
