"""Fixtures that tests of the emulator share. They need what `.ci/emulated/prepare` fetches."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path += map(str, Path(__file__).resolve().parents[2:4])  # at the end: they must not hide packages

from emulated import alu
from emulated.launch import settings
from emulated.targets import EVERY_RUN, TARGETS, Target


@pytest.fixture(params=EVERY_RUN)
def target(request: pytest.FixtureRequest) -> Target:
    return TARGETS[request.param]


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin with the same random numbers, and end what hangs soon."""
    settings.restart(1)
    monkeypatch.setattr(settings, "budget", 2_000_000)


def pytest_sessionfinish(session: pytest.Session) -> None:
    alu.save()
