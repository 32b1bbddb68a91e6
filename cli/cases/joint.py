"""`clhist joint`: the joint histogram of two images, their mutual information, and at which shift it is largest."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyopencl.array as cl_array

from clhist import default_queue
from clhist.cases.arrays import ranges_of
from clhist.cases.files import read_image, read_table
from clhist.cases.image_data import image_pair
from clhist.cases.joint import joint_histogram, mutual_information
from clhist.cli.cases.options import (
    DATA,
    figure,
    measure,
    measured_text,
    messages,
    only_generated,
    output_option,
    plot_option,
    save,
)
from clhist.cli.console import Console, shared_options

_SHIFT = (3, -5)  # of the generated pair
_GREY = (0.299, 0.587, 0.114)  # of red, green and blue: ITU-R BT.601


@click.command()
@click.argument("fixed", type=DATA, required=False)
@click.argument("moving", type=DATA, required=False)
@click.option(
    "--bins",
    type=click.IntRange(32, 256),
    default=64,
    show_default=True,
    help="Bins for the intensities of each image.",
)
@click.option(
    "--shifts",
    type=click.IntRange(0, 64),
    default=8,
    show_default=True,
    metavar="S",
    help="Try every shift of MOVING by up to S rows and columns.",
)
@click.option("--quick", is_flag=True, help="Generate images of 200 x 200 pixels instead of 400 x 400.")
@plot_option("the images, their joint histogram, and the mutual information of each shift")
@output_option("joint (the histogram at the best shift), information (of each shift) and shift (the best one)")
@shared_options()
def joint(
    console: Console,
    fixed: Path | None,
    moving: Path | None,
    bins: int,
    shifts: int,
    quick: bool,
    plot: Path | None,
    output: Path | None,
) -> None:
    """Measure how well two images are aligned, by their mutual information.

    This is the histogram step of image registration. FIXED and MOVING have the same shape: images that Pillow reads
    (colours become grey) or tables of numbers (.npy, .npz, text). Without files, a pair of images of one scene is
    generated with different intensities and a known shift, and the command checks that it finds that shift.

    \b
    Example:
        clhist joint --bins 32 --shifts 8 --plot joint.png
    """
    only_generated(quick, fixed)
    if (fixed is None) != (moving is None):
        raise click.UsageError("expected both FIXED and MOVING, or neither")
    with messages():
        images = [_read(fixed), _read(moving)] if fixed and moving else list(image_pair(200 if quick else 400, _SHIFT))
    queue = default_queue()
    with messages(f"{fixed}, {moving}" if fixed else None):
        if images[0].shape != images[1].shape:
            raise ValueError(f"expected images of one shape, got {images[0].shape} and {images[1].shape}")
        # The mutual information of a few overlapping pixels is high by chance.
        if min(images[0].shape) < max(1, 4 * shifts):
            raise ValueError(
                f"expected at least {max(1, 4 * shifts)} rows and columns, for --shifts {shifts}, got {images[0].shape}"
            )
        on_fixed, on_moving = (cl_array.to_device(queue, array) for array in images)
        ranges = ranges_of("fixed, moving", on_fixed, on_moving, None, queue)
        with console.compiling() as first:
            bound = joint_histogram.bind(on_fixed, on_moving, bins, range=ranges)
            unshifted = bound().get()
    steps = range(-shifts, shifts + 1)
    information = np.empty((len(steps), len(steps)))
    with console.progress("shifts", information.size) as progress:
        for down, right in product(steps, steps):
            pair_counts = joint_histogram(on_fixed, on_moving, bins, range=ranges, shift=(down, right))
            information[down + shifts, right + shifts] = mutual_information(pair_counts)
            progress.update()
    best = _nearest(np.argwhere(information == information.max()) - shifts)
    histogram = joint_histogram(on_fixed, on_moving, bins, range=ranges, shift=best).get()
    values: dict[str, Any] = {
        "data": [str(fixed), str(moving)] if fixed else "generated pair",
        "shape": images[0].shape,
        "bins": bins,
        "range": [[float(end) for end in ends] for ends in ranges],
        "sum": float(unshifted.sum(dtype=np.float64)),
        "mutual_information": mutual_information(unshifted),
        "normalized": mutual_information(unshifted, normalized=True),
        "best": {
            "shift": best,
            "mutual_information": mutual_information(histogram),
            "normalized": mutual_information(histogram, normalized=True),
        },
        "information": information.tolist(),
    } | measure(bound, first)
    if not fixed:
        # The known shift cannot be found if it is not tried.
        expected = _SHIFT if shifts >= max(map(abs, _SHIFT)) else None
        # A bin of n terms is off by n * 2**-24 of its value at most, and the bins are the pixels together.
        off = abs(values["sum"] - images[0].size)
        values["passed"] = off <= images[0].size ** 2 / 2**24 and expected in (None, best)
    if output:
        save(output, joint=histogram, information=information, shift=best)
    if plot:
        draw(images, histogram, information, values, plot)
    console.report(values, _text(values))


def _nearest(shifts: np.ndarray) -> tuple[int, int]:
    """Return the least of some shifts, where several are best: images without contrast have no better one."""
    down, right = shifts[np.square(shifts).sum(1).argmin()].tolist()
    return down, right


def _read(path: Path) -> np.ndarray:
    """Return an image in grey, or a table of numbers, in a type that a kernel takes."""
    if path.suffix.lower() in (".npy", ".npz", ".txt", ".csv", ".dat"):
        values = read_table(path)
        return values if values.dtype in (np.uint8, np.uint16, np.int16) else values.astype(np.float32)
    pixels = read_image(path)
    if pixels.ndim == 2 or pixels.shape[2] < 3:
        return np.ascontiguousarray(pixels.reshape(*pixels.shape[:2], -1)[:, :, 0])
    return (pixels[:, :, :3] @ np.array(_GREY)).astype(np.float32)


def draw(
    images: list[np.ndarray], histogram: np.ndarray, information: np.ndarray, values: dict[str, Any], path: Path
) -> None:
    """Write a picture: both images, their joint histogram between its marginals, and the map of shifts."""
    from matplotlib.colors import LogNorm

    (down, right), reach = values["best"]["shift"], information.shape[0] // 2
    with figure(path, figsize=(12, 10)) as drawing:
        # The constrained layout ignores the axes beside the histogram, so reserve their width.
        drawing.set_layout_engine("constrained", w_pad=0.2)
        (top_left, top_right), (low_left, low_right) = drawing.subplots(2, 2)
        for ax, pixels, name in ((top_left, images[0], "fixed"), (top_right, images[1], "moving")):
            ax.imshow(pixels, cmap="gray")
            ax.set_title(name)
            ax.set_axis_off()
        shown = low_left.imshow(histogram, norm=LogNorm(vmin=0.1), origin="lower", cmap="viridis")
        low_left.set_facecolor("black")
        low_left.set(xlabel="moving (bin)", ylabel="fixed (bin)")
        drawing.colorbar(shown, ax=low_left, label="pixels")
        above = low_left.inset_axes((0, 1.02, 1, 0.18), sharex=low_left)
        beside = low_left.inset_axes((1.02, 0, 0.18, 1), sharey=low_left)
        place = np.arange(len(histogram) + 1) - 0.5
        above.stairs(histogram.sum(0), place, fill=True)
        beside.stairs(histogram.sum(1), place, fill=True, orientation="horizontal")
        above.set_title(f"joint histogram, moving shifted by {down} rows, {right} columns")
        for ax in (above, beside):
            ax.set_axis_off()
        # Cells of the map are centred on whole shifts.
        edge = reach + 0.5
        shown = low_right.imshow(information, extent=(-edge, edge, edge, -edge), cmap="magma")
        low_right.plot([right], [down], "o", markerfacecolor="none", color="cyan", label="largest")
        low_right.set(xlabel="shift right (columns)", ylabel="shift down (rows)", title="mutual information")
        for axis in (low_right.xaxis, low_right.yaxis):
            axis.get_major_locator().set_params(integer=True)
        low_right.legend()
        drawing.colorbar(shown, ax=low_right, label="nats")


def _text(values: dict[str, Any]) -> str:
    rows, columns = values["shape"]
    best = values["best"]
    data = values["data"] if isinstance(values["data"], str) else ", ".join(values["data"])
    lines = [
        f"{data}: {columns} x {rows} pixels, {values['bins']} x {values['bins']} bins, sum {values['sum']:.1f}",
        measured_text(values),
        f"mutual information {values['mutual_information']:.4f} nats, normalised {values['normalized']:.4f}; largest "
        f"at a shift of {best['shift'][0]} rows and {best['shift'][1]} columns: "
        f"{best['mutual_information']:.4f} nats, normalised {best['normalized']:.4f}",
    ]
    if "passed" in values:
        lines.append(f"check   of the pixels counted and the shift found: {'ok' if values['passed'] else 'WRONG'}")
    return "\n".join(lines)
