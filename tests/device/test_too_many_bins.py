"""More bins than fit: a MemoryError that says so, from whatever has bins."""

from __future__ import annotations

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import clhist
from clhist.opencl import arrays

KEYS, X = np.zeros(3, np.int32), np.ones(3, np.float32)
CALLS = {
    "reduce_by_index": lambda bins: clhist.reduce_by_index(bins, "sum", KEYS, X),
    "Accumulator": lambda bins: clhist.Accumulator("count", bins),
    "Accumulator of structs": lambda bins: clhist.Accumulator("mean", bins, dtype=np.float32),
    "MultiAccumulator": lambda bins: clhist.MultiAccumulator("count", bins),
    "Spec.partial": lambda bins: clhist.Spec("count", bins).partial(KEYS, 1),
    "Spec.empty": lambda bins: clhist.Spec("count", bins).empty(),
    "group_by size": lambda bins: clhist.group_by(KEYS, bins).size(),
    "group_by mean": lambda bins: clhist.group_by(KEYS, bins).mean(X),
    "group_by median": lambda bins: clhist.group_by(KEYS, bins).median(X),
}


@pytest.mark.parametrize("bins", [2**50, 2**62, 2**64])
@pytest.mark.parametrize("name", CALLS)
def test_too_many_bins(name, bins):
    with pytest.raises(MemoryError, match=r"^memory_budget: |^the (host|device) has no room for a result of shape "):
        CALLS[name](bins)


def test_too_many_groups_of_device_arrays(queue):
    groups = clhist.group_by(cl_array.to_device(queue, KEYS), 2**62)
    for call in (groups.mean, groups.median):
        with pytest.raises(MemoryError, match="has no room for a result of shape"):
            call(cl_array.to_device(queue, X))


def test_a_host_without_memory(queue, monkeypatch):
    """As under RLIMIT_AS: PyOpenCL has another error for memory that the host lacks."""

    class Lacking(cl.RuntimeError):
        code = cl.status_code.OUT_OF_HOST_MEMORY

        def __init__(self):
            pass

        def __str__(self):
            return "create_buffer failed: OUT_OF_HOST_MEMORY"

    def lacking(*args, **options):
        raise Lacking

    monkeypatch.setattr(arrays.cl_array, "empty", lacking)
    with pytest.raises(MemoryError, match=r"^the device has no room for a result of shape \(5,\) and int32: create_"):
        arrays.empty(queue, (5,), np.dtype(np.int32), True)

    class Lost(Lacking):
        code = cl.status_code.OUT_OF_RESOURCES

    def lost(*args, **options):
        raise Lost

    monkeypatch.setattr(arrays.cl_array, "empty", lost)
    with pytest.raises(Lost):
        arrays.empty(queue, (5,), np.dtype(np.int32), True)
