"""Results of `clhist hist` as text, with bars, and as JSON."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt

from clhist.cli.hist.compute import HistResult
from clhist.cli.hist.rows import TableRows
from clhist.cli.hist.tables import STDIN
from clhist.cli.tables import escaped
from clhist.files.table import Table

Array = npt.NDArray[Any]

_MOST_LINES = 50  # of one histogram; more bins share lines
_MOST_CELLS = 30, 60  # of a picture of two dimensions
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_SHADES = " .:-=+*#%@"


def document(rows: TableRows, result: HistResult, *, density: bool) -> dict[str, Any]:
    """Return the results as JSON has them; NaN and infinities are null."""
    values: dict[str, Any] = {
        "files": [str(table.path) for table in rows.tables],
        "columns": list(rows.columns),
        "weights": rows.weights,
        "values": rows.values,
        "by": rows.by[0] if len(rows.by) == 1 else list(rows.by) or None,
        "rows": rows.total,
        "missing": rows.missing,
        "cut": rows.cut,
        "outside": result.outside,
        "inside": result.inside,
    }
    if result.labels is not None:
        values["groups"] = [_plain_label(label) for label in result.labels]
    if result.edges:
        values["edges"] = [_plain(edges) for edges in result.edges]
    if result.counts is not None:
        values["density" if density else "counts"] = _plain(_of_groups(result, result.counts))
    if result.statistics:
        values["statistics"] = {name: _plain(_of_groups(result, array)) for name, array in result.statistics.items()}
    return values


def _plain_label(label: Any) -> Any:
    """Return a group's values as JSON has them: decimals that no float is as text."""
    if isinstance(label, tuple):
        return [_plain_label(value) for value in label]
    return str(label) if isinstance(label, Decimal) else label


def label_of(rows: TableRows, label: Any) -> str:
    """Return a group's values with the names of their columns."""
    values = label if isinstance(label, tuple) else (label,)
    return ", ".join(f"{escaped(name)} = {escaped(str(value))}" for name, value in zip(rows.by, values, strict=True))


def short_label(label: Any) -> str:
    """Return a group's values."""
    return ", ".join(map(str, label)) if isinstance(label, tuple) else str(label)


def _of_groups(result: HistResult, array: Array) -> Array:
    return array[0] if result.labels is None else array


def _plain(array: Array) -> Any:
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        # JSON has null in the place of NaN and infinities.
        objects = array.astype(object)
        objects[~np.isfinite(array)] = None
        return objects.tolist()
    return array.tolist()


def text(rows: TableRows, result: HistResult, *, density: bool) -> str:
    """Return the results for a terminal."""
    facts = [f"{rows.total:,} rows"]
    facts += [f"{number:,} {what}" for number, what in _losses(rows, result) if number]
    lines = [f"{', '.join(_file(table) for table in rows.tables)}: {', '.join(facts)}"]
    by_bin = bool(result.statistics) and rows.values is not None
    for g in range(1 if result.labels is None else len(result.labels)):
        if not result.edges:
            break
        heading = _heading(rows, result, density)
        lines += ["", heading if result.labels is None else f"{heading}, {label_of(rows, result.labels[g])}"]
        shown = result.statistics if by_bin else {"": result.counts}
        for name, array in ((name, every[g]) for name, every in shown.items() if every is not None):
            lines += [f"{name} of {escaped(str(rows.values))}"] if by_bin else []
            if len(result.edges) == 2:
                lines += picture(result.edges, array)
            else:
                lines += bars(result.edges[0], array, unicode=shows_unicode(), add=not by_bin and not density)
    if result.statistics and not by_bin:
        lines += ["", *_table(rows, result)]
    return "\n".join(lines)


def _file(table: Table) -> str:
    return "standard input" if str(table.path) == STDIN else escaped(str(table.path))


def _named(column: str) -> str:
    """Return a column's name, or that it is the one of that number if it has none."""
    return f"column {column}" if column.isdecimal() else escaped(column)


def _losses(rows: TableRows, result: HistResult) -> list[tuple[int, str]]:
    return [(rows.missing, "with missing values"), (rows.cut, "cut"), (result.outside, "out of range")]


def _heading(rows: TableRows, result: HistResult, density: bool) -> str:
    columns = " (down) and ".join(map(_named, rows.columns)) + (" (right)" if len(result.edges) == 2 else "")
    if rows.values is not None:
        return f"by {columns}"
    what = "density" if density else "count" if rows.weights is None else f"sum of {escaped(rows.weights)}"
    return f"{what} of {columns}"


def _number(value: Any) -> str:
    if isinstance(value, int | np.integer):
        return f"{int(value):,}"
    return "-" if np.isnan(value) else f"{float(value):.6g}"


def bars(edges: Array, values: Array, *, unicode: bool, add: bool) -> list[str]:
    """Return a line for each bin, or for so many bins as fit on the lines, whose counts are added."""
    # Counts of neighbouring bins can be added; means and densities have a line each.
    together = -(-len(values) // _MOST_LINES) if add else 1
    starts = np.arange(0, len(values), together)
    values = np.add.reduceat(values, starts) if together > 1 else values
    lows = [f"{edge:.6g}" for edge in edges[starts]]
    highs = [*lows[1:], f"{edges[-1]:.6g}"]
    widths = [max(map(len, column)) for column in (lows, highs)]
    ends = [f"{low:>{widths[0]}} .. {high:>{widths[1]}}" for low, high in zip(lows, highs, strict=True)]
    lines = labelled_bars(ends, values, unicode=unicode)
    if together > 1:
        lines.append(f"(each line has {together} of {len(edges) - 1:,} bins)")
    return lines


def labelled_bars(labels: Sequence[str], values: Array, *, unicode: bool) -> list[str]:
    """Return a line for each value."""
    numbers = [_number(value) for value in values]
    widths = [max(map(len, column), default=0) for column in (labels, numbers)]
    room = max(10, min(shutil.get_terminal_size().columns, 100) - sum(widths) - 4)
    finite = values[np.isfinite(values)]
    # Bars of negative values end where those of others begin.
    least = min(0.0, float(finite.min())) if finite.size else 0.0
    largest = max(0.0, float(finite.max())) - least if finite.size else 0.0
    zero = round(-least * room / largest) if largest > 0 else 0
    lines = []
    for label, number, value in zip(labels, numbers, values, strict=True):
        length = room * float(value) / largest if largest > 0 and np.isfinite(value) else 0.0
        bar = ("█" if unicode else "#") * round(-length) if length < 0 else _bar(length, unicode)
        begin = zero - len(bar) if length < 0 else zero
        lines.append(f"{label:>{widths[0]}}  {number:>{widths[1]}}  {' ' * begin}{bar}".rstrip())
    return lines


def shows_unicode() -> bool:
    """Whether the standard output takes characters beyond ASCII."""
    return (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "") == "utf8"


def _bar(length: float, unicode: bool) -> str:
    if not unicode:
        return "#" * round(length)
    eighths = round(8 * length)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def picture(edges: Sequence[Array], values: Array) -> list[str]:
    """Return the values of two dimensions as shades, the first column downwards, and what the shades are."""
    steps = [-(-n // most) for n, most in zip(values.shape, _MOST_CELLS, strict=True)]
    # NaN of an empty bin would spread to the cell that it shares with others.
    coarse = np.nan_to_num(values)
    for axis, step in enumerate(steps):
        coarse = np.add.reduceat(coarse, np.arange(0, coarse.shape[axis], step), axis=axis)
    largest = coarse.max()
    lines = []
    lows = [f"{edge:.6g}" for edge in edges[0][:-1][:: steps[0]]]
    width = max(map(len, lows))
    for low, row in zip(lows, coarse, strict=True):
        parts = np.maximum(row, 0) / largest if largest > 0 else np.zeros(len(row))
        shades = np.ceil(parts * (len(_SHADES) - 1)).astype(int)
        lines.append(f"{low:>{width}}  {''.join(_SHADES[n] for n in shades)}|")
    ends = f"{edges[1][0]:.6g}", f"{edges[1][-1]:.6g}"
    lines.append(" " * (width + 2) + ends[0] + ends[1].rjust(max(len(ends[1]) + 1, len(coarse[0]) - len(ends[0]))))
    if largest > 0:
        scale = f", {steps[0]} x {steps[1]} bins each" if max(steps) > 1 else ""
        lines.append(f"shades: ' ' up to 0, '{_SHADES[1:]}' in equal steps up to {_number(largest)}{scale}")
    return lines


def _table(rows: TableRows, result: HistResult) -> list[str]:
    """Return the statistics of each group as aligned columns."""
    names = list(result.statistics)
    column = escaped(rows.columns[0])
    labels: list[Any] = [column] if result.labels is None else result.labels
    keys = [[escaped(str(value)) for value in (label if isinstance(label, tuple) else (label,))] for label in labels]
    head = [*(map(escaped, rows.by) if result.labels is not None else [""]), *(f"{name} of {column}" for name in names)]
    body = [[*keys[g], *(_number(result.statistics[name][g]) for name in names)] for g in range(len(labels))]
    widths = [max(len(row[n]) for row in (head, *body)) for n in range(len(head))]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in (head, *body)]
