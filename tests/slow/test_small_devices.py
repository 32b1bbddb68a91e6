"""The conformance suite on a device that lacks all that small ones lack; its quick part for each lack alone."""

from __future__ import annotations

import pytest
from small_devices import SMALL_DEVICES, small_device

from clhist.selftest.checks import HOLDS, UNAVAILABLE
from clhist.selftest.suite import checks

# Exact sums in all ways take minutes: tests/device/test_digests.py has them.
LEFT_OUT = ("digests of exact sums", "more than 2^31 elements")


@pytest.mark.parametrize("name", SMALL_DEVICES)
def test_conformance(name, queue):
    with small_device(name, queue.device) as (small, _):
        found = [
            check.run()
            for check in checks(small, quick=name != "all of these")
            if check.row not in LEFT_OUT and (name != "all of these" or not check.row.startswith(("lock", "private")))
        ]
    wrong = [
        f"{outcome.check.label}: {outcome.words}" for outcome in found if outcome.status not in (HOLDS, UNAVAILABLE)
    ]
    assert not wrong
    assert sum(outcome.status == HOLDS for outcome in found) > 10
