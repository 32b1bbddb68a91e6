"""What a call consists of: forms of operators, updates, sweeps, plans and chunks of batches; without a device."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import ceil

import numpy as np
import pytest
from covering import covering
from plans import plan

from clhist import Operator, Profile, operators
from clhist._core.devices.profile import named_profile
from clhist._core.devices.profile_files import load_profiles
from clhist._core.devices.vendors import ALL_FEATURES
from clhist._core.kernels.from_plan import local_capacity
from clhist._core.kernels.maps import max_pairs_of
from clhist._core.model.problem import Choices, Histogram, Problem
from clhist._core.model.sweeps import plan_sweeps
from clhist._core.runtime.batch import Batch

H200 = named_profile("nvidia-h200", load_profiles())
PROFILES = [
    H200,
    *(named_profile(name, load_profiles()) for name in ("nvidia-geforce-rtx-2080-ti", "amd-instinct-mi100")),
    Profile("tiny", "gpu", 1024, 64, 32, 300, 64, {}),
    Profile("processor", "cpu", 32768, 2**20, 64, 7, 1, {}),
    Profile("processor with groups", "cpu", 32768, 2**20, 64, 50, 16, {}),
]
ALL = frozenset(f for f in ALL_FEATURES if not f.startswith(("amd_builtins", "ext_float_atomics")))  # as NVIDIA has
PLAIN = frozenset({"int64_base_atomics", "fp64"})

INT, DOUBLE, BYTE = operators.add(np.int32), operators.multiply(np.float64), operators.maximum(np.uint8)
TRIPLE = np.dtype([(name, np.int64) for name in "xyz"])
STRUCT = Operator(TRIPLE, "a.x < b.x ? b : a", (0, 0, 0), "largest_triple")
ODD = Operator(np.dtype([("x", np.int8, 9)]), "a.x[0] < b.x[0] ? b : a", ([0] * 9,), "nine_bytes")


def sweeps(*given, bins, size=10**6, profile=H200, features=ALL, emits=1, num_histograms=None, budget=2**34, **forced):
    """Return the sweeps of these operators."""
    bins = bins if isinstance(bins, tuple) else (bins,) * len(given)
    histograms = tuple(
        Histogram(operator, bins[k], f"_{k}" if len(given) > 1 else "", emits) for k, operator in enumerate(given)
    )
    problem = Problem(histograms, size, num_histograms=num_histograms, choices=Choices(**forced), memory_budget=budget)
    return plan_sweeps(problem, replace(profile, features=features))


def test_outputs_that_fit_together_are_one_sweep():
    (sweep,) = sweeps(INT, operators.add(np.float32), operators.argmax(np.float32), bins=(100, 200, 300))
    assert sweep.output_indices == (0, 1, 2)
    assert sweep.bins == (100, 200, 300)
    assert sweep.num_bins == 600
    assert (sweep.memory, sweep.update, sweep.passes) == ("local", "native", 1)
    assert [output.suffix for output in sweep.outputs] == ["_0", "_1", "_2"]
    assert "100 + 200 + 300 bins" in str(sweep)
    assert [output.updates for output in sweep.outputs] == [("native",)] * 3


def test_outputs_of_different_memories_are_apart():
    few, many = sweeps(INT, INT, bins=(100, 10**7))
    assert (few.memory, few.output_indices) == ("local", (0,))
    assert (many.memory, many.output_indices) == ("global", (1,))
    first, second = sweeps(INT, INT, INT, bins=(10**7, 100, 100))
    assert (first.output_indices, second.output_indices) == ((0,), (1, 2)), "the rest is still together"


@pytest.mark.parametrize("bins", [(40_000, 40_000), (50_000, 50_000), (100, 150_000), (3_000_000, 40_000_000)])
def test_together_only_if_the_input_is_read_no_more_often(bins):
    alone = [sweep for number in bins for sweep in sweeps(INT, bins=number)]
    together = sweeps(INT, INT, bins=bins)
    assert sum(sweep.passes for sweep in together) <= sum(sweep.passes for sweep in alone)
    memories = {number: sweep.memory for sweep in together for number in sweep.output_indices}
    assert [memories[number] for number in range(2)] == [sweep.memory for sweep in alone]


def test_a_budget_for_one_output_but_not_for_two():
    both = sweeps(INT, INT, bins=10**7, memory="global")
    assert len(both) == 1
    apart = sweeps(INT, INT, bins=10**7, memory="global", budget=5 * 10**7)
    assert [sweep.output_indices for sweep in apart] == [(0,), (1,)]
    with pytest.raises(MemoryError, match=r"^memory_budget: one copy of 10000000 bins"):
        sweeps(INT, INT, bins=10**7, memory="global", budget=10**7)


def test_each_part_has_its_own_update():
    mixed = operators.product({"n": INT, "p": DOUBLE, "m": operators.maximum(np.uint64)})
    (sweep,) = sweeps(mixed, bins=100)
    assert sweep.outputs[0].updates == ("native", "cas", "native")
    assert sweep.update == "cas"
    (sweep,) = sweeps(mixed, bins=100, features=frozenset({"fp64"}))
    assert sweep.outputs[0].updates == ("native", "lock", "lock")
    (sweep,) = sweeps(operators.variance(np.float32), INT, bins=100)
    assert [output.updates for output in sweep.outputs] == [("lock",), ("native",)]
    (sweep,) = sweeps(mixed, bins=100, update="lock")
    assert sweep.outputs[0].updates == ("lock",) * 3


LIFTED = [
    (operators.argmax(np.float32), np.uint64),
    (operators.argmin(np.int8, np.uint8), np.uint64),
    (operators.first(np.float32), np.uint64),
    (operators.minimum(np.float32), np.uint32),
    (operators.fmax(np.float64), np.uint64),
    (operators.saturating_add(np.uint8, 255), np.uint32),
]


@pytest.mark.parametrize(("operator", "accumulator"), LIFTED, ids=lambda value: getattr(value, "name", ""))
def test_a_lifted_form_is_taken_where_its_update_is_better(operator, accumulator):
    (sweep,) = sweeps(operator, bins=10**7, memory="global")
    assert (sweep.update, sweep.outputs[0].operator.accumulator) == ("native", accumulator)
    (sweep,) = sweeps(operator, bins=100)
    wider = sweep.outputs[0].operator.bin_bytes > operator.bin_bytes
    assert not wider, "in local memory a wider bin costs more than its update gains"
    (sweep,) = sweeps(operator, bins=100, update="lock")
    assert sweep.outputs[0].operator == operator, "a forced update takes the operator's own form if that has it"
    (sweep,) = sweeps(operator, bins=10**6, profile=PROFILES[-2], features=PLAIN)
    assert (sweep.update, sweep.outputs[0].operator) == ("private", operator), "a copy for each needs none"


def test_forms_need_what_the_device_has():
    argmax = operators.argmax(np.float32)
    assert sweeps(argmax, bins=100, features=PLAIN)[0].update == "cas", "of 64 bits, either form"
    assert sweeps(argmax, bins=100, features=frozenset())[0].update == "lock"
    with pytest.raises(ValueError, match=r"^update: 'native' is not available for argmax on (?!{)"):
        sweeps(argmax, bins=100, features=PLAIN, update="native")


@pytest.mark.parametrize("limit", [1, 200, 2**24 - 1, 2**31 - 1])
def test_exact_sums_are_taken_only_if_they_cannot_wrap(limit):
    operator = operators.saturating_add(np.int32, limit)
    for emits, size in product((1, 2, 7), (0, 1, 2, 100, 255, 256, 257, 2**24, 2**33, 2**40)):
        fits = {bits: (size * emits + 1) * limit < 2**bits for bits in (32, 64)}  # dest is one more
        if not fits[64]:
            with pytest.raises(ValueError, match="update: 'native' is not available for saturating_add"):
                sweeps(operator, bins=100, size=size, emits=emits, update="native")
            continue
        found = sweeps(operator, bins=100, size=size, emits=emits, update="native")[0].outputs[0].operator
        assert found.accumulator == (np.uint32 if fits[32] else np.uint64), (emits, size)
    assert sweeps(operator, bins=100, size=10, emits=None)[0].outputs[0].operator == operator, "any number of times"


@pytest.mark.parametrize(
    ("code", "preamble", "emits"),
    [
        ("EMIT(x[i], 1)", "", 1),
        ("EMIT(0, 1); if (x[i]) { EMIT(1, 1); }", "", 2),
        ("EMIT(x[i], 1)", "#define LIMIT 5", 1),
        ("EMIT(x[i], 1) /* one EMIT\n for each */", "", 1),
        ("// while x is missing, EMIT nothing\nEMIT(x[i], 1)", "// for EMIT", 1),
        ("EMIT(x[i], 1); // one\nfor (int k = 0; k < 3; ++k) EMIT(k, 1)", "", None),
        ("PUT(x[i])", "#define PUT(x) /* no loop */ EMIT(x, 1)", None),
        ("EMIT(x[i], 1)", "int f(int x) { for (int k = 0; k < 3; ++k) x *= x; return x; }", 1),
        ("for (int k = 0; k < 3; ++k) EMIT(k, 1)", "", None),
        ("int k = 0; while (k < 3) EMIT(k++, 1)", "", None),
        ("int k = 0; again: EMIT(k, 1); if (++k < 3) goto again", "", None),
        ("TWICE(x[i]); EMIT(0, 1)", "#define TWICE(x) EMIT(x, 1); EMIT(x, 1)", None),
        ("each(k) EMIT(k, 1)", "#define each(k) for (int k = 0; k < 3; ++k)", None),
        ("each(k) EMIT(k, 1)", "#define each(k) \\\n    for (int k = 0; k < 3; ++k)", None),
        ("EMIT(MOST(x[i], 9), 1)", "#define MOST(x, y) ((x) < (y) ? (x) : (y))", 1),
        ("CALL(EMIT, 1)", "#define CALL(f, v) f(0, v); f(1, v)", None),
        ("TWICE(EMIT(0, 1))", "#define TWICE(code) code; code", None),
        ("\n#define PUT(x) EMIT(x, 1)\nPUT(0); PUT(1); PUT(2)", "", None),
    ],
)
def test_how_many_values_an_element_has(code, preamble, emits):
    assert max_pairs_of("EMIT", code, preamble) == emits


BATCHES = (1, 2, 7, 64, 1000, 100_000), (0, 1, 17, 1000, 10**5), (1, 31, 1000, 10**5)


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
@pytest.mark.parametrize("memory", [None, "local", "global"])
@pytest.mark.parametrize("update", [None, "private", "native", "lock"])
def test_what_holds_for_every_batch(profile, memory, update):
    for histograms, each, bins in covering(*BATCHES, seed=(profile.name, memory, update)):
        (sweep,) = sweeps(
            INT, bins=bins, size=histograms * each, profile=profile, num_histograms=histograms, memory=memory,
            update=update, budget=2**60,
        )  # fmt: skip
        found = sweep
        if found.strategy == "flattened":  # one histogram of all bins
            shared = update not in (None, "private") or profile.kind != "cpu"
            assert (found.is_batch, found.flattened, found.bins, found.memory) == (
                False,
                histograms,
                (histograms * bins,),
                "global",
            )
            assert (shared, memory in (None, "global"), found.num_elements) == (True, True, histograms * each)
            continue
        assert (found.is_batch, found.num_histograms, found.num_elements) == (True, histograms, histograms * each)
        assert found.teams & (found.teams - 1) == 0
        assert found.teams == 1 or found.team_size >= 32 or found.update == "private"
        assert found.teams * found.team_size == found.work_group_size
        assert found.passes * found.bins_per_pass >= bins >= found.passes
        assert memory in (None, found.memory)
        assert update in (None, found.update)
        threads = max(1, min(profile.hardware_threads, histograms * each))
        items = found.memory == "global" and found.update == "private"  # a copy for each, not for each work-group
        if not items:
            chunks = ceil(ceil(threads / found.work_group_size) / histograms)
            if found.pass_order == "side by side":  # a chunk for each pass
                assert 1 <= found.groups_per_histogram <= chunks // found.passes
            else:
                assert found.groups_per_histogram == chunks
            assert found.work_groups * found.teams >= found.tasks > (found.work_groups - 1) * found.teams
            assert 1 <= found.copies <= found.team_size * (1 if found.memory == "local" else found.groups_per_histogram)
            assert found.teams == 1 or found.groups_per_histogram == 1
        assert local_capacity(sweep.outputs, found, profile) <= profile.local_memory


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
@pytest.mark.parametrize("locks", [None, 1, 64])
def test_local_memory_holds_mixed_cells(profile, locks):
    mixed = operators.product({"b": BYTE, "d": DOUBLE, "n": INT})
    made, refused = 0, set()
    for given, bins, histograms, copies, passes in covering(
        ((BYTE, DOUBLE, STRUCT), (STRUCT, BYTE), (ODD, ODD, BYTE), (mixed, STRUCT), (mixed,)),
        ((1, 1, 1), (3, 1, 100), (999, 31, 1), (2000, 1000, 7)),
        (None, 1, 50),
        (None, 1, 3),
        (None, 2, 40),
        strength=3,
        seed=(profile.name, locks),
    ):
        choices = {"memory": "local", "locks": locks, "copies": copies, "passes": passes}
        try:
            found = sweeps(*given, bins=bins[: len(given)], profile=profile, num_histograms=histograms, **choices)
        except ValueError as error:
            refused.add(str(error).split(":")[0])
            continue
        for sweep in found:
            made += 1
            assert local_capacity(sweep.outputs, sweep, profile) <= profile.local_memory, sweep
    assert made > 20
    assert refused <= {"copies", "passes", "locks"}


@pytest.mark.parametrize("locks", [2**8, 2**30])
def test_more_locks_than_local_memory(locks):
    tiny = PROFILES[3]
    with pytest.raises(ValueError, match=rf"^locks: {locks} locks of 4 bytes .* has {tiny.local_memory}"):
        sweeps(STRUCT, bins=10_000, profile=tiny, memory="local", locks=locks)
    assert sweeps(STRUCT, bins=10_000, profile=tiny, locks=locks)[0].memory == "global"


@pytest.mark.parametrize("seed", range(20))
def test_tasks_cover_each_element_once_in_order(seed):
    rng = np.random.default_rng(seed)
    histograms = int(rng.integers(1, 40))
    lengths = rng.integers(0, rng.choice([2, 100, 10_000]), histograms) * (rng.random(histograms) < rng.random())
    ends = np.cumsum(lengths) + 5
    batch = Batch(histograms, ends - lengths, ends)
    for group in (1, 64, 1024):
        profile = replace(PROFILES[3], hardware_threads=3000, work_group_size=group)
        found = plan(int(ends[-1]), 10, profile, num_histograms=histograms, choices=Choices(memory="local"))
        table, first = batch.tasks(found)
        assert table.shape == (first[-1, 1], 3)
        for k, (begin, end) in enumerate(zip(batch.begins, batch.ends, strict=True)):
            starts, stops, numbers = table[slice(*first[k].tolist())].T
            assert len(starts), "one without elements too: its copy must be cleared"
            assert (numbers == k).all()
            assert (starts[0], stops[-1]) == (begin, end)
            np.testing.assert_array_equal(starts[1:], stops[:-1])
        share = ceil(lengths.sum() / found.tasks)
        sizes = table[:, 1] - table[:, 0]
        assert sizes.min() >= 0
        assert sizes.max() <= max(1, share), "about equally long"
        assert len(table) <= found.tasks + histograms


def test_profiles_whose_instructions_were_counted_plan_by_them():
    """The counts of emulated AMD GPUs: copies for all banks, native updates, wide values partitioned."""
    argmax, n, names = operators.argmax(np.int32), 50_000_000, ("MI300X", "RX 7900 XTX")
    profiles = [named_profile(name, load_profiles()) for name in ("amd-instinct-mi300x", "amd-radeon-rx-7900-xtx")]
    for name, profile in zip(names, profiles, strict=True):

        def plan_of(operator, bins, profile=profile, **more):
            (found,) = plan_sweeps(
                Problem.of(operator, bins, n, **more), replace(profile, features=PLAIN | {"int64_extended_atomics"})
            )
            return found

        assert (plan_of(INT, 31).copies, plan_of(INT, 500).copies) == (32, 16)
        assert plan_of(argmax, 31).update == "native"
        assert plan_of(argmax, 196_607).strategy == ("partitioned" if name == "MI300X" else "global")


@pytest.mark.parametrize("bins", [8192, 32768, 2**20])
@pytest.mark.parametrize("name", ["nvidia-h100", "nvidia-h200"])
def test_exact_sums_are_tried_in_few_words_wherever_these_fit(name, bins):
    profile = replace(named_profile(name), features=ALL_FEATURES)
    histogram = Histogram(operators.reproducible_add(np.float32), bins)
    for memory in (None, "global"):
        asked = Problem((histogram,), 1_200_000, read_bytes=8, one_launch=True, choices=Choices(memory=memory))
        (found,) = plan_sweeps(asked, profile)
        assert found.memory == (memory or "local")
        assert (found.again is None) == (memory == "global")
