"""Groups of a table on three worker processes of Dask, one of which is killed half-way.

    python -m benchmarks.dask_workers [--rows 100000000] [--partitions 100] [--groups 1000] [--memory 1GB]

The table is made by partitions, with about as much memory in all as the limit of one worker or more. The result is
compared with that of one process, partition by partition, and the command fails if it differs.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time

import numpy as np

_ROW_BYTES = 24  # two columns of keys and one of values


def partition(number: int, rows: int, groups: int):
    """Return one partition of the table."""
    import pandas

    rng = np.random.default_rng(number)
    return pandas.DataFrame(
        {"key": rng.integers(0, groups, rows), "part": np.full(rows, number % 2), "value": rng.random(rows)}
    )


def expected(partitions: int, rows: int, groups: int):
    """Return counts, sums and maxima by both keys, computed by NumPy partition by partition."""
    counts, sums, most = np.zeros(2 * groups, np.int64), np.zeros(2 * groups), np.full(2 * groups, -np.inf)
    for number in range(partitions):
        table = partition(number, rows, groups)
        key = table["key"].to_numpy() * 2 + table["part"].to_numpy()
        value = table["value"].to_numpy()
        counts += np.bincount(key, minlength=2 * groups)
        sums += np.bincount(key, value, 2 * groups)
        np.maximum.at(most, key, value)
    return counts, sums, most


def main() -> int:
    """Run it; return 1 if the result is wrong or no worker was killed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--partitions", type=int, default=100)
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--memory", default="1GB", help="memory limit of a worker")
    parser.add_argument("--workers", type=int, default=3)
    options = parser.parse_args()
    import dask.dataframe
    import distributed

    import clhist
    import clhist.dask

    rows = options.rows // options.partitions
    meta = partition(0, 1, options.groups).iloc[:0]
    make = {"rows": rows, "groups": options.groups, "meta": meta}
    cluster = distributed.LocalCluster(
        n_workers=options.workers, threads_per_worker=1, memory_limit=options.memory, dashboard_address=":0",
        silence_logs=50,
    )  # fmt: skip
    with cluster, distributed.Client(cluster) as client:
        clhist.dask.use_devices(client)
        table = dask.dataframe.from_map(partition, range(options.partitions), **make)
        result = clhist.group_by(table, "key", "part").agg(n="size", total=("value", "sum"), most=("value", "max"))
        start = time.perf_counter()
        future = client.compute(result)
        pids = client.run(os.getpid)
        while _done(client) < options.partitions // 2 and not future.done():
            time.sleep(0.05)
        is_killed, done = not future.done(), _done(client)
        if is_killed:
            os.kill(next(iter(pids.values())), signal.SIGKILL)
        frame = future.result()
        seconds = time.perf_counter() - start
    counts, sums, most = expected(options.partitions, rows, options.groups)
    used = counts > 0
    is_right = (
        (frame["n"].to_numpy() == counts[used]).all()
        and np.allclose(frame["total"], sums[used], rtol=1e-12)
        and (frame["most"].to_numpy() == most[used]).all()
    )
    total = rows * options.partitions
    print(
        f"{total:,} rows ({total * _ROW_BYTES / 1e9:.1f} GB), {options.workers} workers of {options.memory}: "
        f"{seconds:.1f} s; one worker killed after {done} tasks: {is_killed}; the result is "
        f"{'right' if is_right else 'WRONG'}"
    )
    return 0 if is_right and is_killed else 1


def _done(client) -> int:
    """Return how many tasks are in memory or have been released."""
    states = client.run_on_scheduler(lambda dask_scheduler: [task.state for task in dask_scheduler.tasks.values()])
    return sum(state in ("memory", "released") for state in states)


if __name__ == "__main__":
    sys.exit(main())
