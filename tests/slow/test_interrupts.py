"""Calls that Ctrl-C or an error ends at any place: those that follow are right, and streams say so if they may not be.

Some places of a few files are tried here, and fewer of all others; `tests/slow/test_interrupts_everywhere.py` tries
all.
"""

from __future__ import annotations

import cuda_fake
import numpy as np
import pytest
from interrupted_calls import BINS, Case, W, X, cases, fillers, streams
from interrupts import lost_device, sweep

import clhist

CENTRE = {
    "accumulator.py",
    "_core/runtime/device_accumulators.py",
    "_core/runtime/launcher.py",
    "hist/filler.py",
    "_core/opencl/program.py",
    "_core/opencl/upload.py",
}
NAMES = ["reduce", "bincount", "histogram on device", "kernel", "bound", "sort", "fill", "upload"]


@pytest.mark.parametrize("name", NAMES)
def test_calls(name, queue):
    case = cases(queue)[name]()
    assert sweep(case.first, case.check, files=CENTRE, step=3, waited=case.waited) > 3
    sweep(case.first, case.check, step=97, waited=case.waited)
    sweep(case.again, case.check, step=97, waited=case.waited)


@pytest.mark.parametrize("error", [MemoryError, lost_device], ids=["memory", "lost"])
def test_errors(error, queue):
    case = cases(queue)["reduce"]()
    assert sweep(case.first, case.check, error, files=CENTRE, waited=case.waited) > 10


@pytest.mark.parametrize("name", ["chunks", "device chunk", "merge", "devices' arrays"])
def test_streams(name, queue):
    stream = streams(queue)[name]()
    assert sweep(stream.first, stream.check, files=CENTRE, step=2, waited=False) > 10
    assert stream.refused > 0


@pytest.mark.parametrize("name", ["counts", "weights"])
def test_fillers(name, queue):
    filler = fillers(queue)[name]()
    assert sweep(filler.first, filler.check, files=CENTRE, step=3, waited=False) > 10


def test_cuda(monkeypatch):
    """Launches by CUDA: first ones, and those that are repeated as they were."""
    _, cupy = cuda_fake.install(monkeypatch)
    x, w = cupy.asarray(X), cupy.asarray(W)
    case = Case(
        lambda n: clhist.reduce_by_index(BINS, "sum", x[:n], w[:n]).get(),
        lambda n: np.bincount(X[:n], W[:n], BINS).astype(np.int64),
        waited=False,
    )
    files = {
        "_core/runtime/cuda_launcher.py",
        "_core/runtime/cuda_repeats.py",
        "_core/cuda/driver.py",
        "_core/cuda/memory.py",
    }
    assert sweep(case.first, case.check, files=files, step=5) > 10
    assert sweep(case.again, case.check, files=files, step=5) > 3
