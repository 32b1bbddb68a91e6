"""Keys of groups, numbered by each library that may be installed, against Python's own sets."""

from __future__ import annotations

import datetime
import decimal
import sys
import tracemalloc

import numpy as np
import pandas
import pyarrow
import pytest

from clhist.grouped import columns as grouping_columns
from clhist.grouped import keys as grouping_keys
from clhist.grouped.columns import integers
from clhist.grouped.groups import labels_of, numbers_of
from clhist.grouped.keys import numbered, numbered_by_host

N = 5000
WORDS = np.array(["", "a", "b", "ä", "a\0", "a\0b", "\U0001f600", "\ud800", "z" * 20, "A"])


@pytest.fixture(params=["pyarrow", "pandas", "neither"])
def library(request, monkeypatch):
    """Hide the libraries before this one in the order of choice, and take it for few keys, too."""
    monkeypatch.setattr(grouping_keys, "_WORTH_AN_IMPORT", 0)
    if request.param != "pyarrow":
        monkeypatch.setitem(sys.modules, "pyarrow", None)
    if request.param == "neither":
        monkeypatch.setitem(sys.modules, "pandas", None)
    return request.param


def numbers_and_labels(keys, sort=True):
    """Return the numbers of one column, and its keys; integers are numbers."""
    numbers, labels, _ = numbers_of(keys, are_numbers=True, sort=sort, queue=None)
    return numbers, None if labels is None else labels_of(labels, len(labels))


def is_missing(key):
    return key is None or key is pandas.NA or key is pandas.NaT or bool(key != key)


def check(keys, given=None):
    """Compare the numbers of `given`, or `keys`, with those of a set of `keys`, a flat list of Python's or NumPy's."""
    codes, labels = numbers_and_labels(keys if given is None else given)
    listed = list(keys.reshape(-1)) if isinstance(keys, np.ndarray) else list(keys)
    distinct = sorted({key for key in listed if not is_missing(key)})
    assert isinstance(labels, np.ndarray)
    assert list(labels) == distinct
    number = {key: k for k, key in enumerate(distinct)}
    assert codes.dtype.kind == "i"
    assert codes.reshape(-1).tolist() == [-1 if is_missing(key) else number[key] for key in listed]
    return codes, labels


def words(rng, n=N):
    return WORDS[rng.integers(0, len(WORDS), n)]


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("order", ["<", ">"])
def test_words_of_fixed_width(order):
    keys = words(np.random.default_rng(1)).astype(f"{order}U20")
    assert check(keys)[1].dtype == keys.dtype
    check(keys[::3])
    check(keys.reshape(50, 100).T)
    check(keys[:0])
    check(keys[:1])


@pytest.mark.usefixtures("library")
def test_bytes():
    rng = np.random.default_rng(2)
    keys = np.array([b"", b"a", b"b", b"a\0b", b"\xff", b"ab"])[rng.integers(0, 6, N)]
    assert check(keys)[1].dtype == keys.dtype
    many = np.array([f"{k:x}" for k in rng.integers(0, 10**6, N)], "S")
    check(many)


@pytest.mark.usefixtures("library")
def test_strings_of_numpy():
    keys = words(np.random.default_rng(3))
    keys = keys[keys != "\ud800"]  # which they do not take
    check(keys.tolist(), keys.astype(np.dtypes.StringDType()))
    missing = np.array(["b", None, "a", "b"], np.dtypes.StringDType(na_object=None))
    check(["b", None, "a", "b"], missing)


@pytest.mark.usefixtures("library")
def test_objects():
    rng = np.random.default_rng(4)
    few, many = WORDS.astype(object), np.array([f"{k}" for k in range(N)], object)
    for keys in (words(rng).astype(object), few[rng.integers(0, 10, N)], many[rng.integers(0, N, 12 * N)], many[::-2]):
        check(keys[keys != "\ud800"])  # which PyArrow does not take
        assert check(keys)[1][0] is keys[keys == min(keys)][0]  # the first of equal ones
    check(keys[:0])
    keys[::7], keys[1::7] = None, float("nan")
    check(keys)
    check(np.array([None, None], object))
    nothing = [decimal.Decimal("NaN"), np.datetime64("NaT", "s")]
    check(np.array([decimal.Decimal("2.5"), decimal.Decimal(1), *nothing, None], object))
    check(np.array([datetime.date(2020, 2, 1), None, datetime.date(2020, 1, 1)], object))
    pairs = np.empty(4, object)
    pairs[:] = [(1, "b"), (1, "a"), (0, "z"), (1, "b")]
    check(pairs)
    mixed = np.array([2, 1.0, True, 2.0, 1], object)
    codes, labels = numbers_and_labels(mixed)
    assert [type(label) for label in labels] == [float, int]  # the first of equal ones
    assert codes.tolist() == [1, 0, 0, 1, 0]
    backwards = type("Backwards", (str,), {"__lt__": str.__gt__})  # texts with an order of their own
    codes, labels = numbers_and_labels(np.array([backwards(each) for each in "aba"], object))
    assert (codes.tolist(), labels.tolist()) == ([1, 0, 1], ["b", "a"])
    with pytest.raises(TypeError, match="'<' not supported"):
        numbered(np.array(["a"] * N + [b"a"], object))


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f8", "c8", "c16", "longdouble"])
def test_floats(dtype):
    rng = np.random.default_rng(5)
    keys = rng.integers(-3, 3, N).astype(dtype) / 2
    keys[::5], keys[1::5] = np.nan, -0.0
    keys[2:9:2] = np.inf, -np.inf, np.finfo(keys.dtype).tiny, np.finfo(keys.dtype).max
    codes, labels = numbers_and_labels(keys)
    there = keys == keys
    wide = np.float64 if dtype == "f2" else keys.dtype  # np.unique of NumPy 2.4 repeats values of float16
    expected = np.unique(keys[there].astype(wide)).astype(keys.dtype)
    np.testing.assert_array_equal(labels, expected)
    assert labels.dtype == keys.dtype
    assert not np.signbit(labels.real[labels == 0]).any()
    np.testing.assert_array_equal(labels[codes[there]], keys[there])
    assert (codes[~there] == -1).all()


@pytest.mark.usefixtures("library")
def test_several_bit_patterns_of_nan():
    bits = np.array([0x7FF8000000000000, 0x7FF8000000000001, 0xFFF8000000000000, 0x3FF0000000000000], np.uint64)
    codes, labels = numbers_and_labels(bits.view(np.float64))
    assert codes.tolist() == [-1, -1, -1, 0]
    assert labels.tolist() == [1]


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("dtype", ["M8[D]", "M8[ns]", ">M8[s]", "m8[us]"])
def test_dates(dtype):
    rng = np.random.default_rng(6)
    keys = rng.integers(-500, 500, N).astype(dtype)
    keys[::9] = "NaT"
    assert check(keys)[1].dtype == keys.dtype


@pytest.mark.parametrize("library", ["pyarrow"], indirect=True)  # by which pandas keeps its own strings
@pytest.mark.parametrize("dtype", [object, "str", "string[python]", "string[pyarrow]", "Float64", "float64"])
def test_columns_of_pandas(dtype, library):
    keys = [1.5, 0.5, None, 1.5] if dtype in ("Float64", "float64") else ["b", "a", None, "b", "ä", "a\0b"]
    column = pandas.Series(keys, dtype=dtype, index=np.arange(len(keys)) + 7)
    for given in (column, column.array, pandas.Index(column)):
        check(keys, given)


@pytest.mark.parametrize("library", ["pandas"], indirect=True)
@pytest.mark.parametrize("dtype", [object, "U3", "string[python]"])
def test_texts_where_pandas_compares_them_up_to_a_nul(dtype, library, monkeypatch):
    """As before 3.1: then it does not number them."""
    for module in (grouping_keys, grouping_columns):
        monkeypatch.setattr(module, "reads_whole_texts", lambda pandas: False)
    factorize = pandas.factorize
    monkeypatch.setattr(
        pandas, "factorize", lambda keys: factorize(keys) if keys.dtype.kind == "i" else pytest.fail("of text")
    )
    keys = ["a\0b", "a", "b", "a\0b", "a"]
    check(keys, pandas.array(keys, dtype=dtype) if dtype == "string[python]" else np.array(keys, dtype))


def test_times_of_pandas():
    utc = pandas.Series(pandas.to_datetime(["2020-01-02", None, "2020-01-01"], utc=True))
    codes, labels = numbers_and_labels(utc)
    assert codes.tolist() == [1, -1, 0]
    assert list(pandas.Index(labels)) == sorted(utc.dropna())
    periods = pandas.Series(pandas.PeriodIndex(["2020-02", "2020-01", "2020-02"], freq="M"))
    assert numbers_and_labels(periods)[0].tolist() == [1, 0, 1]
    several = pandas.MultiIndex.from_arrays([[2, 1, 2], ["b", "a", "b"]])
    codes, labels = numbers_and_labels(several)
    assert codes.tolist() == [1, 0, 1]
    assert labels.tolist() == [(1, "a"), (2, "b")]


def test_categories():
    column = pandas.Series(["b", None, "a"], dtype="category").cat.add_categories("unused")
    for given in (column, column.array):
        codes, labels = numbers_and_labels(given)
        assert codes.tolist() == [1, -1, 0]
        assert labels.tolist() == ["a", "b", "unused"]


@pytest.mark.parametrize("dtype", ["Int64", "UInt8", "Int16", "boolean", "int64[pyarrow]", "uint64[pyarrow]"])
def test_integers_of_pandas_are_numbers_whether_or_not_one_is_missing(dtype):
    for keys in ([1, 0, None, 1], [1, 0, 0, 1]):
        codes, labels = numbers_and_labels(pandas.Series(keys, dtype=dtype))
        assert labels is None
        assert codes.dtype.kind in "iu"
        assert codes.tolist() == [-1 if key is None else key for key in keys]


def test_masked_keys_are_in_no_group():
    mask = [False, True, False, False]
    codes, labels = numbers_and_labels(np.ma.array(["b", "c", "a", "b"], mask=mask))
    assert (codes.tolist(), labels.tolist()) == ([1, -1, 0, 1], ["a", "b"])
    for dtype in (np.int8, np.uint8, np.int64, np.uint64):
        codes, labels = numbers_and_labels(np.ma.array([[1, 100], [0, 1]], dtype, mask=[mask[:2], mask[2:]]))
        assert (codes.tolist(), labels) == ([[1, -1], [0, 1]], None)
    assert integers(np.ma.array([3, 4], mask=[True, False])).tolist() == [-1, 4]
    largest = numbers_and_labels(np.ma.array([2**64 - 1, 1], np.uint64, mask=[False, True]))[0]
    assert largest.tolist() == [2**64 - 1] * 2  # no number of a group, either of them


def test_columns_of_arrow():
    for keys in (["b", None, "a", "b"], [1.5, None, -1.0], [b"b", None, b"a"]):
        for given in (pyarrow.array(keys), pyarrow.chunked_array([keys[:1], keys[1:]])):
            check(keys, given)
    check(["b", None, "a"], pyarrow.array(["b", None, "a"]).dictionary_encode())
    unused = pyarrow.DictionaryArray.from_arrays(pyarrow.array([1, 1, None]), pyarrow.array(["a", "b"]))
    check(["b", "b", None], unused)
    codes, labels = numbers_and_labels(pyarrow.array([3, None, 0]))
    assert (codes.tolist(), labels) == ([3, -1, 0], None)


@pytest.mark.usefixtures("library")
def test_keys_that_cannot_be_sorted():
    with pytest.raises(TypeError, match=r"^keys: expected values that can be hashed and sorted, got object: '<'"):
        numbered(np.array([1, "a", None], object))
    lists = np.empty(2, object)
    lists[:] = [[1], [2]]
    with pytest.raises(TypeError, match=r"^keys: expected values that can be hashed.*unhashable"):
        numbered(lists)


def test_lists_of_lists_are_one_column():
    assert numbers_and_labels([[0, 1], [1, 0]])[0].shape == (2, 2)


@pytest.mark.usefixtures("library")
def test_memory_is_bounded_by_that_of_the_keys(library):
    keys = np.array([f"endpoint/{k}" for k in range(100)]).astype("U20")[np.arange(200_000) % 100]
    numbered(keys[:10])
    tracemalloc.start()
    try:
        numbered(keys)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < (2 if library == "pandas" else 0.5) * keys.nbytes  # pandas makes an object of each


@pytest.mark.parametrize("shared", ["", "k0000", "é" * 5, "pre\0"])
@pytest.mark.parametrize("longest", [1, 8, 20])
def test_texts_of_arrow_are_sorted_by_their_characters(shared, longest):
    rng = np.random.default_rng(longest)
    letters = ["a", "b", "\0", "é", "z", "\U0001d11e", "A"]
    texts = [shared + "".join(rng.choice(letters, rng.integers(0, longest + 1))) for _ in range(200)]
    texts += [text + end for text in texts[:40] for end in ("b", "a" * 9, "a" * 70, "a" * 70 + "b")]
    texts += [None, "", shared]
    wanted = sorted({text for text in texts if text is not None})
    for given in (
        pandas.Series(texts, dtype="str"),
        pandas.Index(texts, dtype="str"),
        pandas.Series(texts, dtype=pandas.ArrowDtype(pyarrow.string())),
        pyarrow.array(texts),
        pyarrow.array(["x", *texts, "y"], pyarrow.large_string()).slice(1, len(texts)),
        pyarrow.chunked_array([texts[:50], texts[50:]]),
        pyarrow.array([None, *texts]).dictionary_encode().slice(1),
    ):
        for sort, expected in ((True, wanted), (False, [text for text in dict.fromkeys(texts) if text is not None])):
            codes, labels = numbers_and_labels(given, sort)
            assert list(labels) == expected
            assert [None if code < 0 else labels[code] for code in codes] == texts


def test_no_texts_of_arrow():
    for given in (pyarrow.array([], pyarrow.string()), pyarrow.array([None, None], pyarrow.string())):
        codes, labels = numbers_and_labels(given)
        assert len(labels) == 0
        assert codes.tolist() == [-1] * len(given)


@pytest.mark.parametrize("different", [1, 40, N])
@pytest.mark.parametrize("with_null", [False, True])
def test_texts_numbered_by_several_threads(different, with_null, monkeypatch):
    monkeypatch.setattr(grouping_keys, "_PIECE", 100)
    monkeypatch.setattr(grouping_keys, "_SAMPLE", 400)
    monkeypatch.setattr(grouping_keys.os, "cpu_count", lambda: 3)
    numbers = np.random.default_rng(different).integers(0, different, N)
    texts = [None if with_null and n % 7 == 3 else f"zone {n}" for n in numbers.tolist()]
    codes, labels = pandas.factorize(np.array(texts, object))
    array = pyarrow.array(texts)
    for given in (array, pyarrow.chunked_array([array[:700], array[700:]]), array.cast(pyarrow.large_string())):
        found, dictionary = grouping_keys.encoded(given)
        np.testing.assert_array_equal(found, codes)
        assert dictionary.to_pylist() == labels.tolist()


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f8"])
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("sort", [False, True])
def test_floats_are_numbered_as_pandas_does(library, dtype, missing, sort):
    """Pandas hashes native ones of 4 and 8 bytes; both zeros are one key, and NaN has a place where it is counted."""
    keys = np.random.default_rng(0).integers(-30, 30, 5000).astype(dtype)
    keys[2::7], keys[3::11], keys[5::13], keys[4::17] = np.nan, -0.0, 0.0, np.inf
    numbering = numbered_by_host(keys, sort, False, missing)
    numbers, labels = pandas.factorize(keys.astype(np.float64), sort=sort, use_na_sentinel=not missing)
    np.testing.assert_array_equal(numbering.numbers, numbers)
    np.testing.assert_array_equal(numbering.keys, labels)
    assert numbering.keys.dtype == keys.dtype
    assert not np.signbit(numbering.keys[numbering.keys == 0]).any()
