"""One device against all of them: a stream of counts from the host, and from arrays on the devices.

`python -m benchmarks.devices` prints medians. Without several GPUs the cores of the processor are the devices.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import click
import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from clhist import MultiAccumulator
from clhist._core.opencl.several import device_name, queues_of

BINS = 1000
_ONES = 1


def queues() -> list[cl.CommandQueue]:
    """Return a queue for each GPU; where there are not two of them, for each core of the default device."""
    all_queues = queues_of("all")
    cores = all_queues[0].device
    if len(all_queues) > 1 or cores.type != cl.device_type.CPU or cores.max_compute_units < 2:
        return all_queues
    one_each: list[Any] = [cl.device_partition_property.EQUALLY, 1]
    return queues_of(cores.create_sub_devices(one_each))


def from_host(used: Sequence[cl.CommandQueue], x: np.ndarray) -> Callable[[], Any]:
    """Return what counts NumPy's elements by some devices."""
    stream = MultiAccumulator("count", BINS, queues=used)

    def run() -> Any:
        stream.add(x, _ONES)
        return stream.result()

    return run


def from_devices(used: Sequence[cl.CommandQueue], x: np.ndarray, passes: int) -> Callable[[], Any]:
    """Return what counts halves of the elements, each as many times as there are passes, where they are."""
    stream = MultiAccumulator("count", BINS, queues=used)
    halves = [cl_array.to_device(used[k % len(used)], part) for k, part in enumerate(np.array_split(x, 2))]

    def run() -> Any:
        stream.extend((half, _ONES) for _ in range(passes) for half in halves)
        return stream.result()

    return run


def compare(calls: Sequence[Callable[[], Any]], expected: np.ndarray, rounds: int) -> list[float]:
    """Return the median seconds of each, which take turns; what they add is checked."""
    seconds: list[list[float]] = [[] for _ in calls]
    before = [run() for run in calls]
    for _ in range(rounds):
        for k, run in enumerate(calls):
            start = time.perf_counter()
            total = run()
            seconds[k].append(time.perf_counter() - start)
            np.testing.assert_array_equal(total - before[k], expected)
            before[k] = total
    return [median(times) for times in seconds]


@click.command()
@click.option("-n", "size", type=int, default=1_000_000_000, show_default=True, help="Elements, of int32.")
@click.option("--passes", type=int, multiple=True, default=(1, 16, 64), help="Over arrays on the devices. Repeatable.")
@click.option("--rounds", type=int, default=5, show_default=True)
def main(size: int, passes: tuple[int, ...], rounds: int) -> None:
    """Print the median milliseconds of one device and of two."""
    used = queues()[:2]
    click.echo(", ".join(map(device_name, used)))
    x = np.random.default_rng(0).integers(0, BINS, size, np.int32)
    counts = np.bincount(x, minlength=BINS)
    for number in (0, *passes):
        streams = [from_devices(of, x, number) if number else from_host(of, x) for of in (used[:1], used)]
        one, two = (1e3 * duration for duration in compare(streams, max(1, number) * counts, rounds))
        name = f"devices, {number} passes" if number else "host"
        click.echo(f"{name:20s} one {one:10.2f} ms, {len(used)} together {two:10.2f} ms: {one / two:.2f}")


if __name__ == "__main__":
    main()
