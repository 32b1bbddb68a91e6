"""The plot of `clhist hist --plot`."""

from __future__ import annotations

from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from clhist.cli.cases.options import figure
from clhist.cli.hist.compute import HistResult
from clhist.cli.hist.report import label_of, short_label
from clhist.cli.hist.rows import TableRows

Array = npt.NDArray[Any]

_MOST_PANELS = 16


def draw(rows: TableRows, result: HistResult, path: Path, *, density: bool, is_log: bool) -> None:
    """Write a plot: steps for each group, pictures of two dimensions, or statistics of each group."""
    by_bin = rows.values is not None
    panels: dict[str, Array] = {}
    if result.counts is not None:
        panels["density" if density else "count" if rows.weights is None else f"sum of {rows.weights}"] = result.counts
    if by_bin:
        panels |= {f"{name} of {rows.values}": values for name, values in result.statistics.items()}
    labels = [""] if result.labels is None else [label_of(rows, label) for label in result.labels]
    if not panels:
        _draw_groups(rows, result, path)
    elif len(result.edges) == 2:
        pictures = [
            (f"{name} {label}".strip(), values[g]) for name, values in panels.items() for g, label in enumerate(labels)
        ]
        _draw_pictures(rows, result, pictures[:_MOST_PANELS], path, is_log=is_log)
    else:
        with figure(path, figsize=(8, 4.5 * len(panels))) as drawing:
            for ax, (name, values) in zip(
                drawing.subplots(len(panels), squeeze=False)[:, 0], panels.items(), strict=True
            ):
                for g, label in enumerate(labels):
                    # Without a baseline the ends of a profile do not drop to 0.
                    options = {"baseline": None} if by_bin else {"fill": len(labels) == 1}
                    ax.stairs(values[g], result.edges[0], label=label or None, **options)
                ax.set(xlabel=rows.columns[0], ylabel=name, xscale="log" if is_log else "linear")
                if result.labels is not None:
                    ax.legend(fontsize="small", ncols=1 + len(labels) // 12)


def _draw_groups(rows: TableRows, result: HistResult, path: Path) -> None:
    labels = [rows.columns[0]] if result.labels is None else [short_label(label) for label in result.labels]
    with figure(path, figsize=(8, 3 * len(result.statistics))) as drawing:
        axes = drawing.subplots(len(result.statistics), squeeze=False, sharex=True)[:, 0]
        for ax, (name, values) in zip(axes, result.statistics.items(), strict=True):
            ax.bar(np.arange(len(labels)), values)
            ax.set(ylabel=f"{name} of {rows.columns[0]}")
        # More labels would overlap.
        if len(labels) <= 40:
            axes[-1].set_xticks(np.arange(len(labels)), labels, rotation=30, ha="right")
        axes[-1].set(xlabel=", ".join(rows.by))


def _draw_pictures(
    rows: TableRows, result: HistResult, pictures: list[tuple[str, Array]], path: Path, *, is_log: bool
) -> None:
    columns = min(4, ceil(len(pictures) ** 0.5))
    lines = ceil(len(pictures) / columns)
    with figure(path, figsize=(6 * columns, 5 * lines)) as drawing:
        axes = list(drawing.subplots(lines, columns, squeeze=False).flat)
        for ax, (name, values) in zip(axes, pictures, strict=False):
            shown = ax.pcolormesh(*result.edges, np.ma.masked_invalid(values.T.astype(float)))
            scale = "log" if is_log else "linear"
            ax.set(xlabel=rows.columns[0], ylabel=rows.columns[1], xscale=scale, yscale=scale)
            drawing.colorbar(shown, label=name)
        for ax in axes[len(pictures) :]:
            ax.set_axis_off()
