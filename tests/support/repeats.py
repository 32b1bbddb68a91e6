"""What tests of repeated calls share."""

from __future__ import annotations

import weakref
from functools import partial

import numpy as np
import pyopencl.array as cl_array
import pytest

from clhist import HistogramKernel, operators
from clhist._core.runtime.engine import Engine
from clhist.binned import sweep

N = 3001


@pytest.fixture
def kernel():
    """A kernel with an array and a scalar."""
    return HistogramKernel(None, operators.add(np.int32), arguments="const int *x, int step", map="EMIT(x[i], step)")


@pytest.fixture
def checks(monkeypatch):
    """Return how often arguments of a map were checked."""
    found, original = [], Engine.check
    monkeypatch.setattr(Engine, "check", lambda *args: found.append(1) or original(*args))
    return found


@pytest.fixture(params=["numpy", "pyopencl", "cupy"])
def library(request, queue):
    """Return what makes arrays of a library, what fetches them, options of calls on them, and CUDA's stand-in."""
    if request.param == "numpy":
        return np.copy, np.asarray, {"queue": queue}, None
    if request.param == "pyopencl":
        return partial(cl_array.to_device, queue), fetched, {"queue": queue}, None
    cuda, cupy = request.getfixturevalue("fake")
    return cupy.asarray, fetched, {}, cuda


@pytest.fixture
def numbers(rng):
    """Return arrays alike, with values on edges, outside, NaN."""
    found = [rng.normal(0.5, 0.4, N).astype(np.float32) for _ in range(4)]
    for k, each in enumerate(found):
        each[k : k + 5] = 0, 1, 0.5, np.nan, -np.inf
    return found


@pytest.fixture
def uploaded(monkeypatch):
    """Return weak references to the tables of axes that are uploaded meanwhile."""
    tables, upload = [], sweep.kept_on_device

    def noted(*args):
        tables.append(weakref.ref(array := upload(*args)))
        return array

    monkeypatch.setattr(sweep, "kept_on_device", noted)
    return tables


def fetched(array):
    return array if isinstance(array, np.ndarray) else array.get()


def given(queue, arrays):
    return [cl_array.to_device(queue, array) for array in arrays]
