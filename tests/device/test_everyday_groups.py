"""What newcomers give to `group_by`: nullable booleans of pandas, and nothing."""

from __future__ import annotations

import numpy as np
import pandas
import pytest

import clhist

pytestmark = pytest.mark.usefixtures("without_optimizer")


def test_nullable_booleans():
    keys = np.array([0, 1, 0, 2, 2])
    some = pandas.Series([True, None, False, None, True], dtype="boolean")
    found = clhist.group_by(keys).agg(x=(some, "count", "sum", "any", "all", "mean"))["x"]
    grouped = some.groupby(keys)
    for name in ("count", "sum", "any", "all"):
        np.testing.assert_array_equal(found[name], getattr(grouped, name)().to_numpy())
    np.testing.assert_array_equal(found["mean"], [0.5, np.nan, 1.0])
    every = pandas.Series([True, False, False, True, True], dtype="boolean")
    assert clhist.group_by(keys).max(every).tolist() == [True, False, True]


def test_no_keys():
    with pytest.raises(TypeError, match=r"keys: expected an array, got None; numpy.zeros"):
        clhist.group_by(None)
