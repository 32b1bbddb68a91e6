"""`clhist reproduce`: what a source measured, measured here, and which of its claims hold."""

import json
import math

import numpy as np
import pytest
from click.testing import CliRunner

from clhist._core.opencl.device import device_profile
from clhist.cli.main import main
from clhist.cli.reproduce import command, published
from clhist.cli.reproduce.claims import COMPARISONS, SOURCES, compared, sc20
from clhist.cli.reproduce.page import page
from clhist.cli.reproduce.sc20 import AUTO, OURS, SORT, Input, Lab, Point, model_table

pytestmark = pytest.mark.usefixtures("without_optimizer")


def run(*arguments):
    return CliRunner().invoke(main, ["reproduce", *arguments, "--quiet"])


@pytest.mark.parametrize("source", [each for each in SOURCES if each != "sc20"])
def test_strategies_are_compared(source, tmp_path):
    file = tmp_path / "page.html"
    found = run(source, "-n", "3000", "--output", str(file), "--json")
    assert found.exit_code == 0, found.output
    values = json.loads(found.stdout)
    assert [each["claim"] for each in values["claims"]] == [each.claim for each in COMPARISONS[source]]
    times = {(name, data): seconds for name, data, _, seconds, _ in values["times"]}
    for each, said in zip(COMPARISONS[source], values["claims"], strict=True):
        if said["found"] is not None:
            assert said["found"] == pytest.approx(times[each.over] / times[each.under])
            assert said["holds"] == (each.limits[0] <= said["found"] <= each.limits[1])
    text = file.read_text(encoding="utf-8")
    assert all(each.where in text for each in COMPARISONS[source])


def test_sc20_on_few_bins(monkeypatch, tmp_path):
    monkeypatch.setattr(command, "_QUICK_BINS", (31, 12281))
    monkeypatch.setattr(command.published, "TABLE_3", ())
    monkeypatch.setattr("clhist.cli.reproduce.sc20.TABLE_3", ())
    file = tmp_path / "page.html"
    found = run("sc20", "--quick", "-n", "5000", "--output", str(file), "--json")
    assert found.exit_code == 0, found.output
    values = json.loads(found.stdout)
    assert not values["wrong"]
    points = {(p["update"], p["memory"], p["race_factor"], p["num_bins"], p["choice"]): p for p in values["points"]}
    for update in ("HDW", "CAS", "XCG"):
        for factor in (1, 63):
            assert points[update, "local", factor, 31, "M9"]["seconds"] > 0
            assert points[update, "global", factor, 12281, AUTO]["seconds"] > 0
            assert points[update, "", factor, 31, OURS]["seconds"] > 0
            assert points[update, "", factor, 12281, SORT]["seconds"] > 0
    assert values["claims"][0]["holds"]
    assert "HDW, RF 63" in file.read_text(encoding="utf-8")


def test_a_wrong_result_is_said(queue, monkeypatch):
    lab, given = Lab(queue.context), Input(np.arange(500, dtype=np.int32), 31, 1)
    monkeypatch.setattr(Input, "expected", lambda self, update: np.zeros(31, np.int64))
    points = list(lab.points(given, "HDW", ["local"]))
    assert all(point.seconds is None and point.note.startswith("wrong: 31 of 31") for point in points if point.copies)


def test_references_by_loops():
    rng = np.random.default_rng(3)
    for race_factor, num_bins in ((1, 7), (63, 200), (63, 31)):
        given = Input(rng.integers(0, 2**31 - 1, 300, np.int32), num_bins, race_factor)
        bins = [int(x) % max(1, num_bins // race_factor) * race_factor for x in given.elements]
        sums = [0] * num_bins
        best = [-1] * num_bins
        for i, (bin, x) in enumerate(zip(bins, given.elements.tolist(), strict=True)):
            sums[bin] += x & 255
            best[bin] = max(best[bin], x << 31 | 2**31 - 1 - i)
        assert given.expected("HDW").tolist() == given.expected("CAS").tolist() == sums
        assert given.expected("XCG").tolist() == best


def points_of(seconds):
    return [Point(*key, 1, 1, value) for key, value in seconds.items()]


def test_claims_are_ratios_of_times(queue):
    model = model_table(device_profile(queue.device))
    seconds = {
        ("HDW", "local", 1, 31, "M1"): 1.1,
        ("HDW", "local", 1, 31, "M0"): 1.0,
        ("HDW", "local", 1, 31, AUTO): 1.04,
        ("HDW", "global", 1, 1572863, "M = 1"): 9.0,
        ("HDW", "global", 1, 1572863, AUTO): 1.0,
        ("CAS", "local", 63, 31, "M1"): 3.0,
        ("CAS", "local", 63, 31, AUTO): 1.0,
        ("CAS", "", 63, 31, SORT): 1.5,
        ("HDW", "", 1, 31, OURS): 0.9,
    }
    found = [(each.found, each.holds) for each in sc20(model, points_of(seconds))]
    ratios = [66, 1.04, 1.1, 9.0, 3.0, 1.5, None, 0.9 / 1.04]
    assert [ratio for ratio, _ in found] == pytest.approx(ratios)
    assert [holds for _, holds in found] == [True, True, True, True, True, False, None, True]
    nothing = [each.holds for each in sc20(model, [])]
    assert nothing == [True, *[None] * 7]


def test_a_comparison_without_times_is_not_measured():
    assert {each.holds for each in compared("thesis", lambda name, data: None)} == {None}


def test_published_numbers():
    assert len(list(published.table_1())) == 66
    for (update, _), faster in published.FASTER.items():
        assert len(faster) == len(published.CUB[update]) == len(published.BINS)
    assert published.futhark_seconds("XCG", 63)[127] == pytest.approx(9.29e-3 / 1.6)
    assert math.isclose(published.futhark_seconds("HDW", 1)[1572863], 46.59e-3 / 27.5)


def test_wrong_usage():
    for size in ("0", "-1", "3000000000"):
        assert "expected 1 to 2,147,483,647" in run("blog", "-n", size).output
    assert run("nothing").exit_code == 2
    assert run("blog", "--output", "page.txt").exit_code == 2


def test_a_page_of_nothing_measured():
    found = {"source": "blog", "device": "a <b>", "platform": "p", "clhist": "1", "date": "d", "num_elements": 1}
    text = page({**found, "claims": [], "times": [("blog/naive", "letters", "failed", None, "<why>")]})
    assert "a &lt;b&gt;" in text
    assert "&lt;why&gt;" in text
