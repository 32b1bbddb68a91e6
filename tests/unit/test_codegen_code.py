"""C that templates of a sweep and of a second stage leave to functions."""

from __future__ import annotations

import re

import numpy as np
import pytest
from test_codegen_state import COUNTS, LARGEST, MEAN, output, state

from clhist._core.kernels.combine_code import CombineState, add_copies, tree_of_rows
from clhist._core.kernels.local_memory import arrays_in_pool
from clhist._core.kernels.specs import CombineSpec
from clhist._core.kernels.state import repeated
from clhist._core.kernels.striped import with_carry
from clhist._core.kernels.sweep_code import bin_in_pass, result_of_copy
from clhist._core.model.feature import CyclicPasses, PackedCounters
from clhist.operators import add


def second_stage(operator, **changed):
    return CombineState(CombineSpec(operator, **{"order": "interleaved", "columns": 4, **changed}))


def test_text_is_repeated_for_each_of_the_values():
    assert repeated("{a}[{b}] = {c};", [{"a": "x", "b": 1}, {"a": "y", "b": 2}]) == "x[1] = {c};\ny[2] = {c};"
    assert repeated("{a}", [], ", ") == ""


def test_one_array_takes_the_whole_pool():
    lines = arrays_in_pool(state(output(COUNTS, "native"))).splitlines()
    assert lines == ["    __local cell0_t *clhist_own0 = (__local cell0_t *)clhist_pool;"]


@pytest.mark.parametrize("operator", [LARGEST, MEAN])
def test_each_array_of_a_pool_begins_behind_the_one_before(operator):
    of = state(output(operator, "lock"))
    text = arrays_in_pool(of)
    begins = re.findall(r"\*(clhist_(?:own|locks)\d) = .*clhist_pool \+ clhist_room", text)
    count = len(of.spec.parts)
    assert begins == [f"clhist_{name}{n}" for name in ("own", "locks") for n in range(count)]
    assert len(re.findall(r"clhist_room \+= ", text)) == 2 * count - 1, "behind the last there is nothing"


def test_cyclic_passes_divide_by_their_number():
    range_of, cyclic = state(output(COUNTS, "native")), state(output(COUNTS, "native"), strategy=(CyclicPasses(),))
    assert "target - clhist_first;" in bin_in_pass(range_of, "")
    assert "mul_hi(target, clhist_magic)" in bin_in_pass(cyclic, "")
    assert "clhist_slot * clhist_num_bins + clhist_first;" in result_of_copy(range_of, 0, "")
    assert "(clhist_slot * clhist_passes + clhist_first) * clhist_bins_per_pass;" in result_of_copy(cyclic, 0, "")


def test_carries_are_settled_behind_the_last_of_four_elements():
    of = state(output(COUNTS, "native"), strategy=(PackedCounters(8),))
    settled = [len(re.findall(r"clhist_carry\(", with_carry(of, "map();", n, 6))) for n in range(6)]
    assert settled == [0, 0, 0, 4, 0, 2]
    assert with_carry(state(output(COUNTS, "native")), "map();", 3, 4) == "map();"


def test_a_tree_adds_up_all_rows():
    """The statements, run with the rows' numbers in the place of totals: each row is in the first one once."""
    text = tree_of_rows(second_stage(COUNTS, rows=8))
    totals = {row: [row] for row in range(8)}
    for half, offset in re.findall(r"row < (\d+)\).*?get_local_id\(0\) \+ (\d+)\]", text, re.DOTALL):
        totals |= {row: totals[row] + totals[row + int(offset) // 4] for row in range(int(half))}
    assert sorted(totals[0]) == list(range(8))
    assert tree_of_rows(second_stage(COUNTS, rows=1)) == ""


def test_only_a_cpu_corrects_sums_of_copies():
    assert "clhist_lost" in add_copies(second_stage(add(np.float64), order="blocked"))
    assert "clhist_lost" not in add_copies(second_stage(add(np.float64)))
    assert "clhist_lost" not in add_copies(second_stage(COUNTS, order="blocked"))
