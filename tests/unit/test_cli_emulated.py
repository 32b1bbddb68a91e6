"""`clhist bench --emulated` where it cannot be: the error says what is missing."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from clhist.cli.main import main


def refused(*words):
    result = CliRunner().invoke(main, ["bench", *words])
    assert result.exit_code != 0
    return " ".join(result.output.split())


def test_without_tools_it_says_how_to_prepare(monkeypatch, tmp_path):
    monkeypatch.setenv("CLHIST_EMULATED", str(tmp_path))
    assert "`.ci/emulated/prepare .emulated` in the root of the clone fetches them" in refused("--emulated", "gfx942")


def test_without_a_clone_it_says_that(monkeypatch, tmp_path):
    monkeypatch.setattr("clhist.__file__", str(tmp_path / "clhist/__init__.py"))
    assert "--emulated: expected a clone of clhist's repository" in refused("--emulated", "gfx942")


def test_an_unknown_gpu():
    assert "expected one of gfx942, gfx1100" in refused("--emulated", "gfx1")


@pytest.mark.parametrize(
    ("option", "value"), [("--suite", "peers"), ("-n", "5M"), ("--race-factor", "2"), ("--plot", "x.png")]
)
def test_what_is_timed_is_refused(option, value):
    assert "with --emulated" in refused("--emulated", "gfx942", option, value)
