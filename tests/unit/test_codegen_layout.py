"""Where arrays are in scratch and local memory, and the specifications that follow from a plan."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from clhist import named_profile, operators
from clhist._core.devices.vendors import ALL_FEATURES
from clhist._core.kernels.from_plan import combine_spec, is_wide, local_capacity, order_of, scratch_layout, sweep_spec
from clhist._core.kernels.partitions import partition_specs
from clhist._core.kernels.render import render_sweep
from clhist._core.kernels.source import Source
from clhist._core.kernels.specs import CombineSpec
from clhist._core.model.feature import BatchChunks, FlatBatch, HotBin, PartitionedPairs
from clhist._core.model.problem import Choices, Problem
from clhist._core.model.sweeps import plan, plan_sweeps
from clhist._core.model.workload import NARROW_BINS, NARROW_ELEMENTS

H200 = replace(named_profile("nvidia-h200"), features=frozenset(f for f in ALL_FEATURES if "amd" not in f))
CPU = replace(H200, kind="cpu", name="a CPU", rates={})
LARGEST = operators.argmax(np.float64, np.int64)


def planned(source, bins=(100,), size=10**6, profile=H200, histograms=None, **choices):
    problem = Problem(
        source.histograms(bins), size, histograms, choices=Choices(**choices), read_bytes=source.read_bytes
    )
    return plan(problem, profile)


def plain(operator=None, **more):
    return Source.of("const int *x", "EMIT(x[i], (value_t)1)", [operator or operators.add(np.float32)], **more)


def test_order_of_work_items():
    assert (order_of(H200), order_of(CPU)) == ("interleaved", "blocked")


@pytest.mark.parametrize(
    ("elements", "bins", "wide"),
    [
        (0, (1,), False),
        (NARROW_ELEMENTS, (1, NARROW_BINS), False),
        (NARROW_ELEMENTS + 1, (1,), True),
        (1, (NARROW_BINS + 1, 1), True),
    ],
)
def test_width_of_indices(elements, bins, wide):
    chosen = replace(planned(plain()), num_elements=elements, bins=bins)
    assert is_wide(chosen) == wide


@pytest.mark.parametrize("operator", [operators.add(np.int8), operators.mean(np.float32), LARGEST])
@pytest.mark.parametrize("copies", [0, 1, 7])
@pytest.mark.parametrize("locks", [None, 8])
def test_arrays_in_scratch_memory_do_not_overlap(operator, copies, locks):
    chosen = planned(plain(operator), (1001,), memory="global", update="lock", copies=copies or 1, locks=locks)
    found, size = scratch_layout(chosen.outputs, chosen, copies)
    cells, spans = copies * 1001, []
    for n, part in enumerate(chosen.outputs[0].operator.parts):
        expected = cells if locks is None else min(cells, locks)
        assert found[f"clhist_num_locks{n}"] == expected
        for name, needed in (("place", cells * part.cell_bytes), ("lock_place", 4 * expected)):
            begin = found[f"clhist_{name}{n}"]
            assert begin % 128 == 0
            spans.append((begin, begin + needed))
    assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))
    assert size == (spans[-1][1] if copies else 0)


@pytest.mark.parametrize("bins", [1, 3, 1000, 40_000, 10**6])
@pytest.mark.parametrize("operator", [operators.add(np.int32), operators.variance(np.float32), LARGEST])
def test_the_local_array_has_room_and_few_sizes(bins, operator):
    chosen = planned(plain(operator), (bins,), memory="local")
    capacity = local_capacity(chosen.outputs, chosen, H200)
    cells = chosen.chunks()[0] * chosen.copies * chosen.teams
    locks = 4 * (chosen.update == "lock")
    assert capacity >= sum(cells * (part.cell_bytes + locks) for part in chosen.outputs[0].operator.parts)
    assert capacity in {H200.local_memory // part // 16 * 16 for part in (1, 2, 4)}
    assert local_capacity(chosen.outputs, replace(chosen, memory="global"), H200) == 0


def test_a_sweep_has_the_facts_of_plan_source_and_device():
    source = plain(preamble="#define ONE 1", structs={"record": np.dtype([("a", "i4"), ("b", "i4")])})
    chosen = planned(source, memory="local", update="cas")
    spec = sweep_spec(chosen, source, H200, aligned=True)
    assert (spec.outputs, spec.memory, spec.update) == (chosen.outputs, "local", "cas")
    assert (spec.arguments, spec.map, spec.preamble) == (source.arguments, source.map, source.preamble)
    assert spec.structs == source.structs
    assert (spec.work_group_size, spec.teams, spec.features) == (chosen.work_group_size, 1, (HotBin(is_local=True),))
    assert (spec.order, spec.device_features) == ("interleaved", H200.features)
    assert (spec.aligned, spec.wide, spec.strategy, spec.single_pair) == (True, False, (), True)
    assert sweep_spec(chosen, source, CPU, aligned=False).order == "blocked"


def test_a_sweep_of_a_cpu_has_its_second_stage_in_the_program():
    chosen = planned(plain(), profile=CPU)
    spec = sweep_spec(chosen, plain(), CPU, aligned=True, used="total != 0")
    assert spec.combine == CombineSpec(chosen.outputs[0].operator, "blocked", largest_bin_condition="total != 0")
    text = render_sweep(spec)
    assert text.count("void clhist_sweep(") == text.count("void clhist_combine_copies(") == 1
    assert "clhist_clear" not in text  # work-items set their own copies
    assert text.count("typedef float accumulator_t;") == 1
    for source in (plain(preamble="#define total 1"), plain(options=("-cl-fast-relaxed-math",))):
        assert sweep_spec(planned(source, profile=CPU), source, CPU, aligned=True).combine is None
    assert sweep_spec(planned(plain()), plain(), H200, aligned=True).combine is None


@pytest.mark.parametrize(
    ("kind", "bins", "profile", "choices", "expected"),
    [
        ("uchar", 256, CPU, {}, True),
        ("uchar", 255, CPU, {}, False),
        ("uchar", 10_000, CPU, {}, True),
        ("uchar", 256, CPU, {"passes": 2, "update": "private"}, False),
        ("uchar", 256, CPU, {"memory": "local"}, False),
        ("uchar", 256, H200, {}, False),
        ("ushort", 65536, CPU, {}, True),
        ("ushort", 65535, CPU, {}, False),
        ("int", 65536, CPU, {}, False),
    ],
)
def test_a_sweep_of_a_cpu_does_not_compare_bins_of_a_narrow_type(kind, bins, profile, choices, expected):
    source = Source.of(f"const {kind} *x", "EMIT(x[i], 1)", [operators.add(np.int32)])
    spec = sweep_spec(planned(source, (bins,), profile=profile, **choices), source, profile, aligned=True)
    assert spec.in_range == expected
    assert ("if (bin < clhist_count)" in render_sweep(spec)) != expected


@pytest.mark.parametrize("histograms", [1000, 10**5])
def test_a_batch_has_the_layout_of_its_plan(histograms):
    source = plain(operators.add(np.int32))
    chosen = planned(source, (50,), 10**7, histograms=histograms)
    spec = sweep_spec(chosen, source, H200, aligned=True)
    assert (spec.strategy, spec.teams) == (chosen.features(None), chosen.teams)
    assert spec.strategy in ((BatchChunks(equal_shares=True),), (FlatBatch(),))


def test_outputs_of_other_sweeps_are_ignored():
    source = Source.of("const int *x", "EMIT0(x[i], 1); EMIT1(x[i], 1)", [operators.add(np.int32), LARGEST], ["0", "1"])
    problem = Problem(source.histograms((100, 10**6)), 10**6)
    plans = plan_sweeps(problem, H200)
    assert len(plans) == 2
    for chosen in plans:
        spec = sweep_spec(chosen, source, H200, aligned=True)
        assert {each.suffix for each in (*spec.outputs, *spec.ignored)} == {"0", "1"}
        assert all(each.updates == () for each in spec.ignored)
        assert not spec.single_pair


@pytest.mark.parametrize("operator", [operators.add(np.int32), operators.add(np.float64), LARGEST])
@pytest.mark.parametrize("bins", [60_000, 500_000])
@pytest.mark.parametrize("own_values", [False, True])
def test_partitions_fit_local_memory(operator, bins, own_values):
    source = plain(operator)
    chosen = planned(source, (bins,), 10**7, memory="partitioned")
    spec = sweep_spec(chosen, source, H200, aligned=True)
    split, over_pairs = partition_specs(chosen, spec, None if own_values else "1", H200.local_memory)
    assert split.local_bytes <= H200.local_memory
    assert split.most >= chosen.partitions
    assert split.most & (split.most - 1) == 0
    assert split.per_lane * split.sweep.work_group_size >= split.most
    assert split.has_values == own_values
    assert over_pairs.strategy == (PartitionedPairs(True),)
    assert [a.name for a in over_pairs.arguments] == ["clhist_pair_bins"] + ["clhist_pair_values"] * own_values
    assert len(over_pairs.streamed) == 1 + (own_values and operator is not LARGEST), "structs are not loaded ahead"
    assert over_pairs.outputs == spec.outputs


def test_second_stages_in_the_program_of_a_sweep():
    """Of a CPU, for several outputs, each operator once."""
    each = [operators.add(np.float32), operators.variance(np.float64), operators.variance(np.float64), LARGEST]
    source = Source.of(
        "const int *x", "".join(f"EMIT_o{n}(x[i], v);" for n in range(4)), each, ["_o0", "_o1", "_o2", "_o3"]
    )
    specs = {
        profile.kind: sweep_spec(planned(source, (100,) * 4, profile=profile), source, profile, aligned=True)
        for profile in (H200, CPU)
    }
    assert specs["gpu"].stages == ()
    assert "clhist_combine_copies" not in render_sweep(specs["gpu"])
    text = render_sweep(specs["cpu"])
    assert [stage.operator for stage in specs["cpu"].stages] == [each[0], each[1], LARGEST]
    for n in range(3):
        assert text.count(f"#define clhist_combine_copies clhist_combine_copies_{n}\n") == 1
    stages = text[text.index("#define accumulator_t accumulator_t_0") :]
    assert sorted(re.findall(r"#define (\w+) ", stages)) == sorted(re.findall(r"#undef (\w+)", stages))


@pytest.mark.parametrize("copies", [0, 1, 15, 16, 127, 128, 10**5])
@pytest.mark.parametrize("largest", [1, 31, 64, 256, 1024])
def test_work_groups_that_combine(copies, largest):
    spec = combine_spec(operators.add(np.int32), H200, largest_group=largest, copies=copies)
    assert 1 <= spec.columns * spec.rows <= largest
    assert spec.rows & (spec.rows - 1) == 0
    assert spec.rows == 1 or copies >= 16
    blocked = combine_spec(operators.add(np.int32), CPU, largest_group=largest, copies=copies)
    assert (blocked.order, blocked.columns, blocked.rows) == ("blocked", 1, 1)


def test_large_accumulators_are_not_combined_in_rows():
    small, large = (operators.product({f"f{n}": operators.add(np.float64) for n in range(fields)}) for fields in (8, 9))
    assert combine_spec(small, H200, largest_group=1024, copies=1000).rows == 16
    assert combine_spec(large, H200, largest_group=1024, copies=1000).rows == 1


@pytest.mark.parametrize("room", [8 << 10, 16 << 10, 32 << 10, 228 << 10])
def test_rows_fit_the_local_memory(room):
    exact = operators.reproducible_add(np.float32)
    for copies in (20, 1000):
        spec = combine_spec(exact, replace(H200, local_memory=room), largest_group=1024, copies=copies)
        assert spec.rows * spec.columns * exact.accumulator.itemsize <= room or spec.rows == 1
        assert spec.rows == combine_spec(exact, H200, largest_group=1024, copies=copies).rows or room < 32 << 10


def test_a_combination_has_the_form_of_its_result():
    spec = combine_spec(
        LARGEST, H200, largest_group=256, copies=1, batch="ragged", dest_is_partial=True, fields=(("a", "int"),)
    )
    assert (spec.batch, spec.dest_is_partial, spec.out_is_partial, spec.fields) == (
        "ragged",
        True,
        False,
        (("a", "int"),),
    )
