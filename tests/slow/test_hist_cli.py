"""`clhist hist --axis`: histogram objects from files, against boost-histogram on the whole columns."""

from __future__ import annotations

import importlib
import json
import re
import sys
import zipfile

import numpy as np
import pandas
import pytest
from commands import run_hist as run

bh = pytest.importorskip("boost_histogram", reason="boost-histogram is not installed")
hist = pytest.importorskip("hist", reason="hist is not installed")

import uhi.io.json  # noqa: E402
import uhi.io.zip  # noqa: E402
from hist_objects import assert_same  # noqa: E402
from thresholds import threshold  # noqa: E402

from clhist._core.runtime import small  # noqa: E402
from clhist.cli.hist import tables  # noqa: E402
from clhist.cli.hist.objects import AxisSpec  # noqa: E402
from clhist.files import text  # noqa: E402

SIZE = 5003
LIBRARIES = {".hdf5": "h5py", ".root": "uproot"}


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(5)
    found = {
        "pt": rng.exponential(40, SIZE),
        "eta": rng.normal(size=SIZE),
        "n": rng.integers(-2, 9, SIZE),
        "w": rng.random(SIZE),
        "run": rng.choice(["a", "b", "cc"], SIZE),
    }
    found["pt"][::50] = np.nan
    return pandas.DataFrame(found)


@pytest.fixture(scope="module", params=["csv", "parquet"])
def file(request, frame, tmp_path_factory):
    path = tmp_path_factory.mktemp("tables") / f"table.{request.param}"
    if request.param == "csv":
        frame.to_csv(path, index=False)
    else:
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
        frame.to_parquet(path, row_group_size=600)
    return path


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(tables, "CHUNK_ROWS", 1000)
    monkeypatch.setattr(text, "_BLOCK", 30_000)
    for call in ("boost-histogram", "boost-histogram, means"):
        monkeypatch.setitem(small.COSTS, call, threshold(0))


def read(path):
    if path.suffix == ".hdf5":
        with importlib.import_module("h5py").File(path) as file:
            return hist.Hist(importlib.import_module("uhi.io.hdf5").read(file["histogram"]))
    if path.suffix == ".root":
        with importlib.import_module("uproot").open(path) as file:
            return hist.Hist(importlib.import_module("uhi.io.uproot").read(file, "histogram"))
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            return hist.Hist(uhi.io.zip.read(archive, "histogram"))
    return hist.Hist(json.loads(path.read_text(), object_hook=uhi.io.json.object_hook))


CASES = {
    "weights": (
        ["-a", "pt=reg(100,0,200)", "-a", "eta=var(-2.5,-1,0,1,2.5)", "--weight", "w", "--storage", "weight"],
        lambda: [hist.axis.Regular(100, 0, 200, name="pt"), hist.axis.Variable([-2.5, -1, 0, 1, 2.5], name="eta")],
        bh.storage.Weight(),
        {"weight": "w"},
    ),
    "logarithms and labels": (
        ["-a", "pt=reg(10, 1, 200, log)", "-a", "run=str()", "--storage", "int64"],
        lambda: [
            hist.axis.Regular(10, 1, 200, transform=bh.axis.transform.log, name="pt"),
            hist.axis.StrCategory([], growth=True, name="run"),
        ],
        bh.storage.Int64(),
        {},
    ),
    "means": (
        ["-a", "n=int(0,5)", "--storage", "weighted_mean", "--sample", "eta", "--weight", "w"],
        lambda: [hist.axis.Integer(0, 5, name="n")],
        bh.storage.WeightedMean(),
        {"sample": "eta", "weight": "w"},
    ),
}


@pytest.mark.parametrize("case", ["weights", "means"])
@pytest.mark.parametrize("ending", [".json", ".zip", ".hdf5", ".root"])
def test_files(file, frame, tmp_path, case, ending):
    if ending in LIBRARIES:
        pytest.importorskip(LIBRARIES[ending], reason=f"{LIBRARIES[ending]} is not installed")
    args, axes, storage, options = CASES[case]
    path = tmp_path / f"h{ending}"
    outcome = run(file, *args, "--output", path)
    assert "storage" in outcome.output.lower()
    expected = hist.Hist(*axes(), storage=storage)
    whole = frame[[*(ax.name for ax in expected.axes), *options.values()]].dropna()
    expected.fill(*(whole[ax.name] for ax in expected.axes), **{name: whole[each] for name, each in options.items()})
    assert ("101 rows left out" in outcome.output) == (case == "weights")
    assert_same(read(path), expected)


def test_labels_and_transforms(file, frame, tmp_path):
    args, axes, storage, _ = CASES["logarithms and labels"]
    run(file, *args, "--where", "eta > 0", "--output", tmp_path / "h.json")
    chosen = frame[frame.eta > 0].dropna()
    expected = hist.Hist(*axes(), storage=storage).fill(chosen.pt, chosen.run)
    found = read(tmp_path / "h.json")
    assert list(found.axes[1]) == list(expected.axes[1])
    np.testing.assert_array_equal(found.view(flow=True), expected.view(flow=True))


def test_plots(file, tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    run(file, "-a", "pt=reg(10,0,100)", "--plot", tmp_path / "one.png")
    run(file, "-a", "pt=reg(10,0,100)", "-a", "eta=reg(5,-1,1)", "--plot", tmp_path / "two.svg")
    assert all(path.stat().st_size > 1000 for path in tmp_path.iterdir())


@pytest.mark.parametrize(("ending", "library"), [(".hdf5", "h5py"), (".root", "uproot")])
def test_formats_without_their_libraries(file, tmp_path, monkeypatch, ending, library):
    monkeypatch.setitem(sys.modules, library, None)
    outcome = run(file, "-a", "pt=reg(10,0,100)", "--output", tmp_path / f"h{ending}", code=2)
    assert library in outcome.output
    assert "pip install" in outcome.output


def test_bins_in_the_terminal(file, frame):
    shown = run(file, "-a", "pt=reg(3,0,60)").stdout.splitlines()
    counts, _ = np.histogram(frame.pt.dropna(), 3, (0, 60))
    assert [int(line.split()[3].replace(",", "")) for line in shown if " .. " in line] == counts.tolist()
    assert f"{np.count_nonzero(frame.pt >= 60):,} above or NaN" in shown[-1]
    shown = run(file, "-a", "run=str()").stdout
    for name, number in frame.run.value_counts().items():
        assert re.search(rf"^ *{name} +{number} ", shown, re.MULTILINE)
    assert "shades: " in run(file, "-a", "pt=reg(3,0,60)", "-a", "w=reg(4,0,1)").stdout
    label = str(frame.run.dropna().iloc[0])
    counts, _ = np.histogram(frame.pt[frame.run == label].dropna(), 3, (0, 60))
    for args in (["-a", "run=str()", "-a", "pt=reg(3,0,60)"], ["-a", "pt=reg(3,0,60)", "-a", "run=str()"]):
        shown = run(file, *args).stdout.split(f"count by pt, run = {label}\n")[1].splitlines()[:3]
        assert [int(line.split()[3].replace(",", "")) for line in shown] == counts.tolist()


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["-a", "pt=foo(1)"], "expected NAME=KIND"),
        (["-a", "pt=reg(1,2)"], "expected 3 numbers in reg"),
        (["-a", "pt=var(1)"], "two or more"),
        (["-a", "pt=reg(10,0,x)"], "expected numbers and log"),
        (["-a", "pt=reg(10,5,5)"], "--axis pt: range of axis is zero"),
        (["-a", "pt=int(0,9)"], "expected integers for int"),
        (["-a", "zz=reg(10,0,1)"], "expected a column among"),
        (["-a", "pt=reg(10,0,1)", "--bins", "5"], "--bins: expected none beside --axis"),
        (["-a", "pt=reg(10,0,1)", "--storage", "mean"], "--sample: expected a column"),
        (["-a", "pt=reg(10,0,1)", "--sample", "w"], "expected --storage mean"),
        (["-c", "pt", "--storage", "weight"], "--storage: expected --axis as well"),
        (["-a", "pt=reg(10,0,1)", "--output", "h.txt"], "expected a file .json"),
    ],
)
def test_bad_input(file, args, expected):
    assert expected in run(file, *args, code=2).output


def test_specs():
    spec = AxisSpec.of(" pt = reg( 10, -1, 1e3, sqrt, no_overflow ) ")
    assert spec == AxisSpec("pt", "reg", (10.0, -1.0, 1000.0), frozenset({"sqrt", "no_overflow"}))
    assert AxisSpec.of("run=str()").axis().traits.growth
    assert AxisSpec.of("b=bool()").axis().size == 2
    assert AxisSpec.of("phi=reg(8,0,6.3,circular)").axis().traits.circular


@pytest.fixture
def drawn(monkeypatch, tmp_path):
    """Return a function that runs the command with ``--plot`` and returns the axes of matplotlib that it drew."""
    figure = pytest.importorskip("matplotlib.figure", reason="matplotlib is not installed").Figure
    figures, save = [], figure.savefig
    monkeypatch.setattr(figure, "savefig", lambda self, *a, **k: (figures.append(self), save(self, *a, **k))[1])

    def drawn(*args):
        run(*args, "--plot", tmp_path / "plot.png")
        return figures[-1].axes[0]

    return drawn


def test_plots_show_what_the_axes_are(drawn, tmp_path):
    table = {"zone": ["b", "a", "b", "c"], "x": [1.0, 10, 100, 1000], "w": [0.5, 1, 1, 1]}
    path = tmp_path / "t.csv"
    pandas.DataFrame(table).to_csv(path, index=False)
    ax = drawn(path, "--axis", "zone=str()", "--weight", "w")
    assert [text.get_text() for text in ax.get_xticklabels()] == ["b", "a", "c"]
    assert [bar.get_height() for bar in ax.patches] == [1.5, 1, 1]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("zone", "sum of w")
    assert "sum of w by zone" in run(path, "--axis", "zone=str()", "--weight", "w").stdout
    ax = drawn(path, "--axis", "x=reg(3,1,2000,log)")
    assert (ax.get_xscale(), ax.get_ylabel()) == ("log", "count")
    ax = drawn(path, "--axis", "x=reg(3,1,2000,log)", "--axis", "zone=str()")
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "linear")
    assert [text.get_text() for text in ax.get_yticklabels()] == ["b", "a", "c"]
    ax = drawn(path, "--axis", "x=reg(4,0,2000)", "--storage", "mean", "--sample", "w")
    assert ax.get_ylabel() == "mean of w"
    assert ax.patches[0].get_data().baseline is None
    assert np.isnan(ax.patches[0].get_data().values).tolist() == [False, True, False, True]
    ax = drawn(path, "--column", "x", "--bins", 4, "--values", "w", "--stat", "mean")
    assert ax.patches[0].get_data().baseline is None
