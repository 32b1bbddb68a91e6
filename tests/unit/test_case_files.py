"""Data files of the cases: what is read, and what is refused with the file's name and the reason."""

import io

import numpy as np
import pytest

from clhist.cases.files import read_image, read_table

TABLE = np.array([[1.5, 2], [3, -4e5], [0, 7]])


@pytest.mark.parametrize(
    "text",
    [
        "1.5,2\n3,-4e5\n0,7\n",
        "ra; dec\n1.5; 2\n3; -4e5\n\n0;7",
        "# x\n1.5 2 # a\n3\t-4e5\n0 7",
        "\ufeff1.5,2\n3,-4e5\n0,7",
        "\ufeffra dec\r\n 1.5   2 \r\n3 -4e5\r\n0 7\r\n",
        '1.5\t2\n"3"\t-4e5\n0\t7',
    ],
)
def test_text(tmp_path, text):
    path = tmp_path / "points.csv"
    path.write_text(text)
    assert (read_table(path, columns=2) == TABLE).all()


def test_arrays_keep_their_type(tmp_path):
    table = TABLE.astype(np.float32)
    np.save(tmp_path / "a.npy", table)
    np.savez(tmp_path / "a.npz", points=table)
    np.savez_compressed(tmp_path / "b.npz", points=table, other=table + 1)
    for name, key in (("a.npy", None), ("a.npz", None), ("b.npz", "points")):
        found = read_table(tmp_path / name, key=key)
        assert found.dtype == np.float32
        assert (found == table).all()


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.csv", b"1 2\n3\n", "line 2: expected 2 fields, got 1"),
        ("a.csv", b"1 2\nx y\n", "line 2: expected a number in column '0', got 'x'"),
        ("a.csv", b"x;y\n1,5;2,5\n", "line 2: expected a number in column '0', got '1,5'; decimals have a point"),
        ("a.csv", b"1,5;2,5\n", "line 1: expected a number in column '1', got '5;2'"),
        ("a.csv", b"1 000,2\n", "line 1: expected a number in column '0', got '1 000'"),
        ("a.csv", b"1,2\n3;4\n", "line 2: expected 2 fields, got 1"),
        ("a.csv", b"1,2\n3 4\n", "line 2: expected 2 fields, got 1"),
        ("a.csv", b"1,2\n,4\n", "line 2: expected a number in column '0', got ''"),
        ("a.csv", b"1,2\n3,\n", "line 2: expected a number in column '1', got ''"),
        ("a.csv", b"1\t\t2\n", "line 1: expected a number in column '1', got ''"),
        ("a.csv", b"1,2\n3,NA\n", "line 2: expected a number in column '1', got 'NA'"),
        ("a.csv", b"x,1\n2,3\n", "line 1: expected a number in column '0', got 'x'"),
        ("a.csv", b"1_000,2\n", "line 1: expected a number in column '0', got '1_000'"),
        ("a.csv", b"1,2\n# c\n\n4,5,6\n", "line 4: expected 2 fields, got 3"),
        ("a.csv.gz", b"1,2\n", "Not a gzipped file"),
        ("a.csv", b"", "expected rows of numbers, got none"),
        ("a.csv", b"1 2 3\n", r"expected 2 columns, got shape \(1, 3\)"),
        ("a.csv", b"\xff\xfe\x00", "utf-8"),
        ("a.npy", b"\x93NUMPY\x01\x00", "expected a whole .npy array"),
        ("a.npz", b"PK", "expected an .npz file"),
    ],
)
def test_tables_that_are_refused(tmp_path, name, content, reason):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=rf"{name}[:,] .*{reason}"):
        read_table(tmp_path / name, columns=2)


def test_a_size_that_the_file_cannot_hold_is_refused(tmp_path):
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (10**12, 2)})
    (tmp_path / "huge.npy").write_bytes(file.getvalue() + bytes(64))
    with pytest.raises(ValueError, match=r"huge\.npy: expected a whole .npy array: .* in 16000000000128"):
        read_table(tmp_path / "huge.npy")


def test_pickles_are_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.array([[{}]], object), allow_pickle=True)
    with pytest.raises(ValueError, match=r"a\.npy: .*expected integers or floats"):
        read_table(tmp_path / "a.npy")


def test_an_ambiguous_archive_is_refused(tmp_path):
    np.savez(tmp_path / "a.npz", x=TABLE, y=TABLE)
    with pytest.raises(ValueError, match="expected a file of one array, got x, y; save"):
        read_table(tmp_path / "a.npz")


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "1", "P"])
def test_images(tmp_path, rng, mode):
    image = pytest.importorskip("PIL.Image")
    pixels = rng.integers(0, 256, (5, 7, 3), dtype=np.uint8)
    picture = image.fromarray(pixels).convert(mode)
    picture.save(tmp_path / "a.png")
    found = read_image(tmp_path / "a.png")
    expected = np.asarray(picture.convert({"1": "L", "P": "RGB"}.get(mode, mode)))
    assert found.dtype == np.uint8
    assert (found == expected).all()
    np.save(tmp_path / "a.npy", found)
    assert (read_image(tmp_path / "a.npy") == found).all()


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [("a.png", b"not an image", "expected an image"), ("a.npy", b"x", "whole .npy array")],
)
def test_images_that_are_refused(tmp_path, name, content, reason):
    pytest.importorskip("PIL.Image")
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=rf"{name}: .*{reason}"):
        read_image(tmp_path / name)


def test_an_image_that_breaks_off_is_refused(tmp_path, rng):
    image = pytest.importorskip("PIL.Image")
    file = io.BytesIO()
    image.fromarray(rng.integers(0, 256, (50, 70, 3), dtype=np.uint8)).save(file, format="png")
    (tmp_path / "a.png").write_bytes(file.getvalue()[:2000])
    with pytest.raises(ValueError, match=r"a\.png: expected a whole image"):
        read_image(tmp_path / "a.png")


def test_an_image_of_other_depth_is_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((4, 4), np.float32))
    with pytest.raises(ValueError, match=r"8 bits a channel.*got float32 of shape \(4, 4\)"):
        read_image(tmp_path / "a.npy")
