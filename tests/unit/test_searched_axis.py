"""Small tables of new edges: the search that follows finds the bin of each threshold and of its neighbours."""

from __future__ import annotations

import numpy as np
import pytest

from clhist._core.keys import from_keys
from clhist.axes.axis import searched_axis
from clhist.axes.thresholds import numpy_bins

EDGES = {
    "uniform": lambda rng, number: rng.random(number),
    "normal": lambda rng, number: rng.normal(0, 1e20, number),
    "factors": lambda rng, number: 10 ** rng.uniform(-30, 30, number),
    "near zero": lambda rng, number: np.append(0, rng.random(number - 1) * 1e-20),
    "integers": lambda rng, number: rng.integers(-5, 300, number).astype(float),
    "overflowing": lambda rng, number: np.append(rng.uniform(-3.4e38, 3.4e38, number - 1), np.inf),
}


@pytest.mark.parametrize("most", [1, 2**10, 2**14])
@pytest.mark.parametrize("number", [2, 3, 20, 101, 4097])
@pytest.mark.parametrize("kind", EDGES)
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i2", "i4", "u4", "i8", "u8"])
def test_bins_of_thresholds(dtype, kind, number, most, rng):
    dtype = np.dtype(dtype)
    with np.errstate(all="ignore"):
        bins = numpy_bins(np.sort(EDGES[kind](rng, number)), dtype)
    for fp64 in (True, False) if not bins.is_empty else ():
        axis = searched_axis(bins, most, fp64=fp64)
        assert axis is not None
        (keys, cells), one = axis.arrays, bins.keys.dtype.type(1)
        tested = np.concatenate([bins.keys, bins.keys[1:] - one, np.array([bins.last], bins.keys.dtype)])
        tested = tested[(tested >= bins.keys[0]) & (tested <= bins.last)]
        if axis.kind.kind == "linear":
            count, most, _, _, low, scale = axis.scalars
            with np.errstate(all="ignore"):
                guess = ((from_keys(tested, dtype) - low) * scale).astype(np.float32)
            cell = np.clip(guess, 0, most - 1).astype(int)
        else:
            count, shift, _, _ = axis.scalars
            unsigned = np.dtype(f"u{keys.itemsize}")
            cell = ((tested.view(unsigned) - keys[:1].view(unsigned)) >> unsigned.type(shift)).astype(int)
        found = cells[cell].astype(int)
        for step in reversed(range(axis.kind.steps)):
            found += 2**step * (tested >= keys[found + 2**step])
        np.testing.assert_array_equal(np.minimum(found, count - 1), np.searchsorted(bins.keys, tested, "right") - 1)
