"""The bits of exact sums on this device, as planned and as a GPU would: those that every device gives."""

from __future__ import annotations

import pytest

from clhist.selftest.digests import CASES, check_case


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_bits_of_every_device(case, queue, gpu_like):
    check_case(case, queue)
    check_case(case, queue, gpu_like)
