"""What is executed on emulated AMD GPUs is all that the library has; what is compiled offline is of known vendors."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest

from clhist import operators, reduce, typing
from clhist._core.model.problem import COUNTER_BITS, PASS_ORDERS, PLACES
from clhist._core.model.shared import STRATEGIES
from clhist._core.model.updates import FORCEABLE
from clhist._core.runtime.call import _CHOICES
from clhist.selftest.updates import COLUMNS
from clhist.strategies import STRATEGIES as PUBLISHED

sys.path.append(str(Path(__file__).resolve().parents[2] / ".ci"))

import offline
from emulated.cases import listed

# Makes operators of others.
NOT_EXECUTED = {"as_operator"}


@pytest.fixture(scope="module")
def cases() -> Any:
    return listed()


@pytest.fixture(scope="module")
def covered(cases: Any) -> set[str]:
    return set().union(*(case.covers for case in cases))


def check_all(names: Any, covered: set[str], prefix: str = "") -> None:
    lacking = {f"{prefix} {name}".strip() for name in names} - covered
    assert not lacking, f".ci/emulated/cases has no case of {sorted(lacking)}; add one to its listed.py"


def test_every_strategy(cases):
    strategies = {case.strategy for case in cases} - {""}
    check_all(STRATEGIES, strategies)
    assert strategies <= set(STRATEGIES)


def test_every_update_in_every_memory(cases, covered):
    check_all(FORCEABLE, covered, "update")
    pairs = {(case.update, case.strategy) for case in cases}
    assert {
        (update, memory) for update in ("native", "carry", "cas", "lock") for memory in ("local", "global")
    } <= pairs
    check_all(get_args(typing.Update), covered, "update")


def test_every_option(covered):
    options = _CHOICES | set(get_type_hints(typing.KernelOptions)) | reduce._OPTIONS
    check_all(options, covered)


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("memory", {*PLACES, *get_args(typing.Memory)}),
        ("pass_order", {*PASS_ORDERS, *get_args(typing.PassOrder)}),
        ("race_factor", get_args(typing.RaceFactorMode)),
        ("counter_bits", COUNTER_BITS),
    ],
)
def test_every_value_of_an_option(covered, option, values):
    check_all(values, covered, option)


def test_every_operator(covered):
    check_all(set(operators.__all__) - NOT_EXECUTED, covered, "operator")


def test_every_type(covered):
    kinds = {"pair", "parts", "words"}  # of several fields, which are "struct", and of floats
    check_all(set(COLUMNS) - kinds, covered, "dtype")


def test_every_published_strategy(covered):
    check_all(set(PUBLISHED) - {"clhist"}, covered, "published")


def test_case_studies_digests_and_keys(covered):
    assert {"study gromacs", "study kmeans", "digest", "keys"} <= covered


@pytest.mark.parametrize("memory", PLACES[:2])
def test_instructions_of_a_vendor_that_is_not_known_are_no_others(memory):
    part = SimpleNamespace(
        update="native", part=SimpleNamespace(cell_bytes=4, dtype=np.dtype(np.int32), operation="add")
    )
    found = {vendor: offline.instruction(vendor, part, memory) for vendor in ("amd", "nvidia", "intel")}
    assert len(set(found.values())) == 3
    with pytest.raises(ValueError, match=r"^vendor: expected one .*, got 'arm'$"):
        offline.instruction("arm", part, memory)
