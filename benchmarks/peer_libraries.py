"""NumPy, SciPy, pandas and boost-histogram beside clhist, on arrays of the host."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import peer_c, peer_gpu, peer_numba
from benchmarks.peer import Peer
from benchmarks.peer_problems import (
    COUNTS,
    FIVE,
    PROBLEMS,
    UNIT,
    Arrays,
    Fields,
    by_component,
    numpy_largest,
    numpy_latest,
    numpy_mean,
    scipy_statistics,
    side,
)


def peers() -> list[Peer]:
    """Return NumPy, the libraries that can be imported, and C if there is a compiler."""
    available = [*_numpy(), *peer_c.peers()]
    # Or JAX takes three quarters of the GPU's memory when it is first used.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    makers: dict[str, Callable[[Any], Peer]] = {
        "numba": peer_numba.peer,
        "boost_histogram": _boost,
        "pandas": _pandas,
        "scipy": _scipy,
        "torch": peer_gpu.torch,
        "cupy": peer_gpu.cupy,
        "jax": peer_gpu.jax,
    }
    for module, make in makers.items():
        try:
            available.append(make(importlib.import_module(module)))
        except ImportError:
            continue
    return available


def _numpy() -> list[Peer]:
    def at(ufunc: np.ufunc, dtype: Any, neutral: float) -> Callable[..., np.ndarray]:
        def call(x: np.ndarray, *values_and_bins: Any) -> np.ndarray:
            *values, bins = values_and_bins
            out = np.full((bins, *np.shape(values[0])[1:]) if values else bins, neutral, dtype)
            ufunc.at(out, x, *(values or (1,)))
            return out

        return call

    def count(x: np.ndarray, bins: int) -> np.ndarray:
        return np.bincount(x, minlength=bins)

    def weigh(x: np.ndarray, v: np.ndarray, bins: int) -> np.ndarray:
        return np.bincount(x, v, bins)

    counts = dict.fromkeys(COUNTS, count)
    return [
        Peer(
            "numpy.bincount",
            counts | {"bincount-weights": weigh, "add": weigh, "mean": numpy_mean},
            of_rows={"add": by_component},
        ),
        Peer(
            "numpy.ufunc.at",
            {
                "count": at(np.add, np.int32, 0),
                "add": at(np.add, np.float32, 0),
                "maximum": at(np.maximum, np.float32, -np.inf),
                "argmax": numpy_largest,
                "struct": numpy_latest,
            },
            of_rows={"add": at(np.add, np.float32, 0)},
        ),
        Peer("numpy", {name: PROBLEMS[name].reference for name in ("histogram", "histogram2d", "group_by")}),
    ]


def _scipy(scipy: Any) -> Peer:
    from scipy import sparse

    def product(x: np.ndarray, v: np.ndarray, bins: int) -> np.ndarray:
        entries = np.ones(x.size, v.dtype), (x, np.arange(x.size, dtype=x.dtype))
        sums: np.ndarray = sparse.csr_array(entries, shape=(bins, x.size)) @ v
        return sums

    return Peer("scipy", {"binned_statistic": scipy_statistics}, of_rows={"add": product})


def _boost(boost_histogram: Any) -> Peer:
    """Fills by all cores; means it fills by one, so they are left out."""
    threads = os.cpu_count() or 1
    axis, storage = boost_histogram.axis, boost_histogram.storage

    def fill(kind: Any, axes: list[Any], *data: np.ndarray, **options: Any) -> np.ndarray:
        return boost_histogram.Histogram(*axes, storage=kind).fill(*data, threads=threads, **options).view()

    def integers(bins: int) -> list[Any]:
        return [axis.Integer(0, bins, underflow=False, overflow=False)]

    def count(x: np.ndarray, bins: int) -> np.ndarray:
        return fill(storage.Int64(), integers(bins), x)

    def weigh(x: np.ndarray, v: np.ndarray, bins: int) -> np.ndarray:
        return fill(storage.Double(), integers(bins), x, weight=v)

    def regular(x: np.ndarray, bins: int) -> np.ndarray:
        return fill(storage.Int64(), [axis.Regular(bins, *UNIT)], x)

    def regular2d(x: np.ndarray, y: np.ndarray, bins: int) -> np.ndarray:
        return fill(storage.Int64(), [axis.Regular(side(bins), *UNIT)] * 2, x, y)

    counts = dict.fromkeys(COUNTS, count)
    sums = dict.fromkeys(("bincount-weights", "add"), weigh)
    return Peer(
        "boost-histogram",
        counts | sums | {"histogram": regular, "histogram2d": regular2d},
    )


def _pandas(pandas: Any) -> Peer:
    """Groups of a data frame that was made before."""

    def put(arrays: Arrays) -> tuple[Any, ...]:
        return (pandas.DataFrame(dict(zip(("key", "value"), arrays, strict=False))).groupby("key"),)

    def size(groups: Any, bins: int) -> Any:
        return groups.size().reindex(range(bins), fill_value=0)

    def of_values(name: str) -> Callable[..., Any]:
        return lambda groups, bins: getattr(groups["value"], name)().reindex(range(bins))

    def largest(groups: Any, bins: int) -> Any:
        index = groups["value"].idxmax()
        return {"value": groups["value"].max().reindex(range(bins)), "index": index.reindex(range(bins))}

    def fetch(result: Any) -> Fields:
        if isinstance(result, dict):
            return {name: series.to_numpy() for name, series in result.items()}
        if result.ndim == 1:
            return {"": np.nan_to_num(result.to_numpy())}
        columns = {name: result[name].to_numpy() for name in FIVE}
        number = columns["count"]
        return columns | {"std": np.where(number > 1, columns["std"] * np.sqrt((number - 1) / number), 0.0)}  # of n - 1

    return Peer(
        "pandas",
        {
            "count": size,
            "add": of_values("sum"),
            "maximum": of_values("max"),
            "mean": of_values("mean"),
            "argmax": largest,
            "group_by": lambda groups, bins: groups["value"].agg(list(FIVE)).reindex(range(bins)),
        },
        put=put,
        fetch=fetch,
    )
