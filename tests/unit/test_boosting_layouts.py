"""The proofs that sums of integers have room beside each other in a cell, against integers of Python."""

from __future__ import annotations

from itertools import product

import pytest

from clhist.codegen.boosting import MOST_ROWS, has_room, sweeps_of


def signed(value, bits):
    return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


@pytest.mark.parametrize("rows", [1, 3, 4099, 37_879, MOST_ROWS])
def test_what_has_room_is_read_back(rows):
    """Also of the largest values that there is room for, in all rows of a bin, with either sign."""
    least = {"packed": 2**23, "narrow": 2**31}
    for layout, above in least.items():
        most = (above - 1) // rows
        assert has_room(layout, [most, 0], rows)
        assert not has_room(layout, [most + 1, 0], rows)
        assert has_room(layout, [0, most + 1], rows) == (layout == "narrow")
        for gradient, hessian in product([-most, 0, most], repeat=2):
            cell = sum([(gradient << 40 if layout == "packed" else 0) + (hessian << 16) + 1]) * rows % 2**64
            if layout == "packed":
                hessians = signed(cell >> 16, 24)
                assert signed((cell >> 16) - hessians >> 24, 24) == gradient * rows
                assert hessians == hessian * rows
            else:
                assert signed(gradient * rows % 2**32, 32) == gradient * rows
                assert signed(cell >> 16, 48) == hessian * rows
            assert cell % 2**16 == rows
    assert has_room("wide", [2**31, 2**31], rows)


def test_layouts():
    """Of fewer bytes come first, and have as many features of 28 as fit."""
    assert sweeps_of(7, 256, 1024, True, True, 232_384) == (("packed", 28), ("narrow", 28), ("wide", 28))
    assert sweeps_of(7, 256, 256, True, True, 65_472) == (("packed", 28), ("narrow", 20), ("wide", 12))
    assert sweeps_of(7, 256, 1, True, True, 500_000) == (("packed", 28), ("wide", 28))
    assert (
        sweeps_of(7, 256, 256, False, True, 32_704) == sweeps_of(7, 256, 256, False, False, 32_704) == (("wide", 16),)
    )
