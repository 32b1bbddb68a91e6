"""`clhist hist`: the same keys, numbers and missing values in text files and in Parquet."""

from __future__ import annotations

import json
from decimal import Decimal

import numpy as np
import pandas
import pytest
from commands import run_hist as run

pytestmark = pytest.mark.usefixtures("without_optimizer")

arrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


def found(*args, by="k"):
    return json.loads(run(*args, "-c", "x", "-b", 1, "-r", 0, 100, "--by", by, "--json").stdout)


@pytest.fixture
def write(tmp_path):
    """Return a function that writes columns into a file and returns its path."""

    def write(name, **columns):
        path = tmp_path / name
        if path.suffix == ".csv":
            pandas.DataFrame(columns).to_csv(path, index=False)
        else:
            parquet.write_table(arrow.table(columns), path)
        return path

    return write


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
@pytest.mark.parametrize(
    ("keys", "labels"),
    [
        (["10", "2", "-1.5", "2"], [-1.5, 2, 10]),
        (["01234", "1234", "1234"], ["01234", "1234"]),
        (["1", "1.0", "1e0", "10", "9"], ["1", "1.0", "1e0", "9", "10"]),
        (["1", "10", "9", "a"], ["1", "10", "9", "a"]),
        (["1_0", "9"], ["1_0", "9"]),
        ([" x", "x ", "x"], ["x"]),
        (["nan", "NaN", "Nan", "NA", "n/a", "NULL", "None", "", " ", "b"], ["b"]),
    ],
)
def test_text_is_grouped_and_labelled_by_one_rule(keys, labels, ending, write):
    result = found(write(f"t{ending}", k=keys, x=np.ones(len(keys))))
    assert result["groups"] == labels
    words = [key.strip() for key in keys]
    present = [word for word in words if word.lower() not in ("", "nan", "na", "n/a", "null", "none")]
    assert result["missing"] == len(words) - len(present)
    assert sum(map(sum, result["counts"])) == len(present)


def test_numbers_of_one_file_are_those_of_another(write):
    files = [write("a.parquet", k=[1, 20, 3], x=[1.0, 2, 3]), write("b.csv", k=["1.0", "20", "04"], x=[1, 2, 3])]
    for order in (files, files[::-1]):
        result = found(*order)
        assert result["groups"] == [1, 3, 4, 20]
        assert result["counts"] == [[2], [1], [1], [2]]


@pytest.mark.parametrize("name", ["b.csv", "b.parquet"])
def test_text_beside_numbers_is_refused(name, write):
    files = [write("a.parquet", k=[1, 2], x=[1.0, 2]), write(name, k=["u", "1"], x=[1, 2])]
    for order in (files, files[::-1]):
        error = " ".join(run(*order, "-c", "x", "--by", "k", code=2).stderr.split())
        assert f"{files[1]}: expected numbers in column 'k', as in {files[0]}, got" in error


def test_decimals_are_rounded_once(write):
    cents = [Decimal(n).scaleb(-2) for n in range(10_000)]
    path = write("d.parquet", x=arrow.array(cents, arrow.decimal128(10, 2)), k=np.zeros(10_000, np.int64))
    for price in ("0.35", "0.57", "1.15", "99.99"):
        assert json.loads(run(path, "-c", "x", "-b", 1, "--where", f"x == {price}", "--json").stdout)["inside"] == 1
    statistics = json.loads(run(path, "-c", "k", "-b", 1, "--values", "x", "-s", "max", "--json").stdout)["statistics"]
    assert statistics["max"] == [99.99]


def test_decimals_of_many_digits_stay_different(write):
    ids = [10**19 + n % 3 for n in range(30)]
    exact = [Decimal(10**17 + n % 2).scaleb(-1) for n in range(30)]
    path = write(
        "d.parquet",
        x=np.ones(30),
        k=arrow.array(map(Decimal, ids), arrow.decimal128(20, 0)),
        f=arrow.array(exact, arrow.decimal128(25, 1)),
    )
    assert found(path)["groups"] == sorted(set(ids))
    assert found(path, by="f")["groups"] == [10**16, "10000000000000000.1"]
    assert json.loads(run(path, "-c", "x", "--where", "k == 10**19 + 1", "--json").stdout)["inside"] == 10


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_what_a_condition_lacks_is_missing(ending, write):
    path = write(f"t{ending}", x=[1.0, 2, 3, 4], y=[2.0, None, 5, None])
    result = json.loads(run(path, "-c", "x", "-b", 1, "--where", "y != 2", "--json").stdout)
    assert (result["missing"], result["cut"], result["inside"]) == (2, 1, 1)


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_columns_of_one_name_have_positions(ending, tmp_path):
    path = tmp_path / f"t{ending}"
    if ending == ".csv":
        path.write_text("a,a,b\n1,3,5\n2,4,6\n")
    else:
        columns = [arrow.array(values) for values in ([1.0, 2], [3.0, 4], [5, 6])]
        parquet.write_table(arrow.Table.from_arrays(columns, names=["a", "a", "b"]), path)
    for name, mean in (("0", 1.5), ("1", 3.5), ("b", 5.5), ("2", 5.5)):
        assert json.loads(run(path, "-c", name, "-s", "mean", "--json").stdout)["statistics"]["mean"] == mean
    error = " ".join(run(path, "-c", "a", code=2).stderr.split())
    assert "expected different names of columns, got 'a' twice; give a position, 0 or 1" in error


@pytest.mark.parametrize("first", [",5", "NA,5", "nan,5"])
def test_a_first_row_that_lacks_a_field_is_a_row(first, tmp_path):
    (tmp_path / "t.csv").write_text(f"{first}\n1,2\n")
    result = json.loads(run(tmp_path / "t.csv", "-c", "0", "-b", 1, "--json").stdout)
    assert (result["rows"], result["missing"]) == (2, 1)


def test_quantiles(write):
    rng = np.random.default_rng(0)
    x, k = rng.normal(size=500), rng.integers(0, 3, 500)
    path = write("t.parquet", x=x, k=k)
    names = {"q90": 0.9, "q2.5": 0.025, "q0": 0, "q100": 1}
    found = json.loads(run(path, "-c", "x", "--by", "k", *(f"--stat={name}" for name in names), "--json").stdout)
    for name, q in names.items():
        expected = [np.quantile(x[k == group], q) for group in range(3)]
        np.testing.assert_allclose(found["statistics"][name], expected, rtol=1e-12)
    for wrong in ("q101", "q", "q-1", "mode"):
        assert "is not one of 'count'" in " ".join(run(path, "-c", "x", "--stat", wrong, code=2).stderr.split())
