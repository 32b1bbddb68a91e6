"""`clhist bench --rows` on few rows: what it checks, prints and writes."""

from contextlib import nullcontext

import numpy as np
import pytest
from commands import refused, runner, with_json

from benchmarks import lab as bench_lab
from benchmarks.peer import Peer
from clhist._core.opencl.device import profile_context

run = runner("bench")


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """Return a function that runs the command, spending little on it, and returns its output and its JSON."""
    monkeypatch.setattr("clhist.cli.timing._SECONDS", 0.005)
    monkeypatch.setattr("clhist.cli.timing._LOOP_SECONDS", 0.001)
    return with_json(run, tmp_path / "bench.json")


def assert_samples(samples):
    assert min(samples["samples"]) > 0
    assert samples["median"] == np.median(samples["samples"])


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_rows_of_values(measured, gpu_like, kind):
    asked = ("-n", "4k", "--bins", "300", "--rows", "1", "--rows", "5", "--rows", "64", "--distribution", "zipf")
    asked += ("--op", "add", "--op", "maximum", "--distribution", "uniform")
    with profile_context(gpu_like) if kind == "gpu" else nullcontext():
        output, record = measured(*asked)
    found = {(row["op"], row["components"], row["distribution"]) for row in record["rows"]}
    assert found == {(op, d, name) for op in ("add", "maximum") for d in (1, 5, 64) for name in ("zipf", "uniform")}
    for row in record["rows"]:
        assert "note" not in row
        assert row["bytes"] == 16_128 + 4 * 4000 * row["components"], "the weights begin at a multiple of 256"
        assert_samples(row["kernel"])
        assert_samples(row["call"])
    assert "maximum, rows of 64" in output
    _, record = measured("--rows", "64", "-H", "300", "--all-plans", "-n", "2k")
    assert {row["op"] for row in record["rows"]} == {"add"}
    assert not any("note" in row for row in record["rows"])


def test_rows_beside_peers(measured, beside):
    def summed(x, v, bins):
        assert (x.shape, v.shape, v.dtype) == ((3000,), (3000, 7), np.float32)
        found = np.zeros((bins, 7))
        np.add.at(found, x, v)
        return found

    def wrong(x, v, bins):
        found = summed(x, v, bins)
        found[3, 6] += 1
        return found

    right, other = Peer("right", {}, of_rows={"add": summed}), Peer("wrong", {}, of_rows={"add": wrong})
    beside(right, other, Peer("of no rows", {"add": summed}))
    ask = ("--suite", "peers", "-n", "3000", "-H", "40", "--rows", "7")
    output, record = measured(*ask, status=1)
    rows = {row["implementation"]: row for row in record["rows"]}
    assert list(rows) == ["clhist, NumPy arrays", "clhist, device arrays", "right", "wrong"]
    assert {(row["op"], row["components"], row["num_elements"]) for row in record["rows"]} == {("add", 7, 3000)}
    assert rows["wrong"]["note"].startswith("WRONG: component 6 of bin 3 is ")
    for name in list(rows)[:3]:
        assert_samples(rows[name]["call"])
    assert "add, rows of 7" in output
    beside()
    _, record = measured(*ask, "--op", "mean")
    assert not any("note" in row for row in record["rows"])


def test_rows_are_as_many_values_as_there_would_be(measured, monkeypatch):
    monkeypatch.setattr("benchmarks.command._ELEMENTS", {"cpu": 64_000, "gpu": 64_000})
    _, record = measured("--rows", "32", "-H", "40")
    assert [row["num_elements"] for row in record["rows"]] == [2000]


def test_a_lost_update_of_rows_is_found(measured, monkeypatch):
    monkeypatch.setattr("benchmarks.inputs._MOST_CHECKED", 1)  # the first component and the last
    own = bench_lab.difference
    monkeypatch.setattr(bench_lab, "difference", lambda got, expected: own(got + (np.arange(got.size) == 7), expected))
    output, record = measured("--rows", "5", "-n", "2k", "-H", "40", status=1)
    assert record["rows"][0]["note"].startswith("WRONG: component 0 of bin 7 is ")
    assert "kernel" not in record["rows"][0]
    assert "add, rows of 5, uniform, H = 40, RF 1: WRONG" in output


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--rows", "0"], "'--rows': expected a number from 1 to 2^31 - 1, got 0"),
        (["--suite", "skew", "--rows", "8"], "--rows: expected none for --suite skew, got 8"),
        (["--rows", "8", "--op", "lock"], "--op: expected one of add, maximum for --suite operators with --rows, got"),
        (
            ["--suite", "peers", "--rows", "8", "--op", "count"],
            "--op: expected one of add, mean for --suite peers with",
        ),
        (["--bins", "none"], "'-H' / '--num-bins': expected a number such as 50000000, 50M, 5e7 or 64MiB, got 'none'"),
        (["--emulated", "gfx942", "--rows", "8"], "--rows: expected none with --emulated, got (8,)"),
    ],
)
def test_bad_options_are_usage_errors(arguments, text):
    refused(run(*arguments), f"Error: Invalid value for {text}")
