"""Text files: the fields that NumPy cuts out are those of Python's csv module, numbers those of `float`."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from clhist.cli.hist.tables import open_table
from clhist.files import fields, text
from clhist.files.table import TableError

NUMBERS = ("1", "-2.5", "+3", "", " ", "nan", "NA", "null", "inf", "-Infinity", "1e5", "0.1", "-0", ".5", "5.", " 7 ")
NUMBERS += ("123456789012345678", "9007199254740993", "0.30000000000000004", "1e400", "00012", '"8"', '" 9"')
WRONG = ("x", "1_000", "3_00.5e1", "\u0661", "-", ".", "1.2.3", "0x10", "--1", "1 2", '"1""2"')
TEXTS = (
    "a",
    "",
    "nan",
    " b ",
    "é",
    "a longer text than eight",
    "x" * 100,
    '"q"',
    '"a,b"',
    '"a\nb"',
    '"a""b"',
    '""',
    "b c",
)
STRAY = ('a"b', '"a"b', ' "c"', '"')


def read(path, numbers=("n",), keys=("k",)):
    """Return the columns and which rows are valid, or what is said of the file."""
    try:
        chunks = list(open_table(path).chunks(numbers, keys))
    except TableError as error:
        return str(error)
    valid = [np.ones(len(chunk.columns["n"]), bool) if chunk.valid is None else chunk.valid for chunk in chunks]
    found = [np.concatenate([chunk.columns["n"] for chunk in chunks] or [[]])]
    if keys:
        found.append(np.concatenate([chunk.texts("k") for chunk in chunks] or [[]]))
    return [*(each.tolist() for each in found), np.concatenate(valid or [[]]).tolist()]


def as_python_reads(content, delimiter):
    rows = [row for row in csv.reader(io.StringIO(content, newline=""), delimiter=delimiter) if row][1:]
    missing = {"", "na", "n/a", "null", "none", "nan", "-nan"}
    numbers = [math.nan if row[1].strip().lower() in missing else float(row[1]) for row in rows]
    keys = [row[2].strip() for row in rows]
    return [numbers, keys, [key.lower() not in missing for key in keys]]


def same(found, expected):
    if isinstance(found, str) or isinstance(expected, str):
        return found == expected
    return repr(found) == repr(expected)


@settings(max_examples=150)
@given(
    st.lists(st.tuples(st.sampled_from(NUMBERS), st.sampled_from(TEXTS), st.booleans()), max_size=30),
    st.sampled_from((",", ";", "\t")),
    st.sampled_from(("\n", "\r\n")),
    st.sampled_from((16, 64, 1 << 22)),
    st.booleans(),
)
@example([("1", '"a\nb"', False)] * 20, ",", "\n", 16, True)
def test_fields_are_those_of_the_csv_module(tmp_path_factory, rows, delimiter, newline, block, ends):
    path = tmp_path_factory.mktemp("text") / "t.csv"
    lines = [delimiter.join(("i", "n", "k"))]
    for n, (number, key, blank) in enumerate(rows):
        lines += [delimiter.join((str(n), number, key))] + [""] * blank
    content = newline.join(lines) + newline * ends
    path.write_bytes(content.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "_BLOCK", block)
        assert same(read(path), as_python_reads(content, delimiter))


@settings(max_examples=150)
@given(
    st.lists(
        st.tuples(st.sampled_from(NUMBERS + WRONG), st.sampled_from(TEXTS + STRAY), st.integers(1, 4)), max_size=12
    ),
    st.sampled_from((16, 1 << 22)),
)
def test_the_readers_agree_on_any_file(tmp_path_factory, rows, block):
    """Also on whether a file is wrong; which of several errors is found first may differ."""
    path = tmp_path_factory.mktemp("text") / "t.csv"
    path.write_bytes(
        "\n".join([",".join(("n", "k", "more")), *(",".join([n, k, "1", "2"][:size]) for n, k, size in rows)]).encode()
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "_BLOCK", block)
        found = read(path)
        patch.setattr(fields.Fields, "of", _not_simple)
        expected = read(path)
    if isinstance(found, str):
        assert found.partition(", line")[0] == str(expected).partition(", line")[0]
        assert isinstance(expected, str)
    else:
        assert same(found, expected)


def _not_simple(*args, **options):
    raise fields.NotSimple


@settings(max_examples=100)
@given(st.lists(st.floats() | st.decimals(allow_nan=False, places=6) | st.integers(-(10**25), 10**25), min_size=1))
def test_numbers_are_pythons_to_the_last_bit(tmp_path_factory, values):
    texts = [str(value) for value in values]
    path = tmp_path_factory.mktemp("text") / "t.csv"
    path.write_text("\n".join(["n,k", *(f"{each},1" for each in texts)]))
    assert same(read(path, keys=())[0], [float(each) for each in texts])


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"n,k\n1,2\n\n\n3\n", "line 5: expected 2 fields, got 1"),
        (b'n,k\n1,"a\nb"\n\nx,2\n', "line 5: expected a number in column 'n', got 'x'"),
        (b"n,k\r\n1,2\r\n3,4\r\n,\r\n1.2.3,4", "line 5: expected a number in column 'n', got '1.2.3'"),
        (b"n,k\n1,2\n\n\n3,4,5\n", "line 5: expected 2 fields, got 3"),
        (b'\n\nn,"k\n"\n\nx,"2\n3"\n', "line 6: expected a number in column 'n', got 'x'"),
    ],
)
@pytest.mark.parametrize("block", [4, 1 << 22])
@pytest.mark.parametrize("is_simple", [True, False])
def test_errors_name_the_line(content, line, block, is_simple, tmp_path, monkeypatch):
    monkeypatch.setattr(text, "_BLOCK", block)
    if not is_simple:
        monkeypatch.setattr(fields.Fields, "of", _not_simple)
    (tmp_path / "t.csv").write_bytes(content)
    keys = ("k",) if "fields" in line else ()
    assert read(tmp_path / "t.csv", keys=keys) == f"{tmp_path / 't.csv'}, {line}"


@pytest.mark.parametrize(("ending", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)])
def test_compressed_files(ending, pack, tmp_path, monkeypatch):
    content = "n,k\n" + "".join(f"{n},k{n % 3}\n" for n in range(1000))
    (tmp_path / "t.csv").write_text(content)
    packed = tmp_path / f"t.csv{ending}"
    packed.write_bytes(pack(content.encode()))
    monkeypatch.setattr(text, "_BLOCK", 700)
    assert (
        read(packed)
        == read(tmp_path / "t.csv")
        == [list(range(1000)), [f"k{n % 3}" for n in range(1000)], [True] * 1000]
    )
    packed.write_bytes(pack(content.encode())[:-20])
    assert str(packed) in read(packed)
    (tmp_path / "t.npy.gz").write_bytes(b"x")
    with pytest.raises(TableError, match=r"expected a file \.csv"):
        open_table(tmp_path / "t.npy.gz")


def test_many_different_keys(tmp_path, monkeypatch):
    """More than are remembered, of several lengths, and such that hash equally."""
    monkeypatch.setattr(text, "_BLOCK", 3000)
    monkeypatch.setattr(text, "_MOST_TEXTS", 50)
    keys = [f"{'key' * (n % 9)}{n * 7919 % 400}" for n in range(2000)]
    (tmp_path / "t.csv").write_text("n,k\n" + "".join(f"{n},{key}\n" for n, key in enumerate(keys)))
    assert read(tmp_path / "t.csv")[1] == keys
    monkeypatch.setattr(fields, "_hashes", lambda words: words[0] % 7)
    assert read(tmp_path / "t.csv")[1] == keys


def test_a_byte_order_mark_and_old_line_ends(tmp_path):
    (tmp_path / "t.csv").write_bytes("\ufeffn,k\r1,a\r2,b\r".encode())
    assert read(tmp_path / "t.csv") == [[1.0, 2.0], ["a", "b"], [True, True]]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_separators_in_quoted_names(separator, tmp_path):
    path = tmp_path / "t.csv"
    others = ",;\t".replace(separator, "") * 3
    names = ["a", f'b{others}"c"', f"{others}d"]
    with path.open("w", newline="") as file:
        csv.writer(file, delimiter=separator, quoting=csv.QUOTE_ALL).writerows([names, [1, 2, 3]])
    names = [name.strip() for name in names]
    (chunk,) = open_table(path).chunks(names)
    assert [chunk.columns[name].tolist() for name in names] == [[1.0], [2.0], [3.0]]


@pytest.mark.parametrize("first", ["1", '1 "stray" quote'])
def test_rows_of_too_many_fields(first, tmp_path):
    path = tmp_path / "many.csv"
    path.write_text(f"n,k\n{first},2\n3,4,9\n5,6\n")
    with pytest.raises(TableError) as caught:
        list(open_table(path).chunks(["n"]))
    assert str(caught.value) == f"{path}, line 3: expected 2 fields, got 3"


@pytest.mark.parametrize("ending", [".gz", ".bz2", ".xz"])
def test_files_that_are_not_packed(ending, tmp_path):
    path = tmp_path / f"bad.csv{ending}"
    path.write_bytes(b"WXYZ, not packed")
    with pytest.raises(TableError) as caught:
        open_table(path)
    assert str(caught.value).startswith(f"{path}: ")
