"""A table of trips in pandas, polars and PyArrow, and the rows of its results."""

from __future__ import annotations

import numpy as np
import pandas
import pyarrow
import pytest

polars = pytest.importorskip("polars", reason="polars is not installed")


def trips(size):
    """Return a table of pandas, with hours in which the clocks change in Oslo."""
    rng = np.random.default_rng(size)
    minutes = rng.integers(0, 5 * 24 * 60, size)
    begin = np.where(rng.random(size) < 0.5, np.datetime64("2026-03-27T00:00"), np.datetime64("2026-10-23T00:00"))
    time = pandas.Series((begin + minutes).astype("M8[us]"))
    frame = pandas.DataFrame(
        {
            "zone": rng.choice(["b", "a", "c"], size),
            "fare": rng.integers(0, 40, size) / 4,
            "weight": rng.random(size),
            "seats": pandas.array(rng.integers(0, 9, size), dtype="Int32"),
            "time": time.dt.tz_localize("UTC").dt.tz_convert("Europe/Oslo"),
            "wall": time,
        }
    )
    frame.loc[::7, "seats"] = pandas.NA
    frame.loc[::11, ["time", "wall"]] = pandas.NaT
    frame.loc[::13, "fare"] = np.nan
    return frame


def tables(frame):
    arrow = pyarrow.Table.from_pandas(frame, preserve_index=False)
    return {"pandas": frame, "polars": polars.from_arrow(arrow), "pyarrow": arrow}


def rows(table, by="pandas"):
    """Return the rows of a result as tuples, keys of pandas first."""
    if by == "pandas":
        columns = [table.index.get_level_values(n) for n in range(table.index.nlevels)]
        columns += [table[name] for name in table]
        return [tuple(None if pandas.isna(each) else each for each in row) for row in zip(*columns, strict=True)]
    elif by == "polars":
        table = table.to_arrow()
    return [*zip(*(column.to_pylist() for column in table.columns), strict=True)]
