"""SciPy's own tests of its statistics by bins, with our functions in the place of SciPy's."""

from __future__ import annotations

import pytest

import clhist.stats

pytest.importorskip("scipy", reason="SciPy is not installed")
theirs = pytest.importorskip("scipy.stats.tests.test_binned_statistic", reason="this SciPy has no tests")


@pytest.fixture(autouse=True)
def our_functions(monkeypatch, on_the_device):
    """Put our functions where SciPy's tests look for them, and leave nothing to SciPy because it is small."""
    for name in clhist.stats.__all__:
        monkeypatch.setattr(theirs, name, getattr(clhist.stats, name))


class TestBinnedStatistic(theirs.TestBinnedStatistic):
    pass
