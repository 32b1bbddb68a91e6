"""Tensors of CUDA, for which those of the CPU stand here: results, gradients, launches, and repeated calls."""

import gc
import importlib
import weakref
from itertools import pairwise

import cuda_fake
import cuda_tensors
import numpy as np
import pytest
import tensors
import torch

import clhist
import clhist.torch as ct
from clhist._core.cuda.driver import CudaMemoryError
from clhist._core.opencl.device import planning_profile, profile_context
from clhist._core.runtime.signature import call_templates
from clhist.selftest.inputs import as_gpu
from clhist.torch import operators, repeats

BINS, N = 40, 5000
SIZE = {"sum": torch.sum, "mean": torch.mean, "prod": torch.prod, "min": torch.amin, "max": torch.amax}


@pytest.fixture
def cuda(monkeypatch):
    """The fake driver, for tensors of the CPU, with the plans of a GPU."""
    found = cuda_tensors.install(monkeypatch)
    monkeypatch.setattr(operators, "_LIBRARY", cuda_tensors.libraries.library("torch"))
    with profile_context(as_gpu(planning_profile(clhist.default_queue().device))):
        yield found


def drawn(dtype=torch.float32, row=(8,), bins=BINS, size=N):
    """Return values with ties, and indices: some outside, bins without a value, and one with a third of all."""
    torch.manual_seed(1)
    index = torch.randint(-1, bins - 2, (size,))
    index[: size // 3] = 1
    return torch.randint(-4, 5, (size, *row)).to(dtype), index


def reference(src, index, bins, reduce, empty):
    """Return what PyTorch makes of the values of each bin, in float64."""
    of_none = (
        {"sum": 0.0, "mean": np.nan, "prod": 1.0, "min": np.inf, "max": -np.inf}[reduce] if empty is None else empty
    )
    found = torch.full((bins, *src.shape[1:]), of_none, dtype=torch.float64)
    for k in range(bins):
        if (index == k).any():
            found[k] = SIZE[reduce](src[index == k].double(), 0)
    return found


def names(cuda):
    found = [launch.name.removeprefix("clhist_") for launch in cuda.launched]
    cuda.launched.clear()
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize(("reduce", "empty"), [("mean", 0), ("mean", None), ("max", 0), ("min", 2.5), ("sum", -1)])
def test_rows_are_finished_with_their_number(cuda, dtype, reduce, empty):
    src, index = drawn(dtype)
    for _ in range(4):
        found = ct.scatter(src, index, 0, BINS, reduce, empty=empty)
        assert names(cuda) == ["rows_few", "rows_gather", "rows_join"]
        expected = reference(src, index, BINS, reduce, empty)
        torch.testing.assert_close(found.double(), expected, rtol=1e-3, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("reproducible", [False, True])
def test_results_with_a_number_in_empty_bins_where_rows_are_not_gathered(cuda, reproducible):
    for row in ((), (3,)):
        src, index = drawn(row=row, bins=7, size=300)
        for reduce in ("mean", "max"):
            found = ct.scatter(src, index, 0, 7, reduce, reproducible=reproducible)
            torch.testing.assert_close(found.double(), reference(src, index, 7, reduce, 0), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16], ids=str)
@pytest.mark.parametrize("row", [(8,), ()])
@pytest.mark.parametrize("reduce", ["sum", "mean", "min", "max"])
def test_gradients_of_rows(cuda, reduce, row, dtype):
    src, index = drawn(dtype, row)
    src.requires_grad_()
    weights = torch.linspace(1, 2, BINS).to(dtype)[(..., *[None] * len(row))]
    for _ in range(3):
        src.grad = None
        (ct.scatter(src, index, 0, BINS, reduce) * weights).sum().backward()
        launched = names(cuda)
    is_extreme = reduce in ("min", "max")
    assert launched[-1] == {"sum": "row_gather", "mean": "row_mean_gradient"}.get(reduce, "row_extreme_share")
    expected = torch.zeros(N, *row, dtype=torch.float64)
    for k in range(BINS):
        inside = index == k
        values = src.detach()[inside].double()
        if len(values):
            share = torch.ones_like(values)
            if is_extreme:
                share = (values == SIZE[reduce](values, 0)).double()
            if reduce != "sum":
                share = share / share.sum(0)
            expected[inside] = share * weights[k].double()
    torch.testing.assert_close(src.grad.double(), expected, rtol=2e-3 if dtype is torch.float16 else 1e-6, atol=1e-6)


def test_nan_that_is_an_extreme_has_the_gradient(cuda):
    src = torch.tensor([[1.0, 1], [torch.nan, 2], [2, 2], [torch.nan, 0]], requires_grad=True)
    ct.scatter(src, torch.zeros(4, dtype=torch.int64), 0, 1, "max").sum().backward()
    assert src.grad.tolist() == [[0, 0], [0.5, 0.5], [0, 0.5], [0.5, 0]]


@pytest.mark.parametrize("name", ["scatter max (3,)", "scatter mean ()", "scatter dim 1", "weights, a length"])
def test_first_and_second_gradients(cuda, name):
    tensors.check_gradients({case[0]: case for case in tensors.differentiable("cpu")}[name])


def test_repeated_calls_of_groups_and_edges_compute_again(cuda, monkeypatch):
    src, index = drawn()
    col = torch.randint(BINS, (N,))
    calls = {
        "softmax": lambda x: ct.softmax(x, index, None, BINS),
        "logsumexp": lambda x: ct.logsumexp(x, index, None, BINS),
        "several": lambda x: torch.cat(ct.scatter(x, index, 0, BINS, ["std", "mean", "sum", "max"])),
        "edges": lambda x: ct.gather_scatter(x[:BINS], col, index, x[:, 0].contiguous(), BINS),
        "sort": lambda x: ct.counting_sort(x[:, 0].to(torch.int64).clamp(0), 5).permutation,
        "segments": lambda x: ct.segment(x, col[:9].sort().values, "max"),
    }
    for name, call in calls.items():
        for step in range(6):
            x = src + step * torch.randint(3, src.shape)
            results = []
            for is_new in (False, True):
                if is_new and step > 3:
                    call_templates.clear()
                at = x.clone().requires_grad_(name != "sort")
                result = call(at)
                results.append(result.detach().clone())
                if name != "sort":
                    (result * torch.arange(result.shape[0])[:, None]).sum().backward()
                    results.append(at.grad)
            half = len(results) // 2
            torch.testing.assert_close(results[:half], results[half:], rtol=1e-3, atol=1e-2, msg=f"{name} {step}")


@pytest.mark.parametrize("ptr", [[0, 3, 3, 8, 12], [2, 2, 7], [12], [0, 100]])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8], ids=str)
def test_offsets_stay_on_the_device(cuda, monkeypatch, ptr, dtype):
    src, offsets = torch.rand(12, 3), torch.tensor(ptr).to(dtype)
    monkeypatch.setattr(torch.Tensor, "cpu", None)
    found = ct.segment(src, offsets, "max")
    for k, (begin, end) in enumerate(pairwise(ptr)):
        assert torch.equal(found[k], src[begin:end].amax(0) if begin < end else torch.zeros(3))
    assert found.shape == (len(ptr) - 1, 3)


def test_offsets_that_decrease_write_nothing_else(cuda):
    src = torch.ones(12)
    for ptr in ([5, 1, 3], [-4, 2, 20], [12, 0]):
        found = ct.segment(src, torch.tensor(ptr))
        assert found.shape == (len(ptr) - 1,)
        assert 0 <= found.sum() <= 12


def test_repeated_calls_only_launch(cuda, monkeypatch):
    src, index = drawn()
    scalars = src[:, 0].contiguous()
    calls = {
        "rows": lambda: ct.scatter(src, index, 0, BINS),
        "scalars": lambda: ct.scatter(scalars, index, dim_size=BINS),
        "means": lambda: ct.scatter(src, index, 0, BINS, "mean"),
        "counts": lambda: ct.bincount(index, length=BINS),
        "weights": lambda: ct.bincount(index, scalars, length=BINS),
    }
    first = {name: [call() for _ in range(4)][-1].clone() for name, call in calls.items()}
    checked = []
    for name in ("check_values", "check_integers", "check_weights"):
        monkeypatch.setattr(ct.functions, name, lambda *_: checked.append(1))
    for name, call in calls.items():
        cuda.calls.clear()
        torch.testing.assert_close(call(), first[name], rtol=1e-5, atol=1e-4)
        assert set(cuda.calls) == {"cuCtxGetCurrent", "cuLaunchKernel"}, name
    assert not checked
    src += 1
    torch.testing.assert_close(calls["rows"]().double(), reference(src, index, BINS, "sum", 0), rtol=1e-5, atol=1e-3)


def test_a_count_that_reads_its_number_of_bins_is_repeated(cuda, monkeypatch):
    monkeypatch.setattr(importlib.import_module("clhist._core.runtime.counting"), "device_kind", lambda device: "gpu")
    index = torch.arange(N) % 7
    for _ in range(6):
        ct.bincount(index, minlength=5)
    checked = []
    monkeypatch.setattr(ct.functions, "check_integers", lambda *_: checked.append(1))
    assert torch.equal(ct.bincount(index, minlength=5), torch.bincount(index, minlength=5))
    assert not checked
    for changed in (index % 3, index + 2, index * 40):  # fewer bins than the least number, a few more, and far more
        assert torch.equal(ct.bincount(changed, minlength=5), torch.bincount(changed, minlength=5))
    with pytest.raises(ValueError, match="negative"):
        ct.bincount(index - 1, minlength=5)


@pytest.mark.parametrize("reduce", ["sum", "mean", "max"])
def test_repeated_calls_with_a_gradient_only_launch(cuda, monkeypatch, reduce):
    src, index = drawn()
    src.requires_grad_()

    def step(src, index, factor=1.0):
        result = ct.scatter(src, index, 0, BINS, reduce)
        return result, *torch.autograd.grad((result * factor).sum(), src, retain_graph=True)

    first = [step(src, index) for _ in range(6)][-1]
    checked = []
    for name in ("check_values", "check_integers"):
        monkeypatch.setattr(ct.functions, name, lambda *_: checked.append(1))
    cuda.calls.clear()
    for got, expected in zip(step(src, index), first, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-4)
    assert set(cuda.calls) == {"cuCtxGetCurrent", "cuLaunchKernel"}
    assert not checked
    # Other values, with the gradient of a layer before; the same without one; a leaf that is a parameter.
    scale = torch.tensor(2.0, requires_grad=True)
    result = ct.scatter(src * scale, index, 0, BINS, reduce)
    torch.testing.assert_close(result, first[0] * 2, rtol=1e-5, atol=1e-3)
    (by_scale,) = torch.autograd.grad(result.sum(), scale)
    torch.testing.assert_close(by_scale, first[0].sum(), rtol=1e-4, atol=1e-2)
    with torch.no_grad():
        assert not ct.scatter(src, index, 0, BINS, reduce).requires_grad
    assert not ct.scatter(src.detach(), index, 0, BINS, reduce).requires_grad
    parameter = torch.nn.Parameter(src.detach().clone())
    for _ in range(3):
        torch.testing.assert_close(step(parameter, index, 3.0)[1], first[1] * 3)


def test_a_second_gradient_of_a_repeated_call(cuda):
    src, index = drawn(torch.float64, row=(2,), size=200)
    src.requires_grad_()
    for _ in range(6):
        result = ct.scatter(src, index, 0, BINS, "mean")
        (first,) = torch.autograd.grad((result**2).sum(), src, create_graph=True)
        (second,) = torch.autograd.grad((first**2).sum(), src)
    rows = torch.nn.functional.one_hot(index.clamp(min=0), BINS).double() * (index >= 0)[:, None]
    means = (rows / rows.sum(0).clamp(min=1)).T
    expected = 8 * means.T @ means @ means.T @ (means @ src)
    torch.testing.assert_close(second, expected.detach())


def test_a_repeated_call_holds_none_of_its_tensors(cuda):
    src, index = drawn()
    src.requires_grad_()
    for _ in range(6):
        result = ct.scatter(src, index, 0, BINS)
        result.sum().backward()
    gone = weakref.ref(result)
    del result
    gc.collect()
    assert gone() is None


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # PyTorch's own use, for its first derivative
def test_what_differs_from_a_repeated_call_is_told_apart(cuda):
    src, index = drawn(row=())
    src, index = src.abs() + 1, index.clamp(0, 4)
    for _ in range(4):
        found = ct.scatter(src, index, 0, BINS, "max")
    assert ct.scatter(src, index, 0, BINS, "max", empty=None)[9] == -torch.inf
    assert ct.scatter(src, index, 0, BINS, "max", empty=7)[9] == 7
    with pytest.raises(TypeError, match=r"^empty: expected a number"):
        ct.scatter(src, index, 0, BINS, "max", empty=False)
    with pytest.raises(TypeError, match=r"^dim_size: expected an int"):
        ct.scatter(src, index, 0, True, "max")
    assert ct.scatter(src, index, dim_size=5, reduce="max").shape == (5,)
    assert ct.scatter(src, index).shape == (5,)
    assert ct.scatter(src[:9], index[:9] * 0, dim_size=1).shape == (1,)
    for length in (None, 6):
        assert ct.bincount(index, length=length).sum() == N
    index += 2
    assert ct.bincount(index).shape == ct.scatter(src, index).shape == (7,)
    with pytest.raises(TypeError, match="forward mode"):
        torch.func.jvp(lambda x: ct.scatter(x, index, 0, BINS, "max"), (src,), (src,))
    src.requires_grad_()
    assert ct.scatter(src, index, 0, BINS, "max").requires_grad
    with torch.no_grad():
        assert not ct.scatter(src, index, 0, BINS, "max").requires_grad
    assert found.shape == (BINS,)


def test_kept_scratch_is_of_one_stream_and_no_graph(cuda, monkeypatch):
    src, index = drawn(row=())
    for _ in range(4):
        ct.scatter(src, index, 0, BINS)
    library = operators._LIBRARY
    allocated = []
    monkeypatch.setattr(library, "new", lambda *given: allocated.append(given[0]) or type(library).new(library, *given))
    ct.scatter(src, index, 0, BINS)
    assert not allocated
    cuda.is_captured = True
    ct.scatter(src, index, 0, BINS)
    cuda.is_captured = False
    assert len(allocated) == 1
    monkeypatch.setattr(cuda_fake, "STREAM", 0xBEEF)
    for _ in range(2):
        ct.scatter(src, index, 0, BINS)
    assert len(allocated) == 2


def test_no_memory_for_a_result_is_said(cuda, monkeypatch):
    src, index = drawn(row=())
    for _ in range(4):
        ct.scatter(src, index, 0, BINS)
    error = type("OutOfMemoryError", (RuntimeError,), {})
    recorded = (entry for entry in call_templates._kept.values() if isinstance(entry, repeats._RecordedCall))
    known, *_ = recorded  # of the operator, and of the function around it

    def refuse(*_, **__):
        raise error("no memory")

    new, _ = known.last.repeat._steps
    known.last.repeat._steps[0] = new._replace(make=refuse)
    monkeypatch.setattr(operators._LIBRARY, "empty", refuse)
    with pytest.raises(CudaMemoryError, match="torch has no"):
        ct.scatter(src, index, 0, BINS)


GROUPS = 9
OFFSETS = torch.tensor([0, 0, 40, 41, 200, 290])  # rows from 290 on are in none


def by_group(function, empty, groups=GROUPS):
    """Return a function of values and an index: that of the values of each group."""

    def call(x, index):
        of_groups = (x[index == k] for k in range(groups))
        return torch.stack([function(own) if len(own) else torch.full(x.shape[1:], empty).to(x) for own in of_groups])

    return call


def softmax_of_groups(x, index):
    result = torch.zeros_like(x)
    for k in range(GROUPS):
        result = result.index_put((torch.where(index == k)[0],), x[index == k].softmax(0))
    return result


def by_offsets(function):
    """Return a function of values alone: the rows between offsets are the groups."""
    index = torch.repeat_interleave(
        torch.tensor([-1, 0, 1, 2, 3, 4, -1]), OFFSETS.diff(prepend=OFFSETS[:1], append=OFFSETS.new_tensor([300]))
    )
    return lambda x, _: function(x, index)


def sum_of_rows(x):
    return x.sum(0)


REPEATED = {
    "softmax": (lambda x, index: ct.softmax(x, index, None, GROUPS), softmax_of_groups),
    "logsumexp": (
        lambda x, index: ct.logsumexp(x, index, None, GROUPS, empty=0.5),
        by_group(lambda x: x.logsumexp(0), 0.5),
    ),
    "std": (lambda x, index: ct.std(x, index, None, GROUPS, empty=-0.0), by_group(lambda x: x.std(0), 0)),
    "var": (lambda x, index: ct.var(x, index, dim_size=GROUPS, correction=0), by_group(lambda x: x.var(0, False), 0)),
    "mean": (lambda x, index: ct.scatter(x, index, 0, GROUPS, "mean", empty=7.5), by_group(lambda x: x.mean(0), 7.5)),
    "segment": (lambda x, _: ct.segment(x, OFFSETS), by_offsets(by_group(sum_of_rows, 0, 5))),
    "segment max": (lambda x, _: ct.segment(x, OFFSETS, "max"), by_offsets(by_group(lambda x: x.amax(0), 0, 5))),
    "softmax by offsets": (lambda x, _: ct.softmax(x, ptr=OFFSETS), by_offsets(softmax_of_groups)),
    "std by offsets": (
        lambda x, _: ct.std(x, ptr=OFFSETS, correction=0),
        by_offsets(by_group(lambda x: x.std(0, False), 0, 5)),
    ),
    "edges": (
        lambda x, index: ct.gather_scatter(x, index.flip(0).clamp(min=0), index, dim_size=GROUPS),
        lambda x, index: by_group(sum_of_rows, 0)(x[index.flip(0).clamp(min=0)], index),
    ),
}


@pytest.mark.parametrize("row", [(), (2,)], ids=str)
@pytest.mark.parametrize("name", REPEATED)
def test_calls_of_several_launches_only_launch(cuda, monkeypatch, name, row):
    call, expected = REPEATED[name]
    checked, repeated = [], 0
    for number in range(9):
        if number == 6:
            for module in (ct.functions, ct.exponentials, ct.moments, ct.groups, ct.edges):
                for check in ("check_values", "check_integers", "check_tensor", "check_size"):
                    monkeypatch.setattr(module, check, lambda *_: checked.append(1), raising=False)
        torch.manual_seed(number)
        src, index = torch.randn(300, *row, dtype=torch.float64), torch.randint(-1, GROUPS - 1, (300,))
        plain = call(src, index)
        src.requires_grad_()
        cuda.calls.clear()
        checked.clear()
        result = call(src, index)
        weights = torch.rand(result.shape, dtype=torch.float64)
        (slope,) = torch.autograd.grad(result, src, weights)
        repeated += number > 5 and not checked and set(cuda.calls) <= {"cuCtxGetCurrent", "cuLaunchKernel"}
        reference = expected(src, index)
        torch.testing.assert_close(result, reference)
        torch.testing.assert_close(plain, reference.detach())
        torch.testing.assert_close(slope, *torch.autograd.grad(reference, src, weights))
    assert repeated >= 2  # a plan that other tests share may be made anew once


def test_sorts_and_histograms_only_launch(cuda, monkeypatch):
    for number in range(8):
        torch.manual_seed(number)
        x, ids = torch.randn(500), torch.randint(-1, 12, (500,))
        if number == 6:
            for module in (ct.functions, ct.sorting):
                for check in ("check_data", "check_integers", "check_weights"):
                    monkeypatch.setattr(module, check, None, raising=False)
        cuda.calls.clear()
        sort, histogram = ct.counting_sort(ids, 11), ct.histogram(x, 9, range=(-2.0, 2.0))
        density, edges = ct.histogram(x, 5, range=(-1, 2), weight=x.abs(), density=True)
        calls = set(cuda.calls)
        is_key = (ids >= 0) & (ids < 11)
        assert type(sort) is ct.CountingSort
        assert torch.equal(sort.counts, torch.bincount(ids[is_key], minlength=11))
        assert torch.equal(sort.permutation, torch.where(is_key, ids, 11).argsort(stable=True))
        counts, expected_edges = np.histogram(x.numpy(), 9, (-2, 2))
        np.testing.assert_array_equal(histogram[0], counts)
        np.testing.assert_array_equal(histogram[1], expected_edges)
        histogram[1].zero_()  # edges belong to the caller
        expected, expected_edges = np.histogram(x.numpy(), 5, (-1, 2), weights=x.abs().numpy(), density=True)
        np.testing.assert_allclose(density, expected, rtol=1e-5)
        np.testing.assert_array_equal(edges, expected_edges)
    assert calls <= {"cuCtxGetCurrent", "cuLaunchKernel"}


def test_edges_on_the_device_are_read_for_each_call(cuda):
    x, edges = torch.linspace(0, 1, 101), torch.tensor([0.0, 0.2, 0.5, 1.0])
    for number in range(8):
        edges[1] = 0.05 * number + 0.01
        counts, own = ct.histogram(x, edges)
        np.testing.assert_array_equal(counts, np.histogram(x.numpy(), edges.numpy())[0])
        np.testing.assert_array_equal(own, edges.numpy())


def test_an_index_that_is_used_twice_is_no_other_call(cuda):
    x, index, other = torch.rand(60), torch.arange(60) % 5, torch.arange(60) % 3
    for first, second in [(index, index), (index, other)] * 5:
        expected = torch.zeros(5).index_add(0, second, x[first])
        torch.testing.assert_close(ct.gather_scatter(x, first, second, dim_size=5), expected)


def test_zeros_of_both_signs_and_options_of_sequences_are_told_apart(cuda):
    x, index = torch.ones(4), torch.tensor([0, 0, 2, 2])
    for _ in range(5):
        assert torch.equal(ct.scatter(x, index, 0, 3, "max", empty=0.0).signbit(), torch.tensor([False] * 3))
        assert ct.scatter(x, index, 0, 3, "max", empty=-0.0).signbit().tolist() == [False, True, False]
        for ends in ((0.0, 2.0), (0, 2), [1.0, 2.0]):
            assert ct.histogram(x, 2, range=ends)[1].tolist() == np.linspace(*ends, 3).tolist()
