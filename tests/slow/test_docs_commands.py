"""Commands of README and documentation run as they stand; those that take minutes are in CI stages of their own."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import numpy as np
import pytest
from documents import pages, pasted

from clhist.cases.tpacf_data import clustered_catalogue, random_catalogue

# `bench`, `strategies`, `selftest`, `warm` and `calibrate` have tests of their own (tests/slow, .ci/run); a page's
# capitals stand for a file of the reader's.
LONG = {"bench", "strategies", "calibrate", "report"}
FOR_THE_READER = re.compile(r"FILE|NAME|\.\.\.$")


def runnable(arguments: list[str]) -> bool:
    """Whether a command takes seconds and needs nothing but the files below."""
    if arguments[0] in LONG or any(FOR_THE_READER.search(each) for each in arguments):
        return False
    return arguments[0] not in ("selftest", "warm") or "--quick" in arguments


COMMANDS = {shlex.join(arguments): arguments for page in pages() for arguments in pasted(page) if runnable(arguments)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The files that the pages name."""
    pd = pytest.importorskip("pandas", reason="pandas is in the extra test")
    image = pytest.importorskip("PIL.Image", reason="Pillow is in the extra image")
    where = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(0)
    columns = {
        "pt": rng.exponential(40, 5000),
        "eta": rng.normal(size=5000),
        "charge": rng.choice([-1, 1], 5000),
        "energy": rng.normal(50, 5, 5000),
        "x": rng.normal(size=5000),
        "y": rng.normal(size=5000),
        "q": rng.choice([0, 1], 5000),
        "w": rng.uniform(0.5, 1.5, 5000),
    }
    table = pd.DataFrame(columns)
    for name in ("data", "events"):
        table.to_csv(where / f"{name}.csv", index=False)
        table.to_parquet(where / f"{name}.parquet")
    for name in ("events", "run1", "run2"):
        np.savez(where / f"{name}.npz", **columns)
    np.savez(where / "rain.npz", rain=rng.gamma(2.0, 3.0, 5000), station=rng.integers(0, 5, 5000))
    np.save(where / "energies.npy", rng.uniform(1, 100, (5000, 2)))
    np.savetxt(where / "points.csv", rng.random((5000, 2)), delimiter=",")
    for name in ("holiday.jpg", "scan.tiff", "photo.png"):
        image.fromarray(rng.integers(0, 256, (60, 80, 3), np.uint8)).save(where / name)
    for name in ("ct.png", "mr.png"):
        image.fromarray(rng.integers(0, 256, (60, 80), np.uint8)).save(where / name)
    np.savetxt(where / "galaxies.csv", clustered_catalogue(300, rng), delimiter=",")
    for k in range(2):
        np.savetxt(where / f"random-{k}.csv", random_catalogue(300, rng), delimiter=",")
    return where


def test_there_are_such_commands():
    assert len(COMMANDS) >= 20
    assert {arguments[0] for arguments in COMMANDS.values()} >= {"hist", "info", "plan", "selftest", "gromacs", "tpacf"}


@pytest.mark.parametrize("command", COMMANDS)
def test_it_runs(command, folder):
    arguments = [  # as a shell expands them
        match for each in COMMANDS[command] for match in (sorted(p.name for p in folder.glob(each)) or [each])
    ]
    done = subprocess.run(
        [sys.executable, "-m", "clhist", *arguments], cwd=folder, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout
    for option in ("--plot", "--output"):
        if option in arguments:
            assert (folder / arguments[arguments.index(option) + 1]).stat().st_size > 100
