"""The command `clhist` in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from clhist.cli.main import main


def runner(*command: str) -> Callable[..., Result]:
    """Return what runs a command with arguments."""
    return lambda *arguments: CliRunner().invoke(main, [*command, *map(str, arguments)])


def with_json(run: Callable[..., Result], file: Path) -> Callable[..., tuple[str, Any]]:
    """Return what runs a command that writes JSON into a file, and returns its output and what it wrote."""

    def call(*arguments: object, status: int = 0) -> tuple[str, Any]:
        result = run(*arguments, "--json", str(file))
        assert result.exit_code == status, result.output
        return result.output, json.loads(file.read_text())

    return call


def run_hist(*arguments: object, code: int = 0) -> Result:
    """Run `clhist hist`, which is to end with this status."""
    outcome = CliRunner().invoke(main, ["hist", *map(str, arguments)], catch_exceptions=False)
    assert outcome.exit_code == code, outcome.output
    return outcome


def as_json(result: Result) -> Any:
    """Return what a command wrote as JSON."""
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def refused(result: Result, *says: str) -> Any:
    """Check that a command ended with the status of wrong usage, and said all of this."""
    assert result.exit_code == 2, result.output
    for each in says:
        assert each in result.output
    return result
