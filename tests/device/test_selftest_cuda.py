"""The self-test through CUDA: the same checks, on arrays in its memory, launched by a fake of its driver."""

from __future__ import annotations

import cuda_fake
import pytest
from click.testing import CliRunner

from clhist._core.opencl.device import default_queue
from clhist.cli.main import main
from clhist.selftest.checks import HOLDS, UNAVAILABLE, WRONG
from clhist.selftest.suite import cuda_checks

pytestmark = pytest.mark.usefixtures("without_optimizer")

CHOSEN = {  # rows, and what comes of them
    ("native, local", "int32"): HOLDS,
    ("cas, global", "float32"): HOLDS,
    ("private, local", "float32"): HOLDS,
    ("carry, global", "words"): HOLDS,
    ("lock, local", "struct"): UNAVAILABLE,  # of which CuPy has no arrays
    ("distributions", "as planned"): HOLDS,
    ("NaN and infinities", "as planned"): HOLDS,
    ("dest=, out=", "as planned"): HOLDS,
    ("several histograms", "as planned"): HOLDS,
    ("batches, ragged", "as planned"): HOLDS,
    ("vectors", "as planned"): HOLDS,
    ("streams", "as planned"): HOLDS,
    ("bincount", "as planned"): HOLDS,
    ("device arrays", "as planned"): UNAVAILABLE,
}


@pytest.mark.parametrize("place", CHOSEN, ids=str)
def test_checks(place, monkeypatch):
    cuda, _ = cuda_fake.install(monkeypatch)
    chosen = [check for check in cuda_checks(default_queue().device) if (check.row, check.column) == place]
    assert chosen
    for check in chosen[:2]:
        outcome = check.run()
        assert outcome.status == CHOSEN[place], outcome.words
    assert bool(cuda.launched) == (CHOSEN[place] == HOLDS)


def test_a_wrong_launch_is_found(monkeypatch):
    cuda, _ = cuda_fake.install(monkeypatch)
    (check,) = (
        each for each in cuda_checks(default_queue().device) if each.row == "lengths" and "GPU" not in each.column
    )
    assert check.run().status == HOLDS
    cuda.is_broken = True
    assert check.run().status == WRONG


def test_the_command(monkeypatch):
    cuda, _ = cuda_fake.install(monkeypatch)
    checks = [each for each in cuda_checks(default_queue().device, quick=True) if each.row == "lengths"]
    monkeypatch.setattr("clhist.selftest.suite.cuda_checks", lambda device, quick: checks)
    done = CliRunner().invoke(main, ["selftest", "--cuda", "--jobs", "1"])
    assert done.exit_code == 0, done.output
    assert "by CUDA" in done.output
    cuda.is_broken = True
    done = CliRunner().invoke(main, ["selftest", "--cuda", "--jobs", "1"])
    assert done.exit_code == 1
    assert "wrong:" in done.output


def test_without_cuda_the_command_says_what_is_missing():
    if "nvidia" in default_queue().device.vendor.lower():
        pytest.skip("CUDA has this device")
    done = CliRunner().invoke(main, ["selftest", "--cuda"])
    assert done.exit_code != 0
    assert "--cuda: expected" in done.output + getattr(done, "stderr", "")


def test_options_that_do_not_go_with_cuda():
    done = CliRunner().invoke(main, ["selftest", "--cuda", "--only", "3"])
    assert done.exit_code == 2
    assert "--cuda: expected without --soak and --only" in done.output + getattr(done, "stderr", "")
