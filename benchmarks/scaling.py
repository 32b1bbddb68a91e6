"""The cost of a histogram on many workers: a simulation of the tree of tasks, and LocalCluster runs beside it.

    python -m benchmarks.scaling --workers 1 --workers 2

prints predicted and measured seconds for several numbers of bins. The rates are measured first, by small runs on the
cluster: of 8 blocks for each worker, and of tasks that do nothing.
"""

from __future__ import annotations

import heapq
import time
from dataclasses import dataclass
from math import ceil
from typing import Any

import click
import numpy as np


@dataclass(frozen=True)
class Rates:
    """The rates of one worker.

    Attributes
    ----------
    elements : float
        Elements per second that it counts.
    merged : float
        Bytes per second of partial results that it merges.
    sent : float
        Bytes per second between workers.
    task : float
        Seconds that the scheduler takes for a task, whatever it does; one at a time.
    start : float
        Seconds that a worker takes for a task beside its work.
    """

    elements: float
    merged: float
    sent: float
    task: float
    start: float = 0.0


@dataclass(frozen=True)
class Job:
    """The job that is simulated.

    Attributes
    ----------
    elements, bins : int
        N and H.
    bin_bytes, element_bytes : int
        Of an accumulator and of an element.
    block : int
        Elements of a block.
    workers : int
        How many there are.
    split_every : int
        Partial results that a task merges.
    """

    elements: int
    bins: int
    workers: int
    block: int = 8 << 20
    bin_bytes: int = 8
    element_bytes: int = 8
    split_every: int = 8


def depth(job: Job) -> int:
    """Return how many levels of merges there are."""
    level, parts = 0, ceil(job.elements / job.block)
    while parts > 1:
        level, parts = level + 1, ceil(parts / job.split_every)
    return level


def merged_bytes(job: Job) -> int:
    """Return the bytes of all partial results that are merged, of every level."""
    total, parts = 0, ceil(job.elements / job.block)
    while parts > 1:
        total, parts = total + parts * job.bins * job.bin_bytes, ceil(parts / job.split_every)
    return total


def predicted(job: Job, rates: Rates) -> float:
    """Return the seconds of the tree: whoever is free takes the next task that is ready, which the scheduler hands out.

    Of the inputs of a merge all but a share of 1 / workers come from elsewhere.
    """
    free = [0.0] * job.workers
    heapq.heapify(free)
    handed = 0.0

    def run(ready: float, seconds: float) -> float:
        nonlocal handed
        handed = max(handed, ready) + rates.task
        end = max(heapq.heappop(free), handed) + rates.start + seconds
        heapq.heappush(free, end)
        return end

    sizes = [min(job.block, job.elements - begin) for begin in range(0, job.elements, job.block)]
    made = [run(0.0, size / rates.elements) for size in sizes]
    part = job.bins * job.bin_bytes
    while len(made) > 1:
        groups = [made[k : k + job.split_every] for k in range(0, len(made), job.split_every)]
        merge_time = part / rates.merged + part * (1 - 1 / job.workers) / rates.sent
        made = [run(max(group), len(group) * merge_time) for group in groups]
    return made[0]


def predicted_shards(job: Job, rates: Rates, shards: int) -> float:
    """Return the seconds where pairs are sent to the bins instead: each is read, sorted by shard and sent once."""
    blocks = ceil(job.elements / job.block)
    pairs = job.elements * job.element_bytes / job.workers
    tasks = blocks + shards * ceil(blocks / job.split_every) * 2
    sort = 8 * job.elements / job.workers / rates.elements  # of NumPy, beside a count by the device
    sent = pairs * (1 - 1 / job.workers) / rates.sent
    return tasks * (rates.task + rates.start / job.workers) + sort + sent + job.elements / job.workers / rates.elements


def worth_shards(job: Job, rates: Rates, shards: int) -> bool:
    """Whether sending pairs is predicted to be faster than merging bins."""
    return predicted_shards(job, rates, shards) < predicted(job, rates)


def measured_rates(client: Any, block: int) -> Rates:
    """Return the rates of the workers of a client."""
    import dask

    def timed(function: Any) -> float:
        function()
        seconds = []
        for _ in range(3):
            start = time.perf_counter()
            function()
            seconds.append(time.perf_counter() - start)
        return float(np.median(seconds))

    def merges() -> float:
        import clhist

        part = _counted(0, 1, 1 << 20)
        return timed(lambda: clhist.merge([part, part], allow_repeat=True)) / 2

    # In the cluster, beside its scheduler: alone a worker may be twice as fast.
    few = 8 * len(client.run(int))
    elements = 8 * block / timed(lambda: client.compute(_tree(few, block, 1000)).result())
    merged = (8 << 20) / client.submit(merges, pure=False).result()
    idle = [dask.delayed(int, pure=False)(k) for k in range(200)]
    task = timed(lambda: client.compute(dask.delayed(sum)(idle)).result()) / 200
    tiny = _tree(48, 1, 1)  # of tasks that do nothing, but do it as the others
    around = timed(lambda: client.compute(tiny).result()) * len(client.run(int)) / 55
    payload = client.submit(np.ones, 4 << 20, pure=False)
    payload.result()
    sent = (32 << 20) / max(timed(lambda: payload.result()), 1e-6)
    return Rates(elements, merged, sent, task, around)


def _tree(blocks: int, block: int, bins: int) -> Any:
    """Return the number of bins that a tree of tasks has counted in."""
    import dask

    from clhist import merge
    from clhist.dask.tree import tree

    parts = [dask.delayed(_counted, pure=False)(k, block, bins) for k in range(blocks)]
    return dask.delayed(len)(tree(parts, merge).arrays)


_block: dict[tuple[int, int], np.ndarray] = {}


def _counted(number: int, block: int, bins: int) -> Any:
    from clhist.multi_device import counts_part

    if (block, bins) not in _block:
        _block[block, bins] = np.random.default_rng(0).integers(0, bins, block)
    return counts_part(_block[block, bins], None, bins)


@click.command()
@click.option("--workers", multiple=True, type=int, default=(1, 2), help="Processes of one thread. Repeatable.")
@click.option("--bins", multiple=True, type=int, default=(1_000, 100_000, 1_000_000), help="Repeatable.")
@click.option("--blocks", type=int, default=24)
@click.option("--block", type=int, default=1 << 20, help="Elements of a block.")
def main(workers: tuple[int, ...], bins: tuple[int, ...], blocks: int, block: int) -> None:
    """Print predicted and measured seconds."""
    from distributed import Client, LocalCluster

    from clhist.dask import use_devices

    click.echo(f"{'workers':>8}{'bins':>10}{'depth':>6}{'merged MB':>11}{'predicted s':>13}{'measured s':>12}")
    for number in workers:
        options = {"threads_per_worker": 1, "processes": True, "dashboard_address": None}
        with LocalCluster(n_workers=number, **options) as cluster, Client(cluster) as client:
            use_devices(client)  # a core for each
            client.run(_counted, 0, block, 1000)
            rates = measured_rates(client, block)
            for num_bins in bins:
                job = Job(blocks * block, num_bins, number, block=block)
                client.run(_counted, 0, block, num_bins)
                client.compute(_tree(blocks, block, num_bins)).result()
                seconds = []
                for _ in range(3):
                    start = time.perf_counter()
                    client.compute(_tree(blocks, block, num_bins)).result()
                    seconds.append(time.perf_counter() - start)
                click.echo(
                    f"{number:8}{num_bins:10,}{depth(job):6}{merged_bytes(job) / 1e6:11.1f}"
                    f"{predicted(job, rates):13.3f}{float(np.median(seconds)):12.3f}"
                )


if __name__ == "__main__":
    main()
