"""Verbs on tables beside pandas and polars, as a table of the documentation.

    python -m benchmarks.tables [--sizes 10000 100000 1000000 10000000] [--rounds 5] [--only NAME ...]

Each cell is the time of the other library divided by that of clhist, the median of rounds in turn; clhist groups the
table of that library. polars uses as many threads as there are cores; set POLARS_MAX_THREADS for fewer.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import clhist

_KEYS = 1000


def tables(size: int) -> tuple[Any, Any]:
    """Return the same table of pandas and polars."""
    import pandas
    import polars

    rng = np.random.default_rng(size)
    names = np.array([f"zone {n}" for n in range(_KEYS)])
    number = rng.integers(0, _KEYS, size)
    frame = pandas.DataFrame(
        {
            "key": number,
            "zone": names[number],
            "hour": rng.integers(0, 24, size).astype(np.int8),
            "fare": rng.random(size),
            "seats": pandas.array(rng.integers(0, 9, size), dtype="Int64"),
            "time": np.datetime64("2026-01-01", "us")
            + rng.integers(0, 30 * 86400, size) * np.timedelta64(1000000, "us"),
        }
    )
    frame.loc[rng.random(size) < 0.1, "seats"] = pandas.NA
    return frame, polars.from_pandas(frame)


def verbs(frame: Any, lazy: Any) -> dict[str, tuple[Callable[[], Any], ...]]:
    """Return for each verb the calls of pandas, clhist on pandas, polars, clhist on polars."""
    import pandas
    import polars

    column = polars.col

    def agg(*keys: str, **columns: Any) -> tuple[Callable[[], Any], ...]:
        expressions = {
            "mean": lambda name: column(name).mean(),
            "sum": lambda name: column(name).sum(),
            "median": lambda name: column(name).median(),
            "q90": lambda name: column(name).quantile(0.9, "linear"),
            "nunique": lambda name: column(name).n_unique(),
            "first": lambda name: column(name).first(),
            "max": lambda name: column(name).max(),
        }
        of_polars = [expressions[way](name).alias(alias) for alias, (name, way) in columns.items()]
        if {way for _, way in columns.values()} == {"q90"}:
            (name,) = {name for name, _ in columns.values()}
            by_pandas = lambda: frame.groupby([*keys])[name].quantile(0.9)  # noqa: E731
        else:
            by_pandas = lambda: frame.groupby([*keys]).agg(**columns)  # noqa: E731
        return (
            by_pandas,
            lambda: clhist.group_by(frame, *keys).agg(**columns),
            lambda: lazy.group_by([*keys]).agg(of_polars).sort([*keys]),
            lambda: clhist.group_by(lazy, *keys).agg(**columns),
        )

    hour = clhist.date_part("time", "hour")
    fare_parts, fare = clhist.qcut("fare", 10), column("fare")
    tenths, labels = [n / 10 for n in range(1, 10)], [str(n) for n in range(10)]
    # `qcut` is deprecated in polars 2.1.
    parts = (getattr(fare, "bin_quantiles", None) or fare.qcut)(tenths, labels=labels)
    return {
        "mean": agg("key", x=("fare", "mean")),
        "five statistics": agg(
            "key", a=("fare", "mean"), b=("fare", "sum"), c=("fare", "max"), d=("seats", "sum"), e=("seats", "max")
        ),
        "mean, string keys": agg("zone", x=("fare", "mean")),
        "mean, two keys": agg("zone", "hour", x=("fare", "mean")),
        "median": agg("key", x=("fare", "median")),
        "quantile": agg("key", x=("fare", "q90")),
        "nunique": agg("key", x=("hour", "nunique")),
        "first of strings": agg("key", x=("zone", "first")),
        "mean of dates": agg("key", x=("time", "mean")),
        "value_counts": (
            lambda: frame["zone"].value_counts(),
            lambda: clhist.value_counts(frame, "zone"),
            lambda: lazy["zone"].value_counts(sort=True),
            lambda: clhist.value_counts(lazy, "zone"),
        ),
        "crosstab, mean": (
            lambda: frame.pivot_table("fare", "key", "hour", "mean"),
            lambda: clhist.crosstab(frame, "key", "hour", "fare", "mean"),
            lambda: lazy.pivot("hour", index="key", values="fare", aggregate_function="mean"),
            lambda: clhist.crosstab(lazy, "key", "hour", "fare", "mean"),
        ),
        "nlargest(3)": (
            lambda: frame.groupby("key")["fare"].nlargest(3),
            lambda: clhist.group_by(frame, "key").nlargest(3, "fare"),
            lambda: lazy.group_by("key").agg(column("fare").top_k(3)),
            lambda: clhist.group_by(lazy, "key").nlargest(3, "fare"),
        ),
        "hour of dates": (
            lambda: frame.groupby(frame["time"].dt.hour)["fare"].mean(),
            lambda: clhist.group_by(frame, hour).agg(x=("fare", "mean")),
            lambda: lazy.group_by(column("time").dt.hour()).agg(column("fare").mean()).sort("time"),
            lambda: clhist.group_by(lazy, hour).agg(x=("fare", "mean")),
        ),
        "qcut": (
            lambda: frame.groupby(pandas.qcut(frame["fare"], 10), observed=True)["fare"].mean(),
            lambda: clhist.group_by(frame, fare_parts).agg(x=("fare", "mean")),
            lambda: lazy.group_by(parts).agg(column("fare").mean().alias("x")),
            lambda: clhist.group_by(lazy, fare_parts).agg(x=("fare", "mean")),
        ),
        "transform": (
            lambda: frame.groupby("key")["fare"].transform("mean"),
            lambda: clhist.group_by(frame, "key").transform("fare", "mean"),
            lambda: lazy.select(column("fare").mean().over("key")),
            lambda: clhist.group_by(lazy, "key").transform("fare", "mean"),
        ),
    }


def ratios(calls: tuple[Callable[[], Any], ...], rounds: int) -> tuple[float, float]:
    """Return the times of pandas and polars, each divided by that of clhist."""
    seconds: list[list[float]] = [[] for _ in calls]
    for n in range(rounds + 1):
        for call, of_call in zip(calls, seconds, strict=True):
            start = time.perf_counter()
            call()
            if n:  # the first compiles
                of_call.append(time.perf_counter() - start)
    pandas_, ours, polars_, ours_of_polars = map(statistics.median, seconds)
    return pandas_ / ours, polars_ / ours_of_polars


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[10**4, 10**5, 10**6, 10**7])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=[])
    options = parser.parse_args()
    cells: dict[str, list[str]] = {}
    for size in options.sizes:
        for name, calls in verbs(*tables(size)).items():
            if not options.only or name in options.only:
                of_pandas, of_polars = ratios(calls, options.rounds)
                cells.setdefault(name, []).append(f"{of_pandas:.1f} / {of_polars:.1f}")
                print(f"{size} {name}: {cells[name][-1]}", file=sys.stderr, flush=True)
    print(f"| pandas / polars | {' | '.join(f'{size:,}' for size in options.sizes)} |")
    print(f"|---|{'---|' * len(options.sizes)}")
    for name, row in cells.items():
        print(f"| {name} | {' | '.join(row)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
