"""The examples of the documentation run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import clhist

ROOT = Path(__file__).parents[2]


def blocks_of(path: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.fixture
def given(rng):
    """What the README takes for granted."""
    indices = rng.integers(0, 10, 1000)
    values = rng.random(1000, dtype=np.float32)
    return {
        "np": np,
        "clhist": clhist,
        "indices": indices,
        "values": values,
        "numbers": rng.integers(0, 100, 1000, dtype=np.uint32),
        "w": rng.random(1000),
        "x": rng.integers(0, 256, 1000),
    }


@pytest.mark.parametrize(
    ("path", "least"),
    [
        ("README.md", 5),
        ("docs/guide.md", 5),
        ("docs/cases.md", 5),
        ("docs/histogram.md", 1),
        ("docs/histogram-objects.md", 3),
    ],
)
def test_examples_run(path, least, given):
    if path == "docs/histogram-objects.md":
        pytest.importorskip("boost_histogram", reason="boost-histogram is not installed")
    found = blocks_of(path)
    assert len(found) >= least
    for block in found:
        if path == "README.md" and "bincount(x, weights=w)" in block:
            given["x"] = given["indices"]
        exec(compile(block, f"{path}: {block[:40]!r}", "exec"), given)


def test_what_the_guide_computes(given):
    for block in blocks_of("docs/guide.md"):
        exec(block, given)
    group, x, points = given["group"], given["x"], given["points"]
    np.testing.assert_allclose(given["mean"], [x[group == k].mean() for k in range(50)], atol=1e-4)
    np.testing.assert_allclose(given["average"], given["mean"], atol=1e-5)
    np.testing.assert_allclose(given["sums"], [points[group == k].sum(0, np.float64) for k in range(50)], atol=1e-2)
    assert given["density"].sum() == (abs(4 * points[:, :2] + 0.0) < 16).all(1).sum()
    assert given["result"]["low"].tolist() == [x[group == k].min() for k in range(50)]
    assert x[given["best"]["index"]].tolist() == [x[group == k].max() for k in range(50)]
    assert given["structs"]["weight"].tolist() == given["arrays"][0].tolist()
    assert given["structs"]["length"].tolist() == given["arrays"][1].tolist()
    assert given["same"].tolist() == np.bincount(group).tolist()
    assert 1.3 < given["measured"].value < 2
    rows, centers = given["rows"], given["centers"]
    np.testing.assert_allclose(centers, [rows[group == k].mean(0, np.float64) for k in range(50)], atol=1e-3)
