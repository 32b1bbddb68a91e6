"""What is a Dask collection: what Dask says, and nothing where there is no Dask."""

from __future__ import annotations

import sys
from types import SimpleNamespace

from clhist.engine.labelled import is_labelled, unlabelled
from clhist.engine.lazy import is_lazy


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
