"""`clhist bench --emulated gfx942`: what plans cost on an AMD GPU that is not here, counted in an emulator."""

from __future__ import annotations

from collections.abc import Sequence

import click

from benchmarks import suite as bench_suite
from benchmarks.lab import Row
from benchmarks.report import table_text
from benchmarks.suite import Column
from clhist.cli.clone import from_clone
from clhist.cli.console import Console

OPERATIONS, BINS = ("count", "add", "sat", "argmax", "lock"), (31, 500, 12281, 196607)
DISTRIBUTIONS = {"uniform": "uniform", "half": "half", "one": "one"}


def _count(name: str) -> Column:
    return name.replace("_", " "), lambda row: f"{row['counts'][name]:.3f}"


_NONE = "No plan has half the instructions or conflicts of the chosen one, and no more of anything else."

COLUMNS: tuple[Column, ...] = (
    bench_suite.BINS,
    bench_suite.OP,
    bench_suite.DISTRIBUTION,
    ("plan", lambda row: bench_suite.plan_text(row) + ("*" if row["is_chosen"] else "")),
    *map(_count, ("instructions", "global_lines", "local_cycles", "conflicts", "atomics", "repeated")),
)


def run(
    console: Console, name: str, operations: Sequence[str], bins: Sequence[int], distributions: Sequence[str]
) -> None:
    """Present the GPU to this process, count, and print or write what was counted.

    Raises
    ------
    click.ClickException
        If there is no such GPU, or the emulator is not prepared; the message says how that is done.
    """
    emulated = from_clone("emulated.bench", "--emulated", folder=".ci")
    if name not in emulated.TARGETS:
        raise click.BadParameter(f"expected one of {', '.join(emulated.TARGETS)}, got {name}", param_hint="--emulated")
    try:
        target = emulated.present(name)
    except emulated.NotPreparedError as error:
        raise click.ClickException(f"--emulated: {error}") from error
    rows: list[Row] = []
    if console.prints_text:
        click.echo(
            f"{target.board} ({name}), emulated: what an element costs, of {emulated.ELEMENTS:,} elements. An "
            f"instruction is one of a wave of {target.lanes}; times are not known."
        )
    operations, bins = operations or OPERATIONS, bins or BINS
    with console.progress("bench", len(operations) * len(bins) * max(1, len(distributions))) as bar:
        for row in emulated.rows(
            target, operations, bins, [DISTRIBUTIONS[name] for name in distributions] or ("uniform",)
        ):
            rows.append(row)
            what = f"{row['op']}, H = {row['num_bins']:,}, {row['distribution']}"
            bar.note(f"  {what}: {bench_suite.plan_text(row)}")
            bar.update(row["is_chosen"], what)
    lines = emulated.cheaper(rows) or [
        "No plan has half the instructions or conflicts of the chosen one, and no more of anything else."
    ]
    text = "\n".join(["", table_text(rows, COLUMNS), "", "*: the plan that the model chooses", *lines])
    console.report({"emulated": name, "board": target.board, "rows": rows, "cheaper": lines}, text)
