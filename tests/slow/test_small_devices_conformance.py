"""The conformance suite on a device that lacks all that small ones lack; its quick part for each lack alone."""

from __future__ import annotations

import pytest
from small_devices import SMALL_DEVICES, small_device

from clhist.selftest.checks import HOLDS, UNAVAILABLE
from clhist.selftest.forms import DIGESTS, FORMS
from clhist.selftest.suite import checks
from clhist.selftest.updates import ROWS, row_name

ALL = "all of these"
# Exact sums in all ways, which tests/device/test_digests.py has, what takes a CPU minutes, and what is for CPUs alone:
# small devices are presented as GPUs.
LEFT_OUT = (*DIGESTS, "more than 2^31 elements", "copies in turn, tiles")


@pytest.fixture(scope="class")  # ended before another device is presented
def smallest(queue):
    with small_device(ALL, queue.device) as (small, _):
        yield small


class TestSmallest:
    @pytest.mark.parametrize(
        "row", [row for row in (*(row_name(*each) for each in ROWS), *FORMS) if row not in LEFT_OUT]
    )
    def test_conformance(self, row, smallest):
        outcomes = [check.run() for check in checks(smallest) if check.row == row]
        assert [outcome.words for outcome in outcomes if outcome.status not in (HOLDS, UNAVAILABLE)] == []
        assert any(outcome.status == HOLDS for outcome in outcomes)


@pytest.mark.parametrize("name", [name for name in SMALL_DEVICES if name != ALL])
def test_one_lack(name, queue):
    with small_device(name, queue.device) as (small, _):
        outcomes = [check.run() for check in checks(small, quick=True)]
    assert [outcome.words for outcome in outcomes if outcome.status not in (HOLDS, UNAVAILABLE)] == []
    assert sum(outcome.status == HOLDS for outcome in outcomes) > 20
