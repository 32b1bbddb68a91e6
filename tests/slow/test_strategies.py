"""Every published strategy against NumPy, on inputs that break wrong ones, and the command."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from clhist._core.opencl.device import profile_context
from clhist.cli.main import main
from clhist.strategies import STRATEGIES, Runner, datasets, select

SIZES = (0, 1, 63, 1001, 100_003)
FEW_LEVELS = [name for name in STRATEGIES if not name.startswith("thesis/") or name.endswith(("/1", "/16", "/H"))]
# What a device may lack; anything else that is not applicable is a mistake of the test.
LACKING = ("no sub-groups", "no atomics on 64 bits")


def letters_reference(text: bytes, groups: int) -> list[int]:
    each = -(-26 // groups)
    counts = [0] * groups
    for letter in text:
        if 97 <= letter <= 122:
            counts[(letter - 97) // each] += 1
    return counts


def adversarial(num_bins: int, size: int) -> Iterator[datasets.DataSet]:
    """Yield inputs of `num_bins` bins: hot bins, neighbours in a word, runs, out of range, and fewer than bins."""
    rng = np.random.default_rng(7)
    for few in SIZES:
        if few < size:
            yield datasets.uniform(few, num_bins)
    last = num_bins - 1
    yield datasets.indices("all in the first", np.zeros(size), num_bins)
    yield datasets.indices("all in the last", np.full(size, last), num_bins)
    yield datasets.indices("first and last in turns", np.arange(size) % 2 * last, num_bins)
    yield datasets.indices("neighbours in a word", np.minimum(num_bins // 8 * 4 + np.arange(size) % 4, last), num_bins)
    yield datasets.indices("sorted", np.sort(rng.integers(0, num_bins, size)), num_bins)
    yield datasets.indices("some outside", rng.integers(-3, num_bins + 3, size), num_bins)
    yield datasets.indices("all outside", np.where(rng.random(size) < 0.5, -1, num_bins), num_bins)
    yield datasets.indices("extremes", rng.choice([-(2**31), 2**31 - 1, last], size), num_bins)


@pytest.fixture(scope="module")
def runner(queue) -> Runner:
    return Runner(queue.context)


@pytest.fixture(scope="module")
def small_gpu(queue, gpu_like) -> Iterator[Runner]:
    """A device with the 16 KiB of local memory of the 8800 GTX, and copies that work-items share."""
    small = replace(gpu_like, local_memory=16 * 1024)
    with profile_context(small):
        found = Runner(queue.context)
        found.limits = replace(found.limits, local_memory=16 * 1024, max_work_group_size=512)
        yield found


def check(runner: Runner, name: str, data: datasets.DataSet, **parameters: int) -> bool:
    """Check the counts, and return whether there were any: a strategy may say that it does not fit."""
    outcome = runner.outcome(STRATEGIES[name], data, timed=False, **parameters)
    assert outcome.state in ("right", "not applicable"), f"{name}, {data.name}, {data.num_bins} bins: {outcome.note}"
    assert outcome.state == "right" or outcome.note
    return outcome.state == "right"


def check_all(runner: Runner, name: str, num_bins: int, size: int = 40_001, **parameters: int) -> int:
    return sum(check(runner, name, data, **parameters) for data in adversarial(num_bins, size))


def needed(runner: Runner, name: str) -> None:
    """Skip what this device lacks, with the reason."""
    outcome = runner.outcome(STRATEGIES[name], datasets.uniform(10, 2), timed=False)
    if any(reason in outcome.note for reason in LACKING):
        pytest.skip(outcome.note)


@pytest.mark.parametrize("name", FEW_LEVELS)
def test_counts_are_those_of_numpy(runner, name):
    needed(runner, name)
    results = [check_all(runner, name, num_bins, size) for num_bins, size in ((1, 301), (256, 100_003), (3000, 40_001))]
    profile = runner.limits.profile
    if name.startswith("thesis") and name.endswith("/16") and profile.kind == "cpu":
        assert not any(results), "a CPU has too few work-items"
    elif name.startswith("thesis/local") and name.endswith("/1") and profile.kind != "cpu":
        assert results[0], "of more bins 1024 copies do not fit"
    else:
        assert results[0]
        assert results[1]


@pytest.mark.parametrize("name", FEW_LEVELS)
def test_little_local_memory(small_gpu, name):
    needed(small_gpu, name)
    results = [check_all(small_gpu, name, num_bins, 20_001) for num_bins in (5, 256, 9001)]
    if "handbook/thread" in name:
        assert (bool(results[1]), bool(results[2])) == (True, False), "64 counters for each of 256 bins just fit"
    assert results[0]


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("blog/naive", {"work_group_size": 1, "work_groups": 3}),
        ("blog/interleaved", {"work_group_size": 7, "work_groups": 1}),
        ("blog/local", {"work_group_size": 5, "work_groups": 2}),
        ("blog/registers", {"work_group_size": 64, "work_groups": 3, "most_bins": 300}),
        ("blog/runs", {"work_group_size": 1, "work_groups": 1}),
        ("handbook/block", {"work_group_size": 16}),
        ("handbook/thread/row/merge", {"work_group_size": 3}),
        ("handbook/thread/column/check", {"work_group_size": 1}),
        ("handbook/thread/interleaved/merge", {"work_group_size": 100}),
        ("handbook/thread/interleaved/avoid", {"work_group_size": 5}),
        ("shams-kennedy/1", {"warp": 1, "most_warps": 1}),
        ("shams-kennedy/1", {"warp": 8, "most_warps": 3}),
        ("shams-kennedy/1", {"warp": 64, "most_warps": 2}),
        ("shams-kennedy/2", {"work_group_size": 1}),
        ("shams-kennedy/2", {"work_group_size": 33}),
        ("cub", {"work_group_size": 17, "pixels": 3, "copies": 4}),
        ("raft/bits/2", {"work_group_size": 3}),
        ("raft/hash", {"work_group_size": 9, "probes": 1}),
    ],
)
def test_parameters(small_gpu, name, parameters):
    assert check_all(small_gpu, name, 130, 20_001, **parameters)


@pytest.mark.parametrize("name", select(["blog", "handbook", "shams-kennedy", "cub", "raft", "clhist", "sc20/hdw"]))
def test_letters_of_a_text_in_groups(runner, name):
    needed(runner, name.name)
    text = b"The quick brown fox jumps over the lazy dog! \xff{`aaaaaaz" * 211
    for groups in (5, 26):
        data = datasets.letters("text", text, groups)
        assert data.counts.tolist() == letters_reference(text, groups)
        assert check(runner, name.name, data)


def test_packed_counters_carry_through_a_word(small_gpu):
    # All counters of a word are one below overflow when the first one overflows, again and again.
    for bits in (1, 2, 4, 8, 16):
        places = 32 // bits
        full = min(2**bits - 1, 300)
        bins = np.concatenate([np.repeat(np.arange(places)[::-1], full), np.arange(places)] * 5)
        for work_group_size in (1, 64):
            data = datasets.indices("carries", bins, places)
            assert check(small_gpu, f"raft/bits/{bits}", data, work_group_size=work_group_size)


def test_a_wrong_result_is_not_timed(runner):
    data = datasets.uniform(1000, 16)
    data.bins.setflags(write=False)
    wrong = replace(data, bins=np.zeros(1000, np.int32))
    outcome = runner.outcome(STRATEGIES["blog/naive"], wrong)
    assert (outcome.state, outcome.seconds, outcome.median) == ("wrong", (), None)
    assert "bin 0 has" in outcome.note


def test_right_results_are_timed(runner):
    outcome = runner.outcome(STRATEGIES["blog/local"], datasets.uniform(1000, 16))
    assert outcome.state == "right"
    assert len(outcome.seconds) >= 3
    assert all(seconds > 0 for seconds in outcome.seconds)


def run(*arguments: str):
    return CliRunner().invoke(main, ["strategies", *arguments])


def test_command(tmp_path):
    text = tmp_path / "letters.txt"
    text.write_bytes(b"abcxyz 123" * 100)
    image = tmp_path / "image.npy"
    np.save(image, np.arange(600, dtype=np.uint8).reshape(20, 30))
    found = tmp_path / "found.json"
    picture = tmp_path / "found.svg"
    names = ("blog/naive", "blog/registers", "clhist")
    inputs = ("uniform", "rf63", "D5", "D12", str(text), str(image))
    result = run(
        "-n", "1000", *(option for name in names for option in ("--strategy", name)),
        *(option for name in inputs for option in ("--data", name)), "--json", str(found), "--plot", str(picture),
        "--parameter", "work_groups=2",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    document = json.loads(found.read_text())
    assert [each["num_bins"] for each in document["inputs"]] == [
        256,
        4096,
        65536,
        256,
        4096,
        65536,
        2048,
        65536,
        5,
        256,
    ]
    for each in document["inputs"]:
        states = {row["name"]: row["state"] for row in each["strategies"]}
        assert states == {
            "blog/naive": "right",
            "blog/registers": "right" if each["num_bins"] <= 256 else "not applicable",
            "clhist": "right",
        }
        timed = {row["name"]: row["times"] for row in each["strategies"] if row["times"] is not None}
        assert each["fastest"] == min(timed, key=timed.get)
    assert "(1)  at most 256 bins in registers" in result.output
    assert result.output.count("*") == len(document["inputs"])
    assert picture.read_text().lstrip().startswith("<?xml")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--strategy", "nothing"), "strategy: expected a name, a beginning or a pattern of blog"),
        (("--data", "D13"), "expected uniform, rf and a number, D1 to D12"),
        (("--data", "nothing.txt"), "nothing.txt: No such file"),
        (("--strategy", "blog", "--parameter", "warp=3"), "expected most_bins, work_group_size, work_groups"),
        (("--strategy", "clhist", "--parameter", "warp=3"), "none for these strategies"),
        (("-n", "0"), "expected a number from 1 to 2^31 - 1, got 0"),
        (("-n", "-5"), "expected a number from 1 to 2^31 - 1, got -5"),
        (("-n", "3G"), "expected a number from 1 to 2^31 - 1, got 3G"),
        (("-H", "0"), "expected a number from 1 to 2^31 - 1, got 0"),
        (("--strategy", "shams-kennedy/1", "--parameter", "warp=3", "-n", "10"), "expected a power of two"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    result = run(*arguments)
    assert result.exit_code != 0
    assert message in result.output


def test_list_needs_no_input():
    result = run("--list")
    assert result.exit_code == 0
    assert all(name in result.output for name in STRATEGIES)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["futhark/cas", "futhark/xcg"])
def test_more_copies_than_work_items_are_no_warning(small_gpu, name):
    """The authors' formulas look at the device alone; who compares strategies has asked for no copies."""
    outcome = small_gpu.outcome(STRATEGIES[name], datasets.uniform(9, 7, 1), timed=False)
    assert outcome.state == "right"
