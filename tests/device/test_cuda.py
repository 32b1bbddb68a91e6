"""Calls on arrays of CUDA: what is launched where, whose memory results are in, what is refused before anything is."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import cuda_fake
import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import clhist
from clhist import stats
from clhist._core.cuda.driver import CaptureError, CudaError
from clhist._core.cuda.ptx import CudaProgram
from clhist._core.opencl import cuda_queues
from clhist._core.runtime import cuda_calls, cuda_launcher
from clhist.errors import UnsupportedError

pytestmark = pytest.mark.usefixtures("without_optimizer")

BINS = np.random.default_rng(1).integers(0, 77, 5000, np.int32)
EXPECTED = np.bincount(BINS, minlength=77)


@pytest.fixture
def kernel():
    return clhist.HistogramKernel(
        None, clhist.operators.add(np.int64), arguments="const int *x, int step", map="EMIT(x[i], step)"
    )


def test_launches_are_those_of_the_prepared_call(fake, kernel):
    """Kernels, groups and arguments by name; an array is at address 0 with its address for an offset."""
    cuda, cupy = fake
    x, out = cupy.asarray(BINS), cupy.asarray(np.zeros(77, np.int64))
    bound = kernel.bind(x, 3, num_bins=77, out=out)
    assert not cuda.launched
    assert bound() is out
    (part,) = bound._prepared.executable.prepared.parts
    assert [launch.name for launch in cuda.launched] == [command.kernel.name for command in part.commands]
    for launch, command in zip(cuda.launched, part.commands, strict=True):
        sizes = tuple(n * m for n, m in zip(launch.groups, launch.group, strict=True))
        assert sizes == (*command.global_size, 1, 1)[:3]
        assert launch.group == (*command.local_size, 1, 1)[:3]
        assert launch.stream == cuda_fake.STREAM
        values = launch.values
        if "x__base" in values:
            assert (values["x__base"], values["x__offset"], values["step"]) == (0, x.data.ptr, 3)
    written = {name.removeprefix("clhist_"): value for name, value in values.items()}
    assert (written["out_base"], written["out_offset"]) == (0, out.data.ptr)
    np.testing.assert_array_equal(out.get(), 3 * EXPECTED)


def test_scalars_arrays_and_offsets_change(fake, kernel):
    _, cupy = fake
    for step, begin in ((1, 0), (-4, 3), (-4, 17), (9, 1)):
        got = kernel(cupy.asarray(BINS)[begin:], step, num_bins=77)
        np.testing.assert_array_equal(got.get(), step * np.bincount(BINS[begin:], minlength=77))


def test_programs_are_loaded_once(fake):
    cuda, cupy = fake
    kernel = clhist.HistogramKernel(
        None, clhist.operators.add(np.int64), arguments="const int *x, short s", map="EMIT(x[i], s)"
    )
    for _ in range(3):
        kernel(cupy.asarray(BINS), 1, num_bins=77)
    loads = cuda.calls.count("cuModuleLoadDataEx")
    assert 0 < loads <= 2
    kernel(cupy.asarray(BINS[:4000]), 1, num_bins=77)
    assert cuda.calls.count("cuModuleLoadDataEx") == loads


def test_dynamic_shared_memory_is_asked_for(fake, kernel):
    cuda, cupy = fake
    cuda.dynamic["clhist_sweep"] = 99_000
    kernel(cupy.asarray(BINS), 1, num_bins=77, memory="global", copies=3)
    assert cuda.attributes == {"clhist_sweep": 99_000}
    dynamic = {launch.name: launch.dynamic for launch in cuda.launched}
    assert dynamic == dict.fromkeys(dynamic, 0) | {"clhist_sweep": 99_000}


def test_a_program_of_the_same_text_with_more_dynamic_memory_is_another(fake, queue, monkeypatch):
    """The size of a dynamic array is not in the text: the kernel of the smaller one would write beyond its end."""
    cuda, _ = fake
    program = cuda.programs["the same"] = cl.Program(queue.context, "__kernel void clhist_sweep() {}").build()
    for size in (60_000, 120_000, 60_000):
        changed = CudaProgram("the same", {"clhist_sweep": size})
        monkeypatch.setattr(cuda_launcher, "cuda_program", lambda _, changed=changed: changed)
        cuda_launcher._modules(queue.context, 0).clear()
        module = cuda_launcher.module_of(program, 0, 0)
        assert module.dynamic == {"clhist_sweep": size}
    assert cuda.attributes == {"clhist_sweep": 120_000}
    assert cuda.calls.count("cuModuleLoadDataEx") == 2


def test_a_repeated_call_does_nothing_but_launch(fake):
    """No memory but the library's, no copies, nothing that is waited for."""
    cuda, cupy = fake
    x, out = cupy.asarray(BINS), cupy.asarray(np.zeros(77, np.int64))
    for _ in range(3):
        cuda.calls.clear()
        clhist.reduce_by_index(77, "sum", x, 1, out=out)
    assert {call.split()[0] for call in cuda.calls} <= {"cuCtxGetCurrent", "cuLaunchKernel", "empty"}
    np.testing.assert_array_equal(out.get(), EXPECTED)


def test_a_call_of_a_known_plan_is_captured(fake):
    cuda, cupy = fake
    x, out = cupy.asarray(BINS), cupy.asarray(np.zeros(77, np.int64))
    clhist.reduce_by_index(77, "sum", x, 1, out=out)
    before, cuda.is_captured = len(cuda.launched), True
    clhist.reduce_by_index(77, "sum", x, 1, out=out)
    assert len(cuda.launched) > before


@pytest.mark.parametrize("call", ["bincount", "new"])
def test_what_cannot_be_captured_says_so(call, fake):
    """Before anything is enqueued."""
    cuda, cupy = fake
    x = cupy.asarray(BINS)
    cuda.is_captured = True
    calls = {"bincount": lambda: clhist.bincount(x), "new": lambda: clhist.reduce_by_index(78, "min", x, x)}
    with pytest.raises(CaptureError, match="cannot be captured into a graph: make the same call once before"):
        calls[call]()
    assert not cuda.launched


def test_out_is_given_back_itself(fake):
    _, cupy = fake
    x, out = cupy.asarray(BINS), cupy.asarray(np.zeros(77, np.intp))
    assert clhist.bincount(x, out=out) is out
    np.testing.assert_array_equal(out.get(), EXPECTED)
    dest = cupy.asarray(np.ones(77, np.int64))
    assert clhist.reduce_by_index(dest, "sum", x, 1, out=dest) is dest
    np.testing.assert_array_equal(dest.get(), EXPECTED + 1)


def test_a_copy_where_dest_and_out_overlap(fake):
    _, cupy = fake
    both = cupy.asarray(np.arange(100))
    got = clhist.reduce_by_index(both[:77], "sum", cupy.asarray(BINS), 1, out=both[23:])
    np.testing.assert_array_equal(got.get(), EXPECTED + np.arange(77))


def test_a_result_is_an_array_of_the_library(fake):
    _, cupy = fake
    got = clhist.bincount(cupy.asarray(BINS))
    assert type(got) is cupy.ndarray
    assert got.dtype == np.intp


REFUSED = {
    "events": (lambda c, x: clhist.reduce_by_index(7, "sum", x, 1, wait_for=[1]), TypeError, "wait_for: expected none"),
    "a queue": (lambda c, x: clhist.bincount(x, queue=clhist.default_queue()), TypeError, "queue: expected none"),
    "return_event": (
        lambda c, x: clhist.reduce_by_index(7, "sum", x, 1, return_event=True),
        TypeError,
        "return_event: expected none",
    ),
    "devices": (
        lambda c, x: clhist.bincount(x, devices="all"),
        TypeError,
        "devices: expected none with arrays of CUDA",
    ),
    "NumPy beside it": (
        lambda c, x: clhist.reduce_by_index(7, "sum", x, BINS),
        TypeError,
        "values: expected a CUDA array as indices is, got a NumPy array",
    ),
    "PyOpenCL beside it": (
        lambda c, x: clhist.reduce_by_index(7, "sum", x, cl_array.to_device(clhist.default_queue(), BINS)),
        TypeError,
        "values: expected a CUDA array as indices is, got a PyOpenCL array",
    ),
    "NumPy for out": (
        lambda c, x: clhist.reduce_by_index(7, "sum", x, 1, out=np.zeros(7, np.int64)),
        TypeError,
        "out: expected a CUDA array as indices is, got a NumPy array",
    ),
    "gaps": (lambda c, x: clhist.bincount(x[::2]), ValueError, "x: expected a contiguous array, got one with strides"),
    "a dtype": (
        lambda c, x: clhist.reduce_by_index(7, "max", x, c.asarray(BINS.astype(np.complex64))),
        TypeError,
        "op.*complex64",
    ),
    "another length": (
        lambda c, x: clhist.reduce_by_index(7, "sum", x, x[1:]),
        ValueError,
        "values: expected shape .5000,. as of indices",
    ),
    "negative entries": (lambda c, x: clhist.bincount(c.asarray(BINS - 1)), ValueError, "negative"),
    "no bins": (lambda c, x: clhist.reduce_by_index(0, "sum", x, 1), ValueError, "dest"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_calls(name, fake):
    cuda, cupy = fake
    call, error, words = REFUSED[name]
    with pytest.raises(error, match=words):
        call(cupy, cupy.asarray(BINS))
    assert not cuda.launched or name == "negative entries"  # which are seen while counting
    np.testing.assert_array_equal(clhist.bincount(cupy.asarray(BINS)).get(), EXPECTED)


def test_a_bound_call_sees_its_arrays_as_they_are(fake, kernel):
    _, cupy = fake
    x = cupy.asarray(BINS)
    bound = kernel.bind(x, 1, num_bins=77)
    np.testing.assert_array_equal(bound().get(), EXPECTED)
    x.array[...] = 5
    assert bound().get()[5] == BINS.size
    x.shape = (10,)
    with pytest.raises(ValueError, match=r"x: expected the array as it was bound, with shape \(5000,\); got shape"):
        bound()
    x.shape, x.data.ptr = (5000,), x.data.ptr + 4
    with pytest.raises(ValueError, match="x: expected the array as it was bound, with offset"):
        bound()


def test_fewer_copies_where_memory_is_short(fake, kernel):
    """As by OpenCL: another plan that needs less; the result is the same."""
    cuda, cupy = fake
    x = cupy.asarray(BINS)
    cuda.calls.clear()
    expected = kernel(x, 1, num_bins=50_000, race_factor=50.0).get()
    most = max(int(call.split()[1]) for call in cuda.calls if call.startswith("empty"))
    assert most > 8 * 50_000, "several copies"
    cuda.fails["empty"] = most
    np.testing.assert_array_equal(kernel(x, 1, num_bins=50_000, race_factor=50.0).get(), expected)
    cuda.fails["empty"] = 1
    with pytest.raises(MemoryError):
        kernel(x, 1, num_bins=50_000)


def test_a_sampled_race_factor(fake, kernel):
    _, cupy = fake
    x, out = cupy.asarray(BINS), cupy.asarray(np.zeros(77, np.int64))
    for _ in range(3):
        assert kernel(x, 2, num_bins=77, race_factor="sample", out=out) is out
        np.testing.assert_array_equal(out.get(), 2 * EXPECTED)


def test_ptx_that_is_not_known_goes_through_the_host(fake, monkeypatch):
    cuda, cupy = fake
    add = clhist.operators.add(np.int64)
    own = clhist.HistogramKernel(None, add, arguments="const int *x, float one", map="EMIT(x[i], (long)one)")
    cuda.fails["cuModuleLoadDataEx"] = 218
    monkeypatch.setattr(cuda_calls, "_warned", set())
    with pytest.warns(UserWarning, match=r"__call__: .* a program of this driver: cuModuleLoadDataEx .*FAKE_ERROR"):
        got = own(cupy.asarray(BINS), 1.0, num_bins=77)
    np.testing.assert_array_equal(got.get(), EXPECTED)


def test_an_error_of_a_launch_is_raised(fake):
    cuda, cupy = fake
    x = cupy.asarray(BINS)
    clhist.bincount(x)
    cuda.fails["cuLaunchKernel"] = 700
    with pytest.raises(CudaError, match=r"cuLaunchKernel of CUDA's driver: FAKE_ERROR \(700\)"):
        clhist.bincount(x)


def test_a_device_is_proven_once(fake, monkeypatch):
    """A known input is counted before the first call; what counts wrong is not used."""
    cuda, cupy = fake
    monkeypatch.setattr(cuda_calls, "_reasons", {})
    x = cupy.asarray(BINS)
    clhist.bincount(x)
    assert cuda_calls._reasons == {0: ""}
    monkeypatch.setattr(cuda_calls, "_reasons", {})
    monkeypatch.setattr(cuda_calls, "_warned", set())
    cuda.is_broken = True
    with pytest.warns(UserWarning, match="bincount: .* known values were counted wrong on this device"):
        got = clhist.bincount(x)
    np.testing.assert_array_equal(got.get(), EXPECTED)


def test_the_largest_entry_is_looked_for_once(fake):
    """Of an array at the same place; what it holds may be another, and counts are right for it."""
    cuda, cupy = fake
    x = cupy.asarray(BINS)
    clhist.bincount(x)
    cuda.calls.clear()
    np.testing.assert_array_equal(clhist.bincount(x).get(), EXPECTED)
    assert "cuMemcpy2DAsync_v2" not in cuda.calls
    for largest in (5, 3000):
        x.array[...] = np.random.default_rng(1).integers(0, largest + 1, BINS.size)
        np.testing.assert_array_equal(clhist.bincount(x).get(), np.bincount(x.array))
    cuda.is_captured, before = True, len(cuda.launched)
    with pytest.raises(CaptureError):
        clhist.bincount(x)
    assert len(cuda.launched) == before


def test_what_is_said_of_a_device(fake):
    cuda, _ = fake
    device = clhist.default_queue().device
    assert cuda_queues.cuda_words(device) == "taken without a copy, as CUDA device 0 of CUDA 13.0"
    cuda.fails["cuDriverGetVersion"] = 999
    assert "not taken: cuDriverGetVersion of CUDA's driver" in str(cuda_queues.cuda_words(device))


def test_a_device_that_is_not_nvidias_says_nothing_of_cuda():
    assert cuda_queues.cuda_words(clhist.default_queue().device) is None or "NVIDIA" in str(
        clhist.default_queue().device.platform.name
    )


def test_medians_of_groups(fake, recwarn):
    """An array of the host beside keys of CUDA is refused."""
    cuda, cupy = fake
    x, groups = BINS.reshape(50, 100) % 13, clhist.group_by(cupy.asarray(BINS.reshape(50, 100)), 80)
    expected = clhist.group_by(BINS.reshape(50, 100), 80)
    found = groups.agg(x=(cupy.asarray(x), "median", "sum"))["x"]
    for name, values in expected.agg(x=(x, "median", "sum"))["x"].items():
        np.testing.assert_array_equal(found[name].get(), values)
    for weights in (None, x):
        given = {} if weights is None else {"weights": cupy.asarray(weights)}
        got = groups.quantile(cupy.asarray(x), cupy.asarray(np.float64(0.3)), **given)
        np.testing.assert_array_equal(got.get(), expected.quantile(x, 0.3, weights=weights))
    with pytest.raises(ValueError, match="weights: expected no negative"):
        groups.quantile(cupy.asarray(x), 0.3, weights=cupy.asarray(x - 1))
    assert not recwarn.list
    cuda.launched.clear()
    with pytest.raises(TypeError, match="x: expected a"):
        groups.sum(BINS)
    assert not cuda.launched
    np.testing.assert_array_equal(groups.size().get(), expected.size())


def test_medians_by_bins(fake, recwarn):
    _, cupy = fake
    for name, more in (("median", {}), ("quantile", {"q": 0.3}), ("quantile", {"q": 0.3, "weights": BINS})):
        expected = stats.binned_statistic(BINS, BINS, name, 7, **more).statistic
        given = {key: cupy.asarray(each) if key == "weights" else each for key, each in more.items()}
        found = stats.binned_statistic(cupy.asarray(BINS), cupy.asarray(BINS), name, 7, **given).statistic
        np.testing.assert_array_equal(found.get(), expected)
    assert not recwarn.list


def test_edges_and_ends_on_the_device_are_read(fake):
    """A range of the array's own smallest and largest value, edges, and a number of bins: the host needs them."""
    _, cupy = fake
    x = np.random.default_rng(3).random(3000)
    edges = np.linspace(0, 1, 8)
    ends = cupy.asarray(x.min()), cupy.asarray(x.max())
    for got, expected in (
        (clhist.histogram(cupy.asarray(x), 10, ends), np.histogram(x, 10, (x.min(), x.max()))),
        (clhist.histogram(cupy.asarray(x), cupy.asarray(edges)), np.histogram(x, edges)),
    ):
        np.testing.assert_array_equal(got[0].get(), expected[0])
        np.testing.assert_array_equal(got[1], expected[1])
    np.testing.assert_array_equal(clhist.digitize(cupy.asarray(x), cupy.asarray(edges)).get(), np.digitize(x, edges))
    np.testing.assert_array_equal(clhist.histogram(x, cupy.asarray(edges))[0], np.histogram(x, edges)[0])
    counts = clhist.bincount(cupy.asarray(BINS), minlength=cupy.asarray(np.int64(100)))
    np.testing.assert_array_equal(counts.get(), np.bincount(BINS, minlength=100))


def test_a_bound_call_has_no_events_of_opencl(fake, kernel):
    _, cupy = fake
    bound = kernel.bind(cupy.asarray(BINS), 1, num_bins=77)
    with pytest.raises(TypeError, match=r"^return_event: expected none with arrays of CUDA"):
        bound(return_event=True)
    with pytest.raises(UnsupportedError, match=r"^timed: expected arrays of PyOpenCL or NumPy"):
        bound.timed()


def test_threads_make_one_queue_for_a_device(fake, monkeypatch):
    monkeypatch.setattr(cuda_queues, "_queues", {})
    barrier = threading.Barrier(4)

    def ask(_):
        barrier.wait(60)
        return cuda_queues.queue_of_cuda(0)

    with ThreadPoolExecutor(4) as pool:
        assert len({queue.int_ptr for queue in pool.map(ask, range(4))}) == 1
