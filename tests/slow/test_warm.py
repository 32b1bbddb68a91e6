"""`clhist warm` in processes of its own, whose kernels later processes load from disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import clhist
from clhist.selftest.checks import HOLDS


@pytest.fixture
def environment(tmp_path):
    return os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache"), "POCL_CACHE_DIR": str(tmp_path / "pocl")}


def warm(environment, *options):
    command = [sys.executable, "-m", "clhist", "warm", "--json", *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def programs(values):
    """Return the names of the stored programs."""
    return sorted(path.name for path in Path(values["caches"]["clhist"]).glob("programs/*"))


def test_a_second_run_compiles_nothing(environment):
    values = warm(environment, "--quick", "--jobs", "2")
    assert [call["status"] for call in values["calls"]] == [HOLDS] * 3
    assert values["jobs"] == 2
    stored = programs(values)
    assert stored
    assert programs(warm(environment, "--quick", "--jobs", "1")) == stored
    code = "import numpy as np, clhist; clhist.bincount(np.arange(2_000_000) % 900)"
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=300)
    assert programs(values) == stored


def test_all_common_calls(environment):
    values = warm(environment)
    assert [call for call in values["calls"] if call["status"] != HOLDS] == []
    stored = programs(values)
    code = """
import numpy as np, clhist
k, x = np.arange(1_500_000) % 700, np.random.default_rng(0).normal(size=1_500_000)
clhist.histogram(x, bins=64)
clhist.reduce_by_index(700, "max", k, x)
clhist.group_by(k).median(x)
clhist.group_by(k).agg(a=(x, "mean"), b=(x, "std"), c=(x, "min"), d=(x, "max"), e=(x, "sum"))
clhist.unique(k)
clhist.stats.binned_statistic(x, x, "mean", 40)
"""
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=600)
    assert programs(values) == stored


def test_a_device_by_name(environment):
    platform = clhist.default_queue().device.platform.name.strip()
    values = warm(environment, "--quick", "--jobs", "1", "--platform", platform)
    assert values["platform"] == platform
