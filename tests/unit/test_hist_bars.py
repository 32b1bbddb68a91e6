"""Bars and files of `clhist hist` that need no device."""

from __future__ import annotations

import numpy as np
import pandas
import pytest

from clhist.cli.hist.report import labelled_bars
from clhist.cli.hist.tables import open_table


def test_bars_of_negative_values_end_where_the_others_begin():
    first, second, third, fourth = labelled_bars(list("abcd"), np.array([-2.0, 0, 4, np.nan]), unicode=False)
    assert first.rindex("#") + 1 == third.index("#")
    assert third.count("#") == pytest.approx(2 * first.count("#"), abs=1)
    assert "#" not in second + fourth


def test_bars_of_negative_values_alone():
    short, long = labelled_bars(list("ab"), np.array([-1.0, -3.0]), unicode=False)
    assert short.rindex("#") == long.rindex("#")
    assert long.count("#") == pytest.approx(3 * short.count("#"), abs=2)


@pytest.mark.parametrize(("header", "names"), [("", ["0", "1"]), ("x y", ["x", "y"])])
def test_what_savetxt_writes(tmp_path, header, names):
    values = np.random.default_rng(0).normal(size=(40, 2))
    np.savetxt(tmp_path / "a.txt", values, header=header)
    table = open_table(tmp_path / "a.txt")
    assert list(table.dtypes) == names
    (chunk,) = table.read(names, ())
    np.testing.assert_array_equal(np.column_stack([chunk.columns[name] for name in names]), values)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_an_empty_text_is_no_key(tmp_path, ending):
    frame = pandas.DataFrame({"x": [1.0, 2.0, 3.0, 4.0], "key": ["a", "", None, "b"]})
    path = tmp_path / f"a.{ending}"
    frame.to_csv(path, index=False) if ending == "csv" else frame.to_parquet(path)
    (chunk,) = open_table(path).read(["x"], ["key"])
    assert chunk.valid.tolist() == [True, False, False, True]
    assert chunk.texts("key")[chunk.valid].tolist() == ["a", "b"]
