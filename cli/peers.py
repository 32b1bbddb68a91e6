"""What else computes such histograms: each peer that is installed, on arrays that live where it wants them."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Prepare = Callable[[str, np.ndarray, np.ndarray, int], Callable[[], Any]]


@dataclass(frozen=True)
class Peer:
    """One way to compute a histogram.

    Attributes
    ----------
    name : str
        What to call it.
    operations : tuple of str
        Of "count", "add" and "maximum".
    prepare : callable
        ``prepare(operation, indices, values, num_bins)`` puts the arrays where they are wanted and returns the call to
        time, which returns the result when it is complete.
    slow : bool
        Whether a few runs must do.
    """

    name: str
    operations: tuple[str, ...]
    prepare: Prepare
    slow: bool = False


def peers() -> list[Peer]:
    """Return the peers that can be imported; NumPy always can."""
    found = [
        Peer("numpy.bincount", ("count", "add"), _numpy_bincount),
        Peer("numpy.ufunc.at", ("add", "maximum"), _numpy_at, slow=True),
    ]
    for module, make in (("numba", _numba), ("torch", _torch), ("cupy", _cupy)):
        try:
            found.append(make(importlib.import_module(module)))
        except ImportError:
            continue
    return found


def _numpy_bincount(operation: str, indices: np.ndarray, values: np.ndarray, num_bins: int) -> Callable[[], Any]:
    weights = None if operation == "count" else values
    return lambda: np.bincount(indices, weights, num_bins)


def _numpy_at(operation: str, indices: np.ndarray, values: np.ndarray, num_bins: int) -> Callable[[], Any]:
    ufunc = np.add if operation == "add" else np.maximum

    def call() -> np.ndarray:
        out = np.zeros(num_bins, np.float32)
        ufunc.at(out, indices, values)
        return out

    return call


def _numba(numba: Any) -> Peer:
    """A loop of one copy for each thread, as one would write it by hand."""
    threads = numba.get_num_threads()

    @numba.njit(parallel=True)
    def count(indices, num_bins):
        copies = np.zeros((threads, num_bins), np.int32)
        for t in numba.prange(threads):
            for i in range(indices.size * t // threads, indices.size * (t + 1) // threads):
                copies[t, indices[i]] += 1
        return copies.sum(axis=0)

    @numba.njit(parallel=True)
    def add(indices, values, num_bins):
        copies = np.zeros((threads, num_bins), np.float32)
        for t in numba.prange(threads):
            for i in range(indices.size * t // threads, indices.size * (t + 1) // threads):
                copies[t, indices[i]] += values[i]
        return copies.sum(axis=0)

    @numba.njit(parallel=True)
    def maximum(indices, values, num_bins):
        copies = np.zeros((threads, num_bins), np.float32)
        for t in numba.prange(threads):
            for i in range(indices.size * t // threads, indices.size * (t + 1) // threads):
                copies[t, indices[i]] = max(copies[t, indices[i]], values[i])
        out = copies[0]
        for t in range(1, threads):
            out = np.maximum(out, copies[t])
        return out

    def prepare(operation: str, indices: np.ndarray, values: np.ndarray, num_bins: int) -> Callable[[], Any]:
        if operation == "count":
            return lambda: count(indices, num_bins)
        return lambda: (add if operation == "add" else maximum)(indices, values, num_bins)

    return Peer(f"numba, {threads} threads", ("count", "add", "maximum"), prepare)


def _torch(torch: Any) -> Peer:
    where = "cuda" if torch.cuda.is_available() else "cpu"

    def prepare(operation: str, indices: np.ndarray, values: np.ndarray, num_bins: int) -> Callable[[], Any]:
        index = torch.from_numpy(indices).to(where)
        if operation == "count":
            call = lambda: torch.bincount(index, minlength=num_bins)  # noqa: E731
        else:
            wide, value, how = index.long(), torch.from_numpy(values).to(where), operation.replace("add", "sum")
            how = {"sum": "sum", "maximum": "amax"}[how]
            call = lambda: torch.zeros(num_bins, device=where).scatter_reduce_(0, wide, value, how)  # noqa: E731

        def complete() -> Any:
            result = call()
            if where == "cuda":
                torch.cuda.synchronize()
            return result.cpu()

        return complete

    return Peer(f"torch ({where})", ("count", "add", "maximum"), prepare, slow=True)


def _cupy(cupy: Any) -> Peer:
    def prepare(operation: str, indices: np.ndarray, values: np.ndarray, num_bins: int) -> Callable[[], Any]:
        index, value = cupy.asarray(indices), cupy.asarray(values)

        def complete() -> Any:
            if operation == "count":
                result = cupy.bincount(index, minlength=num_bins)
            else:
                result = cupy.zeros(num_bins, cupy.float32)
                (cupy.add if operation == "add" else cupy.maximum).at(result, index, value)
            return result.get()

        return complete

    return Peer("cupy", ("count", "add", "maximum"), prepare, slow=True)
