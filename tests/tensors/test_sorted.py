"""Reductions of rows whose indices do not decrease, by the caller's word: against those without it, and NumPy."""

import itertools

import cuda_tensors
import numpy as np
import pytest
import torch

import clhist
import clhist.torch as ct
from clhist._core.opencl.device import planning_profile, profile_context
from clhist.selftest.inputs import as_gpu
from clhist.torch import operators

UFUNCS = {"sum": np.add, "min": np.minimum, "max": np.maximum, "prod": np.multiply}
SIZES = [(3000, 40, (8,)), (2000, 5000, (2,)), (5000, 7, ()), (900, 1, (33,))]


@pytest.fixture(params=["CPU", "CUDA"])
def device(request, monkeypatch):
    """Tensors of the CPU, and the same as those of CUDA with the plans of a GPU."""
    if request.param == "CPU":
        yield "cpu"
        return
    cuda_tensors.install(monkeypatch)
    monkeypatch.setattr(operators, "_LIBRARY", cuda_tensors.libraries.library("torch"))
    with profile_context(as_gpu(planning_profile(clhist.default_queue().device))):
        yield "cuda"


def drawn(size, bins, row, dtype=torch.float32):
    """Return values and sorted indices: some outside, bins without a value, and one with a third of all."""
    torch.manual_seed(size)
    index = torch.randint(-1, bins + 1, (size,))
    index[: size // 3] = bins // 2
    return torch.randint(-3, 4, (size, *row)).to(dtype), index.sort().values


def reference(src, index, bins, reduce):
    """Return what NumPy makes of the values of each bin, in float64; 0 where there are none."""
    inside = ((index >= 0) & (index < bins)).numpy()
    rows, values = index.numpy()[inside], src.double().numpy()[inside]
    counts = np.bincount(rows, minlength=bins).reshape(-1, *[1] * (src.dim() - 1))
    if reduce == "mean":
        return reference(src, index, bins, "sum") / np.maximum(counts, 1)
    ufunc = UFUNCS[reduce]
    found = np.full((bins, *src.shape[1:]), {"sum": 0, "prod": 1, "min": np.inf, "max": -np.inf}[reduce], float)
    ufunc.at(found, rows, values)
    return np.where(counts > 0, found, 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.uint8], ids=str)
def test_results_are_those_of_numpy(device, dtype):
    for size, bins, row in SIZES:
        src, index = drawn(size, bins, row, dtype)
        src = src.abs() if dtype is torch.uint8 else src
        for reduce in ("sum", "min", "max", *(["mean"] if dtype.is_floating_point else [])):
            found = ct.scatter(src, index.int(), dim_size=bins, reduce=reduce, sorted=True)
            expected = torch.from_numpy(reference(src, index, bins, reduce))
            if dtype is torch.uint8:
                expected = expected % 256
            tolerance = 2e-3 if dtype is torch.float16 else 1e-6
            torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("empty", [None, 2])
def test_empty_bins_and_booleans(device, empty):
    src, index = drawn(500, 900, (3,))
    for reduce in ("sum", "mean", "min", "max", "prod"):
        options = {"dim_size": 900, "reduce": reduce, "empty": empty}
        found, expected = ct.scatter(src, index, sorted=True, **options), ct.scatter(src, index, **options)
        torch.testing.assert_close(found, expected, equal_nan=True)
    found = ct.scatter(src > 0, index, dim_size=900, reduce="max", sorted=True)
    assert torch.equal(found, ct.scatter(src > 0, index, dim_size=900, reduce="max"))


def test_exact_sums_have_the_same_bits(device):
    for (size, bins, row), scale in itertools.product(SIZES, (1, 30)):
        src, index = drawn(size, bins, row)
        src = torch.randn(src.shape) * torch.exp2(torch.randint(-scale, scale, src.shape))
        for reduce in ("sum", "mean", "max"):
            options = {"dim_size": bins, "reduce": reduce, "reproducible": True}
            assert torch.equal(ct.scatter(src, index, sorted=True, **options), ct.scatter(src, index, **options))


@pytest.mark.parametrize("function", [ct.softmax, ct.logsumexp, ct.std, ct.var], ids=lambda each: each.__name__)
def test_functions_of_groups(device, function):
    src, index = drawn(3000, 40, (8,))
    results = []
    for is_sorted in (False, True):
        at = src.clone().requires_grad_()
        found = function(at, index, None, 40, sorted=is_sorted)
        (found * torch.linspace(1, 2, found.numel()).reshape(found.shape)).sum().backward()
        results += [found.detach(), at.grad]
    torch.testing.assert_close(results[2:], results[:2], rtol=1e-4, atol=1e-5)


def test_several_and_messages(device):
    src, index = drawn(3000, 40, (8,))
    names = ["sum", "mean", "max", "std", "var"]
    found, expected = (ct.scatter(src, index, 0, 40, names, sorted=is_sorted) for is_sorted in (True, False))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    col, weight = torch.randint(-1, 60, (3000,)), torch.rand(3000)
    x = src[:50]
    found, expected = (ct.gather_scatter(x, col, index, weight, 40, sorted=is_sorted) for is_sorted in (True, False))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_a_wrong_word_only_makes_results_wrong(device):
    for size, bins, row in SIZES:
        src, index = drawn(size, bins, row)
        for wrong in (index[torch.randperm(size)], index.flip(0), torch.full_like(index, 2**62), index - 2**62):
            for reduce, is_same in itertools.product(("sum", "mean", "max"), (False, True)):
                found = ct.scatter(src, wrong, dim_size=bins, reduce=reduce, reproducible=is_same, sorted=True)
                assert found.shape == (bins, *row)


def test_the_word_is_a_bool():
    src, index = drawn(10, 3, ())
    calls = [
        lambda: ct.scatter(src, index, dim_size=3, sorted="yes"),
        lambda: ct.scatter(src, index, 0, 3, ["sum", "max"], sorted=1),
        lambda: ct.softmax(src, index, None, 3, sorted=None),
        lambda: ct.logsumexp(src, index, None, 3, sorted=0),
        lambda: ct.std(src, index, None, 3, sorted="no"),
        lambda: ct.gather_scatter(src, index, index, None, 3, sorted=1),
    ]
    for call in calls:
        with pytest.raises(TypeError, match="sorted: expected a bool"):
            call()
