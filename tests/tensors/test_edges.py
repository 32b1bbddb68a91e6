"""`clhist.torch.gather_scatter` against PyTorch's indexing and `index_add`."""

import cuda_tensors
import pytest
import torch

import clhist
import clhist.torch as ct
from clhist._core.opencl.device import planning_profile, profile_context
from clhist.selftest.inputs import as_gpu
from clhist.torch import operators

NODES, TARGETS = 50, 40
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}


def graph(dtype, row, edges):
    torch.manual_seed(edges)
    col, target = torch.randint(-1, NODES + 1, (edges,)), torch.randint(-1, TARGETS + 1, (edges,))
    x, weight = torch.randn(NODES, *row), torch.randn(edges)
    if not dtype.is_floating_point:
        x, weight = 9 * x, 9 * weight
    return x.to(dtype), col, target, weight.to(dtype)


def messages_of(x, col, row, weight):
    """Return the sums in the dtype of `x`, which has a gradient."""
    is_edge = (col >= 0) & (col < NODES) & (row >= 0) & (row < TARGETS)
    messages = x[col[is_edge]] * weight[is_edge][(..., *[None] * (x.dim() - 1))]
    return torch.zeros(TARGETS, *x.shape[1:], dtype=x.dtype).index_add(0, row[is_edge], messages)


def assert_near(result, expected):
    tolerance = TOLERANCE[result.dtype]
    torch.testing.assert_close(result.double(), expected.double(), rtol=tolerance, atol=tolerance * 10)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize(("row", "edges"), [((), 300), ((8,), 300), ((3,), 70_000), ((2, 5), 300)])
def test_messages_and_their_gradients(dtype, row, edges):
    x, col, target, weight = (t.requires_grad_() if t.is_floating_point() else t for t in graph(dtype, row, edges))
    wide = x.detach().double().requires_grad_(), col, target, weight.detach().double().requires_grad_()
    result, expected = ct.gather_scatter(x, col.int(), target, weight, TARGETS), messages_of(*wide)
    assert (result.dtype, result.shape) == (dtype, expected.shape)
    assert_near(result, expected)
    slope = torch.linspace(1, 2, TARGETS)[(..., *[None] * len(row))]
    (result.float() * slope).sum().backward()
    (expected * slope).sum().backward()
    assert_near(x.grad, wide[0].grad)
    assert_near(weight.grad, wide[3].grad)


def test_integers_no_weights_and_products_of_matrices():
    x, col, row, weight = graph(torch.int64, (3,), 500)
    ones = torch.ones_like(weight)
    assert torch.equal(ct.gather_scatter(x, col, row, weight, TARGETS), messages_of(x, col, row, weight))
    assert torch.equal(ct.gather_scatter(x.int(), col, row, None, TARGETS), messages_of(x, col, row, ones).int())
    col, row = col.clamp(0, NODES - 1), row.clamp(0, TARGETS - 1)
    matrix = torch.zeros(TARGETS, NODES).index_put_((row, col), weight.float(), accumulate=True)
    result = ct.gather_scatter(x.float(), col, row, weight.float())
    torch.testing.assert_close(result, (matrix @ x.float())[: int(row.max()) + 1])


def test_nothing_to_sum():
    x, none = torch.ones(2, 3), torch.zeros(0, dtype=torch.int64)
    assert ct.gather_scatter(x, none, none, None, 4).tolist() == [[0] * 3] * 4
    assert ct.gather_scatter(x, none, none).shape == (0, 3)
    assert ct.gather_scatter(x[:, :0], none, none, None, 2).shape == (2, 0)
    assert ct.gather_scatter(x[:0], torch.tensor([0]), torch.tensor([1]), torch.ones(1)).tolist() == [[0] * 3] * 2


def test_sums_are_reproducible_in_any_order():
    x, col, row, weight = graph(torch.float32, (4,), 50_000)
    order = torch.randperm(len(col))
    result = ct.gather_scatter(x, col, row, weight, TARGETS, reproducible=True)
    again = ct.gather_scatter(x, col[order], row[order], weight[order], TARGETS, reproducible=True)
    assert torch.equal(result, again)
    torch.testing.assert_close(result, messages_of(x, col, row, weight), rtol=1e-4, atol=1e-3)


def test_device_tensors(monkeypatch):
    x, col, row, weight = graph(torch.float32, (8,), 5000)
    wide = x.double().requires_grad_(), col, row, weight.double().requires_grad_()
    messages_of(*wide).square().sum().backward()
    expected = messages_of(x.double(), col, row, weight.double())
    cuda_tensors.install(monkeypatch)
    monkeypatch.setattr(operators, "_LIBRARY", cuda_tensors.libraries.library("torch"))
    with profile_context(as_gpu(planning_profile(clhist.default_queue().device))):
        x.requires_grad_()
        weight.requires_grad_()
        result = ct.gather_scatter(x, col, row, weight, TARGETS)
        result.square().sum().backward()
    assert_near(result, expected)
    torch.testing.assert_close(x.grad.double(), wide[0].grad, rtol=1e-3, atol=1e-1)
    torch.testing.assert_close(weight.grad.double(), wide[3].grad, rtol=1e-3, atol=1e-1)


X, INDEX, WEIGHT = torch.ones(3, 2), torch.tensor([0, 1]), torch.ones(2)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ct.gather_scatter([1.0], INDEX, INDEX), TypeError, r"^x: expected a torch\.Tensor, got list"),
        (lambda: ct.gather_scatter(X[0, 0], INDEX, INDEX), ValueError, r"^x: expected one dimension or more"),
        (lambda: ct.gather_scatter(X.bool(), INDEX, INDEX), TypeError, r"^x: .* got torch\.bool"),
        (lambda: ct.gather_scatter(X, WEIGHT, INDEX), TypeError, r"^col: .* got torch\.float32"),
        (lambda: ct.gather_scatter(X, INDEX, WEIGHT), TypeError, r"^row: .* got torch\.float32"),
        (
            lambda: ct.gather_scatter(X, INDEX, INDEX[:1]),
            ValueError,
            r"^row: expected shape \(2,\) as of col, got \(1,\)",
        ),
        (lambda: ct.gather_scatter(X, INDEX, INDEX - 5), ValueError, r"^row: expected an index of 0 or more"),
        (
            lambda: ct.gather_scatter(X, INDEX, INDEX, WEIGHT.double()),
            TypeError,
            r"^weight: expected one of torch\.float32",
        ),
        (
            lambda: ct.gather_scatter(X, INDEX, INDEX, WEIGHT[:1]),
            ValueError,
            r"^weight: expected shape \(2,\) as of col",
        ),
        (lambda: ct.gather_scatter(X, INDEX, INDEX, WEIGHT, -1), ValueError, r"^dim_size: expected at least 0"),
        (
            lambda: ct.gather_scatter(X, INDEX, INDEX, reproducible=1),
            TypeError,
            r"^reproducible: expected a bool or None",
        ),
        (
            lambda: torch.vmap(lambda x: ct.gather_scatter(x, INDEX, INDEX, None, 2))(X[None]),
            RuntimeError,
            r"torch\.vmap",
        ),
    ],
)
def test_bad_input_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call()
