"""`clhist bench --suite peers`: each public function beside what else computes the same, in one run."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import cycle
from math import ceil, inf
from pathlib import Path
from typing import Any

import pyopencl.array as cl_array

from benchmarks import peer_libraries
from benchmarks import suite as bench_suite
from benchmarks.inputs import CACHES, MOST_COPIES
from benchmarks.lab import LONGEST, Lab, Row
from benchmarks.peer import Peer
from benchmarks.peer_problems import PROBLEMS, ROW_PROBLEMS, Arrays, Problem, row_problem
from benchmarks.suite import Panels, Request, Suite, times
from clhist.cli.tables import grid
from clhist.cli.timing import Samples, interleaved
from clhist.errors import UnsupportedError

ON_HOST, ON_DEVICE = "clhist, NumPy arrays", "clhist, device arrays"
_COLD = "PYOPENCL_NO_CACHE", "POCL_KERNEL_CACHE"


def run(lab: Lab, request: Request) -> Iterator[tuple[str, list[Row]]]:
    """Yield for each function and number of bins a row for each implementation."""
    others = peer_libraries.peers()
    for problem, common in _requested(request):
        rows = _rows(lab, problem, request.num_elements, common["num_bins"], others)
        yield f"{bench_suite.op_text(common)}, H = {common['num_bins']:,}", [row | common for row in rows]
        gc.collect()  # of graphs and frames of the libraries: gigabytes


def _requested(request: Request) -> list[tuple[Problem, Row]]:
    """Return the problems, each with what its rows of the table have in common."""
    problems = []
    for name in request.operations:
        for components in request.rows:
            problem = PROBLEMS[name] if components == 1 else row_problem(name, components)
            for bins in (problem.num_bins,) if problem.num_bins else request.bins:
                problems.append((problem, {"op": name, "num_bins": bins, "components": components}))
    return problems


def _ours(lab: Lab, problem: Problem) -> list[Peer]:
    """Return clhist's function on arrays of NumPy and of PyOpenCL."""

    def put(arrays: Arrays) -> tuple[Any, ...]:
        return tuple(cl_array.to_device(lab.queue, array) for array in arrays)

    ways = {problem.name: problem.ours}
    options: dict[str, Any] = {"ways": ways} if problem.components == 1 else {"ways": {}, "of_rows": ways}

    def finish(result: Any) -> None:
        lab.queue.finish()

    return [
        Peer(ON_HOST, is_ours=True, **options),
        Peer(ON_DEVICE, put=put, finish=finish, on_device=True, is_ours=True, **options),
    ]


def _rows(lab: Lab, problem: Problem, size: int, bins: int, others: Sequence[Peer]) -> list[Row]:
    arrays = problem.make(size, bins)
    nbytes = sum(array.nbytes for array in arrays)
    needed = ceil(CACHES * max(lab.profile.l2_cache, _host_cache()) / nbytes)
    copies = [arrays, *(tuple(a.copy() for a in arrays) for _ in range(min(needed, MOST_COPIES) - 1))]
    common = {
        "num_elements": arrays[0].size,
        "bytes": nbytes,
        "is_cold": needed <= MOST_COPIES,
    }
    differs = problem.expected(arrays, bins)
    rows: dict[str, Row] = {}
    calls: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], float]] = {}
    peers = [peer for peer in (*_ours(lab, problem), *others) if peer.way(problem)]
    for peer in peers:
        try:
            rows[peer.name], call, about = _checked(peer, problem, copies, bins, differs)
        except Exception as error:  # also of somebody else's code: out of memory, a kernel that does not compile
            text = f"{type(error).__name__}: {str(error)[:80]}"
            rows[peer.name] = {"note": text} | ({"failed": True} if _is_failure(error, peer) else {})
            continue
        if about > LONGEST:
            rows[peer.name] |= {"call": Samples((about,)).record(), "note": "one call timed: it takes too long"}
        elif "failed" not in rows[peer.name]:
            calls[peer.name] = call, peer.finish, about
    for name, samples in interleaved(calls).items():
        rows[name]["call"] = samples.record()
    for peer in peers:
        like = rows[ON_DEVICE if peer.on_device else ON_HOST]
        if "call" in rows[peer.name] and "call" in like:
            rows[peer.name]["per_clhist"] = rows[peer.name]["call"]["median"] / like["call"]["median"]
    return [common | {"implementation": name} | row for name, row in rows.items()]


@lru_cache(maxsize=1)
def _host_cache() -> int:
    """Return the bytes of the host's last-level cache, 0 where it does not say."""
    sizes = [0]
    for file in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        with suppress(OSError, ValueError):
            sizes.append(int(file.read_text(encoding="utf-8").strip().removesuffix("K")) * 1024)
    return max(sizes)


def _is_failure(error: Exception, peer: Peer) -> bool:
    """Whether it is an error of ours, rather than something that the device or the peer does not have."""
    return peer.is_ours and not isinstance(error, UnsupportedError)


def _checked(
    peer: Peer, problem: Problem, copies: list[Arrays], bins: int, differs: Callable[..., str]
) -> tuple[Row, Callable[[], Any], float]:
    """Return a row with the first call, what makes one of the next, and how long one takes."""
    way, inputs = peer.way(problem), cycle([peer.put(arrays) for arrays in copies])

    def call() -> Any:
        assert way is not None
        return way(*next(inputs), bins)

    def once() -> tuple[Any, float]:
        start = time.perf_counter()
        result = call()
        peer.finish(result)
        return result, time.perf_counter() - start

    result, first = once()
    row: Row = {"first": first}
    chosen = peer.chosen(problem.name, bins)
    if chosen:
        row = {"strategy": chosen}  # its first call tried them all
    got = peer.fetch(result)
    wrong = differs(got, peer.is_ours)
    if wrong:
        row |= {"failed": True, "note": f"WRONG: {wrong}"}
    elif problem.has_edges and (moved := differs(got, True)):
        row["note"] = f"other edges than NumPy's: {moved}"
    return row, call, once()[1]


def panels(rows: list[Row]) -> Panels:
    """Return a panel for each function, a line for each implementation."""
    drawn: Panels = {}
    for row in rows:
        if "call" in row:
            point = row["num_bins"], row["call"]["median"] * 1e6
            drawn.setdefault(bench_suite.op_text(row), {}).setdefault(row["implementation"], []).append(point)
    return drawn


def _family(implementation: str) -> str:
    """Return the column of an implementation: one for all functions of NumPy and SciPy."""
    return "NumPy, SciPy" if implementation.partition(".")[0] in ("numpy", "scipy") else implementation


def summary(rows: list[Row]) -> list[str]:
    """Return a table of how many times as long as clhist each takes, and how to get times of cold first calls."""
    cells: dict[tuple[str, int], dict[str, float]] = {}
    for row in rows:
        if "per_clhist" in row and row["implementation"] != ON_DEVICE:
            cell = cells.setdefault((bench_suite.op_text(row), row["num_bins"]), {})
            name = _family(row["implementation"])
            cell[name] = min(row["per_clhist"] if name != ON_HOST else row["call"]["median"], cell.get(name, inf))
    names = list(dict.fromkeys(name for cell in cells.values() for name in cell if name != ON_HOST))
    lines = [["function", "H", "clhist ms", *names]]
    for (op, bins), cell in cells.items():
        others = (f"{cell[name]:.2f}" if name in cell else "-" for name in names)
        lines.append([op, f"{bins:,}", f"{cell[ON_HOST] * 1e3:,.2f}", *others])
    text = ["Times as long as clhist takes:", grid(lines, keys=2)] if names else []
    if not all(os.environ.get(name) for name in _COLD):
        text.append("First calls may find programs on disk: PYOPENCL_NO_CACHE=1 POCL_KERNEL_CACHE=0 makes them cold.")
    return text


SUITE = Suite(
    operations=tuple(PROBLEMS),
    default_operations=tuple(PROBLEMS),
    bins=(64, 300, 2041, 150_000, 1_400_000),
    race_factors=(),
    num_elements=25_000_000,
    of_rows=tuple(ROW_PROBLEMS),
    steps=lambda request: len(_requested(request)),
    run=run,
    columns=(
        ("function", bench_suite.op_text),
        bench_suite.BINS,
        ("implementation", lambda row: row["implementation"]),
        ("strategy", lambda row: row.get("strategy", "")),
        ("first call ms", lambda row: f"{row['first'] * 1e3:,.1f}" if "first" in row else "-"),
        *bench_suite.CALL,
        ("x clhist", lambda row: times(row, "per_clhist")),
    ),
    panels=panels,
    summary=summary,
)
