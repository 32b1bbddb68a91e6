"""Loops by Numba beside clhist: a histogram for each thread, as one would write it by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.peer import Peer
from benchmarks.peer_problems import COUNTS, RECORD, UNIT, Fields, edges_of, side

Loops = dict[str, Callable[..., Any]]


def peer(numba: Any) -> Peer:
    """Return the loops of all threads."""

    def fetch(result: Any) -> Fields:
        if isinstance(result, tuple):
            return dict(zip(("value", "index"), result, strict=True))
        return {name: result[name] for name in RECORD.names or ()} if result.dtype == RECORD else {"": result}

    return Peer("numba", _sums(numba) | _largest(numba) | _latest(numba) | _histograms(numba), fetch=fetch)


def _sums(numba: Any) -> Loops:
    threads = numba.get_num_threads()
    loop = numba.njit(parallel=True)
    part = numba.prange

    @loop
    def count(x, bins):
        copies = np.zeros((threads, bins), np.int32)
        for t in part(threads):
            for i in range(x.size * t // threads, x.size * (t + 1) // threads):
                copies[t, x[i]] += 1
        return copies.sum(axis=0)

    def sums(dtype: Any) -> Callable[..., Any]:
        @loop
        def add(x, v, bins):
            copies = np.zeros((threads, bins), dtype)
            for t in part(threads):
                for i in range(x.size * t // threads, x.size * (t + 1) // threads):
                    copies[t, x[i]] += v[i]
            return copies.sum(axis=0)

        return add

    @loop
    def mean(x, v, bins):
        total = np.zeros((threads, bins), np.float64)
        number = np.zeros((threads, bins), np.int64)
        for t in part(threads):
            for i in range(x.size * t // threads, x.size * (t + 1) // threads):
                total[t, x[i]] += v[i]
                number[t, x[i]] += 1
        return total.sum(axis=0) / number.sum(axis=0)

    return dict.fromkeys(COUNTS, count) | {"bincount-weights": sums(np.float64), "add": sums(np.float32), "mean": mean}


def _largest(numba: Any) -> Loops:
    threads = numba.get_num_threads()
    loop = numba.njit(parallel=True)
    part = numba.prange

    @loop
    def maximum(x, v, bins):
        copies = np.full((threads, bins), -np.inf, np.float32)
        for t in part(threads):
            for i in range(x.size * t // threads, x.size * (t + 1) // threads):
                copies[t, x[i]] = max(copies[t, x[i]], v[i])
        out = copies[0]
        for t in range(1, threads):
            out = np.maximum(out, copies[t])
        return out

    @loop
    def largest(x, v, bins):
        value = np.full((threads, bins), -np.inf, np.float32)
        index = np.full((threads, bins), 2**31 - 1, np.int32)
        for t in part(threads):
            for i in range(x.size * t // threads, x.size * (t + 1) // threads):
                if v[i] > value[t, x[i]]:
                    value[t, x[i]] = v[i]
                    index[t, x[i]] = i
        for b in part(bins):
            for t in range(1, threads):  # of equal values the earlier thread has the lower position
                if value[t, b] > value[0, b]:
                    value[0, b] = value[t, b]
                    index[0, b] = index[t, b]
        return value[0], index[0]

    return {"maximum": maximum, "argmax": largest}


def _latest(numba: Any) -> Loops:
    threads = numba.get_num_threads()
    loop = numba.njit(parallel=True)
    part = numba.prange

    @loop
    def latest(x, v, copies):
        bins = copies.shape[1]
        for t in part(threads):
            for i in range(x.size * t // threads, x.size * (t + 1) // threads):
                if v[i].time > copies[t, x[i]].time:
                    copies[t, x[i]].time = v[i].time
                    copies[t, x[i]].value = v[i].value
        for b in part(bins):
            for t in range(1, threads):
                if copies[t, b].time > copies[0, b].time:
                    copies[0, b].time = copies[t, b].time
                    copies[0, b].value = copies[t, b].value
        return copies[0]

    def latest_of(x: np.ndarray, v: np.ndarray, bins: int) -> np.ndarray:
        copies = np.empty((threads, bins), RECORD)
        copies["time"] = np.iinfo(np.int64).min
        return latest(x, v, copies)

    return {"struct": latest_of}


def _histograms(numba: Any) -> Loops:
    threads = numba.get_num_threads()
    loop = numba.njit(parallel=True)
    part = numba.prange

    @numba.njit(inline="always")
    def place(x, edges, scale):
        last = edges.size - 2
        k = min(max(int((x - edges[0]) * scale), 0), last)
        if x < edges[k] and k > 0:
            k -= 1
        if k < last and x >= edges[k + 1]:
            k += 1
        return k

    @loop
    def histogram(x, edges, scale):
        copies = np.zeros((threads, edges.size - 1), np.int32)
        for t in part(threads):
            for i in range(x.size * t // threads, x.size * (t + 1) // threads):
                copies[t, place(x[i], edges, scale)] += 1
        return copies.sum(axis=0)

    @loop
    def histogram2d(x, y, edges, scale):
        copies = np.zeros((threads, edges.size - 1, edges.size - 1), np.int32)
        for t in part(threads):
            for i in range(x.size * t // threads, x.size * (t + 1) // threads):
                copies[t, place(x[i], edges, scale), place(y[i], edges, scale)] += 1
        return copies.sum(axis=0)

    return {
        "histogram": lambda x, bins: histogram(x, edges_of(bins, x.dtype), bins / (UNIT[1] - UNIT[0])),
        "histogram2d": lambda x, y, bins: histogram2d(
            x, y, edges_of(side(bins), np.dtype(float)), side(bins) / (UNIT[1] - UNIT[0])
        ),
    }
