"""k-means against scikit-learn and brute force in float64, with the kernels for CPUs and those for GPUs."""

import dataclasses
import json
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyopencl.array as cl_array
import pytest
from commands import runner
from covering import mostly_slow
from sklearn import datasets
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

import clhist.cases
from clhist._core.opencl.device import profile_context
from clhist.cases.kmeans import blobs, kmeans
from clhist.cases.kmeans_assign import Tile
from clhist.cases.kmeans_lloyd import Lloyd
from clhist.cli.cases import kmeans as command

pytestmark = pytest.mark.usefixtures("one_thread")  # of scikit-learn


@pytest.fixture(params=["own kernels", "a GPU's", "a GPU's, in slices"])
def kind(request, gpu_like, monkeypatch):
    """Let points be assigned as on this device, and as on a GPU; sums of 20 x 33 floats in slices, of 130 x 33 not."""
    if request.param != "own kernels":
        local_memory = 2600 if "slices" in request.param else gpu_like.local_memory
        profile = dataclasses.replace(gpu_like, local_memory=local_memory)
        monkeypatch.setattr("clhist.cases.kmeans_lloyd.device_profile", lambda device: profile)


def reference(points, init, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct points than clusters
        return KMeans(len(init), init=init, n_init=1, algorithm="lloyd", **options).fit(points)


def some(points, k, seed=1):
    return points[np.random.default_rng(seed).choice(len(points), k, replace=False)]


def agree(points, init, **options):
    """Cluster and compare: the same iterations, and inertia to 1e-5 of float32's and 1e-12 of float64's."""
    found = kmeans(points, len(init), init=init, **options)
    expected = reference(points, init, **options)
    assert found.n_iter == expected.n_iter_
    assert found.inertia == pytest.approx(expected.inertia_, rel=1e-5 if points.dtype == np.float32 else 1e-12)
    assert found.labels.dtype == np.int32
    assert found.centers.dtype == points.dtype
    # Rounding may move a point between two centers that are as near, hence centers a little.
    assert (found.labels != expected.labels_).mean() <= 1e-3
    return found, expected


@pytest.mark.parametrize(
    ("name", "k", "dtype"),
    [
        ("iris", 3, np.float32),
        ("iris", 3, np.float64),
        ("wine", 3, np.float64),
        ("digits", 10, np.float32),
        ("breast_cancer", 20, np.float32),
        ("breast_cancer", 20, np.float64),
    ],
)
def test_real_data_as_scikit_learn(name, k, dtype):
    points = getattr(datasets, f"load_{name}")().data.astype(dtype)
    found, expected = agree(points, some(points, k))
    bound = np.abs(points).max() * (1e-5 if dtype == np.float32 else 1e-12)
    np.testing.assert_allclose(found.centers, expected.cluster_centers_, atol=bound)


# One sweep, and two; other tests have the same shapes, since each takes a while to compile.
@pytest.mark.usefixtures("kind")
@pytest.mark.parametrize(("n", "d", "k"), [(3001, 5, 7), (1500, 33, 130)])
def test_generated_data_as_scikit_learn(n, d, k):
    points = blobs(n, d, k)
    agree(points, some(points, k))


@pytest.mark.usefixtures("kind")
@pytest.mark.parametrize(("d", "k"), [(5, 7), (33, 20)])
def test_data_far_from_the_origin(d, k):
    points = blobs(2000, d, k) + np.float32(3e4)  # of which float32 holds 2e-3 at the finest
    found, _ = agree(points, some(points, k))
    distances = np.square(points[:, None].astype(float) - found.centers.astype(float)).sum(-1)
    assert found.inertia == pytest.approx(distances.min(1).sum(), rel=1e-4)


@pytest.mark.parametrize("options", [{"max_iter": 1}, {"max_iter": 4}, {"tol": 0.0}, {"tol": 1e-2}])
def test_stops_where_scikit_learn_does(options):
    points = blobs(3000, 5, 7).astype(np.float64)  # in float32 the order of additions may move a point once more
    agree(points, some(points, 7), **options)


@pytest.mark.usefixtures("kind")
@pytest.mark.parametrize(("d", "k", "far"), [(5, 7, 1), (5, 7, 3), (33, 20, 9)])
def test_empty_clusters_get_the_farthest_points(d, k, far):
    points = blobs(1000, d, 4)
    init = some(points, k)
    init[:far] += 1e3 * np.arange(1, far + 1, dtype=np.float32)[:, None]
    agree(points, init)


def test_fewer_distinct_points_than_clusters():
    points = np.repeat(np.arange(2, dtype=np.float32), 50).reshape(20, 5)
    init = points[[0, 1, 2, 3, 10, 11, 12]]
    with pytest.warns(UserWarning, match="^k: expected at most as many clusters as different points; 2 of 7 clusters"):
        found, expected = kmeans(points, 7, init=init), reference(points, init)
    assert found.inertia == expected.inertia_ == 0
    assert found.n_iter == expected.n_iter_
    assert (found.labels == expected.labels_).all()


TILES = [None, Tile(8, 16, 1), Tile(8, 16, 2), Tile(8, 8, 1), Tile(4, 16, 1)]
SHAPES = [(1, 1, 1, True), (1, 1, 1, False), (1003, 5, 7, True), (1003, 5, 7, False), (300, 64, 100, False)]


@pytest.mark.parametrize(
    ("n", "d", "k", "fused", "tile", "dtype"),
    mostly_slow(
        [(513, 33, 140, False, tile, np.float32) for tile in TILES]
        + [(513, 33, 140, False, tile, np.float64) for tile in (None, Tile(4, 16, 2))]
        + [(*shape, tile, np.float32) for shape in SHAPES for tile in TILES[:2]],
        2,
    ),
)
def test_one_iteration_is_brute_force(queue, rng, n, d, k, fused, tile, dtype):
    points = rng.normal(5, 1, (n, d)).astype(dtype)
    lloyd = Lloyd(cl_array.to_device(queue, points), k, queue, tile=tile, fused=fused, on_cpu=tile is None)
    check_iteration(lloyd, points)


# So many numbers fit local memory: of k = 10 or 40 all, slices of 32 or 16 features, or no slice of them.
@pytest.mark.parametrize(
    ("d", "k", "room", "sums", "dtype"),
    mostly_slow(
        [
            (8, 10, 80, (1, 10, 8), np.float32),
            (33, 40, 1319, (2, 40, 32), np.float32),
            (64, 40, 1279, (4, 40, 16), np.float32),
            (33, 40, 639, (1, 40, 33), np.float32),
            (33, 40, 640, (3, 40, 16), np.float64),
        ]
    ),
)
def test_sums_in_slices_are_brute_force(queue, rng, gpu_like, d, k, room, sums, dtype):
    profile = dataclasses.replace(gpu_like, local_memory=room * np.dtype(dtype).itemsize)
    points = rng.normal(5, 1, (501, d)).astype(dtype)
    with profile_context(profile):  # also in how the histograms are planned
        lloyd = Lloyd(cl_array.to_device(queue, points), k, queue, fused=False)
        plans = [plan for plan in lloyd.plan() if plan.num_histograms == sums[0] > 1]
        assert [plan.memory for plan in plans] == ["local"] * (sums[0] > 1)
        step = check_iteration(lloyd, points)
    assert step.histograms["sum"].shape == sums


def check_iteration(lloyd, points):
    """Compare an iteration that begins with some of the points with brute force in float64."""
    (n, d), k, dtype = points.shape, lloyd.k, points.dtype
    centers = some(points, k)
    before, step = lloyd.start(centers), lloyd.new_step()
    lloyd.iterate(before, step)
    status, labels = lloyd.read(step), step.label.get()[:n]
    distances = np.square(points[:, None].astype(float) - centers).sum(-1)
    # A score is a sum of d products of about 1: off by d units in the last place at most, each way.
    bound = 8 * d * float(np.finfo(dtype).eps * max(1, distances.max()))
    assert (distances[np.arange(n), labels] - distances.min(1)).max() <= bound
    counts = np.bincount(labels, minlength=k)
    assert (step.histograms["count"].get() == counts).all()
    assert status.inertia == pytest.approx(distances.min(1).sum(), abs=n * bound)
    assert status.changed
    assert status.empty == (counts == 0).any()
    means = np.stack([points[labels == c].mean(0, float) if counts[c] else centers[c] for c in range(k)])
    bound = (n + 8) * float(np.finfo(dtype).eps * np.abs(points).max())
    np.testing.assert_allclose(step.centers.get() + lloyd.mean, means, atol=bound)
    assert status.shift == pytest.approx(np.square(means - centers).sum(), abs=4 * k * d * bound)
    return step


@pytest.mark.usefixtures("kind")
@pytest.mark.parametrize("init", ["random", "k-means++"])
def test_a_seed_gives_the_same_again(init):
    points = blobs(1000, 5, 7)
    first, again, other = (kmeans(points, 7, init=init, seed=seed, max_iter=1).history[0] for seed in (3, 3, 4))
    assert first == pytest.approx(again, rel=1e-6)
    assert first != pytest.approx(other, rel=1e-6)


@pytest.mark.usefixtures("kind")
@pytest.mark.parametrize("fused", [False, True])
def test_k_means_plus_plus_draws_by_squared_distance(queue, fused):
    points = np.array([0, 1, 3, 0], np.float32)[:, None] * np.eye(1, 5, dtype=np.float32)
    lloyd = Lloyd(cl_array.to_device(queue, points), 2, queue, fused=fused)
    drawn = [lloyd.spread(0, seed)[1] for seed in range(300)]
    assert set(drawn) == {1, 2}  # never where a center is
    # 1 : 9; the standard deviation of 300 draws is 5.2.
    assert abs(drawn.count(1) - 30) < 4 * 5.2


def test_k_means_plus_plus_finds_separate_clusters():
    points = blobs(700, 5, 1) + np.repeat(np.arange(7) * 1e3, 100)[:, None].astype(np.float32)
    found = kmeans(points, 7, seed=0)
    assert sorted(np.bincount(found.labels)) == [100] * 7


def test_device_arrays_stay_there(queue):
    points = blobs(500, 5, 7)
    given = cl_array.to_device(queue, points)
    found = kmeans(given, 7, init=points[:7])
    assert isinstance(found.labels, cl_array.Array)
    expected = kmeans(points, 7, init=cl_array.to_device(queue, points[:7]))
    assert (found.labels.get() == expected.labels).all()
    assert found.inertia == pytest.approx(expected.inertia)
    assert (given.get() == points).all()
    assert kmeans(given, 7, init="random", seed=1).n_iter >= 1
    far = points[:7] + 1e3 * np.arange(7, dtype=np.float32)[:, None]  # whose clusters are relocated
    assert kmeans(given, 7, init=far).inertia == pytest.approx(reference(points, far).inertia_, rel=1e-5)


@pytest.mark.parametrize(
    "convert",
    [
        np.asfortranarray,
        lambda x: x.astype(">f8"),
        lambda x: x.astype(np.int16),
        lambda x: x[::2],
        lambda x: x.tolist(),
    ],
    ids=["Fortran", "big-endian", "integers", "strided", "a list"],
)
def test_other_arrays_are_converted(convert):
    points = convert(np.round(10 * blobs(400, 5, 7).astype(float)))
    init = np.asarray(points)[:7]
    found, expected = kmeans(points, 7, init=init), reference(np.asarray(points), init)
    assert found.centers.dtype == np.float64
    assert found.inertia == pytest.approx(expected.inertia_, rel=1e-12)


def test_threads_cluster_at_once():
    points = [blobs(500, 5, 7, seed=seed) for seed in range(8)]

    def cluster(x):
        return kmeans(x, 7, init=x[:7]).inertia

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(cluster, points)) == pytest.approx(list(map(cluster, points)), rel=1e-5)


def test_history_falls_and_progress_is_told():
    told = []
    points = blobs(2000, 5, 7)
    found = kmeans(points, 7, init=points[:7], progress=lambda *what: told.append(what))
    assert told == list(enumerate(found.history[:-1], 1))
    assert len(found.history) == found.n_iter + 1
    assert found.history[-1] == found.inertia
    assert (np.diff(found.history) <= 1e-5 * found.inertia).all()
    assert clhist.cases.kmeans is kmeans


POINTS = np.zeros((10, 2), np.float32)


@pytest.mark.parametrize(
    ("points", "k", "options", "error", "says"),
    [
        (POINTS, 11, {}, ValueError, "k: expected at most the 10 points, got 11"),
        (POINTS, 0, {}, ValueError, "k: expected at least 1, got 0"),
        (POINTS, 2.0, {}, TypeError, "k: expected an int"),
        (POINTS[:0], 1, {}, ValueError, r"points: expected shape \(n, d\).*\(0, 2\)"),
        (POINTS[:, :0], 1, {}, ValueError, r"points: .*\(10, 0\)"),
        (POINTS[0], 1, {}, ValueError, r"points: .*\(2,\)"),
        (POINTS.astype(complex), 1, {}, TypeError, "points: expected real numbers, got complex128"),
        (np.array([["a"]]), 1, {}, TypeError, "points: expected real numbers"),
        (POINTS, 1, {"max_iter": 0}, ValueError, "max_iter: expected at least 1"),
        (POINTS, 1, {"tol": -1}, ValueError, "tol: expected a number of at least 0, got -1"),
        (POINTS, 1, {"tol": np.nan}, ValueError, "tol"),
        (POINTS, 1, {"seed": -1}, ValueError, "seed: expected at least 0"),
        (POINTS, 1, {"init": "best"}, ValueError, "init: expected 'k-means\\+\\+', 'random' or an array"),
        (POINTS, 1, {"init": np.zeros((2, 2))}, ValueError, r"init: expected shape \(1, 2\), got \(2, 2\)"),
        (POINTS, 1, {"init": np.full((1, 2), np.nan)}, ValueError, "init: expected finite"),
        (POINTS, 1, {"init": None}, TypeError, "init"),
        (POINTS, 1, {"queue": 3}, TypeError, "queue: expected"),
    ],
)
def test_wrong_arguments_are_named(points, k, options, error, says):
    with pytest.raises(error, match=says):
        kmeans(points, k, **options)


@pytest.mark.usefixtures("kind")
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(("d", "k"), [(5, 7), (33, 20)])
def test_points_that_are_not_finite_are_refused(bad, d, k):
    points = np.zeros((50, d), np.float32)
    points[17, 2] = bad
    with pytest.raises(ValueError, match="points: expected finite numbers"):
        kmeans(points, k)


def test_points_of_both_infinities_and_too_large_ones_are_refused():
    with pytest.raises(ValueError, match="points: expected finite"):
        kmeans(np.array([[np.inf], [-np.inf]]), 1)
    with pytest.raises(ValueError, match="points: expected squared distances that float32 can hold"):
        kmeans(np.array([[1e20], [-1e20]], np.float32), 1)
    assert kmeans(np.array([[1e20], [-1e20]]), 1).inertia == pytest.approx(2e40)


def test_queues_that_do_not_fit_are_refused(queue, out_of_order_queue, other_queue):
    with pytest.raises(ValueError, match="queue: expected one in order"):
        kmeans(POINTS, 1, queue=out_of_order_queue)
    with pytest.raises(ValueError, match="queue: expected a queue of the context"):
        kmeans(cl_array.to_device(queue, POINTS), 1, queue=other_queue)
    assert kmeans(POINTS, 1, queue=other_queue).inertia == 0


run = runner("kmeans")


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "points.csv"
    np.savetxt(path, datasets.load_iris().data, delimiter=",")
    return path


def test_command_reports_and_writes(tmp_path, table):
    output, plot = tmp_path / "out.npz", tmp_path / "plot.png"
    result = run(table, "-k", 3, "--init", "random", "--output", output, "--plot", plot, "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["n"] == 150
    assert report["d"] == 4
    assert report["passed"]
    assert report["seconds"]["call"] > 0
    assert report["seconds"]["update: sweep"] > 0
    with np.load(output) as found:
        assert found["labels"].shape == (150,)
        assert found["centers"].shape == (3, 4)
        assert found["inertia"] == report["inertia"]
        assert len(found["history"]) == found["n_iter"] + 1 == report["n_iter"] + 1
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert plot.stat().st_size > 20_000


def test_command_in_words_on_generated_points(monkeypatch, tmp_path):
    monkeypatch.setattr(command, "_QUICK", (2000, 33, 20))
    result = run("--quick", "--iterations", 3)
    assert result.exit_code == 0, result.output
    assert "2,000 points, 33 features, k = 20" in result.stdout
    assert "after 3 iterations" in result.stdout
    assert "assign" in result.stdout
    assert "the same for the same labels" in result.stdout
    assert result.stdout.count("ok") == 3


def test_one_feature_is_drawn(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(10.0)[:, None])
    assert run(tmp_path / "x.npy", "-k", 2, "--plot", tmp_path / "x.svg").exit_code == 0
    assert "</svg>" in (tmp_path / "x.svg").read_text()


def test_a_wrong_result_is_exit_status_1(monkeypatch, table):
    found = kmeans(datasets.load_iris().data, 3)
    monkeypatch.setattr(
        command, "kmeans", lambda *_, **__: found.__class__(np.roll(found.labels, 1), *list(vars(found).values())[1:])
    )
    result = run(table, "-k", 3)
    assert result.exit_code == 1
    assert "TOO LARGE" in result.stdout


@pytest.mark.parametrize(
    ("text", "arguments", "says"),
    [
        ("1,2\n3,x\n", [], "points.csv, line 2"),
        ("", [], "points.csv: expected rows"),
        ("1,2\n3,nan\n", ["-k", 1], "points: expected finite"),
        ("1,2\n3,4\n", ["-k", 3], "k: expected at most the 2 points, got 3"),
        ("1,2\n3,4\n", ["-k", 0], "-k"),
        ("1,2\n3,4\n", ["--tolerance", -1], "--tolerance"),
        ("1,2\n3,4\n", ["--plot", "x.txt"], "expected a file"),
        ("1,2\n3,4\n", ["--output", "x.txt"], "expected a file"),
        (None, [], "points.csv"),
    ],
)
def test_bad_input_is_a_message(tmp_path, text, arguments, says):
    path = tmp_path / "points.csv"
    if text is not None:
        path.write_text(text)
    result = run(path, *arguments)
    assert result.exit_code in (1, 2)
    assert says in result.output
    assert isinstance(result.exception, SystemExit)


def test_rounded_means_of_equal_points_do_not_move_clusters():
    rng = np.random.default_rng(18)
    points = np.float32([[0.1, 0.7], [0.3, 0.9], [1.1, 0.1]])[rng.integers(0, 3, 1000)]
    for init in ("k-means++", points[:6], points[rng.choice(1000, 6)] + np.float32(0.01)):
        with pytest.warns(UserWarning, match="3 of 6 clusters have points"):
            found = kmeans(points, 6, init=init, seed=0)
        assert found.n_iter < 10
        assert found.inertia < 1e-9 * len(points)
