"""Boolean options: every public function refuses all other values by name, before anything is enqueued."""

from __future__ import annotations

import inspect
from functools import partial
from importlib import import_module

import boost_histogram
import dask.array
import dask.dataframe
import numpy as np
import pandas
import pytest

import clhist
from clhist import hist

MODULES = ("clhist", "clhist.stats", "clhist.ndimage", "clhist.operators", "clhist.hist", "clhist.dask", "clhist.flox")
X = np.arange(5)
LAZY = dask.array.from_array(X, chunks=2)
TABLE = pandas.DataFrame({"a": X, "b": X % 2})
POINTS = [X.astype(float), X.astype(float)]
# Values of the library, which check nothing.
OF_PLANS = ("clhist.Plan", "clhist.Histogram", "clhist.Problem", "clhist.Operator.fixed")


def groups():
    return clhist.group_by(X % 2)


def accumulator(kind=clhist.Accumulator):
    return kind("count", 5, queue=clhist.default_queue()) if kind is clhist.Accumulator else kind("count", 5)


def kernel():
    return clhist.HistogramKernel(None, "count", arguments="const int *x", map="EMIT(x[i], 1)")


def bound():
    return kernel().bind(np.arange(5, dtype=np.int32), num_bins=5)


AXIS = boost_histogram.axis.Regular(4, 0.0, 4.0)


def filler():
    return hist.Filler(boost_histogram.Histogram(AXIS))


def of_groups(name):
    """Return a call of a method of groups."""
    values = {"weighted_mean": (X, X), "quantile": (X, 0.5), "cumcount": ()}.get(name, (X,))
    return lambda **option: getattr(groups(), name)(*values, **option)


CALLS = {
    "clhist.Accumulator.extend": lambda **option: accumulator().extend([], **option),
    "clhist.Accumulator.merge": lambda **option: accumulator().merge(accumulator().partial(), **option),
    "clhist.Bound.__call__": lambda **option: bound()(**option),
    "clhist.FrameGroupBy.agg": lambda **option: clhist.group_by(TABLE, "b").agg(m=("a", "mean"), **option),
    "clhist.GroupBy.agg": lambda **option: groups().agg(x=(X, "mean"), **option),
    "clhist.HistogramKernel.__call__": lambda **option: kernel()(X.astype("i4"), num_bins=5, **option),
    "clhist.HistogramKernel.bind": lambda **option: kernel().bind(X.astype("i4"), num_bins=5, **option),
    "clhist.MultiAccumulator.extend": lambda **option: accumulator(clhist.MultiAccumulator).extend([], **option),
    "clhist.MultiAccumulator.merge": lambda **option: accumulator(clhist.MultiAccumulator).merge(
        accumulator().partial(), **option
    ),
    "clhist.Operator": partial(clhist.Operator, np.int32, "a + b", 0),
    "clhist.Partial.load": partial(clhist.Partial.load, "no such file.npz"),
    "clhist.bincount": partial(clhist.bincount, X),
    "clhist.crosstab": partial(clhist.crosstab, TABLE, "a", "b"),
    "clhist.cut": partial(clhist.cut, "a", 3),
    "clhist.digitize": partial(clhist.digitize, X, X),
    "clhist.factorize": partial(clhist.factorize, X),
    "clhist.group_by": partial(clhist.group_by, X),
    "clhist.histogram": partial(clhist.histogram, X),
    "clhist.histogram2d": partial(clhist.histogram2d, X, X),
    "clhist.histogramdd": partial(clhist.histogramdd, POINTS),
    "clhist.merge": partial(clhist.merge, []),
    "clhist.reduce_by_index": partial(clhist.reduce_by_index, 5, "sum", X, X),
    "clhist.unique": partial(clhist.unique, X),
    "clhist.value_counts": partial(clhist.value_counts, TABLE),
    "clhist.stats.binned_statistic_2d": partial(clhist.stats.binned_statistic_2d, *POINTS, X),
    "clhist.stats.binned_statistic_dd": partial(clhist.stats.binned_statistic_dd, POINTS, X),
    "clhist.hist.Filler": partial(hist.Filler, boost_histogram.Histogram(AXIS)),
    "clhist.hist.Filler.merge": lambda **option: filler().merge(filler().partial(), **option),
    "clhist.hist.Hist.fill": lambda **option: hist.Hist(AXIS).fill(POINTS[0], **option),
    "clhist.hist.Histogram.fill": lambda **option: hist.Histogram(AXIS).fill(X, **option),
    "clhist.hist.fill": lambda **option: hist.fill(hist.Histogram(AXIS), X, **option),
    "clhist.hist.fill_many": partial(hist.fill_many, []),
    "clhist.dask.FrameGroupBy.agg": lambda **option: clhist.dask.group_by(
        dask.dataframe.from_pandas(TABLE, npartitions=1), "b"
    ).agg(m=("a", "mean"), **option),
    "clhist.dask.GroupBy": partial(clhist.dask.GroupBy, LAZY),
    "clhist.dask.GroupBy.agg": lambda **option: clhist.dask.group_by(LAZY).agg(x=(LAZY, "mean"), **option),
    "clhist.dask.bincount": partial(clhist.dask.bincount, LAZY),
    "clhist.dask.group_by": partial(clhist.dask.group_by, LAZY),
    "clhist.dask.histogram": partial(clhist.dask.histogram, LAZY),
    "clhist.dask.histogram2d": partial(clhist.dask.histogram2d, LAZY, LAZY),
    "clhist.dask.histogramdd": partial(clhist.dask.histogramdd, (LAZY, LAZY)),
    "clhist.dask.reduce_by_index": partial(clhist.dask.reduce_by_index, 5, "sum", LAZY, LAZY),
}


def is_flag(parameter):
    return isinstance(parameter.default, bool) or str(parameter.annotation).startswith("bool")


def flags_of(name, function):
    """Yield the name of a function and of each of its boolean options."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # of classes of other libraries
        return
    for parameter in parameters:
        if is_flag(parameter) and parameter.kind != parameter.VAR_KEYWORD:
            yield name, parameter


def public_flags():
    """Yield all boolean options of public functions, of public classes, and of their methods."""
    for module in map(import_module, MODULES):
        for name in getattr(module, "__all__", dir(module)):
            value = getattr(module, name)
            where = f"{module.__name__}.{name}"
            if name.startswith("_") or not callable(value) or where in OF_PLANS:
                continue
            yield from flags_of(where, value)
            for method in dir(value) if inspect.isclass(value) else ():
                owner = next(one for one in (*value.__mro__, type) if method in vars(one))
                if owner.__module__.startswith("clhist") and (method == "__call__" or not method.startswith("_")):
                    yield from flags_of(f"{where}.{method}", getattr(value, method))


FLAGS = {(name, parameter.name): parameter for name, parameter in public_flags() if name not in OF_PLANS}


def call_of(name):
    return CALLS[name] if name in CALLS else of_groups(name.removeprefix("clhist.GroupBy."))


def test_all_public_flags_are_here():
    """Options of new functions get a call in `CALLS`."""
    assert len(FLAGS) > 80
    assert {name for name, _ in FLAGS if not name.startswith("clhist.GroupBy.")} == {*CALLS} - {"clhist.GroupBy.agg"}


@pytest.mark.parametrize(("name", "option"), FLAGS)
def test_a_flag_is_a_boolean(name, option):
    call, parameter = call_of(name), FLAGS[name, option]
    others = ["no"] if "str" not in str(parameter.annotation) else []  # of `normalize`, which has values of text
    others += [] if parameter.default is None else [None]
    for value in (2, 0, np.array([1, 0]), np.array(True), [True], *others):
        with pytest.raises(TypeError, match=rf"^{option}: expected a bool"):
            call(**{option: value})


@pytest.mark.parametrize("value", [1, "no", None])
def test_a_flag_by_position_is_a_boolean(value):
    for call, name in (
        (partial(clhist.unique, X, False), "return_inverse"),
        (partial(clhist.factorize, X), "sort"),
        (partial(clhist.digitize, X, X), "right"),
        (partial(clhist.histogram, X, 2, None), "density"),
    ):
        if value is not None or name != "density":
            with pytest.raises(TypeError, match=f"^{name}: expected a bool, got {value!r}"):
                call(value)


def test_booleans_of_numpy_are_booleans():
    assert clhist.unique([3, 1, 3], sorted=np.False_).tolist() == [3, 1]
    assert clhist.histogram(X, 2, density=np.True_)[0].tolist() == [0.2, 0.3]
    assert clhist.group_by([1, 0], sort=np.False_).keys.tolist() == [1, 0]
    assert clhist.crosstab(TABLE, "a", "b", normalize=np.True_).loc[0, 0] == 0.2
