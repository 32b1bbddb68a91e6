"""`Histogram` and `Hist` as citizens of their libraries: errors, slicing, serialisation, plots, shortcuts, imports."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pyopencl.array as cl_array
import pytest

bh = pytest.importorskip("boost_histogram", reason="boost-histogram is not installed")
hist = pytest.importorskip("hist", reason="hist is not installed")
indexing = pytest.importorskip("uhi.testing.indexing", reason="uhi is not installed")

import uhi.io.json  # noqa: E402
from hist_objects import assert_same  # noqa: E402
from thresholds import threshold  # noqa: E402
from uhi.typing.plottable import PlottableHistogram  # noqa: E402

import clhist.hist  # noqa: E402
from clhist._core.runtime import small  # noqa: E402

Histogram, Hist = clhist.hist.Histogram, clhist.hist.Hist
X = np.random.default_rng(0).normal(size=20_000)
K = np.random.default_rng(1).integers(0, 4, 20_000)


@pytest.fixture(autouse=True)
def on_the_device(monkeypatch):
    """Leave nothing to boost-histogram because it is small."""
    for call in ("boost-histogram", "boost-histogram, means"):
        monkeypatch.setitem(small.COSTS, call, threshold(0))


def entries_of(uhi):
    """Return a histogram of our class that was filled with one entry for each count of `uhi`."""
    reference = bh.Histogram(uhi)
    counts = np.asarray(reference.view(flow=True)).astype(int)
    # A value within each bin, the ones for what lies outside included.
    inside = [np.concatenate([[ax.edges[0] - 1], ax.centers, [ax.edges[-1] + 1]]) for ax in reference.axes]
    grid = np.meshgrid(*inside, indexing="ij")
    return Histogram(*reference.axes).fill(*(np.repeat(each.ravel(), counts.ravel()) for each in grid))


class Common:
    tag = bh

    @classmethod
    def make_histogram(cls):
        return entries_of(cls.get_uhi())


class TestIndexing1D(Common, indexing.Indexing1D[bh.Histogram]):
    pass


class TestIndexing2D(Common, indexing.Indexing2D[bh.Histogram]):
    pass


class TestIndexing3D(Common, indexing.Indexing3D[bh.Histogram]):
    pass


def test_what_is_derived_keeps_the_class():
    h = Histogram(bh.axis.Regular(10, -3, 3), bh.axis.Integer(0, 4), storage=bh.storage.Weight()).fill(X, K, weight=X)
    for each in (h[2:5, :], h.project(0), h[:: bh.rebin(2), sum], h + h, h * 2):
        assert isinstance(each, Histogram)


def test_errors_are_boost_histograms():
    h = Histogram(bh.axis.Regular(10, -3, 3), bh.axis.Integer(0, 4))
    mean = Histogram(bh.axis.Regular(10, -3, 3), storage=bh.storage.Mean())
    calls = {
        "one column": (h, (X,), {}),
        "lengths": (h, (X, K[1:]), {}),
        "weights": (h, (X, K), {"weight": X[1:]}),
        "two dimensions": (h, (X.reshape(2, -1), K), {}),
        "floats for integers": (h, (X, X), {}),
        "beyond 32 bits": (h, (X, K + 2**40), {}),
        "sample": (h, (X, K), {"sample": X}),
        "no sample": (mean, (X,), {}),
        "strings": (h, (X, K.astype(str)), {}),
        "threads of means": (mean, (X,), {"sample": X, "threads": 2}),
    }
    for what, (of, args, options) in calls.items():
        with pytest.raises(Exception) as theirs:  # noqa: PT011
            bh.Histogram(of).fill(*args, **options)
        with pytest.raises(type(theirs.value)) as ours:
            of.fill(*args, **options)
        assert str(ours.value) == str(theirs.value), what
        assert not np.asarray(of.view(flow=True)).view(np.float64).any(), what


def test_mixed_arrays(queue):
    h = Histogram(bh.axis.Regular(10, -3, 3), bh.axis.Integer(0, 4))
    with pytest.raises(TypeError, match=r"args\[1\]: expected a PyOpenCL array"):
        h.fill(cl_array.to_device(queue, X), K)


def test_arrays_with_gaps(queue):
    x, gaps = cl_array.to_device(queue, X), cl_array.to_device(queue, np.repeat(X, 2))[::2]
    for storage, arguments, name in (
        (bh.storage.Double(), {"args": [gaps]}, r"args\[0\]"),
        (bh.storage.Double(), {"args": [x], "weight": gaps}, "weight"),
        (bh.storage.Mean(), {"args": [x], "sample": gaps}, "sample"),
    ):
        histogram = bh.Histogram(bh.axis.Regular(5, -1, 1), storage=storage)
        with pytest.raises(ValueError, match=f"^{name}: expected a contiguous array"):
            clhist.hist.fill(histogram, *arguments.pop("args"), **arguments)
        assert not np.any(histogram.values(flow=True))


def test_a_device_without_room(queue, monkeypatch):
    class Small:
        global_mem_size, name = 1000, "a small device"
        extensions = "cl_khr_fp64"

    h = Histogram(bh.axis.Regular(100, -3, 3), storage=bh.storage.Weight())
    columns = clhist.hist.filling.columns_of(h, [X], None, None, queue)

    class Queue:
        device = Small

    object.__setattr__(columns, "queue", Queue)
    with pytest.raises(MemoryError, match="needs 1,632 bytes for 102 bins; a small device has 1,000"):
        clhist.hist.filling.check_room(h, columns)


def test_uhi_and_plots():
    h = Histogram(bh.axis.Regular(10, -3, 3), storage=bh.storage.Weight()).fill(X, weight=X)
    assert isinstance(h, PlottableHistogram)
    text = json.dumps(h, default=uhi.io.json.default)
    back = Histogram(json.loads(text, object_hook=uhi.io.json.object_hook))
    assert_same(back, h, exact=True)


def test_numpys_functions_of_boost_histogram():
    found = bh.numpy.histogram(X, bins=50, range=(-3, 3), histogram=Histogram)
    assert isinstance(found, Histogram)
    np.testing.assert_array_equal(found.to_numpy()[0], np.histogram(X, bins=50, range=(-3, 3))[0])


def test_hist_by_names_and_shortcuts():
    h = Hist.new.Reg(10, -3, 3, name="x").IntCat([0, 1, 2], name="k").Weight()
    reference = hist.Hist.new.Reg(10, -3, 3, name="x").IntCat([0, 1, 2], name="k").Weight()
    assert isinstance(h, Hist)
    assert_same(h.fill(k=K, x=X, weight=X), reference.fill(k=K, x=X, weight=X))
    assert_same(h.fill(X, k=K), reference.fill(X, k=K))
    assert_same(clhist.hist.fill(reference.copy(), x=X, k=K), reference.copy().fill(x=X, k=K))
    assert isinstance(h[{"k": 1j}], Hist)
    with pytest.raises(TypeError, match="Missing values"):
        h.fill(x=X)
    with pytest.raises(TypeError, match="Missing values"):
        clhist.hist.fill(reference, x=X)
    means = Hist.new.Reg(10, -3, 3, name="x").Mean()
    with pytest.raises(TypeError, match="sample"):
        means.fill(x=X)


SHORTCUTS = {
    "regular": lambda new: new.Reg(10, -3, 3).Double(),
    "named regular": lambda new: new.Regular(10, -3, 3, name="x", label="X").Weight(),
    "square roots": lambda new: new.Sqrt(10, 0, 4).Int64(),
    "logarithms": lambda new: new.Log(10, 0.01, 4).AtomicInt64(),
    "powers": lambda new: new.Pow(10, 0.5, 4, power=3).Unlimited(),
    "variable": lambda new: new.Var([-3, -1, 0, 2]).Double(),
    "circular": lambda new: new.Reg(10, 0, 1, circular=True).Double(),
    "no flow": lambda new: new.Reg(10, -1, 1, flow=False).Double(),
    "integers": lambda new: new.Int(0, 3).Double(),
    "integer categories": lambda new: new.IntCat([2, 0]).Double(),
    "growing categories": lambda new: new.IntCat([], growth=True).Int64(),
    "labels": lambda new: new.StrCat(["b", "a"]).Weight(),
    "boolean": lambda new: new.Bool().Double(),
    "two axes": lambda new: new.Reg(10, -3, 3, name="x").Int(0, 3, name="k").Weight(),
    "mean": lambda new: new.Reg(10, -3, 3).Mean(),
    "weighted mean": lambda new: new.Reg(10, -3, 3).WeightedMean(),
}


@pytest.mark.parametrize("name", SHORTCUTS)
def test_shortcuts(name):
    """Every shortcut makes our class, of hist's axes and storage, which the same data fills alike."""
    h, reference = SHORTCUTS[name](Hist.new), SHORTCUTS[name](hist.Hist.new)
    assert type(h) is Hist
    assert_same(h, reference, exact=True)
    columns = [_data_of(ax) for ax in reference.axes]
    options = {} if reference.storage_type in (bh.storage.Int64, bh.storage.AtomicInt64) else {"weight": abs(X)}
    if "mean" in name:
        options = {"sample": X} | ({"weight": abs(X)} if "weighted" in name else {})
    assert_same(h.fill(*columns, **options), reference.fill(*columns, **options))


def _data_of(ax):
    if isinstance(ax, bh.axis.StrCategory):
        return np.array(["a", "b", "c", "d"])[K]
    if isinstance(ax, bh.axis.Boolean):
        return K > 1
    return K if isinstance(ax, bh.axis.Integer | bh.axis.IntCategory) else X


def test_shortcuts_with_data():
    """`data=` gives the bins; flat awkward arrays are columns, and `fill_flattened` makes them of jagged ones."""
    bins = np.arange(12.0)
    assert_same(Hist.new.Reg(10, -3, 3).Double(data=bins), hist.Hist.new.Reg(10, -3, 3).Double(data=bins), exact=True)
    awkward = pytest.importorskip("awkward", reason="awkward is not installed")
    h = Hist.new.Reg(10, -3, 3, name="x").Double().fill(awkward.Array(X))
    assert_same(h, hist.Hist.new.Reg(10, -3, 3, name="x").Double().fill(X), exact=True)
    jagged = awkward.unflatten(awkward.Array(X), 4)
    h = Hist.new.Reg(10, -3, 3, name="x").Double()
    assert_same(h.fill_flattened(x=jagged), hist.Hist.new.Reg(10, -3, 3, name="x").Double().fill(X), exact=True)


def test_plots_of_other_libraries():
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="matplotlib is not installed")
    mplhep = pytest.importorskip("mplhep", reason="mplhep is not installed")
    one = Hist.new.Reg(10, -3, 3, name="x").Weight().fill(X, weight=abs(X))
    two = Hist.new.Reg(10, -3, 3, name="x").Int(0, 4, name="k").Double().fill(X, K)
    figure, axes = pyplot.subplots(1, 2)
    (stairs, *_) = mplhep.histplot(one, ax=axes[0])
    np.testing.assert_allclose(stairs.stairs.get_data().values, one.values())
    (mesh, *_) = mplhep.hist2dplot(two, ax=axes[1])
    np.testing.assert_allclose(np.asarray(mesh.get_array()).reshape(4, 10), two.values().T)
    pyplot.close(figure)


def test_growing_axes_keep_their_names():
    h = Hist.new.StrCat(["a"], growth=True, name="s", label="label").Int64()
    h.fill(s=np.array(["b", "a", "c", "b"]))
    assert (h.axes[0].name, h.axes[0].label, list(h.axes[0])) == ("s", "label", ["a", "b", "c"])
    np.testing.assert_array_equal(h.values(), [1, 2, 1])


@pytest.mark.parametrize(
    ("axis", "column"),
    [
        (bh.axis.StrCategory(["a"], growth=True), np.array(["b", "c"])),
        (bh.axis.IntCategory([3], growth=True), np.array([9, 8])),
        (bh.axis.Integer(0, 3, growth=True), np.array([-2, 5])),
    ],
    ids=["strings", "categories", "integers"],
)
@pytest.mark.parametrize(
    ("storage", "options"),
    [
        (bh.storage.Double(), {"sample": np.ones(2)}),
        (bh.storage.Double(), {"weight": np.ones(3)}),
        (bh.storage.Double(), {"weight": np.array(["x", "y"])}),
        (bh.storage.Int64(), {"weight": np.full(2, 0.5), "reproducible": True}),
        (bh.storage.Mean(), {}),
    ],
    ids=["sample", "length", "text", "fractions", "no sample"],
)
def test_a_fill_that_fails_does_not_grow_axes(axis, column, storage, options, queue):
    h = bh.Histogram(axis, storage=storage)
    before, view = list(h.axes[0]), h.view(flow=True).copy()
    with pytest.raises((TypeError, ValueError)):
        clhist.hist.fill(h, column, queue=queue, **options)
    assert list(h.axes[0]) == before
    np.testing.assert_array_equal(h.view(flow=True), view)

    columns = {name: value for name, value in options.items() if name != "reproducible"}
    filler = clhist.hist.Filler(h, queue=queue, reproducible="reproducible" in options)
    with pytest.raises((TypeError, ValueError)):
        filler.fill(column, **columns)
    assert list(filler.partial().axes[0]) == before


def test_filler_of_an_axis_that_grows_in_value():
    h = bh.Histogram(bh.axis.Regular(10, 0, 1, growth=True))
    with pytest.raises(ValueError, match=r"axes that do not grow, got axes\[0\]"):
        clhist.hist.Filler(h)


def test_plans(queue):
    filler = clhist.hist.Filler(Histogram(bh.axis.Regular(100, -3, 3), storage=bh.storage.Weight()), queue=queue)
    assert repr(filler) == "<Filler of Histogram(Regular(100, -3, 3), storage=Weight())>"
    assert [plan.num_elements for plan in filler.plan(10**6, weight=np.float32)] == [10**6]


@pytest.mark.parametrize("missing", ["boost_histogram", "hist"])
def test_imports_without(missing):
    code = f"""
import sys
sys.modules[{missing!r}] = None
import clhist, clhist.hist
try:
    clhist.hist.Hist
except ImportError as error:
    assert "pip install 'clhist[hist]'" in str(error), error
else:
    raise AssertionError("imported")
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr
