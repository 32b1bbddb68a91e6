"""`clhist bench --suite skew`: what happens when the bins are not uniform, with the race factor sampled and without."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks import suite as bench_suite
from benchmarks.inputs import DISTRIBUTIONS
from benchmarks.lab import Lab, Row
from benchmarks.operators import OPERATORS
from benchmarks.suite import Column, Panels, Request, Suite, times, weighted


def run(lab: Lab, request: Request) -> Iterator[tuple[str, list[Row]]]:
    """Yield two rows for each operator on each distribution, and compare them with those of the uniform one."""
    uniform: dict[tuple[Any, ...], Row] = {}  # unless that is left out, the first of the distributions
    for spec, group in request.problems(request.distributions):
        data = lab.input(spec, weighted=weighted(group))
        for benched in group:
            rows = []
            for sampled in (False, True):
                factor = "sample" if sampled else 1.0
                row = lab.measure(data, benched, race_factor=factor, update=benched.update)
                row |= {"is_sampled": sampled}
                first = uniform.setdefault((benched.name, spec.num_bins, sampled), row)
                for key in ("kernel", "call"):
                    if key in row and key in first:
                        row[f"{key}_per_uniform"] = row[key]["median"] / first[key]["median"]
                rows.append(row)
            yield f"{benched.name}, {spec.distribution}, H = {spec.num_bins:,}", rows


def panels(rows: list[Row]) -> Panels:
    """Return bars for each operator and number of bins."""
    drawn: Panels = {}
    for row in rows:
        if "kernel" in row:
            panel = drawn.setdefault(f"{row['op']}, H = {row['num_bins']:,}", {})
            label = "RF sampled" if row["is_sampled"] else "RF not given"
            panel.setdefault(label, []).append((row["distribution"], row["kernel"]["median"] * 1e6))
    return drawn


def _race_factor(row: Row) -> str:
    if not row["is_sampled"]:
        return "1"
    return f"sampled {row['plan']['race_factor']:.4g}" if "plan" in row else "-"


_COLUMNS: tuple[Column, ...] = (
    bench_suite.OP,
    bench_suite.BINS,
    bench_suite.DISTRIBUTION,
    ("RF", _race_factor),
    bench_suite.PLAN,
    *bench_suite.KERNEL,
    *bench_suite.CALL,
    bench_suite.KERNEL_FLOOR,
    bench_suite.CALL_FLOOR,
    ("kernel/uniform", lambda row: times(row, "kernel_per_uniform")),
    ("call/uniform", lambda row: times(row, "call_per_uniform")),
)

SUITE = Suite(
    operations=tuple(OPERATORS),
    default_operations=("count", "add", "argmax"),
    bins=(2041, 196607),
    race_factors=(),
    distributions=tuple(DISTRIBUTIONS),
    steps=lambda request: sum(len(group) for _, group in request.problems(request.distributions)),
    run=run,
    columns=_COLUMNS,
    panels=panels,
)
