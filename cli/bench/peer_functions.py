"""What else computes such histograms: each peer that is installed, on arrays that live where it wants them."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

Prepare = Callable[[str, np.ndarray, np.ndarray, int], Callable[[], Any]]
OPERATIONS = ("count", "add", "maximum", "count8")


@dataclass(frozen=True)
class Peer:
    """One way to compute a histogram.

    Attributes
    ----------
    name : str
        What to call it.
    operations : tuple of str
        Of `OPERATIONS`: counts of int32 bins, float32 sums and maxima of weights, counts of uint8.
    prepare : callable
        ``prepare(operation, bins, weights, num_bins)`` puts the arrays where they are wanted and returns the call to
        time. A bin without weights has a maximum of -inf.
    finish : callable
        Gets what the last call returned and waits until everything is complete.
    fetch : callable
        Makes a NumPy array of what a call returned.
    on_gpu : bool
        Whether its arrays live on a GPU.
    """

    name: str
    operations: tuple[str, ...]
    prepare: Prepare
    finish: Callable[[Any], Any] = lambda result: None
    fetch: Callable[[Any], np.ndarray] = np.asarray
    on_gpu: bool = False


def peers() -> list[Peer]:
    """Return the peers that can be imported; NumPy always can."""
    found = [
        Peer("numpy.bincount", ("count", "add", "count8"), _numpy_bincount),
        Peer("numpy.ufunc.at", ("add", "maximum"), _numpy_at),
    ]
    # Or JAX takes three quarters of the GPU's memory when it is first used.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    makers = {"numba": _numba, "boost_histogram": _boost, "torch": _torch, "cupy": _cupy, "jax": _jax}
    for module, make in makers.items():
        try:
            found.append(make(importlib.import_module(module)))
        except ImportError:
            continue
    return found


def _numpy_bincount(operation: str, bins: np.ndarray, weights: np.ndarray, num_bins: int) -> Callable[[], Any]:
    return partial(np.bincount, bins, weights if operation == "add" else None, num_bins)


def _numpy_at(operation: str, bins: np.ndarray, weights: np.ndarray, num_bins: int) -> Callable[[], Any]:
    ufunc, neutral = (np.add, 0) if operation == "add" else (np.maximum, -np.inf)

    def call() -> np.ndarray:
        out = np.full(num_bins, neutral, np.float32)
        ufunc.at(out, bins, weights)
        return out

    return call


def _numba(numba: Any) -> Peer:
    """A loop of one copy for each thread, as one would write it by hand."""
    threads = numba.get_num_threads()

    @numba.njit(parallel=True)
    def count(bins, num_bins):
        copies = np.zeros((threads, num_bins), np.int32)
        for t in numba.prange(threads):
            for i in range(bins.size * t // threads, bins.size * (t + 1) // threads):
                copies[t, bins[i]] += 1
        return copies.sum(axis=0)

    @numba.njit(parallel=True)
    def add(bins, weights, num_bins):
        copies = np.zeros((threads, num_bins), np.float32)
        for t in numba.prange(threads):
            for i in range(bins.size * t // threads, bins.size * (t + 1) // threads):
                copies[t, bins[i]] += weights[i]
        return copies.sum(axis=0)

    @numba.njit(parallel=True)
    def maximum(bins, weights, num_bins):
        copies = np.full((threads, num_bins), -np.inf, np.float32)
        for t in numba.prange(threads):
            for i in range(bins.size * t // threads, bins.size * (t + 1) // threads):
                copies[t, bins[i]] = max(copies[t, bins[i]], weights[i])
        out = copies[0]
        for t in range(1, threads):
            out = np.maximum(out, copies[t])
        return out

    def prepare(operation: str, bins: np.ndarray, weights: np.ndarray, num_bins: int) -> Callable[[], Any]:
        if operation in ("count", "count8"):
            return partial(count, bins, num_bins)
        return partial(add if operation == "add" else maximum, bins, weights, num_bins)

    return Peer(f"numba, {threads} threads", OPERATIONS, prepare)


def _boost(boost_histogram: Any) -> Peer:
    threads = os.cpu_count() or 1

    def prepare(operation: str, bins: np.ndarray, weights: np.ndarray, num_bins: int) -> Callable[[], Any]:
        axis = boost_histogram.axis.Integer(0, num_bins, underflow=False, overflow=False)
        storage = boost_histogram.storage.Double() if operation == "add" else boost_histogram.storage.Int64()
        given = {"weight": weights} if operation == "add" else {}
        return lambda: boost_histogram.Histogram(axis, storage=storage).fill(bins, threads=threads, **given).view()

    return Peer(f"boost-histogram, {threads} threads", ("count", "add", "count8"), prepare)


def _torch(torch: Any) -> Peer:
    on_gpu = torch.cuda.is_available()
    where = "cuda" if on_gpu else "cpu"

    def prepare(operation: str, bins: np.ndarray, weights: np.ndarray, num_bins: int) -> Callable[[], Any]:
        index = torch.from_numpy(bins).to(where)
        if operation in ("count", "count8"):
            return partial(torch.bincount, index, minlength=num_bins)
        wide, value = index.long(), torch.from_numpy(weights).to(where)
        if operation == "add":
            return lambda: torch.zeros(num_bins, device=where).scatter_add_(0, wide, value)
        return lambda: torch.full((num_bins,), -np.inf, device=where).scatter_reduce_(0, wide, value, "amax")

    def finish(result: Any) -> None:
        if on_gpu:
            torch.cuda.synchronize()

    return Peer(f"torch ({where})", OPERATIONS, prepare, finish, lambda result: result.cpu().numpy(), on_gpu)


def _cupy(cupy: Any) -> Peer:
    if not cupy.is_available():
        raise ImportError("CuPy is installed, but there is no GPU for it")

    def prepare(operation: str, bins: np.ndarray, weights: np.ndarray, num_bins: int) -> Callable[[], Any]:
        index = cupy.asarray(bins)
        if operation in ("count", "count8"):
            return partial(cupy.bincount, index, minlength=num_bins)
        value = cupy.asarray(weights)
        ufunc, neutral = (cupy.add, 0) if operation == "add" else (cupy.maximum, -np.inf)

        def call() -> Any:
            out = cupy.full(num_bins, neutral, cupy.float32)
            ufunc.at(out, index, value)
            return out

        return call

    def finish(result: Any) -> None:
        cupy.cuda.Device().synchronize()

    return Peer("cupy", OPERATIONS, prepare, finish, lambda result: result.get(), on_gpu=True)


def _jax(jax: Any) -> Peer:
    where = jax.default_backend()
    segments = {"add": jax.ops.segment_sum, "maximum": jax.ops.segment_max}

    def prepare(operation: str, bins: np.ndarray, weights: np.ndarray, num_bins: int) -> Callable[[], Any]:
        index = jax.numpy.asarray(bins)
        if operation in ("count", "count8"):
            return partial(jax.jit(partial(jax.numpy.bincount, length=num_bins)), index)
        reduce = jax.jit(partial(segments[operation], num_segments=num_bins))
        return partial(reduce, jax.numpy.asarray(weights), index)

    return Peer(f"jax ({where})", OPERATIONS, prepare, jax.block_until_ready, on_gpu=where == "gpu")
