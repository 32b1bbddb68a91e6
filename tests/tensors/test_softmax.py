"""`clhist.torch.softmax` and `logsumexp` against PyTorch's of each group."""

import math

import cuda_tensors
import pytest
import torch

import clhist
import clhist.torch as ct
from clhist._core.opencl.device import planning_profile, profile_context
from clhist.selftest.inputs import as_gpu
from clhist.torch import operators

GROUPS, INFINITY, NAN = 9, math.inf, math.nan
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}
dtypes = pytest.mark.parametrize("dtype", TOLERANCE, ids=str)


def drawn(dtype, row, size):
    torch.manual_seed(size)
    index = torch.randint(-1, GROUPS + 1, (size,))
    index[index == 4] = 3
    return (3 * torch.randn(size, *row)).to(dtype), index


def softmax_of_groups(src, index):
    result = torch.zeros_like(src)
    for group in range(GROUPS):
        result[index == group] = src[index == group].softmax(0)
    return result


def assert_near(result, expected):
    tolerance = TOLERANCE[result.dtype]
    torch.testing.assert_close(result.double(), expected.double(), rtol=tolerance, atol=tolerance, equal_nan=True)


@dtypes
@pytest.mark.parametrize(("row", "size"), [((), 40), ((8,), 500), ((3,), 40_000), ((), 100_000), ((2, 2), 40)])
def test_groups_are_those_of_torch(dtype, row, size):
    src, index = drawn(dtype, row, size)
    src.requires_grad_()
    wide = src.detach().double().requires_grad_()
    result, expected = ct.softmax(src, index.int(), None, GROUPS), softmax_of_groups(wide, index)
    assert (result.dtype, result.shape) == (dtype, src.shape)
    assert_near(result, expected)
    weights = torch.linspace(1, 2, size)[(..., *[None] * len(row))]
    (result.float() * weights).sum().backward()
    (expected * weights).sum().backward()
    assert src.grad.dtype == dtype
    assert_near(src.grad, wide.grad)
    sums, identity = (ct.logsumexp(src, index, None, GROUPS, empty=empty) for empty in (0, None))
    assert sums.dtype == dtype
    for group in range(GROUPS):
        values = wide[index == group]
        assert_near(identity[group], values.logsumexp(0))
        assert_near(sums[group], values.logsumexp(0) if len(values) else torch.zeros(row))


@pytest.mark.parametrize("reproducible", [False, True])
@pytest.mark.parametrize("row", [(), (4,)])
def test_device_tensors(monkeypatch, row, reproducible):
    src, index = drawn(torch.float32, row, 5000)
    expected = softmax_of_groups(src.double(), index)
    cuda_tensors.install(monkeypatch)
    monkeypatch.setattr(operators, "_LIBRARY", cuda_tensors.libraries.library("torch"))
    with profile_context(as_gpu(planning_profile(clhist.default_queue().device))):
        src.requires_grad_()
        result = ct.softmax(src, index, None, GROUPS, reproducible=reproducible)
        assert_near(result, expected)
        (result * src.detach()).sum().backward()
        sums = ct.logsumexp(src, index, None, GROUPS, reproducible=reproducible)
    assert_near(sums[3], src[index == 3].logsumexp(0))
    products = expected * src.detach()
    sums = torch.zeros(GROUPS + 1, *row, dtype=torch.float64).index_add_(0, index.clamp(0, GROUPS), products)
    sums[0] = products[index == 0].sum(0)
    of_groups = torch.where(((index >= 0) & (index < GROUPS))[(..., *[None] * len(row))], sums[index], 0)
    assert_near(src.grad, products - expected * of_groups)


def test_segments_and_dimensions_are_those_of_an_index():
    src, ptr = torch.randn(2, 30, 3), torch.tensor([2, 2, 11, 30])
    index = torch.tensor([-1] * 2 + [1] * 9 + [2] * 19)
    expected = ct.softmax(src, index, None, 3, 1)
    torch.testing.assert_close(ct.softmax(src, ptr=ptr, dim=1), expected)
    torch.testing.assert_close(ct.softmax(src, index, ptr, dim=-2), expected)
    torch.testing.assert_close(ct.softmax(src.transpose(0, 1), index, None, 3), expected.transpose(0, 1))
    torch.testing.assert_close(expected[:, 2:11], src[:, 2:11].softmax(1))
    assert not expected[:, :2].any()
    sums = ct.logsumexp(src, ptr=ptr, dim=1)
    assert sums.shape == (2, 3, 3)
    torch.testing.assert_close(sums, ct.logsumexp(src, index, dim=1, dim_size=3))
    assert ct.softmax(src, index, dim=1).shape == src.shape


@pytest.mark.parametrize("offset", [0.0, 1e4, -1e4])
def test_an_offset_of_all_values_changes_nothing_and_overflows_nothing(offset):
    src, index = torch.randn(500) + offset, torch.zeros(500, dtype=torch.int64)
    torch.testing.assert_close(ct.softmax(src, index), src.softmax(0), rtol=1e-5, atol=0)
    torch.testing.assert_close(ct.logsumexp(src, index)[0], src.logsumexp(0))


def test_infinities_and_nan_are_those_of_torch():
    groups = [[1, -INFINITY, 2], [-INFINITY] * 2, [INFINITY, 1], [NAN, 1], [-INFINITY], [5.0]]
    src = torch.tensor([value for group in groups for value in group])
    index = torch.tensor([n for n, group in enumerate(groups) for _ in group])
    expected = torch.cat([torch.tensor(group).softmax(0) for group in groups])
    torch.testing.assert_close(ct.softmax(src, index), expected, equal_nan=True)
    sums = torch.stack([torch.tensor(group).logsumexp(0) for group in groups])
    torch.testing.assert_close(ct.logsumexp(src, index), sums, equal_nan=True)


def test_nothing_to_normalise():
    none = torch.zeros(0, dtype=torch.int64)
    assert ct.softmax(torch.ones(0, 3), none).shape == (0, 3)
    assert ct.softmax(torch.ones(2), torch.zeros(2, dtype=torch.int64), None, 0).tolist() == [0, 0]
    assert ct.logsumexp(torch.ones(0), none, None, 2).tolist() == [0, 0]
    assert ct.logsumexp(torch.ones(0), none, None, 2, empty=None).tolist() == [-INFINITY] * 2
    assert ct.logsumexp(torch.ones(0), none).shape == (0,)


def test_sums_are_reproducible_in_any_order():
    src, index = drawn(torch.float32, (), 100_000)
    order = torch.randperm(len(src))
    result = ct.softmax(src, index, None, GROUPS, reproducible=True)
    assert torch.equal(result[order], ct.softmax(src[order], index[order], None, GROUPS, reproducible=True))
    gradients = []
    for at in (torch.arange(len(src)), order):
        values = src[at].requires_grad_()
        (ct.softmax(values, index[at], None, GROUPS, reproducible=True) * src[at]).sum().backward()
        gradients.append(values.grad)
    assert torch.equal(gradients[0][order], gradients[1])


def test_batches_are_mapped_and_shapes_are_dynamic():
    index, src = torch.arange(12) % 5, torch.rand(4, 12, 3)
    for call in (ct.softmax, ct.logsumexp):
        mapped = torch.vmap(lambda rows, call=call: call(rows, index, None, 5))(src)
        torch.testing.assert_close(mapped, torch.stack([call(rows, index, None, 5) for rows in src]))
        with pytest.raises(RuntimeError, match="a batch of indices"):
            torch.vmap(lambda index, call=call: call(src[0], index, None, 5))(torch.stack([index, index]))
        torch.compiler.reset()
        compiled = torch.compile(call, fullgraph=True, backend="aot_eager", dynamic=True)
        for size, groups in ((10, 5), (12, 7)):
            rows, of_rows = src[0, :size], index[:size]
            torch.testing.assert_close(compiled(rows, of_rows, None, groups), call(rows, of_rows, None, groups))


X, INDEX = torch.ones(3), torch.tensor([0, 1, 0])


@pytest.mark.parametrize("call", [ct.softmax, ct.logsumexp])
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([1.0], INDEX), TypeError, r"^src: expected a torch\.Tensor, got list"),
        ((X.int(), INDEX), TypeError, r"^src: .* got torch\.int32"),
        ((X,), ValueError, r"^index: expected the group of each value, or ptr, got neither"),
        ((X, X), TypeError, r"^index: .* got torch\.float32"),
        ((X, INDEX[:2]), ValueError, r"^index: expected shape \(3,\) as of src along dim, got \(2,\)"),
        ((X, INDEX, None, -1), ValueError, r"^dim_size: expected at least 0"),
        ((X, INDEX, None, None, 1), ValueError, r"^dim: expected a dimension of src"),
        ((X, INDEX - 5), ValueError, r"^index: expected an index of 0 or more"),
        ((X, None, INDEX[:0]), ValueError, r"^ptr: expected at least one offset"),
        ((X, None, torch.tensor([0, 3]), 2), ValueError, r"^dim_size: expected 1 as of ptr, got 2"),
    ],
)
def test_bad_input_is_named(call, arguments, error, message):
    with pytest.raises(error, match=message):
        call(*arguments)
    with pytest.raises(TypeError, match=r"^reproducible: expected a bool or None"):
        call(X, INDEX, reproducible=1)
    with pytest.raises(TypeError, match=r"^empty: expected a number"):
        ct.logsumexp(X, INDEX, empty="0")
