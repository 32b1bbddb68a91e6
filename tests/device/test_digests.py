"""The bits of exact sums on this device, as planned and as a GPU would: those that every device gives."""

from __future__ import annotations

import pytest
from covering import covering

from clhist.selftest.digests import CASES, WAYS, check_case


@pytest.mark.parametrize("case", [case for case in CASES if case.max_abs is None], ids=lambda case: case.name)
def test_bits_of_every_device(case, queue, gpu_like):
    check_case(case, queue)
    check_case(case, queue, gpu_like)


@pytest.mark.parametrize(
    ("case", "way", "is_gpu"),
    covering([case for case in CASES if case.max_abs is not None], WAYS, [False, True]),
    ids=lambda value: value.name if isinstance(value, tuple) else str(value),
)
def test_bits_of_windows(case, way, is_gpu, queue, gpu_like):
    """Each window is a type of its own, with other programs."""
    check_case(case, queue, gpu_like if is_gpu else None, (way,))
