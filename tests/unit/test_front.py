"""The front door: what is a Dask collection, what is refused, and that it changes no name and no signature."""

from __future__ import annotations

import inspect
import pickle
import sys
from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest

import clhist
from clhist._core.runtime.labelled import is_labelled, unlabelled
from clhist.front import ENTRIES, is_lazy

X = np.arange(5)


class Maybe:
    """As an array of xarray: of a class with Dask's methods, and perhaps with no graph."""

    def __init__(self, graph):
        self.graph = graph

    def __dask_graph__(self):
        return self.graph


def test_a_class_with_the_method_is_not_enough(monkeypatch):
    monkeypatch.delitem(sys.modules, "dask.base", raising=False)
    assert not is_lazy(Maybe(None))
    assert not is_lazy([Maybe(None)])
    base = SimpleNamespace(is_dask_collection=lambda value: value.__dask_graph__() is not None)
    monkeypatch.setitem(sys.modules, "dask.base", base)
    for value, expected in ((Maybe(None), False), (Maybe({}), True), ([Maybe({})], True), ([], False), (1, False)):
        assert is_lazy(value) == expected


def test_without_xarray_nothing_is_labelled(monkeypatch):
    monkeypatch.setitem(sys.modules, "xarray", None)
    value = [Maybe({}), 1]
    assert not is_labelled(value[0])
    assert unlabelled(value) is value


@pytest.mark.parametrize("name", ENTRIES)
def test_functions_are_what_they_are_below(name):
    function, below = getattr(clhist, name), getattr(import_module(f"clhist.{clhist._HOMES[name]}"), name)
    assert pickle.loads(pickle.dumps(function)) is function
    assert inspect.signature(function) == inspect.signature(below)
    assert function.__doc__ == below.__doc__
    assert ENTRIES[name] == "" or ENTRIES[name] in inspect.signature(below).parameters


@pytest.mark.parametrize("value", ["yes", 1, None, "exact "])
@pytest.mark.parametrize(
    "call",
    [
        lambda value: clhist.bincount(X, X, reproducible=value),
        lambda value: clhist.histogram(X, reproducible=value),
        lambda value: clhist.histogramdd([X], reproducible=value),
        lambda value: clhist.histogram2d(X, X, reproducible=value),
        lambda value: clhist.reduce_by_index(5, "sum", X, X, reproducible=value),
    ],
    ids=["bincount", "histogram", "histogramdd", "histogram2d", "reduce_by_index"],
)
def test_reproducible_is_a_bool(call, value):
    with pytest.raises(TypeError, match="reproducible: expected a bool, got"):
        call(value)


@pytest.mark.parametrize("name", ENTRIES)
def test_wrong_keywords_and_missing_arguments_are_python_s(name):
    with pytest.raises(TypeError, match=f"{name}\\(\\) missing"):
        getattr(clhist, name)()
    number = {"reduce_by_index": 4, "histogram2d": 2}.get(name, 1)
    with pytest.raises(TypeError, match="nothing"):
        getattr(clhist, name)(*[X] * (number + (name == "digitize")), nothing=1)
