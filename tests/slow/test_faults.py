"""What goes wrong on a device or in a process, and what the library makes of it."""

from __future__ import annotations

import gc
import multiprocessing
import os
import weakref
from dataclasses import replace

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
from allocators import Limited
from processes import LONGEST, begin_together, count_in_a_process, run_python

import clhist
from clhist import Accumulator, BuildError, HistogramKernel, Operator, operators
from clhist._core.devices import vendors
from clhist._core.opencl import program
from clhist.selftest.cases import pair_kernel
from clhist.selftest.reference import counts_of

COUNT = operators.add(np.int32)


@pytest.fixture(scope="module")
def gpu_like(gpu_like):
    """The same caches whatever the device, so that copies are as many."""
    return replace(gpu_like, l2_cache=4 << 20, l2_line=64)


@pytest.fixture
def bins(queue, rng):
    return cl_array.to_device(queue, rng.integers(0, 1000, 40_000, np.int32))


@pytest.mark.parametrize(
    ("memory", "most", "asked"),
    # 20 copies of 4000 bytes, or those of 8 work-groups: halved until they fit.
    [("global", 20_000, [80_000, 40_000, 20_000]), ("local", 9000, [32_000, 16_000, 8000]), (None, 4000, None)],
)
def test_fewer_copies_where_memory_is_short(memory, most, asked, gpu_like, queue, bins):
    kernel, allocator = pair_kernel(COUNT, gpu_like), Limited(queue, most)
    ones, out = cl_array.zeros(queue, bins.size, np.int32) + 1, cl_array.zeros(queue, 1000, np.int32) + 5
    options = {"update": "native", "memory": memory} if memory else {}
    before = kernel.plan(bins.size, 1000, **options)
    kernel(bins, ones, num_bins=1000, dest=out, out=out, allocator=allocator, **options)
    np.testing.assert_array_equal(out.get(), counts_of(bins.get(), 1000) + 5)
    assert kernel.plan(bins.size, 1000, **options) == before  # the next call tries again
    if asked is not None:
        assert [size for size in allocator.asked if size > 100] == asked


def test_no_room_for_one_copy(gpu_like, queue, bins):
    kernel, allocator = pair_kernel(COUNT, gpu_like), Limited(queue, 3999)
    out = cl_array.zeros(queue, 1000, np.int32) + 5
    message = r"^the device has no 4000 bytes for one copy of 1000 bins; what could help: .*clhist.free_scratch\(\)"
    with pytest.raises(MemoryError, match=message):
        kernel(bins, bins, num_bins=1000, out=out, allocator=allocator, memory="global", update="cas")
    assert (out.get() == 5).all()
    assert sorted(allocator.asked, reverse=True) == allocator.asked
    assert allocator.asked[-1] == 4000


def test_locks_that_take_as_much_as_the_copies(gpu_like, queue, bins):
    """Half of what was refused, with locks, may be as many copies as before: this went on for ever."""
    allocator, ones = Limited(queue, 1000), cl_array.zeros(queue, bins.size, np.int32) + 1
    options = {"memory": "global", "update": "lock", "locks": 256}
    result = pair_kernel(COUNT, gpu_like)(bins, ones, num_bins=100, allocator=allocator, **options)
    np.testing.assert_array_equal(result.get(), counts_of(bins.get(), 100))
    assert len(allocator.asked) > 3


def test_forced_copies_stay_forced(gpu_like, queue, bins):
    allocator = Limited(queue, 30_000)
    with pytest.raises(MemoryError, match=r"^the device has no 40000 bytes for 10 copies of 1000 bins"):
        pair_kernel(COUNT, gpu_like)(bins, bins, num_bins=1000, memory="global", copies=10, allocator=allocator)
    assert allocator.asked == [4000, 40_000]  # the result, and the copies


def test_what_the_model_partitions_gives_way(gpu_like, queue, rng):
    """What the caller forces does not: `test_partition.py`."""
    bins = cl_array.to_device(queue, rng.integers(0, 200_000, 400_000, np.int32))
    kernel, allocator = pair_kernel(COUNT, gpu_like), Limited(queue, 900_000)
    assert kernel.plan(bins.size, 200_000).strategy == "partitioned"
    ones, out = cl_array.zeros(queue, bins.size, np.int32) + 1, cl_array.empty(queue, 200_000, np.int32)
    kernel(bins, ones, num_bins=200_000, out=out, allocator=allocator)
    assert max(allocator.asked) > 900_000
    np.testing.assert_array_equal(out.get(), np.bincount(bins.get(), minlength=200_000))


def test_each_of_several_histograms_gives_way_by_itself(gpu_like, queue, bins):
    """What the first sweep has done is not done twice, although `dest` is `out`."""
    kernel = HistogramKernel(
        None,
        {"few": COUNT, "many": COUNT},
        arguments="const int *bins",
        map="EMIT_few(bins[i] % 10, 1); EMIT_many(bins[i] * 50, 1)",
        profile=gpu_like,
    )
    sizes = {"few": 10, "many": 50_000}
    assert len(kernel.plan(bins.size, sizes)) == 2
    given = bins.get()
    for most in (10**6, 300_000, 200_000):
        out = {name: cl_array.zeros(queue, n, np.int32) + 3 for name, n in sizes.items()}
        kernel(bins, num_bins=sizes, dest=out, out=out, allocator=Limited(queue, most))
        np.testing.assert_array_equal(out["few"].get(), counts_of(given % 10, 10) + 3)
        np.testing.assert_array_equal(out["many"].get(), np.bincount(given * 50, minlength=50_000) + 3)


# A compiler that refuses.


@pytest.fixture
def broken(monkeypatch):
    """Return a function that lets the atomics for 32-bit sums not compile in these memories."""

    def breaks(*memories):
        for memory in memories:
            rows = vendors._BY_KEY["add", "int32", memory]
            row = rows[0]._replace(code="clhist_no_such_atomic(p, v);")
            monkeypatch.setitem(vendors._BY_KEY, ("add", "int32", memory), [row])

    return breaks


def kernel_of(profile, text, combine="a + b", code="EMIT(bins[i], 1)"):
    """Return a kernel that no other test has built."""
    operator = Operator(np.int32, combine, 0, "sum")
    preamble = f"// {text}"
    return HistogramKernel(None, operator, arguments="const int *bins", map=code, preamble=preamble, profile=profile)


def test_the_next_update_where_one_does_not_compile(broken, gpu_like, queue, bins):
    kernel, given = kernel_of(gpu_like, "next update"), bins.get()
    broken("global")
    expected = counts_of(given, 1000)
    assert kernel.plan(given.size, 1000, memory="global").update == "native"
    np.testing.assert_array_equal(kernel(given, num_bins=1000, memory="global"), expected)
    plan = kernel.plan(given.size, 1000, memory="global")
    assert (plan.update, plan.refused) == ("cas", ("native in global",))
    assert "cas updates in global memory (the compiler refused native in global memory)" in str(plan)
    assert "clhist_no_such_atomic" not in kernel.source(plan)
    np.testing.assert_array_equal(kernel(given, num_bins=1000, memory="local"), expected)
    assert kernel.plan(given.size, 1000, memory="local").update == "native"


def test_two_updates_that_do_not_compile(broken, gpu_like, bins, monkeypatch):
    from clhist._core.kernels import render

    original, given = render.render_sweep, bins.get()

    def no_exchange(spec):
        return original(spec).replace("atomic_cmpxchg", "clhist_no_such_exchange")

    monkeypatch.setattr("clhist._core.runtime.stages.render_sweep", no_exchange)
    broken("local")
    kernel = kernel_of(gpu_like, "two updates")
    np.testing.assert_array_equal(kernel(given, num_bins=1000, memory="local"), counts_of(given, 1000))
    plan = kernel.plan(given.size, 1000, memory="local")
    assert (plan.update, plan.refused) == ("lock", ("native in local", "cas in local"))


def test_a_forced_update_is_not_replaced(broken, gpu_like, bins):
    broken("local")
    kernel = kernel_of(gpu_like, "forced")
    with pytest.raises(BuildError, match="clhist_no_such_atomic"):
        kernel(bins.get(), num_bins=1000, memory="local", update="native")
    assert not kernel.plan(1000, 1000).refused


@pytest.mark.parametrize("code", ["EMIT(bins[i], no_such_name)", "EMIT(bins[i], 1 +)"])
def test_the_caller_s_own_mistake_is_shown_once(code, gpu_like, bins, monkeypatch):
    built, original = [], program._build

    def build(context, source, options):
        built.append(source)
        return original(context, source, options)

    monkeypatch.setattr(program, "_build", build)
    kernel = kernel_of(gpu_like, "mistake", code=code)
    with pytest.raises(BuildError) as caught:
        kernel(bins.get(), num_bins=1000)
    assert caught.value.__context__ is None  # no other error before or behind it
    assert caught.value.source == built[0]
    assert not kernel.plan(1000, 1000).refused


# Processes and contexts.


def test_eight_processes_at_once(monkeypatch, tmp_path):
    """With all caches of compiled programs, which are empty at first."""
    monkeypatch.delenv("PYOPENCL_NO_CACHE", raising=False)
    for name in ("XDG_CACHE_HOME", "POCL_CACHE_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    spawn = multiprocessing.get_context("spawn")
    with spawn.Pool(8, begin_together, (spawn.Barrier(8),)) as pool:
        found = pool.map_async(count_in_a_process, range(8), chunksize=1).get(LONGEST)
    assert len({process for process, _ in found}) == 8
    assert all(right for _, right in found)


def test_a_context_after_another(queue):
    """As many as there are, no more than a few are kept, and each has its own programs."""
    gone = []
    for k in range(20):
        context = cl.Context([queue.device])
        own = cl.CommandQueue(context)
        kernel = HistogramKernel(context, COUNT, arguments="const int *x", map="EMIT(x[i], 1)")
        x = cl_array.to_device(own, np.arange(k + 1, dtype=np.int32) % 7)
        assert kernel(x, num_bins=7).get().tolist() == counts_of(np.arange(k + 1) % 7, 7).tolist()
        if not k % 10:
            assert clhist.bincount(x).get().sum() == k + 1
        gone.append(weakref.ref(kernel))
        assert len(program._caches) <= program._MOST_CONTEXTS
        del context, own, kernel, x
    clhist.free_scratch()
    gc.collect()
    assert not [reference for reference in gone if reference() is not None]
    assert clhist.bincount(np.arange(5)).tolist() == [1] * 5


FORKED = """
    import multiprocessing, numpy as np, pyopencl.array, clhist._core.opencl.device
    count = clhist.operators.count()
    accumulator = clhist.Accumulator(np.add, 3, dtype=np.int32)
    accumulator.add(np.array([0, 1]), np.array([1, 1], np.int32))
    kernel = clhist.HistogramKernel(None, count, arguments="const int *x", map="EMIT(x[i], 1)")
    x = pyopencl.array.to_device(clhist.default_queue(), np.zeros(9, "i4"))
    kernel(x, num_bins=3)
    calls = {
        "call": lambda: kernel(x, num_bins=3),
        "kernel": lambda: clhist.HistogramKernel(kernel.context, count, arguments="", map="EMIT(0, 1)"),
        "plan": lambda: kernel.plan(10, 3),
        "bincount": lambda: clhist.bincount(x),
        "reduce": lambda: clhist.reduce_by_index(np.zeros(3), np.add, np.zeros(3, int), 1.0),
        "add": lambda: accumulator.add(np.array([0]), np.array([1], np.int32)),
        "result": accumulator.result,
        "partial": accumulator.partial,
        "merge": lambda: accumulator.merge(accumulator, allow_repeat=True),
        "free": clhist.free_scratch,
        "queue": clhist.default_queue,
        "devices": clhist._core.opencl.device.devices,
    }

    def work():
        for name, call in calls.items():
            try:
                call()
            except RuntimeError as error:
                assert 'multiprocessing.get_context("spawn")' in str(error)
                print(name, end=" ", flush=True)

    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join(60)
    print(child.exitcode, *calls)
    assert accumulator.result().tolist() == [1, 1, 0]
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_every_call_in_a_forked_process_is_refused():
    refused, _, after = run_python(FORKED).rstrip().partition(" 0 ")
    assert refused.split() == after.split()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_a_fork_before_the_first_call():
    said = run_python(
        """
        import multiprocessing

        def work():
            print(clhist.bincount([1, 2], queue=clhist.default_queue()).tolist(), flush=True)

        for _ in range(2):
            child = multiprocessing.get_context("fork").Process(target=work)
            child.start()
            child.join(60)
        print(child.exitcode, clhist.bincount([1]).tolist())
        """
    )
    assert said == "[0, 1, 1]\n[0, 1, 1]\n0 [0, 1]\n"


# Streams.


def test_a_generator_that_fails_between_chunks(rng):
    indices, accumulator = rng.integers(0, 5, 900), Accumulator(np.add, 5, dtype=np.int64, chunk_bytes=1024)

    def pieces():
        yield indices, 1
        accumulator.add(indices, 1)  # in between
        yield indices, 1
        raise OSError("the disk is gone")

    def report(done, total):
        if done > 3000:
            raise KeyboardInterrupt

    expected = np.bincount(indices, minlength=5)
    with pytest.raises(OSError, match="the disk is gone"):
        accumulator.extend(pieces())
    assert accumulator.size == 2700
    np.testing.assert_array_equal(accumulator.result(), 3 * expected)
    with pytest.raises(KeyboardInterrupt):  # of what reports on the progress: the piece before it is in
        accumulator.extend([(indices, 1)] * 9, progress=report)
    assert accumulator.size == 2700 + 3600
    np.testing.assert_array_equal(accumulator.result(), 7 * expected)
    accumulator.extend([(indices, 1)])
    np.testing.assert_array_equal(accumulator.result(), 8 * expected)


# The watchdog of these tests.

HANGING = {
    "collection": "import time; time.sleep(900)",
    "a fixture": """
import pytest, time

@pytest.fixture(scope="session")
def slow():
    time.sleep(900)

def test_nothing(slow):
    pass
""",
    "the end of a fixture": """
import pytest, time

@pytest.fixture
def slow():
    yield
    time.sleep(900)

def test_nothing(slow):
    pass
""",
    "a test": "import time\n\ndef test_slow():\n    time.sleep(900)\n",
}


@pytest.mark.parametrize(
    ("where", "processes"), [("a fixture", 0), ("the end of a fixture", 0), ("a test", 0), ("collection", 2)]
)
def test_the_watchdog_sees(where, processes, tmp_path):
    from pathlib import Path
    from subprocess import run
    from sys import executable

    config = (Path(__file__).parents[1] / "conftest.py").read_text(encoding="utf-8")
    assert config.count("LONGEST_TEST = 300") == 1
    (tmp_path / "conftest.py").write_text(config.replace("LONGEST_TEST = 300", "LONGEST_TEST = 3"), encoding="utf-8")
    (tmp_path / "test_hanging.py").write_text(HANGING[where], encoding="utf-8")
    command = [executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", str(processes), str(tmp_path)]
    paths = {"PYTHONPATH": str(Path(__file__).parents[1] / "support")}
    done = run(command, capture_output=True, text=True, timeout=LONGEST, check=False, env=os.environ | paths)
    assert done.returncode != 0
    assert "Timeout (0:00:03" in done.stderr
    assert "test_hanging.py" in done.stderr
