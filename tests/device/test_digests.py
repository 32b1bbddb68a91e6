"""The bits of exact sums on this device, as planned and as a GPU would: those that every device gives."""

from __future__ import annotations

import covering
import pytest

from clhist.selftest.digests import CASES, WAYS, check_case

CASES_OF_OPERATORS = {
    key: [case for case in CASES if (case.dtype, case.max_abs) == key]
    for key in {(case.dtype, case.max_abs) for case in CASES}
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_bits_of_every_device(case, queue, gpu_like):
    """What the model chooses with both profiles; of the updates, each profile has every other one."""
    chosen, *forced = WAYS
    turn = CASES_OF_OPERATORS[case.dtype, case.max_abs].index(case)  # so that an operator has all in both profiles
    for n, profile in enumerate((None, gpu_like)):
        some = forced if covering.exhaustive else forced[(turn + n) % 2 :: 2]
        check_case(case, queue, profile, (chosen, *some))
