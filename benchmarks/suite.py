"""The interface of a suite of `clhist bench`, and what suites share: requests, problems, columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.inputs import InputSpec
from benchmarks.lab import Lab, Row
from benchmarks.operators import OPERATORS, Benched
from clhist._core.model.problem import SIDE_BY_SIDE

# Title of a panel: label of a line or of bars: (x, y) points. x is a number of bins, or a word.
Panels = dict[str, dict[str, list[tuple[Any, float]]]]
Column = tuple[str, Callable[[Row], str]]

PAPER_BINS = (31, 127, 505, 2041, 6141, 12281, 24569, 49145, 196607, 393215, 786431, 1572863)


@dataclass(frozen=True)
class Request:
    """The request of a run."""

    num_elements: int
    bins: tuple[int, ...]
    operations: tuple[str, ...]
    race_factors: tuple[int, ...]
    distributions: tuple[str, ...] = ("uniform",)
    all_plans: bool = False
    rows: tuple[int, ...] = (1,)

    def problems(self, distributions: Sequence[str] = ("uniform",)) -> Iterator[tuple[InputSpec, list[Benched]]]:
        """Yield each input with the operators that read it."""
        requested = [OPERATORS[name] for name in self.operations]
        for image in (False, True):
            group = [benched for benched in requested if benched.image == image]
            for bins in (256,) if image else self.bins:
                for factor in self.race_factors:
                    for distribution in distributions if group else ():
                        for components in self.rows:
                            spec = InputSpec(self.num_elements, bins, factor, distribution, image, components)
                            yield spec, group


@dataclass(frozen=True)
class Suite:
    """One suite.

    Attributes
    ----------
    operations : tuple of str
        What `--op` may be, of which `default_operations` are the default; none if it has no such choice.
    bins, race_factors : tuple of int
        Defaults; of race factors none if it has no such choice.
    num_elements : int or None
        Default, where it is not the usual one.
    distributions : tuple of str
        Default of `--distribution`; none if it has no such choice.
    needs : tuple of str, or None
        A module that need not be installed, and the extra of clhist that brings it.
    has_all_plans : bool
        Whether it has a row for each plan that could be taken.
    of_rows : tuple of str
        What `--op` may be with `--rows`, the first the default; none if it has no such choice.
    steps : callable
        How many steps a request takes, for the progress bar.
    run : callable
        Yields the rows of each step, and what it was.
    columns : sequence of Column
        The table's.
    summary : callable
        Lines below the table.
    panels : callable
        What is drawn, in microseconds.
    x_label : str
        What the numbers of its lines are.
    """

    operations: tuple[str, ...]
    default_operations: tuple[str, ...]
    bins: tuple[int, ...]
    race_factors: tuple[int, ...]
    steps: Callable[[Request], int]
    run: Callable[[Lab, Request], Iterator[tuple[str, list[Row]]]]
    columns: Sequence[Column]
    panels: Callable[[list[Row]], Panels]
    summary: Callable[[list[Row]], list[str]] = lambda rows: []
    num_elements: int | None = None
    distributions: tuple[str, ...] = ()
    has_all_plans: bool = False
    of_rows: tuple[str, ...] = ()
    needs: tuple[str, str] | None = None
    x_label: str = "H (bins)"


def steps(request: Request) -> int:
    """Return the number of operators on inputs."""
    return sum(len(group) for _, group in request.problems(request.distributions))


def weighted(group: Iterable[Benched]) -> bool:
    """Whether any of the operators reads weights."""
    return any(benched.weighted for benched in group)


def add_ratios(rows: Sequence[Row], floor: float) -> None:
    """Add to rows of one problem how their calls compare with reading the input, and with the first row's call."""
    reference = rows[0].get("call")
    for row in rows:
        if "call" in row:
            row["call_per_floor"] = row["call"]["median"] / floor
            if reference:
                row["speedup"] = reference["median"] / row["call"]["median"]


def microseconds(row: Row, key: str) -> str:
    """Return the median of the samples at `key` as a cell."""
    if key not in row:
        return "-"
    number = row[key]["median"] * 1e6
    return f"{number:,.1f}" if number < 1000 else f"{number:,.0f}"


def spread(row: Row, key: str) -> str:
    """Return the spread of the samples at `key` as a cell."""
    return f"{row[key]['spread']:.0%}" if key in row else "-"


def times(row: Row, key: str) -> str:
    """Return a ratio as a cell."""
    return f"{row[key]:.2f}" if key in row else "-"


def plan_text(row: Row) -> str:
    """Return the plan as a cell: update, memory, copies, passes, width of counters."""
    plan = row.get("plan")
    if not plan:
        return "-"
    passes = f"P={plan['partitions']}" if plan["partitions"] else f"S={plan['passes']}"
    aside = " side by side" if plan["pass_order"] == SIDE_BY_SIDE and plan["passes"] > 1 else ""
    bits = f" {plan['counter_bits']}-bit" if plan["counter_bits"] else ""
    return f"{plan['update']} {plan['memory']}{bits} M={plan['copies']:,} {passes}{aside}"


def op_text(row: Row) -> str:
    """Return what is computed as a cell, with the components of rows."""
    return f"{row['op']}, rows of {row['components']}" if row.get("components", 1) > 1 else str(row["op"])


OP: Column = ("op", op_text)
BINS: Column = ("H", lambda row: f"{row['num_bins']:,}")
DISTRIBUTION: Column = ("bins are", lambda row: row["distribution"])
RACE_FACTOR: Column = ("RF", lambda row: f"{row['race_factor']:g}")
PLAN: Column = ("plan", plan_text)
KERNEL: tuple[Column, ...] = (
    ("kernel µs", lambda row: microseconds(row, "kernel")),
    ("spread", lambda row: spread(row, "kernel")),
)
CALL: tuple[Column, ...] = (
    ("call µs", lambda row: microseconds(row, "call")),
    ("spread", lambda row: spread(row, "call")),
)
KERNEL_FLOOR: Column = ("kernel/F", lambda row: times(row, "kernel_per_floor"))
CALL_FLOOR: Column = ("call/F", lambda row: times(row, "call_per_floor"))
RATE: Column = ("GB/s", lambda row: f"{row['bytes_per_second'] / 1e9:,.1f}" if "bytes_per_second" in row else "-")
