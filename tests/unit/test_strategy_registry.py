"""The registry of published strategies, their plans, and the inputs that they count: numbers only."""

from __future__ import annotations

import importlib.util
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from test_model import table_entries

from clhist._core.devices.profile import named_profile
from clhist._core.devices.profile_files import load_profiles
from clhist._core.kernels.render import render_strategy
from clhist._core.model.paper import paper_plan
from clhist.cli.main import main
from clhist.strategies import (
    STRATEGIES,
    DeviceLimits,
    Local,
    NotApplicable,
    StrategyProblem,
    StrategyRecipe,
    datasets,
    select,
)

ROOT = Path(__file__).parents[2]
PROFILE = named_profile("nvidia-geforce-rtx-2080-ti", load_profiles())
GPU = DeviceLimits(replace(PROFILE, features=frozenset({"int64_base_atomics"})), 48 * 1024, 68, 1024, 2**30, "khr")
OLD = DeviceLimits(replace(PROFILE, local_memory=16 * 1024, features=frozenset()), 16 * 1024, 16, 512, 2**26)
CPU = DeviceLimits(
    replace(PROFILE, kind="cpu", hardware_threads=16, work_group_size=16), 2**20, 16, 4096, 2**30, "core"
)
OWN_KERNELS = [name for name in STRATEGIES if name.split("/")[0] not in ("thesis", "sc20", "futhark", "clhist")]


def problem(num_bins: int, size: int = 10**6, limits: DeviceLimits = GPU) -> StrategyProblem:
    return StrategyProblem(size, num_bins, "int", "x", limits)


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_is_described(name):
    strategy = STRATEGIES[name]
    assert strategy.name == name
    assert strategy.source
    assert strategy.needs
    assert strategy.operators in ("counts", "any")
    assert strategy.summary.endswith(".")


@pytest.mark.parametrize("limits", [GPU, OLD], ids=["GPU", "old"])
@pytest.mark.parametrize("name", STRATEGIES)
def test_plans_fit_the_device_or_say_why_not(name, limits):
    plans, reasons = 0, []
    for num_bins in (1, 2, 5, 256, 257, 4096, 100_000, 5_000_000):
        for size in (0, 1, 1000, 10**8):
            try:
                plan = STRATEGIES[name].plan(problem(num_bins, size, limits))
            except NotApplicable as reason:
                reasons.append(str(reason))
                continue
            plans += 1
            if not isinstance(plan, StrategyRecipe):
                continue
            buffers = {"x", "histogram", *plan.buffers}
            assert sum(plan.buffers.values()) <= limits.memory_budget
            for launch in plan.launches:
                assert launch.work_groups >= 1
                assert 1 <= launch.work_group_size <= limits.max_work_group_size
                assert launch.work_groups * launch.work_group_size < 2**26
                local = [each.nbytes for each in launch.arguments if isinstance(each, Local)]
                assert sum(local) <= limits.local_memory
                assert all(nbytes > 0 for nbytes in local)
                assert {each for each in launch.arguments if isinstance(each, str)} <= buffers
                assert all(0 <= each < 2**32 for each in launch.arguments if isinstance(each, int))
    assert all(reasons)
    assert plans or "match" in name or name.split("/")[:3:2] == ["thesis", "cas64"]


@pytest.mark.parametrize("name", OWN_KERNELS)
def test_kernels_have_the_parameters_that_they_are_launched_with(name):
    plan = STRATEGIES[name].plan(problem(100))
    text = render_strategy(plan.template, element="uchar", bin="x >> 1", **plan.constants)
    for launch in plan.launches:
        (parameters,) = re.findall(rf"__kernel void {launch.kernel}\((.*?)\)\s*{{", text, re.DOTALL)
        kinds = [
            "local" if "__local" in p else "buffer" if "__global" in p else "number" for p in parameters.split(",")
        ]
        expected = [
            "local" if isinstance(each, Local) else "buffer" if isinstance(each, str) else "number"
            for each in launch.arguments
        ]
        assert kinds == expected
        declared = [re.search(r"(\w+)$", each.strip())[1] for each in parameters.split(",")]
        assert all(each == name for each, name in zip(launch.arguments, declared, strict=True) if isinstance(each, str))


def test_defaults_are_the_authors():
    blog = STRATEGIES["blog/local"].plan(problem(5))
    assert (blog.launches[0].work_groups, blog.launches[0].work_group_size) == (2048, 32)
    avoid = STRATEGIES["handbook/thread/interleaved/avoid"].plan(problem(256, 10**6))
    assert avoid.launches[0].work_groups == -(-(10**6) // (64 * 252))
    assert avoid.launches[0].arguments[-1] == Local(64 * 64 * 4), "64 rows of 64 words"
    with pytest.raises(NotApplicable, match=r"needs 16,640 bytes of local memory; the device has 16,384"):
        STRATEGIES["handbook/thread/row/check"].plan(problem(257, limits=OLD))


@pytest.mark.parametrize(
    ("num_bins", "warps", "passes"),
    [(1, 16, 1), (255, 16, 1), (256, 15, 1), (1000, 4, 1), (1364, 3, 1), (1365, 3, 2), (10_000, 3, 8)],
)
def test_equation_1_of_shams_and_kennedy(num_bins, warps, passes):
    # 16 KiB hold 4096 counters, less two flags.
    plan = STRATEGIES["shams-kennedy/1"].plan(problem(num_bins, limits=OLD))
    *counting, summing = plan.launches
    assert (plan.constants["warps"], len(counting), summing.kernel) == (warps, passes, "clhist_sum")
    assert counting[0].work_group_size == 32 * warps
    ranges = [(launch.arguments[3], launch.arguments[4]) for launch in counting]
    covered = [bin for first, length in ranges for bin in range(first, first + length)]
    assert covered == list(range(num_bins))


@pytest.mark.parametrize(
    ("num_bins", "group", "bits"),
    [(32, 128, 32), (256, 128, 4), (1000, 64, 2), (2000, 32, 2), (4096, 32, 1), (4097, 32, 0)],
)
def test_equation_2_of_shams_and_kennedy(num_bins, group, bits):
    plan = STRATEGIES["shams-kennedy/2"].plan(problem(num_bins, limits=OLD))
    assert (plan.launches[0].work_group_size, plan.constants["bits"]) == (group, bits)


def test_cooperation_levels_of_the_thesis():
    work_items = PROFILE.hardware_threads
    copies = {}
    expected = {str(4**k): 4**k for k in range(8)} | {"all": work_items, "H": 1000}
    for level in expected:
        plan = STRATEGIES[f"thesis/global/add/{level}"].plan(problem(1000, 10**7))
        copies[level] = plan.choices["copies"]
    assert copies == {level: -(-work_items // together) for level, together in expected.items()}
    with pytest.raises(NotApplicable, match="C = 1024, but T = 16"):
        STRATEGIES["thesis/local/add/1024"].plan(problem(10, limits=CPU))


@pytest.mark.parametrize(("memory", "update", "race_factor", "num_bins", "expected"), list(table_entries()))
def test_plans_of_the_paper_are_table_1(memory, update, race_factor, num_bins, expected):
    bin_bytes = 8 if update == "lock" else 4
    plan = paper_plan(50_000_000, num_bins, PROFILE, update, memory, bin_bytes=bin_bytes, race_factor=race_factor)
    assert (plan.memory, plan.update, plan.copies, plan.passes) == (memory, update, *expected)


def test_clhist_plan_prints_table_1():
    result = CliRunner().invoke(main, ["plan", "--paper"])
    assert result.exit_code == 0, result.output
    printed = {}
    for line in result.output.splitlines():
        words = line.split()
        if words and words[0].replace(",", "").isdecimal() and words[0] != "50,000,000":
            memory = "local" if len(words) == 4 else "global"
            printed[memory, int(words[0].replace(",", ""))] = [tuple(map(int, each.split(","))) for each in words[1:]]
    order = {"native": 0, "cas": 1, "lock": 2}
    seen = 0
    for memory, update, race_factor, num_bins, expected in table_entries():
        column = order[update] if memory == "local" else 2 * order[update] + (race_factor == 63)
        assert printed[memory, num_bins][column] == expected
        seen += 1
    assert seen == 66 == sum(map(len, printed.values()))


def test_select():
    assert [each.name for each in select(["clhist", "blog/naive", "blog/naive"])] == ["clhist", "blog/naive"]
    assert len(select(["handbook"])) == 11
    assert [each.name for each in select(["thesis/*/add/H"])] == ["thesis/global/add/H", "thesis/local/add/H"]
    with pytest.raises(ValueError, match="expected a name, a beginning or a pattern of blog, handbook"):
        select(["bl"])


def test_wrong_arguments_are_named():
    with pytest.raises(TypeError, match="expected some of work_group_size, work_groups, got warp"):
        STRATEGIES["blog/naive"].plan(problem(5), warp=3)
    with pytest.raises(ValueError, match="warp: expected a power of two"):
        STRATEGIES["shams-kennedy/1"].plan(problem(5), warp=3)
    with pytest.raises(ValueError, match="work_group_size: expected 1 to 256, got 512"):
        STRATEGIES["handbook/thread/row/merge"].plan(problem(5), work_group_size=512)
    with pytest.raises(ValueError, match="size: expected 0 to"):
        problem(5, 2**31)
    with pytest.raises(ValueError, match="num_bins: expected 1 to"):
        problem(0)


# Data sets.


@pytest.mark.parametrize("name", datasets.THESIS)
def test_datasets_of_the_thesis(name):
    size, place = 50_000, int(name[1:]) - 1
    data = datasets.thesis(name, size)
    assert data.elements.shape == (size,)
    assert data.num_bins == [16, 256, 4096, 65536, 2048, 2048, 2048, 2048, 16, 256, 4096, 65536][place]
    assert data.counts.sum() == size, "all elements are in a bin"
    if place < 4:
        assert np.ptp(data.counts) < 8 * np.sqrt(size / data.num_bins) + 8
    elif place < 8:
        deviation = [64, 128, 256, 512][place - 4]
        assert abs(data.elements.mean() - 1023.5) < deviation / 20
        # Of the widest, a part of either tail is cut off.
        expected = deviation if deviation < 512 else 512 * np.sqrt(1 - 2 * 2 * 0.05399 / 0.9545)
        assert abs(data.elements.std() / expected - 1) < 0.02
    else:
        assert set(data.elements) == {data.num_bins // 2}
    assert np.array_equal(data.elements, datasets.thesis(name, size).elements)


def test_race_factor():
    data = datasets.uniform(10_000, 1000, 63)
    assert set(data.elements) == {63 * k for k in range(15)}
    assert datasets.uniform(100, 10, 63).elements.max() == 0
    with pytest.raises(ValueError, match="race_factor: expected at least 1, got 0"):
        datasets.uniform(10, 10, 0)


def test_letters_are_those_of_the_blog():
    data = datasets.letters("text", b"abc xyz ABC \x00\xffgfz", 5)
    assert data.counts.tolist() == [4, 1, 0, 1, 3]
    assert datasets.letters("text", b"", 26).counts.tolist() == [0] * 26
    with pytest.raises(ValueError, match="groups: expected 1 to 26, got 27"):
        datasets.letters("text", b"a", 27)


@pytest.mark.parametrize("num_bins", [1, 2, 64, 256])
def test_pixels(num_bins):
    image = np.random.default_rng(3).integers(0, 256, (7, 5, 3), np.uint8)
    expected = np.histogram(image, num_bins, (0, 256))[0]
    assert datasets.pixels("image", image, num_bins).counts.tolist() == expected.tolist()
    with pytest.raises(ValueError, match="num_bins: expected a power of two up to 256, got 3"):
        datasets.pixels("image", image, 3)


def test_unknown_dataset_is_named():
    with pytest.raises(ValueError, match="name: expected D1 to D12, got 'D13'"):
        datasets.thesis("D13", 10)


# The page.


def test_pictures_are_up_to_date():
    spec = importlib.util.spec_from_file_location("draw", ROOT / "docs/strategies/draw.py")
    draw = importlib.util.module_from_spec(spec)
    sys.modules["draw"] = draw
    spec.loader.exec_module(draw)
    found = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs/strategies").glob("*.svg")}
    assert found == draw.pictures()


@pytest.mark.parametrize(
    ("atomic", "num_bins", "size", "race_factor", "expected"),
    [  # by hand from SegHist.hs, on an RTX 2080 Ti: T = 69632, B = 1024 (68 blocks), L = 48 KiB, L2 = 5.5 MiB
        ("hdw", 31, 50 * 10**6, 1, ("local", 396)),
        ("hdw", 12287, 50 * 10**6, 1, ("local", 1)),
        ("hdw", 49151, 50 * 10**6, 1, ("global", 1)),
        ("hdw", 12287, 10**6, 1, ("global", 1)),  # clearing a copy for each block would take longer than counting
        ("cas", 49151, 50 * 10**6, 1, ("local", 1)),  # in 4 passes
        ("cas", 60000, 50 * 10**6, 1, ("global", 9)),  # 8.3 elements of each work-item stay in the cache
        ("hdw", 1000, 999, 1, ("global", 1)),
    ],
)
def test_futhark_plans_as_its_code_generator_does(atomic, num_bins, size, race_factor, expected):
    plan = STRATEGIES[f"futhark/{atomic}"].plan(replace(problem(num_bins, size), race_factor=race_factor))
    assert (plan.choices["memory"], plan.choices["copies"]) == expected
