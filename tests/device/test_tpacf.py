"""Two-point angular correlation: counts against haversines in float64, the estimators, and the command."""

import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pyopencl.array as cl_array
import pytest
from commands import refused, runner

from clhist.cases import tpacf_pairs
from clhist.cases.tpacf import ESTIMATORS, angular_correlation
from clhist.cases.tpacf_data import angular_edges, clustered_catalogue, random_catalogue, unit_vectors
from clhist.cases.tpacf_pairs import pair_counts
from clhist.cli.cases import tpacf as command

EDGES = angular_edges()


def angles(a, b=None):
    """Angles of all pairs in radians, by haversines of right ascensions and declinations."""
    pairs = np.triu_indices(len(a), 1) if b is None else np.indices((len(a), len(b))).reshape(2, -1)
    (ra1, dec1), (ra2, dec2) = (
        np.radians(np.asarray(a)[pairs[0]].T),
        np.radians(np.asarray(a if b is None else b)[pairs[1]].T),
    )
    haversine = np.sin((dec1 - dec2) / 2) ** 2 + np.cos(dec1) * np.cos(dec2) * np.sin((ra1 - ra2) / 2) ** 2
    return 2 * np.arcsin(np.sqrt(np.minimum(haversine, 1)))


def reference(a, b=None, edges=EDGES):
    found, limits = angles(a, b), np.radians(np.asarray(edges) / 60)
    # Either way of computing loses less: see `command.misplaced`; and a right ascension of 2 pi has lost pi eps.
    assert np.abs(found[:, None] - limits).min(initial=1) > 1e-13, "test data: a pair lies on an edge"
    return np.bincount(np.searchsorted(limits, found, side="right"), minlength=len(limits) + 1)


@pytest.fixture
def points(rng):
    return clustered_catalogue(601, rng)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 255, 256, 257, 512, 513, 514, 601])
def test_pairs_of_one_catalogue(points, n):
    found = pair_counts(points[:n])
    assert found.dtype == np.int64
    assert found.tolist() == reference(points[:n]).tolist()
    assert found.sum() == n * (n - 1) // 2


@pytest.mark.parametrize(("n", "m"), [(0, 0), (0, 5), (5, 0), (1, 1), (1, 300), (300, 1), (257, 512), (600, 301)])
def test_pairs_of_two_catalogues(points, rng, n, m):
    other = random_catalogue(m, rng)
    found = pair_counts(points[:n], other)
    assert found.tolist() == reference(points[:n], other).tolist()
    assert found.sum() == n * m


@pytest.mark.parametrize(
    "options", [{"memory": "local"}, {"memory": "global"}, {"update": "cas"}, {"work_group_size": 32}]
)
@pytest.mark.usefixtures("any_profile")
def test_ways_to_count(points, options):
    assert pair_counts(points, **options).tolist() == reference(points).tolist()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_groups_of_a_gpu_leave_registers_for_the_counts(points, gpu_like, monkeypatch, dtype):
    profile = dataclasses.replace(gpu_like, work_group_size=1024)
    monkeypatch.setattr("clhist.cases.tpacf_pairs.device_profile", lambda device: profile)
    pairs = tpacf_pairs.CataloguePairs({"a": unit_vectors(points)}, [("a", "a")], dtype=dtype)
    assert pairs.plan().work_group_size == 256
    assert pairs.plan(work_group_size=32).work_group_size == 32
    assert (pairs.counts() == pairs.counts(work_group_size=32)).all()
    assert (pairs.timed()[0] == pairs.counts()).all()


def test_float32_is_right_but_for_rounding(points):
    assert command.misplaced(points, EDGES, "float32") == 0
    close = np.stack(
        [np.arange(200) / 6000, np.full(200, 60.0)], axis=1
    )  # some arcmin, which cosines cannot tell apart
    assert command.misplaced(close, EDGES, "float32") == 0
    assert command.misplaced(close, EDGES, "float64") == 0


def test_the_check_finds_a_misplaced_pair(points, monkeypatch):
    counts = pair_counts(points)
    counts[[9, 10]] += [1, -1]
    monkeypatch.setattr(command.CataloguePairs, "counts", lambda self: counts[None])
    assert command.misplaced(points, EDGES, "float64") == 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_special_points(dtype):
    edges = [0, 1, 600, 10799, 10800]

    def counts(*args):
        return pair_counts(*args, edges=edges, dtype=dtype).tolist()

    assert counts(np.full((5, 2), 33.3)) == [0, 10, 0, 0, 0, 0]  # identical: at 0
    assert counts([[10.0, 20.0]], [[190.0, -20.0]]) == [0, 0, 0, 0, 1, 0]  # antipodal: before an edge of 180 degrees
    assert counts([[0.0, 90.0], [123.0, 90.0], [-50, 90]]) == [0, 3, 0, 0, 0, 0]  # a pole has no right ascension
    assert counts([[0.0, 90.0]], [[7, -90]]) == [0, 0, 0, 0, 1, 0]
    assert counts([[0.005, 1.0]], [[359.995, 1.0], [-0.005, 1.0]]) == [0, 2, 0, 0, 0, 0]  # 0.6 arcmin around 360
    assert pair_counts(np.full((5, 2), 1.0), edges=[1, 2], dtype=dtype).tolist() == [10, 0, 0]
    assert pair_counts([[0, 0]], [[180, 0]], edges=[1, 10799], dtype=dtype).tolist() == [0, 0, 1]


@pytest.mark.parametrize("edges", [[0, 10800], [5, 6], np.linspace(1, 10000, 100), np.linspace(1, 10000, 101)])
def test_any_number_of_edges(points, edges):
    assert pair_counts(points[:400], edges=edges).tolist() == reference(points[:400], edges=edges).tolist()


@pytest.mark.parametrize("most", [1, 1000, 30000])
def test_large_catalogues_are_split(points, rng, monkeypatch, most):
    monkeypatch.setattr(tpacf_pairs, "_MOST_PAIRS", most)
    if most == 1:
        points = points[:40]
    others = random_catalogue(len(points) - 1, rng)
    done = []
    found = angular_correlation(points, [others, others[:9]], progress=done.append)
    assert found.dd.tolist() == reference(points).tolist()
    assert found.dr.tolist() == [reference(points, others).tolist(), reference(points, others[:9]).tolist()]
    assert found.rr.tolist() == [reference(others).tolist(), reference(others[:9]).tolist()]
    assert len(done) > 3
    assert sum(done) == found.dd.sum() + found.dr.sum() + found.rr.sum()


@pytest.mark.slow
def test_more_pairs_than_32_bits_count():
    n = 2**16 + 1
    assert pair_counts(np.zeros((n, 2)), np.zeros((n, 2)), [1, 2], dtype=np.float32).tolist() == [n**2, 0, 0]


def test_device_arrays_and_integers(queue, points):
    on_device = cl_array.to_device(queue, points)
    assert (pair_counts(on_device, on_device[:9], queue=queue) == pair_counts(points, points[:9])).all()
    assert pair_counts([[0, 0], [1, 0]], edges=[59, 61]).tolist() == [0, 1, 0]


def test_float32_where_there_is_no_double():
    assert tpacf_pairs._real(None, SimpleNamespace(double_fp_config=0)) == np.float32
    assert tpacf_pairs._real(None, SimpleNamespace(double_fp_config=63)) == np.float64


@pytest.mark.parametrize(
    ("points", "error", "says"),
    [
        (np.zeros(4), ValueError, r"a: expected right ascension and declination, shape \(n, 2\), got shape \(4,\)"),
        (np.zeros((4, 3)), ValueError, r"got shape \(4, 3\)"),
        ([["a", "b"]], TypeError, "a: expected numbers in degrees, got <U1"),
        ([[0, 0], [0, 90.1]], ValueError, "a: expected declinations of -90 to 90 degrees, got 90.1 at point 1"),
        ([[400, 0]], ValueError, "a: expected right ascensions of -360 to 360 degrees, got 400 at point 0"),
        ([[0, np.nan]], ValueError, "declinations of .* got nan at point 0"),
        ([[-np.inf, 0]], ValueError, "right ascensions of .* got -inf at point 0"),
    ],
)
def test_catalogues_that_are_refused(points, error, says):
    with pytest.raises(error, match=says):
        pair_counts(points)


@pytest.mark.parametrize("edges", [[], [1], [[1, 2]], [2, 1], [1, 1], [-1, 1], [1, 10801], [1, np.nan, 2]])
def test_edges_that_are_refused(points, edges):
    with pytest.raises(ValueError, match="edges: expected"):
        pair_counts(points, edges=edges)


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"dtype": np.int32}, TypeError, "dtype: expected float32 or float64, got int32"),
        ({"estimator": "best"}, ValueError, "estimator: expected one of landy-szalay, .*, got 'best'"),
        ({"random": []}, ValueError, "random: expected at least one catalogue, got none"),
        ({"random": None}, ValueError, r"random: expected right ascension .* got shape \(\)"),
        (
            {"random": [np.zeros((3, 2)), np.zeros((1, 2))]},
            ValueError,
            r"random\[1\]: expected at least 2 points, got 1",
        ),
        ({"data": np.zeros((1, 2))}, ValueError, "data: expected at least 2 points, got 1"),
    ],
)
def test_arguments_that_are_refused(points, change, error, says):
    with pytest.raises(error, match=says):
        angular_correlation(**{"data": points, "random": points, **change})


def test_default_edges_are_parboils():
    assert EDGES.size == 21
    np.testing.assert_allclose(EDGES, 10 ** (np.arange(21) / 5), rtol=1e-15)
    assert angular_edges(1, 2, 300).tolist() == [2, 20, 200, 300]
    for wrong in ((0, 1, 2), (5, 0, 2), (5, 2, 2), (5, 1, 10801), (5, np.nan, 2)):
        with pytest.raises(ValueError, match="expected"):
            angular_edges(*wrong)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_correlation(points, rng, estimator):
    sets = [random_catalogue(n, rng) for n in (300, 200)]
    found = angular_correlation(points, sets, edges=[60, 600, 6000], estimator=estimator)
    dd, dr, rr = found.dd / found.dd.sum(), found.dr.sum(0) / found.dr.sum(), found.rr.sum(0) / found.rr.sum()
    expected = {
        "landy-szalay": (dd - 2 * dr + rr) / rr,
        "hamilton": dd * rr / dr**2 - 1,
        "davis-peebles": dd / dr - 1,
        "natural": dd / rr - 1,
    }[estimator][1:-1]
    np.testing.assert_allclose(found.w, expected, rtol=1e-12)
    np.testing.assert_allclose(found.error, (1 + expected) / np.sqrt(found.dd[1:-1]), rtol=1e-12)


def test_forms_of_random(points, rng):
    sets = np.stack([random_catalogue(50, rng) for _ in range(3)])
    several = angular_correlation(points, sets)
    assert several.dr.shape == several.rr.shape == (3, 22)
    assert (angular_correlation(points, list(sets)).rr == several.rr).all()
    assert (angular_correlation(points, sets[1]).rr == several.rr[1:2]).all()


def test_what_is_random_is_not_correlated_and_clusters_are(rng):
    sets = [random_catalogue(1000, rng) for _ in range(5)]
    uniform = angular_correlation(random_catalogue(1000, rng), sets, edges=[60, 600, 6000])
    assert (np.abs(uniform.w) < 5 * uniform.error).all()  # fixed seed: it holds in every run
    clustered = angular_correlation(clustered_catalogue(1000, rng), sets, edges=[5, 50, 500])
    assert clustered.w[0] > 10
    assert clustered.w[0] > clustered.w[1] > 0.1


def test_bins_without_pairs_are_nan(points):
    far = np.array([[0, 0], [180, 0]])
    found = angular_correlation(far, far, edges=[1, 2, 3])
    assert np.isnan(found.w).all()
    assert np.isnan(found.error).all()


def test_generated_catalogues(rng):
    for make in (random_catalogue, clustered_catalogue):
        for n in (0, 1, 2, 1000):
            assert unit_vectors(make(n, rng)).shape == (n, 3)
        mean = unit_vectors(make(20000, rng)).mean(0)  # of uniform points within 5 / sqrt(3 n); of clusters of 10, more
        assert np.abs(mean).max() < 5 / np.sqrt(3 * 20000 / 10)


run = runner("tpacf")


def test_command_on_generated_data(tmp_path):
    pixels = pytest.importorskip("matplotlib.image")
    plot, output = tmp_path / "w.png", tmp_path / "w.npz"
    result = run("--points", 300, "--random-sets", 3, "--json", "--plot", plot, "--output", output)
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["passed"]
    assert report["num_points"] == [300] * 4
    assert report["num_pairs"] == 300 * 299 // 2 * 4 + 3 * 300**2
    assert report["w"][0] is None or np.isfinite(report["w"][0])
    assert report["seconds"]["call"] > 0
    assert report["seconds"]["sweep"] > 0
    height, width = pixels.imread(plot).shape[:2]
    assert height > 500
    assert width > 1000
    with np.load(output) as arrays:
        assert arrays["rr"].shape == (3, 22)
        assert arrays["dd"].tolist() == report["dd"]
        assert arrays["w"].shape == arrays["error"].shape == (20,)


def test_command_on_files(tmp_path, points, rng):
    np.savetxt(tmp_path / "data.csv", points, delimiter=",", header="ra,dec", comments="")
    other = random_catalogue(50, rng)
    np.save(tmp_path / "random.npy", other)
    np.savetxt(tmp_path / "random.txt", other)
    names = [tmp_path / name for name in ("data.csv", "random.npy", "random.txt")]
    result = run(*names, "--precision", "float32", "--largest", 10800, "--estimator", "natural")
    assert result.exit_code == 0, result.output
    assert "data.csv: 601 points, 2 random sets of 100 points" in result.output
    assert "in float32" in result.output
    assert "10000 to 10800" in result.output
    assert "private" in result.output or "native" in result.output
    assert "0 pairs misplaced: ok" in result.output


def test_a_misplaced_pair_is_exit_status_1(monkeypatch):
    monkeypatch.setattr(command, "misplaced", lambda *args: 2)
    result = run("--points", 30, "--random-sets", 1)
    assert result.exit_code == 1
    assert "2 pairs misplaced: WRONG" in result.output


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.csv", None, "No such file"),
        ("a.csv", "", "expected rows of numbers, got none"),
        ("a.csv", "1 2 3\n", "expected 2 columns, got shape (1, 3)"),
        ("a.csv", "1 2\n3 nan\n", "expected declinations of -90 to 90 degrees, got nan at point 1"),
        ("a.csv", "1 2\n3 -91\n", "expected declinations of -90 to 90 degrees, got -91 at point 1"),
        ("a.csv", "1 2\n", "expected at least 2 points, got 1"),
        ("a.npy", "no array", "expected a whole .npy array"),
    ],
)
def test_files_that_are_refused(tmp_path, points, name, content, says):
    np.savetxt(tmp_path / "good.csv", points)
    if content is not None:
        (tmp_path / name).write_text(content)
    for files in ((tmp_path / name, tmp_path / "good.csv"), (tmp_path / "good.csv", tmp_path / name)):
        result = refused(run(*files), f"{name}: ", says)
        assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["data.csv"], "RANDOM: expected catalogues that cover the same part of the sky as DATA"),
        (["--points", "1"], "not in the range x>=2"),
        (["--smallest", "0"], "smallest, largest: expected 0 < smallest < largest <= 10800, got 0, 10000"),
        (["--bins-per-decade", "0"], "not in the range 1<=x<=1000"),
        (["--seed", "-1"], "not in the range x>=0"),
        (["--plot", "w.txt"], "--plot"),
        (["--output", "w.npy"], "'--output': expected a file .npz, got 'w.npy'"),
        (["--output", "no such/w.npz"], "expected a file in a folder that exists"),
        (["--estimator", "best"], "--estimator"),
    ],
)
def test_options_that_are_refused(arguments, says):
    result = run("--quick", *arguments)
    assert result.exit_code in (1, 2)
    assert says in result.output
