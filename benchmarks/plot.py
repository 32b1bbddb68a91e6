"""The plot of `clhist bench --plot`: panels like those of SC'20, Fig. 7."""

from __future__ import annotations

from math import ceil, log10
from pathlib import Path
from textwrap import fill
from typing import Any

from benchmarks.suite import Panels
from clhist.cli.cases.options import figure

_CHARACTERS = 10  # of a title, an inch


def draw(panels: Panels, title: str, path: Path, x_label: str) -> None:
    """Write the panels into a file: lines over numbers, bars over words.

    Parameters
    ----------
    panels : Panels
        What is drawn, in microseconds.
    title : str
        Above all of them.
    path : Path
        The file; its ending says the format.
    x_label : str
        Of lines.
    """
    columns = next((n for n in (4, 3, 2) if len(panels) % n == 0), min(4, len(panels)))
    rows = ceil(len(panels) / columns)
    width, height = (7.5, 4.5) if columns == 1 else (6 * columns, 4 * rows)
    with figure(path, figsize=(width, max(height, 4 * rows))) as drawing:
        drawing.suptitle(fill(title, int(_CHARACTERS * width)))
        axes = list(drawing.subplots(rows, columns, squeeze=False).flat)
        for ax, (name, lines) in zip(axes, panels.items(), strict=False):
            words = any(isinstance(x, str) for points in lines.values() for x, _ in points)
            (_bars if words else _lines)(ax, lines)
            if not words:
                ax.set_xlabel(x_label)
            ax.set(title=fill(name, int(_CHARACTERS * width / columns)), ylabel="microseconds")
            ax.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.01, 1), borderaxespad=0)  # beside the data
        for ax in axes[len(panels) :]:
            ax.set_axis_off()


def _lines(ax: Any, lines: dict[str, list[tuple[Any, float]]]) -> None:
    from matplotlib import colormaps
    from matplotlib.ticker import LogLocator, NullFormatter

    colors = colormaps["turbo"].resampled(max(2, len(lines)))
    for n, (label, points) in enumerate(lines.items()):
        xs, ys = zip(*sorted(dict(points).items()), strict=True)
        style: dict[str, Any] = {"color": colors(n), "linewidth": 1}
        if label == "Auto":
            style = {"color": "black", "linewidth": 2.5, "zorder": 3}
        elif label.split()[0] == "F":
            style = {"color": "grey", "linestyle": "--"}
        ax.plot(xs, ys, marker=".", label=label, **style)
    ax.set(xscale="log", yscale="log")
    bins = sorted({x for points in lines.values() for x, _ in points})
    ticks = [bins[0]]  # ticks whose labels do not meet
    for number in bins[1:]:
        if log10(number / ticks[-1]) > 0.12 * log10(bins[-1] / bins[0]):
            ticks.append(number)
    ax.set_xticks(ticks, [f"{number:,}" for number in ticks], rotation=20)
    ax.set_xticks([], minor=True)
    times = [y for points in lines.values() for _, y in points if y > 0]
    if times and max(times) < 100 * min(times):  # few powers of ten
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.4g}")
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.grid(alpha=0.3)


def _bars(ax: Any, lines: dict[str, list[tuple[Any, float]]]) -> None:
    words = list(dict.fromkeys(x for points in lines.values() for x, _ in points))
    width = 0.8 / len(lines)
    for n, (label, points) in enumerate(lines.items()):
        ax.bar([words.index(x) + n * width for x, _ in points], [y for _, y in points], width, label=label)
    ax.set_xticks(
        [k + width * (len(lines) - 1) / 2 for k in range(len(words))], words, rotation=20, ha="right", fontsize="small"
    )
