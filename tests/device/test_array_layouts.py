"""Device arrays with gaps, of another byte order or context: refused by name before anything is enqueued.

Kernels read a buffer from an offset on, whatever the strides: results of such arrays would be those of other elements.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import clhist
from clhist import ndimage, stats
from clhist.rdf import RDF
from clhist.zonal import zonal_stats

SIZE = 70_001
REAL = np.random.default_rng(5).random(SIZE).astype("f4")
KEYS = (REAL * 50).astype("i4")


@pytest.fixture
def nothing_runs(monkeypatch):
    """Return a function that lets all commands fail from then on."""

    def forbid():
        for module in (cl, cl._cl):
            for name in dir(module):
                if name.lstrip("_").startswith("enqueue_"):
                    monkeypatch.setattr(module, name, None)

    return forbid


@pytest.fixture(scope="module")
def placed(queue):
    return cl_array.to_device(queue, KEYS), cl_array.to_device(queue, REAL)


@pytest.fixture(scope="module")
def wrong(queue, other_queue):
    """Return wrong forms of an array, by what is wrong with them."""

    def forms(array):
        return {
            "contiguous array": cl_array.to_device(queue, np.repeat(array, 2))[::2],
            "native byte order": cl_array.to_device(queue, array.astype(array.dtype.newbyteorder(">"))),
            "array of the context": cl_array.to_device(other_queue, array),
        }

    return forms(KEYS), forms(REAL)


GROUPED = ["all", "any", "argmax", "argmin", "count", "cummax", "cummin", "cumprod", "cumsum", "first", "kurt", "last"]
GROUPED += ["max", "mean", "median", "min", "mode", "nunique", "prod", "rank", "sem", "skew", "std", "sum", "var"]


def check_refused(call, name, kind):
    with pytest.raises((TypeError, ValueError), match=f"^{name}: expected ") as caught:
        call()
    says = str(caught.value)
    assert kind in says or (kind == "native byte order" and ("got one of >" in says or "byte order" in says)), says


def test_values_of_groups(placed, wrong, nothing_runs):
    keys, x = placed
    groups = clhist.group_by(keys, 50)
    nothing_runs()
    for kind, values in wrong[1].items():
        calls = [partial(getattr(groups, name), values) for name in GROUPED]
        calls += [partial(groups.nth, values, 1), partial(groups.quantile, values, 0.5)]
        calls += [partial(groups.transform, values, name) for name in ("mean", "mode", "cumsum", "nunique", "q90")]
        calls += [partial(groups.weighted_mean, values, x)]
        for call in calls:
            check_refused(call, "x", kind)
        check_refused(partial(groups.weighted_mean, x, values), "weights", kind)
        check_refused(partial(groups.quantile, x, 0.5, weights=values), "weights", kind)


def test_the_second_column_of_values(placed, wrong, nothing_runs):
    """All columns are checked before statistics of the first one are computed."""
    keys, x = placed
    groups = clhist.group_by(keys, 50)
    nothing_runs()
    for kind, values in wrong[1].items():
        for statistic in ("mean", "median", "mode", "nunique", "q90", "nth1"):
            check_refused(
                partial(groups.agg, a=(x, "sum", "median", "nunique", "q10"), b=(values, statistic)), "b", kind
            )
    for statistic in ("nunique", "q90", "nth1", "size", "mean"):
        for values, error in ((REAL, "expected a PyOpenCL array as the keys are"), (x[:9], "expected shape")):
            with pytest.raises((TypeError, ValueError), match=f"^b: {error}"):
                groups.agg(a=(x, "median", "nunique"), b=(values, statistic))


def test_keys(placed, wrong, nothing_runs):
    nothing_runs()
    for kind, keys in wrong[0].items():
        others = kind != "array of the context"  # keys alone say which context it is
        if others:
            for call in (partial(clhist.group_by, keys), partial(clhist.group_by, keys, 50)):
                check_refused(call, "keys", kind)
            check_refused(partial(clhist.unique, keys), "x", kind)
            check_refused(partial(clhist.factorize, keys), "values", kind)
            check_refused(partial(clhist.bincount, keys), "x", kind)
        check_refused(partial(clhist.group_by, [placed[0], keys]), r"keys\[1\]", kind)
    for kind, keys in wrong[1].items():
        if kind != "array of the context":
            check_refused(partial(clhist.group_by, keys), "keys", kind)
            check_refused(partial(clhist.unique, keys), "x", kind)
    for other in (KEYS, None, "abc", 3):
        with pytest.raises((TypeError, ValueError), match=r"^keys\[1\]: expected an array of the kind of keys\[0\]"):
            clhist.group_by([placed[0], other])


def test_data_of_histograms(placed, wrong, nothing_runs):
    _, x = placed
    of_where = cl_array.zeros(x.queue, 2 * SIZE, bool)[::2]
    nothing_runs()
    for kind, values in wrong[1].items():
        others = kind != "array of the context"
        for bins in (10, "auto", [0, 0.5, 1]):
            if others:
                check_refused(partial(clhist.histogram, values, bins), "a", kind)
                check_refused(partial(clhist.histogram_bin_edges, values, bins), "a", kind)
            if bins != "auto":
                check_refused(partial(clhist.histogram, x, bins, weights=values), "weights", kind)
        if others:
            check_refused(partial(clhist.digitize, values, [0, 0.5]), "x", kind)
            check_refused(partial(clhist.histogramdd, [x, values]), "sample", kind)
        check_refused(partial(clhist.histogram2d, x, x, weights=values), "weights", kind)
        check_refused(partial(stats.binned_statistic, x, values, "median"), "values", kind)
        check_refused(partial(stats.binned_statistic, values, x, "mean"), "(sample|values)", kind)
        check_refused(partial(stats.binned_statistic, x, x, "quantile", q=0.5, weights=values), "weights", kind)
    for call in (
        partial(clhist.histogram, x),
        partial(clhist.histogram, x, "auto"),
        partial(clhist.histogram_bin_edges, x),
        partial(clhist.histogramdd, [x, x]),
        partial(stats.binned_statistic, x, x),
    ):
        check_refused(partial(call, where=of_where), "where", "contiguous array")


def test_images(placed, wrong, nothing_runs):
    labels, image = placed
    nothing_runs()
    for kind in ("contiguous array", "native byte order"):
        for name in ("sum", "mean", "median", "maximum", "variance", "extrema"):
            function = getattr(ndimage, name)
            with pytest.raises((TypeError, ValueError), match="expected"):
                function(wrong[1][kind], labels, [1, 2])
            with pytest.raises((TypeError, ValueError), match="expected"):
                function(image, wrong[0][kind], [1, 2])


def test_a_transposed_array(queue):
    """An array in Fortran's order has no gaps, and other elements at its places."""
    array = cl_array.to_device(queue, KEYS[:70_000].reshape(2, -1)).T
    for call, name in (
        (partial(clhist.group_by, array, 50), "keys"),
        (partial(clhist.unique, array), "x"),
        (partial(clhist.histogram, array), "a"),
        (partial(clhist.digitize, array, [3, 9]), "x"),
        (partial(clhist.histogramdd, array), "sample"),
    ):
        check_refused(call, name, "contiguous array")


def test_other_arguments(placed, wrong, queue, nothing_runs):
    """Indices of several dimensions, offsets of a batch, zones, and points of a radial distribution."""
    keys, x = placed
    image, zones = x[: SIZE - 1].reshape(700, 100), keys[: SIZE - 1].reshape(700, 100)
    points = cl_array.to_device(queue, REAL[:3000].reshape(1000, 3))
    offsets = cl_array.to_device(queue, np.arange(9))[::4]
    nothing_runs()
    for kind, array in wrong[0].items():
        if kind == "contiguous array":
            check_refused(partial(clhist.reduce_by_index, (50, 50), "sum", (keys, array), x), r"indices\[1\]", kind)
            check_refused(partial(zonal_stats, array[: SIZE - 1].reshape(700, 100), image), "zones", kind)
    swapped = wrong[0]["native byte order"]
    with pytest.raises(TypeError, match=r"^indices\[1\]: expected an array of int32, got one of >i4"):
        clhist.reduce_by_index((50, 50), "sum", (keys, swapped), x)
    with pytest.raises(TypeError, match=r"^zones: expected native byte order"):
        zonal_stats(swapped[: SIZE - 1].reshape(700, 100), image)
    with pytest.raises(ValueError, match=r"^values: expected a contiguous array"):
        zonal_stats(zones, image[::2])
    with pytest.raises(ValueError, match=r"^offsets: expected a contiguous array"):
        clhist.reduce_by_index((2, 50), "sum", keys, x, offsets=offsets)
    with pytest.raises(ValueError, match=r"^points: expected a contiguous array"):
        RDF(bins=5, r_max=2).compute(((10, 10, 10), points[::2]))
