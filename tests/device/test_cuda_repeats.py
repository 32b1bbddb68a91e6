"""Calls on arrays of CUDA that repeat others only launch, with their own arrays, and give what they would give anew."""

from __future__ import annotations

import cuda_fake
import numpy as np
import pytest
import scipy.ndimage

import clhist
import clhist.ndimage
from clhist._core.cuda.driver import CaptureError, CudaMemoryError
from clhist._core.opencl.device import profile_context
from clhist._core.opencl.new_arrays import empty
from clhist._core.runtime import row_kernels
from clhist._core.runtime.call_cache import CallCache
from clhist._core.runtime.cuda_entry import takes_cuda
from clhist._core.runtime.elementwise_kernel import Elementwise
from clhist._core.runtime.launcher import chain_on

pytestmark = pytest.mark.usefixtures("without_optimizer")

N, BINS = 7000, 77
RNG = np.random.default_rng(5)
KERNEL = clhist.HistogramKernel(
    None, clhist.operators.add(np.int64), arguments="const int *x, int step", map="EMIT(x[i], step)"
)
ROWS_OF_BINS = takes_cuda(row_kernels.gather)


def _bins(most=BINS, size=N):
    return RNG.integers(0, most, size, np.int32)


def _values():
    return RNG.integers(-9, 9, N)


# Each makes the arguments of a call anew, and calls with them.
def _on_host(value):
    if isinstance(value, tuple | list):
        return [_on_host(each) for each in value]
    return value.get() if isinstance(value, cuda_fake.FakeArray) else value


def _check(got, expected):
    got, expected = _on_host(got), _on_host(expected)
    for one, other in zip(*((each if isinstance(each, list) else [each]) for each in (got, expected)), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("shape", [(BINS,), (BINS, 8)], ids=str)
def test_rows_of_bins_only_launch(shape, fake):
    """As all calls of `test_repeated_calls.py` do."""
    cuda, cupy = fake
    for _ in range(5):
        rows, x = RNG.random(shape, np.float32), _bins(BINS + 2 * (len(shape) - 1), N // 8)
        on_device = cupy.asarray(rows), cupy.asarray(x)
        cuda.calls.clear()
        _check(ROWS_OF_BINS(*on_device), ROWS_OF_BINS(rows, x))
    assert {each.split()[0] for each in cuda.calls} <= {"cuCtxGetCurrent", "cuLaunchKernel", "empty"}


def test_scalars_and_options_are_part_of_what_is_repeated(fake):
    _, cupy = fake
    x, v = _bins(), _values().astype(np.float32)
    on_device = cupy.asarray(x), cupy.asarray(v)
    for _ in range(3):
        for step in (2, -3):
            _check(KERNEL(on_device[0], step, num_bins=BINS), step * np.bincount(x, minlength=BINS))
        for bins in (BINS, 99):
            for reproducible in (False, True):
                got = clhist.reduce_by_index(bins, "sum", *on_device, reproducible=reproducible)
                _check(got, clhist.reduce_by_index(bins, "sum", x, v, reproducible=reproducible))
        for zero in (0.0, -0.0):
            got, edges = clhist.histogram(on_device[1], [zero, 1.0])
            assert np.signbit(edges[0]) == np.signbit(zero)
            _check(got, np.histogram(v, [zero, 1.0])[0])


@pytest.mark.parametrize("function", [clhist.digitize, clhist.histogram])
@pytest.mark.parametrize("named", [False, True])
def test_edges_of_the_device_are_read_and_part_of_what_is_repeated(function, named, fake):
    """Also where an array of edges is written anew, and where it is what NumPy refuses."""
    cuda, cupy = fake
    data, rising = RNG.random(N), np.linspace(0, 1, 11)
    x, edges = cupy.asarray(data), cupy.asarray(rising)
    launches = []
    for content in [rising] * 6 + [rising**2] * 6 + [rising]:
        edges.array[:] = content
        cuda.calls.clear()
        got = function(x, bins=edges) if named else function(x, edges)
        expected = getattr(np, function.__name__)(data, content)
        _check(got, expected) if function is clhist.digitize else _check(got[0], expected[0])
        launches.append({each.split()[0] for each in cuda.calls})
    assert launches[-1] == launches[5]
    assert not any("Alloc" in call or "HtoD" in call for call in launches[-1])
    with_gaps = cupy.asarray(np.repeat(rising, 2))[::2]
    _check(clhist.digitize(x, with_gaps), np.digitize(data, rising))
    edges.array[:] = [*rising[:5], 0, *rising[6:]]
    with pytest.raises(ValueError, match="monotonic"):
        function(x, edges)


def test_statistics_of_groups_only_launch(fake):
    """Of groups that are made anew for each call; other numbers of groups, shapes and values are other calls."""
    cuda, cupy = fake
    for bins, shape in [(BINS, (N,))] * 4 + [(BINS - 9, (N,)), (BINS, (N // 7, 7)), (BINS, (N,))]:
        keys, x, weights = (array.reshape(shape) for array in (_bins(), RNG.random(N), RNG.random(N)))
        arrays = [cupy.asarray(array) for array in (keys, x, weights)]
        own, groups = clhist.group_by(arrays[0], bins), clhist.group_by(keys, bins)
        cuda.calls.clear()
        table = own.agg(x=(arrays[1], "mean", "max", "argmax"), weights=(arrays[2], "std"))
        got = own.size(), own.weighted_mean(*arrays[1:]), own.sum(arrays[2])
        calls = {each.split()[0] for each in cuda.calls}
        expected = groups.agg(x=(x, "mean", "max", "argmax"), weights=(weights, "std"))
        for name, column in expected.items():
            assert table[name].keys() == column.keys()
            for statistic in column:
                np.testing.assert_allclose(_on_host(table[name][statistic]), column[statistic], rtol=1e-12)
        for one, other in zip(got, (groups.size(), groups.weighted_mean(x, weights), groups.sum(weights)), strict=True):
            np.testing.assert_allclose(_on_host(one), other, rtol=1e-12)
    assert calls <= {"cuCtxGetCurrent", "cuLaunchKernel", "empty"}
    with pytest.raises(ValueError, match=r"x: expected shape"):
        own.mean(cupy.asarray(x.reshape(-1, 7)))


def test_an_address_among_the_numbers_of_a_launch_is_that_of_each_call(fake):
    """A replay could not tell it from a number, so such a call is made anew."""
    _, cupy = fake
    kernel = None

    @takes_cuda
    def address_of(x):
        nonlocal kernel
        kernel = kernel or Elementwise(x.queue.context, "long *y, const long n", "y[i] = n", "clhist_number")
        result, chain = empty(x.queue, (1,), np.dtype(np.int64), True), chain_on(x.queue, "for a test")
        kernel(chain, 1, [result, x.offset])
        return result

    for _ in range(4):
        x = cupy.asarray(_bins())
        assert _on_host(address_of(x)) == [x.data.ptr]


@pytest.mark.parametrize(
    "index", [range(BINS), range(1, BINS), range(4, 9), [[2, 3], [4, 5]], [7], [9, 2, 2, 70], 3], ids=str
)
def test_regions_only_launch(index, fake):
    cuda, cupy = fake
    index = index if index == 3 else np.asarray(index)
    for _ in range(4):
        image, labels = RNG.random((N // 7, 7)), _bins().reshape(-1, 7)
        cuda.calls.clear()
        for function in (clhist.ndimage.sum_labels, clhist.ndimage.mean, clhist.ndimage.standard_deviation):
            got = function(cupy.asarray(image), cupy.asarray(labels), index)
            expected = getattr(scipy.ndimage, function.__name__)(image, labels, index)
            assert np.shape(got) == np.shape(expected)
            np.testing.assert_allclose(_on_host(got), expected, rtol=1e-12)
    calls = {each.split()[0] for each in cuda.calls}
    # The result of one region is a scalar of NumPy.
    assert (calls <= {"cuCtxGetCurrent", "cuLaunchKernel", "empty"}) == (np.ndim(index) > 0)


def test_a_text_in_the_place_of_an_argument_is_no_option(fake):
    x = fake[1].asarray(RNG.random(N))
    for _ in range(6):
        clhist.histogram(x, range=(0, 1))
    with pytest.raises(ValueError, match="range"):
        clhist.histogram(x, "range", (0, 1))


def test_a_range_is_read_while_the_sweep_runs(fake):
    """Also of data whose bins the device does not make, and of what NumPy refuses: calls before and after are right."""
    cuda, cupy = fake
    normal = RNG.normal(size=N)
    for x in [normal, normal * 3, normal + 1, np.full(N, 2.5), np.full(N, 1e10), normal]:
        for _ in range(3):
            on_device = cupy.asarray(x)
            cuda.calls.clear()
            _check(clhist.histogram(on_device, 20), list(np.histogram(x, 20)))
            if x is normal:
                waits, reads = cuda.calls.index("cuStreamWaitEvent"), cuda.calls.index("cuMemcpyDtoHAsync_v2")
                assert "cuLaunchKernel" in cuda.calls[waits:reads]
        assert cuda.calls.count("cuMemcpyDtoHAsync_v2") == 1 or x[0] == x[1]
        for other in (np.nan, np.inf, -np.inf):
            with pytest.raises(ValueError, match=r"^autodetected range of \[.*\] is not finite$"):
                clhist.histogram(cupy.asarray(np.where(x == x[5], other, x)), 20)


@pytest.mark.parametrize("most", [BINS + 5, 5000, 40, 3, 100_000])
def test_counts_of_other_numbers(most, fake):
    """More bins than were guessed, and far fewer."""
    _, cupy = fake
    for x in (
        [_bins()] * 3 + [_bins(most)] * 3 + [_bins()] * 2 + [np.append(_bins(size=N - 1), most).astype(np.int32)] * 3
    ):
        _check(clhist.bincount(cupy.asarray(x)), np.bincount(x))
        weights = RNG.integers(0, 9, N).astype(np.float64)
        _check(clhist.bincount(cupy.asarray(x), cupy.asarray(weights)), np.bincount(x, weights))


def test_a_negative_number_is_refused_as_by_numpy(fake):
    _, cupy = fake
    for _ in range(3):
        clhist.bincount(cupy.asarray(_bins()))
    with pytest.raises(ValueError, match="must have no negative elements"):
        clhist.bincount(cupy.asarray(np.append(_bins(size=N - 1), -1).astype(np.int32)))


def test_arrays_that_overlap_are_taken_as_before(fake):
    _, cupy = fake
    x = cupy.asarray(_bins())
    for _ in range(4):
        both = np.arange(100)
        on_device = cupy.asarray(both)
        got = clhist.reduce_by_index(on_device[:BINS], "sum", x, 1, out=on_device[23:])
        _check(got, np.bincount(x.get(), minlength=BINS) + both[:BINS])


def test_another_alignment_dtype_or_layout_is_another_call(fake):
    _, cupy = fake
    wide = np.stack([_bins(), _bins()], 1)
    for _ in range(3):
        for x in (
            wide[:, 0].copy(),
            wide.ravel()[1:],
            wide.ravel()[3:],
            _bins().astype(np.uint8),
            _bins().astype(np.int64),
        ):
            _check(
                clhist.reduce_by_index(BINS, "sum", cupy.asarray(np.append(x[:1], x))[1:], 1),
                np.bincount(x, minlength=BINS),
            )
        with pytest.raises(ValueError, match="indices"):
            clhist.reduce_by_index(BINS, "sum", cupy.asarray(wide)[:, 0], 1)


def test_what_opencl_alone_takes_is_refused(fake):
    _, cupy = fake
    x = cupy.asarray(_bins())
    for _ in range(3):
        clhist.reduce_by_index(BINS, "sum", x, 1, queue=None)
    with pytest.raises(TypeError, match="queue: expected none with arrays of CUDA"):
        clhist.reduce_by_index(BINS, "sum", x, 1, queue=clhist.default_queue())


def test_edges_are_the_callers_own(fake):
    _, cupy = fake
    x = RNG.normal(size=N)
    for _ in range(4):
        _, edges = clhist.histogram(cupy.asarray(x), 3, (0, 3))
        np.testing.assert_array_equal(edges, [0, 1, 2, 3])
        edges[:] = 7


def test_a_profile_that_is_changed_is_heeded(fake):
    cuda, cupy = fake
    x = cupy.asarray(_bins())
    for _ in range(3):
        clhist.reduce_by_index(BINS, "sum", x, 1)
    number, profile = len(cuda.launched), KERNEL.engine.profile_of(clhist.default_queue().device)
    with profile_context(profile):
        _check(clhist.reduce_by_index(BINS, "sum", x, 1), np.bincount(x.get(), minlength=BINS))
    assert len(cuda.launched) > number


def test_a_capture_takes_what_reads_nothing(fake):
    cuda, cupy = fake
    x = cupy.asarray(_bins())
    for _ in range(3):
        clhist.reduce_by_index(BINS, "sum", x, 1)
        clhist.bincount(x)
    before, cuda.is_captured = len(cuda.launched), True
    clhist.reduce_by_index(BINS, "sum", x, 1)
    launched = len(cuda.launched)
    assert launched > before
    cuda.calls.clear()
    with pytest.raises(CaptureError, match="cannot be captured"):
        clhist.bincount(x)
    assert len(cuda.launched) == launched
    assert "cuMemsetD8Async" not in cuda.calls


def test_no_memory_for_a_result(fake):
    cuda, cupy = fake
    x = cupy.asarray(_bins())
    for _ in range(3):
        clhist.reduce_by_index(BINS, "sum", x, 1)
    cuda.fails["empty"] = 100
    with pytest.raises(CudaMemoryError, match=r"cupy has no \d+ bytes"):
        clhist.reduce_by_index(BINS, "sum", x, 1)
    cuda.fails.clear()
    _check(clhist.reduce_by_index(BINS, "sum", x, 1), np.bincount(x.get(), minlength=BINS))


def test_close_numbers(fake, monkeypatch):
    """Other numbers of elements and bins in each call; one that comes often is planned for itself, and still right."""
    _, cupy = fake
    planned, original = [], CallCache._built
    monkeypatch.setattr(CallCache, "_built", lambda *args: planned.append(args[3:]) or original(*args))
    op = clhist.Operator(np.int64, "a + b + 0", 0)  # of which there are no plans yet
    for size, bins in [(N, BINS), (N - 5, BINS - 1), (N - 77, BINS - 7), *[(N - 9, BINS - 3)] * 40]:
        x, v = _bins(bins + 5, size), RNG.integers(-9, 9, size)
        got = clhist.reduce_by_index(bins, op, cupy.asarray(x), cupy.asarray(v))
        _check(got, np.bincount(x, v, bins)[:bins].astype(np.int64))
    assert planned[:2] == [(), ((7168, (80,)),)]
    assert planned[-1] == ()
    assert len(planned) <= 5


NUMBERS = {
    "edges": lambda a, x, k: clhist.histogram(x, a(np.linspace(-2 + k, 2, 11))),
    "a range": lambda a, x, k: clhist.histogram(x, 10, a(np.array([-2.0 + k, 3]))),
    "ends": lambda a, x, k: clhist.histogram(x, 10, (a(np.array(-2.0 + k)), a(np.array(3.0)))),
    "edges of two axes": lambda a, x, k: clhist.histogram2d(x, x, [a(np.linspace(-2 + k, 2, 5)), a(np.arange(4.0))]),
    "points": lambda a, x, k: clhist.histogramdd([x, x], [a(np.linspace(-2 + k, 2, 5)), a(np.arange(4.0))])[0],
    "a bound": lambda a, x, k: clhist.reduce_by_index(
        5, "sum", a(np.arange(N, dtype=np.int32) % 5), x, reproducible=True, max_abs=a(np.array(99.0 + 1000 * k))
    ),
    "a least number": lambda a, x, k: clhist.bincount(a(np.arange(N) % 5), minlength=a(np.array(9 + int(10 * k)))),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_that_are_arrays_of_cuda_are_read_each_time(name, fake):
    _, cupy = fake
    for n in range(16):
        x, k = RNG.normal(size=N), 0.1 * (n // 7)
        _check(NUMBERS[name](cupy.asarray, cupy.asarray(x), k), NUMBERS[name](lambda array: array, x, k))
