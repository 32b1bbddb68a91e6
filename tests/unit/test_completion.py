"""Completion of names in shells, by the protocol of click."""

from __future__ import annotations

import pytest
from click.shell_completion import ShellComplete

from clhist.cli.main import main


def complete(*words, begun=""):
    completion = ShellComplete(main, {}, "clhist", "_CLHIST_COMPLETE")
    return [item.value for item in completion.get_completions(list(words), begun)]


@pytest.mark.parametrize("command", ["plan", "info"])
def test_profiles(command, tmp_path, monkeypatch):
    monkeypatch.setenv("CLHIST_PROFILES", str(tmp_path))
    (tmp_path / "broken.toml").write_text("name =")  # which is left out without a word
    assert {"nvidia-h100", "nvidia-h200"} <= set(complete(command, "--profile", begun="NVIDIA-H"))
    assert "amd-rdna1" in complete(command, "--profile")
    assert complete(command, "--profile", begun="lunch") == []


def test_operators_strategies_and_statistics():
    assert complete("plan", "--op", begun="arg") == ["argmax", "argmin"]
    assert all(name.startswith("thesis/") for name in complete("strategies", "--strategy", begun="thesis/"))
    assert complete("strategies", "--strategy", begun="thesis/")
    assert "mean" in complete("hist", "--stat", begun="me")
