"""The model against Table I of SC'20, and what holds for every plan."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from covering import covering
from plans import plan

from clhist import Profile, operators
from clhist._core.devices.profile import named_profile
from clhist._core.devices.profile_files import load_profiles
from clhist._core.kernels.from_plan import local_capacity
from clhist._core.model.paper import paper_plan
from clhist._core.model.plan import Output
from clhist._core.model.problem import NUMBERS, Choices
from clhist._core.model.updates import BY_NAME
from clhist.cli.reproduce.published import table_1

RTX_2080_TI = named_profile("nvidia-geforce-rtx-2080-ti", load_profiles())

UPDATES = {"HDW": "native", "CAS": "cas", "XCG": "lock"}
# The operators of section V-A: an int for HDW and CAS, a tuple of two for XCG.
BIN_BYTES = {"native": 4, "cas": 4, "lock": 8}


def table_entries():
    """Yield memory, update, RF, H, and (M, S) of Table I."""
    for memory, name, race_factor, num_bins, *expected in table_1():
        yield memory, UPDATES[name], float(race_factor), num_bins, tuple(expected)


def test_table_is_complete():
    assert len(list(table_entries())) == 58 + 8  # HDW and CAS share a column of 8


@pytest.mark.parametrize(("memory", "update", "race_factor", "num_bins", "expected"), list(table_entries()))
def test_table_1(memory, update, race_factor, num_bins, expected):
    size = BIN_BYTES[update]
    found = paper_plan(50_000_000, num_bins, RTX_2080_TI, update, memory, bin_bytes=size, race_factor=race_factor)
    assert (found.memory, found.copies, found.passes) == (memory, *expected)


@pytest.mark.parametrize(
    ("update", "bin_bytes", "most_bins"), [("native", 4, 3 * 12288), ("cas", 4, 4 * 12288), ("lock", 8, 6 * 4096)]
)
def test_switching_point(update, bin_bytes, most_bins):
    """Section V-A, which is the paper's plan alone."""
    memories = [
        paper_plan(50_000_000, bins, RTX_2080_TI, update, bin_bytes=bin_bytes).memory
        for bins in (most_bins - 1, most_bins, most_bins + 1)
    ]
    assert memories == ["local", "local", "global"]


def test_each_memory_has_its_own_update():
    choices = {"local_update": "native", "global_update": "lock"}
    assert plan(10**6, 1000, RTX_2080_TI, **choices).update == "native"
    assert plan(10**6, 10**6, RTX_2080_TI, **choices).update == "lock"


PROFILES = [
    RTX_2080_TI,
    named_profile("nvidia-h200", load_profiles()),
    Profile("tiny", "gpu", 32, 64, 32, 3, 2, {}),
    Profile("odd", "gpu", 1000, 3001, 48, 777, 24, {}),
    Profile("processor", "cpu", 32768, 2**20, 64, 7, 1, {}),
    Profile("processor with groups", "cpu", 32768, 2**20, 64, 50, 16, {}),
]
ELEMENTS = [0, 1, 2, 63, 64, 65, 257, 1000, 12_345, 50_000_000, 2**31, 2**40]
BINS = [1, 2, 3, 31, 63, 64, 65, 127, 1000, 12_289, 49_153, 10**6, 2**31, 2**40]
ANY_MEMORY = [None, "local", "global"]


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
@pytest.mark.parametrize("memory", ANY_MEMORY)
@pytest.mark.parametrize("update", ["native", "cas", "lock"])
def test_what_holds_for_every_plan(profile, memory, update):
    choices = {"local_update": update, "global_update": update, "choices": Choices(memory=memory)}
    seed = profile.name, memory, update
    for elements, bins, race_factor, size in covering(ELEMENTS, BINS, (1.0, 63.0, 1e300), (4, 8, 24), seed=seed):
        check_plan(elements, bins, profile, race_factor=race_factor, bin_bytes=size, **choices)


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
@pytest.mark.parametrize("memory", ANY_MEMORY)
@pytest.mark.parametrize("update", [None, "private", "native", "cas", "lock"])
def test_what_holds_for_forced_choices(profile, memory, update):
    refused, made = [], 0
    sizes = (0, 1, 65, 1000, 10**6), (1, 65, 1000)
    choices = (None, 1, 3, 64, 65, 10**6), (None, 1, 7, 10**6), (None, 1, 2, 64, 100)
    seed = profile.name, memory, update
    for elements, bins, copies, passes, group in covering(*sizes, *choices, strength=3, seed=seed):
        forced = Choices(update, memory, copies, passes, group)
        try:
            found = check_plan(elements, bins, profile, choices=forced)
        except ValueError as error:
            refused.append(str(error))
            continue
        made += 1
        assert update in (None, found.update)
        assert memory in (None, found.memory)
        assert group in (None, found.work_group_size) or found.update == "private"
        assert passes is None or found.passes == min(passes, bins)
    assert made
    assert memory == "local" or not refused, "what does not fit local memory fits global memory"
    assert {message.split(":")[0] for message in refused} <= {"copies", "passes", "work_group_size"}


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
@pytest.mark.parametrize("memory", ANY_MEMORY)
@pytest.mark.parametrize("update", ["native", "lock"])
def test_copies_stay_within_the_budget(profile, memory, update):
    for elements, bins, room in product((0, 1000, 10**8), (1, 127, 10**6), (1, 1.5, 2, 7.9, 300)):
        one_copy = 4 * bins if update == "native" else 8 * bins
        choices = {"local_update": update, "global_update": update, "choices": Choices(memory=memory)}
        check_plan(elements, bins, profile, memory_budget=int(room * one_copy), **choices)


def check_plan(elements, bins, profile, *, bin_bytes=4, choices, memory_budget=None, **updates):
    """Return the plan, after checking what must hold for any."""
    found = plan(elements, bins, profile, bin_bytes=bin_bytes, choices=choices, memory_budget=memory_budget, **updates)
    assert (found.num_elements, found.num_bins, found.profile) == (elements, bins, profile.name)
    size = bin_bytes + (4 if found.update == "lock" else 0)
    sizes = (found.copies, found.passes, found.bins_per_pass, found.work_groups, found.work_group_size)
    assert all(isinstance(number, int) and number >= 1 for number in sizes), found
    assert found.passes <= bins <= found.passes * found.bins_per_pass, found
    work_items = found.work_groups * found.work_group_size
    sharing = found.work_group_size if found.memory == "local" else work_items
    assert 1 <= found.cooperation <= sharing, found
    assert found.copies <= sharing, found
    if found.update == "private":
        assert found.copies == sharing, found
    if found.memory == "local":
        assert found.copies * found.bins_per_pass * size <= profile.local_memory, found
        if choices.memory is None and choices.passes is None:
            assert found.passes <= BY_NAME[choices.update or updates.get("local_update", "native")].most_local_passes, (
                found
            )
        assert found.global_copies == found.work_groups
    else:
        assert found.global_copies == found.copies
    if memory_budget is not None:
        in_global = bin_bytes if found.memory == "local" else size
        assert found.global_copies * bins * in_global <= memory_budget, found
    return found


def test_neighbours_of_the_number_of_bins():
    # Integer division before a ceiling makes M zero here (the published prototypes).
    for bins in (100, 2041, 69_632):
        for elements in range(bins - 3, bins + 4):
            for memory in ("local", "global"):
                check_plan(elements, bins, RTX_2080_TI, choices=Choices(memory=memory))


def test_a_processor_gives_each_work_item_a_copy_as_long_as_that_pays():
    processor = Profile("processor", "cpu", 32768, 2**20, 64, 8, 1, {})
    few, many = plan(10**6, 1000, processor), plan(1000, 10**6, processor)
    assert (few.update, few.copies, few.memory, few.passes) == ("private", 8, "global", 1)
    assert (many.update, many.copies) == ("private", 1)


def test_a_bin_larger_than_local_memory_lies_in_global_memory():
    assert plan(10**6, 10, RTX_2080_TI, bin_bytes=50_000).memory == "global"
    with pytest.raises(ValueError, match="copies: 1 copies of one bin take 50000 bytes of local memory"):
        plan(10**6, 10, RTX_2080_TI, bin_bytes=50_000, choices=Choices(memory="local"))


@pytest.mark.parametrize("update", ["native", "cas", "lock"])
def test_local_arrays_hold_what_is_planned_in_few_sizes(update):
    outputs, cell = (Output(operators.add(np.int32), (update,)),), 8 if update == "lock" else 4
    sizes = set()
    for bins, copies in product((*range(1, 200), 1000, 5000, 12_288), (None, 1, 2, 3, 7, 64)):
        found = plan(10**6, bins, RTX_2080_TI, choices=Choices(update, "local", copies))
        capacity = local_capacity(outputs, found, RTX_2080_TI)
        assert found.copies * found.bins_per_pass * cell <= capacity <= RTX_2080_TI.local_memory
        sizes.add(capacity)
    assert len(sizes) <= 3, "each size is a program of its own"
    assert local_capacity(outputs, plan(10**6, 10**6, RTX_2080_TI), RTX_2080_TI) == 0, "global memory needs none"


def test_steps_tell_how_the_numbers_came_about():
    found = plan(50_000_000, 24_569, RTX_2080_TI, choices=Choices(memory="local"))
    steps = {step.symbol: step.value for step in found.steps}
    assert {**steps, "m'": None} == {
        "B": 1024, "T": 69632, "blocks": 68, "m'": None, "M": 1, "C": 1024, "len": 12288, "S": 2, "H_chk": 12285,
        "groups": 34,
    }  # fmt: skip
    assert all(step.formula for step in found.steps)
    tried = [step.symbol for step in paper_plan(50_000_000, 10**6, RTX_2080_TI, "native").steps]
    assert tried.index("S_max") < tried.index("RACE_exp"), "local memory is tried first, and that is kept"
    kinds = {"rate_kinds": (("native int32",),) * 2, "max_pairs": 1}
    predicted = [step.symbol for step in plan(50_000_000, 10**6, RTX_2080_TI, **kinds).steps]
    assert "t_global" in predicted
    assert "S_max" not in predicted


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_elements": -1}, "num_elements: expected at least 0, got -1"),
        ({"num_bins": 0}, "num_bins: expected at least 1, got 0"),
        ({"num_bins": -5}, "num_bins: expected at least 1, got -5"),
        ({"bin_bytes": 0}, "bin_bytes: expected at least 1, got 0"),
        ({"arrays": 0}, "arrays: expected at least 1, got 0"),
        ({"race_factor": 0.5}, "race_factor: expected .* at least 1, got 0.5"),
        ({"race_factor": float("nan")}, "race_factor: expected .* at least 1, got nan"),
        ({"race_factor": float("inf")}, "race_factor: expected .* at least 1, got inf"),
        ({"memory_budget": 0}, "memory_budget: expected at least 1, got 0"),
        ({"choices": Choices(memory="shared")}, "memory: expected one of local, global, partitioned, got 'shared'"),
        (
            {"choices": Choices(update="atomic")},
            "update: expected one of private, native, carry, cas, lock, sort, gather, got",
        ),
        (
            {"num_bins": 50_000, "choices": Choices(memory="local", passes=2)},
            "passes: expected at least 5, since 1 copies of 50000 bins take 200000 bytes .* has 49152; got 2",
        ),
        (
            {"bin_bytes": 1000, "choices": Choices(memory="local", copies=50)},
            "copies: 50 copies of one bin take 50000 bytes of local memory where .* has 49152",
        ),
    ],
)
def test_refused(arguments, message):
    for name in NUMBERS:
        with pytest.raises(ValueError, match=f"^{name}: expected at least 1, got 0"):
            Choices(**{name: 0})
    with pytest.raises(ValueError, match=message):
        plan(**{"num_elements": 1000, "num_bins": 100, "profile": RTX_2080_TI, **arguments})


@pytest.mark.parametrize("memory", ANY_MEMORY)
@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_less_memory_than_one_copy(profile, memory):
    with pytest.raises(MemoryError, match=r"memory_budget: one copy of 1000 bins takes .* bytes, got 3999 bytes"):
        plan(10**6, 1000, profile, choices=Choices(memory=memory), memory_budget=3999)
