"""`clhist bench` on few elements: what it checks, prints and writes. Nothing here depends on how fast anything is."""

import sys
from dataclasses import replace

import numpy as np
import pytest
from commands import refused, runner, with_json

from benchmarks import lab as bench_lab
from benchmarks.command import SUITES
from benchmarks.engines import PROBLEMS as ENGINES
from benchmarks.operators import OPERATORS
from benchmarks.peer import Peer
from benchmarks.peer_problems import PROBLEMS
from benchmarks.sizes import PROBLEMS as SIZES
from clhist._core.opencl.device import profile_context

run = runner("bench")


DISTRIBUTIONS = ("--distribution", "half", "--distribution", "sorted")


@pytest.fixture(autouse=True)
def brief(monkeypatch):
    """Spend little on each thing."""
    monkeypatch.setattr("clhist.cli.timing._SECONDS", 0.005)
    monkeypatch.setattr("clhist.cli.timing._LOOP_SECONDS", 0.001)
    monkeypatch.setattr("benchmarks.sizes._SECONDS", 0.005)


@pytest.fixture
def measured(tmp_path):
    """Return a function that runs the command and returns its output and its JSON."""
    return with_json(run, tmp_path / "bench.json")


@pytest.fixture
def as_gpu(gpu_like):
    """Let all be planned as for a small GPU, which shares copies."""
    with profile_context(gpu_like):
        yield


def assert_samples(samples):
    each = samples["samples"]
    assert min(each) > 0
    assert samples["median"] == np.median(each)
    assert samples["spread"] == pytest.approx((max(each) - min(each)) / np.median(each))


def test_a_row_for_each_operator_bins_and_race_factor(measured):
    every = [argument for name in OPERATORS for argument in ("--op", name)]
    output, record = measured("-n", "5e3", "-H", "17", "-H", "300", *every, "--race-factor", "1", "--race-factor", "5")
    keys = ("op", "num_bins", "race_factor")
    expected = {(name, bins, rf) for name in OPERATORS if name != "count8" for bins in (17, 300) for rf in (1, 5)}
    rows = {tuple(row[key] for key in keys): row for row in record["rows"]}
    assert len(record["rows"]) == len(rows)
    assert rows.keys() == expected | {("count8", 256, 1), ("count8", 256, 5)}
    for row in rows.values():
        assert "note" not in row
        for key in ("kernel", "call", "host", "floor"):
            assert_samples(row[key])
        floor = row["floor"]["median"]
        assert row["kernel_per_floor"] == row["kernel"]["median"] / floor
        assert row["call_per_floor"] == row["call"]["median"] / floor
        assert row["bytes_per_second"] == row["bytes"] / row["kernel"]["median"]
        assert row["plan"]["race_factor"] == row["race_factor"], "the plan is told"
    assert {row["bytes"] for row in rows.values()} == {5000, 20000, 20224 + 20000}
    assert rows["sat", 17, 1]["plan"]["update"] == "cas"
    names = "H op bins are RF plan kernel µs spread call µs spread kernel/F call/F GB/s"
    lines = output.splitlines()
    header = next(n for n, line in enumerate(lines) if line.split() == names.split())
    table = [line.split() for line in lines[header + 1 : header + 1 + len(rows)]]
    assert {line.pop(2) for line in table} == {"uniform"}
    assert {(line[1], int(line[0]), int(line[2])) for line in table} == set(rows)
    assert [line[1] for line in table] == sorted((line[1] for line in table), key=list(OPERATORS).index)
    for line in table:
        plan = rows[line[1], int(line[0]), int(line[2])]["plan"]
        assert line[3:7] == [plan["update"], plan["memory"], f"M={plan['copies']}", f"S={plan['passes']}"]
    assert "F, reading 0.02 MB once: " in output


def test_json_says_what_was_measured_where(measured, queue):
    output, record = measured("-n", "1000", "-H", "5", "--op", "count")
    assert record.keys() == {
        *("suite", "date", "complete", "device", "host", "profile", "versions"),
        *("num_elements", "bins", "operations", "race_factors", "rows"),
    }
    assert (record["suite"], record["complete"], record["num_elements"]) == ("operators", True, 1000)
    assert (record["bins"], record["operations"], record["race_factors"]) == ([5], ["count"], [1])
    assert record["device"]["name"] == queue.device.name.strip()
    assert record["device"]["driver"] == queue.device.driver_version.strip()
    assert record["versions"]["numpy"] == np.__version__
    assert output.startswith(f"1,000 elements on {queue.device.name.strip()}")


def test_the_plan_against_fixed_numbers_of_copies(measured, as_gpu):
    output, record = measured("--suite", "model", "-n", "4000", "-H", "2041", "--op", "count", "--op", "lock")
    cases = {(row["update"], row["plan"]["memory"], row["race_factor"]): row for row in record["rows"]}
    assert cases.keys() == {(u, m, rf) for u in ("native", "lock") for m in ("local", "global") for rf in (1, 63)}
    for (update, memory, _), row in cases.items():
        copies = [one["plan"]["copies"] for one in row["fixed"]]
        assert copies == [1 << k for k in range(len(copies))]
        assert {one["plan"]["update"] for one in row["fixed"]} == {update}
        assert {one["plan"]["memory"] for one in row["fixed"]} == {memory}
        if memory == "global":
            assert {one["plan"]["passes"] for one in row["fixed"]} == {1}
        best = min(one["kernel"]["median"] for one in row["fixed"])
        assert row["best"]["kernel"]["median"] == best
        assert row["behind"] == row["kernel"]["median"] / best - 1
        assert f"{row['behind']:+.0%}" in output
    assert {m for (u, m, _), row in cases.items() if u == "native" and row["is_taken"]} == {"local"}
    worst = max(record["rows"], key=lambda row: row["behind"])
    assert f"Worst of {len(cases)} cases in either memory: {worst['behind']:+.0%} against the best fixed M" in output


def test_peers_are_compared_on_arrays_of_their_kind(measured, beside):
    def count(x, bins):
        assert (x.dtype, x.size, bins) == (np.int32, 5000, 17)
        return np.bincount(x, minlength=bins)

    def broken(*arguments):
        raise RuntimeError("no such GPU")

    beside(
        Peer("on the host", {"count": count}),
        Peer("on a GPU", {"count": count}, on_device=True),
        Peer("of strategies", {"count": count}, chosen=lambda problem, bins: f"{problem} into {bins}"),
        Peer("broken", {"count": broken}),
        Peer("of another function", {"add": broken}),
    )
    output, record = measured("--suite", "peers", "-n", "5000", "-H", "17", "--op", "count")
    rows = {row["implementation"]: row for row in record["rows"]}
    ours = ["clhist, NumPy arrays", "clhist, device arrays"]
    assert list(rows) == [*ours, "on the host", "on a GPU", "of strategies", "broken"]
    assert rows["broken"]["note"] == "RuntimeError: no such GPU"
    assert rows["of strategies"]["strategy"] == "count into 17"
    assert "first" not in rows["of strategies"], "which tried all of them"
    for name in (*ours, "on the host", "on a GPU"):
        like = rows[ours[1] if name in (ours[1], "on a GPU") else ours[0]]
        assert_samples(rows[name]["call"])
        assert rows[name]["per_clhist"] == rows[name]["call"]["median"] / like["call"]["median"]
        assert rows[name]["first"] > 0
    assert all(name in output for name in rows)
    assert record["host"]["processor"] in output
    assert "Times as long as clhist takes:" in output
    assert "PYOPENCL_NO_CACHE=1 POCL_KERNEL_CACHE=0" in output


def test_every_public_function_beside_numpy(measured, beside):
    beside()
    _, record = measured("--suite", "peers", "-n", "3000", "-H", "1", "-H", "300")
    found = {(row["op"], row["num_bins"]) for row in record["rows"]}
    images = {("image8", 256), ("image8-smooth", 256), ("image16", 4096)}
    others = {(name, bins) for name in PROBLEMS for bins in (1, 300) if not name.startswith("image")}
    assert found == images | others
    for row in record["rows"]:
        assert "note" not in row
        assert_samples(row["call"])
        assert row["num_elements"] == {"image8": 12000, "image8-smooth": 12000, "image16": 6000}.get(row["op"], 3000)


def test_a_peer_that_takes_too_long_is_timed_once(measured, beside, monkeypatch):
    monkeypatch.setattr("benchmarks.peers.LONGEST", 0.0)
    beside(Peer("slow", {"count": lambda x, bins: np.bincount(x, minlength=bins)}))
    _, record = measured("--suite", "peers", "-n", "5000", "-H", "17", "--op", "count")
    for row in record["rows"]:
        assert len(row["call"]["samples"]) == 1
        assert row["note"] == "one call timed: it takes too long"


def test_other_edges_of_a_peer_are_noted(measured, beside):
    def moved(x, bins):
        found = np.histogram(x, bins, (0, 1))[0]
        found[0], found[1] = found[0] + 1, found[1] - 1
        return found

    beside(Peer("moved", {"histogram": moved}), Peer("lost", {"histogram": lambda x, bins: np.zeros(bins, int)}))
    _, record = measured("--suite", "peers", "-n", "5000", "-H", "10", "--op", "histogram", status=1)
    rows = {row["implementation"]: row for row in record["rows"]}
    assert rows["moved"]["note"].startswith("other edges than NumPy's: bin 0 is ")
    assert_samples(rows["moved"]["call"])
    assert rows["lost"]["note"].startswith("WRONG: bin 0 is 0, expected ")
    assert "call" not in rows["lost"]


def test_latency_of_each_function_and_kind_of_arrays(measured):
    output, record = measured("--suite", "latency")
    assert record["num_elements"] == 1000
    functions = ("HistogramKernel", "HistogramKernel, out=", "HistogramKernel, bound", "reduce_by_index", "bincount")
    assert [(row["function"], row["arrays"]) for row in record["rows"]] == [
        (function, arrays) for function in functions for arrays in ("device", "NumPy")
    ]
    for row in record["rows"]:
        assert_samples(row["host"])
        assert row["host"]["median"] <= row["call"]["median"]
        assert row["first"] > 0
    assert "host µs" in output


def test_each_distribution(measured):
    output, record = measured("-n", "8000", "-H", "40", "--op", "count", *DISTRIBUTIONS)
    assert [row["distribution"] for row in record["rows"]] == ["half in one", "sorted"]
    assert "half in one" in output
    _, record = measured("--suite", "skew", "-n", "8000", "-H", "40", "--op", "count", *DISTRIBUTIONS)
    assert [row["distribution"] for row in record["rows"]] == ["half in one"] * 2 + ["sorted"] * 2


def test_a_row_for_each_plan(measured, as_gpu):
    """None twice, the automatic one first, and all of them right."""
    output, record = measured("-n", "20k", "-H", "20000", "--op", "count", "--all-plans", "--distribution", "one")
    plans = [row["plan"] for row in record["rows"]]
    assert not any("note" in row for row in record["rows"])
    assert len({tuple(plan.values()) for plan in plans}) == len(plans)
    assert {plan["pass_order"] for plan in plans if plan["passes"] > 1} == {"in turn", "side by side"}
    assert {plan["counter_bits"] for plan in plans} == {None, 4, 8, 16}
    assert {plan["memory"] for plan in plans} == {"local", "global"}
    assert any(plan["partitions"] for plan in plans)
    assert "8-bit" in output
    assert "side by side" in output


def test_skewed_inputs_against_the_uniform_one(measured):
    output, record = measured("--suite", "skew", "-n", "8000", "-H", "40", "--op", "count")
    rows = {(row["distribution"], row["is_sampled"]): row for row in record["rows"]}
    distributions = ("uniform", "sorted", "zipf", "half in one", "all in one")
    assert list(rows) == [(name, sampled) for name in distributions for sampled in (False, True)]
    for (_, sampled), row in rows.items():
        uniform = rows["uniform", sampled]
        assert row["kernel_per_uniform"] == row["kernel"]["median"] / uniform["kernel"]["median"]
        assert row["call_per_uniform"] == row["call"]["median"] / uniform["call"]["median"]
        assert sampled or row["plan"]["race_factor"] == 1
    assert rows["all in one", True]["plan"]["race_factor"] == 40
    assert 1 < rows["uniform", True]["plan"]["race_factor"] < 2.5
    assert "sampled 40" in output


def test_groups_beside_numpy(measured):
    output, record = measured("--suite", "groups", "-n", "5000", "-H", "17")
    names = ["clhist, NumPy arrays", "clhist, device arrays", "NumPy"]
    for what in ("five statistics", "median"):
        rows = [row for row in record["rows"] if row["function"] == what]
        assert [row["implementation"] for row in rows][:3] == names
        for row in rows:
            assert_samples(row["call"])
            assert row["first"] > 0
        assert rows[0]["per_clhist"] == 1
    for columns in ("1 column", "8 columns"):
        rows = [row for row in record["rows"] if row["function"] == f"maximum of {columns}, any keys"]
        assert [row["implementation"] for row in rows] == [names[1], f"{names[1]}, Zipf keys"]
        for row in rows:
            assert_samples(row["call"])  # which a wrong result has not
    assert "five statistics" in output


def test_engines_beside_those_that_are_installed(measured):
    _, record = measured("--suite", "engines", "-n", "30000", "-H", "9")
    rows = {(row["function"], row["implementation"]): row for row in record["rows"]}
    assert {function for function, _ in rows} == {"boosting", "zones", "pairs", "frames"}
    assert_samples(rows["boosting", "scikit-learn"]["call"])


def test_sizes_beside_the_usual_tools(measured):
    output, record = measured("--suite", "sizes", "-n", "700", "-H", "9")
    rows = {(row["function"], row["num_elements"]): row for row in record["rows"]}
    assert rows.keys() == {(name, size) for name in SIZES for size in (100, 700)}
    for row in rows.values():
        assert_samples(row["call"])
        assert row["least"] == min(row["call"]["samples"])
        assert row["ratio"] == min(row["tool_call"]["samples"]) / row["least"]
        assert row["slow"] == (row["ratio"] < 0.9 and row["least"] - row["tool_least"] > 1e-5)
    assert "time of the tool / clhist's" in output
    number = sum(row["slow"] for row in rows.values())
    assert f"* {number} of {len(rows)} cells: below 0.9 and more than 10 µs slower" in output


def test_a_wrong_result_of_a_size_is_not_timed(measured, monkeypatch):
    monkeypatch.setattr("clhist.unique", lambda x: np.unique(x)[1:])
    output, record = measured("--suite", "sizes", "-n", "100", "-H", "9", "--op", "unique", status=1)
    (row,) = record["rows"]
    assert "least" not in row
    assert "\nunique, H = 9: WRONG: not as numpy\n" in output


def test_a_wrong_result_of_ours_is_not_timed(measured, monkeypatch):
    broken = replace(OPERATORS["count"], value="(i == 7 ? 2 : 1)")  # one element of 5000 counts twice
    monkeypatch.setitem(OPERATORS, "count", broken)
    output, record = measured("-n", "5000", "-H", "17", "--op", "count", status=1)
    (row,) = record["rows"]
    assert row["failed"]
    assert "kernel" not in row
    assert row["note"].endswith("; 1 of 17 bins differ")
    assert row["note"].startswith("WRONG: bin ")
    assert "Error: 1 of 1 rows are wrong or failed: see the notes below the table" in output


def test_a_wrong_result_of_ours_beside_peers_is_not_timed(measured, beside, monkeypatch):
    own = PROBLEMS["count"].ours
    monkeypatch.setitem(PROBLEMS, "count", replace(PROBLEMS["count"], ours=lambda x, bins: own(x[1:], bins)))
    beside()
    output, record = measured("--suite", "peers", "-n", "5000", "-H", "17", "--op", "count", status=1)
    for row in record["rows"]:
        assert row["failed"]
        assert "call" not in row
        assert row["note"].endswith("; 1 of 17 differ")
    assert "Error: 2 of 2 rows are wrong or failed" in output


def test_a_wrong_result_of_a_peer_is_not_timed(measured, beside):
    beside(Peer("wrong", {"count": lambda x, bins: np.zeros(bins)}))
    output, record = measured("--suite", "peers", "-n", "5000", "-H", "17", "--op", "count", status=1)
    assert "call" not in record["rows"][-1]
    assert "\nwrong, count, H = 17: WRONG: bin 0 is 0.0, expected " in output
    assert "Error: 1 of 3 rows are wrong or failed" in output


def test_what_would_take_too_long_is_left_out(measured, monkeypatch):
    monkeypatch.setattr(bench_lab.Lab, "_predicted", lambda *_: 125.0)
    output, record = measured("-n", "1000", "-H", "5", "--op", "sat")
    assert record["rows"][0]["note"] == "left out: about 125.0 s a call"
    assert "\nsat, uniform, H = 5, RF 1: left out: about 125.0 s a call\n" in output


def test_what_cannot_be_had_leaves_the_other_rows(measured, monkeypatch):
    own = bench_lab.Lab._plan

    def plan(lab, given, benched, choices):
        if benched.name == "add":
            raise MemoryError("not enough")
        return own(lab, given, benched, choices)

    monkeypatch.setattr(bench_lab.Lab, "_plan", plan)
    _, record = measured("-n", "1000", "-H", "5", "--op", "add", "--op", "count", status=1)
    assert record["rows"][0]["note"] == "MemoryError: not enough"
    assert_samples(record["rows"][1]["kernel"])


def test_ctrl_c_keeps_what_was_measured(measured, monkeypatch):
    own = bench_lab.Lab.measure

    def measure(lab, given, benched, **choices):
        if benched.name == "add":
            raise KeyboardInterrupt
        return own(lab, given, benched, **choices)

    monkeypatch.setattr(bench_lab.Lab, "measure", measure)
    output, record = measured("-n", "1000", "-H", "5", "--op", "count", "--op", "add", status=130)
    assert (record["complete"], [row["op"] for row in record["rows"]]) == (False, ["count"])
    assert "kernel µs" in output
    assert output.endswith("interrupted\n")


def test_a_plot_is_written(tmp_path):
    pytest.importorskip("matplotlib")
    file = tmp_path / "plot.png"
    result = run("-n", "1000", "-H", "5", "-H", "50", "--op", "count", "--op", "add", "--plot", str(file))
    assert result.exit_code == 0, result.output
    assert file.read_bytes().startswith(b"\x89PNG")


def test_a_plot_without_matplotlib_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    result = run("-n", "1000", "--plot", str(tmp_path / "plot.png"))
    assert result.exit_code == 2
    assert result.output == 'Error: --plot: needs matplotlib: pip install "clhist[plot]"\n'


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["-n", "0"], "'-n' / '--num-elements': expected a number from 1 to 2^31 - 1, got 0"),
        (["-n", "5e9"], "'-n' / '--num-elements': expected a number from 1 to 2^31 - 1, got 5e9"),
        (["-H", "-3"], "'-H' / '--num-bins': expected a number from 1 to 2^31 - 1, got -3"),
        (["-H", "many"], "'-H' / '--num-bins': expected a number such as 50000000, 50M, 5e7 or 64MiB, got 'many'"),
        (["--op", "xor"], "'--op': 'xor' is not one of 'count', 'add'"),
        (["--suite", "model", "--op", "add"], "--op: expected one of count, sat, lock for --suite model, got add"),
        (["--suite", "latency", "--op", "count"], "--op: expected none for --suite latency, got count"),
        (["--suite", "skew", "--race-factor", "63"], "--race-factor: expected none for --suite skew, got 63"),
        (["--suite", "model", "--distribution", "zipf"], "--distribution: expected none for --suite model, got zipf"),
        (["--suite", "skew", "--all-plans"], "--all-plans: expected none for --suite skew, got it"),
        (["--race-factor", "0.5"], "'--race-factor': expected a whole number, got '0.5'"),
        (["--json", "no/such/x.json"], "'--json': expected a file in a folder that exists, got"),
        (["--plot", "x.gif"], "'--plot': expected a file .png or .svg or .pdf, got 'x.gif'"),
    ],
)
def test_bad_options_are_usage_errors(arguments, text):
    refused(run(*arguments), f"Error: Invalid value for {text}")


def test_an_input_that_does_not_fit_the_device(monkeypatch):
    monkeypatch.setattr("benchmarks.inputs.InputSpec.nbytes", lambda *_: 2**60)
    refused(
        run("-n", "1000"),
        "Error: --num-elements: expected an input of at most ",
        f"got 1,000 elements of {2**60:,} bytes",
    )


def test_every_suite_has_its_defaults():
    for suite in SUITES.values():
        assert set(suite.default_operations) <= set(suite.operations) <= {*OPERATORS, *PROBLEMS, *ENGINES, *SIZES}
        assert suite.bins


def test_a_suite_without_its_library_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "boost_histogram", None)
    result = run("--suite", "hist", "-n", "1000")
    assert result.exit_code == 2
    assert result.output == 'Error: --suite hist: needs boost_histogram: pip install "clhist[hist]"\n'
