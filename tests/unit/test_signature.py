"""`Remembered`, the bounded cache of calls, and the options of calls that are its keys."""

from __future__ import annotations

import threading
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from clhist._core.model.problem import Choices
from clhist._core.runtime import signature
from clhist._core.runtime.call import Call
from clhist._core.runtime.call_template import CallTemplate
from clhist._core.runtime.prepare import LargestBin
from clhist._core.runtime.signature import Remembered, signature_of_call

OF_CALLER = {"dest", "out", "allocator", "wait_for", "begun"}  # arrays and events, which each call has anew
OPTIONS: dict[str, Any] = {
    "num_bins": 8, "size": 3, "race_factor": 2.0, "choices": Choices(copies=2), "memory_budget": 64,
    "num_histograms": 2, "offsets": np.array([0, 2, 3]), "largest": LargestBin("total != 0", "found", 0),
    "partial": ("dest",),
}  # fmt: skip


def test_each_option_of_a_call_is_tried():
    lacking = {field.name for field in fields(Call)} - OF_CALLER - OPTIONS.keys() - {"queue"}
    assert not lacking, f"OPTIONS of this file lacks {lacking}"


@pytest.mark.parametrize("name", OPTIONS)
def test_a_signature_has_each_option_of_a_call(name, monkeypatch):
    """Otherwise a call with another value would repeat an earlier one."""
    monkeypatch.setattr(signature, "_queue_in", lambda context: None)

    def key(**options: Any) -> Any:
        return signature_of_call((), (), Call(**({"num_bins": 7} | options)), None, [])

    assert key() == key()
    assert key(**{name: OPTIONS[name]}) != key(), f"signature_of_call drops {name}"


@pytest.mark.parametrize("name", OPTIONS)
def test_a_repeated_call_keeps_each_option(name):
    """With other results or events, too."""
    call = Call(**({"num_bins": 7} | {name: OPTIONS[name]}))
    calls: Any = SimpleNamespace(engine=SimpleNamespace(arrays=()))
    again = CallTemplate(calls, (), call).call_with("dest", "out", bytearray, ("event",), print)
    assert getattr(again, name) is getattr(call, name), f"CallTemplate.call_with drops {name}"
    assert (again.dest, again.out, again.allocator, again.wait_for) == ("dest", "out", bytearray, ("event",))
    assert again.begun is print


class Resource:
    """A value whose destructor uses the cache that held it."""

    def __init__(self, cache: Remembered) -> None:
        self.cache = cache

    def __del__(self) -> None:
        self.cache.put("from a destructor", 1)


def test_destructors_of_dropped_values_may_use_the_cache():
    def run():
        cache = Remembered(2)
        cache.put("a", Resource(cache))
        cache.put("a", 1)  # replaced
        assert cache.get("from a destructor") == 1
        cache.put("b", Resource(cache))
        cache.put("c", 2)
        cache.put("d", 3)  # dropped, since the cache is full
        cache.put("e", Resource(cache))
        cache.take("e")
        cache.put("f", Resource(cache))
        cache.clear()
        assert cache.get("f") is None
        ended.append(True)

    ended = []
    thread = threading.Thread(target=run, daemon=True)  # which a deadlock does not let end
    thread.start()
    thread.join(60)
    assert ended == [True]
