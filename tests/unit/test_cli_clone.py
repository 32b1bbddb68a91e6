"""What is not installed, and `clhist bench --emulated` where it cannot be: the error says what is missing."""

from __future__ import annotations

import sys

import pytest
from click.testing import CliRunner

from clhist.cli.main import main


def refused(*words, command="bench"):
    result = CliRunner().invoke(main, [command, *words])
    assert result.exit_code != 0
    return " ".join(result.output.split())


def test_without_tools_it_says_how_to_prepare(monkeypatch, tmp_path):
    monkeypatch.setenv("CLHIST_EMULATED", str(tmp_path))
    assert "`.ci/emulated/prepare .emulated` in the root of the clone fetches them" in refused("--emulated", "gfx942")


@pytest.mark.parametrize(
    ("command", "words", "asked"),
    [
        ("bench", (), "clhist bench"),
        ("bench", ("--help",), "clhist bench"),
        ("selftest", ("--soak", "1"), "--soak"),
        ("selftest", ("--only", "3"), "--only"),
    ],
)
def test_without_a_clone_it_says_how_to_get_one(monkeypatch, tmp_path, command, words, asked):
    monkeypatch.setattr("clhist.__file__", str(tmp_path / "clhist/__init__.py"))
    monkeypatch.delitem(sys.modules, "clhist.cli.bench", raising=False)
    text = refused(*words, command=command)
    assert f"{asked}: expected a clone of clhist's repository" in text
    assert "git clone https://" in text


def test_an_unknown_gpu():
    assert "expected one of gfx942, gfx1100" in refused("--emulated", "gfx1")


@pytest.mark.parametrize(
    ("option", "value"), [("--suite", "peers"), ("-n", "5M"), ("--race-factor", "2"), ("--plot", "x.png")]
)
def test_what_is_timed_is_refused(option, value):
    assert "with --emulated" in refused("--emulated", "gfx942", option, value)
