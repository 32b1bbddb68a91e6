"""Bins between the least and the greatest element of device arrays, which the device makes: NumPy's, for any range."""

from __future__ import annotations

import warnings
from importlib import import_module
from unittest.mock import Mock

import numpy as np
import pyopencl.array as cl_array
import pytest
from covering import covering, each_value_quick

import clhist
from clhist.binned import device_edges
from clhist.binned.prepared import PreparedHistogram

pytestmark = pytest.mark.usefixtures("with_optimizer")

MODULE = import_module("clhist.binned.histograms")
N = 5000
OTHERS = ["f8", "u4", "i8", "u8", "i2", "u1"]
DTYPES = ["f4", "i4", *OTHERS]
BINS = [1, 2, 7, 100, 1000, 2 * N, 2**15, 2**15 + 1]
EACH = each_value_quick(covering(["f4", "i4"], BINS))
EACH += [pytest.param(dtype, bins, marks=pytest.mark.slow) for dtype in OTHERS for bins in BINS]


def _floats(dtype, rng):
    info = np.finfo(dtype)
    tiny = info.smallest_subnormal
    return {
        "normal": rng.normal(size=N),
        "far from 0": 1e5 + rng.random(N),
        "around 0": [-1, -0.0, 0.0, 1, tiny, -tiny, info.tiny, -info.tiny / 2],
        "least is -0": np.append(rng.random(N), -0.0),
        "greatest is -0": np.append(-1 - rng.random(N), -0.0),
        "all equal": np.full(9, 3.7),
        "zeros": [0.0, -0.0, 0.0],
        "equal and large": np.full(9, 2.0 ** (info.nmant + 1) + 2),
        "one": [5.5],
        "two neighbours": [1, 1 + info.eps],
        "neighbours": 1 + np.arange(300) * info.eps,
        "subnormal": rng.random(N) * info.tiny,
        "least numbers": [0, tiny, 3 * tiny],
        "small": rng.random(N) * 2.0**-99,
        "too small": rng.random(N) * 2.0**-101,
        "large": rng.normal(size=N) * float(info.max) / 50,
        "half of all": [0, info.max, info.max / 3],
        "NaN": [1, np.nan, 2],
        "infinite": [1, -np.inf],
        "both infinities": [np.inf, 0, -np.inf],
    }


def _integers(dtype, rng):
    info = np.iinfo(dtype)
    some = np.arange(100, dtype=dtype)
    cases = {
        "random": rng.integers(info.min, info.max, N, dtype, endpoint=True),
        "few": rng.integers(0, 101, N, dtype),
        "ten": some[:10],
        "equal": some[3:4].repeat(9),
        "least": np.full(9, info.min),
        "greatest": np.full(9, info.max),
        "lowest": some + dtype.type(info.min),
        "highest": dtype.type(info.max) - some,
        "all": [info.min, 0, 1, info.max],
    }
    if dtype.itemsize == 8:
        cases |= {f"about 2^53 + {n}": dtype.type(2**53 + n) - some for n in (-1, 0, 1, 50, 2**60)}
    return cases


def _outcome(call):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            hist, edges = call()
        except (ValueError, IndexError, TypeError) as error:
            return type(error), str(error)
    hist = hist if isinstance(hist, np.ndarray) else hist.get()
    return hist.dtype, hist.tolist(), edges.dtype, edges.tobytes()


@pytest.mark.parametrize(("dtype", "bins"), EACH)
def test_any_range(dtype, bins, queue, rng, monkeypatch):
    dtype = np.dtype(dtype)
    with np.errstate(all="ignore"):
        cases = (_floats if dtype.kind == "f" else _integers)(dtype, rng)
        cases = {name: np.asarray(values).astype(dtype) for name, values in cases.items()}
    for name, data in cases.items():
        x, where = cl_array.to_device(queue, data), cl_array.to_device(queue, np.ones(data.size, bool))
        # Of small types others are for all elements, see `clhist.binned.histograms`.
        got = [_outcome(lambda: clhist.histogram(x, bins, where=where)) for _ in range(2)]  # noqa: B023
        with monkeypatch.context() as patch:
            patch.setattr(MODULE, "device_edges", lambda *_, **__: None)
            patch.setattr(MODULE, "repeated", lambda *_: (None, None, True))
            present = _outcome(lambda: clhist.histogram(x, bins, where=where))  # noqa: B023
        assert got == [present, present], (name, bins)
        expected = _outcome(lambda: np.histogram(data, bins))  # noqa: B023
        # NumPy fails where edges are not finite, and counts by the width of bins where they are subnormal.
        assert present == expected or expected[0] is IndexError or name == "subnormal", (name, bins)


@pytest.mark.parametrize(
    "dtype", [pytest.param(each, marks=[pytest.mark.slow] * (each not in ("f4", "i4", "f8", "u1"))) for each in DTYPES]
)
def test_bins_are_made_on_the_device(dtype, queue, rng, monkeypatch):
    """Of data that has bins of one width, with the very edges of NumPy; calls that repeat others have other ranges."""
    anew = Mock(side_effect=AssertionError("the host made the bins"))
    monkeypatch.setattr(MODULE, "_counted", anew)
    for n in range(1, 5):
        numbers = rng.normal(n, size=(7, N)) * 30 * n
        data = (np.abs(numbers) if dtype[0] == "u" else numbers).astype(dtype) if dtype != "u1" else _bytes(rng, n)
        mask, weights = rng.random(data.shape) < 0.7, rng.integers(-9, 9, data.shape).astype(np.float32)
        x, where, w = (cl_array.to_device(queue, each) for each in (data, mask, weights))
        for bins in (1, 10, 20):
            counts, edges = clhist.histogram(x, bins, where=where)
            expected, expected_edges = np.histogram(data[mask], bins)
            np.testing.assert_array_equal(counts.get(), expected)
            assert edges.tobytes() == expected_edges.tobytes()
            sums, edges = clhist.histogram(x, bins, weights=w)
            expected, expected_edges = np.histogram(data, bins, weights=weights)
            np.testing.assert_array_equal(sums.get(), expected)
            assert edges.tobytes() == expected_edges.tobytes()
            density, _ = clhist.histogram(x, bins, where=where, density=True)
            np.testing.assert_array_equal(density.get(), np.histogram(data[mask], bins, density=True)[0])
            rows, edges = clhist.histogram(x, bins, where=where, axis=1)
            expected = [np.histogram(row[of], edges)[0] for row, of in zip(data, mask, strict=True)]
            np.testing.assert_array_equal(rows.get(), expected)
            out = cl_array.zeros(queue, bins, np.intp)
            assert clhist.histogram(x, bins, where=where, out=out)[0] is out
            np.testing.assert_array_equal(out.get(), np.histogram(data[mask], bins)[0])


def _bytes(rng, n):
    return rng.integers(n, 250 - n, (7, N)).astype(np.uint8)


def test_nothing_counts(queue):
    x, where = cl_array.zeros(queue, 9, np.float32) + 3, cl_array.zeros(queue, 9, np.uint8)
    for _ in range(2):
        counts, edges = clhist.histogram(x, 3, where=where)
        assert counts.get().tolist() == [0, 0, 0]
        assert edges.tolist() == np.histogram(np.zeros(0, np.float32), 3)[1].tolist()


def test_edges_that_are_not_numpys_are_not_taken(queue, rng, monkeypatch):
    """As of a device that rounds in another way: the host makes the bins then."""
    data = rng.normal(size=N).astype(np.float32)
    x = cl_array.to_device(queue, data)
    clhist.histogram(x, 11)
    edges_of = device_edges.EvenEdgesSpec.edges
    monkeypatch.setattr(device_edges.EvenEdgesSpec, "edges", lambda *args: np.nextafter(edges_of(*args), np.float32(9)))
    for _ in range(3):
        counts, edges = clhist.histogram(x, 11)
        expected, expected_edges = np.histogram(data, 11)
        np.testing.assert_array_equal(counts.get(), expected)
        np.testing.assert_array_equal(edges, expected_edges)


def test_a_numpy_that_makes_edges_in_another_way(queue, monkeypatch):
    x = cl_array.zeros(queue, 9, np.float32)
    original = device_edges.numpy_edges
    monkeypatch.setattr(device_edges, "numpy_edges", lambda *given: np.nextafter(original(*given), np.float32(0)))
    device_edges._device_edges.cache_clear()
    assert device_edges.device_edges(x, 12, None, queue) is None
    monkeypatch.undo()
    device_edges._device_edges.cache_clear()
    assert device_edges.device_edges(x, 12, None, queue) is not None


def test_calls_that_repeat_others_check_nothing(queue, rng, monkeypatch):
    arrays = [cl_array.to_device(queue, rng.normal(n, size=N)) for n in range(4)]
    clhist.histogram(arrays[0], 12)
    monkeypatch.setattr(import_module("clhist.histogram"), "checked_data", Mock(side_effect=AssertionError("checked")))
    again = Mock(wraps=PreparedHistogram.again)
    monkeypatch.setattr(PreparedHistogram, "again", lambda *given: again(*given))
    for x in arrays:
        counts, edges = clhist.histogram(x, 12)
        expected, expected_edges = np.histogram(x.get(), 12)
        np.testing.assert_array_equal(counts.get(), expected)
        np.testing.assert_array_equal(edges, expected_edges)
    assert again.call_count == 4


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4"])
def test_ends_that_are_arrays_without_dimensions(dtype, queue, rng):
    x = (9 * rng.normal(size=N)).astype(dtype)
    ends = np.array(-3.5), np.array(7, "i2")
    expected = np.histogram(x, 10, ends)
    for _ in range(2):
        hist, edges = clhist.histogram(x, 10, ends, queue=queue)
        np.testing.assert_array_equal(hist, expected[0])
        np.testing.assert_array_equal(edges, expected[1])
    hist, *_ = clhist.histogram2d(x, x, [10, 4], [ends, ends], queue=queue)
    np.testing.assert_array_equal(hist, np.histogram2d(x, x, [10, 4], [ends, ends])[0])
