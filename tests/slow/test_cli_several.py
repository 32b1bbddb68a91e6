"""`clhist hist` of several files: patterns, several devices, and the workers of a Dask cluster."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner
from commands import refused, run_hist

from clhist.cli.main import main

pytestmark = pytest.mark.slow


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(8)
    for k in range(4):
        x = rng.normal(size=3000).astype(np.float32)
        x[::50] = np.nan
        names = np.array(["z", "b", "aa", "only here"][: 3 + (k == 2)])  # which are met in another order in each file
        np.savez(
            tmp_path / f"{k}.npz", x=x, w=rng.random(3000), g=rng.integers(k - 1, 3, 3000), name=rng.choice(names, 3000)
        )
    nothing = np.zeros(0, np.float32)
    np.savez(tmp_path / "none.npz", x=nothing, w=np.zeros(0), g=np.zeros(0, int), name=np.zeros(0, "U2"))
    return tmp_path


def found(*arguments):
    return json.loads(run_hist(*arguments, "--json").stdout)


@pytest.mark.parametrize(
    "options",
    [
        ("--column", "x", "--range", -1, 1),
        ("--column", "x", "--bins", "-1,0,2", "--weights", "w"),
        ("--column", "x", "--column", "w", "--range", 0, 1, "--where", "g < 2"),
        ("--column", "x", "--by", "name", "--bins", 7, "--where", "w > 0.1"),
        ("--column", "x", "--by", "g", "--weights", "w", "--log"),
    ],
    ids=str,
)
def test_devices_and_workers_count_the_same(options, files):
    distributed = pytest.importorskip("distributed", reason="Dask is not installed")
    expected = found(*sorted(files.glob("*.npz")), *options)
    one = found(files / "*.npz", *options)
    for key in ("counts", "edges", "rows", "missing", "outside", "inside", "groups"):
        assert one.get(key) == expected.get(key)
    several = found(files / "*.npz", *options, "--devices", "all")
    np.testing.assert_allclose(several["counts"], expected["counts"])
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0"
    ) as cluster:
        workers = found(files / "*.npz", *options, "--scheduler", cluster.scheduler_address)
    np.testing.assert_allclose(workers["counts"], expected["counts"])
    for key in ("rows", "missing", "outside", "inside", "edges", "groups"):
        assert workers.get(key) == several.get(key) == expected.get(key)


def test_groups_by_several_devices(files):
    options = ("--column", "x", "--by", "g", "--bins", 7)
    one, other = found(files / "*.npz", *options), found(files / "*.npz", *options, "--devices", "all")
    assert one["counts"] == other["counts"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--column", "x", "--scheduler", "tcp://127.0.0.1:1", "--range", "0", "1"),
            "expected a Dask scheduler at tcp",
        ),
        (("--column", "x", "--scheduler", "a", "--bins", "auto"), "--scheduler: expected a number or edges as --bins"),
        (("--column", "x", "--devices", "all", "--stat", "mean"), "--devices: expected counts or sums of weights"),
        (("--column", "x", "--devices", "all", "--scheduler", "a"), "--devices: expected no --scheduler"),
    ],
)
def test_bad_input(options, message, files):
    refused(CliRunner().invoke(main, ["hist", str(files / "*.npz"), *options]), message)
    refused(CliRunner().invoke(main, ["hist", str(files / "*.parquet")]), "which matches none")
