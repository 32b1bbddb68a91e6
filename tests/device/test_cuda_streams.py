"""Streams and parts of arrays of CUDA: bins on the caller's device, results in its library, what the host has to do."""

from __future__ import annotations

import copy
import warnings
from types import SimpleNamespace

import cuda_fake
import numpy as np
import pyopencl.array as cl_array
import pytest
from test_cuda_functions import BINS, COUNTS, N, X, check_same, on_host

import clhist
from clhist._core.cuda.driver import CaptureError

pytestmark = pytest.mark.usefixtures("without_optimizer")


def _two(accumulator, a, *arrays):
    """Add arrays in two chunks."""
    for part in (slice(0, N // 3), slice(N // 3, N)):
        accumulator.add(*(a(each[part]) for each in arrays))
    return accumulator


def _kernel():
    operators = {"n": clhist.operators.count(np.int32), "s": clhist.operators.add(np.int64)}
    source = "EMIT_n(x[i], 1); EMIT_s(x[i], y[i])"
    return clhist.HistogramKernel(None, operators, arguments="const int *x, const long *y", map=source)


# Each gets what makes an array of CUDA of NumPy's, or leaves it.
STREAMS = {
    "sums": lambda a: _two(clhist.Accumulator(np.add, 77, dtype=np.int64), a, BINS, COUNTS).result(),
    "floats": lambda a: _two(clhist.Accumulator("sum", 77, dtype=np.float32), a, BINS, X).result(),
    "counts": lambda a: clhist.Accumulator("count", 77).add(a(BINS), 1).add(a(BINS), 1).result(),
    "largest": lambda a: _two(clhist.Accumulator("max", 77, dtype=np.int64), a, BINS, COUNTS).result(),
    "products of shorts": lambda a: (
        clhist.Accumulator("prod", 3000, dtype=np.int16).add(a(BINS), a(COUNTS.astype(np.int16))).result()
    ),
    "reproducible": lambda a: _two(
        clhist.Accumulator(clhist.operators.reproducible_add(np.float32), 77), a, BINS, X
    ).result(),
    "onto others": lambda a: _two(clhist.Accumulator("sum", 77, dest=a(np.arange(77))), a, BINS, COUNTS).result(),
    "nothing onto others": lambda a: clhist.Accumulator("sum", 77, dest=a(np.arange(77))).result(),
    "a kernel": lambda a: _two(clhist.Accumulator(_kernel(), 77), a, BINS, COUNTS).result(),
    "an iterable": lambda a: (
        clhist.Accumulator("sum", 77, dtype=np.int64).extend((a(BINS), a(COUNTS)) for _ in range(3)).result()
    ),
    "merged": lambda a: (
        clhist.Accumulator("sum", 77, dtype=np.int64)
        .add(a(BINS), a(COUNTS))
        .merge(clhist.Accumulator("sum", 77, dtype=np.int64).add(a(BINS[:9]), a(COUNTS[:9])))
        .result()
    ),
    "more after a result": lambda a: _again(clhist.Accumulator("sum", 77, dtype=np.int64), a),
}


def _again(accumulator, a):
    first = accumulator.add(a(BINS), a(COUNTS)).result()
    return first, accumulator.add(a(BINS), a(COUNTS)).result()


SPECS = {
    "an operator": lambda a: clhist.Spec("sum", 77, dtype=np.int64).partial(a(BINS), a(COUNTS)),
    "from a position": lambda a: clhist.Spec("max", 77, dtype=np.int64).partial(a(BINS), a(COUNTS), start=70),
    "reproducible": lambda a: clhist.Spec(clhist.operators.reproducible_add(np.float32), 77).partial(a(BINS), a(X)),
    "a map": lambda a: clhist.Spec(
        {"n": clhist.operators.count(np.int32)}, 77, arguments="const int *x", map="EMIT_n(x[i], 1)"
    ).partial(a(BINS)),
}


@pytest.mark.parametrize("name", STREAMS)
def test_stream(name, fake):
    cuda, cupy = fake
    expected, _ = on_host(STREAMS[name](lambda array: array))
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # nothing goes through the host
            got, is_cuda = on_host(STREAMS[name](cupy.asarray))
        check_same(got, expected)
        assert is_cuda
    assert {launch.stream for launch in cuda.launched} <= {cuda_fake.STREAM}
    assert bool(cuda.launched) == (name != "nothing onto others")


@pytest.mark.parametrize("name", SPECS)
def test_part(name, fake):
    """Its accumulators are NumPy's, as those of every device."""
    cuda, cupy = fake
    expected = SPECS[name](lambda array: array)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            got = SPECS[name](cupy.asarray)
            assert cuda.launched
            assert (got.size, got.values, got.positions) == (expected.size, expected.values, expected.positions)
            check_same(list(got.results()), list(expected.results()))


def test_bins_follow_the_chunks(fake):
    """From the host to the device of CUDA and back; the result is of the library of the last chunk."""
    _, cupy = fake
    queue = clhist.default_queue()
    makes = [np.copy, cupy.asarray, lambda array: cl_array.to_device(queue, array), cupy.asarray, np.copy]
    kinds = [np.ndarray, cuda_fake.FakeArray, cl_array.Array, cuda_fake.FakeArray, np.ndarray]
    sums = clhist.Accumulator("sum", 77, dtype=np.int64)
    for n, (make, kind) in enumerate(zip(makes, kinds, strict=True), 1):
        found = sums.add(make(BINS), make(COUNTS)).result()
        assert type(found) is kind
        found = found if kind is np.ndarray else found.get()
        np.testing.assert_array_equal(found, n * np.bincount(BINS, COUNTS, 77))
    assert sums.size == 5 * N


def test_streams_take_turns(fake, monkeypatch):
    """What uses the bins waits for what used them last on another stream, though it may be gone; once each time."""
    cuda, cupy = fake
    sums = clhist.Accumulator("sum", 77, dtype=np.int64)

    def on(stream):
        monkeypatch.setattr(cupy.cuda, "get_current_stream", lambda device: SimpleNamespace(ptr=stream))
        cuda.ordered.clear()

    def waits():
        return [stream for what, stream in cuda.ordered if what == "wait"]

    bins, counts = cupy.asarray(BINS), cupy.asarray(COUNTS)
    uses = [
        lambda: sums.add(bins, counts),
        sums.result,
        lambda: sums.add(bins, counts),
        sums.partial,
        lambda: sums.merge(sums.partial(), allow_repeat=True),
        sums.result,
        lambda: sums.add(BINS, COUNTS),  # bins go to the host
    ]
    for n, use in enumerate(uses):
        on(0x70 + n)
        use()
        assert waits() == ([0x70 + n] if n else [])
    np.testing.assert_array_equal(sums.result(), 5 * np.bincount(BINS, COUNTS, 77))
    cuda.ordered.clear()
    sums.add(bins, counts).add(bins, counts)
    assert waits() == []
    cuda.is_captured = True
    with pytest.raises(CaptureError, match="captured into a graph"):
        sums.add(bins, counts)
    assert sums.size == 7 * N


def test_what_cuda_cannot_do_goes_through_the_host(fake):
    """With one warning, and results in the caller's library all the same."""
    cuda, cupy = fake
    own = clhist.Operator(np.int64, "(a < b ? b : a) + 0", np.iinfo(np.int64).min, name="own maximum")
    largest = clhist.Accumulator(own, 77)
    cuda.fails["cuModuleLoadDataEx"] = 218
    with pytest.warns(UserWarning, match=r"Accumulator.add: the data of CUDA goes through the host"):
        largest.add(cupy.asarray(BINS), cupy.asarray(COUNTS))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        largest.add(cupy.asarray(BINS), cupy.asarray(COUNTS + 1))
    found = largest.result()
    assert isinstance(found, cuda_fake.FakeArray)
    np.testing.assert_array_equal(found.get(), [1 + COUNTS[b == BINS].max() for b in range(77)])
    assert type(largest.add(BINS, COUNTS).result()) is np.ndarray


def test_wrong_chunks_add_nothing(fake):
    _, cupy = fake
    sums = clhist.Accumulator("sum", 77, dtype=np.int64).add(cupy.asarray(BINS), cupy.asarray(COUNTS))
    with pytest.raises(TypeError, match="CUDA"):
        sums.add(cupy.asarray(BINS), COUNTS)
    with pytest.raises(TypeError, match=r"indices: expected integers, got float32"):
        sums.add(cupy.asarray(X), cupy.asarray(COUNTS))
    assert sums.size == N
    np.testing.assert_array_equal(sums.result().get(), np.bincount(BINS, COUNTS, 77))


def test_a_part_keeps_no_memory_of_the_caller(fake):
    cuda, cupy = fake
    spec = clhist.Spec("sum", 77, dtype=np.int64)
    parts = [spec.partial(cupy.asarray(BINS), cupy.asarray(COUNTS)) for _ in range(2)]
    parts.append(copy.deepcopy(spec.partial(BINS, COUNTS)))
    assert cuda.launched
    for part in parts:
        np.testing.assert_array_equal(part.result(), np.bincount(BINS, COUNTS, 77))


def test_several_devices_take_chunks_of_cuda_and_of_numpy(fake):
    cuda, cupy = fake
    expected = clhist.reduce_by_index(77, "sum", np.tile(BINS, 5), np.tile(COUNTS, 5))
    several = clhist.MultiAccumulator("sum", 77, dtype=np.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        several.add(BINS, COUNTS).add(cupy.asarray(BINS), cupy.asarray(COUNTS))
        assert cuda.launched
        several.extend([(BINS, COUNTS), (cupy.asarray(BINS), cupy.asarray(COUNTS)), (BINS[:9], COUNTS[:9])])
    several.merge(_two(clhist.Accumulator("sum", 77, dtype=np.int64), cupy.asarray, BINS[9:], COUNTS[9:]))
    assert several.size == 5 * N
    found = several.result()
    assert isinstance(found, np.ndarray)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(several.partial().result(), expected)


def test_positions_count_over_chunks_of_cuda_and_of_numpy(fake):
    _, cupy = fake
    several = clhist.MultiAccumulator(clhist.operators.argmax(np.float32, np.int64), 77)
    for n, part in enumerate((slice(0, 5000), slice(5000, 9000), slice(9000, N))):
        a = cupy.asarray if n % 2 else np.asarray
        several.add(a(BINS[part]), a(X[part]))
    expected = clhist.reduce_by_index(77, "argmax", BINS, (X, np.arange(N)))
    np.testing.assert_array_equal(several.result()["index"], expected["index"])


def test_several_devices_refuse_wrong_arrays_of_cuda(fake):
    cuda, cupy = fake
    several = clhist.MultiAccumulator("sum", 77, dtype=np.int64)
    with pytest.raises(ValueError, match=r"^values: expected shape"):
        several.add(cupy.asarray(BINS), cupy.asarray(COUNTS[1:]))
    with pytest.raises(TypeError, match=r"^values: expected a CUDA array as indices is, got a NumPy array"):
        several.add(cupy.asarray(BINS), COUNTS)
    assert not cuda.launched
    assert several.result().sum() == 0
