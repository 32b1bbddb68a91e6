"""`clhist bench` on few elements: what it checks and prints. Nothing here depends on how fast anything is."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from clhist.cli import bench as command
from clhist.cli.main import main
from clhist.cli.peers import Peer, peers


def run(*arguments):
    return CliRunner().invoke(main, ["bench", *arguments])


@pytest.mark.parametrize("operation", ["count", "add", "maximum"])
def test_every_implementation_is_timed(tmp_path, operation):
    file = tmp_path / "timings.json"
    result = run("-n", "5000", "-H", "17", "--op", operation, "--json", str(file))
    assert result.exit_code == 0, result.output
    rows = json.loads(file.read_text())
    names = [row["implementation"] for row in rows]
    assert names[:3] == ["clhist, NumPy arrays", "clhist, device arrays", "clhist, kernels alone"]
    assert names[3:] == [peer.name for peer in peers() if operation in peer.operations]
    assert all(0 < row["fastest"] <= row["median"] <= row["slowest"] for row in rows)
    assert all(name in result.output for name in names)


def test_a_wrong_result_is_not_timed(monkeypatch):
    wrong = Peer("wrong", ("count",), lambda operation, indices, values, bins: lambda: np.zeros(bins))
    monkeypatch.setattr(command, "peers", lambda: [wrong])
    result = run("-n", "5000", "-H", "17", "--op", "count")
    assert result.exit_code == 1
    assert "wrong is wrong" in result.output


def test_inputs_are_not_zeros_and_always_the_same():
    indices, values = command.Problem("add", 1000, 50).inputs()
    again, _ = command.Problem("add", 1000, 50).inputs()
    assert (indices == again).all()
    assert len(np.unique(indices)) > 40
    assert 0 < values.min() < values.max() < 1


def test_bad_options_are_usage_errors():
    assert run("-n", "0").exit_code == 2
    assert run("-H", "-3").exit_code == 2
