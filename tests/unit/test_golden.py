"""Kernel sources and plans as they were when someone last read them: tests/unit/golden, by `--update-golden`.

What changes a source or a plan is seen there, in the words of OpenCL C, before any device has to compile it.
"""

from __future__ import annotations

from dataclasses import replace

import golden
import numpy as np
import pytest
from eager import eager
from sources import COUNTS, OPERATORS, WEIGHT, Call, combine_source, device, kernel_sources, strategy

from clhist.grouping.median_texts import CPU, GPU
from clhist.grouping.median_texts import texts as median_texts
from clhist.hardware.profile import named_profile
from clhist.hardware.profile_files import load_profiles

FIRST, TWICE = "EMIT(x[i], ((value_t){x[i], i}))", "EMIT(x[i], 1); EMIT(x[i] + 1, 2)"
SUM, WIDE, DOUBLE, ARGMAX = (OPERATORS[f"{n}"] for n in ("add float32", "add int64", "add float64", "argmax int64"))


def shared(memory: str) -> dict[str, tuple[str, Call]]:
    """Return calls whose work-items share copies in `memory`: each update, operator, vendor and order."""
    return {
        f"{vendor}, {update}, {name}": (
            vendor,
            Call(OPERATORS[name], code, choices={"memory": memory, "update": update, "copies": 2}),
        )
        for vendor, update, name, code in (
            ("core", "native", "add int32", "EMIT(x[i], 1)"),
            ("core", "cas", "saturating_add uint8", WEIGHT),
            ("core", "lock", "argmax int64", FIRST),
            ("core", "lock", "mean float32", WEIGHT),
            ("nvidia", "native", "add float32", WEIGHT),
            ("nvidia", "native", "add int64", WEIGHT),
            ("nvidia", "cas", "argmax float32", FIRST),
            ("nvidia", "lock", "argmax int64", FIRST),
            ("amd", "native", "fmin float32", WEIGHT),
            ("amd", "native", "add float64", WEIGHT),
            ("amd", "cas", "multiply float32", WEIGHT),
            ("amd", "lock", "variance float32", WEIGHT),
            ("intel", "native", "add float32", WEIGHT),
            ("intel", "cas", "maximum int8", WEIGHT),
            ("intel", "lock", "argmax int64", FIRST),
            ("cpu", "native", "add int32", WEIGHT),
            ("cpu", "cas", "add float64", WEIGHT),
            ("cpu", "lock", "argmax int64", FIRST),
        )
    }


def private() -> dict[str, tuple[str, Call]]:
    """Return calls that have a copy for each work-item."""
    return {
        f"{vendor}, {memory}, {name}": (
            vendor,
            Call(OPERATORS[name], code, bins=20, choices={"update": "private", "memory": memory}),
        )
        for vendor, memory, name, code in (
            ("cpu", "global", "add float32", WEIGHT),
            ("cpu", "local", "add float32", WEIGHT),
            ("cpu", "global", "reproducible_add float32", WEIGHT),
            ("cpu", "global", "logical_or bool", "EMIT(x[i], 1)"),
            ("core", "global", "add int32", "EMIT(x[i], 1)"),
            ("core", "local", "mean float32", WEIGHT),
            ("nvidia", "local", "argmax float32", FIRST),
        )
    } | {
        f"{vendor}, uint8 in {bins} bins": (vendor, Call(COUNTS, "EMIT(y[i], 1)", more="const uchar *y", bins=bins))
        for vendor, bins in (("cpu", 256), ("cpu", 255))
    }


PARTITIONED = {"memory": "partitioned"}
BUCKETED = {**PARTITIONED, "update": "private"}
STRATEGIES = {
    "private": private(),
    "local": shared("local"),
    "global": shared("global"),
    "packed": {
        vendor: (vendor, Call(COUNTS, bins=18_000, choices={"update": update} if update else {}))
        for vendor, update in (("nvidia", None), ("core", None), ("amd", None))
    } | {
        f"{vendor}, {bits} bits, {bins} bins": (vendor, Call(COUNTS, bins=bins, choices={"counter_bits": bits}))
        for vendor, bits, bins in (("nvidia", 8, 30_000), ("core", 4, 300_000))
    },
    "dealt": {
        f"{vendor}, {name}": (
            vendor,
            Call(OPERATORS[name], code, bins=30_000, choices={"memory": "local", "pass_order": "side by side"}),
        )
        for vendor, name, code in (("nvidia", "add float32", WEIGHT), ("core", "argmax int64", FIRST))
    },
    "partitioned": {
        "nvidia, counts": ("nvidia", Call(COUNTS, bins=100_000, choices=PARTITIONED)),
        "nvidia, add float32": ("nvidia", Call(SUM, WEIGHT, bins=100_000, choices=PARTITIONED)),
        "nvidia, lock": ("nvidia", Call(ARGMAX, FIRST, bins=10_000, choices=PARTITIONED)),
        "core, cas": ("core", Call(SUM, WEIGHT, bins=100_000, choices={**PARTITIONED, "update": "cas"})),
        "amd, one value for all": (
            "amd",
            Call(WIDE, "EMIT(x[i], c)", more="const long c", bins=50_000, choices=PARTITIONED),
        ),
    },
    "bucketed": {
        "cpu, counts": ("cpu", Call(COUNTS, bins=100_000, choices=BUCKETED)),
        "cpu, argmax int64": ("cpu", Call(ARGMAX, FIRST, bins=100_000, choices=BUCKETED)),
    },
    "sort": {
        "nvidia, add float32": ("nvidia", Call(SUM, WEIGHT, choices={"update": "sort"})),
        "cpu, argmax int64": ("cpu", Call(ARGMAX, FIRST, choices={"update": "sort"})),
        "core, two values of an element": ("core", Call(COUNTS, TWICE, choices={"update": "sort"})),
    },
    "batches": {
        "nvidia, equal": ("nvidia", Call(COUNTS, bins=50, histograms=1000)),
        "nvidia, equal, float": ("nvidia", Call(SUM, WEIGHT, bins=50, histograms=1000, choices={"memory": "local"})),
        "nvidia, ragged": ("nvidia", Call(COUNTS, bins=50, histograms=1000, ragged=True)),
        "nvidia, ragged, global": (
            "nvidia", Call(COUNTS, bins=50, histograms=1000, ragged=True, choices={"memory": "global"}),
        ),
        "nvidia, flattened": ("nvidia", Call(COUNTS, bins=100_000, histograms=20)),
        "cpu, equal": ("cpu", Call(COUNTS, bins=50, histograms=1000)),
        "cpu, ragged": ("cpu", Call(COUNTS, bins=50, histograms=1000, ragged=True)),
    },
    "maps": {
        "nvidia, wide loads": ("nvidia", Call(COUNTS, WEIGHT)),
        "nvidia, arrays anywhere": ("nvidia", Call(COUNTS, WEIGHT, aligned=False)),
        "nvidia, elements in 64 bits": ("nvidia", Call(COUNTS, size=2**33)),
        "nvidia, a loop": ("nvidia", Call(COUNTS, "for (int k = 0; k < n; ++k) EMIT(x[i] + k, 1)", more="int n")),
        "nvidia, a function": ("nvidia", Call(COUNTS, "EMIT(half(x[i]), 1)", "int half(int v) { return v / 2; }")),
        "nvidia, two outputs": (
            "nvidia", Call({"n": COUNTS, "most": OPERATORS["maximum int8"]}, "EMIT_n(x[i], 1); EMIT_most(x[i], x[i])"),
        ),
        "nvidia, outputs of two sweeps": (
            "nvidia", Call({"n": COUNTS, "most": ARGMAX}, "EMIT_n(x[i], 1); EMIT_most(x[i], ((value_most_t){x[i], i}))",
                           bins=12_000),
        ),
        "cpu, a loop": ("cpu", Call(COUNTS, "for (int k = 0; k < n; ++k) EMIT(x[i] + k, 1)", more="int n")),
    },
}  # fmt: skip


def test_sources_of_one_launch(update_golden):
    few = {
        "cpu, count": ("cpu", Call(COUNTS, bins=20, size=100)),
        "cpu, a function": ("cpu", Call(DOUBLE, WEIGHT, "#define total 1", bins=20, size=100)),
        "nvidia, add float32": ("nvidia", Call(SUM, WEIGHT, size=100, choices={"memory": "local"})),
        "core, lock": ("core", Call(ARGMAX, FIRST, size=100, choices={"memory": "local", "update": "lock"})),
    }
    texts = {
        f"{call}: {program}": source
        for call, (vendor, given) in few.items()
        for program, source in kernel_sources(given, eager(device(vendor)))
    }
    assert all("clhist_combine_bins(get_local_id(0)" in text for text in texts.values())
    golden.compare("sources/one_launch.cl.txt", golden.stored_form(texts), update=update_golden)


@pytest.mark.parametrize("name", STRATEGIES)
def test_sources(name, update_golden):
    texts = {
        f"{call}: {program}": source
        for call, (vendor, given) in STRATEGIES[name].items()
        for program, source in kernel_sources(given, device(vendor))
    }
    golden.compare(f"sources/{name}.cl.txt", golden.stored_form(texts), update=update_golden)


def test_sources_of_combining(update_golden):
    struct = {"fields": (("value", "long"), ("index", "long"))}
    texts = {"add int32": combine_source(COUNTS)} | {
        f"{name}, {', '.join(map(str, changed)) or 'plain'}": combine_source(OPERATORS[name], **changed)
        for name, changed in (
            ("add float32", {"columns": 32, "rows": 16}),
            ("add float32", {"order": "blocked", "columns": 1}),
            ("mean float32", {"batch": "equal", "columns": 128, "rows": 4}),
            ("add int32", {"batch": "ragged", "dest_is_partial": True}),
            ("add int32", {"used": "total != 0"}),
            ("add int32", {"used": "total != 0", "order": "blocked", "columns": 1}),
            ("variance float32", {"dest_is_partial": True, "out_is_partial": True, "whole": True}),
            ("argmax int64", struct),
            ("reproducible_add float32", {"rows": 4, "columns": 128}),
            ("add int32", {"counter_bits": 16, "columns": 64, "rows": 8}),
            ("add int32", {"counter_bits": 4, "columns": 64, "rows": 8, "batch": "ragged", "used": "total != 0"}),
            ("add float32", {"is_dealt": True}),
        )
    }
    golden.compare("sources/combine.cl.txt", golden.stored_form(texts), update=update_golden)


def test_sources_of_medians(update_golden):
    texts = {
        f"{vendor}, {dtype} in groups of {group}{', nan' if nan else ''}": "\n\n".join(
            f"// {name}\n{text}" for name, text in vars(median_texts(group, dtype, result, recipe, nan=nan)).items()
        )
        for vendor, recipe in (("gpu", GPU), ("cpu", CPU))
        for group, dtype, result, nan in (
            (np.dtype("i4"), np.dtype("f4"), np.dtype("f4"), False),
            (np.dtype("i4"), np.dtype("f8"), np.dtype("f8"), True),
            (np.dtype("u1"), np.dtype("i2"), np.dtype("f8"), False),
        )
    }
    golden.compare("sources/medians.cl.txt", golden.stored_form(texts), update=update_golden)


def test_the_sources_of_strategies_are_theirs():
    """Each file has what its name says, so that none of its calls has quietly become another strategy."""
    for name in ("packed", "partitioned", "bucketed", "sort", "private", "local", "global"):
        for vendor, call in STRATEGIES[name].values():
            assert name in strategy(call, device(vendor)), (name, vendor, call)
    assert "flat" in strategy(STRATEGIES["batches"]["nvidia, flattened"][1], device("nvidia"))


SHIPPED = (
    "nvidia-h100", "nvidia-h200", "nvidia-a100", "nvidia-geforce-rtx-2080-ti", "amd-instinct-mi210", "intel-arc-a770",
    "core", "cpu",
)  # fmt: skip
BINS = [2**k for k in (0, 3, 6, 8, 10, 12, 13, 14, 15, 16, 18, 20, 23, 26)]
RACE_FACTORS = (1, 4, 32, 1024)
SIZES = (10**4, 10**6, 10**8)
MAPPED = {
    "count": Call(COUNTS),
    "add float32": Call(SUM, WEIGHT),
    "add float64": Call(DOUBLE, WEIGHT),
    "argmax int64": Call(ARGMAX, FIRST),
}


@pytest.mark.parametrize("name", SHIPPED)
def test_plan_maps(name, update_golden):
    """The strategy for each number of bins (rows), race factor and number of elements (columns)."""
    vendor = name.split("-")[0]
    known = device(vendor)
    profile = known if vendor == name else replace(named_profile(name, load_profiles()), features=known.features)
    lines = []
    for title, call in MAPPED.items():
        rows = [[title, *(f"N={n:.0e} RF={rf}".replace("e+0", "e") for n in SIZES for rf in RACE_FACTORS)]]
        for bins in BINS:
            cells = []
            for n in SIZES:
                for race_factor in RACE_FACTORS:
                    asked = replace(call, size=n, bins=bins, race_factor=float(race_factor))
                    cells.append(strategy(asked, profile))
            rows.append([f"H={bins}", *cells])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines += ["  ".join(f"{c:{w}}" for c, w in zip(row, widths, strict=True)).rstrip() for row in rows] + [""]
    golden.compare(f"plans/{name}.txt", "\n".join(lines), update=update_golden)


def test_a_stored_form_tells_every_text_apart(tmp_path, monkeypatch):
    monkeypatch.setattr(golden, "DIRECTORY", tmp_path)
    texts = {"a": "x\ny\nz\n", "b": "x\nq\nz\n"}
    golden.compare("t", golden.stored_form(texts), update=True)
    assert (tmp_path / "t").read_text().count("\n") == 4 + 6
    golden.compare("t", golden.stored_form(texts), update=False)
    for changed in ({"a": "x\ny\nz\n", "b": "x\nr\nz\n"}, {"a": "x\ny\n", "b": "x\nq\nz\n"}, {"a": "x\ny\nz\n"}):
        with pytest.raises(AssertionError, match="--update-golden"):
            golden.compare("t", golden.stored_form(changed), update=False)
