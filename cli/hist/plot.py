"""The plot of `clhist hist --plot`."""

from __future__ import annotations

from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from clhist.cli.cases.options import figure
from clhist.cli.hist.compute import Found
from clhist.cli.hist.report import label_of, short_label
from clhist.cli.hist.rows import Rows

Array = npt.NDArray[Any]

_MOST_PANELS = 16


def draw(rows: Rows, found: Found, path: Path, *, density: bool, is_log: bool) -> None:
    """Write a plot: steps for each group, pictures of two dimensions, or statistics of each group."""
    by_bin = rows.values is not None
    panels: dict[str, Array] = {}
    if found.counts is not None:
        panels["density" if density else "count" if rows.weights is None else f"sum of {rows.weights}"] = found.counts
    if by_bin:
        panels |= {f"{name} of {rows.values}": each for name, each in found.statistics.items()}
    labels = [""] if found.labels is None else [label_of(rows, label) for label in found.labels]
    if not panels:
        _draw_groups(rows, found, path)
    elif len(found.edges) == 2:
        pictures = [
            (f"{name} {label}".strip(), each[g]) for name, each in panels.items() for g, label in enumerate(labels)
        ]
        _draw_pictures(rows, found, pictures[:_MOST_PANELS], path, is_log=is_log)
    else:
        with figure(path, figsize=(8, 4.5 * len(panels))) as drawing:
            for ax, (name, each) in zip(
                drawing.subplots(len(panels), squeeze=False)[:, 0], panels.items(), strict=True
            ):
                for g, label in enumerate(labels):
                    # Without a baseline the ends of a profile do not drop to 0.
                    options = {"baseline": None} if by_bin else {"fill": len(labels) == 1}
                    ax.stairs(each[g], found.edges[0], label=label or None, **options)
                ax.set(xlabel=rows.columns[0], ylabel=name, xscale="log" if is_log else "linear")
                if found.labels is not None:
                    ax.legend(fontsize="small", ncols=1 + len(labels) // 12)


def _draw_groups(rows: Rows, found: Found, path: Path) -> None:
    labels = [rows.columns[0]] if found.labels is None else [short_label(label) for label in found.labels]
    with figure(path, figsize=(8, 3 * len(found.statistics))) as drawing:
        axes = drawing.subplots(len(found.statistics), squeeze=False, sharex=True)[:, 0]
        for ax, (name, each) in zip(axes, found.statistics.items(), strict=True):
            ax.bar(np.arange(len(labels)), each)
            ax.set(ylabel=f"{name} of {rows.columns[0]}")
        if len(labels) <= 40:
            axes[-1].set_xticks(np.arange(len(labels)), labels, rotation=30, ha="right")
        axes[-1].set(xlabel=", ".join(rows.by))


def _draw_pictures(rows: Rows, found: Found, pictures: list[tuple[str, Array]], path: Path, *, is_log: bool) -> None:
    columns = min(4, ceil(len(pictures) ** 0.5))
    lines = ceil(len(pictures) / columns)
    with figure(path, figsize=(6 * columns, 5 * lines)) as drawing:
        axes = list(drawing.subplots(lines, columns, squeeze=False).flat)
        for ax, (name, values) in zip(axes, pictures, strict=False):
            shown = ax.pcolormesh(*found.edges, np.ma.masked_invalid(values.T.astype(float)))
            scale = "log" if is_log else "linear"
            ax.set(xlabel=rows.columns[0], ylabel=rows.columns[1], xscale=scale, yscale=scale)
            drawing.colorbar(shown, label=name)
        for ax in axes[len(pictures) :]:
            ax.set_axis_off()
