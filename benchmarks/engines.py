"""`clhist bench --suite engines`: clhist in the places of other packages' engines, beside these, round by round."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from math import isqrt
from typing import Any

import numpy as np

from benchmarks import suite as bench_suite
from benchmarks.groups import add_calls, panels
from benchmarks.lab import Lab, Row
from benchmarks.suite import Request, Suite, microseconds, times

Call = Callable[[], Any]
_ROUNDS = 3
_CLHIST = "clhist"
_FEATURES, _TREES = 28, 10


@dataclass(frozen=True)
class Problem:
    """A problem of some size: calls by their names, clhist's first, and how far results may differ.

    Results are numbers; those of the others are compared with clhist's, which is relative to the largest.
    """

    text: str
    calls: Callable[[Lab, int, int], dict[str, Call]]
    tolerance: float
    bins: str  # what their number is of


def _boosting(lab: Lab, size: int, leaves: int) -> dict[str, Call]:
    """Return fits of trees to rows of features, whose score on the same rows is compared."""
    rows = max(1000, size // _FEATURES)
    rng = np.random.default_rng(1)
    x = rng.normal(size=(rows, _FEATURES)).astype(np.float32)
    y = x[:, 0] * x[:, 1] + np.sin(3 * x[:, 2]) + x[:, 3] + rng.normal(size=rows).astype(np.float32) > 0
    options = {"max_iter": _TREES, "max_leaf_nodes": leaves, "early_stopping": False}

    def fit(module: str) -> float:
        model = import_module(module).HistGradientBoostingClassifier(**options).fit(x, y)
        return float(model.score(x[:10_000], y[:10_000]))

    def light(device: str) -> float:
        options = {"num_leaves": leaves, "n_estimators": _TREES, "max_bin": 255, "device_type": device, "verbosity": -1}
        model = import_module("lightgbm").LGBMClassifier(**options).fit(x, y)
        return float(np.mean(model.predict(x[:10_000]) == y[:10_000]))

    def extreme() -> float:
        options = {"max_leaves": leaves, "max_depth": 0, "n_estimators": _TREES, "max_bin": 255, "learning_rate": 0.1}
        model = import_module("xgboost").XGBClassifier(grow_policy="lossguide", tree_method="hist", **options).fit(x, y)
        return float(np.mean(model.predict(x[:10_000]) == y[:10_000]))

    return {
        _CLHIST: partial(fit, "clhist.boosting"),
        "scikit-learn": partial(fit, "sklearn.ensemble"),
        "LightGBM": partial(light, "cpu"),
        "LightGBM, gpu": partial(light, "gpu"),
        "XGBoost": extreme,
    }


def _zones(lab: Lab, size: int, zones: int) -> dict[str, Call]:
    """Return means of zones that are squares in random order."""
    side, across = max(1, isqrt(size)), max(1, isqrt(zones))
    rng = np.random.default_rng(1)
    places = np.arange(side) * across // side
    squares = rng.permutation(across * across).astype(np.int32).reshape(across, across)
    cells = squares[np.ix_(places, places)]
    values = rng.normal(100, 10, (side, side)).astype(np.float32)
    names = ["mean", "max", "min", "sum", "std", "var", "count"]

    def ours() -> np.ndarray:
        frame = import_module("clhist.zonal").zonal_stats(cells, values, stats_funcs=names, queue=lab.queue)
        return np.asarray(frame["mean"])

    def theirs() -> np.ndarray:
        xarray = import_module("xarray")
        arrays = (xarray.DataArray(array) for array in (cells, values))
        return np.asarray(import_module("xrspatial").zonal_stats(*arrays, stats_funcs=names)["mean"])

    def images() -> np.ndarray:
        ndimage, index = import_module("scipy.ndimage"), np.unique(cells)
        ndimage.standard_deviation(values, cells, index)
        ndimage.extrema(values, cells, index)
        return np.asarray(ndimage.mean(values, cells, index))

    return {_CLHIST: ours, "xarray-spatial": theirs, "scipy.ndimage": images}


def _pairs(lab: Lab, size: int, bins: int) -> dict[str, Call]:
    """Return the pairs by distance of particles in a box, of which each has about 400 neighbours."""
    number, near = max(100, size // 100), 400
    edge = number ** (1 / 3)
    reach = min((near / (4 / 3 * np.pi)) ** (1 / 3), 0.49 * edge)
    points = np.random.default_rng(1).uniform(-edge / 2, edge / 2, (number, 3)).astype(np.float32)
    box = [edge] * 3

    def ours() -> np.ndarray:
        rdf = import_module("clhist.rdf").RDF(bins, reach, queue=lab.queue)
        return np.asarray(rdf.compute((box, points)).bin_counts, np.float64)

    def theirs() -> np.ndarray:
        freud = import_module("freud")
        rdf = freud.density.RDF(bins, reach)
        return np.asarray(rdf.compute((freud.box.Box(*box), points)).bin_counts, np.float64)

    return {_CLHIST: ours, "freud": theirs}


def _frames(lab: Lab, size: int, bins: int) -> dict[str, Call]:
    """Return the integration of a frame around a centre, with the corrections that pyFAI has by default."""
    side = max(8, isqrt(size))
    detector = import_module("pyFAI.detectors").Detector(1e-4, 1e-4, max_shape=(side, side))
    integrator = import_module("pyFAI.integrator.azimuthal").AzimuthalIntegrator
    ai = integrator(0.2, 0.4e-4 * side, 0.6e-4 * side, detector=detector, wavelength=1e-10)
    frame = np.random.default_rng(1).poisson(100, (side, side)).astype(np.uint16)
    method = import_module("clhist.pyfai").method

    def integrate(method: Any) -> np.ndarray:
        return np.asarray(ai.integrate1d(frame, bins, unit="2th_deg", method=method).intensity, np.float64)

    return {
        _CLHIST: partial(integrate, method(1)),
        "clhist, keep=True": partial(integrate, method(1, keep=True)),
        "pyFAI, Cython": partial(integrate, ("no", "histogram", "cython")),
    }


PROBLEMS = {
    "boosting": Problem(f"{_TREES} trees, {_FEATURES} features, one float32 an element", _boosting, 0.02, "leaves"),
    "zones": Problem("seven statistics of each zone", _zones, 1e-4, "zones"),
    "pairs": Problem("one particle for each 100 elements", _pairs, 1e-3, "bins"),
    "frames": Problem("one pixel an element", _frames, 1e-3, "bins"),
}


def run(lab: Lab, request: Request) -> Iterator[tuple[str, list[Row]]]:
    """Yield for each problem a row for each implementation."""
    for name in request.operations:
        problem = PROBLEMS[name]
        for bins in request.bins:
            common = {"function": name, "num_elements": request.num_elements, "num_bins": bins}
            text = f"{name}, {bins:,} {problem.bins}"
            try:
                rows = _rows(problem.calls(lab, request.num_elements, bins), problem.tolerance)
            except ImportError as error:
                rows = [{"implementation": _CLHIST, "note": f"not installed: {error.name}"}]
            yield text, [common | row for row in rows]


def _rows(calls: dict[str, Call], tolerance: float) -> list[Row]:
    rows: dict[str, Row] = {}
    expected: Any = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the others: deprecations, and names of features
        for name, call in calls.items():
            rows[name] = {"implementation": name}
            start = time.perf_counter()
            try:
                result = call()
            except Exception as error:  # of somebody else's code as well: not installed, no such device
                if name == _CLHIST:
                    rows[name] |= {"failed": True, "note": f"{type(error).__name__}: {str(error)[:80]}"}
                else:
                    del rows[name]
                continue
            rows[name]["first"] = time.perf_counter() - start
            expected = result if expected is None else expected
            if not np.allclose(result, expected, rtol=0, atol=tolerance * np.abs(expected).max()):
                rows[name] |= {"failed": True, "note": f"WRONG: {np.abs(result - expected).max():g} from clhist's"}
        add_calls(rows, calls, _CLHIST, _ROUNDS)
    return list(rows.values())


SUITE = Suite(
    operations=tuple(PROBLEMS),
    default_operations=tuple(PROBLEMS),
    bins=(255,),
    race_factors=(),
    steps=lambda request: len(request.operations) * len(request.bins),
    run=run,
    columns=(
        ("engine", lambda row: row["function"]),
        bench_suite.BINS,
        ("implementation", lambda row: row["implementation"]),
        ("first call ms", lambda row: f"{row['first'] * 1e3:,.0f}" if "first" in row else "-"),
        ("call µs", lambda row: microseconds(row, "call")),
        ("spread", lambda row: bench_suite.spread(row, "call")),
        ("x clhist", lambda row: times(row, "per_clhist")),
    ),
    panels=panels,
    needs=("sklearn", "boosting"),
)
