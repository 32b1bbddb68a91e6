"""Memory of CUDA of clhist's own: what is freed, and what is used again."""

from __future__ import annotations

import gc

import cuda_fake
import numpy as np
import pyopencl as cl
import pytest

import clhist
from clhist._core.cuda import memory
from clhist._core.runtime import cuda_launcher
from clhist._core.runtime.signature import forget_calls

pytestmark = pytest.mark.usefixtures("without_optimizer")

BINS = np.random.default_rng(1).integers(0, 77, 5000, np.int32)


def test_memory_of_tables_is_freed(fake, monkeypatch):
    """With the kernel that they belong to, once nothing is remembered of its calls."""
    cuda, cupy = fake
    monkeypatch.setattr(memory, "_MOST_BYTES", 0)
    forget_calls()  # of other tests
    gc.collect()
    cuda.calls.clear()
    own = clhist.HistogramKernel(
        None, clhist.operators.add(np.int64), arguments="const int *x, long step", map="EMIT(x[i], step)"
    )
    own(cupy.asarray(BINS), 1, num_bins=77, offsets=[0, 10, 5000])
    allocated = cuda.calls.count("cuMemAlloc_v2")
    assert allocated
    del own
    forget_calls()
    gc.collect()
    assert cuda.calls.count("cuMemFree_v2") == allocated


def test_small_memory_is_used_again_when_nothing_runs(fake, monkeypatch):
    """A block whose parts are all gone, once the device has done all; never one that has a part."""
    cuda, _ = fake
    monkeypatch.setattr(memory, "_blocks", {})
    monkeypatch.setattr(memory, "_BLOCK_BYTES", 1024)
    first = [memory.Allocation(0, size) for size in (1, 256, 257)]
    assert [each.address - first[0].address for each in first] == [0, 256, 512]
    second = memory.Allocation(0, 900)  # of another block
    assert not 0 <= second.address - first[0].address < 1024
    address = first[0].address
    del first[:2]
    third = memory.Allocation(0, 900)
    assert not 0 <= third.address - address < 1024
    assert cuda.calls.count("cuMemAlloc_v2") == 3
    assert "cuCtxSynchronize" not in cuda.calls
    del first[:]
    fourth = memory.Allocation(0, 500)
    assert (fourth.address, cuda.calls.count("cuCtxSynchronize")) == (address, 1)
    assert cuda.calls.count("cuMemAlloc_v2") == 3
    large = memory.Allocation(0, 100_000)
    assert cuda.calls.count("cuMemAlloc_v2") == 4
    del large
    assert cuda.calls.count("cuMemFree_v2") == 1


def test_what_is_kept_on_cuda_can_be_cleared(fake, monkeypatch):
    """Blocks without a part that is held; and programs are not loaded again, since none is unloaded."""
    cuda, cupy = fake
    monkeypatch.setattr(memory, "_blocks", {})
    bins, own, first = cupy.asarray(BINS), cuda_launcher.cuda_program, {}

    def same_text(program):  # as NVIDIA's compiler makes of the same program that is built again
        return own(first.setdefault(program.get_info(cl.program_info.KERNEL_NAMES), program))

    monkeypatch.setattr(cuda_launcher, "cuda_program", same_text)

    def count():
        return clhist.histogram(bins, np.array([0, 7, 50, 77]))[0].get()

    held, want = memory.Allocation(0, 300), count()
    for _ in range(3):
        np.testing.assert_array_equal(count(), want)
    clhist.clear_caches()
    gc.collect()
    blocks, loaded = memory._blocks[0], cuda.calls.count("cuModuleLoadDataEx")
    assert not blocks._unused
    assert blocks._current.parts == 1
    for _ in range(2):
        np.testing.assert_array_equal(count(), want)
    assert cuda.calls.count("cuModuleLoadDataEx") == loaded
    del held
    clhist.clear_caches()
    gc.collect()
    clhist.clear_caches()
    assert (blocks._unused, blocks._current) == ([], None)
    assert "cuMemFree_v2" in cuda.calls


@pytest.mark.parametrize(("stream", "blocks"), [(0, 1), (0x5EAD, 4)])
def test_scratch_memory_of_cupy_is_kept_for_the_stream_that_all_threads_share(stream, blocks, fake, monkeypatch):
    """Another stream may be destroyed while it works, and a new one get its address."""
    cuda, cupy = fake
    monkeypatch.setattr(cuda_fake, "STREAM", stream)
    x = cupy.asarray(BINS)
    kernel = clhist.HistogramKernel(None, "sum", arguments="const int *x", map="EMIT(x[i], 1)", dtype=np.int64)
    results = [kernel(x, num_bins=77, memory="global", copies=2) for _ in range(2)]
    cuda.calls.clear()
    results += [kernel(x, num_bins=77, memory="global", copies=2) for _ in range(4)]
    allocated = [call for call in cuda.calls if call.startswith("empty ")]
    assert len(allocated) == 4 + (blocks if blocks > 1 else 0)  # results, and scratch memory
    for result in results:
        np.testing.assert_array_equal(result.get(), np.bincount(BINS, minlength=77))
