"""Histograms by bins that no earlier call had give what NumPy gives, and build no program."""

from __future__ import annotations

from itertools import product

import numpy as np
import pyopencl.array as cl_array
import pytest

import clhist
from clhist._core.opencl.device import device_kind
from clhist._core.opencl.program import programs_built
from clhist._core.runtime.signature import Remembered
from clhist.axes.axis import axis_of
from clhist.binned import device_inputs, numbers
from clhist.binned.sweep import Sweep

pytestmark = pytest.mark.usefixtures("without_optimizer")

SIZE = 3000


def _data(rng, dtype, size=SIZE):
    numbers = rng.normal(0, 50, size)
    with np.errstate(all="ignore"):
        data = numbers.astype(dtype)
    if data.dtype.kind == "f":
        data[:6] = 0.0, -0.0, np.nan, np.inf, -np.inf, 1.0
    return data


def _uneven(rng, number, dtype=np.float64):
    return np.sort(rng.normal(0, 60, number + 1)).astype(dtype)


def _all_bins(rng):
    """Return bins and range of calls: numbers of bins, ranges, and edges, among them unusual ones."""
    ranges = [(-100.0, 100.0), (-1.0, 1e-300), (0.0, 1.0), (-7.5, 1e5), (1e3, 2e3), (-0.0, 3.0), (5.0, 5.0), (-3, 8)]
    even = list(product([1, 2, 10, 100, 257, 5 * SIZE], ranges))
    edges: list[np.ndarray] = [_uneven(rng, number) for number in (1, 2, 3, 17, 100, 101, 900)]
    edges += [_uneven(rng, number, np.float32) for number in (5, 40)]
    edges += [
        np.array(numbers, float) for numbers in ([0, 0], [-1, 0, 0, 0, 4], [-0.0, 0.0, 1.0], [-np.inf, 0, np.inf])
    ]
    edges += [np.linspace(-20, 30, number + 1) for number in (1, 10, 333)]
    edges += [np.geomspace(1e-3, 1e3, 50), np.arange(-9, 9), np.array([900.0, 901.0])]
    calls = [*even, *((one, None) for one in edges), *((one, (-5.0, 5.0)) for one in edges[:2])]
    return [calls[n] for n in rng.permutation(len(calls))]


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.int32])
def test_bins_in_turn_are_numpys(library, dtype, rng):
    of_library, on_host, options, _ = library
    data = _data(rng, dtype)
    device_data = [of_library(data), of_library(data[: SIZE - 1])]
    for n, (bins, ends) in enumerate(_all_bins(rng)):
        short = n % 3 == 1
        got, edges = clhist.histogram(device_data[short], bins, ends, **options)
        expected, expected_edges = np.histogram(data[: SIZE - short], bins, ends)
        np.testing.assert_array_equal(on_host(got), expected)
        assert edges.dtype == expected_edges.dtype
        assert edges.tobytes() == expected_edges.tobytes()
        edges[:] = 0  # which no later call may see


def test_edges_that_change_get_a_table_in_the_end(library, rng):
    """Few elements are searched without one at first, also where several edges are equal or out of reach."""
    of_library, on_host, options, _ = library
    data, other = _data(rng, np.float64), rng.normal(0, 50, SIZE)
    x, y = of_library(data), of_library(other)
    inside = np.nan_to_num(data)
    z = of_library(inside)
    every = [_uneven(rng, number) for number in (3, 15, 16, 17, 255, 256, 257, 4100)]
    every += [np.array([-np.inf, -1, 0, 0, 0, 9, np.inf]), np.array([-0.0, 0.0, 1.0]), np.array([1e301, 1e302])]
    for edges in every:
        few = edges[:30]
        for _ in range(20 if len(edges) in (4, 257) else 2):
            np.testing.assert_array_equal(
                on_host(clhist.histogram(x, edges, **options)[0]), np.histogram(data, edges)[0]
            )
            np.testing.assert_array_equal(on_host(clhist.digitize(x, edges, **options)), np.digitize(data, edges))
            got, *_ = clhist.histogram2d(z, y, (few, 5), ((0, 1), (-9.0, 9.0)), **options)
            expected = np.histogram2d(inside, other, (few, np.linspace(-9, 9, 6)))[0]
            np.testing.assert_array_equal(on_host(got), expected)


@pytest.mark.parametrize("on_device", [False, True])
def test_ranges_of_the_data_with_other_numbers_of_bins(on_device, queue, rng):
    for n in range(40):
        data = rng.normal(n, 1 + n % 5, SIZE - n % 3)
        bins = (10, 11, 100, 1, 4000)[n % 5]
        x = cl_array.to_device(queue, data) if on_device else data
        got, edges = clhist.histogram(x, bins, queue=queue)
        expected, expected_edges = np.histogram(data, bins)
        np.testing.assert_array_equal(got.get() if on_device else got, expected)
        assert edges.tobytes() == expected_edges.tobytes()


@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize(
    ("bins", "ends"),
    [
        (0, (0.0, 1.0)),
        (-3, (0.0, 1.0)),
        (2.5, (0.0, 1.0)),
        (10, (1.0, 0.0)),
        (10, (0.0, np.nan)),
        (10, (0.0, np.inf)),
        ([3.0, 2.0, 1.0], None),
        (np.array([[1.0, 2.0]]), None),
        ("nothing", None),
    ],
)
def test_wrong_bins_raise_as_without_earlier_calls(bins, ends, on_device, queue, rng):
    x = rng.normal(0, 50, SIZE)
    x = cl_array.to_device(queue, x) if on_device else x
    errors = []
    for is_first in (True, False):
        clhist.clear_caches()
        for number in () if is_first else (10, 11, 12):
            clhist.histogram(x, number, (0.0, 1.0), queue=queue)
            clhist.histogram(x, [0.0, 1.0, 3.0 + number], queue=queue)
        with pytest.raises((TypeError, ValueError)) as raised:
            clhist.histogram(x, bins, ends, queue=queue)
        errors.append((raised.type, str(raised.value)))
    assert errors[0] == errors[1]


@pytest.mark.parametrize("on_device", [False, True])
def test_new_bins_build_no_program(on_device, queue, rng, monkeypatch):
    x, y = rng.normal(0, 50, SIZE), rng.normal(0, 50, SIZE)
    index, values = rng.integers(0, 99, SIZE), rng.integers(-9, 9, SIZE)
    if on_device:
        x, y, index, values = (cl_array.to_device(queue, array) for array in (x, y, index, values))

    def call(n):
        clhist.histogram(x, 100 + n, (-50.0, 50.0 + n), queue=queue)
        clhist.histogram(x, 100 + n, (-50.0, 50.0 + n), weights=y, queue=queue)
        clhist.histogram(x, np.linspace(-9, 9 + n, 60 + n), queue=queue)
        clhist.histogram2d(x, y, 10 + n % 4, ((-50.0, 50.0 + n), (-20.0, 20.0)), queue=queue)
        clhist.digitize(x, np.linspace(-9, 9 + n, 60 + n), queue=queue)
        clhist.reduce_by_index(100 + n, np.add, index, values, queue=queue)
        clhist.bincount(index, minlength=100 + n, queue=queue)

    for n in range(0, 8, 2):
        call(n)
    before = programs_built()
    for n in range(1, 8, 2):
        call(n)
    assert programs_built() == before


@pytest.mark.parametrize("on_device", [False, True])
def test_new_bins_of_one_kind_need_no_new_sweep(on_device, queue, rng, monkeypatch):
    data = rng.normal(0, 50, SIZE)
    x = cl_array.to_device(queue, data) if on_device else data
    clhist.histogram(x, 100, (-50.0, 50.0), queue=queue)
    monkeypatch.setattr(Sweep, "of", None)
    for bins, ends in [(101, (-50.0, 50.0)), (100, (-49.0, 50.0)), (77, (-1.0, 1.0)), (1, (-1.0, 1.0))]:
        got, _ = clhist.histogram(x, bins, ends, queue=queue)
        np.testing.assert_array_equal(got.get() if on_device else got, np.histogram(data, bins, ends)[0])


def test_statistics_of_other_bins(queue, rng):
    stats = pytest.importorskip("scipy.stats")
    x, y = rng.normal(0, 50, SIZE), rng.normal(0, 50, SIZE)
    for bins in (10, 11, 12, 40, 1, 10):
        for ends in ((-50.0, 50.0), (0.0, 7.0)):
            got = clhist.stats.binned_statistic(x, y, "mean", bins, ends, queue=queue)
            expected = stats.binned_statistic(x, y, "mean", bins, ends)
            np.testing.assert_allclose(got.statistic, expected.statistic, rtol=1e-12)
            np.testing.assert_array_equal(got.binnumber, expected.binnumber)


class _Sized:
    def __init__(self, nbytes):
        self.nbytes = nbytes


def test_caches_are_bounded_by_bytes():
    cache = Remembered(4, 100)
    for n, nbytes in enumerate((40, 40, 0, 30)):
        cache.put(n, _Sized(nbytes))
    assert cache.oldest_first() == [1, 2, 3]  # 110 bytes were too many
    cache.put(1, _Sized(10))
    cache.put(4, _Sized(60))
    assert cache.oldest_first() == [2, 3, 1, 4]
    cache.put(5, _Sized(1000))  # alone, though it is larger
    assert cache.oldest_first() == [5]
    cache.put(6, _Sized(1))
    assert cache.take(6) is not None
    cache.clear()
    cache.put(7, _Sized(100))
    assert cache.oldest_first() == [7]


@pytest.mark.parametrize(("function", "bins"), [("histogram", 20), ("digitize", 30), ("histogram2d", 40)])
def test_many_elements_have_a_table_after_few_were_searched(function, bins, queue, rng, monkeypatch):
    """Calls of few and of many elements share a signature, but not the search over all edges."""
    size, tables = 2**16 + 1, []
    monkeypatch.setitem(device_inputs._MOST_SEARCHED, device_kind(queue.device), size - 1)
    for module in (device_inputs, numbers):
        monkeypatch.setattr(module, "axis_of", lambda bins, **options: tables.append(bins) or axis_of(bins, **options))
    data = rng.normal(0, 50, size)
    many = cl_array.to_device(queue, data)
    few = cl_array.to_device(queue, data[:SIZE])

    def call(library, x, edges, **options):
        more = (x, [edges, edges]) if function == "histogram2d" else (edges,)
        result = getattr(library, function)(x, *more, **options)
        return result if function == "digitize" else result[0]

    for edges in (_uneven(rng, bins), _uneven(rng, bins + 1)):  # the first edges of all have a table at once
        call(clhist, few, edges, queue=queue)
    before = len(tables)
    got = call(clhist, many, edges, queue=queue)
    assert len(tables) > before
    np.testing.assert_array_equal(got.get(), call(np, data, edges))
