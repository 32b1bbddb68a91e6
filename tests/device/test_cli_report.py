"""`clhist report`: one self-contained HTML file."""

import html.parser
import json
import re

import pytest
from click.testing import CliRunner

from clhist.cli.main import main
from clhist.cli.report import findings
from clhist.cli.report.charts import line_chart, plan_map
from clhist.cli.report.page import page

LINES = {"clhist <&>": [(31, 1e-5), (2041, 2e-5)], "other": [(31, 3e-4), (2041, 5e-3)]}
VOID = {"meta", "br", "path", "circle", "rect"}


class Strict(html.parser.HTMLParser):
    """Elements must be closed in order, and nothing may lead outside."""

    def __init__(self):
        super().__init__()
        self.open, self.words = [], []

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name in ("src", "href"):
                assert value.startswith("#"), value
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def parsed(text):
    parser = Strict()
    parser.feed(text)
    parser.close()
    assert not parser.open
    return " ".join(" ".join(parser.words).split())


@pytest.fixture
def found():
    """Findings as the command has them, but what takes long is made up."""
    checks = {
        "columns": ["int32", "float32"],
        "cells": {"native, local": {"int32": {"holds": 3, "wrong": 0, "not available": 0}}},
        "wrong": [],
        "seconds": 2.0,
    }
    times = {"operation": "count", "num_elements": 1000, "lines": LINES}
    return {"device": findings.device(), "self-test": checks, "times of count": times, "plans": findings.plans()}


def test_the_page_is_well_formed_and_refers_to_nothing(found):
    text = page(found)
    words = parsed(text)
    assert "http://" not in text
    assert "https://" not in re.sub(r"<td>[^<]*</td>", "", text)  # sources of numbers may name documents
    for expected in ("All checks hold", "clhist <&>", "Thw", "L2_line"):
        assert expected in words
    assert found["device"]["name"] in words


def test_wrong_checks_are_shown_first(found):
    found["self-test"]["cells"]["lock, global"] = {"float32": {"holds": 1, "wrong": 1, "not available": 0}}
    found["self-test"]["wrong"] = [{"check": "lock, global, float32", "words": "bin 3 is <wrong>"}]
    words = parsed(page(found))
    assert "1 checks are wrong. lock, global, float32 bin 3 is <wrong>" in words
    assert "FAILS" in words


def test_every_plan_is_on_the_map(found):
    for plans in found["plans"]["maps"].values():
        assert all(plan["race_factor"] <= plan["num_bins"] for plan in plans)
        kinds = {f"{plan['strategy']}, {plan['update']}": "#123456" for plan in plans}
        assert plan_map(plans, kinds).count("#123456") == len(plans)


def test_a_chart_has_a_point_for_each_time():
    text = line_chart(LINES, x_label="bins", y_label="time")
    assert text.count("<circle") == 4
    parsed(text)
    across = [float(x) for x in re.findall(r'<circle cx="([\d.]+)"', text)]
    assert 0 < min(across) < max(across) < 680
    assert line_chart({}, x_label="bins", y_label="time") == "<p>Nothing was measured.</p>"


def test_the_command(tmp_path, monkeypatch, found):
    monkeypatch.setattr(findings, "checks", lambda **_: found["self-test"])
    monkeypatch.setattr(findings, "times", lambda *_, **__: found["times of count"])
    path = tmp_path / "report.html"
    result = CliRunner().invoke(main, ["report", "--output", str(path), "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["device"]["name"] == found["device"]["name"]
    parsed(path.read_text())
    found["self-test"]["wrong"] = [{"check": "x", "words": "y"}]
    result = CliRunner().invoke(main, ["report", "--output", str(path)])
    assert result.exit_code == 1
    assert "1 checks of the self-test are wrong" in result.output
    assert CliRunner().invoke(main, ["report", "--output", "report.txt"]).exit_code == 2
