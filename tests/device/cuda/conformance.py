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
from pathlib import Path
from typing import Any

import numpy as np

import clhist

SECONDS = 120
N = 50_000_000
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
    """Return the median of whole calls, and of what the host does before it may go on, in us."""
    for _ in range(3):
        call()
    synchronize()
    whole, host = [], []
    for _ in range(runs):
        start = time.perf_counter()
        call()
        host.append(time.perf_counter() - start)
        synchronize()
        whole.append(time.perf_counter() - start)
    return f"{sorted(whole)[runs // 2] * 1e6:.0f} us (host {sorted(host)[runs // 2] * 1e6:.0f})"


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

    case("stream", stream)
    case("graph", graph)


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
    case("torch.histc", lambda: median(lambda: torch.histc(v, 100, -5, 5), sync))


PARTS = {part.__name__: part for part in (on_torch, on_cupy, on_others, times)}


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
