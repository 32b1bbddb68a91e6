"""`clhist bench --suite model`: the automatic plan against fixed numbers of copies (SC'20, Fig. 7)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import inf
from typing import Any

from benchmarks import suite as bench_suite
from benchmarks.inputs import Input
from benchmarks.lab import Lab, Row
from benchmarks.operators import OPERATORS, Benched
from benchmarks.suite import PAPER_BINS, Column, Panels, Request, Suite, microseconds, weighted
from clhist import Plan
from clhist._core.devices.vendors import MEMORIES

_MOST_PASSES = 12  # of the plan in local memory: as in Table I of the paper
_LONGEST = 0.5  # seconds of a call
_HOPELESS = 4  # times the best: more copies would be slower still


def run(lab: Lab, request: Request) -> Iterator[tuple[str, list[Row]]]:
    """Yield the cases of each operator on each input: one for each memory, with the race factor given to the model."""
    for spec, group in request.problems():
        data = lab.input(spec, weighted=weighted(group))
        for benched in group:
            cases = (_case(lab, data, benched, memory) for memory in MEMORIES)
            yield f"{benched.model_update}, H = {spec.num_bins:,}", [case for case in cases if case]


def _case(lab: Lab, data: Input, benched: Benched, memory: str) -> Row | None:
    """Return the automatic plan in one memory with the fixed ones beside it; None if this memory cannot have it."""
    size, bins = data.spec.num_elements, data.spec.num_bins
    choices: dict[str, Any] = {"update": benched.model_update, "race_factor": float(data.spec.race_factor)}

    def plan(**more: Any) -> Plan | None:
        try:
            return lab.kernel(benched).plan(size, bins, queue=lab.queue, **choices, **more)
        except (ValueError, MemoryError):  # what is forced does not fit
            return None

    automatic = plan(memory=memory)
    if automatic is None or (memory == "local" and automatic.passes > _MOST_PASSES):
        return None
    measure = partial(lab.measure, data, benched, calls=False, longest=_LONGEST, **choices)
    row = measure(memory=memory)
    fixed: list[Row] = []
    best = inf
    for copies in (1 << k for k in range(32)):
        # As in the paper: in global memory in one pass, in local memory as many copies as one pass has room for.
        forced: dict[str, Any] = {"memory": memory, "copies": copies} | ({"passes": 1} if memory == "global" else {})
        candidate = plan(**forced)
        if candidate is None or candidate.copies < copies or (copies > 1 and candidate.passes > 1):
            break
        same = (candidate.copies, candidate.passes) == (automatic.copies, automatic.passes)
        fixed.append(row if same else measure(**forced))
        seconds = fixed[-1]["kernel"]["median"] if "kernel" in fixed[-1] else inf
        best = min(best, seconds)
        if _HOPELESS * best < seconds < inf:
            break
    free = plan()
    row = row | {"update": benched.model_update, "fixed": fixed, "is_taken": free is not None and free.memory == memory}
    timed = [one for one in fixed if "kernel" in one]
    if timed and "kernel" in row:
        row["best"] = min(timed, key=lambda one: one["kernel"]["median"])
        row["behind"] = row["kernel"]["median"] / best - 1
    failed = [one["note"] for one in fixed if "failed" in one]
    return row | ({"failed": True, "note": f"M fixed: {failed[0]}"} if failed and "failed" not in row else {})


def summary(rows: list[Row]) -> list[str]:
    """Return how far the automatic plan is from the best fixed one at most."""
    lines = ["*: the memory that the plan chooses"]
    for text, chosen in (("in the memory that the plan takes", True), ("in either memory", False)):
        compared = [row for row in rows if "behind" in row and (row["is_taken"] or not chosen)]
        if compared:
            worst = max(compared, key=lambda row: row["behind"])
            lines.append(
                f"Worst of {len(compared)} cases {text}: {_percent(worst)} against the best fixed M "
                f"({worst['update']}, {worst['plan']['memory']}, RF {worst['race_factor']}, H = {worst['num_bins']:,})"
            )
    return lines


def panels(rows: list[Row]) -> Panels:
    """Return a panel for each race factor, update and memory: a line for each number of copies, and the plan's."""
    drawn: Panels = {}
    for row in sorted(rows, key=lambda row: row["race_factor"]):
        panel = drawn.setdefault(f"{row['update']}, {row['plan']['memory']}, RF {row['race_factor']}", {})
        for one in (*row["fixed"], row):
            if "kernel" in one:
                label = "Auto" if one is row else f"M = {one['plan']['copies']:,}"
                panel.setdefault(label, []).append((row["num_bins"], one["kernel"]["median"] * 1e6))
        if "floor" in row:
            panel.setdefault("F", []).append((row["num_bins"], row["floor"]["median"] * 1e6))
    return drawn


def _percent(row: Row) -> str:
    return f"{row['behind']:+.0%}" if "behind" in row else "-"


def _copies(row: Row) -> str:
    return f"{row['plan']['copies']:,},{row['plan']['passes']}"


_COLUMNS: tuple[Column, ...] = (
    ("update", lambda row: row["update"]),
    ("memory", lambda row: row["plan"]["memory"] + ("*" if row["is_taken"] else "")),
    bench_suite.RACE_FACTOR,
    bench_suite.BINS,
    ("plan M,S", _copies),
    *bench_suite.KERNEL,
    bench_suite.KERNEL_FLOOR,
    ("best M,S", lambda row: _copies(row["best"]) if "best" in row else "-"),
    ("kernel µs", lambda row: microseconds(row.get("best", {}), "kernel")),
    ("vs best", _percent),
)

SUITE = Suite(
    operations=tuple(name for name, benched in OPERATORS.items() if benched.model_update),
    default_operations=("count", "sat", "lock"),
    bins=PAPER_BINS,
    race_factors=(1, 63),
    steps=bench_suite.steps,
    run=run,
    columns=_COLUMNS,
    panels=panels,
    summary=summary,
)
