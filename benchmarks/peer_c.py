"""The limit of a CPU beside clhist: loops of C by OpenMP, compiled on the spot."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peer import Peer
from benchmarks.peer_problems import RECORD, UNIT, edges_of, side

_SOURCE = Path(__file__).with_name("limit.c")
_COMPILERS = ("cc", "gcc", "clang")
_NATIVE: tuple[tuple[str, ...], ...] = (("-march=native",), ("-mcpu=native",), ())
_MOST_CELLS = 4_000_000  # of a thread's copies
_PAIRS = 0  # in the place of a number of copies: two bytes at a time
_FOUND = np.dtype([("value", np.float32), ("index", np.int32)])
_APART = 2048  # cells between copies, as in limit.c
_MOMENTS = np.dtype([("sum", np.float64), ("count", np.int64)])
# Problem: function of the source, type of a bin.
_LOOPS: dict[str, tuple[str, np.dtype]] = {
    "bincount": ("count", np.dtype(np.int32)),
    "count": ("count", np.dtype(np.int32)),
    "image8": ("count8", np.dtype(np.int32)),
    "image8-smooth": ("count8", np.dtype(np.int32)),
    "image16": ("count16", np.dtype(np.int32)),
    "bincount-weights": ("add_double", np.dtype(np.float64)),
    "add": ("add", np.dtype(np.float32)),
    "maximum": ("maximum", np.dtype(np.float32)),
    "argmax": ("argmax", _FOUND),
    "mean": ("moments", _MOMENTS),
    "struct": ("latest", RECORD),
    "histogram": ("histogram", np.dtype(np.int32)),
    "histogram2d": ("histogram2d", np.dtype(np.int32)),
}


class _Axis(ctypes.Structure):
    _fields_ = (
        ("edges", ctypes.c_void_p),
        ("first", ctypes.c_double),
        ("scale", ctypes.c_double),
        ("bins", ctypes.c_int32),
    )


def peers() -> list[Peer]:
    """Return the direct loop and the best of several strategies, or nothing without a compiler that has OpenMP."""
    library = _compiled()
    if library is None:
        return []
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    of_peers = {
        "C, direct loop": _Loops(library, threads, several=False),
        "C, best loop": _Loops(library, threads, several=True),
    }
    return [
        Peer(name, {problem: loops.way(problem) for problem in _LOOPS}, chosen=loops.chosen)
        for name, loops in of_peers.items()
    ]


def _compiled() -> ctypes.CDLL | None:
    """Return the compiled source: by the first compiler and options that work."""
    # Threads that spin after a loop would slow down what is timed next.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    folder = tempfile.mkdtemp(prefix="clhist-limit-")
    try:
        file = Path(folder) / "limit.so"
        for compiler in filter(None, map(shutil.which, _COMPILERS)):
            for native in _NATIVE:
                command = [compiler, "-O3", *native, "-fopenmp", "-shared", "-fPIC", "-o", str(file), str(_SOURCE)]
                try:
                    if subprocess.run(command, capture_output=True, timeout=120, check=False).returncode == 0:
                        return ctypes.CDLL(str(file))
                except (OSError, subprocess.TimeoutExpired):
                    continue
        return None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _axes(problem: str, bins: int) -> tuple[Any, np.ndarray | None]:
    """Return the axes of a histogram, and the edges that must be kept as long as they are used."""
    if not problem.startswith("histogram"):
        return None, None
    flat = problem == "histogram"
    axis_bins = bins if flat else side(bins)
    edges = edges_of(axis_bins, np.dtype(np.float32 if flat else np.float64))
    axis = _Axis(edges.ctypes.data, UNIT[0], axis_bins / (UNIT[1] - UNIT[0]), axis_bins)
    return (_Axis * 2)(axis, axis), edges


class _Loop:
    """One loop on so many bins: its scratch memory is allocated once."""

    def __init__(self, library: ctypes.CDLL, problem: str, bins: int, copies: int, threads: int) -> None:
        name, self._dtype = _LOOPS[problem]
        self._shape: tuple[int, ...] = (side(bins), side(bins)) if problem == "histogram2d" else (bins,)
        self._axes, self._edges = _axes(problem, bins)
        self._bins, self._copies, self._threads = int(np.prod(self._shape)), copies, threads
        cells = (-(-self._bins // 64) * 64 + _APART) * max(1, copies)
        if copies == _PAIRS:
            name, cells = "count8_pairs", 65536
        self._function = getattr(library, name)
        self._scratch = np.zeros(threads * cells, self._dtype)

    def __call__(self, *arrays: np.ndarray) -> np.ndarray:
        out = np.empty(self._shape, self._dtype)
        x, *others = arrays
        same = len(others) == 1 and others[0].dtype == x.dtype == np.float32  # two axes, no values
        y, v = (others[0], None) if same else (None, others[0] if others else None)
        pointers = [ctypes.c_void_p(None if array is None else array.ctypes.data) for array in (x, y, v)]
        self._function(
            *pointers,
            ctypes.c_int64(x.size),
            ctypes.c_int64(self._bins),
            self._axes,
            ctypes.c_void_p(out.ctypes.data),
            ctypes.c_void_p(self._scratch.ctypes.data),
            ctypes.c_int(self._copies),
            ctypes.c_int(self._threads),
        )
        with np.errstate(invalid="ignore"):  # of bins without elements
            return out["sum"] / out["count"] if self._dtype == _MOMENTS else out


class _Loops:
    """The direct loop, or of `several` strategies the one that is fastest when a number of bins is first asked for."""

    def __init__(self, library: ctypes.CDLL, threads: int, *, several: bool) -> None:
        self._library, self._threads, self._several = library, threads, several
        self._taken: dict[tuple[str, int], tuple[str, _Loop]] = {}

    def way(self, problem: str) -> Callable[..., Any]:
        """Return what computes a problem of its arrays and the number of bins."""

        def call(*arrays_and_bins: Any) -> Any:
            *arrays, bins = arrays_and_bins
            if (problem, bins) not in self._taken:
                self._taken[problem, bins] = self._fastest(problem, arrays, bins)
            return self._taken[problem, bins][1](*arrays)

        return call

    def chosen(self, problem: str, bins: int) -> str:
        """Return the strategy that is taken."""
        return self._taken[problem, bins][0]

    def _fastest(self, problem: str, arrays: list[np.ndarray], bins: int) -> tuple[str, _Loop]:
        strategies = {"one copy": 1}
        if self._several:
            strategies |= {f"{copies} copies": copies for copies in (2, 4, 8) if copies * bins <= _MOST_CELLS}
            strategies |= {"pairs of bytes": _PAIRS} if _LOOPS[problem][0] == "count8" else {}
        loops = {name: _Loop(self._library, problem, bins, n, self._threads) for name, n in strategies.items()}

        def seconds(loop: _Loop) -> float:
            samples = []
            for _ in range(4):
                start = time.perf_counter()
                loop(*arrays)
                samples.append(time.perf_counter() - start)
            return min(samples)

        return min(loops.items(), key=lambda item: seconds(item[1])) if self._several else next(iter(loops.items()))
