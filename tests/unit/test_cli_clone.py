"""What is not installed, and `clhist bench --emulated` where it cannot be: the error says what is missing."""

from __future__ import annotations

import sys

import pytest
from click.testing import CliRunner

from clhist.cli.clone import from_clone
from clhist.cli.console import InputError
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
    monkeypatch.chdir(tmp_path)
    text = refused(*words, command=command)
    assert f"{asked}: expected a clone of clhist's repository" in text
    assert "git clone https://" in text


def a_clone(root, package):
    """Make a folder that looks like a clone with a package of one module, which no other test imports."""
    (root / package).mkdir(parents=True)
    (root / package / "command.py").write_text("found = __file__\n")
    (root / "pyproject.toml").write_text('[project]\nname = "clhist"\n')
    return root


@pytest.mark.parametrize("below", [".", "docs/howto"])
def test_an_installed_clhist_finds_the_clone_around_the_current_folder(monkeypatch, tmp_path, below):
    package = f"only_in_a_clone_{len(below)}"
    root, other = a_clone(tmp_path / "clone", package), tmp_path / "installed"
    (root / below).mkdir(parents=True, exist_ok=True)
    monkeypatch.setattr("clhist.__file__", str(other / "clhist/__init__.py"))
    monkeypatch.chdir(root / below)
    monkeypatch.setattr(sys, "path", [*sys.path])
    module = from_clone(f"{package}.command", "x")
    assert module.found == str(root / package / "command.py")
    assert sys.path[-1] == str(root)
    assert sys.path.count(str(root)) == 1


@pytest.mark.parametrize("text", ["", '[project]\nname = "other"\n', "project = 1\n", "[project\n"])
def test_folders_of_other_projects_are_not_taken(monkeypatch, tmp_path, text):
    root = a_clone(tmp_path, "never_imported")
    (root / "pyproject.toml").write_text(text)
    monkeypatch.setattr("clhist.__file__", str(tmp_path / "installed/clhist/__init__.py"))
    monkeypatch.chdir(root)
    with pytest.raises(InputError, match=r"^x: expected a clone"):
        from_clone("never_imported.command", "x")
    assert "never_imported" not in sys.modules


def test_an_unknown_gpu():
    assert "expected one of gfx942, gfx1100" in refused("--emulated", "gfx1")


@pytest.mark.parametrize(
    ("option", "value"), [("--suite", "peers"), ("-n", "5M"), ("--race-factor", "2"), ("--plot", "x.png")]
)
def test_what_is_timed_is_refused(option, value):
    assert "with --emulated" in refused("--emulated", "gfx942", option, value)
