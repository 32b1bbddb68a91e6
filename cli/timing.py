"""Timing: what the device took by its events, and whole calls in a pipelined loop."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np
import pyopencl as cl

from clhist._core.opencl.device import device_kind
from clhist.calibration.measure import Bench, spread_of

_SECONDS = 0.5  # about what is spent on one thing, between the least and the most runs
_LOOP_SECONDS = 0.02
_MOST_CALLS = 100


@dataclass(frozen=True)
class Samples:
    """The seconds of several runs."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """Their median."""
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """The largest less the smallest, relative to the median."""
        return spread_of(self.seconds)

    def record(self) -> dict[str, Any]:
        """Return the record for JSON."""
        return {"median": self.median, "spread": self.spread, "samples": list(self.seconds)}


@dataclass(frozen=True)
class Calls:
    """The seconds of a call in a pipelined loop: until the last is complete, and until it returns to the caller; and of
    what was measured in turns with the loops."""

    whole: Samples
    host: Samples
    beside: Samples


def repeated(once: Callable[[], float], about: float, *, least: int = 3, most: int = 15) -> Samples:
    """Return what `once` returns, of as many runs as fit half a second if each takes `about` so many seconds."""
    return Samples(tuple(once() for _ in range(_runs(about, least=least, most=most))))


def _runs(about: float, *, least: int, most: int) -> int:
    return max(least, min(most, int(_SECONDS / max(about, 1e-9))))


def pipelined(
    call: Callable[[], Any], finish: Callable[[Any], Any], beside: Callable[[], float] | None = None
) -> Calls:
    """Return the seconds of a call: many are enqueued, then one `finish` waits for all of them, divided.

    Parameters
    ----------
    call : callable
        Enqueues, or computes; must have been called before, so that all is built.
    finish : callable
        Gets what the last call returned, and comes back when everything is complete.
    beside : callable, optional
        Returns seconds; called twice between two loops, so that a slow moment of the machine slows both.
    """
    start = time.perf_counter()
    finish(call())
    about = max(1e-9, time.perf_counter() - start)
    # So many calls that one wait at the end weighs little.
    calls = max(1, min(_MOST_CALLS, int(_LOOP_SECONDS / about)))
    host, others = list[float](), list[float]()

    def loop() -> float:
        if beside is not None:
            others.extend((beside(), beside()))
        begin = time.perf_counter()
        for _ in range(calls):
            last = call()
        host.append((time.perf_counter() - begin) / calls)
        finish(last)
        return (time.perf_counter() - begin) / calls

    whole = repeated(loop, about * calls, most=9)
    return Calls(whole, Samples(tuple(host)), Samples(tuple(others)))


def interleaved(calls: Mapping[str, tuple[Callable[[], Any], Callable[[Any], Any], float]]) -> dict[str, Samples]:
    """Return the seconds of a call of each: they take turns, so that a slow moment of the machine slows all of them.

    Parameters
    ----------
    calls : mapping
        By name: what enqueues or computes, what waits until it is complete, and about how many seconds that takes.
    """
    loops = {
        name: max(1, min(_MOST_CALLS, int(_LOOP_SECONDS / max(about, 1e-9)))) for name, (_, _, about) in calls.items()
    }
    runs = {name: _runs(loops[name] * about, least=5, most=15) for name, (_, _, about) in calls.items()}
    rounds = max(runs.values(), default=0)
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for n in range(rounds):
        for name, (call, finish, _) in calls.items():
            if n * runs[name] // rounds == (n + 1) * runs[name] // rounds:
                # Slow calls take part in some rounds only.
                continue
            if loops[name] > 1:
                # Untimed: a GPU switches back from another library's context.
                finish(call())
            start = time.perf_counter()
            for _ in range(loops[name]):
                last = call()
            finish(last)
            seconds[name].append((time.perf_counter() - start) / loops[name])
    return {name: Samples(tuple(samples)) for name, samples in seconds.items()}


def read_floor(bench: Bench, buffers: Sequence[Any], nbytes: int) -> Samples:
    """Return F: the seconds that reading so many bytes of one of equal `buffers` takes, in turns."""
    kernel, device = bench.kernel("read"), bench.device
    # A few blocks for each core of a CPU; enough to occupy all lanes of other devices.
    cpu = device_kind(device) == "cpu"
    group = 1 if cpu else min(256, device.max_work_group_size)
    items = (4 if cpu else 8 * group) * device.max_compute_units
    sums = cl.Buffer(bench.context, cl.mem_flags.READ_WRITE, 4)
    turns = cycle(buffers)
    numbers = np.uint64(max(1, nbytes // 16)), np.uint32(1), np.uint32(cpu)

    def once() -> float:
        event = kernel(bench.queue, (items,), (group,), next(turns), *numbers, sums)
        event.wait()
        # A coarse clock may show no time at all, but callers divide by it.
        return max(1, event.profile.end - event.profile.start) * 1e-9

    return repeated(once, once())
