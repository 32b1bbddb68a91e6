"""`clhist plan`."""

import json
import os
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner
from commands import as_json, runner

from clhist.cli.main import main
from clhist.cli.plan import NUMBER

PAPER = ("--profile", "nvidia-geforce-rtx-2080-ti")
NUMBERS = ("local_memory", "l2_cache", "l2_line", "hardware_threads", "work_group_size")


run = runner("plan")


def plan(*arguments):
    return as_json(run(*arguments, "--json"))


@pytest.mark.parametrize(
    ("bins", "update", "memory", "race_factor", "copies", "passes"),
    [
        (31, "native", "local", 1, 8, 1),  # 396 in the paper: 8 are enough
        (2041, "lock", "local", 1, 2, 1),
        (49145, "cas", "local", 1, 1, 4),
        (49145, "lock", "local", 1, 1, 12),
        (12281, "native", "global", 1, 23, 1),
        (12281, "cas", "global", 63, 138, 1),
        (1572863, "lock", "global", 1, 1, 5),
        (1572863, "native", "global", 63, 1, 1),
    ],
)
def test_table_1_of_the_paper(bins, update, memory, race_factor, copies, passes):
    size = 8 if update == "lock" else 4  # argmax holds a pair
    options = ("--update", update, "--memory", memory, "--race-factor", str(race_factor), "--element-size", str(size))
    found = plan("-n", "50000000", "-H", str(bins), *options, *PAPER)
    assert (found["copies"], found["passes"], found["memory"]) == (copies, passes, memory)


def test_json_has_the_plan_and_its_steps():
    found = plan("-n", "50M", "-H", "12281", "--update", "cas", "--memory", "global", "--race-factor", "63", *PAPER)
    steps = found.pop("steps")
    assert found.pop("rates").startswith("scaled from NVIDIA H100")
    assert 0 < found.pop("seconds") < 1
    assert found == {
        "strategy": "global",
        "equal_shares": True,
        "output_indices": [],
        "refused": [],
        "pass_order": "in turn",
        "cyclic_passes": False,
        "is_one_launch": False,
        "memory": "global",
        "update": "cas",
        "copies": 138,
        "cooperation": 505,
        "passes": 1,
        "bins_per_pass": 12281,
        "work_group_size": 256,
        "work_groups": 272,
        "num_elements": 50_000_000,
        "num_bins": 12281,
        "race_factor": 63.0,
        "profile": "NVIDIA GeForce RTX 2080 Ti",
        "element_size": 4,
        "arrays": 1,
        "memory_budget": 2_750_000_000,
        "local_bytes": 0,
        "global_bytes": 138 * 12281 * 4,
        "bins": [12281],
        "num_histograms": 1,
        "teams": 1,
        "locks": None,
        "is_batch": False,
        "outputs": [],
    }
    assert {"symbol": "M", "value": 138, "equation": "(6)", "formula": "max(1, floor(T / C))"} in steps


def test_text_shows_every_step_with_its_equation(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = run(
        "-n", "50M", "-H", "12281", "--update", "cas", "--memory", "global", "--race-factor", "63", *PAPER
    ).output
    lines = text.splitlines()
    assert lines[0] == "50,000,000 elements into 12,281 bins on NVIDIA GeForce RTX 2080 Ti, update cas"
    assert "  RACE_exp  2.95312  (4)     max(1, k_RF RF / max(1, L2_line / avg))" in lines
    assert "  M             138  (6)     max(1, floor(T / C))" in lines
    assert "  copies (M)             138 on the device" in lines
    assert "  global memory          6.465 MiB (6,779,112 B) for 138 copies of all bins" in lines
    assert max(map(len, lines)) <= 80


def test_automatic_memory_shows_why_local_memory_is_left():
    assert plan("-n", "50M", "-H", "24569", *PAPER)["memory"] == "local"
    assert plan("-n", "50M", "-H", "1M", *PAPER)["partitions"] >= 82
    text = run("-n", "10k", "-H", "1M", *PAPER).output
    assert text.index("In global memory") < text.index("Predicted, in µs") < text.index("t_global")
    assert "S_max" not in text
    assert "Rates: scaled from NVIDIA H100" in text


def test_lock_takes_room_of_its_own():
    found = plan("-n", "1M", "-H", "100", "--update", "lock", "--memory", "local", "--element-size", "8", *PAPER)
    assert found["local_bytes"] == found["copies"] * 100 * 12
    assert found["global_bytes"] == found["work_groups"] * 100 * 8
    assert plan("-n", "1M", "-H", "50k", "--update", "lock", "--memory", "global", *PAPER)["global_bytes"] % 8 == 0


def test_private_is_forced():
    found = plan("-n", "1M", "-H", "16", "--update", "private", *PAPER)
    assert (found["update"], found["cooperation"]) == ("private", 1)
    assert plan("-n", "1M", "-H", "16", "--update", "private", "--memory", "local", *PAPER)["memory"] == "local"


def test_choices_are_forced():
    found = plan("-n", "1M", "-H", "4k", "--copies", "2", "--passes", "8", "--work-group-size", "128", *PAPER)
    assert (found["copies"], found["passes"], found["bins_per_pass"], found["work_group_size"]) == (2, 8, 500, 128)
    found = plan("-n", "50M", "-H", "12281", "--memory", "global", "--memory-budget", "1MiB", *PAPER)
    assert found["copies"] == 2**20 // (4 * 12281)


def test_profile_by_the_name_of_the_device():
    by_name = plan("-n", "1M", "-H", "100", "--profile", "nvidia geforce rtx 2080 ti")
    assert by_name == plan("-n", "1M", "-H", "100", *PAPER)


def test_cpu_takes_private_copies(tmp_path, monkeypatch):
    numbers = "".join(f'[{key}]\nvalue = 4096\nsource = "test"\n' for key in NUMBERS)
    (tmp_path / "my-cpu.toml").write_text(f'name = "My CPU"\nkind = "cpu"\nmatch = ["mine"]\n{numbers}')
    monkeypatch.setenv("CLHIST_PROFILES", str(tmp_path))
    found = plan("-n", "10M", "-H", "100", "--profile", "my-cpu")
    assert (found["profile"], found["update"], found["copies"]) == ("My CPU", "private", 4096)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("50000000", 50_000_000),
        ("50_000_000", 50_000_000),
        ("50,000,000", 50_000_000),
        ("50M", 50_000_000),
        ("50k", 50_000),
        ("1e6", 1_000_000),
        ("1.5e3", 1500),
        ("2.5G", 2_500_000_000),
        ("48KiB", 49152),
        ("64 MiB", 2**26),
        ("-5", -5),
        ("0", 0),
    ],
)
def test_numbers(text, number):
    assert NUMBER.convert(text, None, None) == number


@pytest.mark.parametrize("text", ["", "x", "1,5M", "50,00", "1.5", "1e-3", "1e99", "0x10", "M", "nan", "5__0", "10T0"])
def test_numbers_that_are_none(text):
    with pytest.raises(click.BadParameter):
        NUMBER.convert(text, None, None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-n", "1M", "-H", "0"), "--num-bins: expected at least 1, got 0"),
        (("-n", "-5", "-H", "1"), "--num-elements: expected at least 0, got -5"),
        (("-n", "1M", "-H", "10", "--race-factor", "0.5"), "--race-factor: expected a finite number"),
        (("-n", "1M", "-H", "10", "--race-factor", "nan"), "--race-factor: "),
        (("-n", "1M", "-H", "10", "--element-size", "0"), "--element-size: expected at least 1, got 0"),
        (("-n", "1M", "-H", "10", "--copies", "-1"), "--copies: expected at least 1, got -1"),
        (("-n", "1M", "-H", "10", "--memory-budget", "1"), "--memory-budget: one copy of 10 bins takes 40 bytes"),
        (("-n", "1M", "-H", "1M", "--memory", "local", "--passes", "1"), "--passes: expected at least 82"),
        (("-n", "1M", "-H", "10", "--locks", "3"), "--locks: expected a power of two, got 3"),
        (("-n", "1M", "-H", "10", "--work-group-size", "100000"), "--work-group-size: expected at most the 1024 of"),
    ],
)
def test_wrong_numbers_are_named(options, message):
    result = run(*options, *PAPER)
    assert result.exit_code == 2
    assert result.output.startswith(f"Error: {message}")
    assert result.output.count("\n") == 1


def test_unknown_profile_lists_the_known_ones():
    result = run("-n", "1M", "-H", "10", "--profile", "abacus")
    assert result.exit_code == 2
    assert result.output.startswith("Error: profile 'abacus': there is none; known are ")
    assert "nvidia-h200" in result.output


def test_broken_profile_is_named_with_its_key(tmp_path, monkeypatch):
    (tmp_path / "broken.toml").write_text(
        'name = "x"\nkind = "gpu"\nmatch = ["x"]\n[l2_line]\nvalue = 0\nsource = "s"\n'
    )
    monkeypatch.setenv("CLHIST_PROFILES", str(tmp_path))
    with pytest.warns(RuntimeWarning, match=r"broken\.toml: local_memory: missing .* this profile is ignored"):
        assert run("-n", "1M", "-H", "10", *PAPER).exit_code == 0


@pytest.mark.parametrize(
    "options", [("-n", "1M"), ("-n", "many", "-H", "10"), ("-n", "1", "-H", "1", "--update", "atomic")]
)
def test_usage_errors(options):
    assert run(*options).exit_code == 2


def test_profile_needs_no_opencl(tmp_path):
    code = """
import sys, clhist.kernel  # which imports PyOpenCL
before = set(sys.modules)
from clhist.cli.main import main
main(["plan", "-n", "50M", "-H", "12281", "--profile", "nvidia-h200", "--json"], standalone_mode=False)
print(*(name for name in set(sys.modules) - before if "pyopencl" in name), file=sys.stderr)
"""
    environment = os.environ | {"OCL_ICD_VENDORS": str(tmp_path / "none")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["profile"] == "NVIDIA H200"
    assert done.stderr.strip() == ""


@pytest.mark.parametrize(
    ("op", "says"),
    [
        (
            "foo",
            "maximum, mean, minimum, multiply, reproducible_add, standard_deviation, "
            "variance, or a C expression of a and b; got 'foo'.",
        ),
        ("maximun", "got 'maximun'. Did you mean maximum?"),
        ("as_operator", "expected one of add, all, any, argmax, argmin,"),
    ],
)
def test_wrong_operators_are_answered_by_all_that_there_are(op, says):
    given = ["plan", "-n", "1000", "-H", "10", "--profile", "nvidia-h200", "--op", op]
    result = CliRunner().invoke(main, given)
    assert result.exit_code == 2
    assert says in " ".join(result.output.split())


def test_json_of_narrow_sums_has_what_sums_again():
    asked = ["--op", "reproducible_add", "--dtype", "float32", "-n", "50M", "-H", "12281"]
    record = plan(*asked, "--profile", "nvidia-h200")
    assert record["passes"] == 1
    assert "passes S = 3" in record["robust"]


def test_a_plan_says_what_a_call_warns_of_or_checks():
    text = run("-n", "1M", "-H", "10", "--passes", "100", *PAPER).output
    assert "--passes: 100 requested, 10 used" in text
    found = plan("-n", "1M", "-H", "10", "--memory", "local", "--copies", "5000", *PAPER)
    assert found["notes"][0].startswith("--copies: 5000 requested, 1024 used")


def test_table_1_as_json():
    found = as_json(run("--paper", "--json"))
    assert len(found["entries"]) == 3 * 8 + 6 * 7
    entry = {"update": "CAS", "memory": "global", "bins": 12281, "race_factor": 63, "copies": 138, "passes": 1}
    assert entry in found["entries"]


def test_source_needs_no_device():
    given = ("-n", "50M", "-H", "12281", "--op", "add", "--dtype", "float32", *PAPER)
    text = run(*given, "--source").output
    assert text.startswith("// === sweep\n")
    assert "__kernel" in text
    (program, *_) = plan(*given, "--source")["sources"]
    assert program["program"] == "sweep"
    assert program["source"] in text
    assert run("-n", "1", "-H", "1", "--source", *PAPER).exit_code == 2
    several = run("-n", "50M", "-H", "10", "-H", "20", "--op", "argmax", "--op", "count", "--source", *PAPER).output
    assert "values0[i]" in several


def test_a_profile_limits_memory_by_its_data_sheet():
    with_room = plan("-n", "1M", "-H", "1G", "--op", "add", *PAPER[:1], "nvidia-h200")
    assert with_room["global_bytes"] <= with_room["memory_budget"] == 141_000_000_000 // 4
    result = run("-n", "1M", "-H", "1G", "--op", "add", "--memory", "global", *PAPER)
    assert result.exit_code == 2
    assert result.output.startswith("Error: --memory-budget: one copy of 1000000000 bins takes 4000000000 bytes")
