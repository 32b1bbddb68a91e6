"""Templates of a sweep stay C: few lines of control flow, and few sections that features fill from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from clhist._core.model.feature import Feature, HotBin
from clhist._core.model.narrow import NarrowSums

KERNELS = Path(__file__).parents[2] / "kernels_cl"
SWEEP = ("sweep", "emit", "walk_blocked", "walk_striped", "copies_local", "copies_global", "combine", "long_sums")
MOST_CONTROL = 0.15  # of the lines that are no comments
MOST_SECTIONS = 8
CONTROL = re.compile(r"\s*(%(?!>)|<%(?!def|namespace|!))")  # `% if`, `% for`, and blocks of Python


def text(name):
    return (KERNELS / f"{name}.mako").read_text(encoding="utf-8")


def features(of=Feature):
    return [feature for cls in of.__subclasses__() for feature in (cls, *features(cls))]


def filled():
    """Return the names of the sections that templates leave to features."""
    return {
        name
        for path in KERNELS.glob("*.mako")
        for name in re.findall(r'section\.fill\("(\w+)"', path.read_text("utf-8"))
    }


@pytest.mark.parametrize("name", SWEEP)
def test_lines_of_control_flow(name):
    lines = [line for line in text(name).splitlines() if line.strip() and not line.startswith("##")]
    control = sum(CONTROL.match(line) is not None for line in lines)
    assert control / len(lines) <= MOST_CONTROL, f"{control} of {len(lines)}"


def test_sections():
    assert len(filled()) <= MOST_SECTIONS
    assert {HotBin, NarrowSums} <= {*features()}, "all modules of features are imported"
    assert filled() == {section for feature in features() for section in feature.sections}


def test_features_have_their_sections():
    for feature in features():
        template = (KERNELS / feature.template).read_text(encoding="utf-8") if feature.template else ""
        assert set(feature.sections) <= set(re.findall(r'<%def name="(\w+)\(feature', template)), feature
