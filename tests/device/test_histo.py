"""Parboil's histo: bins exactly NumPy's, counts up to a ceiling, and the command around it."""

import json

import numpy as np
import pyopencl.array as cl_array
import pytest
from commands import refused, runner
from covering import covering, each_value_quick

from clhist.cases.arrays import extent
from clhist.cases.files import read_image, read_npz
from clhist.cases.histo import histo, wafer


def reference(x, y, x_edges, y_edges, ceiling=255):
    """Count by comparing each point with each edge, in float64."""
    counts = np.zeros((len(x_edges) - 1, len(y_edges) - 1), np.int64)
    for point in zip(x.tolist(), y.tolist(), strict=True):
        places = []
        for value, edges in zip(point, (x_edges.tolist(), y_edges.tolist()), strict=True):
            found = max((k for k, edge in enumerate(edges) if edge <= value), default=-1)
            last = len(edges) - 1
            places.append(-1 if found < 0 or value > edges[last] or value != value else min(found, last - 1))
        if min(places) >= 0:
            counts[tuple(places)] += 1
    return np.minimum(counts, ceiling)


def at_edges(low, high, num_bins, dtype):
    """Return points on, next to and between the edges, outside, and without order."""
    edges = np.linspace(low, high, num_bins + 1)
    with np.errstate(over="ignore"):
        near = edges.astype(dtype)
    points = [near, np.nextafter(near, dtype(np.inf)), np.nextafter(near, dtype(-np.inf)), (near[1:] + near[:-1]) / 2]
    outside = np.array([np.nan, np.inf, -np.inf, 0, -0.0, np.finfo(dtype).max, -np.finfo(dtype).max], dtype)
    return np.concatenate([*points, outside]).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("low", "high"),
    [
        (0, 1),
        (0.1, 0.7),
        (-3, 1e-3),
        (1e6, 1e6 + 1),  # a few float32 for many bins
        (1e30, 1.1e30),
        (-1e38, 1e38),  # whose difference float32 does not hold
        (16777216.2, 16777216.9),  # no float32 at all
        (1e-30, 3e-30),
        (2.5, 2.5),
    ],
)
def test_points_at_edges_go_where_numpy_puts_them(rng, dtype, low, high):
    x, y = at_edges(low, high, 37, dtype), at_edges(-1, 2, 37, dtype)
    rng.shuffle(y)
    ranges = ((low, high), (-1, 2))
    counts, x_edges, y_edges = histo(x, y, (37, 5), range=ranges)
    with np.errstate(over="ignore"):
        expected, expected_x, expected_y = np.histogram2d(x.astype(float), y.astype(float), (37, 5), ranges)
    assert counts.dtype == np.uint8
    assert (x_edges == expected_x).all()
    assert (y_edges == expected_y).all()
    assert (counts == reference(x, y, x_edges, y_edges)).all()
    assert (counts == expected).all()


@pytest.mark.parametrize(
    "dtype", [np.float16, np.float32, np.float64, ">f4", ">f8", np.int8, np.uint16, np.int32, np.uint64, np.bool_]
)
@pytest.mark.parametrize("range_", [None, (None, (0.3, 40.7))])
def test_types_and_found_ranges_are_numpys(rng, dtype, range_):
    x, y = (100 * rng.random((2, 5000))).astype(dtype)
    found = histo(x, y, (13, 1024), range=range_)
    expected = np.histogram2d(x, y, (13, 1024), range_)
    assert (found[0] == np.minimum(expected[0], 255)).all()
    for mine, numpys in zip(found[1:], expected[1:], strict=True):
        assert mine.dtype == numpys.dtype
        assert (mine == numpys).all()


CEILINGS = {1: np.uint8, 255: np.uint8, 256: np.uint16, 2**32 - 1: np.uint32}


@pytest.mark.parametrize(
    ("ceiling", "any_profile"),
    each_value_quick(covering(CEILINGS, ["own profile", "as a GPU"])),
    indirect=["any_profile"],
)
def test_ceilings(any_profile, ceiling):
    x, y = wafer(20_000)
    counts, *edges = histo(x, y, 60, range=((0, 1), (0, 1)), ceiling=ceiling)
    assert counts.dtype == CEILINGS[ceiling]
    exact = np.histogram2d(x, y, edges)[0]
    assert exact.max() > 256
    assert (counts == np.minimum(exact, ceiling)).all()


def test_device_arrays_stay_there(queue):
    x, y = wafer(10_000)
    counts, x_edges, _ = histo(cl_array.to_device(queue, x), cl_array.to_device(queue, y), (20, 1))
    assert isinstance(counts, cl_array.Array)
    assert isinstance(x_edges, np.ndarray)
    assert (counts.get() == np.minimum(np.histogram2d(x, y, (20, 1))[0], 255)).all()


def test_few_points():
    counts, x_edges, y_edges = histo([], [], (3, 2))
    assert (counts == 0).all()
    assert (x_edges[-1], y_edges[-1]) == (1, 1)
    counts, x_edges, _ = histo([4.0], [7], 2)
    assert counts.tolist() == [[0, 0], [0, 1]]
    assert x_edges.tolist() == [3.5, 4, 4.5]


@pytest.mark.parametrize(
    ("arguments", "options", "error", "says"),
    [
        (([1.0], [1.0, 2.0]), {}, ValueError, r"y: expected shape \(1,\)"),
        (([[1.0]], [[1.0]]), {}, ValueError, r"x: expected shape \(N,\), got \(1, 1\)"),
        ((["a"], [1.0]), {}, TypeError, "x, y: expected real numbers"),
        (([1j], [1.0]), {}, TypeError, "x, y: expected real numbers"),
        (([1.0], [1.0], 0), {}, ValueError, "bins: expected at least one"),
        (([1.0], [1.0], (2**16, 2**15)), {}, ValueError, r"bins: .* fewer than 2\*\*31"),
        (([1.0], [1.0], 2.5), {}, TypeError, "bins: expected an integer or a pair"),
        (([1.0], [1.0], (1, 2, 3)), {}, TypeError, "bins: expected an integer or a pair"),
        (([np.nan], [1.0]), {}, ValueError, r"range of x: .*\(nan, nan\)"),
        (([1.0], [np.inf]), {}, ValueError, r"range of y: .*\(inf, inf\)"),
        (([1.0], [1.0]), {"range": ((0, 1), (1, 0))}, ValueError, "range of y: .*low <= high"),
        (([1.0], [1.0]), {"range": (0, 1)}, TypeError, "range of x: expected a pair"),
        (([1.0], [1.0]), {"range": 7}, TypeError, "range: expected a pair of pairs"),
        (([1.0], [1.0]), {"ceiling": 0}, ValueError, "ceiling: expected an integer from 1"),
        (([1.0], [1.0]), {"ceiling": 2.5}, ValueError, "ceiling: expected an integer from 1"),
    ],
)
def test_bad_arguments_are_named(arguments, options, error, says):
    with pytest.raises(error, match=says):
        histo(*arguments, **options)


def test_device_arrays_of_other_types_are_refused(queue):
    x, whole = cl_array.zeros(queue, 3, np.float32), cl_array.zeros(queue, 3, np.int32)
    with pytest.raises(TypeError, match="expected two NumPy or two PyOpenCL arrays"):
        histo(x, np.zeros(3, np.float32))
    with pytest.raises(TypeError, match="y: expected both x and y as device arrays of float32"):
        histo(x.astype(np.float64), whole)


@pytest.mark.parametrize("any_profile", ["own profile", "as a GPU"], indirect=True)
@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32])
@pytest.mark.parametrize("size", [1, 63, 1000])
def test_extents(any_profile, rng, queue, dtype, size):
    array = (100 * rng.normal(size=size)).astype(dtype)
    assert extent(array, queue) == (array.min(), array.max())
    assert extent(cl_array.to_device(queue, array), queue) == (array.min(), array.max())


run = runner("histo")


def test_command_with_generated_points(tmp_path):
    result = run("-n", 20_000, "--bins", "60x50", "--plot", tmp_path / "a.png", "--output", tmp_path / "a.npz")
    assert result.exit_code == 0, result.output
    assert "20,000 points" in result.output
    assert "60 x 50 of x from 0 to 1" in result.output
    assert "equal" in result.output
    assert min(read_image(tmp_path / "a.png").shape[:2]) > 500
    saved = read_npz(tmp_path / "a.npz", ["counts", "x_edges", "y_edges"])
    x, y = wafer(20_000)
    expected = np.histogram2d(x, y, (saved["x_edges"], saved["y_edges"]))[0]
    assert (saved["counts"] == np.minimum(expected, 255)).all()


def test_command_with_a_table(tmp_path):
    (tmp_path / "a.csv").write_text("x, y\n0.1, 0.2\n0.1, 0.2\n0.3, 0.4\n5, 6\n")
    result = run(tmp_path / "a.csv", "--bins", 2, "--range", 0, 1, 0, 1, "--ceiling", 1, "--json")
    report = json.loads(result.output)
    assert result.exit_code == 0
    assert report["points"] == 4
    assert report["saturated"] == 1
    assert report["empty"] == 3
    assert report["seconds"]["call"] > 0
    assert "passed" not in report


def test_command_without_points(tmp_path):
    np.save(tmp_path / "none.npy", np.zeros((0, 2)))
    result = run(tmp_path / "none.npy", "--bins", "3x4", "--plot", tmp_path / "a.png")
    assert result.exit_code == 0, result.output
    assert "12 empty" in result.output


def test_a_wrong_result_is_exit_status_1(monkeypatch):
    monkeypatch.setattr("clhist.cli.cases.histo.wafer", lambda n: (np.array([0.2, 0.7]), np.array([0.2, 0.7])))
    monkeypatch.setattr("numpy.histogram2d", lambda *_: [np.zeros((2, 2))])
    result = run("--bins", "2")
    assert result.exit_code == 1
    assert "DIFFERENT" in result.output


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "No such file"),
        ("1 2 3\n", "expected 2 columns"),
        ("1 nan\n", "range of y: expected a finite least"),
        ("\n", "expected rows of numbers"),
    ],
)
def test_bad_files_are_named(tmp_path, content, says):
    path = tmp_path / "bad.txt"
    if content is not None:
        path.write_text(content)
    refused(run(path), "bad.txt", says)


@pytest.mark.parametrize("bins", ["0", "3x", "x", "2x3x4", "-1", "1.5"])
def test_bad_bins_are_refused(bins):
    refused(run("--bins", bins), "expected ROWSxCOLUMNS")
