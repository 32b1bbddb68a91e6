"""Gradients of `clhist.torch`, its operators under `torch.compile`, and what is deterministic."""

import pytest
import tensors
import torch
from torch.autograd.functional import jacobian as jacobian_of

import clhist.torch as ct

CASES = {case[0]: case for case in tensors.differentiable("cpu")}
CALLS = list(tensors.operator_calls("cpu"))


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_right(name):
    tensors.check_gradients(CASES[name])


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", CASES)
def test_calls_are_compiled_as_one_graph(name, backend):
    tensors.check_compiled(CASES[name], backend)


@pytest.mark.parametrize("case", range(len(CALLS)), ids=[f"{name}-{k}" for k, (name, _) in enumerate(CALLS)])
def test_operators_are_as_registered(case):
    tensors.check_operator(*CALLS[case])


def test_one_program_of_torch_compile_takes_any_number_of_values_and_bins():
    compiled = torch.compile(ct.scatter, fullgraph=True, backend="aot_eager", dynamic=True)
    torch.compiler.reset()
    for size, bins in ((10, 3), (50, 4), (99, 20)):
        src, index = torch.rand(size), torch.arange(size) % bins
        torch.testing.assert_close(compiled(src, index, 0, bins), torch.zeros(bins).index_add_(0, index, src))


def test_sums_are_deterministic_where_torch_is_set_so():
    tensors.check_deterministic("cpu")


def test_products_of_floats_are_refused_where_torch_is_set_so():
    src, index = torch.rand(5), torch.zeros(5, dtype=torch.int64)
    torch.use_deterministic_algorithms(True)
    try:
        with pytest.raises(RuntimeError, match=r"^reduce: products of floats have no deterministic"):
            ct.scatter(src, index, dim_size=1, reduce="prod")
        assert ct.scatter(src.int(), index, dim_size=1, reduce="prod") == 0
        asked = ct.scatter(src, index, dim_size=1, reduce="prod", reproducible=False)
        torch.use_deterministic_algorithms(True, warn_only=True)
        with pytest.warns(UserWarning, match="products of floats"):
            assert ct.scatter(src, index, dim_size=1, reduce="prod") == asked
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("reduce", ["min", "max"])
@pytest.mark.parametrize("row", [(), (2,)])
def test_values_that_are_equal_share_the_gradient_as_of_torch(reduce, row):
    src = torch.randint(3, (40, *row)).double().requires_grad_()
    index = torch.arange(40) % 6
    ct.scatter(src, index, dim_size=6, reduce=reduce).square().sum().backward()
    ours, src.grad = src.grad, None
    spread = index.reshape(-1, *[1] * len(row)).expand_as(src)
    start = torch.zeros(6, *row, dtype=torch.float64)
    name = tensors.REDUCTIONS[reduce]
    start.scatter_reduce(0, spread, src, name, include_self=False).square().sum().backward()
    torch.testing.assert_close(ours, src.grad)


def test_a_nan_that_is_the_extreme_has_the_gradient():
    src = torch.tensor([1.0, float("nan"), 2, float("nan"), 5], requires_grad=True)
    ct.scatter(src, torch.tensor([0, 0, 0, 0, 1]), dim_size=2, reduce="max").sum().backward()
    assert src.grad.tolist() == [0, 0.5, 0, 0.5, 1]


def test_a_second_gradient_of_products_with_zeros_is_refused():
    src = torch.tensor([0.0, 2, 3], requires_grad=True)
    found = ct.scatter(src, torch.zeros(3, dtype=torch.int64), dim_size=1, reduce="prod")
    (first,) = torch.autograd.grad(found.sum(), src, retain_graph=True)
    assert first.tolist() == [6, 0, 0]
    with pytest.raises(RuntimeError, match="second gradient of products"):
        torch.autograd.grad(found.sum(), src, create_graph=True)


def test_a_batch_of_values_by_one_index_is_mapped():
    index, src = torch.arange(12) % 5, torch.rand(4, 12, 3, dtype=torch.float64)
    for reduce in tensors.REDUCTIONS:
        found = torch.vmap(lambda one, reduce=reduce: ct.scatter(one, index, dim_size=5, reduce=reduce))(src)
        each = [ct.scatter(one, index, dim_size=5, reduce=reduce) for one in src]
        torch.testing.assert_close(found, torch.stack(each))
    jacobian = jacobian_of(lambda one: ct.scatter(one, index, dim_size=5, reduce="mean"), src[0, :, 0], vectorize=True)
    torch.testing.assert_close(jacobian, (index == torch.arange(5)[:, None]) / torch.bincount(index)[:, None].double())


def test_what_cannot_be_mapped_says_so():
    index = torch.zeros(2, 3, dtype=torch.int64)
    for call in (
        lambda one: ct.scatter(torch.ones(3), one, dim_size=2),
        lambda one: ct.bincount(one, length=2),
        lambda one: ct.segment(torch.ones(3), one),
        lambda one: ct.histogram(one, 2, range=(0, 1))[0],
    ):
        with pytest.raises(RuntimeError, match=r"clhist\.torch: .* is not under torch\.vmap"):
            torch.vmap(call)(index)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # PyTorch's own use, for its first derivative
def test_forward_mode_is_refused():
    index = torch.zeros(3, dtype=torch.int64)
    for call in (lambda x: ct.scatter(x, index), lambda x: ct.bincount(index, x)):
        with pytest.raises(TypeError, match="expected a tensor without a derivative in forward mode"):
            torch.func.jvp(call, (torch.ones(3),), (torch.ones(3),))
