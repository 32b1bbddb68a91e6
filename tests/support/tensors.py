"""Checks of `clhist.torch` on the tensors of a device: of the CPU by tests, of CUDA by a script.

The script is tests/device/cuda/tensors_on_cuda.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import torch
from torch.library import opcheck

import clhist.torch as ct

REDUCTIONS = {"sum": "sum", "mean": "mean", "min": "amin", "max": "amax", "prod": "prod"}  # as torch calls them
BINS = 7
SORTS = [
    (0, 3, torch.int64),
    (5, 0, torch.int8),
    (1, 1, torch.int16),
    (1000, 7, torch.uint8),
    (200, 256, torch.int8),  # a length that the dtype does not hold
    (30_000, 256, torch.int64),
    (100_000, 300, torch.int32),
    (100_000, 70_000, torch.int64),
]  # ids, length, dtype
Case = tuple[str, Callable[[torch.Tensor], torch.Tensor], torch.Tensor]


def index_on(device: str) -> torch.Tensor:
    """Return indices of 12 values: bins with several, with one and with none, and some outside."""
    return torch.tensor([0, 2, 2, -1, 5, 0, 3, 9, 2, 6, 1, 6], device=device)


def values_on(device: str, *shape: int) -> torch.Tensor:
    """Return distinct numbers of float64, none of them zero."""
    torch.manual_seed(1)
    return torch.randn(*shape, dtype=torch.float64).to(device)


def differentiable(device: str) -> Iterator[Case]:
    """Yield names of functions that have a gradient, the functions, and where it is taken."""
    index = index_on(device)
    ptr = torch.tensor([1, 1, 4, 9, 11], device=device)
    for reduce, row in itertools.product(REDUCTIONS, ((), (3,))):

        def scattered(src: torch.Tensor, reduce: str = reduce) -> torch.Tensor:
            return ct.scatter(src, index, dim_size=BINS, reduce=reduce, empty=0)

        def segments(src: torch.Tensor, reduce: str = reduce) -> torch.Tensor:
            return ct.segment(src, ptr, reduce, empty=0)

        yield f"scatter {reduce} {row}", scattered, values_on(device, 12, *row)
        yield f"segment {reduce} {row}", segments, values_on(device, 12, *row)
    yield "scatter dim 1", lambda src: ct.scatter(src, index, 1, BINS), values_on(device, 2, 12)
    for row in ((), (3,)):
        at = values_on(device, 12, *row)
        yield f"softmax {row}", lambda src: ct.softmax(src, index, None, BINS), at
        yield f"logsumexp {row}", lambda src: ct.logsumexp(src, index, None, BINS, empty=1), at
        yield f"std {row}", lambda src: ct.std(src, index, None, BINS), at
        in_order = index.sort().values
        yield f"sorted {row}", lambda src, by=in_order: ct.scatter(src, by, 0, BINS, "mean", sorted=True), at
        yield (
            f"several {row}",
            lambda src: torch.cat(ct.scatter(src, index, 0, BINS, ["sum", "mean", "max", "std", "var"])),
            at,
        )
    col = torch.tensor([0, 3, 1, 2, 4, 4, 5, 0, -1, 2, 2, 3], device=device)  # some outside
    for row in ((), (3,), (2, 9)):
        x, weight = values_on(device, 5, *row), values_on(device, 12)
        yield f"messages {row}", lambda x: ct.gather_scatter(x, col, index, None, BINS), x
        yield f"weighted messages {row}", lambda x, w=weight: ct.gather_scatter(x, col, index, w, BINS), x
        yield f"weights of messages {row}", lambda w, x=x: ct.gather_scatter(x, col, index, w, BINS), weight
    yield "sum and mean", lambda src: torch.cat(ct.segment(src, ptr, ("sum", "mean"))), values_on(device, 12)
    yield "var of segments", lambda src: ct.var(src, ptr=ptr, dim=1, correction=0), values_on(device, 2, 12)
    yield "softmax of segments", lambda src: ct.softmax(src, ptr=ptr, dim=1), values_on(device, 2, 12)
    yield "logsumexp of segments", lambda src: ct.logsumexp(src, ptr=ptr, dim=1), values_on(device, 2, 12)
    with_zeros = values_on(device, 12)
    with_zeros[[1, 4, 9, 11]] = 0  # one of three in its bin, alone, and two of two
    yield "products with zeros", lambda src: ct.scatter(src, index, dim_size=BINS, reduce="prod"), with_zeros
    yield "weights, a length", lambda weights: ct.bincount(index, weights, length=BINS), values_on(device, 12)
    yield "weights", lambda weights: ct.bincount(index.abs(), weights, 12), values_on(device, 12)
    x = torch.tensor([-1.0, 0, 0.1, 0.5, 0.5, 0.7, 1, 2, float("nan"), 0.3, 0.9, 0.25], device=device)
    edges = torch.tensor([0, 0.25, 0.5, 1], device=device)
    yield "even bins", lambda weight: ct.histogram(x, 4, range=(0, 1), weight=weight)[0], values_on(device, 12)
    yield "bins by edges", lambda weight: ct.histogram(x, edges, weight=weight)[0], values_on(device, 12)
    points, ends = torch.stack([x, x.flip(0)], 1), [0.0, 1.0, 0.0, 0.9]
    yield ("points", lambda weight: ct.histogramdd(points, [3, 2], range=ends, weight=weight)[0], values_on(device, 12))


def check_gradients(case: Case) -> None:
    """Compare gradients, and those of gradients, with differences."""
    _, function, at = case
    at = at.clone().requires_grad_()
    assert torch.autograd.gradcheck(function, at)
    if not (at == 0).any():
        assert torch.autograd.gradgradcheck(function, at)


def check_compiled(case: Case, backend: str) -> None:
    """Compare what `torch.compile` makes of a function, and its gradient, with the function itself."""
    name, function, at = case
    results = []
    torch.compiler.reset()
    dynamic = torch._dynamo.config.patch(capture_dynamic_output_shape_ops=name == "weights")
    with dynamic:
        for each in (function, torch.compile(function, fullgraph=True, backend=backend)):
            given = at.clone().requires_grad_()
            found = each(given)
            (found * torch.arange(1, found.numel() + 1, device=found.device).reshape(found.shape)).sum().backward()
            results += [found.detach(), given.grad]
    torch.testing.assert_close(results[2:], results[:2])


def operator_calls(device: str) -> Iterator[tuple[str, tuple]]:
    """Yield calls of the operators: of some each kind, with a gradient where there is one."""
    index, weights = index_on(device), values_on(device, 12).requires_grad_()
    everywhere = torch.arange(12, device=device) % 5  # a mean of nothing is NaN, which opcheck does not compare
    rows = values_on(device, 12, 2).requires_grad_()
    for reduce, given in itertools.product(REDUCTIONS, (weights, rows)):
        yield "scatter", (given, everywhere, 5, reduce, False)
    yield "scatter", (weights, index, 7, "sum", True)
    yield "count", (index, 7)
    yield "bincount", (index.abs(), None, 3, False)
    yield "bincount", (index.abs(), weights, 3, False)
    in_order = index.sort().values
    for given in (weights, rows):
        yield "scatter", (given, in_order, 7, "max", False, 0.0, True)
        yield "softmax", (given, in_order, 7, False, True)
    yield "segment_index", (torch.tensor([0, 0, 3, 12], device=device), 12)
    yield "counting_sort", (index, 7)
    yield "gather_scatter", (rows, everywhere, index, weights, 7, False)
    yield "gather_scatter", (rows, everywhere, index, None, 7, True)
    yield "row_dots", (rows, rows.detach() + 1, everywhere, index)
    for src in (weights, rows):
        yield "softmax", (src, index, 7, False)
        yield "softmax_gradient", (src, src.detach() + 1, index, 7, False)
        yield "log_sums", (src, everywhere, 5, False)
        yield "moments", (src, everywhere, 5, 1, False)
    means = values_on(device, 5, 2)
    yield "spread", (rows, means, everywhere, 1, True, 0.0)
    numbers = torch.full((5,), 3, device=device)
    yield "spread_gradient", (rows.detach(), means, means**2, everywhere, means + 1, numbers, 1, True)
    yield "moments_gradient", (rows.detach(), means, everywhere, means + 1, means + 2)
    x = values_on(device, 12)
    edges = torch.tensor([-1.0, 0, 2], dtype=torch.float64, device=device)
    yield "histogramdd", ([x], [4], [-1.0, 1.0], [], None, False)
    yield "histogramdd", ([x, x.flip(0)], [], [], [edges, edges], weights, False)


def check_counting_sort(device: str, size: int, length: int, dtype: torch.dtype) -> None:
    """Compare counts, offsets and the permutation with those of a stable sort of PyTorch; some ids are outside."""
    torch.manual_seed(size + length)
    least = 0 if dtype is torch.uint8 else -2
    ids = torch.randint(least, min(length + 3, torch.iinfo(dtype).max), (size,)).to(dtype)
    sort = ct.counting_sort(ids.to(device), length)
    keys = ids.long()
    keys[(keys < 0) | (keys >= length)] = length
    counts = torch.bincount(keys, minlength=length + 1)[:length]
    assert all(tensor.dtype is torch.int64 and tensor.device.type == device for tensor in sort)
    assert torch.equal(sort.counts.cpu(), counts)
    assert torch.equal(sort.offsets.cpu(), torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)]))
    assert torch.equal(sort.permutation.cpu(), torch.sort(keys, stable=True).indices)


def check_operator(name: str, arguments: tuple) -> None:
    """Let PyTorch compare an operator with what is registered of it."""
    opcheck(getattr(torch.ops.clhist, name).default, arguments)


def check_deterministic(device: str) -> None:
    """Compare sums and means of floats in two orders, bit by bit, where PyTorch is set to what is deterministic."""
    torch.manual_seed(2)
    size, bins = 100_000, 11
    src = (torch.randn(size) * torch.logspace(-8, 8, size)).to(device)
    index, order = torch.randint(bins, (size,)).to(device), torch.randperm(size).to(device)
    x = torch.rand(size).to(device)
    calls = {
        "sum": lambda *a: ct.scatter(*a[:2], dim_size=bins),
        "mean": lambda *a: ct.scatter(*a[:2], dim_size=bins, reduce="mean"),
        "weights": lambda *a: ct.bincount(a[1], a[0], length=bins),
        "histogram": lambda *a: ct.histogram(a[2], 5, range=(0, 1), weight=a[0])[0],
    }
    torch.use_deterministic_algorithms(True)
    try:
        for name, call in calls.items():
            assert torch.equal(call(src, index, x), call(src[order], index[order], x[order])), name
        exact = ct.scatter(src.double(), index, dim_size=bins).float()
        assert torch.equal(exact, calls["sum"](src, index))
    finally:
        torch.use_deterministic_algorithms(False)
