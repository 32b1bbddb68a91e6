"""The C that follows from a sweep's specification: what its functions pass on, cells, locks and calls."""

from __future__ import annotations

import numpy as np
import pytest

from clhist import operators
from clhist._core.kernels.arguments import parse_arguments
from clhist._core.kernels.specs import SweepSpec
from clhist._core.kernels.state import SweepState
from clhist._core.model.feature import BatchChunks, CyclicPasses, FlatBatch, PackedCounters, PartitionedPairs
from clhist._core.model.plan import Output

COUNTS = operators.add(np.int32)
LARGEST = operators.argmax(np.float64, np.int64)  # of 16 bytes, so under a lock
MEAN = operators.mean(np.float32)  # of two parts


def state(*outputs, memory="local", arguments="const int *x, const short *y, float scale, int *z", **changed):
    given = {"map": "EMIT(x[i], y[i])", "order": "interleaved", "work_group_size": 64, **changed}
    return SweepState(SweepSpec(outputs, parse_arguments(arguments, {}), memory=memory, **given))


def output(operator, update, suffix=""):
    return Output(operator, (update,) * len(operator.parts), suffix)


def names(of):
    return [name for _, name in of.variables]


@pytest.mark.parametrize("memory", ["local", "global"])
@pytest.mark.parametrize("update", ["native", "cas", "lock"])
@pytest.mark.parametrize("operator", [COUNTS, MEAN, LARGEST])
def test_declarations_and_calls_have_the_same_variables(memory, update, operator):
    of = state(output(operator, update, "_a"), output(COUNTS, "cas", "_b"), memory=memory)
    parameters, arguments = (
        " ".join(text.replace("\\\n", " ").split()).split(" ", 1) for text in of.macros.split("#define ")[1:]
    )
    declared = ", ".join(f"{kind} {name}".replace("* ", "*") for kind, name in of.variables)
    assert parameters == ["CLHIST_STATE_PARAMETERS", declared]
    assert arguments == ["CLHIST_STATE", ", ".join(names(of))]
    assert (of.map_declared, of.map_passed) == ("CLHIST_STATE_PARAMETERS", "CLHIST_STATE")
    assert len(set(names(of))) == len(names(of)), "no name twice"
    assert ("clhist_copies" in names(of)) == (memory == "local")
    assert all(of.space in kind for kind, name in of.variables if name.startswith(("clhist_cells", "clhist_locks")))


def test_a_histogram_in_global_memory():
    assert state(output(COUNTS, "native"), memory="global").variables == (
        ("const uint", "clhist_first"),
        ("const uint", "clhist_count"),
        ("__global cell0_t *", "clhist_cells0"),
    )


def test_locks_of_one_output_only():
    of = state(output(COUNTS, "cas", "0"), output(LARGEST, "lock", "1"))
    counted = len(COUNTS.parts)
    assert [part.n for part in of.locked] == [counted]
    assert of.locked_suffixes == ("1",)
    assert "clhist_lock_base1" in names(of)
    assert "clhist_lock_base0" not in names(of)
    assert names(of)[-2:] == ["clhist_copies", "clhist_lock_mask"]
    assert of.lock_argument(of.spec.parts[0]) == ""
    assert of.lock_argument(of.locked[0]) == (
        f"clhist_locks{counted} + ((bin * clhist_copies + clhist_lock_base1) & clhist_lock_mask), "
    )


@pytest.mark.parametrize(("wide", "kind"), [(False, "const uint"), (True, "const ulong")])
def test_bins_of_32_and_64_bits(wide, kind):
    of = state(output(LARGEST, "lock"), memory="global", wide=wide)
    assert of.variables[0] == (kind, "clhist_first")
    assert ("const ulong", "clhist_lock_mask") in of.variables, "of all copies, in global memory"
    assert ("const uint", "clhist_lock_mask") in state(output(LARGEST, "lock"), wide=wide).variables


def test_packed_counters_take_words_instead_of_cells():
    of = state(output(COUNTS, "native"), strategy=(PackedCounters(8),))
    words = ["first", "count", "words", "spills", "table", "flag", "table_size", "most_spills"]
    assert names(of) == [f"clhist_{word}" for word in words]
    assert of.map_passed == "CLHIST_STATE, clhist_pending", "in private memory: not for what settles carries"
    assert of.map_declared == "CLHIST_STATE_PARAMETERS, clhist_pending_t *clhist_pending"


def test_bins_that_are_dealt_out_are_divided():
    dealt = names(state(output(COUNTS, "cas"), strategy=(CyclicPasses(),)))
    assert {"clhist_passes", "clhist_magic", "clhist_shift"} <= set(dealt)


@pytest.mark.parametrize(
    ("memory", "update", "expected"),
    [
        ("local", "cas", ["clhist_hot_bin", "clhist_hot_value"]),
        ("global", "cas", ["clhist_hot_bin", "clhist_hot_value", "clhist_votes"]),
        ("local", "native", []),
        ("global", "private", []),
    ],
)
def test_a_hot_bin_in_registers(memory, update, expected):
    of = state(output(COUNTS, update), memory=memory, single_pair=True)
    assert [name for name in names(of) if "hot" in name or "votes" in name] == expected


@pytest.mark.parametrize(
    ("strategy", "tasks", "flat", "partitioned"),
    [
        ((), False, False, False),
        ((BatchChunks(equal_shares=True),), True, False, False),
        ((BatchChunks(equal_shares=False),), True, False, False),
        ((FlatBatch(),), False, True, False),
        ((PartitionedPairs(),), False, False, True),
    ],
)
def test_layouts_of_a_batch(strategy, tasks, flat, partitioned):
    of = state(output(COUNTS, "cas", "_n"), strategy=strategy)
    assert (of.has_tasks, of.is_flat, of.is_partitioned) == (tasks, flat, partitioned)
    assert ("clhist_bins_each_n" in names(of)) == flat
    assert ("clhist_flat(" in of.emit_macro(of.spec.outputs[0])) == flat


def test_calls_of_the_map():
    of = state(output(COUNTS, "cas"))
    assert of.map_parameters == [
        "const int clhist_element_x",
        "const short clhist_element_y",
        "const float scale",
        "__global int *z",
        "const clhist_index_t i",
    ]
    assert of.next_element == "x[i], y[i], scale, z, i"
    assert of.map_call(1) == "    clhist_map(x[i], y[i], scale, z, i, CLHIST_STATE);"
    later = of.map_arguments(lambda a: f"clhist_{a.name}_2", "at + 2")
    assert later == ["clhist_x_2", "clhist_y_2", "scale", "z", "at + 2"]
    flat = state(output(COUNTS, "cas"), strategy=(FlatBatch(),))
    assert flat.map_parameters[-1] == "const clhist_bin_t clhist_histogram"
    assert flat.next_element.endswith(", i, (clhist_bin_t)((i) / (clhist_index_t)clhist_histogram_size)")


def test_wide_loads():
    single, wide = state(output(COUNTS, "cas")), state(output(COUNTS, "cas"), aligned=True)
    x, y, *_ = wide.spec.arguments
    assert wide.spec.vector_width == 4
    assert (wide.loaded_type(x), wide.loaded_type(y)) == ("int4", "short4")
    assert single.loaded_type(x) == "int"
    assert single.lane(0) == ""
    bytes_of = state(output(COUNTS, "cas"), aligned=True, arguments="const char *x", map="EMIT(x[i], 1)")
    assert [bytes_of.lane(k) for k in (0, 9, 10, 15)] == [".s0", ".s9", ".sa", ".sf"]


def test_flags_that_change_nothing_are_not_updated():
    flags = operators.product({"sum": operators.add(np.int32), "flags": operators.bitwise_or(np.uint32)})
    of = state(output(flags, "native"))
    conditions = [of.condition(part) for part in of.spec.parts]
    assert sum(bool(text) for text in conditions) == sum(p.operation == "bitwise_or" for p in flags.parts) > 0
    assert state(output(operators.bitwise_or(np.uint32), "native")).condition(of.spec.parts[0]) == "", "not a product's"


def test_cells_are_aligned_for_what_follows():
    of = state(output(MEAN, "cas"))
    assert [of.end_alignment(part) for part in of.spec.parts] == [16] * (len(MEAN.parts) - 1) + [4]
