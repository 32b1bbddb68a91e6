"""The plot of `clhist bench --plot`: panels like those of SC'20, Fig. 7."""

from __future__ import annotations

from importlib import import_module
from math import ceil
from pathlib import Path
from typing import Any

from clhist.cli.bench.suite import Panels
from clhist.cli.console import InputError

FORMATS = (".png", ".svg", ".pdf")


def require_matplotlib() -> None:
    """Raise the click error that says how to get matplotlib, if it is missing."""
    try:
        import_module("matplotlib")
    except ImportError as error:
        raise InputError('--plot: needs matplotlib: pip install "clhist[plot]"') from error


def draw(panels: Panels, title: str, path: Path) -> None:
    """Write the panels into a file: lines over numbers of bins, bars over words.

    Parameters
    ----------
    panels : Panels
        What is drawn, in microseconds.
    title : str
        Above all of them.
    path : Path
        The file; its ending says the format.
    """
    from matplotlib.figure import Figure  # not pyplot: no window, no state

    columns = next((n for n in (6, 4, 3, 2) if len(panels) % n == 0), min(4, len(panels)))
    rows = ceil(len(panels) / columns)
    figure = Figure(figsize=(5.5 * columns, 4 * rows), layout="constrained")
    figure.suptitle(title)
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for ax, (name, lines) in zip(axes, panels.items(), strict=False):
        words = any(isinstance(x, str) for points in lines.values() for x, _ in points)
        (_bars if words else _lines)(ax, lines)
        ax.set(title=name, ylabel="microseconds")
        ax.legend(fontsize="x-small", ncols=2)
    for ax in axes[len(panels) :]:
        ax.set_axis_off()
    figure.savefig(path)


def _lines(ax: Any, lines: dict[str, list[tuple[Any, float]]]) -> None:
    from matplotlib import colormaps

    colors = colormaps["turbo"].resampled(max(2, len(lines)))
    for n, (label, points) in enumerate(lines.items()):
        xs, ys = zip(*sorted(dict(points).items()), strict=True)
        style: dict[str, Any] = {"color": colors(n), "linewidth": 1}
        if label == "Auto":
            style = {"color": "black", "linewidth": 2.5, "zorder": 3}
        elif label.split()[0] == "F":
            style = {"color": "grey", "linestyle": "--"}
        ax.plot(xs, ys, marker=".", label=label, **style)
    ax.set(xlabel="H (bins)", xscale="log", yscale="log")


def _bars(ax: Any, lines: dict[str, list[tuple[Any, float]]]) -> None:
    words = list(dict.fromkeys(x for points in lines.values() for x, _ in points))
    width = 0.8 / len(lines)
    for n, (label, points) in enumerate(lines.items()):
        ax.bar([words.index(x) + n * width for x, _ in points], [y for _, y in points], width, label=label)
    ax.set_xticks([k + width * (len(lines) - 1) / 2 for k in range(len(words))], words, rotation=15, fontsize="small")
