"""`clhist.torch.counting_sort` against PyTorch's stable sort."""

import cuda_tensors
import pytest
import tensors
import torch

import clhist
import clhist.torch as ct
from clhist._core.opencl.device import planning_profile, profile_context
from clhist.selftest.inputs import as_gpu
from clhist.torch import operators

sorts = pytest.mark.parametrize(("size", "length", "dtype"), tensors.SORTS, ids=str)


@sorts
def test_counting_sort_is_a_stable_sort(size, length, dtype):
    tensors.check_counting_sort("cpu", size, length, dtype)


@sorts
def test_device_tensors_are_sorted_without_the_host(monkeypatch, size, length, dtype):
    cuda = cuda_tensors.install(monkeypatch)
    monkeypatch.setattr(operators, "_LIBRARY", cuda_tensors.libraries.library("torch"))
    with profile_context(as_gpu(planning_profile(clhist.default_queue().device))):
        tensors.check_counting_sort("cpu", size, length, dtype)
        cuda.calls.clear()
        tensors.check_counting_sort("cpu", size, length, dtype)
    assert not [call for call in cuda.calls if "Memcpy" in call or "Synchronize" in call]


def test_strides_and_compiled_calls():
    ids = torch.arange(40) % 6
    assert ct.counting_sort(ids[::2], 6).counts.tolist() == [7, 0, 7, 0, 6, 0]
    torch.compiler.reset()
    compiled = torch.compile(ct.counting_sort, fullgraph=True, backend="aot_eager", dynamic=True)
    for size, length in ((40, 6), (30, 4)):
        for result, expected in zip(compiled(ids[:size], length), ct.counting_sort(ids[:size], length), strict=True):
            assert torch.equal(result, expected)


@pytest.mark.parametrize(
    ("ids", "length", "error", "message"),
    [
        ([1], 3, TypeError, r"^ids: expected a torch\.Tensor, got list"),
        (torch.ones(3), 3, TypeError, r"^ids: .* got torch\.float32"),
        (torch.ones(3, 2, dtype=torch.int64), 3, ValueError, r"^ids: expected one dimension, got shape \(3, 2\)"),
        (torch.arange(3), 3.0, TypeError, r"^length: expected an int, got 3\.0"),
        (torch.arange(3), -1, ValueError, r"^length: expected at least 0, got -1"),
        (torch.arange(3), 2**31, ValueError, r"^length: expected at most 2147483647, got 2147483648"),
    ],
)
def test_bad_input_is_named(ids, length, error, message):
    with pytest.raises(error, match=message):
        ct.counting_sort(ids, length)


def test_batches_are_refused():
    with pytest.raises(RuntimeError, match=r"a counting sort is not under torch\.vmap"):
        torch.vmap(lambda ids: ct.counting_sort(ids, 2))(torch.zeros(2, 3, dtype=torch.int64))
