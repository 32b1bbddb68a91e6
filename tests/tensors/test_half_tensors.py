"""Tensors of half precision: results of their dtype, added up as floats, and gradients of theirs."""

import pytest
import tensors
import torch

import clhist.torch as ct

BINS, N = 9, 5000
EPS = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
both = pytest.mark.parametrize("dtype", EPS, ids=str)


def index_of(size=N):
    torch.manual_seed(2)
    return torch.randint(-1, BINS + 1, (size,))


def assert_rounded(found, exact, factor=1):
    torch.testing.assert_close(found.double(), exact.double(), rtol=factor * EPS[found.dtype] + 1e-5, atol=1e-3)


@both
@pytest.mark.parametrize("row", [(), (3,), (8,)])
@pytest.mark.parametrize("reduce", tensors.REDUCTIONS)
def test_scatter_and_its_gradient(dtype, row, reduce):
    index, src = index_of(), torch.randn(N, *row).to(dtype)
    if reduce == "prod":
        src = (torch.randn(N, *row) * 0.01 + 1).to(dtype)
    src.requires_grad_()
    wide = src.detach().double().requires_grad_()
    found, exact = (ct.scatter(each, index, dim_size=BINS, reduce=reduce) for each in (src, wide))
    assert found.dtype == dtype
    assert_rounded(found, exact)
    weights = torch.linspace(1, 2, BINS)[(..., *[None] * len(row))]
    (found.float() * weights).sum().backward()
    (exact * weights).sum().backward()
    assert src.grad.dtype == dtype
    if reduce in ("min", "max"):  # of equal values each has its part
        assert torch.equal(src.grad != 0, wide.grad != 0)
    assert_rounded(src.grad, wide.grad, 8)


@both
@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_deterministic_sums_and_means(dtype, reduce):
    index, src = index_of(), torch.randn(N).to(dtype)
    order = torch.randperm(N)
    found = ct.scatter(src, index, dim_size=BINS, reduce=reduce, reproducible=True)
    again = ct.scatter(src[order], index[order], dim_size=BINS, reduce=reduce, reproducible=True)
    assert torch.equal(found, again)
    assert_rounded(found, ct.scatter(src.double(), index, dim_size=BINS, reduce=reduce))


@both
def test_means_of_more_values_than_the_dtype_can_count(dtype):
    size = 70_000  # more than the largest float16
    src, index = torch.full((size,), 2.0, dtype=dtype).requires_grad_(), torch.zeros(size, dtype=torch.int64)
    for reproducible in (False, True):
        found = ct.scatter(src, index, dim_size=1, reduce="mean", reproducible=reproducible)
        assert found.tolist() == [2.0]
    (gradient,) = torch.autograd.grad(found, src, torch.full((1,), 1e4, dtype=dtype))
    assert_rounded(gradient, torch.full((size,), 1e4 / size), 2)


@both
def test_segments_weights_and_compiled_calls(dtype):
    src, index = torch.randn(N).to(dtype), index_of().clamp(0, BINS - 1)
    ptr = torch.tensor([3, 10, 10, 4000])
    assert_rounded(ct.segment(src, ptr, "mean", empty=0), ct.segment(src.double(), ptr, "mean", empty=0))
    for length in (None, BINS):
        found = ct.bincount(index, src, length=length)
        assert found.dtype == dtype
        assert_rounded(found, ct.bincount(index, src.double(), length=length))
    x = torch.randn(N)
    hist, _ = ct.histogram(x, 12, range=(-3, 3), weight=src)
    assert_rounded(hist, ct.histogram(x, 12, range=(-3, 3), weight=src.double())[0])
    assert torch.equal(
        ct.histogram(src.half(), 12, range=(-3, 3))[0], ct.histogram(src.half().float(), 12, range=(-3, 3))[0]
    )
    torch.compiler.reset()
    compiled = torch.compile(lambda src: ct.scatter(src, index, dim_size=BINS), fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(src), ct.scatter(src, index, dim_size=BINS))


def test_bins_of_bfloat16_are_not_searched():
    with pytest.raises(TypeError, match=r"^input: .* got torch\.bfloat16; pass \.float\(\)"):
        ct.histogram(torch.ones(3, dtype=torch.bfloat16), 3)
