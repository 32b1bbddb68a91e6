"""Pieces of the input: pairs of all elements do not fit, so a part of them at a time is partitioned."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, partial
from importlib import import_module

import cuda_fake
import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import clhist
from clhist import HistogramKernel, operators
from clhist._core.devices.profile import named_profile
from clhist._core.devices.profile_files import load_profiles
from clhist._core.model import pieces
from clhist._core.model.problem import Choices, Histogram, Problem
from clhist._core.model.sweeps import plan
from clhist._core.opencl.arrays import on_host
from clhist._core.opencl.device import profile_context
from clhist._core.runtime import build
from clhist._core.runtime.engine import Engine
from clhist._core.runtime.launcher import OpenCLExecutable

# Without optimization, kernels of two million elements take longer than their builds save.
pytestmark = pytest.mark.usefixtures("with_optimizer")

N, H, FEW = 2_000_003, 200_000, 10_000
ROOM = 8_000_000  # bytes: pairs of all take 13.5 MB
H200 = named_profile("nvidia-h200", load_profiles())


@pytest.fixture
def sizes(monkeypatch):
    """The numbers of elements of the calls that an engine makes."""
    found, own = [], Engine.run

    def noting(engine, args, call, *known):
        found.append(call.size)
        return own(engine, args, call, *known)

    monkeypatch.setattr(Engine, "run", noting)
    return found


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(5)
    return rng.integers(-9, H + 9, N, np.int32), rng.integers(-99, 99, N).astype(np.float32)


def kernel_of(operator, profile, map="EMIT(x[i], w[i])"):
    return HistogramKernel(None, operator, arguments="const int *x, const float *w", map=map, profile=profile)


def summed(x, w, ufunc=np.add, start=0.0):
    found, inside = np.full(H, start, np.float32), (x >= 0) & (x < H)
    ufunc.at(found, x[inside], w[inside])
    return found


@pytest.mark.parametrize("name", ["add", "maximum"])
def test_what_does_not_fit_is_partitioned_in_pieces(name, gpu_like, data, queue, sizes):
    x, w = data
    operator, ufunc = getattr(operators, name)(np.float32), getattr(np, name)
    start = 0.0 if name == "add" else -np.inf
    kernel, (there, values) = kernel_of(operator, gpu_like), (cl_array.to_device(queue, each) for each in data)
    want = summed(x, w, ufunc, start)
    assert kernel.plan(N, H).strategy == "partitioned"
    whole = kernel(there, values, num_bins=H)
    assert sizes == [None]
    np.testing.assert_array_equal(whole.get(), want)
    del sizes[:]
    for _ in range(3):  # which are recognised, piece by piece
        found, event = kernel(there, values, num_bins=H, memory_budget=ROOM, return_event=True)
        event.wait()
        np.testing.assert_array_equal(found.get(), want)
    step = 1_000_448
    assert sizes == [None, step, N - step] * 3
    dest, out = cl_array.to_device(queue, np.arange(H, dtype=np.float32)), cl_array.empty(queue, H, np.float32)
    kernel(there, values, num_bins=H, memory_budget=ROOM, dest=dest, out=out)
    np.testing.assert_array_equal(out.get(), ufunc(want, np.arange(H)))
    assert (dest.get() == np.arange(H)).all()
    kernel(there, values, num_bins=H, memory_budget=ROOM, dest=dest, out=dest)
    np.testing.assert_array_equal(dest.get(), out.get())


@pytest.mark.parametrize("begin", [0, N - H])
def test_a_result_in_the_place_of_values(begin, gpu_like, data, queue, sizes):
    """Is of all at once: a later piece would read what an earlier one wrote."""
    x, w = data
    there, values = (cl_array.to_device(queue, each) for each in data)
    out = values[begin : begin + H]
    kernel_of(operators.add(np.float32), gpu_like)(there, values, num_bins=H, memory_budget=ROOM, out=out)
    np.testing.assert_array_equal(out.get(), summed(x, w))
    assert len(sizes) == 1


def test_a_queue_out_of_order(gpu_like, data, out_of_order_queue, sizes):
    """Each piece waits for the one before it."""
    kernel = kernel_of(operators.add(np.float32), gpu_like)
    arrays = [cl_array.to_device(out_of_order_queue, each) for each in data]
    for _ in range(3):
        found = kernel(*arrays, num_bins=H, memory_budget=ROOM, queue=out_of_order_queue)
        np.testing.assert_array_equal(found.get(), summed(*data))
    assert len(sizes) == 9


# What keeps accumulators from piece to piece, or asks for more than a result: MB of room, pieces, bins and the call.
KEPT = {
    "counts": (4.5, 2, H, lambda x, w: clhist.bincount(x)),
    "weights": (12, 4, H, clhist.bincount),
    "means": (12, 4, H, partial(clhist.reduce_by_index, H, "mean")),
    "sums": (8, 2, FEW, partial(clhist.reduce_by_index, FEW, "sum", reproducible=True)),
    "histogram": (10, 4, H, lambda x, w: clhist.histogram(x, H, (0, H), weights=w)[0]),
    "exact histogram": (20, 2, FEW, lambda x, w: clhist.histogram(x, FEW, (0, FEW), weights=w, reproducible=True)[0]),
}


@lru_cache(maxsize=2)
def values_of(bins):
    """Return bins, weights, and the counts and sums of the bins."""
    rng = np.random.default_rng(20)
    x = np.append(np.arange(bins, dtype=np.int32), rng.integers(0, bins, N - bins, np.int32))
    w = rng.integers(-(2**20), 2**20, N) / 2.0**20  # whose sums by NumPy are exact
    return x, w.astype(np.float32), np.bincount(x), np.bincount(x, w)


@pytest.mark.parametrize("name", KEPT)
@pytest.mark.parametrize("library", ["pyopencl", "cuda", "numpy"])
def test_accumulators_are_kept_from_piece_to_piece(library, name, gpu_like, queue, sizes, monkeypatch):
    room, number, bins, call = KEPT[name]
    x, w, counts, sums = values_of(bins)
    want = counts if name == "counts" else sums / counts if name == "means" else sums
    put = cuda_fake.install(monkeypatch)[1].asarray if library == "cuda" else partial(cl_array.to_device, queue)
    put = np.asarray if library == "numpy" else put
    arrays = put(x), put(w)
    for module in ("binned.sweep", "_core.runtime.counting"):  # as of the profile
        monkeypatch.setattr(import_module(f"clhist.{module}"), "device_kind", lambda device: "gpu")
    monkeypatch.setattr(build, "memory_budget", lambda device: int(room * 10**6))
    clhist.clear_caches()
    features = frozenset(each for each in gpu_like.features if "float64" not in each)  # which go to global memory
    with profile_context(replace(gpu_like, features=features)):
        for _ in range(3):
            del sizes[:]
            found = call(*arrays) if library == "numpy" else call(*arrays).get()
            np.testing.assert_array_equal(found, want.astype(found.dtype))
            taken = sum(size not in (None, N) for size in sizes)
            # Calls on arrays of CUDA may only launch; how many pieces a GPU's memory makes of NumPy's depends on that.
            is_sent = library == "numpy" and queue.device.type & cl.device_type.GPU
            assert taken > 1 if is_sent else taken == (number if sizes else 0)


GIVEN = {"num_bins": H, "memory_budget": ROOM}
OTHERS = {
    "the position": lambda put, kernels, data: kernels["at"](*map(put, data), **GIVEN).get(),
    "global memory": lambda put, kernels, data: kernels["add"](*map(put, data), **GIVEN, memory="global").get(),
    "a bound call": lambda put, kernels, data: kernels["add"].bind(*map(put, data), **GIVEN)().get(),
}


@pytest.mark.parametrize("name", OTHERS)
def test_others_are_right_in_global_memory(name, gpu_like, data, queue, sizes):
    x, w = data
    add = operators.add(np.float32), gpu_like
    kernels = {"add": kernel_of(*add), "at": kernel_of(*add, "EMIT(x[i], i % 5)")}
    want = summed(x, w if name != "the position" else (np.arange(N) % 5).astype(np.float32))
    found = OTHERS[name](lambda array: cl_array.to_device(queue, array), kernels, data)
    np.testing.assert_allclose(found, want, rtol=1e-6)
    assert len(sizes) <= 1


# Several results of one kernel: MB of room, operators, and C that emits to each.
VALUES = {"sum": operators.add(np.float32), "most": operators.maximum(np.float32)}
WIDER = {"number": operators.count(np.int64), "sum": operators.reproducible_add(np.float32, max_abs=H)}
SEVERAL = {
    "values": (8, VALUES, "EMIT_sum(x[i], w[i]); EMIT_most(x[i], w[i]);"),
    "accumulators": (13, WIDER, "EMIT_number(x[i], 1); EMIT_sum(x[i], w[i]);"),
}


@pytest.mark.parametrize("where", ["device", "host"])
@pytest.mark.parametrize("name", SEVERAL)
def test_several_results(name, where, gpu_like, data, queue, sizes):
    """Each is partitioned by itself; one has a `dest` and an `out`."""
    room, several, map = SEVERAL[name]
    kernel, last = kernel_of(several, gpu_like, map), [*several][-1]
    put = partial(cl_array.to_device, queue) if where == "device" else np.array
    every = {"sum": summed(*data), "most": summed(*data, np.maximum, -np.inf), "number": summed(data[0], np.ones(N))}
    arrays, given, dest = [put(each) for each in data], {"num_bins": H, "memory_budget": room * 10**6}, np.arange(H)
    out = put(dest.astype(np.float32))
    for more in ({}, {"dest": {last: out}, "out": {last: out}}):
        found = {key: on_host(each) for key, each in kernel(*arrays, **given, **more).items()}
        for key in several:
            np.testing.assert_array_equal(found[key], every[key])
        every[last] = (np.maximum if last == "most" else np.add)(every[last], dest)
    np.testing.assert_array_equal(on_host(out), found[last])
    assert sum(size not in (None, N) for size in sizes) >= 4


@pytest.fixture
def small_memory(monkeypatch):
    """A device that does not share the host's memory, and has little of its own."""
    for module in ("_core.runtime.engine", "_core.runtime.chunks", "_core.opencl.operands"):
        monkeypatch.setattr(f"clhist.{module}.shares_memory", lambda device: False)
    monkeypatch.setattr(build, "memory_budget", lambda device: 6_000_000)


@pytest.mark.parametrize("forced", [{}, {"memory": "local", "copies": 2, "update": "cas", "work_group_size": 64}])
def test_arrays_of_the_host_that_do_not_fit(forced, gpu_like, data, sizes, small_memory, monkeypatch):
    """Two pieces are there at a time, whatever the plan is, which heeds all options."""
    x, w = data[0] // 200, data[1]
    add, want, dest = kernel_of(operators.add(np.float32), gpu_like), summed(x, w)[:1000], np.arange(1000.0, dtype="f4")
    plans, own = [], OpenCLExecutable.run
    monkeypatch.setattr(
        OpenCLExecutable, "run", lambda self, *args: plans.append(self.prepared.call[1]) or own(self, *args)
    )
    found = add(x.astype(">i4"), w, num_bins=1000, dest=dest, out=(out := np.empty_like(dest)), **forced)
    assert found is out
    np.testing.assert_array_equal(out, want + dest)
    assert (sizes[0], sum(sizes[1:]), len(sizes)) == (None, N, 7)  # 16 MB, two pieces in 6
    assert not forced or {(each.memory, each.copies, each.work_group_size) for (each,) in plans} == {("local", 2, 64)}
    with pytest.raises(OverflowError, match="max_abs: "):
        clhist.reduce_by_index(1000, "sum", np.abs(x), w, reproducible=True, max_abs=9)
    np.testing.assert_array_equal(clhist.bincount(np.abs(x)), np.bincount(np.abs(x)))
    assert sum(size or 0 for size in sizes) >= 3 * N


@pytest.mark.parametrize("bins", [2**31 + 5, 2**45])
def test_what_fits_nowhere_is_refused(bins, gpu_like, data, queue, monkeypatch, small_memory):
    """Before anything is enqueued, whatever the form of the call."""
    monkeypatch.setattr(OpenCLExecutable, "run", None)
    one, several = kernel_of(VALUES["sum"], gpu_like), kernel_of(VALUES, gpu_like, SEVERAL["values"][2])
    for arrays in (data, [cl_array.to_device(queue, each) for each in data]):
        for kernel, more in ((one, {}), (several, {}), (one, {"num_histograms": 7, "size": 7 * 2**18})):
            with pytest.raises(MemoryError, match=r"^memory_budget: one copy of |^the host has no room for a result"):
                kernel(*arrays, num_bins=bins, **more)


@pytest.mark.parametrize(
    ("size", "bins", "budget", "step"),
    [
        (2 * 10**9, 10**8, 35 << 30, 1_000_000_512),  # more than partitions have numbers for
        (5 * 10**7, 2 * 10**7, 3 * 10**8, 25_000_960),
        (5 * 10**7, 2 * 10**7, 2 * 10**8, 12_500_992),
        (5 * 10**7, 2 * 10**7, 35 << 30, None),  # which fits
        (5 * 10**7, 45_000, 2 * 10**8, None),  # is in local memory
        (5 * 10**7, 2 * 10**7, 81 * 10**6, None),  # too little for any piece
        (5 * 10**7, 10**8, 2 * 10**8, 12_500_992),  # and for a copy of all bins, which partitions do without
    ],
)
def test_pieces_of_a_gpu(size, bins, budget, step):
    problem = Problem.of(operators.add(np.float32), bins, size, memory_budget=budget, read_bytes=8)
    assert pieces.elements_of_piece(problem, H200) == step
    assert pieces.elements_of_piece(replace(problem, choices=Choices(memory="global")), H200) is None


def test_pieces_of_several_results_and_of_what_does_not_fit():
    several = tuple(Histogram(operators.add(np.float32), bins, str(k)) for k, bins in enumerate([2 * 10**7, 1000]))
    problem = Problem(several, 5 * 10**7, memory_budget=3 * 10**8, read_bytes=8)
    assert pieces.elements_of_piece(problem, H200) == 25_000_960
    for choices in (Choices(), Choices(memory="global")):
        few = replace(problem, histograms=several[1:], choices=choices)
        assert [pieces.elements_of_piece(few, H200, least) for least in (1, 4)] == [None, 12_500_992]
    many = Problem.of(operators.add(np.float32), 10**8, 10**7, memory_budget=2 * 10**8)
    assert plan(many, H200).strategy == "partitioned"  # where no copy of all bins fits
