"""Libraries that another thread is importing: until that has ended, a call does without them."""

from __future__ import annotations

import importlib
import sys
import threading
from importlib.machinery import ModuleSpec
from types import ModuleType

import numpy as np
import pytest

import clhist
from clhist._core.kinds import PLAIN

X = np.arange(2000) % 7
LIBRARIES = [
    "xarray",
    "numpy.ma",
    "pandas",
    "torch",
    "cupy",
    "dask",
    "dask.base",
    "polars",
    "pyarrow",
    "pyarrow.compute",
]


class _Sequence(list):
    """What no call knows the type of."""


def calls() -> None:
    """Make calls that ask which libraries their arguments are of."""
    given = _Sequence(X.tolist())
    PLAIN.discard(_Sequence)
    assert clhist.bincount(given).tolist() == np.bincount(X).tolist()
    assert clhist.histogram(given, 7, (0, 7))[0].tolist() == np.bincount(X).tolist()
    assert clhist.reduce_by_index(7, "sum", given, X).tolist() == np.bincount(X, X).tolist()
    keys = np.array(["a", "b"])[X % 2]
    assert clhist.group_by(keys).sum(X).tolist() == [X[X % 2 == 0].sum(), X[X % 2 == 1].sum()]
    numbers, names = clhist.factorize(given)
    assert names[numbers].tolist() == X.tolist()
    assert clhist.unique(given).tolist() == list(range(7))
    assert clhist.digitize(given, np.arange(3)).tolist() == np.digitize(X, np.arange(3)).tolist()


@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize("has_spec", [True, False])
def test_half_imported(name, has_spec, monkeypatch):
    calls()  # by now all is imported that they import themselves
    module = ModuleType(name)
    if has_spec:
        module.__spec__ = ModuleSpec(name, None)
        module.__spec__._initializing = True
        monkeypatch.setattr(importlib._bootstrap, "_lock_unlock_module", lambda name: None)
    monkeypatch.setitem(sys.modules, name, module)
    calls()


def test_while_a_thread_imports(tmp_path, monkeypatch):
    """A library that takes long to import has none of its classes for most of that time."""
    (tmp_path / "xarray.py").write_text(
        "import threading\nbegun.set()\nended.wait(10)\nclass DataArray: pass\nclass Variable: pass\n".replace(
            "begun", "threading.begun"
        ).replace("ended", "threading.ended")
    )
    monkeypatch.setattr(threading, "begun", threading.Event(), raising=False)
    monkeypatch.setattr(threading, "ended", threading.Event(), raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, "xarray", None)  # so that what is imported is taken away, too
    for each in [each for each in sys.modules if each.partition(".")[0] == "xarray"]:
        monkeypatch.delitem(sys.modules, each)
    thread = threading.Thread(target=importlib.import_module, args=("xarray",))
    thread.start()
    try:
        assert threading.begun.wait(10)
        calls()
    finally:
        threading.ended.set()
        thread.join()
    calls()
