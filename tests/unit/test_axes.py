"""Axes: keys compare as numbers do, thresholds bin as NumPy does, and what a kernel searches leads to the same bins."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from clhist._core.keys import from_keys, has_keys, key_dtype, key_range, keys_of
from clhist.axes.axis import axis_of
from clhist.axes.block_search import EVEN, KEYED, LINEAR
from clhist.axes.edges import EdgesKind
from clhist.axes.guess import even_guess
from clhist.axes.kinds import FlowKind
from clhist.axes.pieces import Pieces, flow_axis, joined, pieces_by
from clhist.axes.thresholds import _scalar_key, first_keys, numpy_bins, rounded_bins, within_range

FLOATS = [np.dtype(each) for each in ("f2", "f4", "f8")]
INTEGERS = [np.dtype(each) for each in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8")]
EDGES = {
    "even": np.linspace(-2, 2, 11),
    "one": np.array([0.25, 0.75]),
    "equal": np.array([0.0, 1.0, 1.0, 1.0, 2.0]),
    "random": np.sort(np.random.default_rng(0).normal(size=40)) * 50,
    "logarithmic": np.geomspace(1e-3, 1e4, 60),
    "zero": np.array([-0.0, 0.0, 5e-324, 1.0]),
    "infinite": np.array([-np.inf, -1.0, 0.0, 1.0, np.inf]),
    "beyond": np.array([-1e300, -3e9, 3e9, 1e300]),
}


def numbers_of(dtype: np.dtype, edges: np.ndarray) -> np.ndarray:
    """Return numbers of `dtype` on the edges, beside them, between them, and at the ends of the dtype."""
    with np.errstate(all="ignore"):
        if dtype.kind == "f":
            near = edges.astype(dtype)
            ends = np.array([-np.inf, np.inf, 0.0, -0.0], dtype)
            beside = [np.nextafter(near, dtype.type(end)) for end in (-np.inf, np.inf)]
            return np.unique(np.concatenate([near, *beside, ends, (near[1:] + near[:-1]) / 2]))
        info = np.iinfo(dtype)
        near = np.clip(np.concatenate([edges - 1, edges, edges + 1]), -(2.0**62), 2.0**62).astype(np.int64)
        inside = near[(near >= info.min) & (near <= info.max)].astype(dtype)
        return np.unique(np.concatenate([inside, np.array([info.min, info.max], dtype)]))


def numpy_bin(edges: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return the bin of each number as numpy.histogram compares, -1 outside."""
    k = np.searchsorted(edges, x, "right") - 1
    k[x == edges[-1]] = np.searchsorted(edges, edges[-1], "left") - 1
    if edges[-1] == edges[-2]:  # the last bin is closed, though it is empty otherwise
        k[x == edges[-1]] = len(edges) - 2
    return np.where((x < edges[0]) | (x > edges[-1]) | np.isnan(x.astype(np.float64)), -1, k)


def searched(axis, x: np.ndarray) -> np.ndarray:
    """Return the bins that the C of a table finds, computed as it is written there."""
    keys, cells = axis.arrays
    numbers = keys_of(x)
    kind = axis.kind
    unsigned = np.dtype(f"u{numbers.dtype.itemsize}")
    if kind.kind == LINEAR:
        num_bins, num_cells, start, last, low, scale = axis.scalars
        with np.errstate(all="ignore"):
            if x.dtype.kind == "f":
                guess = ((x - low) * scale).astype(np.float32)
            else:
                steps = numbers.astype(unsigned) - np.asarray(low).astype(numbers.dtype).astype(unsigned)
                guess = (steps.astype(np.float32) + np.float32(0.5)) * scale
            guess = np.where(guess > 0, np.minimum(guess, num_cells - 1), 0)
        cell = guess.astype(np.int64)
    else:
        num_bins, shift, start, last = axis.scalars
        within = np.clip(numbers, start, last)
        cell = ((within.astype(unsigned) - np.asarray(start).astype(unsigned)) >> unsigned.type(shift)).astype(np.int64)
    k = cells[cell].astype(np.int64)
    for step in reversed(range(kind.steps)):
        k += 2**step * (numbers >= keys[np.minimum(k + 2**step, len(keys) - 1)])
    return np.where((numbers < start) | (numbers > last), -1, np.minimum(k, num_bins - 1))


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=str)
def test_keys_compare_as_numbers_and_lead_back(dtype):
    numbers = numbers_of(dtype, np.concatenate(list(EDGES.values())))
    numbers = numbers[~np.isnan(numbers)] if dtype.kind == "f" else numbers
    keys = keys_of(numbers)
    assert keys.dtype == key_dtype(dtype)
    assert has_keys(dtype)
    assert (np.diff(keys.astype(object)) > 0).all()
    np.testing.assert_array_equal(from_keys(keys, dtype), numbers)
    assert key_range(dtype) == (int(keys[0]), int(keys[-1]))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_nan_lies_outside_of_all_keys_and_zeros_are_neighbours(dtype):
    low, high = key_range(dtype)
    nan, negative = keys_of(np.array([np.nan, np.copysign(np.nan, -1)], dtype))
    assert nan > high
    assert negative < low
    minus, plus = keys_of(np.array([-0.0, 0.0], dtype))
    assert plus - minus == 1


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=str)
@pytest.mark.parametrize("edges", EDGES.values(), ids=EDGES)
def test_thresholds_bin_as_numpy(dtype, edges):
    bins, x = numpy_bins(edges, dtype), numbers_of(dtype, edges)
    keys = keys_of(x)
    k = np.searchsorted(bins.keys, keys, "right") - 1
    found = np.where((k < 0) | (keys > bins.last), -1, k)
    with np.errstate(all="ignore"):
        common = np.result_type(dtype, edges.dtype)
        np.testing.assert_array_equal(found, numpy_bin(edges.astype(common), x.astype(common)))


@pytest.mark.parametrize("dtype", [np.dtype(each) for each in ("f4", "f8", "i4", "u4", "i8", "u8")], ids=str)
@pytest.mark.parametrize("edges", EDGES.values(), ids=EDGES)
def test_searches_of_tables_find_the_bins_of_the_thresholds(dtype, edges):
    bins, x = numpy_bins(edges, dtype), numbers_of(dtype, edges)
    if bins.is_empty:
        return
    axis = axis_of(bins, fp64=True)
    keys = keys_of(x)
    k = np.minimum(np.searchsorted(bins.keys, keys, "right") - 1, len(bins.keys) - 1)
    expected = np.where((keys < bins.keys[0]) | (keys > bins.last), -1, k)
    assert axis.extent == len(edges) - 1
    if axis.kind.kind == EVEN:
        low, scale, margin = axis.scalars[-3:]
        with np.errstate(all="ignore"):
            guess = even_guess(bins).at(keys, dtype)
            near = np.rint(guess - np.float32(0.5))
            sure = (np.abs(guess - np.float32(0.5) - near) < np.float32(0.5) - margin) & (near >= 0)
            sure &= near < len(bins.keys)
        assert scale > 0
        assert low == from_keys(bins.keys[:1], dtype)[0]
        np.testing.assert_array_equal(near[sure], expected[sure])
    else:
        np.testing.assert_array_equal(searched(axis, x), expected)


def test_the_kind_of_search_suits_the_edges():
    kinds = {name: axis_of(numpy_bins(edges, np.dtype(np.float32)), fp64=True).kind for name, edges in EDGES.items()}
    assert kinds["even"].kind == kinds["one"].kind == EVEN
    assert kinds["logarithmic"].kind == KEYED
    assert kinds["random"].kind in (LINEAR, KEYED)
    assert all(isinstance(kind, EdgesKind) and kind.has_block for kind in kinds.values())
    assert not axis_of(numpy_bins(EDGES["even"], np.dtype(np.float16)), fp64=True).kind.has_block


@pytest.mark.parametrize("dtype", [np.dtype(each) for each in ("f4", "f8", "i8")], ids=str)
def test_a_packed_table_has_the_bins_of_the_table(dtype):
    edges = np.sort(np.random.default_rng(1).choice(10**6, 30, replace=False)).astype(np.float64)
    axis = axis_of(numpy_bins(edges, dtype), fp64=True)
    if axis.kind.steps != 1:
        pytest.fail(f"expected a table with one step, got {axis.kind}")
    packed = axis.packed
    assert packed.kind.packed
    assert packed.packed is packed
    keys, cells = axis.arrays
    table = packed.arrays[1]
    if dtype.itemsize == 4:
        k, limit = (table & 0xFFFFFFFF).astype(np.int32), table >> 32
    else:
        k, limit = table[::2].astype(np.int32), table[1::2]
    assert k[0] == -1
    for cell in range(len(cells) - 1):
        first = int(k[cell + 1])
        assert cells[cell] <= first + (limit[cell + 1] < np.iinfo(keys.dtype).max)
        if limit[cell + 1] < np.iinfo(keys.dtype).max:
            assert limit[cell + 1] == keys[first + 1] - 1


def test_scipys_last_bin_has_what_rounds_to_its_upper_edge():
    edges = np.array([0.0, 0.5, 1.0])
    double, above = np.dtype(np.float64), np.array([1.0, np.nextafter(1.0, 2), 1 + 1e-9, 1.1])
    bins = rounded_bins(edges, double, double)
    assert (keys_of(above) <= bins.last).tolist() == [True, True, True, False]
    assert (keys_of(above) <= numpy_bins(edges, double).last).tolist() == [True, False, False, False]


@pytest.mark.parametrize("dtype", ["f4", "f8", "i2", "i8"])
def test_the_end_of_scipys_last_bin_is_found_wherever_it_is(dtype):
    """The last number that is below the upper edge or rounds to it, and no later one."""
    rng, dtype = np.random.default_rng(0), np.dtype(dtype)
    for n in range(60):
        low, width, number = (
            rng.normal() * 10.0 ** rng.integers(-8, 9),
            10.0 ** rng.integers(-9, 9),
            int(rng.integers(2, 40)),
        )
        edges = np.linspace(low, low + width, number)
        if n % 3 == 0:
            edges = np.round(edges) + np.arange(number)
        if not (np.diff(edges) > 0).all():
            continue
        bins = rounded_bins(edges, dtype, np.dtype(np.float64))
        decimals = int(-np.log10(np.diff(edges).min())) + 6
        least, greatest = key_range(dtype)
        with np.errstate(all="ignore"):
            near = [key for key in range(bins.last - 3, bins.last + 4) if least <= key <= greatest]
            x = from_keys(np.array(near, key_dtype(dtype)), dtype).astype(np.float64)
            is_behind = (x >= edges[-1]) & (np.around(x, decimals) != np.around(edges[-1], decimals))
        assert is_behind.tolist() == [key > bins.last for key in near]


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_the_margin_of_a_guess_covers_all_numbers(dtype):
    rng, dtype = np.random.default_rng(0), np.dtype(dtype)
    for number in (1, 2, 7, 300, 4000):
        low = rng.normal() * 10.0 ** rng.integers(-5, 6)
        edges = np.linspace(low, low + 10.0 ** rng.integers(-3, 5), number + 1).astype(dtype)
        if not (np.diff(edges) > 0).all():
            continue
        bins = numpy_bins(edges, dtype)
        guess = even_guess(bins)
        margin = guess and guess.margin(bins)
        if not margin:
            continue
        keys = np.concatenate([bins.keys - 1, bins.keys, bins.keys + 1, [bins.last, bins.last - 1]])
        keys = keys[(keys >= bins.keys[0]) & (keys <= bins.last)]
        own = np.searchsorted(bins.keys, keys, "right") - 1
        guesses = guess.at(keys, dtype).astype(np.float64)
        assert ((guesses >= own - margin) & (guesses <= own + 1 + margin)).all()


def test_a_range_cuts_the_ends():
    single = np.dtype(np.float32)
    bins = within_range(numpy_bins(np.linspace(0, 1, 5), single), 0.1, 0.9)
    low, high = from_keys(np.array([bins.keys[0], bins.last], bins.keys.dtype), single)
    assert (low, high) == (np.float32(0.1), np.float32(0.9))
    assert within_range(bins, 0.9, 0.1).is_empty


def test_edges_that_no_number_reaches_have_no_keys():
    assert len(first_keys(np.array([0.0, 200.0, 300.0]), np.dtype(np.uint8))) == 2
    assert len(first_keys(np.array([1e39]), np.dtype(np.float32))) == 1  # infinity
    assert len(first_keys(np.array([np.inf]), np.dtype(np.float32), strict=True)) == 0


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=str)
def test_pieces_of_a_monotone_function(dtype):
    lowest, highest = key_range(dtype)
    thresholds = np.array([-100.0, -1.5, 0.0, 3.0, 100.0])

    def index(x):
        return np.searchsorted(thresholds, x.astype(np.float64), "right")

    keys, numbers = pieces_by(index, dtype, (lowest, highest))
    assert keys[0] == lowest
    x = numbers_of(dtype, thresholds)
    piece = numbers[np.searchsorted(keys, keys_of(x), "right") - 1]
    np.testing.assert_array_equal(piece, index(x))


def test_neighbours_of_one_bin_are_joined_and_ends_are_flow():
    single = np.dtype(np.float32)
    lowest = key_range(single)[0]
    keys = keys_of(np.array([0.0, 1.0, 1.0, 2.0, 3.0], single))
    pieces = Pieces(single, np.insert(keys, 0, lowest).astype(np.int32), np.array([0, 1, 5, 2, 2, 3]), 3)
    assert joined(pieces).bins.tolist() == [0, 1, 2, 3]
    axis = flow_axis(pieces, 4, fp64=True)
    assert isinstance(axis.kind, FlowKind)
    assert not axis.kind.listed
    assert axis.scalars[-4:] == (0, 3, 3, 1)  # below, above, NaN, the first bin
    assert axis.extent == 4


WIDER_EDGES = [
    -np.inf, -1e300, -65519.9, -65504.0, -1.0 - 1e-9, -1.0, -1e-30, -1e-320, -0.0, 0.0, 1e-320, 1e-30, 2.0**-24,
    1 / 3, 1.0, 1.0 + 1e-12, 2049.0, 65504.0, 65519.9, 65520.0, 3.4028234663852886e38, 3.4028235e38, 1e300, np.inf,
]  # fmt: skip


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_first_keys_of_edges_that_are_wider_than_the_data(dtype, strict):
    # All numbers of half precision; of single precision the four nearest to each edge.
    if dtype == np.float16:
        numbers = np.arange(2**16, dtype=np.uint16).view(dtype)
    else:
        with np.errstate(all="ignore"):
            near = np.array(WIDER_EDGES).astype(dtype)
            below, above = np.nextafter(near, dtype(-np.inf)), np.nextafter(near, dtype(np.inf))
            last = np.nextafter(below, dtype(-np.inf))
        numbers = np.concatenate([near, below, above, last, [0.0, -0.0]]).astype(dtype)
    numbers = numbers[~np.isnan(numbers)]
    keys, wide = keys_of(numbers), numbers.astype(np.float64)
    reached = [wide > edge if strict else wide >= edge for edge in WIDER_EDGES]
    expected = [keys[each].min() for each in reached if each.any()]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        actual = first_keys(np.array(WIDER_EDGES), np.dtype(dtype), strict=strict)
        scalars = [_scalar_key(np.float64(edge), np.dtype(dtype), strict=strict) for edge in WIDER_EDGES]
    assert actual.tolist() == expected
    assert [one for one in scalars if one is not None] == expected
