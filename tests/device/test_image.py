"""Histograms of 8-bit images against numpy.bincount, and the command around them."""

import json

import numpy as np
import pyopencl.array as cl_array
import pytest
from commands import refused, runner
from covering import covering, each_value_quick

from clhist.cases import image_histogram
from clhist.cases.files import read_image, read_npz
from clhist.cases.image_data import photograph


def reference(image, bins):
    channels = image.reshape(*image.shape[:2], -1)
    counts = [np.bincount(channels[:, :, c].ravel() // (256 // bins), minlength=bins) for c in range(channels.shape[2])]
    return np.array(counts).reshape(*image.shape[2:], bins)


SHAPES = [(1, 1), (37, 53), (100, 100, 3), (31, 17, 4), (5, 7, 1), (9, 4, 13)]


@pytest.mark.parametrize(
    ("any_profile", "bins", "shape"),
    each_value_quick(covering(["own profile", "as a GPU"], [2, 64, 256], SHAPES)),
    indirect=["any_profile"],
)
def test_counts_are_numpys(any_profile, rng, bins, shape):
    image = rng.integers(0, 256, shape, dtype=np.uint8)
    counts = image_histogram(image, bins)
    assert counts.dtype == np.int64
    assert counts.shape == (*shape[2:], bins)
    assert (counts == reference(image, bins)).all()


@pytest.mark.parametrize("value", [0, 255])
def test_one_intensity(value):
    counts = image_histogram(np.full((500, 400, 3), value, np.uint8), 64)
    assert (counts[:, value // 4] == 200_000).all()
    assert counts.sum() == 600_000


def test_parts_of_images(rng, queue):
    image = rng.integers(0, 256, (40, 60, 3), dtype=np.uint8)
    part = image[3:-3, ::2, 1]
    assert (image_histogram(part) == reference(part, 256)).all()
    on_device = cl_array.to_device(queue, image)
    counts = image_histogram(on_device[7:])  # which does not begin at a multiple of 16 bytes
    assert isinstance(counts, cl_array.Array)
    assert (counts.get() == reference(image[7:], 256)).all()


@pytest.mark.parametrize("shape", [(0, 5), (5, 0, 3)])
def test_no_pixels(shape):
    assert not image_histogram(np.zeros(shape, np.uint8)).any()


@pytest.mark.parametrize(
    ("image", "bins", "error", "says"),
    [
        (np.zeros((4, 4), np.float32), 256, TypeError, "image: expected an array of uint8, got float32"),
        ([[1, 2]], 256, TypeError, "image: expected an array of uint8, got list"),
        (np.zeros(4, np.uint8), 256, ValueError, r"image: expected shape .*, got \(4,\)"),
        (np.zeros((4, 4, 0), np.uint8), 256, ValueError, r"image: expected shape .*, got \(4, 4, 0\)"),
        (np.broadcast_to(np.uint8(0), (2**16, 2**16)), 256, ValueError, r"image: expected fewer than 2\*\*32"),
        (np.zeros((4, 4), np.uint8), 100, ValueError, "bins: expected a power of two from 2 to 256, got 100"),
        (np.zeros((4, 4), np.uint8), 512, ValueError, "bins: expected a power of two from 2 to 256, got 512"),
        (np.zeros((4, 4), np.uint8), 64.0, ValueError, "bins: expected a power of two from 2 to 256, got 64.0"),
    ],
)
def test_bad_arguments_are_named(image, bins, error, says):
    with pytest.raises(error, match=says):
        image_histogram(image, bins)


run = runner("image")


def test_command_with_files(tmp_path, rng):
    pillow = pytest.importorskip("PIL.Image")
    images = [rng.integers(0, 256, shape, dtype=np.uint8) for shape in ((30, 40, 3), (20, 10), (8, 9, 2))]
    pillow.fromarray(images[0]).save(tmp_path / "colours.png")
    pillow.fromarray(images[1]).save(tmp_path / "grey.tiff")
    np.save(tmp_path / "two.npy", images[2])
    files = [tmp_path / name for name in ("colours.png", "grey.tiff", "two.npy")]
    result = run(*files, "--bins", 64, "--json", "--plot", tmp_path / "a.png", "--output", tmp_path / "a.npz")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert [each["shape"] for each in report["images"]] == [[30, 40, 3], [20, 10], [8, 9, 2]]
    saved = read_npz(tmp_path / "a.npz", ["image0", "image1", "image2"])
    for n, (image, found) in enumerate(zip(images, report["images"], strict=True)):
        assert found["passed"]
        assert found["counts"] == reference(image, 64).tolist()
        assert (saved[f"image{n}"] == found["counts"]).all()
    assert min(read_image(tmp_path / "a.png").shape[:2]) > 800


def test_command_with_a_generated_image(monkeypatch):
    monkeypatch.setattr("clhist.cli.cases.image.photograph", lambda *_: photograph(60, 80))
    result = run()
    assert result.exit_code == 0, result.output
    assert "80 x 60 pixels" in result.output
    assert "red" in result.output
    assert "equal" in result.output
    monkeypatch.setattr("numpy.bincount", lambda *_, **__: np.zeros(256))
    result = run()
    assert result.exit_code == 1
    assert "DIFFERENT" in result.output


@pytest.mark.parametrize(("content", "says"), [(None, "No such file"), (b"no image", "expected an image")])
def test_bad_files_are_named(tmp_path, content, says):
    pytest.importorskip("PIL")
    path = tmp_path / "bad.png"
    if content is not None:
        path.write_bytes(content)
    refused(run(path), "bad.png", says)


def test_bad_options_are_usage_errors(tmp_path):
    assert run("--bins", 100).exit_code == 2
    refused(run("--output", tmp_path / "a.txt"), "expected a file .npz")


def test_generated_pictures_are_the_same_each_time():
    image = photograph(90, 120, 3, seed=4)
    assert image.shape == (90, 120, 3)
    assert (image == photograph(90, 120, 3, seed=4)).all()
    assert image.std() > 30
