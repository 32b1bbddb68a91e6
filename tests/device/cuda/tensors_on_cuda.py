"""`clhist.torch` on tensors of CUDA: ``python tests/device/cuda/tensors_on_cuda.py`` from a clone.

It needs PyTorch alone. Each check is one of tests/tensors, on the first GPU. Prints what fails, and
ends with 1 if something does.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2] / "support"), str(Path(__file__).parents[3])]

import tensors  # noqa: E402
import torch  # noqa: E402

import clhist.torch as ct  # noqa: E402


def check_graphs() -> None:
    """Capture sums and counts of a fixed number of bins, and replay them on other values."""
    src, index = torch.rand(100_000, device="cuda"), torch.randint(50, (100_000,), device="cuda")

    ptr = torch.tensor([0, 10, 10, 70_000], device="cuda")
    in_order = torch.arange(100_000, device="cuda") // 40_000

    def compute() -> tuple[torch.Tensor, ...]:
        sums, counts = ct.scatter(src, index, dim_size=50), ct.bincount(index, length=50)
        in_bins = ct.scatter(src, in_order, dim_size=3, reduce="mean", sorted=True)
        return sums, counts, ct.segment(src, ptr), ct.softmax(src, index, None, 50), in_bins

    for _ in range(2):
        compute()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        sums, counts, segments, shares, means = compute()
    src.copy_(torch.rand_like(src))
    index.copy_(torch.randint_like(index, 50))
    graph.replay()
    torch.testing.assert_close(sums, torch.zeros_like(sums).index_add_(0, index, src), rtol=1e-4, atol=1e-3)
    assert torch.equal(counts, torch.bincount(index, minlength=50))
    ends = torch.stack([src[:10].sum(), src[:0].sum(), src[10:70_000].sum()])
    torch.testing.assert_close(means, torch.stack([part.mean() for part in src.split(40_000)]))
    torch.testing.assert_close(segments, ends, rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(shares[index == 7], src[index == 7].softmax(0))


def check_sort_graph() -> None:
    """Capture a counting sort, and replay it on other ids."""
    ids = torch.randint(256, (131_072,), device="cuda")
    for _ in range(2):
        ct.counting_sort(ids, 256)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        counts, _, permutation = ct.counting_sort(ids, 256)
    ids.copy_(torch.randint_like(ids, 256))
    graph.replay()
    assert torch.equal(counts, torch.bincount(ids, minlength=256))
    assert torch.equal(permutation, torch.sort(ids, stable=True).indices)


def checks() -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield the names of all checks, and what runs them."""
    for case in tensors.differentiable("cuda"):
        yield f"gradient of {case[0]}", partial(tensors.check_gradients, case)
        for backend in ("aot_eager", "inductor"):
            yield f"{backend}, {case[0]}", partial(tensors.check_compiled, case, backend)
    for name, arguments in tensors.operator_calls("cuda"):
        yield f"operator {name}", partial(tensors.check_operator, name, arguments)
    yield "deterministic", partial(tensors.check_deterministic, "cuda")
    yield "graphs", check_graphs
    for size, length, dtype in tensors.SORTS:
        yield f"sort {size} {length}", partial(tensors.check_counting_sort, "cuda", size, length, dtype)
    yield "graph of a sort", check_sort_graph


def main() -> int:
    """Run all checks."""
    failed = total = 0
    for name, check in checks():
        total += 1
        try:
            check()
        except Exception:
            failed += 1
            print(f"FAILED {name}\n{traceback.format_exc(limit=-3)}")
    print(f"{total - failed} of {total} checks passed on {torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
