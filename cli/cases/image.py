"""`clhist image`: the histograms of 8-bit images, a channel each."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyopencl.array as cl_array

from clhist import default_queue
from clhist.cases.files import read_image
from clhist.cases.image import image_histogram
from clhist.cases.image_data import photograph
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
from clhist.cli.console import Console, FirstCall, shared_options

_GENERATED = "generated clouds"
_SIZE, _QUICK = (3000, 4000), (600, 800)
_CHANNELS = {1: ("grey",), 2: ("grey", "alpha"), 3: ("red", "green", "blue"), 4: ("red", "green", "blue", "alpha")}
_COLOURS = {"grey": "0.3", "red": "tab:red", "green": "tab:green", "blue": "tab:blue"}


@click.command()
@click.argument("files", nargs=-1, type=DATA)
@click.option(
    "--bins",
    type=click.Choice([str(2**k) for k in range(1, 9)]),
    default="256",
    show_default=True,
    help="Number of bins for the intensities 0 to 255.",
)
@click.option("--quick", is_flag=True, help="Generate an image of 800 x 600 pixels.")
@plot_option("the images beside their histograms")
@output_option("the counts of each image (image0, image1, ...)")
@shared_options()
def image(
    console: Console, files: tuple[Path, ...], bins: str, quick: bool, plot: Path | None, output: Path | None
) -> None:
    """Compute the histograms of 8-bit images, all channels in one pass.

    FILES are images that Pillow reads (PNG, JPEG, TIFF, ...) or .npy files of uint8. Without FILES, an image of
    4000 x 3000 pixels is generated. Results are compared with numpy.bincount.

    \b
    Example:
        clhist image --bins 64 --plot histograms.png
    """
    only_generated(quick, files)
    queue = default_queue()
    images, counts, values = [], [], []
    sources: list[Path | None] = [*files] or [None]
    with console.progress("images", len(sources)) as progress:
        for file in sources:
            with messages():
                pixels = read_image(file) if file else photograph(*(_QUICK if quick else _SIZE))
            start = time.perf_counter()
            bound = image_histogram.bind(cl_array.to_device(queue, pixels), int(bins))
            counts.append(bound().get())
            first = FirstCall(time.perf_counter() - start)
            # The plot needs no more than about 800 pixels along the shorter side.
            step = max(1, min(pixels.shape[:2]) // 800)
            images.append(pixels[::step, ::step])
            values.append(_checked(str(file or _GENERATED), pixels, counts[-1]) | measure(bound, first))
            progress.update(1, str(file or _GENERATED))
    if output:
        save(output, **{f"image{n}": image_counts for n, image_counts in enumerate(counts)})
    if plot:
        draw([record["data"] for record in values], images, counts, plot)
    passed = all(record["passed"] for record in values)
    results = {"bins": int(bins), "images": values, "passed": passed}
    console.report(results, "\n\n".join(map(_text, values)))


def _checked(name: str, pixels: np.ndarray, counts: np.ndarray) -> dict[str, Any]:
    """Return the record of an image, checked by counting with NumPy."""
    per_channel = counts.reshape(-1, counts.shape[-1])
    # With 2**k bins, the bin is the upper k of the 8 bits.
    shift = 9 - counts.shape[-1].bit_length()
    start = time.perf_counter()
    channels = pixels.reshape(-1, len(per_channel)).T
    expected = np.array([np.bincount(channel >> shift, minlength=counts.shape[-1]) for channel in channels])
    return {
        "data": name,
        "shape": pixels.shape,
        "counts": counts.tolist(),
        "numpy_seconds": time.perf_counter() - start,
        "passed": bool((per_channel == expected).all()),
    }


def draw(names: list[str], images: list[np.ndarray], counts: list[np.ndarray], path: Path) -> None:
    """Write a picture of each image beside its histogram."""
    with figure(path, figsize=(11, 4 * len(images))) as drawing:
        axes = drawing.subplots(len(images), 2, squeeze=False)
        for (left, right), name, pixels, histogram in zip(axes, names, images, counts, strict=True):
            grey = pixels.ndim == 2 or pixels.shape[2] not in (3, 4)
            left.imshow(pixels.reshape(*pixels.shape[:2], -1)[:, :, 0] if grey else pixels, **_GREY if grey else {})
            left.set_title(Path(name).name)
            left.set_axis_off()
            per_channel = histogram.reshape(-1, histogram.shape[-1])
            edges = np.linspace(0, 256, histogram.shape[-1] + 1)
            for channel, line in zip(_channels(len(per_channel)), per_channel, strict=True):
                right.stairs(line, edges, label=channel, color=_COLOURS.get(channel), fill=True, alpha=0.25)
                right.stairs(line, edges, color=_COLOURS.get(channel))
            right.set(
                xlabel="intensity",
                ylabel="pixels",
                title=f"{histogram.shape[-1]} bins",
                xlim=(0, 256),
                xticks=range(0, 257, 64),
            )
            right.legend()


_GREY = {"cmap": "gray", "vmin": 0, "vmax": 255}


def _channels(number: int) -> tuple[str, ...]:
    return _CHANNELS.get(number) or tuple(f"channel {n}" for n in range(number))


def _text(values: dict[str, Any]) -> str:
    height, width, *channels = values["shape"]
    per_channel = np.reshape(values["counts"], (channels[0] if channels else 1, -1))
    # A bin of w integers has its mean half a unit below its middle as an interval.
    centres = (np.arange(per_channel.shape[1]) + 0.5) * (256 / per_channel.shape[1]) - 0.5
    means = per_channel @ centres / max(1, height * width)
    listed = ", ".join(f"{c} {mean:.1f}" for c, mean in zip(_channels(len(means)), means, strict=True))
    verdict = "equal" if values["passed"] else "DIFFERENT"
    return (
        f"{values['data']}: {width} x {height} pixels; mean intensity {listed}\n{measured_text(values)}\n"
        f"check   numpy.bincount of each channel took {values['numpy_seconds'] * 1e3:.0f} ms: {verdict}"
    )
