"""Keys of groups that are columns of polars, with and without the libraries that number keys."""

from __future__ import annotations

import datetime
import math
import sys

import polars
import pytest

from clhist.grouping import keys as grouping_keys
from clhist.grouping.groups import numbers_of


def numbers_and_labels(keys):
    """Return the numbers of one column, and its keys; integers are numbers."""
    return numbers_of(keys, are_numbers=True, sort=True, queue=None)[:2]


def check(expected, keys):
    codes, labels = numbers_and_labels(keys)
    distinct = sorted({key for key in expected if key is not None and key == key})
    assert labels.tolist() == distinct
    assert codes.tolist() == [distinct.index(key) if key in distinct else -1 for key in expected]


@pytest.mark.parametrize("hidden", [(), ("pyarrow",), ("pyarrow", "pandas")], ids=["pyarrow", "pandas", "neither"])
def test_columns_of_polars(hidden, monkeypatch):
    monkeypatch.setattr(grouping_keys, "_WORTH_AN_IMPORT", 0)
    for name in hidden:
        monkeypatch.setitem(sys.modules, name, None)
    for dtype in (polars.String, polars.Categorical, polars.Enum(["c", "b", "a"])):
        check(["b", None, "a", "b"], polars.Series(["b", None, "a", "b"], dtype=dtype))
    check([1.5, None, math.nan, 0.5], polars.Series([1.5, None, math.nan, 0.5]))
    dates = [datetime.date(2020, 1, 2), None, datetime.date(2020, 1, 1)]
    assert numbers_and_labels(polars.Series(dates))[0].tolist() == [1, -1, 0]
    codes, labels = numbers_and_labels(polars.Series([3, None, 0]))
    assert (codes.tolist(), labels) == ([3, -1, 0], None)
