"""Intervals of dates and durations as keys of tables, against pandas."""

from __future__ import annotations

from datetime import date, datetime, timedelta

import numpy as np
import pandas
import pytest
from trips import rows, tables, trips

import clhist

polars = pytest.importorskip("polars", reason="polars is not installed")
DAYS = pandas.to_datetime(["2026-01-01", "2026-01-03", "2026-01-04"])


@pytest.mark.parametrize("size", [60, 30_000])
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("kind", ["dates", "zone", "durations"])
@pytest.mark.parametrize("right", [True, False])
def test_intervals_of_dates(size, unit, kind, right):
    rng = np.random.default_rng(size)
    seconds = rng.integers(0, 4 * 86400, size) - 86400
    seconds[:40] = np.repeat(np.arange(-1, 3) * 86400, 10)  # at edges
    durations = pandas.Series(seconds.astype("m8[s]").astype(f"m8[{unit}]"), index=np.arange(size)[::-1] * 2, name="t")
    durations[durations.index[::7]] = pandas.NaT
    days = pandas.to_timedelta([-1, 0, 1, 2], unit="D")
    # Clocks of this zone skip an hour at 1:00 UTC.
    first = pandas.Timestamp("2026-03-29") if kind == "dates" else pandas.Timestamp("2026-03-29", tz="Europe/Berlin")
    column, edges = (durations, days) if kind == "durations" else (durations + first.as_unit(unit), first + days)
    frame = pandas.DataFrame({"t": column, "x": np.arange(size)})
    for bins in (edges, [*edges], edges[[1, 3]].to_series(), 5, 1):
        expected = pandas.cut(column, bins, right=right, include_lowest=True, labels=False)
        # Of given edges the last interval includes its right one, and of a number the first its left one.
        ends = column == (column.max() if isinstance(bins, int) else edges[3])
        expected = expected.where(right | ~ends, (bins if isinstance(bins, int) else len(bins) - 1) - 1)
        sums = frame.groupby(expected)["x"].sum()
        texts = [str(number) for number in range(5)][: bins if isinstance(bins, int) else len(bins) - 1]
        for library, table in tables(frame).items():
            # Polars has no seconds: even edges are rounded to milliseconds there.
            for labels in (None, texts) if library != "polars" or unit != "s" or not isinstance(bins, int) else ():
                key = clhist.cut("t", bins, right=right, labels=labels)
                found = clhist.group_by(table, key).agg(x=("x", "sum"))
                assert [row[-1] for row in rows(found, library)] == sums.tolist()
        if not isinstance(bins, int):
            found = clhist.group_by(frame, clhist.cut("t", bins, right=right)).size().index
            intervals = pandas.IntervalIndex.from_breaks(pandas.Index(bins), closed="right" if right else "left")
            assert [*found] == [*intervals]
            assert found.categories.dtype == intervals.dtype


@pytest.mark.parametrize("size", [3, 60, 30_000])
@pytest.mark.parametrize("q", [1, 4, [0, 0.1, 0.29, 0.9], [0.25, 0.75]])
def test_quantile_intervals_of_dates(size, q):
    frame = trips(size)
    frame["wall"] = frame["wall"].astype("M8[s]")
    frame["wait"] = frame["wall"] - frame["wall"].min()
    for column in ("time", "wall", "wait"):
        expected = pandas.qcut(frame[column], q, duplicates="drop")
        counts = expected.value_counts(sort=False)
        counts = counts[counts > 0]
        for library, table in tables(frame).items():
            found = rows(clhist.group_by(table, clhist.qcut(column, q)).size(), library)
            assert [row[1] for row in found] == counts.tolist()
            if library == "pandas":
                # The first edge of pandas is lower by a unit.
                assert [key.right for key, _ in found] == [key.right for key in counts.index]
    same = frame.assign(wall=np.datetime64("2026-01-01", "s"))
    assert clhist.group_by(same, clhist.qcut("wall", 3)).size()["size"].tolist() == [size]
    assert len(clhist.group_by(frame[:0], clhist.qcut("wall", 3)).size()) == 0


def test_texts_of_intervals_of_dates():
    seconds = pandas.Series(np.array([0, 90, 86400], "m8[s]"))
    frame = pandas.DataFrame({"d": seconds, "t": seconds + pandas.Timestamp("2026-03-29", tz="UTC")})
    frame["t"] = frame["t"].dt.tz_convert("Asia/Kolkata")
    edges = {
        "d": (timedelta(-1), timedelta(seconds=1.5), timedelta(2)),
        "t": tuple(pandas.Timestamp("2026-03-29", tz="UTC") + pandas.to_timedelta([-1, 60, 90_000], unit="s")),
    }
    texts = {
        "d": ["(-1 days 00:00:00.000000, 0 days 00:00:01.500000]", "(0 days 00:00:01.500000, 2 days 00:00:00.000000]"],
        "t": [
            "(2026-03-29 05:29:59+05:30, 2026-03-29 05:31:00+05:30]",
            "(2026-03-29 05:31:00+05:30, 2026-03-30 06:30:00+05:30]",
        ],
    }
    for library, table in tables(frame).items():
        for name, bins in edges.items():
            found = rows(clhist.group_by(table, clhist.cut(name, bins)).size(), library)
            assert [number for _, number in found] == [1, 2]
            if library != "pandas":
                assert [key.replace(".000000+", "+") for key, _ in found] == texts[name]
    days = polars.DataFrame({"day": [date(2026, 1, 1), date(2026, 1, 5), None]})
    for library, table in {"polars": days, "pyarrow": days.to_arrow()}.items():
        for bins in (
            [date(2025, 12, 31), date(2026, 1, 1), date(9999, 1, 1)],
            ["2025-12-31", "2026-01-01", "9999-01-01"],
        ):
            found = rows(clhist.value_counts(table, clhist.cut("day", bins), sort=False), library)
            assert found == [("(2025-12-31, 2026-01-01]", 1), ("(2026-01-01, 9999-01-01]", 1)]
        found = rows(clhist.group_by(table, clhist.cut("day", 2)).size(), library)
        assert found == [("(2026-01-01, 2026-01-03]", 1), ("(2026-01-03, 2026-01-05]", 1)]


def test_edges_of_dates_between_ticks():
    # A column of seconds, and edges between them or beyond the range of its unit.
    for unit in ("s", "ns"):
        frame = pandas.DataFrame({"t": np.array([0, 1, 2, 3, "NaT"], "M8[s]").astype(f"M8[{unit}]")})
        halves = np.array([500, 2500, 2600], "M8[ms]")
        for right in (True, False):
            assert clhist.group_by(frame, clhist.cut("t", halves, right=right)).size()["size"].tolist() == [2]
        sentinels = [datetime(1, 1, 1), datetime(1970, 1, 1, 0, 0, 1), datetime.max]
        expected = pandas.cut(frame["t"], sentinels)
        found = clhist.group_by(frame, clhist.cut("t", sentinels)).size()
        assert [*found.index] == [*expected.cat.categories]
        assert found["size"].tolist() == expected.value_counts(sort=False).tolist()
    months = np.array(["1970-01", "1970-02"], "M8[M]")
    assert clhist.group_by(frame, clhist.cut("t", months)).size()["size"].tolist() == [4]


def test_intervals_of_other_dates():
    frame = pandas.DataFrame({"t": [date(2026, 1, 1), date(2026, 1, 2), None], "x": [1, 2, 3]})
    for column in (
        frame["t"],
        frame["t"].astype("date32[pyarrow]"),
        pandas.to_datetime(frame["t"]).astype("timestamp[ns][pyarrow]"),
    ):
        found = clhist.group_by(frame.assign(t=column), clhist.cut("t", DAYS)).size()
        assert [*found.index] == [pandas.Interval(*DAYS[:2])]
        assert found["size"].tolist() == [2]
    zoned = pandas.to_datetime(frame["t"]).dt.tz_localize("UTC").astype("timestamp[us, UTC][pyarrow]")
    table = clhist.crosstab(frame.assign(t=zoned), clhist.cut("t", 2), "x", "x", "sum", margins=True)
    assert table["All"].tolist() == [1, 2, 3]
    empty = frame.assign(t=pandas.Series([pandas.NaT] * 3))
    assert len(clhist.group_by(empty, clhist.cut("t", 2)).size()) == 0
