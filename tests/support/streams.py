"""What the tests of `clhist.Accumulator` share. A test file takes fixtures by giving them names of its own."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest

from clhist import Accumulator, operators
from clhist._core.opencl.device import profile_context
from clhist.selftest.reference import groups_of

SUM = operators.add(np.int64)
AS_A_GPU = "staged, as a GPU"


@pytest.fixture(params=["in place", "staged"])
def path(request, gpu_like, monkeypatch):
    """Let NumPy arrays be used where they lie, or staged as for a device with its own memory; `AS_A_GPU` plans so too.

    The last builds kernels of its own: tests take it, by parametrizing this fixture, where those make a difference.
    """
    if request.param != "in place":
        monkeypatch.setattr("clhist._core.runtime.chunks.shares_memory", lambda device: False)
    with profile_context(gpu_like) if request.param == AS_A_GPU else nullcontext():
        yield request.param


every_path = pytest.mark.parametrize("path", ["in place", "staged", AS_A_GPU], indirect=True)
each_profile = pytest.mark.parametrize("path", ["in place", AS_A_GPU], indirect=True)


@pytest.fixture
def chunks(monkeypatch):
    """The numbers of elements of all chunks, in order."""
    seen, original = [], Accumulator._continue

    def spy(self, engine, given, size):
        seen.append(size)
        return original(self, engine, given, size)

    monkeypatch.setattr(Accumulator, "_continue", spy)
    return seen


@pytest.fixture
def example(rng):
    """Return indices, some of which do not exist, values, and the sums of 40 bins."""
    indices, values = rng.integers(-3, 45, 3001), rng.integers(-99, 99, 3001)
    return indices, values, np.array([sum(group) for group in groups_of(indices, values, 40)])


def pieces_of(*arrays, sizes=(0, 1, 7, 0, 1000, 130)):
    """Return the arrays in pieces of these sizes, and the rest."""
    ends = np.cumsum(sizes)
    return zip(*(np.split(array, ends) for array in arrays), strict=True)
