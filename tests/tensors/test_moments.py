"""`clhist.torch.var` and `std`, and several reductions in one call, against PyTorch's of each group."""

from functools import partial

import cuda_tensors
import pytest
import torch

import clhist
import clhist.torch as ct
from clhist._core.opencl.device import planning_profile, profile_context
from clhist.selftest.inputs import as_gpu
from clhist.torch import operators

GROUPS = 9
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 2e-2}
dtypes = pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
ALL = ["std", "sum", "mean", "min", "max", "var", "prod"]


def drawn(dtype, row, size):
    torch.manual_seed(size)
    index = torch.randint(-1, GROUPS + 1, (size,))
    index[index == 4] = 3
    index[torch.nonzero(index == 5)[1:]] = 6  # a group with one value
    return torch.randn(size, *row).to(dtype), index


def of_groups(src, index, function, least):
    """Return what a function of values makes of each group; 0 for groups with fewer than `least` values."""
    groups = [src[index == group] for group in range(GROUPS)]
    return torch.stack([function(values) if len(values) >= least else torch.zeros_like(src[0]) for values in groups])


def assert_near(result, expected):
    tolerance = TOLERANCE[result.dtype]
    torch.testing.assert_close(result.double(), expected.double(), rtol=tolerance, atol=tolerance, equal_nan=True)


@dtypes
@pytest.mark.parametrize(("row", "size"), [((), 60), ((8,), 500), ((3,), 40_000), ((2, 2), 60)])
@pytest.mark.parametrize("correction", [0, 1])
def test_groups_are_those_of_torch(dtype, row, size, correction):
    src, index = drawn(dtype, row, size)
    src.requires_grad_()
    wide = src.detach().double().requires_grad_()
    for call, function in ((ct.var, torch.var), (ct.std, torch.std)):
        result = call(src, index.int(), None, GROUPS, correction=correction)
        expected = of_groups(wide, index, partial(function, dim=0, correction=correction), correction + 1)
        assert (result.dtype, result.shape) == (dtype, (GROUPS, *row))
        assert_near(result, expected)
        chosen = torch.tensor([0, 1, 2, 3, 7])  # a group of one value has no slope here
        gradients = [torch.autograd.grad(r[chosen].double().sum(), s)[0] for r, s in ((result, src), (expected, wide))]
        assert_near(*gradients)


def test_an_offset_of_all_values_cancels_no_digits():
    src, index = torch.randn(50_000) + 1e4, torch.arange(50_000) % 3
    expected = torch.stack([src[index == group].double().var() for group in range(3)])
    torch.testing.assert_close(ct.var(src, index).double(), expected, rtol=1e-4, atol=0)


def test_groups_with_few_values():
    src, index = torch.tensor([3.0, 3, 7], requires_grad=True), torch.tensor([0, 0, 1])
    assert ct.std(src, index, None, 3).tolist() == [0, 0, 0]
    assert ct.std(src, index, None, 3, empty=-1).tolist() == [0, -1, -1]
    assert ct.var(src, index, None, 3, empty=None).isnan().tolist() == [False, True, True]
    assert ct.scatter(src, index, 0, 3, "std", empty=5).tolist() == [0, 0, 5]
    (gradient,) = torch.autograd.grad(ct.std(src, index, None, 3).sum(), src)
    assert gradient.tolist() == [0, 0, 0]
    assert ct.std(src[:0], index[:0], None, 2).tolist() == [0, 0]
    assert ct.std(torch.tensor([float("nan"), 1, 1, 2]), torch.tensor([0, 0, 1, 1])).isnan().tolist() == [True, False]


@pytest.mark.parametrize("row", [(), (3,)])
@pytest.mark.parametrize("names", [ALL, ("sum", "mean"), ["mean", "mean"], ["max"], ["add", "mul", "amin"]])
def test_several_reductions_are_those_of_single_calls(names, row):
    src, index = drawn(torch.float32, row, 2000)
    src = 1 + src / 100
    for empty in (0, None, 2.5):
        results = ct.scatter(src, index, 0, GROUPS, reduce=names, empty=empty)
        assert type(results) is tuple
        for name, result in zip(names, results, strict=True):
            expected = ct.scatter(src, index, 0, GROUPS, name, empty=empty)
            torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-6, equal_nan=True)
    ptr = torch.tensor([0, 5, 5, 1000])
    for name, result in zip(names, ct.segment(src, ptr, names), strict=True):
        torch.testing.assert_close(result, ct.segment(src, ptr, name), rtol=1e-5, atol=1e-6)
    for name, result in zip(names, ct.scatter(src.movedim(0, -1), index, -1, GROUPS, reduce=names), strict=True):
        torch.testing.assert_close(result.movedim(-1, 0), ct.scatter(src, index, 0, GROUPS, name), rtol=1e-5, atol=1e-6)


def test_sums_are_reproducible_in_any_order():
    src, index = drawn(torch.float32, (), 60_000)
    order = torch.randperm(len(src))
    for names in (["std"], ["mean", "sum"]):
        results = ct.scatter(src, index, 0, GROUPS, reduce=names, reproducible=True)
        again = ct.scatter(src[order], index[order], 0, GROUPS, reduce=names, reproducible=True)
        assert all(map(torch.equal, results, again))


def test_device_tensors(monkeypatch):
    src, index = drawn(torch.float32, (8,), 3000)
    expected = of_groups(src.double(), index, lambda values: values.std(0, correction=0), 1)
    cuda_tensors.install(monkeypatch)
    monkeypatch.setattr(operators, "_LIBRARY", cuda_tensors.libraries.library("torch"))
    with profile_context(as_gpu(planning_profile(clhist.default_queue().device))):
        src.requires_grad_()
        deviation, largest = ct.scatter(src, index, 0, GROUPS, ["std", "max"])
        (gradient,) = torch.autograd.grad(deviation[:3].sum(), src)
    assert_near(deviation, expected)
    assert torch.equal(largest[3], src[index == 3].max(0).values)
    wide = src.detach().double().requires_grad_()
    exact = of_groups(wide, index, lambda values: values.std(0, correction=0), 1)
    assert_near(gradient, torch.autograd.grad(exact[:3].sum(), wide)[0])


X, INDEX = torch.ones(3), torch.tensor([0, 1, 0])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ct.var(X.int(), INDEX), TypeError, r"^src: .* got torch\.int32"),
        (lambda: ct.std(X), ValueError, r"^index: expected the group of each value, or ptr"),
        (lambda: ct.std(X, INDEX, correction=-1), ValueError, r"^correction: expected an int of at least 0, got -1"),
        (lambda: ct.std(X, INDEX, correction=0.5), ValueError, r"^correction: expected an int of at least 0"),
        (lambda: ct.std(X, INDEX, empty="0"), TypeError, r"^empty: expected a number"),
        (lambda: ct.scatter(X.int(), INDEX, reduce="std"), TypeError, r"^src: .* got torch\.int32"),
        (lambda: ct.scatter(X.int(), INDEX, reduce=["sum", "mean"]), TypeError, r"^src: .* got torch\.int32"),
        (lambda: ct.scatter(X, INDEX, reduce=[]), ValueError, r"^reduce: expected one reduction or more"),
        (lambda: ct.scatter(X, INDEX, reduce=["sum", "median"]), ValueError, r"^reduce: expected one of .* 'median'"),
        (lambda: ct.scatter(X, INDEX[:2], reduce=["sum"]), ValueError, r"^index: expected shape \(3,\)"),
        (lambda: ct.segment(X, INDEX[:0], ["sum"]), ValueError, r"^ptr: expected at least one offset"),
        (
            lambda: ct.scatter(X, INDEX, reduce=["prod"], reproducible=True),
            TypeError,
            r"^reproducible: expected none of prod",
        ),
    ],
)
def test_bad_input_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call()
    with pytest.raises(RuntimeError, match=r"a variance is not under torch\.vmap"):
        torch.vmap(lambda src: ct.var(src, INDEX, None, 2))(torch.ones(2, 3))
