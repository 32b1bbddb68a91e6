# ruff: noqa
"""What a machine with CUDA says of PTX, launches, streams and graphs; each part is a process with a limit of its own.

python tests/device/cuda/first_run.py [PART ...]
"""

from __future__ import annotations

import collections
import subprocess
import sys
import time
import traceback

import numpy as np

SECONDS = 80
N = 50_000_000


def part(function):
    PARTS[function.__name__] = function
    return function


PARTS = {}


def case(label, call, *args):
    """Print what comes of one case, whatever it is."""
    start = time.perf_counter()
    try:
        found = call(*args)
        print(f"{label}: {found} [{time.perf_counter() - start:.2f} s]", flush=True)
    except BaseException:
        print(f"{label}: FAILED\n{traceback.format_exc(limit=-6)}", flush=True)


@part
def about():
    import torch

    from clhist.cuda.driver import driver
    from clhist.opencl.cuda_queues import queue_of_cuda
    from clhist.opencl.device import devices

    print(
        "torch", torch.__version__, torch.version.cuda, "driver", driver().version, driver().count(), driver().name(0)
    )
    for name in ("cupy", "jax", "numba", "cuda.bindings", "cuda.core"):
        try:
            module = __import__(name, fromlist=["x"])
            print(name, getattr(module, "__version__", "?"))
        except Exception as error:
            print(name, type(error).__name__, error)
    print("CUDA place", driver().place(0))
    for each in devices():
        try:
            print(each.name, "OpenCL place", each.pci_bus_id_nv, each.pci_slot_id_nv)
        except Exception as error:
            print(each.name, type(error).__name__, error)
    case("queue", lambda: queue_of_cuda(0).device.name)
    x = torch.arange(10, device="cuda")
    print(driver().device_of(x.data_ptr()), torch._C._cuda_getCurrentRawStream(0), x.__cuda_array_interface__)


@part
def ptx():
    import pyopencl as cl
    import torch

    import clhist
    from clhist.cuda.driver import driver
    from clhist.cuda.ptx import for_cuda
    from clhist.opencl import program
    from clhist.selftest.suite import checks

    torch.zeros(1, device="cuda")
    built, own = [], program._build

    def noted(context, source, options):
        found = own(context, source, options)
        built.append((found, source))
        return found

    program._build = noted
    queue, start = clhist.default_queue(), time.perf_counter()
    for each in checks(queue, quick=True):
        if time.perf_counter() - start > 40:
            break
        try:
            for call in (each.run,) if hasattr(each, "run") else (each,):
                call()
        except Exception as error:
            print("check", each.row, type(error).__name__, str(error)[:200])
    for bins in (3000, 49145, 98290, 393215, 786431, 1572863):
        try:
            x = np.random.default_rng(1).integers(0, bins, N, dtype=np.int32)
            clhist.bincount(x, minlength=bins)
        except Exception as error:
            print("count", bins, type(error).__name__, str(error)[:200])
    print(len(built), "programs", round(time.perf_counter() - start, 1), "s", flush=True)
    directives, reasons, times, moved = collections.Counter(), collections.Counter(), [], collections.Counter()
    import re

    for n, (found, source) in enumerate(built):
        text = found.get_info(cl.program_info.BINARIES)[0]
        plain = text.rstrip(b"\0").decode(errors="replace")
        directives.update(set(re.findall(r"^[ \t]*(\.\w+)", plain, re.M)))
        try:
            changed = for_cuda(text)
            moved.update(size > 0 for size in changed.dynamic.values())
            begin = time.perf_counter()
            with driver().on(0):
                module = driver().load(changed.text)
                for name, dynamic in changed.dynamic.items():
                    driver().function(module, name, dynamic)
            times.append(time.perf_counter() - begin)
        except Exception as error:
            reasons[f"{type(error).__name__}: {str(error)[:300]}"] += 1
            if reasons.total() <= 2:
                print("\n".join(plain.splitlines()[:40] + ["..."] + plain.splitlines()[-30:]))
        if time.perf_counter() - start > 70:
            print("stopped at", n)
            break
    print("directives", dict(directives))
    print("refused", dict(reasons))
    print(
        "dynamic", dict(moved), "loaded", len(times), "median ms", np.median(times) * 1e3 if times else None, flush=True
    )


def whole(call, synchronize, runs=15):
    """Return the median of whole calls, us, and of the host alone."""
    call()
    synchronize()
    found, host = [], []
    for _ in range(runs):
        start = time.perf_counter()
        call()
        host.append(time.perf_counter() - start)
        synchronize()
        found.append(time.perf_counter() - start)
    return f"{sorted(found)[runs // 2] * 1e6:.0f} us (host {sorted(host)[runs // 2] * 1e6:.0f})"


@part
def on_torch():
    import torch

    import clhist

    sync = torch.cuda.synchronize
    for bins in (77, 2041, 98290, 1_572_863):
        x = torch.randint(0, bins, (N,), dtype=torch.int32, device="cuda")
        v = torch.randn(N, device="cuda")

        def count(x=x, bins=bins):
            found = clhist.bincount(x, minlength=bins)
            assert isinstance(found, torch.Tensor) and found.is_cuda and found.dtype == torch.int64
            assert torch.equal(found, torch.bincount(x, minlength=bins))
            return (
                "right",
                whole(lambda: clhist.bincount(x, minlength=bins), sync),
                "torch",
                whole(lambda: torch.bincount(x, minlength=bins), sync),
            )

        def counts(x=x, bins=bins):
            out = torch.zeros(bins, dtype=torch.int32, device="cuda")
            call = lambda: clhist.reduce_by_index(bins, clhist.operators.count(np.int32), x, 1, out=out)
            assert call() is out
            assert torch.equal(out.long(), torch.bincount(x, minlength=bins))
            return "right", whole(call, sync)

        def sums(x=x, v=v, bins=bins):
            call = lambda: clhist.reduce_by_index(bins, "sum", x, v)
            found = call()
            want = torch.zeros(bins, dtype=torch.float64, device="cuda").index_add_(0, x, v.double())
            assert torch.allclose(found.double(), want, rtol=1e-3, atol=1e-1), (found.double() - want).abs().max()
            peer = lambda: torch.zeros(bins, device="cuda").index_add_(0, x, v)
            return "right", whole(call, sync), "torch", whole(peer, sync)

        def same(x=x, v=v, bins=bins):
            call = lambda: clhist.reduce_by_index(bins, "sum", x, v, reproducible=True, max_abs=10.0)
            one, other = call(), call()
            assert torch.equal(one, other)
            return "equal", whole(call, sync)

        case(f"bincount {bins}", count)
        case(f"counts into out {bins}", counts)
        case(f"sums {bins}", sums)
        case(f"reproducible sums {bins}", same)
    x = torch.randint(0, 2041, (N,), dtype=torch.int32, device="cuda")
    kernel = clhist.HistogramKernel(
        None, clhist.operators.count(np.int32), arguments="const int *x", map="EMIT(x[i], 1)"
    )
    out = torch.zeros(2041, dtype=torch.int32, device="cuda")
    case("kernel", lambda: whole(lambda: kernel(x, num_bins=2041), sync))
    bound = kernel.bind(x, num_bins=2041, out=out)
    case("bound", lambda: whole(bound, sync))

    def stream():
        side = torch.cuda.Stream()
        y = torch.zeros(N, dtype=torch.int32, device="cuda")
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            for _ in range(20):
                y += 1
            found = clhist.reduce_by_index(30, "sum", y, 1)
            del y
            z = torch.full((N,), 7, dtype=torch.int32, device="cuda")
            side.synchronize()
        assert found[20] == N and found.sum() == N, found
        return "right", z[0].item()

    def graph():
        kept = torch.zeros(2041, dtype=torch.int32, device="cuda")
        call = lambda: clhist.reduce_by_index(2041, clhist.operators.count(np.int32), x, 1, out=kept)
        call()
        torch.cuda.synchronize()
        recorded = torch.cuda.CUDAGraph()
        with torch.cuda.graph(recorded):
            call()
            bound()
        kept.zero_()
        out.zero_()
        recorded.replay()
        torch.cuda.synchronize()
        want = torch.bincount(x, minlength=2041)
        assert torch.equal(kept.long(), want) and torch.equal(out.long(), want)
        return "right", whole(recorded.replay, sync)

    def refused():
        recorded = torch.cuda.CUDAGraph()
        said = []
        with torch.cuda.graph(recorded):
            for call in (lambda: clhist.bincount(x), lambda: clhist.reduce_by_index(1999, "max", x, x)):
                try:
                    call()
                except Exception as error:
                    said.append(f"{type(error).__name__}: {error}")
            y = x + 1
        recorded.replay()
        torch.cuda.synchronize()
        return said, y[0].item()

    def even():
        v = torch.randn(N, device="cuda")
        found, edges = clhist.histogram(v, 100, (-5, 5))
        want = np.histogram(v.cpu().numpy(), 100, (-5, 5))[0]
        assert (found.cpu().numpy() == want).all()
        clhist.histogram(v, 100, (-5, 5))
        own = whole(lambda: clhist.histogram(v, 100, (-5, 5)), sync)
        edges = np.sort(np.random.default_rng(1).normal(size=1000)).astype(np.float32)
        uneven = whole(lambda: clhist.histogram(v, edges), sync)
        return "right", own, "torch.histc", whole(lambda: torch.histc(v, 100, -5, 5), sync), "1000 edges", uneven

    def statistics():
        from clhist import stats

        v, y = torch.randn(N, device="cuda"), torch.randn(N, device="cuda")
        return whole(lambda: stats.binned_statistic(v, y, "mean", 100, (-5, 5)), sync)

    case("histogram", even)
    case("binned_statistic", statistics)
    case("digitize", lambda: clhist.digitize(torch.randn(1000, device="cuda"), np.arange(-3, 3.0)).dtype)

    def profile():
        import cProfile
        import io
        import pstats

        small = torch.zeros(2041, dtype=torch.int32, device="cuda")
        call = lambda: clhist.reduce_by_index(2041, clhist.operators.count(np.int32), x[:1000], 1, out=small)
        call(), call()
        torch.cuda.synchronize()
        seen = cProfile.Profile()
        seen.enable()
        for _ in range(1000):
            call()
        seen.disable()
        text = io.StringIO()
        pstats.Stats(seen, stream=text).sort_stats("tottime").print_stats(25)
        return text.getvalue()

    case("stream", stream)
    case("graph", graph)
    case("profile", profile)
    case("refused in a capture", refused)
    case(
        "argmax",
        lambda: {
            k: (v.dtype, v[:3].tolist())
            for k, v in clhist.reduce_by_index(30, "argmax", x % 30, torch.randn(N, device="cuda")).items()
        },
    )
    case("gradient", lambda: clhist.bincount(x, torch.ones(N, device="cuda", requires_grad=True)))
    case("bfloat16", lambda: clhist.reduce_by_index(30, "sum", x, torch.ones(N, device="cuda", dtype=torch.bfloat16)))
    case("gaps", lambda: clhist.bincount(x[::2]))
    case("offset", lambda: torch.equal(clhist.bincount(x[3:]), torch.bincount(x[3:])))
    case("empty", lambda: clhist.bincount(x[:0], minlength=4))
    case("negative", lambda: clhist.bincount(x - 1))
    case("memory", lambda: clhist.reduce_by_index(60_000_000_000, "sum", x, 1))
    case("after", lambda: clhist.bincount(x).sum().item() == N)


@part
def on_cupy():
    import cupy

    import clhist

    sync = cupy.cuda.Device().synchronize
    rng = cupy.random.default_rng(1)
    for bins in (2041, 393215):
        x = rng.integers(0, bins, N, dtype=cupy.int32)
        v = rng.standard_normal(N, dtype=cupy.float32)

        def count(x=x, bins=bins):
            found = clhist.bincount(x, minlength=bins)
            assert isinstance(found, cupy.ndarray)
            assert (found == cupy.bincount(x, minlength=bins)).all()
            return (
                "right",
                whole(lambda: clhist.bincount(x, minlength=bins), sync),
                "CuPy",
                whole(lambda: cupy.bincount(x, minlength=bins), sync),
            )

        def sums(x=x, v=v, bins=bins):
            found = clhist.reduce_by_index(bins, "sum", x, v)
            assert cupy.allclose(found, cupy.bincount(x, v, minlength=bins), rtol=1e-3, atol=1e-1)
            return "right", whole(lambda: clhist.reduce_by_index(bins, "sum", x, v), sync)

        case(f"bincount {bins}", count)
        case(f"sums {bins}", sums)

    def stream():
        side = cupy.cuda.Stream(non_blocking=True)
        with side:
            y = cupy.zeros(N, cupy.int32)
            for _ in range(20):
                y += 1
            found = clhist.reduce_by_index(30, "sum", y, 1)
        side.synchronize()
        return "right", bool(found[20] == N)

    def graph():
        side, out = cupy.cuda.Stream(non_blocking=True), cupy.zeros(30, cupy.int32)
        y = cupy.arange(N, dtype=cupy.int32) % 30
        sync()
        call = lambda: clhist.reduce_by_index(30, clhist.operators.count(np.int32), y, 1, out=out)
        with side:
            call()
            side.synchronize()
            side.begin_capture()
            call()
            recorded = side.end_capture()
            out[...] = 0
            recorded.launch()
        side.synchronize()
        return "right", bool((out == cupy.bincount(y)).all())

    case("stream", stream)
    case("graph", graph)
    x = rng.integers(0, 30, 1000, dtype=cupy.int32)
    case(
        "argmax",
        lambda: {
            k: (v.dtype, v[:3].get())
            for k, v in clhist.reduce_by_index(30, "argmax", x, rng.standard_normal(1000)).items()
        },
    )

    class Other:
        __cuda_array_interface__ = x.__cuda_array_interface__

    case("another library", lambda: type(clhist.bincount(Other())))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--only"]:
        PARTS[sys.argv[2]]()
    else:
        for name in sys.argv[1:] or PARTS:
            print(f"==== {name}", flush=True)
            begin = time.perf_counter()
            try:
                code = subprocess.run([sys.executable, __file__, "--only", name], timeout=SECONDS).returncode
            except subprocess.TimeoutExpired:
                code = "timed out"
            print(f"==== {name}: {code}, {time.perf_counter() - begin:.1f} s", flush=True)
