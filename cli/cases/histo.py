"""`clhist histo`: Parboil's saturating histogram of two dimensions, checked against NumPy and timed."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyopencl.array as cl_array

from clhist import default_queue
from clhist.cases.files import read_table
from clhist.cases.histo import histo as histogram
from clhist.cases.histo import wafer
from clhist.cli.cases.options import DATA, figure, measure, measured_text, messages, output_option, plot_option, save
from clhist.cli.console import Console, shared_options


def _shape(context: click.Context, option: click.Parameter, text: str) -> tuple[int, int]:
    match = re.fullmatch(r"([1-9]\d{0,8})(?:x([1-9]\d{0,8}))?", text)
    if match is None:
        raise click.BadParameter(f"expected ROWSxCOLUMNS such as 996x1024, or one number, got {text!r}")
    return int(match[1]), int(match[2] or match[1])


@click.command()
@click.argument("data", type=DATA, required=False)
@click.option(
    "--bins", default="996x1024", show_default=True, callback=_shape, metavar="ROWSxCOLUMNS", help="Bins along x and y."
)
@click.option(
    "--range",
    "ends",
    type=(float, float, float, float),
    metavar="X0 X1 Y0 Y1",
    help="Range of the bins; points outside are ignored.  [default: smallest to largest value]",
)
@click.option(
    "--ceiling", type=click.IntRange(1, 2**32 - 1), default=255, show_default=True, help="Largest count of a bin."
)
@click.option(
    "-n",
    "--points",
    type=click.IntRange(1, 10**9),
    default=1_000_000,
    show_default=True,
    help="Number of generated points.",
)
@plot_option("the histogram")
@output_option("counts, x_edges and y_edges")
@shared_options()
def histo(
    console: Console,
    data: Path | None,
    bins: tuple[int, int],
    ends: tuple[float, float, float, float] | None,
    ceiling: int,
    points: int,
    plot: Path | None,
    output: Path | None,
) -> None:
    """Compute a saturating 2-D histogram of points: Parboil's benchmark histo.

    DATA is a table of two columns, x and y: text, .npy or .npz. Without DATA, points are generated as on silicon
    wafers, most of them in few bins, and the result is compared with numpy.histogram2d.

    \b
    Example:
        clhist histo --bins 512x512 --plot wafer.png
    """
    ranges = ((ends[0], ends[1]), (ends[2], ends[3])) if ends else None
    with messages():
        if data:
            x, y = read_table(data, columns=2).T
        else:
            x, y = wafer(points)
            ranges = ranges or ((0.0, 1.0), (0.0, 1.0))
    queue = default_queue()
    # Rounded to float32, the points of a table could go to other bins than NumPy's.
    dtype = np.float32 if np.can_cast(x.dtype, np.float32) else np.float64
    on_x, on_y = (cl_array.to_device(queue, np.ascontiguousarray(column, dtype)) for column in (x, y))
    with messages(data), console.compiling() as first:
        bound, edges = histogram.bind(on_x, on_y, bins, range=ranges, ceiling=ceiling)
        counts = bound().get()
    values: dict[str, Any] = {
        "data": str(data) if data else "generated points of a wafer",
        "points": len(x),
        "bins": bins,
        "range": [[float(e[0]), float(e[-1])] for e in edges],
        "ceiling": ceiling,
        "largest": int(counts.max()),
        "saturated": int((counts == ceiling).sum()),
        "empty": int((counts == 0).sum()),
    } | measure(bound, first)
    if not data:
        start = time.perf_counter()
        expected = np.histogram2d(x, y, bins, ranges)[0]
        values["numpy_seconds"] = time.perf_counter() - start
        # Saturated counts are the exact ones, limited by the ceiling.
        values["passed"] = bool((counts == np.minimum(expected, ceiling)).all())
    if output:
        save(output, counts=counts, x_edges=edges[0], y_edges=edges[1])
    if plot:
        draw(counts, edges, values, plot)
    console.report(values, _text(values))


def draw(counts: np.ndarray, edges: tuple[np.ndarray, np.ndarray], values: dict[str, Any], path: Path) -> None:
    """Write a picture of the counts on a logarithmic scale, x to the right and y upward."""
    from matplotlib.colors import LogNorm

    x_edges, y_edges = edges
    with figure(path, figsize=(8, 6.5)) as drawing:
        ax = drawing.subplots()
        shown = ax.imshow(
            np.ma.masked_equal(counts.T, 0),
            norm=LogNorm(1, max(2, values["ceiling"])),
            origin="lower",
            aspect="auto",
            extent=(x_edges[0], x_edges[-1], y_edges[0], y_edges[-1]),
            interpolation="nearest",
        )
        ax.set_facecolor("black")
        drawing.colorbar(shown, label=f"points, up to {values['ceiling']}", extend="max")
        rows, columns = values["bins"]
        ax.set(xlabel="x", ylabel="y", title=f"{values['points']:,} points in {rows} x {columns} bins")


def _text(values: dict[str, Any]) -> str:
    rows, columns = values["bins"]
    (x0, x1), (y0, y1) = values["range"]
    lines = [
        f"{values['data']}: {values['points']:,} points",
        f"bins    {rows} x {columns} of x from {x0:g} to {x1:g} and y from {y0:g} to {y1:g}; "
        f"{values['saturated']:,} at the ceiling of {values['ceiling']}, {values['empty']:,} empty",
        measured_text(values),
    ]
    if "passed" in values:
        verdict = "equal" if values["passed"] else "DIFFERENT"
        lines.append(f"check   numpy.histogram2d took {values['numpy_seconds'] * 1e3:.0f} ms: {verdict}")
    return "\n".join(lines)
