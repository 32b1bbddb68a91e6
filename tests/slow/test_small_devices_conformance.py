"""The conformance suite on small devices: on the one that lacks everything, and each row on a device with one lack.

With ``--exhaustive`` each small device runs each row. On all of them, checks that are refused launch nothing.
"""

from __future__ import annotations

from contextlib import nullcontext

import covering
import pytest
from environment import without_optimizer
from small_devices import SMALL_DEVICES, small_device

from clhist.selftest.checks import HOLDS, UNAVAILABLE
from clhist.selftest.forms import DIGESTS, FORMS
from clhist.selftest.suite import checks
from clhist.selftest.updates import ROWS, row_name

ALL = "all of these"
LACKS = [name for name in SMALL_DEVICES if name != ALL]
# Exact sums in all ways, which tests/device/test_digests.py has, what takes a CPU minutes, and what is for CPUs alone:
# small devices are presented as GPUs.
LEFT_OUT = (*DIGESTS, "more than 2^31 elements", "copies in turn, tiles")
ROW_NAMES = [row for row in (*(row_name(*row) for row in ROWS), *FORMS) if row not in LEFT_OUT]
# As in a Latin square, each lack meets a part of the rows, and each row meets a lack.
STEP = 1 if covering.exhaustive else len(LACKS)
SUITE = [(ALL, row) for row in ROW_NAMES]
SUITE += [(name, row) for k, name in enumerate(LACKS) for row in ROW_NAMES[k % STEP :: STEP]]


@pytest.fixture(scope="module")  # pytest runs all tests of one device together, and ends it before the next
def small(request, queue):
    # What compilers make of these kernels is tested on the device that lacks everything.
    build = nullcontext if request.param == ALL else without_optimizer
    with build(), small_device(request.param, queue.device) as (small, launches):
        yield small, launches


def run(rows, small, *, quick):
    """Run the checks of rows, assert that none is wrong and that refused ones launch nothing; return how many hold."""
    queue, launches = small
    number = 0
    for check in checks(queue, quick=quick):
        if rows is not None and check.row not in rows:
            continue
        before = launches.number
        outcome = check.run()
        assert outcome.status in (HOLDS, UNAVAILABLE), f"{check.label}: {outcome.words}"
        if outcome.status == UNAVAILABLE and outcome.words.startswith("update: "):
            assert launches.number == before, f"{check.label} is refused after a launch"
        number += outcome.status == HOLDS
    return number


@pytest.mark.parametrize(("small", "row"), SUITE, indirect=["small"])
def test_conformance(small, row):
    assert run({row}, small, quick=False) > 0


@pytest.mark.parametrize("small", LACKS, indirect=True)
def test_quick_checks_with_one_lack(small):
    assert run(None, small, quick=True) > 20
