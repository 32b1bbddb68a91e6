"""`clhist bench --emulated`: the model's plan and others, with what they cost."""

import json
import subprocess
import sys

from emulated.places import ROOT


def bench(*words):
    line = [sys.executable, "-m", "clhist", "bench", *words]
    return subprocess.run(line, capture_output=True, text=True, cwd=ROOT, check=False, timeout=300)


def test_plans_and_their_counts():
    run = bench("--emulated", "gfx1100", "--op", "count", "-H", "500", "--distribution", "half", "--json", "-")
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert found["board"] == "AMD Radeon RX 7900 XTX"
    chosen, *others = found["rows"]
    assert chosen["is_chosen"]
    assert not any(row["is_chosen"] for row in others)
    assert {row["plan"]["memory"] for row in others} >= {"local", "global"}
    for row in found["rows"]:
        counts = row["counts"]
        # A count reads 4 bytes and makes one atomic operation, unless a hot bin is held.
        assert 0 < counts["instructions"] < 10
        assert counts["global_lines"] >= 4 / 128 * 0.99
        assert 0 <= counts["repeated"] <= counts["atomics"] <= 3.1
        assert counts["conflicts"] <= counts["local_cycles"]


def test_a_table():
    run = bench("--emulated", "gfx942", "--op", "add", "-H", "31")
    assert run.returncode == 0, run.stderr
    assert "AMD Instinct MI300X (gfx942), emulated" in run.stdout
    assert "conflicts" in run.stdout
    assert "*: the plan that the model chooses" in run.stdout
