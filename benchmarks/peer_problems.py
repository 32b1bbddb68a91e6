"""The problems of `clhist bench --suite peers`: each public function on arrays of its own, and the right result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

import clhist
from benchmarks.groups import STATISTICS, numpy_statistics
from benchmarks.inputs import InputSpec, keys, weights
from clhist import operators, stats
from clhist._core.opencl.arrays import is_device_array
from clhist.operators.operator import Operator

Arrays = tuple[np.ndarray, ...]
Fields = dict[str, np.ndarray]  # the arrays of a result by name; "" of one that has no name

FIVE = STATISTICS["five statistics"]
UNIT = (0.0, 1.0)  # the range of histograms
COUNTS = ("bincount", "count", "image8", "image8-smooth", "image16")  # problems that one way to count solves
RECORD = np.dtype([("time", np.int64), ("value", np.float64)])
_ARGMAX = operators.argmax(np.float32)
_LATEST = Operator(RECORD, "b.time > a.time ? b : a", (np.iinfo(np.int64).min, 0.0), "latest record")


@dataclass(frozen=True)
class Problem:
    """One public function on one kind of input.

    Attributes
    ----------
    name, text : str
        What `--op` calls it, and what `--help` says of it.
    make : callable
        ``make(num_elements, num_bins)`` returns the arrays.
    ours : callable
        ``ours(*arrays, num_bins)`` is our call, on NumPy's arrays or PyOpenCL's.
    reference : callable
        The same by NumPy and SciPy alone.
    num_bins : int or None
        The bins that it always has.
    of_hits : bool
        Whether only bins with elements have a defined result.
    tolerance : float
        Of statistics that are rounded (not counts, minima, maxima), relative to the largest.
    has_edges : bool
        Whether floats are put between edges, which libraries round differently.
    components : int
        Of the rows that values are.
    """

    name: str
    text: str
    make: Callable[[int, int], Arrays]
    ours: Callable[..., Any]
    reference: Callable[..., Any]
    num_bins: int | None = None
    of_hits: bool = False
    tolerance: float = 0.0
    has_edges: bool = False
    components: int = 1

    def expected(self, arrays: Arrays, num_bins: int) -> Callable[[Fields, bool], str]:
        """Return what says where a result differs from the right one, if it does, and "" otherwise.

        It takes the fields of a result, and whether edges must be those of NumPy.
        """
        right = fields(self.reference(*arrays, num_bins))
        hits = np.bincount(arrays[0], minlength=num_bins) > 0 if self.of_hits else slice(None)

        def differs(got: Fields, strict: bool) -> str:
            for name, array in right.items():
                wrong = self._wrong(name, got[name], array, hits)
                if wrong and (strict or not self.has_edges or got[name].sum() != array.sum()):
                    return wrong
            return ""

        return differs

    def _wrong(self, name: str, got: np.ndarray, right: np.ndarray, hits: Any) -> str:
        if got.shape != right.shape:
            return f"{name or 'result'}: shape {got.shape}, expected {right.shape}"
        got, right = got[hits], right[hits]
        exact = name in ("min", "max", "count")
        bound = 0.0 if exact or not self.tolerance else self.tolerance * float(np.nanmax(np.abs(right), initial=0.0))
        bad = np.flatnonzero(~np.isclose(got, right, rtol=0.0, atol=bound, equal_nan=True))
        if not bad.size:
            return ""
        first = bad[0]
        what = f"{name} of " if name else ""
        return f"{what}bin {first} is {got.flat[first]}, expected {right.flat[first]}; {bad.size} of {got.size} differ"


def fields(result: Any) -> Fields:
    """Return the arrays of a result on the host: of a struct, a dict, a tuple that begins with one, or an array."""
    first = result[0] if isinstance(result, tuple) else result
    if isinstance(first, dict):
        return {name: _on_host(array) for name, array in first.items()}
    array = _on_host(first)
    return {name: array[name] for name in array.dtype.names} if array.dtype.names else {"": array}


def _on_host(array: Any) -> np.ndarray:
    return array.get() if is_device_array(array) else np.asarray(array)


def side(num_bins: int) -> int:
    """Return the bins of each of two axes."""
    return max(1, round(num_bins**0.5))


def edges_of(bins: int, dtype: np.dtype) -> np.ndarray:
    """Return the edges of NumPy, rounded as it rounds those of values of `dtype`, as float64."""
    return np.linspace(*UNIT, bins + 1, dtype=dtype).astype(np.float64)


def _indices(size: int, bins: int, dtype: type = np.int32) -> np.ndarray:
    return np.random.default_rng(size + bins).integers(0, bins, size, dtype)


def _smooth(size: int) -> np.ndarray:
    """Return pixels of slowly rising brightness with noise in the last two bits, as most photographs have."""
    brightness = (np.arange(size, dtype=np.uint32) // 97).astype(np.uint8)
    return brightness + np.random.default_rng(size).integers(0, 4, size, np.uint8)


def _weighted(size: int, bins: int) -> Arrays:
    return _indices(size, bins), weights(size)


def _floats(size: int, bins: int, arrays: int) -> Arrays:
    rng = np.random.default_rng(size + bins)
    return tuple(rng.random(size, np.float32) for _ in range(arrays))


def _records(size: int, bins: int) -> Arrays:
    records = np.empty(size, RECORD)
    records["time"], records["value"] = keys(size), weights(size)
    return _indices(size, bins), records


def scipy_statistics(x: np.ndarray, y: np.ndarray, bins: int) -> Fields:
    """Return the five statistics of y by bins of x, one call of SciPy for each."""
    from scipy.stats import binned_statistic

    return {name: binned_statistic(x, y, name, bins, UNIT)[0] for name in FIVE}


def numpy_largest(x: np.ndarray, v: np.ndarray, bins: int) -> Fields:
    """Return the largest value of each bin, and the first position of it."""
    value = np.full(bins, -np.inf, v.dtype)
    np.maximum.at(value, x, v)
    hits = np.flatnonzero(v == value[x])[::-1]
    index = np.full(bins, np.iinfo(np.int32).max, np.int32)
    index[x[hits]] = hits  # of several the last that is written, which is the first of the array
    return {"value": value, "index": index}


def numpy_latest(x: np.ndarray, v: np.ndarray, bins: int) -> np.ndarray:
    """Return the record of the largest time of each bin."""
    time = np.full(bins, np.iinfo(np.int64).min)
    np.maximum.at(time, x, v["time"])
    hits = np.flatnonzero(v["time"] == time[x])
    latest = np.zeros(bins, RECORD)
    latest["time"] = time
    latest[x[hits]] = v[hits]
    return latest


def numpy_mean(x: np.ndarray, v: np.ndarray, bins: int) -> np.ndarray:
    """Return the mean of each bin."""
    with np.errstate(invalid="ignore"):
        return np.bincount(x, v, bins) / np.bincount(x, minlength=bins)


@dataclass(frozen=True)
class RowProblem(Problem):
    """One whose values are rows: a result has a row for each bin, some of whose components are compared."""

    def expected(self, arrays: Arrays, num_bins: int) -> Callable[[Fields, bool], str]:
        x, v = arrays
        looked_at = InputSpec(x.size, num_bins, components=self.components).checked_components()
        of_all = super().expected
        checks = [(k, of_all((x, v[:, k]), num_bins)) for k in looked_at]

        def differs(got: Fields, strict: bool) -> str:
            shape = got[""].shape
            if shape != (num_bins, self.components):
                return f"result: shape {shape}, expected {(num_bins, self.components)}"
            differences = ((k, compare({"": got[""][:, k]}, strict)) for k, compare in checks)
            return next((f"component {k} of {wrong}" for k, wrong in differences if wrong), "")

        return differs


def row_problem(name: str, components: int) -> Problem:
    """Return the problem of `ROW_PROBLEMS` with rows of so many components."""
    return replace(
        ROW_PROBLEMS[name],
        components=components,
        make=lambda n, bins: (_indices(n, bins), weights(n * components).reshape(n, components)),
    )


def by_component(x: np.ndarray, v: np.ndarray, bins: int) -> np.ndarray:
    """Return the sums of rows, a call of NumPy for each component."""
    return np.stack([np.bincount(x, column, bins) for column in v.T], axis=1)


def _largest(x: np.ndarray, v: np.ndarray, bins: int) -> np.ndarray:
    return numpy_largest(x, v, bins)["value"]


PROBLEMS = {
    problem.name: problem
    for problem in (
        Problem(
            "bincount",
            "clhist.bincount of int32",
            lambda n, bins: (_indices(n, bins),),
            lambda x, bins: clhist.bincount(x, minlength=bins),
            lambda x, bins: np.bincount(x, minlength=bins),
        ),
        Problem(
            "bincount-weights",
            "clhist.bincount of int32, weights of float64",
            lambda n, bins: (_indices(n, bins), weights(n).astype(np.float64)),
            lambda x, v, bins: clhist.bincount(x, v, bins),
            lambda x, v, bins: np.bincount(x, v, bins),
        ),
        Problem(
            "count",
            "clhist.reduce_by_index: int32 additions of 1",
            lambda n, bins: (_indices(n, bins),),
            lambda x, bins: clhist.reduce_by_index(bins, np.add, x, np.int32(1)),
            lambda x, bins: np.bincount(x, minlength=bins),
        ),
        Problem(
            "add",
            "clhist.reduce_by_index: float32 sums",
            _weighted,
            lambda x, v, bins: clhist.reduce_by_index(bins, np.add, x, v),
            lambda x, v, bins: np.bincount(x, v, bins),
        ),
        Problem(
            "maximum",
            "clhist.reduce_by_index: float32 maxima",
            _weighted,
            lambda x, v, bins: clhist.reduce_by_index(bins, np.maximum, x, v),
            _largest,
            of_hits=True,
        ),
        Problem(
            "argmax",
            "clhist.reduce_by_index: float32 maxima and their positions",
            _weighted,
            lambda x, v, bins: clhist.reduce_by_index(bins, _ARGMAX, x, v),
            numpy_largest,
            of_hits=True,
        ),
        Problem(
            "mean",
            "clhist.reduce_by_index: float32 means",
            _weighted,
            lambda x, v, bins: clhist.reduce_by_index(bins, "mean", x, v),
            numpy_mean,
            of_hits=True,
            tolerance=1e-6,
        ),
        Problem(
            "struct",
            "clhist.reduce_by_index: the latest (int64 time, float64 value), 16 bytes",
            _records,
            lambda x, v, bins: clhist.reduce_by_index(bins, _LATEST, x, v),
            numpy_latest,
            of_hits=True,
        ),
        Problem(
            "histogram",
            "clhist.histogram of float32",
            partial(_floats, arrays=1),
            lambda x, bins: clhist.histogram(x, bins, UNIT),
            lambda x, bins: np.histogram(x, bins, UNIT),
            has_edges=True,
        ),
        Problem(
            "histogram2d",
            "clhist.histogram2d of float32, the root of H bins each",
            partial(_floats, arrays=2),
            lambda x, y, bins: clhist.histogram2d(x, y, side(bins), (UNIT, UNIT)),
            lambda x, y, bins: np.histogram2d(x, y, side(bins), (UNIT, UNIT)),
            has_edges=True,
        ),
        Problem(
            "group_by",
            "clhist.group_by: mean, standard deviation, minimum, maximum, number",
            _weighted,
            lambda x, v, bins: clhist.group_by(x, bins).agg(v=(v, FIVE))["v"],
            lambda x, v, bins: numpy_statistics(x, v, bins, FIVE),
            of_hits=True,
            tolerance=1e-6,
        ),
        Problem(
            "binned_statistic",
            "clhist.stats.binned_statistic: the same by bins of float32",
            partial(_floats, arrays=2),
            lambda x, y, bins: stats.binned_statistic(x, y, list(FIVE), bins, UNIT, binnumber=False),
            scipy_statistics,
            tolerance=1e-9,
        ),
        Problem(
            "image8",
            "clhist.bincount of uint8, 4 N pixels",
            lambda n, bins: (_indices(4 * n, 256, np.uint8),),
            lambda x, bins: clhist.bincount(x, minlength=bins),
            lambda x, bins: np.bincount(x, minlength=bins),
            num_bins=256,
        ),
        Problem(
            "image8-smooth",
            "clhist.bincount of uint8, 4 N pixels that are like their neighbours",
            lambda n, bins: (_smooth(4 * n),),
            lambda x, bins: clhist.bincount(x, minlength=bins),
            lambda x, bins: np.bincount(x, minlength=bins),
            num_bins=256,
        ),
        Problem(
            "image16",
            "clhist.bincount of uint16, 2 N pixels of 12 bits",
            lambda n, bins: (_indices(2 * n, 4096, np.uint16),),
            lambda x, bins: clhist.bincount(x, minlength=bins),
            lambda x, bins: np.bincount(x, minlength=bins),
            num_bins=4096,
        ),
    )
}

ROW_PROBLEMS: dict[str, RowProblem] = {  # of --rows
    "add": RowProblem(
        "add",
        "clhist.reduce_by_index: float32 sums of rows",
        _weighted,
        lambda x, v, bins: clhist.reduce_by_index((bins, v.shape[1]), np.add, x, v),
        lambda x, v, bins: np.bincount(x, v, bins),
    ),
    "mean": RowProblem(
        "mean",
        "clhist.reduce_by_index: float32 means of rows",
        _weighted,
        lambda x, v, bins: clhist.reduce_by_index((bins, v.shape[1]), "mean", x, v),
        numpy_mean,
        of_hits=True,
        tolerance=1e-6,
    ),
}
