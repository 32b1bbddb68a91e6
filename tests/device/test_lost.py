"""A device that is lost to a fault: simulated by waits that fail as NVIDIA's do after one."""

from __future__ import annotations

from collections import deque

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
from click.testing import CliRunner

import clhist
from clhist import Accumulator, DeviceLostError, HistogramKernel, operators
from clhist._core.opencl import lost
from clhist._core.opencl.new_arrays import shares_memory
from clhist.cli.main import main

X = np.array([3, 1, 3, 3, 0], np.int32)
SUM = operators.add(np.int32)


def fault(code=cl.status_code.INVALID_COMMAND_QUEUE, kind=cl.LogicError, routine="clFinish"):
    return kind(cl._cl._ErrorRecord(routine, code, ""))


@pytest.fixture(autouse=True)
def forgotten(monkeypatch):
    """Let the device be there again after a test."""
    monkeypatch.setattr(lost, "reasons", {})
    monkeypatch.setattr(lost, "last_calls", deque(maxlen=1))


@pytest.fixture
def kernel():
    return HistogramKernel(None, SUM, arguments="const int *x", map="EMIT(x[i], 1)")


@pytest.fixture
def on_device(queue):
    return cl_array.to_device(queue, X)


@pytest.fixture
def failing(monkeypatch):
    """Return a function that lets every method of this name of a class of PyOpenCL raise an error."""

    def fails(owner, name, error):
        def method(*args, **kwargs):
            raise error

        monkeypatch.setattr(owner, name, method)

    return fails


@pytest.mark.parametrize("code", [cl.status_code.INVALID_COMMAND_QUEUE, -9999])
def test_the_call_that_waits_says_so(code, kernel, failing, queue):
    error = fault(code)
    failing(cl.Event, "wait", error)
    with pytest.raises(DeviceLostError) as caught:
        kernel(X, num_bins=4, update="cas", memory="global", copies=1)
    assert caught.value.__cause__ is error
    message = str(caught.value)
    assert message.startswith(f"the device {queue.device.name.strip()} was lost: a kernel failed on it (")
    assert "Restart the process" in message
    assert "<Operator add on int32: a + b>" in message
    assert "5 elements into 4 bins" in message
    assert "cas updates in global memory" in message


def lose(kernel):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cl.Event, "wait", lambda event: (_ for _ in ()).throw(fault()))
        with pytest.raises(DeviceLostError):
            kernel(X, num_bins=4)


def test_every_later_call_says_so(kernel, queue, on_device):
    accumulator = Accumulator(np.add, 4, dtype=np.int32)
    accumulator.add(X, np.int32(1))
    for _ in range(3):
        kernel(on_device, num_bins=4)  # at last by the short way
    lose(kernel)
    calls = [
        lambda: kernel(on_device, num_bins=4),
        lambda: kernel(X, num_bins=4),
        lambda: kernel(X, num_bins=5, queue=queue),
        lambda: kernel.plan(5, 4),
        lambda: kernel.race_factor(X, num_bins=4),
        lambda: HistogramKernel(queue.context, SUM, arguments="const int *x", map="EMIT(x[i], 2)"),
        lambda: HistogramKernel(None, SUM, arguments="const int *x", map="EMIT(x[i], 3)"),
        lambda: clhist.reduce_by_index(np.zeros(4), np.add, X, 1.0),
        lambda: clhist.reduce_by_index(np.zeros(4), np.add, X, np.ones(5), reproducible=True),
        lambda: clhist.bincount(X),
        lambda: clhist.bincount(on_device),
        lambda: clhist.bincount(on_device, queue=queue),
        lambda: accumulator.add(X, np.int32(1)),
        accumulator.result,
        accumulator.partial,
        lambda: accumulator.merge(accumulator, allow_repeat=True),
        lambda: Accumulator(np.add, 4, dtype=np.int32),
        clhist.default_queue,
    ]
    for call in calls:
        with pytest.raises(DeviceLostError, match=r"was lost: .* Restart the process\..* came later") as caught:
            call()
        assert isinstance(caught.value.__cause__, cl.LogicError)


def test_another_error_is_not_taken_for_it(kernel):
    error = fault(cl.status_code.OUT_OF_RESOURCES, cl.RuntimeError, "clWaitForEvents")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cl.Event, "wait", lambda event: (_ for _ in ()).throw(error))
        with pytest.raises(cl.RuntimeError) as caught:
            kernel(X, num_bins=4)
        assert caught.value is error
    assert kernel(X, num_bins=4).tolist() == [1, 1, 0, 3]


@pytest.mark.parametrize(
    "error",
    [
        fault(cl.status_code.OUT_OF_RESOURCES, cl.RuntimeError, "clEnqueueNDRangeKernel"),
        fault(cl.status_code.BUILD_PROGRAM_FAILURE, cl.RuntimeError, "clBuildProgram"),
        fault(cl.status_code.MEM_OBJECT_ALLOCATION_FAILURE, cl.MemoryError, "create_buffer"),
    ],
    ids=lambda error: error.routine,
)
def test_an_error_that_misleads(error, failing, monkeypatch, queue):
    """A lost device may raise any of these first; then nothing on its queue ends."""
    # Pools belong to queues and contexts: in new ones, a call creates its buffers, whatever ran before.
    context = cl.Context([queue.device])
    fresh = cl.CommandQueue(context)
    kernel = HistogramKernel(context, SUM, arguments="const int *x", map=f"EMIT(x[i], (int){len(error.routine)})")
    places = {
        "clEnqueueNDRangeKernel": (cl, "enqueue_nd_range_kernel"),
        "clBuildProgram": (cl.Program, "build"),
        "create_buffer": (cl, "Buffer"),
    }
    failing(*places[error.routine], error)
    monkeypatch.setattr(lost, "settle", settle_where_nothing_ends(lost.settle))
    with pytest.raises(DeviceLostError, match=r"was lost: a kernel failed on it"):
        kernel(X, num_bins=4, queue=fresh)
    with pytest.raises(DeviceLostError, match=r"came later"):
        kernel(X, num_bins=4, queue=fresh)


class Endless:
    """A queue whose `finish` fails; PyOpenCL's own queues do not let their methods be replaced one by one."""

    def __init__(self, queue):
        self.device = queue.device

    def finish(self):
        raise fault()


def settle_where_nothing_ends(settle):
    return lambda queue, error=None: settle(Endless(queue), error)


@pytest.mark.parametrize("call", ["result", "partial", "add"])
def test_streams(call, failing, queue):
    if call == "add" and not shares_memory(queue.device):
        pytest.skip("uploads are not waited for on a device with its own memory")
    accumulator = Accumulator(np.add, 4, dtype=np.int32)
    accumulator.add(X, np.int32(1))
    error = fault()
    failing(cl, "wait_for_events", error)
    failing(cl.Event, "wait", error)
    failing(cl_array.Array, "get", error)
    with pytest.raises(DeviceLostError) as caught:
        accumulator.add(X, np.int32(1)) if call == "add" else getattr(accumulator, call)()
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("is_repeat", [False, True])
def test_calls_that_do_not_wait_are_named_by_the_next(is_repeat, kernel, failing, on_device):
    clhist.clear_caches()  # of what earlier counts of this process were
    if is_repeat:
        clhist.bincount(on_device)
    kernel(on_device, num_bins=4, update="lock", memory="global", copies=1)
    failing(cl, "enqueue_copy", fault())  # the first thing that a first bincount asks of the device
    update = "" if is_repeat else " 4 bins .* lock updates in global memory"
    with pytest.raises(DeviceLostError, match=f"5 elements into{update}"):
        clhist.bincount(on_device)


def test_another_device_goes_on(kernel, queue):
    lose(kernel)
    others = [device for device in clhist._core.opencl.device.devices() if device != queue.device]
    lost.check_devices(others)
    with pytest.raises(DeviceLostError):
        lost.check_devices([*others, queue.device])


def test_the_command(kernel):
    lose(kernel)
    result = CliRunner().invoke(main, ["selftest", "--quick", "--jobs", "1"])
    assert result.exit_code == 2
    assert result.output.startswith("Error: the device ")
