"""The default suite of `clhist bench`: a table of operators and numbers of bins."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import suite as bench_suite
from benchmarks.lab import Lab, Row
from benchmarks.operators import OPERATORS
from benchmarks.suite import Panels, Request, Suite, op_text, weighted


def run(lab: Lab, request: Request) -> Iterator[tuple[str, list[Row]]]:
    """Yield a row for each operator on each input, with the automatic plan, which gets the race factor, or all."""
    for spec, group in request.problems(request.distributions):
        data = lab.input(spec, weighted=weighted(group))
        for benched in group:
            factor = float(spec.race_factor)
            ways = lab.ways(spec, benched, race_factor=factor) if request.all_plans else [{"update": benched.update}]
            rows = [lab.measure(data, benched, race_factor=factor, **way) for way in ways]
            yield f"{benched.name}, H = {spec.num_bins:,}", rows


def panels(rows: list[Row]) -> Panels:
    """Return the kernels' times by the number of bins, a panel for each race factor, and F."""
    drawn: Panels = {}
    for row in rows:
        if "kernel" in row:
            panel = drawn.setdefault(f"RF {row['race_factor']}", {})
            panel.setdefault(op_text(row), []).append((row["num_bins"], row["kernel"]["median"] * 1e6))
            floor = f"F of {row['bytes'] / 1e6:,.4g} MB"
            panel.setdefault(floor, []).append((row["num_bins"], row["floor"]["median"] * 1e6))
    return drawn


SUITE = Suite(
    operations=tuple(OPERATORS),
    default_operations=("count", "add", "sat", "argmax", "lock"),
    bins=(31, 2041, 24569, 196607, 1572863),
    race_factors=(1,),
    distributions=("uniform",),
    has_all_plans=True,
    of_rows=("add", "maximum"),
    steps=bench_suite.steps,
    run=run,
    columns=(
        bench_suite.BINS,
        bench_suite.OP,
        bench_suite.DISTRIBUTION,
        bench_suite.RACE_FACTOR,
        bench_suite.PLAN,
        *bench_suite.KERNEL,
        *bench_suite.CALL,
        bench_suite.KERNEL_FLOOR,
        bench_suite.CALL_FLOOR,
        bench_suite.RATE,
    ),
    panels=panels,
)
