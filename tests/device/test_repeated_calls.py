"""Call n is call 1: each function, on each kind of array, whatever other calls came in between.

A case draws the arrays of a call, calls, and says by NumPy what is right. A change is what a call in between has other
than the first. Results of earlier calls stay as they were, and the caller may write into them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest
from covering import covering

import clhist
from clhist import operators
from clhist.grouped import distinct_keys

pytestmark = pytest.mark.usefixtures("without_optimizer")

SIZE, BINS = 3001, 50
KERNELS = {
    np.dtype(dtype): clhist.HistogramKernel(
        None,
        operators.add(dtype),
        arguments="const int *x, const value_t *v, int factor",
        map="EMIT(x[i], v[i] * factor)",
    )
    for dtype in (np.float32, np.float64)
}
REALS_AND_INTEGERS = "f8", "i4"
TARGETS = {"no dest": {}, "dest": {"dest"}, "out": {"out"}, "in place": {"dest", "out"}}


class Case(NamedTuple):
    """A call and its reference: `call` takes what `draw` returns as arrays of a library, `expected` as NumPy's."""

    draw: Callable[..., list[np.ndarray]]  # rng, size, bins, dtype
    call: Callable[..., Any]  # bins, *arrays, **options
    expected: Callable[..., Any]  # bins, *arrays
    dtypes: tuple[str, str] = ("f4", "f8")
    is_exact: bool = True


def _keys(rng, size, bins, dtype="i4"):
    return rng.integers(-2 if np.dtype(dtype).kind == "i" else 0, bins + 2, size).astype(dtype)


def _entries(rng, size, bins, dtype):
    """Draw numbers of bins, the largest among them."""
    return np.append(rng.integers(0, bins, size - 1), bins - 1).astype(dtype)


def _values(rng, size, dtype):
    return rng.integers(-9, 9, size).astype(dtype)  # whose sums are exact


def _pairs(rng, size, bins, dtype):
    return [_keys(rng, size, bins), _values(rng, size, dtype)]


def _normal(rng, size, dtype):
    values = rng.normal(rng.normal(), 2, size)
    return (values + 1j * values[::-1] if np.dtype(dtype).kind == "c" else values).astype(dtype)


def _reals(rng, size, bins, dtype):
    return [_normal(rng, size, dtype)]


def _with_nan(rng, size, bins, dtype):
    """Draw numbers of which some are at edges, and none."""
    values = _normal(rng, size, dtype)
    values[1:4] = np.nan, 2, -2
    return [values]


def _reals_and_values(rng, size, bins, dtype):
    return [*_reals(rng, size, bins, dtype), _values(rng, size, dtype)]


def _rows(rng, size, bins, dtype):
    return [_keys(rng, size // 7, bins), _values(rng, (size // 7, 7), dtype)]


def _scattered(ufunc, shape, keys, values, start=0):
    result, inside = np.full(shape, start, values.dtype), (keys >= 0) & (keys < shape[0])
    ufunc.at(result, keys[inside], values[inside])
    return result


def _means(shape, keys, values):
    counts = np.bincount(keys[(keys >= 0) & (keys < shape[0])], minlength=shape[0])
    with np.errstate(invalid="ignore"):
        return _scattered(np.add, shape, keys, values) / counts[:, None].astype(values.dtype)


def _reduce(dest, keys, values, bins, **options):
    return clhist.reduce_by_index(bins if dest is None else dest, "sum", keys, values, **options)


def _kernel(dest, keys, values, bins, **options):
    return KERNELS[values.dtype](keys, values, bins - 40, num_bins=(bins,), dest=dest, **options)


def _into(function, targets):
    """Return the case of sums into the caller's arrays: `dest` holds 3, and `out` anything."""

    def call(bins, keys, values, target, **options):
        out = target if "out" in targets else None
        result = function(target if "dest" in targets else None, keys, values, bins, out=out, **options)
        assert out is None or result is out
        return result

    def expected(bins, keys, values, target):
        factor = bins - 40 if function is _kernel else 1
        return _scattered(np.add, (bins,), keys, factor * values, 3 if "dest" in targets else 0)

    return Case(lambda *drawn: [*_pairs(*drawn), np.full(drawn[2], 3, drawn[3])], call, expected)


def _of_rows(x, bins, ends):
    edges = np.histogram_bin_edges(x, bins, ends)
    return np.array([np.histogram(row, edges)[0] for row in x]), edges


def _edges(bins, dtype="f8"):
    return np.sort(np.random.default_rng(bins).normal(size=bins)).astype(dtype)


def _exact(bins, keys, values):
    result = np.zeros(bins, values.dtype)
    for k in np.intersect1d(keys, np.arange(bins)):
        parts = values[keys == k]
        real, imaginary = math.fsum(parts.real.tolist()), math.fsum(parts.imag.tolist())
        result[k] = complex(real, imaginary) if values.dtype.kind == "c" else real
    return result


def _of_groups(bins, keys, values, **options):
    result = clhist.group_by(keys, bins).agg(x=(values, "sum", "max", "count"))["x"]
    return result["sum"], result["count"]


STATISTICS = {
    "mean": np.mean,
    "std": np.std,
    "count": np.size,
    "sum": np.sum,
    "min": np.min,
    "max": np.max,
    "median": np.median,
}
SWEPT = [name for name in STATISTICS if name != "median"]


def _by_bins(places, shape, values, names):
    """Return statistics of values by bins, from the bin of each on each axis; one of -1 is none."""
    parts = {name: np.full(shape, 0.0 if name in ("sum", "count") else np.nan) for name in names}
    for k in {*zip(*places, strict=True)}:
        if -1 not in k:
            inside = values[np.all([axis == n for axis, n in zip(places, k, strict=True)], axis=0)].astype("f8")
            for name in names:
                parts[name][k] = STATISTICS[name](inside)
    return [*parts.values()]


def _places(x, edges):
    """Return the bin of each number between edges, the last of which belongs to the last bin; -1 of others."""
    places = np.digitize(x, edges) - 1
    places[x == edges[-1]] -= 1
    return np.where(places == len(edges) - 1, -1, places)


def _of_statistics(result):
    """Return statistics, edges and numbers of a result as a list."""
    statistic, *others = result
    return [*(statistic.values() if isinstance(statistic, dict) else [statistic]), *others]


def _statistics(x, v, edges, names):
    numbers = np.digitize(x, edges)
    numbers[x == edges[-1]] -= 1
    return [*_by_bins([_places(x, edges)], (len(edges) - 1,), v, names), edges, numbers]


CASES = {
    **{f"sums, {name}": _into(_reduce, targets) for name, targets in TARGETS.items()},
    **{f"a kernel, {name}": _into(_kernel, targets) for name, targets in TARGETS.items()},
    "an array twice": Case(
        lambda rng, size, bins, dtype: [_keys(rng, size, bins, dtype)],
        lambda bins, x, **options: clhist.reduce_by_index(bins, "sum", x, x, **options),
        lambda bins, x: _scattered(np.add, (bins,), x, x),
        ("i4", "i8"),
    ),
    "ones": Case(
        lambda rng, size, bins, dtype: [_keys(rng, size, bins, dtype)],
        lambda bins, x, **options: clhist.reduce_by_index(bins, np.add, x, 1, **options),
        lambda bins, x: _scattered(np.add, (bins,), x, np.ones(x.size, int)),
        ("i4", "u1"),
    ),
    "maxima": Case(
        _pairs,
        lambda bins, x, v, **options: clhist.reduce_by_index(bins, np.maximum, x, v, **options),
        lambda bins, x, v: _scattered(np.maximum, (bins,), x, v, -np.inf),
    ),
    "exact sums": Case(
        lambda rng, size, bins, dtype: [_keys(rng, size, bins), _normal(rng, size, dtype)],
        lambda bins, x, v, **options: clhist.reduce_by_index(bins, "sum", x, v, reproducible=True, **options),
        _exact,
        ("f4", "c16"),
    ),
    "rows": Case(
        _rows,
        lambda bins, x, v, **options: clhist.reduce_by_index((bins, 7), "sum", x, v, **options),
        lambda bins, x, v: _scattered(np.add, (bins, 7), x, v),
    ),
    "means of rows": Case(
        _rows,
        lambda bins, x, v, **options: clhist.reduce_by_index((bins, 7), "mean", x, v, **options),
        lambda bins, x, v: _means((bins, 7), x, v),
        is_exact=False,
    ),
    "a batch": Case(
        lambda rng, size, bins, dtype: [
            each[: size // 7 * 7].reshape(7, -1) for each in _pairs(rng, size, bins, dtype)
        ],
        lambda bins, x, v, **options: clhist.reduce_by_index((7, bins), "sum", x, v, batched=True, **options),
        lambda bins, x, v: np.array([_scattered(np.add, (bins,), *each) for each in zip(x, v, strict=True)]),
    ),
    "counts": Case(
        lambda rng, size, bins, dtype: [_entries(rng, size, bins, dtype)],
        lambda bins, x, **options: clhist.bincount(x, **options),
        lambda bins, x: np.bincount(x),
        ("i8", "u1"),
    ),
    "counts with weights": Case(
        lambda rng, size, bins, dtype: [_entries(rng, size, bins, "i8"), _values(rng, size, dtype)],
        lambda bins, x, w, **options: clhist.bincount(x, w, bins + 9, **options),
        lambda bins, x, w: np.bincount(x, w, bins + 9),
    ),
    "histogram": Case(
        _with_nan,
        lambda bins, x, **options: clhist.histogram(x, bins, (-2, 2), **options),
        lambda bins, x: np.histogram(x, bins, (-2, 2)),
    ),
    "range of the data": Case(
        _reals,
        lambda bins, x, **options: clhist.histogram(x, bins, **options),
        lambda bins, x: np.histogram(x, bins),
    ),
    "range of the data, weights": Case(
        _reals_and_values,
        lambda bins, x, w, **options: clhist.histogram(x, bins, weights=w, **options),
        lambda bins, x, w: np.histogram(x, bins, weights=w),
    ),
    "histogram by edges": Case(
        _with_nan,
        lambda bins, x, **options: clhist.histogram(x, _edges(bins), **options),
        lambda bins, x: np.histogram(x, _edges(bins)),
    ),
    "densities": Case(
        _reals,
        lambda bins, x, **options: clhist.histogram(x, bins, (-2, 2), density=True, **options),
        lambda bins, x: np.histogram(x, bins, (-2, 2), density=True),
        is_exact=False,
    ),
    "densities, weights": Case(
        _reals_and_values,
        lambda bins, x, w, **options: clhist.histogram(x, bins, (-2, 2), density=True, weights=w, **options),
        lambda bins, x, w: np.histogram(x, bins, (-2, 2), density=True, weights=w),
        is_exact=False,
    ),
    "range of the data, densities": Case(
        _reals,
        lambda bins, x, **options: clhist.histogram(x, bins, density=True, **options),
        lambda bins, x: np.histogram(x, bins, density=True),
        is_exact=False,
    ),
    "where": Case(
        lambda *drawn: [*_with_nan(*drawn), drawn[0].random(drawn[1]) < 0.7],
        lambda bins, x, where, **options: clhist.histogram(x, bins, (-2, 2), where=where, **options),
        lambda bins, x, where: np.histogram(x[where], bins, (-2, 2)),
    ),
    **{
        name: Case(
            lambda rng, size, bins, dtype: [rng.normal(size=(7, size // 7)).astype(dtype)],
            lambda bins, x, ends=ends, **options: clhist.histogram(x, bins, ends, axis=1, **options),
            lambda bins, x, ends=ends: _of_rows(x, bins, ends),
        )
        for name, ends in (("histograms of rows", (-2, 2)), ("histograms of rows, range of the data", None))
    },
    "two axes": Case(
        _reals_and_values,
        lambda bins, x, y, **options: clhist.histogram2d(x, y, [bins, 5], [[-2, 2], [-9, 9]], **options),
        lambda bins, x, y: np.histogram2d(x, y, [bins, 5], [[-2, 2], [-9, 9]]),
    ),
    "two axes by edges": Case(
        _reals_and_values,
        lambda bins, x, y, **options: clhist.histogram2d(x, y, [_edges(bins + 1), [-9, 0, 9]], **options),
        lambda bins, x, y: np.histogram2d(x, y, [_edges(bins + 1), [-9, 0, 9]]),
    ),
    "two axes, weights": Case(
        lambda *drawn: [*_reals_and_values(*drawn), _values(*drawn[:2], "f8")],
        lambda bins, x, y, w, **options: clhist.histogram2d(x, y, bins % 100, [[-2, 2]] * 2, weights=w, **options),
        lambda bins, x, y, w: np.histogram2d(x, y, bins % 100, [[-2, 2]] * 2, weights=w),
    ),
    "two axes, densities": Case(
        _reals_and_values,
        lambda bins, x, y, **options: clhist.histogram2d(x, y, 5, [[-2, 2], [-9, bins]], density=True, **options),
        lambda bins, x, y: np.histogram2d(x, y, 5, [[-2, 2], [-9, bins]], density=True),
        is_exact=False,
    ),
    "numbers of bins": Case(
        _with_nan,
        lambda bins, x, **options: clhist.digitize(x, _edges(bins), **options),
        lambda bins, x: np.digitize(x, _edges(bins)),
    ),
    "numbers of bins, right": Case(
        _with_nan,
        lambda bins, x, **options: clhist.digitize(x, _edges(bins)[::-1], right=True, **options),
        lambda bins, x: np.digitize(x, _edges(bins)[::-1], right=True),
    ),
    "numbers of bins of a plane": Case(
        lambda rng, size, bins, dtype: [_normal(rng, size // 7 * 7, dtype).reshape(7, -1)],
        lambda bins, x, **options: clhist.digitize(x, _edges(bins), **options),
        lambda bins, x: np.digitize(x, _edges(bins)),
    ),
    "statistics by edges": Case(
        _reals_and_values,
        lambda bins, x, v, **options: _of_statistics(
            clhist.stats.binned_statistic(x, v, SWEPT, _edges(bins), **options)
        ),
        lambda bins, x, v: _statistics(x, v, _edges(bins), SWEPT),
        REALS_AND_INTEGERS,
        is_exact=False,
    ),
    "medians by edges": Case(
        _reals_and_values,
        lambda bins, x, v, **options: clhist.stats.binned_statistic(x, v, "median", _edges(bins), **options).statistic,
        lambda bins, x, v: _statistics(x, v, _edges(bins), ["median"])[0],
        REALS_AND_INTEGERS,
    ),
    "means by bins": Case(
        _reals_and_values,
        lambda bins, x, v, **options: _of_statistics(
            clhist.stats.binned_statistic(x, v, "mean", bins, (-2, 2), **options)
        ),
        lambda bins, x, v: _statistics(x, v, np.linspace(-2, 2, bins + 1), ["mean"]),
        REALS_AND_INTEGERS,
    ),
    "means by bins, range of the data": Case(
        _reals_and_values,
        lambda bins, x, v, **options: (
            clhist.stats.binned_statistic(x, v, "mean", bins, binnumber=False, **options).statistic
        ),
        lambda bins, x, v: _statistics(x, v, np.linspace(x.min(), x.max(), bins + 1), ["mean"])[0],
        REALS_AND_INTEGERS,
    ),
    "deviations by bins where": Case(
        lambda *drawn: [*_reals_and_values(*drawn), drawn[0].random(drawn[1]) < 0.7],
        lambda bins, x, v, where, **options: (
            clhist.stats.binned_statistic(
                x, v, "std", _edges(bins), where=where, binnumber=False, reproducible=True, **options
            ).statistic
        ),
        lambda bins, x, v, where: _statistics(x[where], v[where], _edges(bins), ["std"])[0],
        REALS_AND_INTEGERS,
        is_exact=False,
    ),
    "statistics of two axes": Case(
        lambda rng, size, bins, dtype: [*_reals_and_values(rng, size, bins, dtype), _values(rng, size, "i4")],
        lambda bins, x, y, v, **options: _of_statistics(
            clhist.stats.binned_statistic_2d(
                x, y, v, ["max", "std"], [_edges(bins % 100), [-9, 0, 9]], expand_binnumbers=True, **options
            )
        ),
        lambda bins, x, y, v: [
            *_by_bins(
                [_places(x, _edges(bins % 100)), _places(y, np.array([-9, 0, 9]))],
                (bins % 100 - 1, 2),
                v,
                ["max", "std"],
            ),
            _edges(bins % 100),
            np.array([-9, 0, 9]),
            np.array([np.digitize(x, _edges(bins % 100)), np.digitize(y, [-9, 0, 9])]),
        ],
        REALS_AND_INTEGERS,
        is_exact=False,
    ),
    "different values": Case(
        lambda rng, size, bins, dtype: [_entries(rng, size, bins, dtype)],
        lambda bins, x, **options: clhist.unique(x, **options),
        lambda bins, x: np.unique(x),
        ("i4", "i8"),
    ),
    "groups": Case(
        _pairs,
        _of_groups,
        lambda bins, x, v: (
            _scattered(np.add, (bins,), x, v.astype("f8" if v.dtype == "f8" else "f4")),
            _scattered(np.add, (bins,), x, np.ones(x.size, int)),
        ),
        is_exact=False,
    ),
}
CHANGES = {
    "nothing": {},
    "content": {},  # of the same arrays
    "values": {},
    "size": {"size": SIZE - 70},
    "much larger": {"size": 5 * SIZE},
    "few": {"size": 14},
    "bins": {"bins": BINS + 3},
    "many bins": {"bins": 2 * SIZE},
    "dtype": {"dtype": 1},
    "alignment": {"skip": 1},
}


# Functions of CUDA's driver that a repeated call uses, and those of calls that read a number meanwhile.
ONLY_LAUNCHED = {"cuCtxGetCurrent", "cuLaunchKernel", "empty"}
READS = {
    *("cuStreamIsCapturing", "cuMemsetD8Async", "cuMemcpyDtoHAsync_v2", "cuStreamSynchronize"),
    *("cuEventCreate", "cuEventRecord", "cuStreamWaitEvent", "cuEventDestroy_v2"),
}
MORE_THAN_LAUNCHED = (
    *("groups", "densities, weights", "medians by edges"),
    *("means by bins", "means by bins, range of the data"),  # whose points have to be finite
)
CHECKED_EACH_TIME = "sums, dest", "sums, out", "sums, in", "a kernel, dest", "exact sums", "a batch", "medians"
LIBRARIES = ["numpy", "pyopencl", "cupy"]
ROWS = list(product(CASES, CHANGES, LIBRARIES))
QUICK = set(covering(CASES, CHANGES, LIBRARIES)[::2])  # of rows in which every pair occurs


@pytest.mark.parametrize(
    ("name", "change", "library"),
    [pytest.param(*row, marks=[pytest.mark.slow] * (row not in QUICK)) for row in ROWS],
    indirect=["library"],
)
def test_call_n_is_call_1(name, change, library, rng, checks, monkeypatch):
    case, (put, get, options, cuda) = CASES[name], library
    monkeypatch.setattr(distinct_keys, "device_kind", lambda device: "gpu" if cuda else "cpu")
    changes = dict(CHANGES[change])
    skip = changes.pop("skip", 0)

    def drawn(size=SIZE, bins=BINS, dtype=0):
        arrays = case.draw(rng, size, bins, np.dtype(case.dtypes[dtype]))
        return bins, arrays, _listed(case.expected(bins, *arrays))

    def check(result, expected):
        for part, right in zip(_listed(result), expected, strict=True):
            if case.is_exact:
                np.testing.assert_array_equal(get(part), right)
            else:
                np.testing.assert_allclose(get(part), right, rtol=1e-6 if right.dtype == np.float32 else 1e-12)

    def call(bins, arrays, expected, on_library=None):
        result = case.call(bins, *(on_library or map(put, arrays)), **options)
        check(result, expected)
        return result

    first = drawn()
    results, same_arrays = [call(*first) for _ in range(2)], [put(each) for each in first[1]]
    call(*first, same_arrays)
    for _ in range(4):
        bins, arrays, expected = first if change == "nothing" else drawn(**changes)
        on_device = None
        if change == "content":
            on_device = same_arrays
            for array, content in zip(same_arrays, arrays, strict=True):
                array.set(content) if hasattr(array, "set") else np.copyto(array, content)
        elif skip:  # elements from another one on, in a larger array
            wide = [np.concatenate([each.ravel()[:skip], each.ravel()]) for each in arrays]
            on_device = [put(each)[skip:].reshape(*of.shape) for each, of in zip(wide, arrays, strict=True)]
        checked = len(checks)
        if cuda:
            cuda.calls.clear()
        call(bins, arrays, expected, on_device)
    if cuda and name not in MORE_THAN_LAUNCHED and change != "content":
        only = READS if "range of the data" in name or name.startswith(("counts", "different")) else set()
        assert {each.split()[0] for each in cuda.calls} <= ONLY_LAUNCHED | only
    if not name.startswith(CHECKED_EACH_TIME):
        assert len(checks) == checked  # the last of four calls alike needs no check
    for result in results:
        check(result, first[2])
    again = _listed(call(*first))
    if isinstance(again[-1], np.ndarray):
        again[-1][...] = 7  # which no later call sees
    call(*first)


def _listed(result):
    return list(result) if isinstance(result, tuple | list) else [result]
