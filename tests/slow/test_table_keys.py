"""Keys that are computed from columns of tables, and statistics by weight, place and combination."""

from __future__ import annotations

import pickle
from datetime import date, datetime, timedelta

import numpy as np
import pandas
import pyarrow
import pytest
from pandas.testing import assert_frame_equal
from trips import rows, tables, trips

import clhist

polars = pytest.importorskip("polars", reason="polars is not installed")


@pytest.mark.parametrize("size", [60, 30_000])
def test_intervals(size):
    frame = trips(size)
    frame.index = frame.index[::-1] * 2
    fares = pandas.cut(frame["fare"], [0, 2.5, 5, 9], include_lowest=True).cat.codes
    expected = frame["weight"].groupby(fares.where(fares >= 0)).agg(["size", "sum"])
    found = clhist.group_by(frame, clhist.cut("fare", [0, 2.5, 5, 9])).agg(n="size", total=("weight", "sum"))
    assert found.index.name == "fare"
    assert [*map(str, found.index)] == ["(0.0, 2.5]", "(2.5, 5.0]", "(5.0, 9.0]"]
    np.testing.assert_allclose(found.to_numpy(), expected.to_numpy(), rtol=1e-12)
    left = clhist.group_by(frame, clhist.cut("fare", [0, 2.5, 5, 9], right=False, name="level")).size()
    assert left["size"].tolist() == np.histogram(frame["fare"].dropna(), [0, 2.5, 5, 9])[0].tolist()
    equal = pandas.qcut(frame["seats"].astype("Float64").astype(float), 3).value_counts(sort=False).tolist()
    for library, table in tables(frame).items():
        counts = clhist.group_by(table, clhist.qcut("seats", 3, labels=["low", "some", "many"]), "zone").size()
        counts = rows(counts, library)
        assert [sum(n for key, _, n in counts if key == label) for label in ("low", "some", "many")] == equal
        same = clhist.value_counts(table, clhist.cut("weight", 4), sort=False)
        assert [row[-1] for row in rows(same, library)] == np.histogram(frame["weight"], 4)[0].tolist()


@pytest.mark.parametrize("values", [[], [5.0], [5.0, 5.0], [np.nan]])
def test_few_values(values):
    frame = pandas.DataFrame({"x": np.array(values, float), "y": np.arange(len(values))})
    number = len([x for x in values if x == x])
    for key in (clhist.cut("x", 3), clhist.qcut("x", 3), clhist.cut("x", [5, 6]), clhist.cut("x", [4, 5], right=False)):
        for library, table in tables(frame).items():
            assert [row[-1] for row in rows(clhist.group_by(table, key).size(), library)] == [number] * (number > 0)


@pytest.mark.parametrize("size", [200, 20_000])
def test_dates(size):
    frame = trips(size)
    clocks = {"time": frame["time"], "wall": frame["wall"]}
    for library, table in tables(frame).items():
        for column, dates in clocks.items():
            parts = {
                "hour": dates.dt.hour,
                "weekday": dates.dt.day_of_week,
                "month": dates.dt.month,
                "day": dates.dt.day,
            }
            for part, expected in (parts | {"week": dates.dt.isocalendar().week.astype(float)}).items():
                found = rows(clhist.group_by(table, clhist.date_part(column, part)).size(), library)
                assert found == [*expected.dropna().value_counts().sort_index().items()]
    truncated = tables(frame)["polars"]
    for width, same in (("15min", "15m"), ("1h", "1h"), ("1D", "1d"), ("1W", "1w")):
        for column in clocks:
            every = truncated.select(polars.col(column).dt.truncate(same)).drop_nulls()
            expected = rows(every.group_by(column).len().sort(column), "polars")
            for library, table in tables(frame).items():
                found = clhist.group_by(table, clhist.date_bin(column, width)).size()
                assert [(key.isoformat(), n) for key, n in rows(found, library)] == [
                    (key.isoformat(), n) for key, n in expected
                ]
    origin = frame["wall"].min().normalize()
    resampled = frame.resample("5h", on="wall", origin=origin).size()
    found = clhist.group_by(frame, clhist.date_bin("wall", np.timedelta64(5, "h"), origin=origin)).size("n")["n"]
    assert found.to_dict() == resampled[resampled > 0].to_dict()


def test_dates_without_time():
    days = np.datetime64("2026-01-01") + np.array([0, 3, 4, 11])
    table = pyarrow.table({"day": pyarrow.array(days)})
    for each, library in ((table, "pyarrow"), (polars.from_arrow(table), "polars")):
        found = rows(clhist.group_by(each, clhist.date_bin("day", "1W")).size(), library)
        assert [(key.day, n) for key, n in found] == [(29, 2), (5, 1), (12, 1)]


def test_durations():
    minutes = np.array([0, 14, 15, -1, 44, 45, 7]) * 60
    durations = minutes.astype("m8[s]")
    durations[6] = "NaT"
    frame = pandas.DataFrame({"d": durations})
    for library, table in tables(frame).items():
        found = rows(clhist.group_by(table, clhist.date_bin("d", "15min")).size(), library)
        assert [(key.total_seconds() / 60, n) for key, n in found] == [(-15, 1), (0, 2), (15, 1), (30, 1), (45, 1)]
        for origin in (timedelta(minutes=44), np.timedelta64(44, "m"), pandas.Timedelta(44, "min")):
            found = rows(
                clhist.group_by(table, clhist.date_bin("d", timedelta(hours=1), origin=origin)).size(), library
            )
            assert [(key.total_seconds() / 60, n) for key, n in found] == [(-16, 4), (44, 2)]
        with pytest.raises(TypeError, match=r"^origin: expected a duration, as the column has, got"):
            clhist.group_by(table, clhist.date_bin("d", "15min", origin="2026-01-01"))
        with pytest.raises(TypeError, match=r"^column: expected dates, got"):
            clhist.group_by(table, clhist.date_part("d", "hour"))


def test_origins_finer_than_the_column():
    seconds = np.array(["2026-01-05T08:30:00", "2026-01-05T08:31:00"], "M8[s]")
    frame, fine = pandas.DataFrame({"t": seconds}), pandas.DataFrame({"t": seconds.astype("M8[ns]")})
    origin = pandas.Timestamp("2026-01-05T08:30:00.000000900")
    message = r"^origin: expected a multiple of the unit of the column, s, got 2026-01-05T08:30:00\.000000900$"
    for given in (origin, origin.to_datetime64()):
        with pytest.raises(ValueError, match=message):
            clhist.group_by(frame, clhist.date_bin("t", "1h", origin=given))
        keys = clhist.group_by(fine, clhist.date_bin("t", "1h", origin=given)).size().index
        assert keys.tolist() == [origin - pandas.Timedelta("1h"), origin]
    with pytest.raises(ValueError, match=r"^origin: expected a multiple of the unit of the column, s, got NaT$"):
        clhist.group_by(frame, clhist.date_bin("t", "1h", origin=np.datetime64("NaT")))
    zoned = fine["t"].dt.tz_localize("Europe/Oslo")
    keys = clhist.group_by(zoned.to_frame(), clhist.date_bin("t", "1h", origin=origin.tz_localize("Europe/Oslo")))
    assert keys.size().index.tz_localize(None).tolist() == [origin - pandas.Timedelta("1h"), origin]
    durations = pandas.DataFrame({"d": np.array([5, 70], "m8[ns]")})
    keys = clhist.group_by(durations, clhist.date_bin("d", np.timedelta64(60, "ns"), origin=pandas.Timedelta(7, "ns")))
    assert keys.size().index.tolist() == [pandas.Timedelta(-53, "ns"), pandas.Timedelta(67, "ns")]


@pytest.mark.parametrize("clock", [date.fromisoformat, datetime.fromisoformat])
def test_dates_of_python(clock):
    days = [clock(text) for text in ("2026-01-01", "2026-01-04", "2026-01-05", "2026-01-12")] + [None]
    frame = pandas.DataFrame({"day": np.array(days, object)})
    found = clhist.group_by(frame, clhist.date_bin("day", "1W")).size()
    assert found["size"].tolist() == [2, 1, 1]
    assert found.index.equals(pandas.DatetimeIndex(["2025-12-29", "2026-01-05", "2026-01-12"], name="day"))
    assert clhist.value_counts(frame, clhist.date_part("day", "weekday"))["count"].to_dict() == {0: 2, 3: 1, 6: 1}


# Clocks that change by an hour, by half an hour, and at midnight.
@pytest.mark.parametrize("zone", ["Europe/Oslo", "Australia/Lord_Howe", "America/Havana"])
def test_dates_where_clocks_change(zone):
    instants = np.arange("2024-01-01", "2025-01-01", np.timedelta64(15, "m"), dtype="M8[us]")
    dates = polars.Series("time", instants).dt.replace_time_zone("UTC").dt.convert_time_zone(zone)
    of_arrow = pandas.Series(dates.to_arrow().to_pandas(), name="time").astype(pandas.ArrowDtype(dates.to_arrow().type))
    frames = [*tables(pandas.DataFrame({"time": dates.to_pandas()})).items(), ("pandas", of_arrow.to_frame())]
    for width in ("30m", "1h", "90m", "3h", "6h", *(["1d"] if zone != "America/Havana" else [])):
        begins = dates.dt.truncate(width).value_counts(sort=False).sort("time")
        expected = [(begin.timestamp(), n) for begin, n in begins.rows()]
        for library, table in frames:
            found = rows(clhist.group_by(table, clhist.date_bin("time", width.replace("m", "min"))).size(), library)
            assert [(key.timestamp(), n) for key, n in found] == expected, (width, library)
    if zone == "America/Havana":  # whose clocks show the midnight of one day twice, and skip that of another
        for library, table in frames:
            found = rows(clhist.group_by(table, clhist.date_bin("time", "1D")).size(), library)
            days = pandas.Series(dates.to_pandas().dt.date).value_counts(sort=False)
            assert [(key.date(), n) for key, n in found] == [*days.sort_index().items()], library


def test_an_origin_with_a_time_zone():
    dates = pandas.to_datetime(["2024-06-01 00:30", "2024-06-01 23:30"]).tz_localize("Europe/Oslo")
    midnight = pandas.Timestamp("2024-06-01", tz="Europe/Oslo")
    for origin in (midnight, midnight.tz_convert("UTC"), "2024-05-31 22:00+00:00", "2024-06-01", "2024-06"):
        for library, table in tables(pandas.DataFrame({"time": dates})).items():
            ((key, n),) = rows(clhist.group_by(table, clhist.date_bin("time", "1D", origin=origin)).size(), library)
            assert (key.timestamp(), n) == (midnight.timestamp(), 2)
    without = pandas.DataFrame({"time": dates.tz_localize(None)})
    with pytest.raises(TypeError, match="origin: expected a date without time zone"):
        clhist.group_by(without, clhist.date_bin("time", "1D", origin=midnight))


def test_keys_can_be_pickled():
    frame = pandas.DataFrame({"x": [1.0, 2, 3], "time": pandas.date_range("2026", periods=3, freq="h")})
    for key in (
        clhist.cut("x", [0, 1.5, 4], labels=["a", "b"]),
        clhist.qcut("x", 2),
        clhist.date_part("time", "hour"),
        clhist.date_bin("time", "2h"),
    ):
        same = pickle.loads(pickle.dumps(key))
        assert_frame_equal(clhist.group_by(frame, same).size(), clhist.group_by(frame, key).size())


@pytest.mark.parametrize("size", [60, 30_000])
def test_places(size):
    frame = trips(size)
    place = frame.groupby("zone").size().sort_values().iloc[1]
    names = {"first": 0, "third": 2, "last_but_one": -2, "not_all": int(place)}
    asked = {
        f"{name}_{column}": (column, f"nth{n}") for name, n in names.items() for column in ("seats", "time", "weight")
    }
    for library, table in tables(frame).items():
        found = clhist.group_by(table, "zone").agg(**asked)
        expected = []
        for zone, part in frame.groupby("zone"):
            picks = [
                part[column].iloc[n : n + 1 or None] for n in names.values() for column in ("seats", "time", "weight")
            ]
            picks = [each.iloc[0] if len(each) else None for each in picks]
            expected.append((zone, *(None if pandas.isna(each) else each for each in picks)))
        found = [tuple(None if each != each else each for each in row) for row in rows(found, library)]
        assert found == expected


@pytest.mark.parametrize("size", [60, 30_000])
def test_combinations_of_columns(size):
    frame = trips(size)
    expected = (
        frame.dropna(subset=["seats", "fare"])
        .groupby("zone")
        .apply(lambda part: len(part[["seats", "fare"]].drop_duplicates()))
    )
    for library, table in tables(frame.astype({"fare": "Float64"})).items():
        found = clhist.group_by(table, "zone").agg(pairs=(["seats", "fare"], "nunique"), seats=("seats", "nunique"))
        assert [row[1] for row in rows(found, library)] == expected.tolist()
        assert [row[2] for row in rows(found, library)] == frame.groupby("zone")["seats"].nunique().tolist()


def test_weights():
    frame = trips(500)
    for library, table in tables(frame.dropna()).items():
        found = clhist.group_by(table, "zone").agg(
            weights="weight", min_count=3, mean=("fare", "mean"), mid=("fare", "median"), q=("seats", "q90"), n="size"
        )
        for (zone, *results), (_, part) in zip(rows(found, library), frame.dropna().groupby("zone"), strict=True):
            fares, seats, weights = part["fare"].to_numpy(), part["seats"].to_numpy(float), part["weight"].to_numpy()
            mid = np.quantile(fares, 0.5, method="inverted_cdf", weights=weights)
            q = np.quantile(seats, 0.9, method="inverted_cdf", weights=weights)
            assert results[1:] == [mid, q, len(part)], zone
            assert results[0] == pytest.approx(np.average(fares, weights=weights), rel=1e-12)


def weighted(x, w, ddof):
    """Return the sum, variance and deviation of values by weights of reliability, by NumPy."""
    # Differences from a value near the mean, so that the reference does not cancel either.
    variance = float(np.cov(x - x[0], aweights=w, ddof=ddof)) if (w != 0).sum() > ddof else np.nan
    return (x * w).sum(), variance, np.sqrt(variance)


@pytest.mark.parametrize("ddof", [0, 1])
@pytest.mark.parametrize("size", [60, 30_000])
@pytest.mark.parametrize("column", ["fare", "seats", "offset"])
def test_weighted_statistics(ddof, size, column):
    frame = trips(size)
    frame["k"] = np.arange(size) % min(size // 3, 300)
    frame["offset"] = 1e9 + frame["weight"] / 7
    frame.loc[::5, "weight"] = 0
    frame.loc[::17, "weight"] = np.nan
    names = ("sum", "var", "std", "count", "mean")
    for library, table in tables(frame.drop(columns=["time", "wall"])).items():
        found = clhist.group_by(table, "k").agg(weights="weight", ddof=ddof, x=(column, *names))
        present = frame[frame[column].notna() & frame["weight"].notna()]
        parts = dict(iter(present.groupby("k")))
        for key, total, variance, deviation, count, mean in rows(found, library):
            part = parts.get(key, present[:0])
            x, w = part[column].to_numpy(float), part["weight"].to_numpy()
            assert count == frame[column][frame["k"] == key].count()
            if not w.any():
                assert total == 0
                assert all(one is None or one != one for one in (variance, deviation, mean))
                continue
            expected = weighted(x, w, ddof)
            if expected[1] != expected[1]:
                assert (total, variance, deviation) == (pytest.approx(expected[0], rel=1e-12), None, None)
            else:
                assert (total, variance, deviation) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_weighted_statistics_of_nan():
    nan, inf = float("nan"), float("inf")
    frame = pandas.DataFrame({"k": [0, 0, 1, 1, 2], "x": [1.0, nan, 3.0, inf, 2.0], "w": [2.0, 1.0, 1.0, 0.0, 1.0]})
    names = ("sum", "mean", "var")
    skipped = clhist.group_by(frame, "k").agg(weights="w", x=("x", *names)).to_numpy()
    np.testing.assert_array_equal(skipped, [[2, 1, 0], [nan, nan, nan], [2, 2, 0]])
    propagated = clhist.group_by(frame, "k").agg(weights="w", skipna=False, x=("x", *names)).to_numpy()
    np.testing.assert_array_equal(propagated, [[nan] * 3, [nan] * 3, [2, 2, 0]])
    # NaN of polars is a value, null is none.
    table = polars.DataFrame({"k": [0, 0, 1, 1, 2], "x": [1.0, nan, 3.0, None, None], "w": [2.0, 1.0, 1.0, 0.5, 1.0]})
    found = clhist.group_by(table, "k").agg(weights="w", x=("x", *names))
    assert [*map(str, rows(found, "polars"))] == ["(0, nan, nan, nan)", "(1, 3.0, 3.0, 0.0)", "(2, 0.0, None, None)"]
    found = clhist.group_by(table, "k").agg(weights="w", skipna=False, x=("x", *names))
    assert [row[1:] for row in rows(found, "polars")[1:]] == [(None, None, None)] * 2


def test_weighted_statistics_are_reproducible():
    frame = trips(20_000)
    options = {"weights": "weight", "reproducible": True, "x": ("fare", "sum", "mean", "var")}
    found = clhist.group_by(frame, "zone").agg(**options)
    again = clhist.group_by(frame[::-1].reset_index(drop=True), "zone").agg(**options)
    assert_frame_equal(found, again, check_exact=True)
    singles = frame.astype({"fare": "f4", "weight": "f4"})
    found = clhist.group_by(singles, "zone").agg(weights="weight", x=("fare", "sum", "var", "mean"))
    assert {*found.dtypes} == {np.dtype(np.float32)}


def test_dates_with_a_time_zone_that_are_missing():
    frame = trips(300).assign(k=np.arange(300) // 4)
    for library, table in tables(frame).items():
        groups = clhist.group_by(table, "k")
        found = rows(
            groups.agg(min_count=4, latest=("time", "max"), mean=("time", "mean"), mid=("time", "q50")), library
        )
        count = frame.groupby("k")["time"].count()
        assert [row[1:] == (None,) * 3 for row in found] == (count < 4).tolist()
        cells = clhist.crosstab(table, "k", "zone", "time", "max", margins=True)
        expected = frame.pivot_table("time", "k", "zone", "max", dropna=False)
        cells = rows(cells, library)
        assert [row[1:4] for row in cells[:-1]] == [
            tuple(None if pandas.isna(each) else each for each in row) for row in expected.to_numpy()
        ]
        assert cells[-1][4] == frame["time"].max()


def test_bins_of_values_with_nan():
    frame = pandas.DataFrame({"x": [0.0, np.nan, 1.0, 4.0]})
    assert clhist.value_counts(frame, "x", bins=2, sort=False)["count"].tolist() == [2, 1]


FRAME = pandas.DataFrame(
    {"x": [1.0, 2.0], "zone": ["a", "b"], "time": pandas.to_datetime(["2026-01-01", "2026-01-02"])}
)


DAYS = pandas.to_datetime(["2026-01-01", "2026-01-03", "2026-01-04"])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: clhist.cut("x", [2, 1]), ValueError, "bins: expected a number of intervals, or at least two incr"),
        (
            lambda: clhist.cut("x", np.array([2, 1], "u1")),
            ValueError,
            "bins: expected a number of intervals, or at least",
        ),
        (
            lambda: clhist.cut("x", [None, 1]),
            TypeError,
            "bins: expected edges that are numbers, dates or durations, got",
        ),
        (
            lambda: clhist.cut("x", pandas.interval_range(0, 3)),
            TypeError,
            "bins: expected edges that are numbers, dates",
        ),
        (lambda: clhist.cut("x", pandas.array([0, None], "Int64")), ValueError, "bins: expected edges without missing"),
        (
            lambda: clhist.value_counts(FRAME, "time", bins=3),
            TypeError,
            "bins: expected none.*clhist.cut makes keys of d",
        ),
        (lambda: clhist.cut("x", 0), ValueError, "bins: expected at least one interval, got 0"),
        (lambda: clhist.qcut("x", [0.5, 2]), ValueError, "q: expected a positive number of parts"),
        (lambda: clhist.qcut("x", ["a"]), TypeError, "q: expected a positive number of parts"),
        (lambda: clhist.date_part("time", "hours"), ValueError, "part: expected one of year, quarter"),
        (lambda: clhist.cut("x", [0, 1, 2], labels=["a", "a"]), ValueError, "labels: expected texts that differ"),
        *(
            (lambda labels=labels: clhist.qcut("x", 2, labels=labels), TypeError, "labels: expected a sequence of")
            for labels in ("ab", False, 0, [1, 2], iter("ab"))
        ),
        (lambda: clhist.date_bin("time", "1month"), ValueError, "width: .* clhist.date_part"),
        (lambda: clhist.date_bin("time", -5), ValueError, "width: expected a positive duration"),
        (lambda: clhist.date_bin("time", "1h", origin="monday"), TypeError, "origin: expected a date"),
        (lambda: clhist.group_by(FRAME, clhist.cut("y", 2)), KeyError, "expected a column of the table, got 'y'"),
        (lambda: clhist.group_by(FRAME, clhist.cut("zone", 2)), TypeError, "expected a column of numbers"),
        (lambda: clhist.group_by(FRAME, clhist.cut("time", [1, 2])), TypeError, "bins: expected dates .* got numbers"),
        (
            lambda: clhist.group_by(FRAME, clhist.cut("x", DAYS)),
            TypeError,
            "bins: expected numbers as edges.* got dates",
        ),
        (
            lambda: clhist.group_by(FRAME, clhist.cut("time", DAYS - DAYS[0])),
            TypeError,
            "dates as edges.*got durations",
        ),
        (
            lambda: clhist.group_by(FRAME, clhist.cut("time", DAYS.tz_localize("UTC"))),
            TypeError,
            "bins: expected dates without time zone, as those of the column are",
        ),
        (
            lambda: clhist.cut("time", DAYS[::-1]),
            ValueError,
            "bins: expected a number of intervals, or at least two incr",
        ),
        (lambda: clhist.cut("time", [DAYS[0], pandas.NaT]), ValueError, "bins: expected increasing edges, got NaT"),
        (
            lambda: clhist.cut("time", [DAYS[0], timedelta(1)]),
            TypeError,
            "bins: expected dates with a time zone, dates",
        ),
        (lambda: clhist.cut("time", ["a", "b"]), TypeError, "bins: expected a date or a timedelta, got 'a'"),
        (
            lambda: clhist.group_by(FRAME.astype({"time": "M8[s]"})[:1], clhist.cut("time", 3)),
            ValueError,
            "bins: expected at most 2 intervals of dates in units of s, got 3",
        ),
        (lambda: clhist.group_by(FRAME, clhist.cut("x", 2, labels=["a"])), ValueError, "labels: expected 2"),
        (lambda: clhist.group_by(FRAME, clhist.date_bin("x", "1h")), TypeError, "expected dates or durations, got flo"),
        (
            lambda: clhist.group_by(FRAME, clhist.date_bin("time", "1h", origin=timedelta(1))),
            TypeError,
            "a date, as the",
        ),
        (lambda: clhist.group_by(FRAME, clhist.date_part("zone", "hour")), TypeError, "column: expected dates"),
        (lambda: clhist.group_by(FRAME, "zone").agg(s=("x", "min"), weights="x"), TypeError, "with weights, got 'min'"),
        *(
            (
                lambda values=values, weights=weights, statistics=statistics: clhist.group_by(FRAME, "zone").agg(
                    s=(values, *statistics), weights=weights
                ),
                TypeError,
                f"^{name}: expected real numbers with weights, got datetime64\\[us\\]$",
            )
            for name, values, weights in (("s", "time", "x"), ("weights", "x", "time"))
            for statistics in (["sum"], ["mean", "size"], ["median"], ["q90"])
        ),
        (
            lambda: clhist.group_by(FRAME, "zone").agg(s=("x", "q90"), weights="x", reproducible=True),
            TypeError,
            "s: expected reproducible=False of 'q90' with weights",
        ),
        (lambda: clhist.group_by(FRAME, "zone").agg(s=(["x", "time"], "mean")), TypeError, "expected 'nunique' of sev"),
        (lambda: clhist.group_by(FRAME, "zone").agg(s=("x", "mean"), weights="w"), KeyError, "weights: expected a col"),
    ],
)
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_counts_of_text():
    frame = pandas.DataFrame({"a": [1, 2, 2], "b": pandas.array([None] * 3, dtype="str"), "c": ["x", None, None]})
    frame["d"] = frame["c"].astype("category")
    asked = {name: (name, "count") for name in "bcd"}
    assert_frame_equal(clhist.group_by(frame, "a").agg(**asked), frame.groupby("a").agg(**asked))


def test_names():
    key = clhist.date_part(FRAME["time"], "day")
    expected = pandas.DataFrame({"size": [1, 1]}, index=pandas.Index([1, 2], name="day", dtype="int32"))
    assert_frame_equal(clhist.group_by(FRAME, key).size(), expected)
    assert clhist.crosstab(FRAME, clhist.cut("x", 1, name="level"), key).index.name == "level"
