"""The joint histogram of image registration against its definition in float64, mutual information, and the command."""

import json

import numpy as np
import pyopencl.array as cl_array
import pytest
from commands import refused, runner

from clhist.cases import joint_histogram, mutual_information
from clhist.cases.files import read_image, read_npz
from clhist.cases.image_data import image_pair

# Without optimization, kernels of whole images take longer than their builds save.
pytestmark = pytest.mark.usefixtures("with_optimizer")

EPS = 2.0**-24  # of one rounding to float32


def b_spline(x):
    """Return the cubic B-spline by its definition."""
    x = np.abs(x)
    return np.where(x < 1, 2 / 3 - x**2 + x**3 / 2, np.where(x < 2, (2 - x) ** 3 / 6, 0))


def windows(values, low, high, bins):
    """Return the weight of each value for each bin: that of index k is about u = k - 1."""
    values = np.clip(np.asarray(values, np.float64), low, high)
    u = (bins - 4) * (values - low) / (high - low) if high > low else np.zeros(values.shape)
    return b_spline(u[:, None] - (np.arange(bins) - 1))


def reference(fixed, moving, bins, ranges=None, shift=(0, 0)):
    """Return the histogram in float64, and how much float32 may be off."""
    fixed, moving = np.atleast_2d(fixed).astype(np.float64), np.atleast_2d(moving).astype(np.float64)
    ranges = ranges or ((fixed.min(), fixed.max()), (moving.min(), moving.max()))
    met = []
    for row, column in np.ndindex(fixed.shape):
        r, c = row + shift[0], column + shift[1]
        if 0 <= r < fixed.shape[0] and 0 <= c < fixed.shape[1]:
            pair = fixed[row, column], moving[r, c]
            if all(low <= value <= high for value, (low, high) in zip(pair, ranges, strict=True)):
                met.append(pair)
    pairs = np.array(met).reshape(-1, 2)
    weights = [windows(pairs[:, k], *ranges[k], bins) for k in (0, 1)]
    expected, terms = weights[0].T @ weights[1], terms_of(*weights)
    # u is off by 8 roundings of at most `bins` (two differences, a division of 2.5 ulp = 5, a product), and a weight
    # changes by at most 2/3 of that; it is off by 16 roundings of less than 1 itself. Of the product of two weights the
    # error is at most the sum of both, and one rounding; then the n terms of a bin are added.
    weight = 2 * (2 / 3 * 8 * bins * EPS + 16 * EPS) + EPS
    return expected, terms * weight + terms * EPS * (expected + terms * weight)


def terms_of(*weights):
    """Return how many terms each bin has at most: a window may begin a bin too early or too late, by rounding."""
    near = [weight > 0 for weight in weights]
    for touched in near:
        touched[:, 1:] |= touched[:, :-1].copy()
        touched[:, :-1] |= touched[:, 1:].copy()
    return near[0].T.astype(float) @ near[1]


def check(found, expected, bound):
    assert found.shape == expected.shape
    assert (np.abs(found - expected) <= bound).all()


@pytest.mark.parametrize("any_profile", ["own profile", "as a GPU"], indirect=True)
@pytest.mark.parametrize("bins", [4, 5, 53, 203])
def test_random_images(any_profile, rng, bins):
    fixed, moving = rng.normal(size=(2, 40, 50)).astype(np.float32)
    found = joint_histogram(fixed, moving, bins)
    assert found.dtype == np.float32
    check(found, *reference(fixed, moving, bins))


@pytest.mark.parametrize("types", [(np.uint8, np.uint8), (np.int16, np.float64), (">u2", np.int64), (np.bool_, "f2")])
def test_types(rng, types):
    fixed, moving = ((200 * rng.random((30, 20))).astype(dtype) for dtype in types)
    check(joint_histogram(fixed, moving, 32), *reference(fixed, np.float32(moving), 32))


def test_weights_of_a_point_sum_to_one(rng):
    fixed, moving = rng.random((2, 100_000), dtype=np.float32)
    found = joint_histogram(fixed, moving, 32)
    weights = [windows(image, image.min(), image.max(), 32) for image in (fixed, moving)]
    # Each of the four weights of both windows is off by 16 roundings of less than 1, and the sum of n terms by n.
    added = (terms_of(*weights) * EPS * (weights[0].T @ weights[1])).sum()
    assert abs(found.sum(dtype=np.float64) - 100_000) <= 100_000 * 2 * 4 * 16 * EPS + added


def test_the_ends_of_the_range_are_within():
    found = joint_histogram(np.array([0, 1], np.float32), np.array([7, 9], np.float32), 4 + 3)
    assert found[:3, :3].sum(dtype=np.float64) == pytest.approx(1, abs=64 * EPS)  # u = 0: bins 0, 1 and 2
    assert found[3:6, 3:6].sum(dtype=np.float64) == pytest.approx(1, abs=64 * EPS)  # u = 3
    assert found[1, 1] == pytest.approx(4 / 9, abs=8 * EPS)


@pytest.mark.parametrize("any_profile", ["own profile", "as a GPU"], indirect=True)
@pytest.mark.parametrize("shift", [(0, 0), (3, -5), (-2, 7), (0, 19), (14, 0), (15, 0), (-99, 10**12)])
def test_shifts(any_profile, rng, shift):
    fixed, moving = rng.integers(0, 256, (2, 15, 20), dtype=np.uint8)
    found = joint_histogram(fixed, moving, 32, range=((0, 255), (0, 255)), shift=shift)
    check(found, *reference(fixed, moving, 32, ((0, 255), (0, 255)), shift))


def test_pixels_outside_of_the_range_are_ignored(rng):
    fixed, moving = rng.normal(size=(2, 20, 30)).astype(np.float32)
    fixed[3, :5] = [np.nan, np.inf, -np.inf, 0.5, -0.5]
    moving[4, :3] = np.nan
    ranges = ((-0.5, 0.5), (-1, 2))
    check(joint_histogram(fixed, moving, 40, range=ranges), *reference(fixed, moving, 40, ranges))


@pytest.mark.parametrize("value", [0, 7, 1e30, -3e-39])
def test_constant_images(value):
    image = np.full((10, 10), value, np.float32)
    found = joint_histogram(image, image, 32)
    check(found, *reference(image, image, 32))
    assert mutual_information(found) == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize("shape", [(0,), (0, 4), (4, 0)])
def test_no_pixels(shape):
    found = joint_histogram(np.zeros(shape, np.uint8), np.zeros(shape, np.uint8), 32)
    assert found.shape == (32, 32)
    assert not found.any()
    assert mutual_information(found) == 0
    assert mutual_information(found, normalized=True) == 1


def test_sums_in_float64(rng, queue):
    if not queue.device.double_fp_config:
        with pytest.raises(Exception, match="double precision"):
            joint_histogram(np.zeros((4, 4)), np.zeros((4, 4)), dtype=np.float64)
        return
    fixed, moving = rng.random((2, 300, 300), dtype=np.float32)
    found = joint_histogram(fixed, moving, 8, dtype=np.float64)
    assert found.dtype == np.float64
    # What remains are the weights' own errors: 4 x 16 roundings for each of both windows.
    assert abs(found.sum() - 90_000) <= 90_000 * 2 * 4 * 16 * EPS


def test_device_arrays_stay_there(rng, queue):
    images = rng.integers(0, 256, (2, 20, 30), dtype=np.uint8)
    found = joint_histogram(*(cl_array.to_device(queue, image) for image in images), 32)
    assert isinstance(found, cl_array.Array)
    check(found.get(), *reference(*images, 32))
    assert mutual_information(found) == mutual_information(found.get())


@pytest.mark.parametrize(
    ("shapes", "options", "error", "says"),
    [
        (((3, 4), (4, 3)), {}, ValueError, r"fixed, moving: expected one shape .* got \(3, 4\) and \(4, 3\)"),
        (((3, 4, 3), (3, 4, 3)), {}, ValueError, "fixed, moving: expected one shape"),
        (((3, 4), (3, 4)), {"bins": 3}, ValueError, "bins: expected an integer from 4"),
        (((3, 4), (3, 4)), {"bins": 40.0}, ValueError, "bins: expected an integer from 4"),
        (((3, 4), (3, 4)), {"dtype": np.int32}, TypeError, "dtype: expected float32 or float64"),
        (((3, 4), (3, 4)), {"shift": 3}, TypeError, "shift: expected a pair of integers"),
        (((3, 4), (3, 4)), {"shift": (0.5, 0)}, TypeError, "shift: expected a pair of integers"),
        (((3, 4), (3, 4)), {"range": ((0, 1), (2, 1))}, ValueError, "range of moving: .*low <= high"),
        (((3, 4), (3, 4)), {"range": ((-3e38, 3e38), None)}, ValueError, "range of fixed: .*a width that float32"),
        (((3, 4), (3, 4)), {"range": (0, 1)}, TypeError, "range of fixed: expected a pair"),
        (((3, 4), (3, 4)), {"range": 1}, TypeError, "range: expected a pair of pairs"),
    ],
)
def test_bad_arguments_are_named(shapes, options, error, says):
    with pytest.raises(error, match=says):
        joint_histogram(*(np.zeros(shape, np.float32) for shape in shapes), **options)


def test_bad_images_are_named(queue):
    image = np.zeros((3, 4), np.float32)
    with pytest.raises(TypeError, match="fixed, moving: expected real numbers"):
        joint_histogram(image, image + 1j)
    with pytest.raises(ValueError, match=r"range of moving: .*\(nan, nan\)"):
        joint_histogram(image, image * np.nan)
    with pytest.raises(TypeError, match="expected two NumPy or two PyOpenCL arrays"):
        joint_histogram(image, cl_array.to_device(queue, image))
    whole = cl_array.zeros(queue, (3, 4), np.int32)
    with pytest.raises(TypeError, match=r"fixed: expected a device array of one of uint8.* got int32"):
        joint_histogram(whole, whole)


def test_mutual_information_of_known_histograms(rng):
    apart = np.outer(rng.random(5), rng.random(7))
    assert mutual_information(apart) == pytest.approx(0, abs=1e-12)
    assert mutual_information(apart, normalized=True) == pytest.approx(1)
    same = np.eye(8) * 3
    assert mutual_information(same) == pytest.approx(np.log(8))
    assert mutual_information(same, normalized=True) == pytest.approx(2)
    table = np.array([[4, 0], [1, 3]])
    p = table / 8
    known = sum(p[j, k] * np.log(p[j, k] / (p[j].sum() * p[:, k].sum())) for j, k in ((0, 0), (1, 0), (1, 1)))
    assert mutual_information(table) == pytest.approx(known)


@pytest.mark.parametrize("joint", [[1, 2], [[np.nan, 1]], [[-1, 2]], [["a"]]])
def test_bad_histograms_are_named(joint):
    with pytest.raises(ValueError, match="joint: expected"):
        mutual_information(joint)


def test_the_pair_lies_at_its_shift():
    fixed, moving = image_pair(100, (2, -3))
    found = {
        shift: mutual_information(joint_histogram(fixed, moving, 32, shift=shift))
        for shift in ((2, -3), (0, 0), (1, -3), (3, -3), (2, -2), (2, -4), (-2, 3))
    }
    assert max(found, key=found.get) == (2, -3)
    assert abs(np.corrcoef(fixed[:-2, 3:].ravel(), moving[2:, :-3].ravel())[0, 1]) < 0.7
    with pytest.raises(ValueError, match="shift: expected at most 32"):
        image_pair(100, (40, 0))


run = runner("joint")


def test_command_with_a_generated_pair(tmp_path, monkeypatch):
    monkeypatch.setattr("clhist.cli.cases.joint.image_pair", lambda _, shift: image_pair(120, shift))
    files = ("--plot", tmp_path / "a.png", "--output", tmp_path / "a.npz")
    result = run("--bins", 32, "--shifts", 5, *files)
    assert result.exit_code == 0, result.output
    assert "at a shift of 3 rows and -5 columns" in result.output
    assert "ok" in result.output
    assert min(read_image(tmp_path / "a.png").shape[:2]) > 1000
    saved = read_npz(tmp_path / "a.npz", ["joint", "information", "shift"])
    assert saved["shift"].tolist() == [3, -5]
    assert saved["joint"].shape == (32, 32)
    assert saved["information"].shape == (11, 11)
    assert saved["information"][8, 0] == saved["information"].max()


def test_a_shift_not_found_is_exit_status_1(monkeypatch):
    monkeypatch.setattr("clhist.cli.cases.joint.image_pair", lambda *_: image_pair(60, (0, 0)))
    result = run("--bins", 32, "--shifts", 5)
    assert result.exit_code == 1
    assert "WRONG" in result.output


def test_command_with_files(tmp_path):
    pillow = pytest.importorskip("PIL.Image")
    fixed, moving = image_pair(60, (1, 2))
    pillow.fromarray(np.repeat(fixed[:, :, None], 3, axis=2)).save(tmp_path / "fixed.png")
    np.save(tmp_path / "moving.npy", moving.astype(np.float64))
    result = run(tmp_path / "fixed.png", tmp_path / "moving.npy", "--bins", 32, "--shifts", 2, "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["best"]["shift"] == [1, 2]
    assert report["shape"] == [60, 60]
    assert report["mutual_information"] > 0
    assert report["seconds"]["kernels"] > 0


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        ((5, 7), "expected images of one shape"),
        ((5, 5, 5), "expected rows and columns"),
        ((5, 5), "expected at least 8 rows and columns, for --shifts 2, got (5, 5)"),
    ],
)
def test_bad_files_are_named(tmp_path, shape, says):
    np.save(tmp_path / "a.npy", np.zeros((5, 5)))
    np.save(tmp_path / "bad.npy", np.zeros(shape))
    refused(run(tmp_path / "a.npy", tmp_path / "bad.npy", "--shifts", 2), "bad.npy", says)


def test_one_file_is_a_usage_error(tmp_path):
    refused(run(tmp_path / "a.npy"), "expected both FIXED and MOVING")
    assert run("--bins", 16).exit_code == 2
