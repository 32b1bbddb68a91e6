"""The random calls of `clhist selftest --soak`: what they cover, their programs, and what they notice."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from commands import runner
from processes import LONGEST, calls_after_others, calls_with_a_defect, ending_calls, run_python

from soak import processes as soak
from soak.calls import ARRAYS, FORMS, LAYOUTS, MEMORIES, SAME_KERNELS, UPDATES, VALUES, draw
from soak.operators import KINDS, READY
from soak.processes import ENDED, HANGS, HOLDS, WRONG, Calls, Soak, calls_elsewhere, report_text
from soak.program import IMPORTS, program

SETTINGS = [draw(5, number) for number in range(0, 1000 * SAME_KERNELS, SAME_KERNELS)]


run = runner("selftest")


def test_the_same_seed_gives_the_same_calls():
    assert [draw(5, number) for number in range(0, 1000 * SAME_KERNELS, SAME_KERNELS)] == SETTINGS
    assert [draw(6, number) for number in range(0, 1000 * SAME_KERNELS, SAME_KERNELS)] != SETTINGS


def test_a_setting_is_a_plain_value():
    names = {"Setting": type(SETTINGS[0]), "DrawnOperator": type(draw(5, 0).operators[0])}
    for setting in SETTINGS[:100]:
        assert eval(repr(setting), names) == setting


def test_calls_cover_what_is_documented():
    found = defaultdict(set)
    for setting in SETTINGS:
        for what, which in setting.covers():
            found[what].add(which)
    assert found["form"] == set(FORMS)
    assert found["update"] == {"chosen", *UPDATES}
    assert found["memory"] == {"chosen", *MEMORIES}
    assert found["operator"] == set(KINDS)
    assert found["layout"] == set(LAYOUTS)
    assert found["arrays"] == set(ARRAYS)
    assert found["values"] >= set(VALUES)
    assert found["device"] == {"own", "gpu", "cpu"}
    assert found["work-group"] == {"chosen", "1 or 2", "odd", "even"}
    assert found["forced"] == {"copies", "passes", "locks", "memory_budget", "race_factor"}
    assert len(found["index"]) == 8
    pairs = {(dict(setting.choices).get("update"), dict(setting.choices).get("memory")) for setting in SETTINGS}
    for memory in MEMORIES:
        assert {(update, memory) for update in ("native", "cas", "lock")} <= pairs


def test_every_ready_operator_is_drawn():
    import clhist.operators

    assert set(clhist.operators.__all__) - {"as_operator"} == set(READY)


def test_structs_have_fields_of_all_widths_and_gaps():
    names = {}
    exec(IMPORTS, names)
    dtypes = []
    for setting in SETTINGS:
        for op in setting.operators:
            if op.is_struct and setting.form != "several":
                exec(re.search(r"dtype = .*", program(setting).prepare)[0], names)
                dtypes.append(names["dtype"])
    assert {dtype[name].name for dtype in dtypes for name in dtype.names} >= {
        *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)), "float32", "float64"
    }  # fmt: skip
    gaps = [dtype.itemsize - sum(dtype[name].itemsize for name in dtype.names) for dtype in dtypes]
    assert min(gaps) == 0
    assert max(gaps) > 7
    assert max(dtype.itemsize for dtype in dtypes) >= 40


def test_data_without_double_precision():
    for number in range(0, 300 * SAME_KERNELS, SAME_KERNELS):
        setting = draw(1, number, fp64=False)
        assert not {t for op in setting.operators for t in op.types if t in ("float64", "complex128")}


def test_programs_compile_and_make_their_data():
    names = {}
    exec(IMPORTS, names)
    with np.errstate():
        for setting in SETTINGS[::5]:
            text = program(setting)
            compile(str(text), "program", "exec")
            if "device" not in setting.arrays:
                exec(text.prepare, dict(names))


def test_products_of_a_complex_scalar_are_finite():
    ours = {("multiply", "complex64"), ("multiply", "complex128")}
    products = [s for s in SETTINGS if {(op.kind, *op.types) for op in s.operators[:1]} & ours]
    assert products
    for setting in products:
        names = {}
        many = replace(setting, form="reduce", values="scalar", size=3000, bins=1, distribution="all in one")
        exec(IMPORTS, names)
        exec(program(many).prepare, names)
        assert np.isfinite(names["expected"]).all()


def test_programs_use_public_names_alone():
    for setting in SETTINGS:
        assert "selftest" not in str(program(setting))
        assert not re.search(r"clhist\._|from clhist\.|import clhist\.", str(program(setting)))


def test_random_calls_hold_here():
    seed = next(seed for seed in range(1000) if draw(seed, 0).form == "bincount")  # quickly built
    result = run("--soak", "6", "--seed", str(seed), "--jobs", "1", "--json")
    assert result.exit_code == 0, result.output
    values = json.loads(result.stdout)
    assert values["counts"]["holds"] > 0
    assert values["calls"] == sum(values["counts"].values())
    assert set(values["counts"]) <= {"holds", "refused"}
    assert values["failures"] == []
    assert sum(values["covered"]["form"].values()) > 0


def test_one_call_and_its_program():
    number = next(n for n in range(1000) if draw(4, n).form == "bincount")
    result = run("--only", str(number), "--seed", "4")
    assert result.exit_code == 0
    assert "# holds: \n" in result.output
    run_python(result.output)


def test_threads_make_a_call_at_once():
    number = next(n for n in range(1000) if draw(4, n).form == "bincount")
    assert run("--only", str(number), "--seed", "4", "--threads", "3").exit_code == 0


@pytest.fixture
def make(queue):
    return calls_elsewhere(queue, 7)


def test_a_planted_defect_is_found_and_printed_as_a_program(queue, make):
    calls = Calls(queue, 7)
    tried = Soak(partial(calls_with_a_defect, make), calls.setting, 1, LONGEST)
    failure = next(failure for failure in tried.run(LONGEST) if failure is not None)
    assert failure.status == WRONG
    assert failure.alone
    text = report_text(failure.number, 7, calls.setting(failure.number), failure.status, failure.words)
    assert f"# clhist selftest --seed 7 --only {failure.number}" in text
    run_python(text)
    with pytest.raises(AssertionError, match="Mismatched elements"):
        run_python(f"import sys; sys.path.append({str(__file__).rpartition('/')[0]!r})\n"
                   f"import processes; processes.plant_defect()\n{text}")  # fmt: skip


def test_a_crash_and_a_hang_do_not_end_the_soak(make):
    calls, failures = Soak(partial(ending_calls, make), partial(draw, 0), 1, 3), []
    for failure in calls.run(LONGEST):
        failures += [failure] if failure else []
        if calls.totals.counts[HOLDS] > 5:
            break
    assert [(failure.number, failure.status, failure.alone) for failure in failures] == [
        (1, ENDED, True),
        (2, HANGS, True),
    ]
    assert "SIGABRT" in failures[0].words


def test_a_call_that_fails_only_after_others_is_wrong_too(make):
    calls = Soak(partial(calls_after_others, make), partial(draw, 0), 1, LONGEST)
    failure = next(failure for failure in calls.run(LONGEST) if failure is not None)
    assert (failure.number, failure.status, failure.alone, failure.before) == (3, WRONG, False, (0, 1, 2))


def test_growing_memory_is_noticed():
    mib = 2**20
    marks = {"warm": {"rss": 100 * mib, "scratch": 0}, "end": {"rss": 165 * mib, "scratch": 0}}
    assert soak.Totals(memory=[marks]).problems == ["memory of the host grew to 165 MiB, more than 164 MiB"]
    marks["end"]["scratch"] = mib
    assert soak.Totals(memory=[marks]).problems == []
    marks["end"]["scratch"] = 65 * mib
    assert soak.Totals(memory=[marks]).problems == ["scratch memory grew to 65 MiB, more than 64 MiB"]


def test_processes_that_cannot_begin(queue):
    calls = Soak(partial(calls_elsewhere(queue, 0).func, 99, "no device", 0, 1), partial(draw, 0), 1, LONGEST)
    assert [failure for failure in calls.run(60) if failure is not None] == []
    assert "no process can use the device any more" in calls.totals.problems[0]


def test_a_failing_command(monkeypatch, queue):
    make = partial(calls_after_others, calls_elsewhere(queue, 4))
    monkeypatch.setattr("soak.processes.calls_elsewhere", lambda *given: make)
    result = run("--soak", "3", "--seed", "4", "--jobs", "1")
    assert result.exit_code == 1
    assert "WRONG: call 3, after " in result.output
    assert "but not alone in a new process (after calls 0, 1, 2)" in result.output
    assert "again: clhist selftest --seed 4 --only 3" in result.output
