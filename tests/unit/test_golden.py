"""Kernel sources and plans as they were when someone last read them: tests/unit/golden, by `--update-golden`.

What changes a source or a plan is seen there before any device has to compile it. Of each strategy and order one source
is stored in full, of all others a digest: ``python tests/support/golden_sources.py`` prints any.
"""

from __future__ import annotations

from dataclasses import replace

import golden
import pytest
from golden_sources import ARGMAX, DOUBLE, FEW, FIRST, IN_FULL, STRATEGIES, SUM, sources
from sources import COUNTS, WEIGHT, Call, device, plans_of, strategy

from clhist._core.devices.profile import named_profile
from clhist._core.devices.profile_files import load_profiles
from clhist._core.model.shared import STRATEGIES as PLANNED


@pytest.fixture(scope="module")
def texts():
    return sources()


def test_digests_of_all_sources(texts, update_golden):
    golden.compare("digests.txt", golden.digests(texts), update=update_golden)


@pytest.mark.parametrize("file", IN_FULL)
def test_sources_in_full(file, texts, update_golden):
    golden.compare(f"sources/{file}", "\n".join(f"// === {n}\n{texts[n]}" for n in IN_FULL[file]), update=update_golden)


def test_each_strategy_has_a_source_in_full(texts):
    strategies = {name.split(":")[0] for name in texts} - {"maps"}
    assert {name.split(":")[0] for names in IN_FULL.values() for name in names} == strategies


def test_few_elements_are_one_launch(texts):
    alone = [text for name, text in texts.items() if name.startswith("one launch")]
    assert len(alone) == len(FEW)
    assert all("clhist_combine_bins(\n        get_local_id(0)" in text for text in alone)


def test_each_strategy_of_the_chooser_has_a_source():
    calls = [each for group in STRATEGIES.values() for each in group.values()]
    lacking = set(PLANNED) - {plan.strategy for vendor, call in calls for plan in plans_of(call, device(vendor))}
    assert not lacking, f"tests/support/golden_sources.py has no call of {lacking}; add one to its STRATEGIES"


def test_the_sources_of_strategies_are_theirs():
    """Each file has what its name says, so that none of its calls has quietly become another strategy."""
    for name in ("packed", "partitioned", "sort", "rows", "private", "local", "global"):
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
    """The strategy for each number of bins (rows), race factor and number of elements (columns).

    Neighbouring rows that are alike are one, with the least and the most bins.
    """
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
            if cells == rows[-1][1:]:
                rows[-1][0] = f"{rows[-1][0].split()[0]} to {bins}"
            else:
                rows.append([f"H={bins}", *cells])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines += ["  ".join(f"{c:{w}}" for c, w in zip(row, widths, strict=True)).rstrip() for row in rows] + [""]
    golden.compare(f"plans/{name}.txt", "\n".join(lines), update=update_golden)


def test_digests_tell_every_text_apart(tmp_path, monkeypatch):
    monkeypatch.setattr(golden, "DIRECTORY", tmp_path)
    texts = {"a": "x\ny\nz\n", "b": "x\nq\nz\n"}
    golden.compare("t", golden.digests(texts), update=True)
    assert (tmp_path / "t").read_text().count("\n") == 2
    golden.compare("t", golden.digests(texts), update=False)
    for changed in ({"a": "x\ny\nz\n", "b": "x\nr\nz\n"}, {"a": "x\ny\n", "b": "x\nq\nz\n"}, {"a": "x\ny\nz\n"}):
        with pytest.raises(AssertionError, match="--update-golden"):
            golden.compare("t", golden.digests(changed), update=False)
