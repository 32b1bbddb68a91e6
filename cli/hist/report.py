"""Results of `clhist hist` as text, with bars, and as JSON."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from clhist.cli.hist.compute import Found
from clhist.cli.hist.rows import Rows

Array = npt.NDArray[Any]

_MOST_LINES = 50  # of one histogram; more bins share lines
_MOST_CELLS = 30, 60  # of a picture of two dimensions
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_SHADES = " .:-=+*#%@"


def document(rows: Rows, found: Found, *, density: bool) -> dict[str, Any]:
    """Return the results as JSON has them; NaN and infinities are null."""
    values: dict[str, Any] = {
        "files": [str(table.path) for table in rows.tables],
        "columns": list(rows.columns),
        "weights": rows.weights,
        "values": rows.values,
        "by": rows.by,
        "rows": rows.total,
        "missing": rows.missing,
        "cut": rows.cut,
        "outside": found.outside,
        "inside": found.inside,
    }
    if found.labels is not None:
        values["groups"] = found.labels
    if found.edges:
        values["edges"] = [_plain(edges) for edges in found.edges]
    if found.counts is not None:
        values["density" if density else "counts"] = _plain(_of_groups(found, found.counts))
    if found.statistics:
        values["statistics"] = {name: _plain(_of_groups(found, each)) for name, each in found.statistics.items()}
    return values


def _of_groups(found: Found, array: Array) -> Array:
    return array[0] if found.labels is None else array


def _plain(array: Array) -> Any:
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        objects = array.astype(object)
        objects[~np.isfinite(array)] = None
        return objects.tolist()
    return array.tolist()


def text(rows: Rows, found: Found, *, density: bool, unicode: bool) -> str:
    """Return the results for a terminal."""
    facts = [f"{rows.total:,} rows"]
    facts += [f"{number:,} {what}" for number, what in _losses(rows, found) if number]
    lines = [f"{', '.join(str(table.path) for table in rows.tables)}: {', '.join(facts)}"]
    by_bin = bool(found.statistics) and rows.values is not None
    for g in range(1 if found.labels is None else len(found.labels)):
        if not found.edges:
            break
        heading = _heading(rows, found, density)
        lines += ["", heading if found.labels is None else f"{heading}, {rows.by} = {found.labels[g]}"]
        shown = found.statistics if by_bin else {"": found.counts}
        for name, each in ((name, every[g]) for name, every in shown.items() if every is not None):
            lines += [f"{name} of {rows.values}"] if by_bin else []
            if len(found.edges) == 2:
                lines += _picture(found.edges, each)
            else:
                lines += _bars(found.edges[0], each, unicode=unicode, add=not by_bin and not density)
    if found.statistics and not by_bin:
        lines += ["", *_table(rows, found)]
    return "\n".join(lines)


def _losses(rows: Rows, found: Found) -> list[tuple[int, str]]:
    return [(rows.missing, "with missing values"), (rows.cut, "cut"), (found.outside, "out of range")]


def _heading(rows: Rows, found: Found, density: bool) -> str:
    columns = " (down) and ".join(rows.columns) + (" (right)" if len(found.edges) == 2 else "")
    if rows.values is not None:
        return f"by {columns}"
    what = "density" if density else "count" if rows.weights is None else f"sum of {rows.weights}"
    return f"{what} of {columns}"


def _number(value: Any) -> str:
    if isinstance(value, int | np.integer):
        return f"{int(value):,}"
    return "-" if np.isnan(value) else f"{float(value):.6g}"


def _bars(edges: Array, values: Array, *, unicode: bool, add: bool) -> list[str]:
    """Return a line for each bin, or for so many bins as fit on the lines, whose counts are added."""
    together = -(-len(values) // _MOST_LINES) if add else 1
    starts = np.arange(0, len(values), together)
    values = np.add.reduceat(values, starts) if together > 1 else values
    lows = [f"{edge:.6g}" for edge in edges[starts]]
    highs = [*lows[1:], f"{edges[-1]:.6g}"]
    numbers = [_number(value) for value in values]
    widths = [max(map(len, column)) for column in (lows, highs, numbers)]
    room = max(10, min(shutil.get_terminal_size().columns, 100) - sum(widths) - 8)
    finite = values[np.isfinite(values)]
    # Bars of values that may be negative begin at the least.
    least = min(0.0, float(finite.min())) if finite.size else 0.0
    largest = float(finite.max()) - least if finite.size else 0.0
    lines = []
    for low, high, number, value in zip(lows, highs, numbers, values, strict=True):
        part = (float(value) - least) / largest if largest > 0 and np.isfinite(value) else 0.0
        ends = f"{low:>{widths[0]}} .. {high:>{widths[1]}}"
        lines.append(f"{ends}  {number:>{widths[2]}}  {_bar(part * room, unicode)}".rstrip())
    if together > 1:
        lines.append(f"(each line has {together} of {len(edges) - 1:,} bins)")
    return lines


def _bar(length: float, unicode: bool) -> str:
    if not unicode:
        return "#" * round(length)
    eighths = round(8 * length)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def _picture(edges: Sequence[Array], values: Array) -> list[str]:
    """Return the values of two dimensions as shades, the first column downwards."""
    steps = [-(-n // most) for n, most in zip(values.shape, _MOST_CELLS, strict=True)]
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
    return lines


def _table(rows: Rows, found: Found) -> list[str]:
    """Return the statistics of each group as aligned columns."""
    names = list(found.statistics)
    labels = [rows.columns[0]] if found.labels is None else [str(label) for label in found.labels]
    head = ["" if rows.by is None else rows.by, *(f"{name} of {rows.columns[0]}" for name in names)]
    body = [[label, *(_number(found.statistics[name][g]) for name in names)] for g, label in enumerate(labels)]
    widths = [max(len(row[n]) for row in (head, *body)) for n in range(len(head))]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in (head, *body)]
