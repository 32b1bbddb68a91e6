"""`clhist bench`: clhist beside what else is installed for the same sums, in one run."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import click
import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

import clhist
from clhist.cli.main import profile_option
from clhist.cli.peers import Peer, peers

_RUNS = 9
_TOLERANCE = 1e-3  # of the sum of absolute values: all operands are positive, float32 sums of 20 million of them


@dataclass(frozen=True)
class Problem:
    """One row of the table: `num_elements` random int32 bins, and float32 values where the operation has some."""

    operation: str
    num_elements: int
    num_bins: int

    def inputs(self) -> tuple[np.ndarray, np.ndarray]:
        """Return indices and values, always the same ones."""
        random = np.random.default_rng(self.num_bins)
        indices = random.integers(0, self.num_bins, self.num_elements, dtype=np.int32)
        return indices, random.random(self.num_elements, dtype=np.float32)

    def reference(self, indices: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Return the result in NumPy, sums in float64."""
        if self.operation == "maximum":
            out = np.zeros(self.num_bins, np.float32)
            np.maximum.at(out, indices, values)
            return out
        return np.bincount(indices, None if self.operation == "count" else values, self.num_bins)


@dataclass(frozen=True)
class Timing:
    """Median and extremes of the seconds of one implementation on one problem."""

    operation: str
    num_elements: int
    num_bins: int
    implementation: str
    median: float
    fastest: float
    slowest: float


def timed(call: Callable[[], Any], runs: int = _RUNS) -> list[float]:
    """Return the seconds of `runs` calls after one that is not counted."""
    call()
    samples = []
    for _ in range(runs):
        start = time.perf_counter()
        call()
        samples.append(time.perf_counter() - start)
    return samples


def measure(problem: Problem, competitors: list[Peer]) -> Iterator[Timing]:
    """Check and time clhist and its competitors on one problem."""
    indices, values = problem.inputs()
    reference = problem.reference(indices, values)

    def timing(name: str, samples: list[float]) -> Timing:
        return Timing(
            **asdict(problem),
            implementation=name,
            median=statistics.median(samples),
            fastest=min(samples),
            slowest=max(samples),
        )

    def check(name: str, result: Any) -> None:
        if not np.allclose(np.asarray(result), reference, rtol=_TOLERANCE):
            raise click.ClickException(f"{name} is wrong for {problem}: this is a bug")

    queue = clhist.default_queue()
    for name, call in _ours(problem, indices, values, queue):
        result = call()
        check(name, result.get() if isinstance(result, cl_array.Array) else result)
        yield timing(name, timed(call))
    yield timing("clhist, kernels alone", _kernel_seconds(problem, indices, values, queue))
    for peer in competitors:
        if problem.operation in peer.operations:
            call = peer.prepare(problem.operation, indices, values, problem.num_bins)
            check(peer.name, call())
            yield timing(peer.name, timed(call, 3 if peer.slow else _RUNS))


def _ours(
    problem: Problem, indices: np.ndarray, values: np.ndarray, queue: cl.CommandQueue
) -> Iterator[tuple[str, Callable[[], Any]]]:
    dest = np.zeros(problem.num_bins, np.float32)
    arrays: dict[str, tuple[Any, ...]] = {
        "clhist, NumPy arrays": (indices, values, dest),
        "clhist, device arrays": tuple(cl_array.to_device(queue, array) for array in (indices, values, dest)),
    }
    for name, (x, w, start) in arrays.items():
        if problem.operation == "count":
            call = partial(clhist.bincount, x, minlength=problem.num_bins)
        else:
            call = partial(clhist.reduce_by_index, start, getattr(np, problem.operation), x, w)
        yield name, partial(_finished, queue, call)


def _finished(queue: cl.CommandQueue, call: Callable[[], Any]) -> Any:
    result = call()
    queue.finish()
    return result


def _kernel_seconds(problem: Problem, indices: np.ndarray, values: np.ndarray, queue: cl.CommandQueue) -> list[float]:
    operator, arguments, value = {
        "count": (clhist.operators.count(), "const int *indices", "1"),
        "add": (clhist.operators.add(np.float32), "const int *indices, const float *values", "values[i]"),
        "maximum": (clhist.operators.maximum(np.float32), "const int *indices, const float *values", "values[i]"),
    }[problem.operation]
    kernel = clhist.HistogramKernel(queue.context, operator, arguments=arguments, map=f"EMIT(indices[i], {value})")
    profiling = cl.CommandQueue(queue.context, queue.device, cl.command_queue_properties.PROFILING_ENABLE)
    arrays = [cl_array.to_device(profiling, array) for array in (indices, values)[: len(kernel.arguments)]]
    samples = []
    for _ in range(_RUNS + 1):
        _, stages = kernel.timed(*arrays, num_bins=problem.num_bins, queue=profiling)
        samples.append(sum(stages.values()))
    return samples[1:]


@click.command()
@click.option(
    "-n", "--num-elements", type=click.IntRange(1), default=20_000_000, show_default=True, help="Elements of the input."
)
@click.option(
    "-H",
    "--num-bins",
    "bins",
    type=click.IntRange(1),
    multiple=True,
    default=(64, 2041, 196_607, 1_572_863),
    show_default=True,
    help="Bins; may be given several times.",
)
@click.option(
    "--op",
    "operations",
    type=click.Choice(["count", "add", "maximum"]),
    multiple=True,
    default=("count", "add", "maximum"),
    show_default=True,
    help="What to compute; may be given several times.",
)
@profile_option
@click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, writable=True),
    help="Also write all timings, in seconds, into this file.",
)
def bench(num_elements: int, bins: tuple[int, ...], operations: tuple[str, ...], json_file: str | None) -> None:
    """Time clhist and its peers on the same random input.

    Counts int32 bins; adds and maximises float32 values. Every result is checked before it is timed. Times are whole
    calls until the result is there, medians of several; "kernels alone" is what the device spent.

    \b
    Example:
        clhist bench -H 64 -H 196607 --op count
    """
    competitors = peers()
    queue = clhist.default_queue()
    click.echo(
        f"{num_elements:,} elements on {queue.device.name.strip()} ({queue.device.platform.version.strip()}), "
        f"{queue.device.max_compute_units} compute units; beside it: {', '.join(p.name for p in competitors)}"
    )
    click.echo(f"\n{'':8} {'bins':>10}  {'':26} {'median':>9}  {'fastest to slowest':>20}  {'times clhist':>12}")
    every = []
    for operation in operations:
        for num_bins in bins:
            rows = list(measure(Problem(operation, num_elements, num_bins), competitors))
            for row in rows:
                click.echo(_line(row, rows[0].median))
            click.echo()
            every += rows
    if json_file:
        with open(json_file, "w", encoding="utf-8") as file:
            json.dump([asdict(row) for row in every], file, indent=1)


def _line(row: Timing, ours: float) -> str:
    spread = f"{row.fastest * 1e3:.2f} to {row.slowest * 1e3:.2f}"
    ratio = row.median / ours
    return (
        f"{row.operation:8} {row.num_bins:>10,}  {row.implementation:26} {row.median * 1e3:6.2f} ms  {spread:>20}  "
        f"{ratio:>12.2f}"
    )
