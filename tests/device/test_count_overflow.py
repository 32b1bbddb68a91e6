"""Counts of integers whose bins no memory has, which NumPy writes outside of: the same error for few and many."""

import numpy as np
import pyopencl.array as cl_array
import pytest
from covering import covering, each_value_quick

import clhist

# Without optimization, kernels that count 2^28 bins take three times as long.
pytestmark = pytest.mark.usefixtures("with_optimizer")

LAST = np.iinfo(np.int64).max
TOO_BIG = "^array is too big"


@pytest.mark.parametrize("largest", [LAST, LAST - 1, LAST // 8, LAST // 8 + 1])
@pytest.mark.parametrize("size", [1, 50_000])
def test_bins_that_overflow(queue, largest, size):
    x = np.full(size, largest)
    for given in (x, cl_array.to_device(queue, x), *([x.tolist()] if size == 1 else [])):
        with pytest.raises(ValueError, match=TOO_BIG):
            clhist.bincount(given)
    for minlength in (1, 5, np.int64(5), True):
        with pytest.raises(ValueError, match=TOO_BIG):
            clhist.bincount(x, minlength=minlength)
    with pytest.raises(ValueError, match=TOO_BIG):
        clhist.bincount(x, np.ones(size))
    with pytest.raises(ValueError, match=TOO_BIG):
        clhist.bincount(np.ma.array(x))
    with pytest.raises(ValueError, match=r"negative"):
        clhist.bincount(np.append(x, -1))


# Calls that make bins of the first guess take 0.3 s each.
LAYOUTS = {"contiguous": np.array, "with gaps": lambda x: np.repeat(x, 2)[::2], "swapped": lambda x: x.astype(">i8")}
AMONG_OTHERS = each_value_quick(
    covering(
        [LAST, LAST // 8 + 1, (LAST // 8 + 1) | 2**31 - 1], [1, 4096, 4097, 10_000], [0, -1], LAYOUTS, [False, True]
    )
)


@pytest.mark.parametrize(("largest", "size", "place", "layout", "weighted"), AMONG_OTHERS)
def test_one_among_others(largest, size, place, layout, weighted):
    """Of few and of some thousands, at the first and last place, with gaps, and of the other byte order."""
    if clhist.default_queue().device.max_mem_alloc_size < 2**28 * 9:  # and some more bins
        pytest.skip("the device refuses memory for bins of the first guess")
    x = np.full(size, 2**28)  # halves of integers are compared first, and these are as large
    x[place] = largest
    with pytest.raises(ValueError, match=TOO_BIG):
        clhist.bincount(LAYOUTS[layout](x), *([np.ones(size)] if weighted else []))


@pytest.mark.parametrize("size", [10, 5000])
def test_numbers_whose_halves_are_large(size):
    """Small ones of any byte order are counted, negative ones refused."""
    x = np.arange(size) % 7
    for given in (x, x.astype(">i8"), np.repeat(x, 2)[::2]):
        np.testing.assert_array_equal(clhist.bincount(given, minlength=9), np.bincount(x, minlength=9))
    with pytest.raises(ValueError, match="negative"):
        clhist.bincount(np.append(x, -(2**63)))


def test_in_other_containers():
    pandas = pytest.importorskip("pandas")
    with pytest.raises(ValueError, match=TOO_BIG):
        clhist.bincount(pandas.Series([3, LAST]))
    with pytest.raises(ValueError, match=TOO_BIG):
        clhist.bincount([1, LAST], devices="all")
    with pytest.raises(ValueError, match=TOO_BIG):
        clhist.bincount([1, 2], minlength=2**62)


@pytest.mark.parametrize("size", [1, 50_000])
def test_memory_is_named(queue, size):
    x = np.full(size, 2**40)
    for given in (x, cl_array.to_device(queue, x)):
        with pytest.raises(MemoryError, match=r"^x: expected few enough bins .*clhist.factorize"):
            clhist.bincount(given)
    with pytest.raises(MemoryError, match=r"^minlength: expected few enough bins"):
        clhist.bincount(np.zeros(size, int), minlength=2**41)
