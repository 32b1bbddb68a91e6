"""The bits of exact sums on this device, as planned and as a GPU would: those that every device gives."""

from __future__ import annotations

import covering
import pytest

from clhist.selftest.digests import CASES, WAYS, check_case

pytestmark = pytest.mark.usefixtures("with_optimizer")

OPERATORS = [*dict.fromkeys((case.dtype, case.max_abs) for case in CASES)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_bits_of_every_device(case, queue, gpu_like):
    """What the model chooses with both profiles; of the updates, each profile has every other one.

    An operator has each update in one profile, and each update both profiles by turns of operators.
    """
    chosen, *forced = WAYS
    turn = OPERATORS.index((case.dtype, case.max_abs))
    for n, profile in enumerate((None, gpu_like)):
        some = forced if covering.exhaustive else forced[(turn + n) % 2 :: 2]
        check_case(case, queue, profile, (chosen, *some))
