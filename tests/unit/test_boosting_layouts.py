"""The proofs that sums of integers have room beside each other in a cell, against integers of Python."""

from itertools import product

import pytest

from clhist.boosting.kernels import MOST_ROWS, has_room, sweeps_of


def signed(value, bits):
    return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


@pytest.mark.parametrize("rows", [1, 3, 4099, 37_879, MOST_ROWS])
def test_what_has_room_is_read_back(rows):
    """Also of the largest values that there is room for, in all rows of a bin, with either sign."""
    for layout, shift, bits in (("packed", 40, 24), ("narrow", 64, 32)):
        most = (2 ** (bits - 1) - 1) // rows
        assert has_room(layout, [most, 0], rows)
        assert not has_room(layout, [most + 1, 0], rows)
        assert has_room(layout, [0, most + 1], rows) == (layout == "narrow")
        for gradient, hessian in product([-most, 0, most], repeat=2):
            cell = ((gradient << shift) + (hessian << 16) + 1) * rows % 2**64
            hessians = signed(cell >> 16, shift - 16)
            apart = (cell >> 16) - hessians >> 24 if layout == "packed" else gradient * rows
            assert (cell % 2**16, signed(apart, bits), hessians) == (rows, gradient * rows, hessian * rows)
    assert has_room("wide", [2**31, 2**31], rows)


def test_layouts_have_as_many_features_as_fit():
    assert sweeps_of(7, 256, 256, True, True, 65_472) == (("packed", 28), ("narrow", 16), ("wide", 12))
    assert sweeps_of(7, 256, 1, True, True, 500_000) == (("packed", 28), ("wide", 28))
    for whole in (False, True):
        assert sweeps_of(7, 256, 256, False, whole, 32_704) == (("wide", 12),)
