"""Arrays of CUDA on a machine that has it: results, streams, graphs and times, by PyTorch, CuPy, JAX and Numba.

    python tests/device/cuda/conformance.py [PART ...]

Each part is a process with a limit of its own. The exit status is 1 if something was wrong.
"""

from __future__ import annotations

import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

import clhist

SECONDS = 120
N = 50_000_000
ROW = 20
TESTS = Path(__file__).resolve().parents[2]
wrong: list[str] = []


def case(label: str, call: Callable[[], Any]) -> None:
    """Print what comes of one case, whatever it is."""
    start = time.perf_counter()
    try:
        found = call()
        print(f"{label}: {'right' if found is None else found} [{time.perf_counter() - start:.2f} s]", flush=True)
    except Exception:
        wrong.append(label)
        print(f"{label}: WRONG\n{traceback.format_exc(limit=-6)}", flush=True)


def median(call: Callable[[], Any], synchronize: Callable[[], None], runs: int = 21) -> str:
    """Return the median of whole calls, of calls in a row, and of what the host does before it may go on, in us."""
    for _ in range(3):
        call()
    synchronize()
    whole, host, row = [], [], []
    for _ in range(runs):
        start = time.perf_counter()
        for _ in range(ROW):
            call()
        synchronize()
        row.append((time.perf_counter() - start) / ROW)
        start = time.perf_counter()
        call()
        host.append(time.perf_counter() - start)
        synchronize()
        whole.append(time.perf_counter() - start)
    whole_us, row_us, host_us = (sorted(each)[runs // 2] * 1e6 for each in (whole, row, host))
    return f"{whole_us:.0f} us, in a row {row_us:.0f} (host {host_us:.0f})"


def functions(make: Callable[[np.ndarray], Any], on_host: Callable[[Any], np.ndarray], kind: type) -> None:
    """Compare all cases of the tests with what NumPy's arrays give; nothing may go through the host."""
    sys.path[:0] = [str(TESTS / "device"), str(TESTS / "support")]
    from test_cuda_functions import CASES, REGIONS, check_same
    from test_cuda_streams import STREAMS

    groups = {"": CASES, "regions: ": REGIONS, "streams: ": STREAMS}  # some have the same names
    cases = {f"{group}{name}": call for group, calls in groups.items() for name, call in calls.items()}

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            value = list(value.values())
        if isinstance(value, tuple | list):
            return [plain(each) for each in value]
        return on_host(value) if isinstance(value, kind) else value

    warnings.simplefilter("error", UserWarning)
    done = 0
    for name, call in cases.items():
        before = len(wrong)
        try:
            expected = plain(call(lambda array: array))
            for _ in range(4):
                check_same(plain(call(make)), expected)
            done += 1
        except Exception:
            wrong.append(name)
            print(f"{name}: WRONG\n{traceback.format_exc(limit=-5)}", flush=True)
        assert len(wrong) <= before + 1
    print(f"{done} of {len(cases)} functions as on NumPy's arrays", flush=True)


def on_torch() -> None:
    """Results, streams, graphs and lifetimes of PyTorch's tensors."""
    import torch

    functions(lambda array: torch.from_numpy(array).cuda(), lambda tensor: tensor.cpu().numpy(), torch.Tensor)
    bins = torch.randint(0, 30, (N,), dtype=torch.int32, device="cuda")
    expected = torch.bincount(bins)

    def stream() -> None:
        side = torch.cuda.Stream()
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            y = torch.zeros(N, dtype=torch.int32, device="cuda")
            for _ in range(20):
                y += 1
            found = clhist.reduce_by_index(30, "sum", y, 1)
            del y  # whose memory may be used again
            torch.full((N,), 7, dtype=torch.int32, device="cuda")
            side.synchronize()
        assert found[20] == N
        assert found.sum() == N

    def graph() -> None:
        out = torch.zeros(30, dtype=torch.int64, device="cuda")
        clhist.reduce_by_index(30, "sum", bins, 1, out=out)
        torch.cuda.synchronize()
        recorded = torch.cuda.CUDAGraph()
        with torch.cuda.graph(recorded):
            clhist.reduce_by_index(30, "sum", bins, 1, out=out)
            for refused in (lambda: clhist.bincount(bins), lambda: clhist.reduce_by_index(999, "min", bins, bins)):
                try:
                    refused()
                except RuntimeError as error:
                    assert "cannot be captured" in str(error)  # noqa: PT017
                else:
                    raise AssertionError("nothing was refused")
        for _ in range(2):
            out.zero_()
            recorded.replay()
            torch.cuda.synchronize()
            assert torch.equal(out, expected)

    def widths() -> None:
        """From few bins to many, of which one work-group has more local memory."""
        for bins in (77, 12_281, 20_000, 49_145, 98_290, 196_607, 393_215, 1_572_863, 3_000_000):
            x = torch.randint(0, bins, (N,), dtype=torch.int32, device="cuda")
            for each in (x, torch.full_like(x, bins // 3)):
                expected = torch.bincount(each, minlength=bins)
                for value in (1, 3):
                    found = clhist.reduce_by_index(bins, clhist.operators.add(np.int32), each, np.int32(value))
                    assert torch.equal(found.long(), (value * expected).int().long()), (bins, value)
                assert torch.equal(clhist.bincount(each, minlength=bins), expected), bins

    case("stream", stream)
    case("graph", graph)
    case("widths", widths)


def on_cupy() -> None:
    """Results, streams and graphs of CuPy's arrays."""
    import cupy

    functions(cupy.asarray, cupy.asnumpy, cupy.ndarray)
    bins = cupy.arange(N, dtype=cupy.int32) % 30

    def graph() -> None:
        side, out = cupy.cuda.Stream(non_blocking=True), cupy.zeros(30, cupy.int64)
        cupy.cuda.Device().synchronize()
        with side:
            clhist.reduce_by_index(30, "sum", bins, 1, out=out)
            side.synchronize()
            side.begin_capture()
            clhist.reduce_by_index(30, "sum", bins, 1, out=out)
            recorded = side.end_capture()
            out[...] = 0
            recorded.launch()
        side.synchronize()
        assert (out == cupy.bincount(bins)).all()

    case("graph", graph)


def on_others() -> None:
    """JAX's and Numba's arrays, which CuPy sees."""

    def jax() -> str:
        import os

        os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
        import jax.numpy as jnp

        y = jnp.arange(5000, dtype=jnp.int32) % 30
        found = clhist.bincount(y)
        assert (np.asarray(found) == np.bincount(np.asarray(y))).all()
        return f"{type(found)} on {found.devices()}"

    def numba() -> str:
        from numba import cuda

        y = cuda.to_device(np.arange(5000, dtype=np.int32) % 30)
        found = clhist.bincount(y)
        assert (found.copy_to_host() == np.bincount(y.copy_to_host())).all()
        return f"{type(found)}"

    case("Numba", numba)
    case("JAX", jax)


def times() -> None:
    """Whole calls on 50 million elements beside PyTorch's; for sums also a reproducible form."""
    import torch

    sync = torch.cuda.synchronize
    v = torch.randn(N, device="cuda")
    count = clhist.operators.count(np.int32)
    for bins in (2041, 98_290, 1_572_863):
        x = torch.randint(0, bins, (N,), dtype=torch.int32, device="cuda")
        out = torch.zeros(bins, dtype=torch.int32, device="cuda")
        bound = clhist.HistogramKernel(None, count, arguments="const int *x", map="EMIT(x[i], 1)").bind(
            x, num_bins=bins, out=out
        )
        for label, call in {
            "bincount": lambda x=x: clhist.bincount(x),
            "torch.bincount": lambda x=x: torch.bincount(x),
            "counts into out": lambda x=x, bins=bins, out=out: clhist.reduce_by_index(bins, count, x, 1, out=out),
            "counts, bound": bound,
            "sums": lambda x=x, bins=bins: clhist.reduce_by_index(bins, "sum", x, v),
            "sums, reproducible": lambda x=x, bins=bins: clhist.reduce_by_index(
                bins, "sum", x, v, reproducible=True, max_abs=10.0
            ),
            "index_add_": lambda x=x, bins=bins: torch.zeros(bins, device="cuda").index_add_(0, x, v),
        }.items():
            case(f"{bins}: {label}", lambda call=call: median(call, sync))
    case("histogram, 100 even bins", lambda: median(lambda: clhist.histogram(v, 100, (-5, 5)), sync))
    case("histogram, a range to be found", lambda: median(lambda: clhist.histogram(v, 100), sync))
    others = cycle([v, *(v[:N] * scale for scale in (0.5, 1.5, 2.5))])
    case("histogram, a new range in each call", lambda: median(lambda: clhist.histogram(next(others), 100), sync))
    case("torch.histc, a range to be found", lambda: median(lambda: torch.histc(v, 100), sync))
    case("torch.histc", lambda: median(lambda: torch.histc(v, 100, -5, 5), sync))
    x, half = torch.randint(0, 2041, (N,), dtype=torch.int32, device="cuda"), v.bfloat16()
    case("sums of bfloat16", lambda: median(lambda: clhist.reduce_by_index(2041, "sum", x, half), sync))
    torch.use_deterministic_algorithms(True)
    zeros = torch.zeros(2041, device="cuda")
    case("index_add_, deterministic", lambda: median(lambda: zeros.index_add_(0, x, v), sync, 5))
    torch.use_deterministic_algorithms(False)


def sizes() -> None:
    """Calls whose numbers of elements and bins are others each time, as those of mini-batches, beside PyTorch's."""
    import torch

    rng, sync = np.random.default_rng(0), torch.cuda.synchronize

    def batch(elements: int, bins: int) -> tuple[Any, ...]:
        n, h = (int(most * rng.uniform(0.8, 1.2)) for most in (elements, bins))
        x, v = torch.randint(0, h, (n,), device="cuda"), torch.randn(n, 64, device="cuda")
        return h, x, v, v[:, 0].contiguous()

    calls: dict[str, Callable[..., Any]] = {
        "rows of 64": lambda h, x, v, w: clhist.reduce_by_index((h, 64), "sum", x, v),
        "index_add_ of rows": lambda h, x, v, w: torch.zeros(h, 64, device="cuda").index_add_(0, x, v),
        "sums": lambda h, x, v, w: clhist.reduce_by_index(h, "sum", x, w),
        "index_add_": lambda h, x, v, w: torch.zeros(h, device="cuda").index_add_(0, x, w),
        "bincount": lambda h, x, v, w: clhist.bincount(x),
        "torch.bincount": lambda h, x, v, w: torch.bincount(x),
        "histogram, a range to be found": lambda h, x, v, w: clhist.histogram(w, 100),
        "torch.histc": lambda h, x, v, w: torch.histc(w, 100),
    }
    for elements, bins in ((50_000, 4_000), (500_000, 40_000)):
        batches = [batch(elements, bins) for _ in range(120)]
        for label, call in calls.items():

            def timed(first: int, last: int, call: Any = call, batches: Any = batches) -> float:
                sync()
                start = time.perf_counter()
                for each in batches[first:last]:
                    call(*each)
                sync()
                return (time.perf_counter() - start) / (last - first) * 1e6

            call(*batches[0])
            found = timed(1, 40), timed(40, 120), timed(40, 120)
            print(
                f"{elements} into {bins}: {label}: {found[0]:.0f}, then {found[1]:.0f}, again {found[2]:.0f} us a call"
            )
        h, x, v, _ = batches[-1]
        case(
            "rows",
            lambda h=h, x=x, v=v: check(
                clhist.reduce_by_index((h, 64), "sum", x, v), calls["index_add_ of rows"](h, x, v, None)
            ),
        )
        case("bincount", lambda x=x: check(clhist.bincount(x), torch.bincount(x)))


def check(got: Any, expected: Any) -> None:
    """Compare two tensors."""
    assert got.dtype == expected.dtype
    np.testing.assert_allclose(got.cpu().numpy(), expected.cpu().numpy(), rtol=1e-4, atol=1e-3)


PARTS = {part.__name__: part for part in (on_torch, on_cupy, on_others, times, sizes)}


def main(arguments: list[str]) -> int:
    """Run the parts that are named, or all."""
    if arguments[:1] == ["--only"]:
        PARTS[arguments[1]]()
        return int(bool(wrong))
    failed = 0
    for name in arguments or PARTS:
        print(f"==== {name}", flush=True)
        begin = time.perf_counter()
        try:
            code: Any = subprocess.run([sys.executable, __file__, "--only", name], timeout=SECONDS).returncode
        except subprocess.TimeoutExpired:
            code = "timed out"
        failed += code != 0
        print(f"==== {name}: {code}, {time.perf_counter() - begin:.1f} s", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
