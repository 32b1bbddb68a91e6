"""The largest and the smallest integer of device arrays."""

from __future__ import annotations

import numpy as np
import pyopencl.array as cl_array
import pytest

from clhist._core.opencl import device as devices
from clhist._core.opencl.device import is_processor
from clhist._core.runtime.counting import extremes
from clhist._core.runtime.small import COSTS, least_size

pytestmark = pytest.mark.usefixtures("with_optimizer")


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "int64", "uint64"])
def test_extremes_are_those_of_numpy(queue, rng, dtype, monkeypatch):
    if is_processor(queue.device):  # whose PyOpenCL reductions are slow, and build four programs
        for name in ("max", "min"):
            monkeypatch.setattr(cl_array, name, lambda *_: pytest.fail("called"))
    info = np.iinfo(dtype)
    for shape in ((), (1,), (5003,), (30, 40)):
        x = rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
        expected = int(np.max(x)), int(np.min(x))
        assert extremes(cl_array.to_device(queue, np.asarray(x)), queue) == expected, shape
        assert extremes(np.asarray(x), queue) == expected
    x = rng.integers(0, 100, 1000).astype(dtype)
    part = cl_array.to_device(queue, x)[17:500]
    assert extremes(part, queue) == (x[17:500].max(), x[17:500].min())


def test_claims_of_a_device_do_not_stay_without_their_proof(queue, monkeypatch):
    proven = devices.device_features(queue.device)
    monkeypatch.setattr(devices, "_features", {})

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("clhist._core.opencl.probe.proven_features", interrupted)
        with pytest.raises(KeyboardInterrupt):
            devices.device_features(queue.device)
    assert queue.device not in devices._features
    assert devices.device_features(queue.device) == proven


def test_rates_need_no_proof_of_atomics(queue, monkeypatch):
    if not is_processor(queue.device):
        pytest.skip("GPUs prove their atomics at their first use")
    monkeypatch.setattr(devices, "_features", {})
    monkeypatch.setattr("clhist._core.opencl.probe.proven_features", lambda *_: pytest.fail("compiled"))
    for profile in (devices.own_profile, devices._claimed_profile):
        profile.cache_clear()
    assert all(len(least_size(call, queue.device)) == 2 for call in COSTS)
