"""PyTorch, CuPy and JAX beside clhist, on the GPU if they have one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.peer import Peer
from benchmarks.peer_problems import COUNTS, UNIT, Arrays, Fields, side

_COUNTS = tuple(name for name in COUNTS if name != "image16")  # of torch, which has no uint16


def torch(torch: Any) -> Peer:
    """Return PyTorch's functions; indices are int64, as they want them."""
    on_gpu = torch.cuda.is_available()
    where = "cuda" if on_gpu else "cpu"

    def put(arrays: Arrays) -> tuple[Any, ...]:
        tensors = [torch.from_numpy(array).to(where) for array in arrays]
        return tuple(
            one.long() if n == 0 and len(tensors) > 1 and not one.is_floating_point() else one
            for n, one in enumerate(tensors)
        )

    def count(x: Any, bins: int) -> Any:
        return torch.bincount(x, minlength=bins)

    def weigh(x: Any, v: Any, bins: int) -> Any:
        return torch.bincount(x, v, bins)

    def add(x: Any, v: Any, bins: int) -> Any:
        return torch.zeros(bins, device=where).scatter_add_(0, x, v)

    def reduce(how: str, start: float) -> Callable[..., Any]:
        return lambda x, v, bins: torch.full((bins,), start, device=where).scatter_reduce_(
            0, x, v, how, include_self=how != "mean"
        )

    def add_rows(x: Any, v: Any, bins: int) -> Any:
        return torch.zeros((bins, v.shape[1]), device=where).index_add_(0, x, v)

    def mean_rows(x: Any, v: Any, bins: int) -> Any:
        return torch.zeros((bins, v.shape[1]), device=where).index_reduce_(0, x, v, "mean", include_self=False)

    def finish(result: Any) -> None:
        if on_gpu:
            torch.cuda.synchronize()

    ways: dict[str, Any] = dict.fromkeys(_COUNTS, count)
    ways |= {"bincount-weights": weigh, "add": add, "maximum": reduce("amax", -np.inf), "mean": reduce("mean", 0.0)}
    of_rows = {"add": add_rows, "mean": mean_rows}
    if not on_gpu:  # on GPUs it has none
        ways["histogram"] = lambda x, bins: torch.histogram(x, bins, range=UNIT).hist
    return Peer(
        f"torch ({where})", ways, put, finish, lambda result: {"": result.cpu().numpy()}, on_gpu, of_rows=of_rows
    )


def cupy(cupy: Any) -> Peer:
    """Return CuPy's functions.

    Raises
    ------
    ImportError
        If there is no GPU for it.
    """
    if not cupy.is_available():
        raise ImportError("CuPy is installed, but there is no GPU for it")

    def count(x: Any, bins: int) -> Any:
        return cupy.bincount(x, minlength=bins)

    def at(ufunc: Any, start: float) -> Callable[..., Any]:
        def call(x: Any, v: Any, bins: int) -> Any:
            out = cupy.full((bins, *v.shape[1:]), start, cupy.float32)
            ufunc.at(out, x, v)
            return out

        return call

    def fetch(result: Any) -> Fields:
        return {"": (result[0] if isinstance(result, tuple) else result).get()}

    ways: dict[str, Any] = dict.fromkeys(COUNTS, count)
    ways |= {
        "bincount-weights": lambda x, v, bins: cupy.bincount(x, v, bins),
        "add": at(cupy.add, 0.0),
        "maximum": at(cupy.maximum, -np.inf),
        "mean": lambda x, v, bins: cupy.bincount(x, v, bins) / cupy.bincount(x, minlength=bins),
        "histogram": lambda x, bins: cupy.histogram(x, bins, UNIT),
        "histogram2d": lambda x, y, bins: cupy.histogram2d(x, y, side(bins), (UNIT, UNIT)),
    }

    def finish(result: Any) -> None:
        cupy.cuda.Device().synchronize()

    def put(arrays: Arrays) -> tuple[Any, ...]:
        return tuple(map(cupy.asarray, arrays))

    return Peer("cupy", ways, put, finish, fetch, on_device=True, of_rows={"add": ways["add"]})


def jax(jax: Any) -> Peer:
    """Return JAX's functions, compiled."""
    where = jax.default_backend()

    def compiled(function: Callable[..., Any], bins_as: str) -> Callable[..., Any]:
        made: dict[int, Any] = {}

        def call(*arrays_and_bins: Any) -> Any:
            *arrays, bins = arrays_and_bins
            if bins not in made:
                made[bins] = jax.jit(partial(function, **{bins_as: bins}))
            return made[bins](*arrays)

        return call

    def segments(function: Callable[..., Any]) -> Callable[..., Any]:
        return compiled(lambda x, v, num_segments: function(v, x, num_segments), "num_segments")

    count = compiled(jax.numpy.bincount, "length")
    ways: dict[str, Any] = dict.fromkeys(COUNTS, count)
    ways |= {"add": segments(jax.ops.segment_sum), "maximum": segments(jax.ops.segment_max)}
    ways["histogram"] = compiled(lambda x, bins: jax.numpy.histogram(x, bins, UNIT)[0], "bins")
    return Peer(
        f"jax ({where})",
        ways,
        lambda arrays: tuple(map(jax.numpy.asarray, arrays)),
        jax.block_until_ready,
        lambda result: {"": np.asarray(result)},
        where == "gpu",
        of_rows={"add": ways["add"]},
    )
