"""Bound calls: what an ordinary call computes, from what the arrays hold then; what is not as it was is refused.

What bound calls and calls that repeat another have in common is tested of both.
"""

from __future__ import annotations

import gc
import warnings
import weakref
from functools import partial
from itertools import pairwise

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
from repeats import fetched

import clhist
from clhist import Bound, HistogramKernel, operators
from clhist.selftest.reference import counts_of

pytestmark = pytest.mark.usefixtures("without_optimizer")

BINS = 50


def kernel_of(operator=None, profile=None, arguments="const int *x, int step", code="EMIT(x[i], step)"):
    operator = operator or operators.add(np.int32)
    return HistogramKernel(None, operator, arguments=arguments, map=code, profile=profile)


@pytest.fixture(params=["device", "NumPy"])
def to(request, queue):
    """Return a function that puts an array where the test's arrays are."""
    return (lambda array: cl_array.to_device(queue, array)) if request.param == "device" else lambda array: array.copy()


@pytest.fixture(params=["bound", "called again"])
def again(request):
    """Return what makes a call that is made again and again: one that is bound, or that its arguments tell."""
    return HistogramKernel.bind if request.param == "bound" else lambda *args, **more: partial(*args, **more)


@pytest.fixture
def x(rng):
    return rng.integers(-2, BINS + 2, 10_001, np.int32)


def test_what_an_ordinary_call_computes(to, x, profile):
    kernel, data = kernel_of(profile=profile), to(x)
    bound = kernel.bind(data, 3, num_bins=BINS)
    assert isinstance(bound, Bound)
    first, second = bound(), bound()
    assert type(first) is type(data)
    assert first is not second
    for found in (first, second):
        np.testing.assert_array_equal(fetched(found), 3 * counts_of(x, BINS), strict=False)
        assert found.dtype == np.int32
    assert bound.plan == kernel.plan(x.size, BINS)


def test_changed_content_is_read(to, x, again):
    data, out = to(x), to(np.zeros(BINS, np.int32))
    call = again(kernel_of(), data, 1, num_bins=BINS, out=out)
    assert call() is out
    for value in (7, 0, BINS, -1):
        data[:] = value
        assert call() is out
        np.testing.assert_array_equal(fetched(out), counts_of(np.full(x.size, value), BINS))


@pytest.mark.parametrize("size", [0, 1, 127])
def test_few_elements(to, x, size):
    bound = kernel_of().bind(to(x[:size]), 1, num_bins=BINS)
    for _ in range(3):
        np.testing.assert_array_equal(fetched(bound()), counts_of(x[:size], BINS))


def test_more_bins_than_elements(to, profile):
    x = np.arange(0, 200, 3, dtype=np.int32)
    bound = kernel_of(profile=profile).bind(to(x), 1, num_bins=100_000)
    np.testing.assert_array_equal(fetched(bound()), counts_of(x, 100_000))


def test_it_adds_up_in_place(to, x, again):
    total = to(np.zeros(BINS, np.int32))
    call = again(kernel_of(), to(x), 1, num_bins=BINS, dest=total, out=total)
    for n in range(1, 4):
        call()
        np.testing.assert_array_equal(fetched(total), n * counts_of(x, BINS))


def test_a_dest_that_out_overlaps_is_copied_each_time(to, x, again):
    room = to(np.zeros(BINS + 10, np.int32))
    call = again(kernel_of(), to(x), 1, num_bins=BINS, dest=room[10:], out=room[:BINS])
    for _ in range(3):
        room[:] = to(np.arange(BINS + 10, dtype=np.int32))
        call()
        np.testing.assert_array_equal(fetched(room)[:BINS], counts_of(x, BINS) + np.arange(10, BINS + 10))


def test_numpy_arrays_with_gaps_are_read_each_time(x, again):
    wide = np.repeat(x, 2)
    call = again(kernel_of(), wide[::2], 1, num_bins=BINS)
    np.testing.assert_array_equal(call(), counts_of(x, BINS))
    wide[:] = 4
    np.testing.assert_array_equal(call(), counts_of(np.full_like(x, 4), BINS))


def test_a_map_that_writes(to, x, again):
    data = to(x)
    call = again(kernel_of(arguments="int *x", code="EMIT(x[i], 1); x[i] += 1"), data, num_bins=BINS)
    for k in range(5):
        np.testing.assert_array_equal(fetched(call()), counts_of(x + k, BINS))
    np.testing.assert_array_equal(fetched(data), x + 5)
    if isinstance(data, np.ndarray):
        data.flags.writeable = False
        with pytest.raises(ValueError, match=r"^x: expected .*(that can be written|writeable True)"):
            call()


def test_several_outputs(to, x, gpu_like):
    both = {"number": operators.count(), "largest": operators.maximum(np.int32)}
    kernel = kernel_of(both, gpu_like, "const int *x", "EMIT_number(x[i], 1); EMIT_largest(x[i] & 3, x[i])")
    out = {"largest": to(np.zeros(4, np.int32))}
    bound = kernel.bind(to(x), num_bins={"number": BINS, "largest": 4}, out=out)
    for _ in range(2):
        found = bound()
        np.testing.assert_array_equal(fetched(found["number"]), counts_of(x, BINS))
        assert found["largest"] is out["largest"]
        assert fetched(found["largest"]).tolist() == [x[x & 3 == k].max() for k in range(4)]
    assert bound.plan == kernel.plan(x.size, {"number": BINS, "largest": 4})


@pytest.mark.parametrize("batch", [{"num_histograms": 3}, {"offsets": np.array([0, 5, 5, 9000])}])
def test_batches(to, x, batch, profile):
    data = x[:9999]
    offsets = batch.get("offsets", np.arange(4) * 3333)
    bound = kernel_of(profile=profile).bind(to(data), 1, num_bins=BINS, **batch)
    expected = [counts_of(data[begin:end], BINS) for begin, end in pairwise(offsets)]
    for _ in range(2):
        np.testing.assert_array_equal(fetched(bound()), expected)


@pytest.mark.parametrize("choices", [{"update": "sort"}, {"memory": "global", "copies": 3}, {"passes": 2}])
def test_choices(to, x, choices, gpu_like):
    bound = kernel_of(profile=gpu_like).bind(to(x), 1, num_bins=BINS, **choices)
    for name, value in choices.items():
        assert getattr(bound.plan, name) == value
    for _ in range(2):
        np.testing.assert_array_equal(fetched(bound()), counts_of(x, BINS))


@pytest.mark.parametrize("max_abs", [None, 100.0])
def test_reproducible_sums(max_abs, to, rng):
    values = rng.standard_normal(5000).astype(np.float32)
    kernel = kernel_of(operators.add(np.float32), None, "const float *v", "EMIT(i & 7, v[i])")
    data = to(values)
    bound, expected = (
        kernel.bind(data, num_bins=8, reproducible=True, max_abs=max_abs),
        fetched(kernel(to(values), num_bins=8, reproducible=True, max_abs=max_abs)),
    )
    np.testing.assert_array_equal(fetched(bound()), expected)
    data[:] = to(values[::-1].reshape(-1, 8)[:, ::-1].ravel())
    np.testing.assert_array_equal(fetched(bound()), expected)


def test_a_race_factor_is_sampled_once(to, x):
    data = to(np.zeros(2000, np.int32))
    bound = kernel_of().bind(data, 1, num_bins=BINS, race_factor="sample")
    assert bound.plan.race_factor == BINS
    data[:] = to(x[:2000])
    np.testing.assert_array_equal(fetched(bound()), counts_of(x[:2000], BINS))


def test_it_is_checked_once(queue, x, checks):
    bound = kernel_of().bind(cl_array.to_device(queue, x), 1, num_bins=BINS)
    for _ in range(4):
        bound()
    assert len(checks) == 1


def test_events(queue, x):
    data = cl_array.to_device(queue, x)
    waited = cl.UserEvent(queue.context)
    bound = kernel_of().bind(data, 1, num_bins=BINS)
    result, event = bound(wait_for=[waited], return_event=True)
    queue.flush()
    assert event.command_execution_status > cl.command_execution_status.COMPLETE
    waited.set_status(cl.command_execution_status.COMPLETE)
    event.wait()
    np.testing.assert_array_equal(result.get(), counts_of(x, BINS))


def test_times_of_the_stages(to, x, queue):
    bound = kernel_of().bind(to(x), 1, num_bins=BINS)
    assert bound.queue == queue
    runs = bound.timed(3)
    assert len(runs) == 3
    for stages in runs:
        assert set(stages) >= {"combine"} | (set() if bound.plan.is_one_launch else {"sweep"})
        assert all(seconds >= 0 for seconds in stages.values())
    assert len(bound.timed()) == 1
    with pytest.raises(ValueError, match=r"^runs: expected at least 1, got 0"):
        bound.timed(0)
    np.testing.assert_array_equal(fetched(bound()), counts_of(x, BINS))


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"num_bins": 0}, ValueError, "num_bins: expected at least 1, got 0"),
        ({"size": 10_002}, ValueError, "x: expected at least 10002 elements, got 10001"),
        ({"return_event": True}, TypeError, "return_event: expected one of allocator, "),
        ({"max_abs": 1.0}, TypeError, "max_abs: expected none, since the sums are not reproducible; got 1.0"),
        ({"passes": 1.5}, TypeError, "passes: expected an integer, got 1.5"),
        ({"race_factor": "guess"}, TypeError, "race_factor: expected a number, 'sample' or 'sample once', got 'guess'"),
        ({"queue": 3}, TypeError, "queue: expected a pyopencl.CommandQueue or None, got 3"),
        ({"out": np.zeros(3, np.int32)}, ValueError, r"out: expected shape \(50,\), got \(3,\)"),
    ],
)
def test_wrong_arguments_are_named_when_they_are_bound(x, changed, error, message):
    with pytest.raises(error, match=f"^{message}"):
        kernel_of().bind(x, 1, **{"num_bins": BINS, **changed})


def refused(bound, out, message):
    before = fetched(out).copy()
    for _ in range(2):
        with pytest.raises(ValueError, match=message):
            bound()
    np.testing.assert_array_equal(fetched(out), before)


@pytest.mark.parametrize("name", ["x", "out"])
def test_a_resized_array_is_refused(to, x, name):
    data, out = to(x), to(np.full(BINS, 5, np.int32))
    bound = kernel_of().bind(data, 1, num_bins=BINS, out=out)
    array = data if name == "x" else out
    if isinstance(array, np.ndarray):
        array.resize(array.size - 1, refcheck=False)
    else:
        array.shape, array.strides = (array.size - 1,), (4,)
    refused(bound, np.zeros(1) if name == "out" else out, f"^{name}: expected the array as it was bound, with shape")


def test_another_type_is_refused(to, x):
    data, out = to(x), to(np.full(BINS, 5, np.int32))
    bound = kernel_of().bind(data, 1, num_bins=BINS, out=out)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of NumPy 2.5, which still does it
        data.dtype = np.dtype(np.float32)
    refused(bound, out, "^x: expected the array as it was bound, with dtype int32; got dtype float32")


def test_equal_attributes_are_the_same(queue, x):
    data = cl_array.to_device(queue, x)
    bound = kernel_of().bind(data, 1, num_bins=BINS)
    data.shape, data.strides = tuple(np.shape(x)), tuple(x.strides)
    np.testing.assert_array_equal(bound().get(), counts_of(x, BINS))


def test_released_memory_is_refused(queue, x):
    data, out = cl_array.to_device(queue, x), cl_array.to_device(queue, np.full(BINS, 5, np.int32))
    bound = kernel_of().bind(data, 1, num_bins=BINS, out=out)
    bound()
    queue.finish()
    data.base_data.release()
    refused(bound, out, "^x: expected the array as it was bound, but its memory was released")


def test_other_memory_is_refused(queue, other_queue, x):
    data, out = cl_array.to_device(queue, x), cl_array.to_device(queue, np.full(BINS, 5, np.int32))
    bound = kernel_of().bind(data, 1, num_bins=BINS, out=out)
    data.base_data = cl_array.to_device(other_queue, x).base_data
    refused(bound, out, "^x: expected the array as it was bound, got it with other memory")


def test_an_array_of_another_context_is_refused(queue, other_queue, x):
    elsewhere = cl_array.to_device(other_queue, x)
    with pytest.raises(ValueError, match=r"^x: expected an array of the context"):
        kernel_of().bind(elsewhere, 1, num_bins=BINS)


def test_a_read_only_out_is_refused(x):
    out = np.full(BINS, 5, np.int32)
    bound = kernel_of().bind(x, 1, num_bins=BINS, out=out)
    out.flags.writeable = False
    refused(bound, out, "^out: expected the array as it was bound, with writeable True; got writeable False")
    out.flags.writeable = True
    x.flags.writeable = False
    np.testing.assert_array_equal(bound(), counts_of(x, BINS))


def test_it_keeps_its_arrays_and_no_longer(queue, x):
    data = cl_array.to_device(queue, x)
    bound, seen = kernel_of().bind(data, 1, num_bins=BINS), weakref.ref(data)
    del data
    gc.collect()
    np.testing.assert_array_equal(bound().get(), counts_of(x, BINS))
    del bound
    gc.collect()
    assert seen() is None


def test_another_profile_meanwhile(queue, x, gpu_like):
    """A bound call keeps its plan."""
    bound = kernel_of().bind(cl_array.to_device(queue, x), 1, num_bins=BINS)
    plan = bound.plan
    with clhist._core.opencl.device.profile_context(gpu_like):
        np.testing.assert_array_equal(bound().get(), counts_of(x, BINS))
    assert bound.plan == plan
