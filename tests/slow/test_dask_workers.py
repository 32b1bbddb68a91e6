"""Dask's workers in processes of their own, and partial results of two OpenCL runtimes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyopencl as cl
import pytest
from processes import LONGEST

pytest.importorskip("dask", reason="Dask is not installed")
distributed = pytest.importorskip("distributed", reason="distributed is not installed")
da = pytest.importorskip("dask.array")

import clhist  # noqa: E402
import clhist.dask as on_dask  # noqa: E402
from clhist.selftest.cases import CASES, PRODUCTS, problem  # noqa: E402

pytestmark = pytest.mark.slow
same = np.testing.assert_array_equal


def _slow(block):
    time.sleep(0.2)
    return block


def cluster_of(workers):
    return distributed.LocalCluster(
        n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=":0", silence_logs=50
    )


def _cores():
    return clhist.default_queue().device.max_compute_units


@pytest.mark.filterwarnings("ignore")
def test_a_killed_worker_changes_nothing(rng):
    x = rng.integers(0, 100, 400_000)
    with cluster_of(2) as cluster, distributed.Client(cluster) as client:
        named = on_dask.use_devices(client)
        assert len(named) == 2
        if clhist.default_queue().device.type == cl.device_type.CPU:  # each has as many cores as threads
            assert len(set(named.values())) == 1
            assert {name.rpartition(", ")[2] for name in named.values()} == {"1 core"}
            assert set(client.run(_cores).values()) == {1}
        lazy = da.from_array(x, chunks=20_000).map_blocks(_slow)
        for minlength in (100, 100_000):
            future = client.compute(on_dask.bincount(lazy, minlength=minlength, split_every=4))
            time.sleep(1)
            pid = next(iter(client.run(os.getpid).values()))
            os.kill(pid, signal.SIGKILL)
            same(future.result(timeout=100), np.bincount(x, minlength=minlength))


@pytest.mark.filterwarnings("ignore")
def test_eight_workers(rng):
    x, w = rng.integers(0, 100, 50_000), rng.random(50_000)
    with cluster_of(8) as cluster, distributed.Client(cluster) as client:
        dx, dw = (da.from_array(array, chunks=1_250) for array in (x, w))
        expected = clhist.reduce_by_index(100, np.add, x, w, reproducible=True)
        found = clhist.reduce_by_index(100, np.add, dx, dw, reproducible=True)
        same(client.compute(found).result(timeout=100), expected)
        found = clhist.reduce_by_index(100, "argmax", dx, dw)
        same(client.compute(found).result(timeout=100), clhist.reduce_by_index(100, "argmax", x, w))


MAKE = """
import sys, numpy as np, clhist
from clhist.selftest.cases import CASES, PRODUCTS, problem
print(clhist.default_queue().device.platform.name)
for name, case in sorted((CASES | PRODUCTS).items()):
    bins, values, _ = problem(name)
    clhist.Spec(case.operator, 37).partial(bins[:1000], values[:1000], start=0).save(f"{sys.argv[-1]}/{name}.npz")
"""


def test_partial_results_of_two_runtimes_in_two_processes(tmp_path):
    """PoCL's and Intel's, by files: without pickles, and without code."""
    runtimes = [None, str(Path(sys.prefix) / "lib" / "libintelocl.so")]
    if os.environ.get("OCL_ICD_VENDORS"):
        runtimes.reverse()
    here = clhist.default_queue().device.platform.name
    environment = {**os.environ, "OCL_ICD_VENDORS": runtimes[1] or ""}
    if not environment["OCL_ICD_VENDORS"]:
        del environment["OCL_ICD_VENDORS"]
        environment["PYOPENCL_CTX"] = "Portable"  # PoCL, not the fastest runtime
    run = subprocess.run(
        [sys.executable, "-c", MAKE, str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=LONGEST,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    if run.stdout.strip() == here:
        pytest.skip("there is one OpenCL runtime")
    for name, case in (CASES | PRODUCTS).items():
        bins, values, check = problem(name)
        spec = clhist.Spec(case.operator, 37)
        own = spec.partial(bins[1000:], values[1000:], start=1000)
        check(spec.result(clhist.merge([own, spec.load(tmp_path / f"{name}.npz")])))
