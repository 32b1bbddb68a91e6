"""Measuring a device: local memory, caches, residence, bandwidth, launches and updates.

Each function runs kernels on a profiling queue and returns a `Measurement`. Nothing here decides what is plausible or
writes a profile: that is `clhist.calibration.calibrate`.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from clhist import operators
from clhist._core.devices.vendors import MEMORIES
from clhist._core.kernels.render import render_measure
from clhist._core.opencl.device import device_kind
from clhist._core.opencl.program import build
from clhist.errors import BuildError
from clhist.kernel import HistogramKernel
from clhist.operators.operator import Operator

MIB = 2**20


@dataclass(frozen=True)
class Measurement:
    """One measured number.

    Attributes
    ----------
    value : float
        The median.
    unit : str
        Of it, such as "bytes" or "GB/s".
    spread : float
        Largest less smallest of the runs, relative to the median; 0 for what is found by searching.
    method : str
        How it was measured, in words.
    """

    value: float
    unit: str
    spread: float
    method: str

    @classmethod
    def median(cls, samples: Sequence[float], unit: str, method: str) -> Measurement:
        """Return the median of several runs."""
        return cls(statistics.median(samples), unit, spread_of(samples), method)

    @classmethod
    def largest(cls, samples: Sequence[float], unit: str, method: str) -> Measurement:
        """Return the largest of several runs."""
        return cls(max(samples), unit, spread_of(samples), method)


@dataclass(frozen=True)
class Bench:
    """A device to measure: its context, and a queue that times commands."""

    context: cl.Context
    queue: cl.CommandQueue
    quick: bool = False

    @classmethod
    def of(cls, device: cl.Device, *, quick: bool = False) -> Bench:
        """Return the bench of `device`; `quick` asks for fewer runs and smaller arrays."""
        context = cl.Context([device])
        return cls(context, cl.CommandQueue(context, properties=cl.command_queue_properties.PROFILING_ENABLE), quick)

    @property
    def device(self) -> cl.Device:
        """The device."""
        return self.queue.device

    @property
    def runs(self) -> int:
        """The number of timed runs of each measurement."""
        return 3 if self.quick else 7

    def kernel(self, name: str, **parts: int) -> Any:
        """Return one of the kernels of ``measure.mako``."""
        return cl.Kernel(build(self.context, render_measure(name, **parts)), "clhist_measure")

    def seconds(self, enqueue: Callable[[], cl.Event], runs: int | None = None) -> list[float]:
        """Return the device's seconds of each of several runs, after one that is not counted."""
        enqueue().wait()
        seconds = []
        for _ in range(runs or self.runs):
            event = enqueue()
            event.wait()
            # A profiling clock may be too coarse for a short kernel: 1 ns keeps rates finite.
            seconds.append(max(1, event.profile.end - event.profile.start) * 1e-9)
        return seconds


def spread_of(samples: Sequence[float]) -> float:
    """Return the largest less the smallest, relative to the median; infinite where that is 0 and not all are."""
    spread = max(samples) - min(samples)
    return spread / statistics.median(samples) if statistics.median(samples) else spread and math.inf


def local_memory(bench: Bench, reported: int, most: int) -> Measurement:
    """Return the bytes of local memory that one work-group can really use, in a ``__local`` array of constant size.

    The driver may report less than that (NVIDIA: 48 KiB of 227). Searched by halves between `reported` and `most`, in
    steps of 1 KiB; a kernel fills the array and checks what other work-items wrote.
    """
    low, high = 0, most // 1024 + 1
    if _local_array_works(bench, reported):
        low = reported // 1024
    # Sizes of `low` KiB work and those of `high` do not.
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if _local_array_works(bench, 1024 * middle) else (low, middle)
    size = low * 1024
    return Measurement(size, "bytes", 0.0, "largest __local array of constant size that a kernel filled and checked")


def local_argument(bench: Bench, reported: int) -> Measurement:
    """Return the same for local memory that is passed as a kernel's argument: what is reported, or a little less."""
    kernel = bench.kernel("local_argument")
    # A driver may refuse exactly what it reports, as NVIDIA's does, and take a word less.
    for size in (reported, reported - 4, reported - 1024, reported // 2):
        wrong = cl_array.zeros(bench.queue, 1, np.int32)
        group = min(256, bench.device.max_work_group_size)
        try:
            kernel(bench.queue, (group * 8,), (group,), wrong.data, cl.LocalMemory(size), np.uint32(size // 4)).wait()
        except cl.Error:
            continue
        if not wrong.get()[0]:
            return Measurement(size, "bytes", 0.0, "largest __local argument that a kernel filled and checked")
    return Measurement(0, "bytes", 0.0, "no __local argument worked")


def _local_array_works(bench: Bench, size: int) -> bool:
    group = min(256, bench.device.max_work_group_size)
    wrong = cl_array.zeros(bench.queue, 1, np.int32)
    try:
        kernel = bench.kernel("local_memory", words=size // 4)
        kernel(bench.queue, (group * 2 * bench.device.max_compute_units,), (group,), wrong.data).wait()
    except (cl.Error, BuildError):
        return False
    return not wrong.get()[0]


def bandwidth(bench: Bench, memory: int) -> Measurement:
    """Return the rate of reading once an array much larger than any cache, in GB/s: that of a plain sum."""
    size = min(memory // 4, bench.device.max_mem_alloc_size, (512 if bench.quick else 2048) * MIB)
    samples = [size / seconds / 1e9 for seconds in _read(bench, size, 1)]
    return Measurement.median(samples, "GB/s", f"reading {size // MIB} MiB once")


def _read(bench: Bench, size: int, rounds: int, runs: int | None = None) -> list[float]:
    kernel = bench.kernel("read")
    x = cl_array.zeros(bench.queue, size // 16 * 4, np.uint32)
    sums = cl_array.zeros(bench.queue, 1, np.uint32)
    items, group = _items(bench)
    arguments = (x.data, np.uint64(size // 16), np.uint32(rounds), np.uint32(group == 1), sums.data)
    return bench.seconds(partial(kernel, bench.queue, (items,), (group,), *arguments), runs)


def _items(bench: Bench) -> tuple[int, int]:
    """Return how many work-items fill the device, and how many of them make a group; on a CPU each core has a few."""
    if device_kind(bench.device) == "cpu":
        return 4 * bench.device.max_compute_units, 1
    group = min(256, bench.device.max_work_group_size)
    return group * 8 * bench.device.max_compute_units, group


def cache_sweep(bench: Bench, sizes: Iterable[int]) -> list[tuple[int, float]]:
    """Return for each working set the rate of atomic updates of random words of it, in updates a second.

    Updates, not reads: what is updated lies once in the last-level cache, where reads may be kept in two halves.
    """
    kernel = bench.kernel("scatter")
    items, group = _items(bench)
    per_item = (2 if bench.quick else 8) * MIB * 8 // items
    rates = []
    for size in sizes:
        x = cl_array.zeros(bench.queue, size // 4, np.uint32)
        arguments = (x.data, np.uint32(size // 4), np.uint32(per_item))
        samples = bench.seconds(partial(kernel, bench.queue, (items,), (group,), *arguments), 3)
        rates.append((size, items * per_item / statistics.median(samples)))
    return rates


def knee(sweep: Sequence[tuple[int, float]]) -> int:
    """Return the working set at which the rate falls half-way (in ratio) from that of a cache to that of memory.

    Parameters
    ----------
    sweep : sequence of (int, float)
        Working set, ascending, and rate. The last lie in memory; the plateau before them is the last-level cache's.

    Notes
    -----
    The steepest fall is looked for, then the point where half of it (geometrically) is done, interpolated.
    """
    sizes, rates = np.array([s for s, _ in sweep], float), np.array([r for _, r in sweep], float)
    peak = int(np.argmax(rates))  # small working sets do not fill the device
    sizes, rates = sizes[peak:], rates[peak:]
    if len(rates) < 3:
        return int(sizes[-1])
    # Noise can let a rate rise again: the running minimum only falls.
    smooth = np.minimum.accumulate(rates)
    memory = smooth[-1]
    falls = np.log(smooth[:-2] / smooth[2:])  # over two steps
    # The last of equal falls, since the last-level cache is the outermost.
    steepest = len(falls) - 1 - int(np.argmax(falls[::-1]))
    plateau = smooth[: steepest + 1].min()
    middle = np.sqrt(plateau * memory)
    after = int(np.argmax(smooth < middle))
    # No rate is below the middle: `argmax` of all false is 0.
    if after == 0:
        return int(sizes[-1])
    high, low = np.log(smooth[after - 1]), np.log(smooth[after])
    part = (high - np.log(middle)) / (high - low) if high > low else 0.0
    return int(np.exp(np.log(sizes[after - 1]) + part * np.log(sizes[after] / sizes[after - 1])))


def line(bench: Bench, memory: int) -> Measurement:
    """Return the stride, in bytes, from which on reading one word of every stride takes no longer: what is fetched.

    Words of a line that is fetched whole cost the same; once each word has a line of its own, a longer stride is free.
    """
    size = min(memory // 4, bench.device.max_mem_alloc_size, (256 if bench.quick else 1024) * MIB)
    kernel = bench.kernel("stride")
    x, sums = cl_array.zeros(bench.queue, size // 4, np.uint32), cl_array.zeros(bench.queue, 1, np.uint32)
    items, group = _items(bench)
    strides = [4 << k for k in range(8)]
    times = []
    for stride in strides:
        # As many words for each stride, so that their times can be compared.
        count = size // strides[-1]
        arguments = (x.data, np.uint64(count), np.uint64(stride // 4), sums.data)
        times.append(statistics.median(bench.seconds(partial(kernel, bench.queue, (items,), (group,), *arguments))))
    line_bytes = next(s for s, seconds in zip(strides, times, strict=True) if seconds > 0.8 * max(times))
    return Measurement(
        line_bytes, "bytes", 0.0, "the stride from which on a word of every stride takes no longer to read"
    )


def residents(bench: Bench) -> Measurement:
    """Return how many work-items of groups of 256 are on the device at a time, by groups that count themselves."""
    group = min(256, bench.device.max_work_group_size)
    kernel = bench.kernel("residents")
    samples = []
    for _ in range(bench.runs):
        present, most = (cl_array.zeros(bench.queue, 1, np.int32) for _ in range(2))
        # More groups than can be resident at a time, so that the device is full.
        groups = 64 * bench.device.max_compute_units
        kernel(bench.queue, (group * groups,), (group,), present.data, most.data, np.uint32(2000)).wait()
        samples.append(float(most.get()[0]) * group)
    return Measurement.largest(samples, "work-items", "most groups of 256 that were present at a time")


_PAIRS = 50  # of calls with two launches and one


def launch(bench: Bench) -> Measurement:
    """Return the cost of one launch more: the time to the end of two kernels less that of one, both empty."""
    kernel = bench.kernel("empty")
    buffer = cl_array.zeros(bench.queue, 1, np.int32)
    # Without profiling, as queues are in most programs.
    plain = cl.CommandQueue(bench.context)
    kernel.set_args(buffer.data)
    group = (64,) if bench.device.max_work_group_size >= 64 else (1,)

    def seconds(launches: int) -> float:
        start = time.perf_counter()
        for _ in range(launches):
            cl.enqueue_nd_range_kernel(plain, kernel, (64,), group)
        plain.finish()
        return time.perf_counter() - start

    seconds(2)  # which compiles
    samples = []
    for _ in range(bench.runs):
        # Both times of a pair follow each other, so that a slower clock affects both.
        pairs = [(seconds(1), seconds(2)) for _ in range(_PAIRS)]
        samples.append(1e6 * max(0.0, statistics.median(two - one for one, two in pairs)))
    text = f"median of {_PAIRS} pairs of two kernels and one, both empty, to the end of the last"
    return Measurement.median(samples, "us", text)


# Each with a value that changes every bin it meets: a compare-exchange that would write nothing is not made.
_VALUE = 3
_LEAST_LOCKED = 2**13  # elements, which take several work-groups
UPDATES: dict[str, Operator] = {
    "native int32": operators.add(np.int32),
    "native float32": operators.add(np.float32),
    "native int64": operators.add(np.int64),
    "cas 32": operators.multiply(np.int32),
    "cas 64": operators.multiply(np.int64),
    "lock": operators.variance(np.float32),
}


def update_rates(bench: Bench, bins: int = 2048) -> dict[str, Measurement]:
    """Return the rate of each update in local and global memory, of uniform bins and all in one, in updates a second.

    One copy for each work-group in local memory and one for the device in global memory, so that a rate is that of the
    atomic and not of a plan. Updates that a device lacks are left out.
    """
    size = (1 if bench.quick else 8) * MIB
    rng = np.random.default_rng(1)
    spread_out = cl_array.to_device(bench.queue, rng.integers(0, bins, size, dtype=np.int32))
    in_one = cl_array.zeros(bench.queue, size // 16, np.int32)
    rates = {}
    for name, operator in UPDATES.items():
        kernel = HistogramKernel(
            bench.context, operator, arguments="const int *bins, value_t value", map="EMIT(bins[i], value)"
        )
        for memory in MEMORIES:
            for contention, x in (("low", spread_out), ("high", in_one)):
                choices: dict[str, Any] = {"memory": memory, "update": name.split()[0], "copies": 1}
                try:
                    # A device that lacks the update has no such plan.
                    kernel.plan(x.size, bins, queue=bench.queue, **choices)
                except ValueError:
                    continue
                samples = []
                # On a single locked bin, every update takes microseconds: use fewer elements.
                if name == "lock":
                    x = x[: max(x.size // 64, _LEAST_LOCKED)]
                for _ in range(bench.runs):
                    _, stages = kernel.timed(x, _VALUE, num_bins=bins, queue=bench.queue, **choices)
                    samples.append(x.size / stages["sweep"] / 1e9)
                where = "all in one bin" if contention == "high" else f"{bins} uniform bins"
                method = f"{x.size} updates, {where}, one copy"
                rates[f"{name}, {memory}, {contention} contention"] = Measurement.median(samples, "G/s", method)
    return rates
