"""`clhist demo`: the main job in one command, drawn, checked against NumPy and timed."""

from __future__ import annotations

import time
from typing import Any

import click
import numpy as np

from clhist import default_queue, histogram
from clhist.cli.console import Console, shared_options
from clhist.cli.hist.report import bars, shows_unicode

_BINS = 20
_REPEATS = 5


@click.command()
@click.option(
    "-n",
    "--elements",
    type=click.IntRange(1, 10**9),
    default=10_000_000,
    show_default=True,
    help="Number of generated measurements.",
)
@shared_options()
def demo(console: Console, elements: int) -> None:
    """Draw a histogram of generated measurements, check it against NumPy, and time both.

    The measurements are float32 numbers of a gamma distribution. The call is clhist.histogram on a NumPy array, with
    its range given; `first` includes the compilation of its kernels, which later processes find on disk.

    \b
    Example:
        clhist demo -n 50000000
    """
    with console.progress("generating"):
        x = np.random.default_rng(0).standard_gamma(3, elements, np.float32)
    queue = default_queue()
    # With a queue the device computes, however few elements there are.
    with console.compiling() as first:
        counts, edges = histogram(x, _BINS, (0, 10), queue=queue)
    seconds = []
    with console.progress("timing"):
        for _ in range(_REPEATS):
            start = time.perf_counter()
            histogram(x, _BINS, (0, 10), queue=queue)
            seconds.append(time.perf_counter() - start)
        start = time.perf_counter()
        expected, expected_edges = np.histogram(x, _BINS, (0, 10))
        numpy_seconds = time.perf_counter() - start
    values: dict[str, Any] = {
        "elements": elements,
        "device": queue.device.name.strip(),
        "edges": edges.tolist(),
        "counts": counts.tolist(),
        "seconds": {"first": first.seconds, "call": sorted(seconds)[_REPEATS // 2], "numpy": numpy_seconds},
        "passed": bool((counts == expected).all() and (edges == expected_edges).all()),
    }
    console.report(values, lambda: _text(values, edges, counts))


def _text(values: dict[str, Any], edges: np.ndarray, counts: np.ndarray) -> str:
    seconds = values["seconds"]
    return "\n".join(
        [
            f"clhist.histogram of {values['elements']:,} float32 numbers on {values['device']}",
            "",
            *bars(edges, counts, unicode=shows_unicode(), add=True),
            "",
            f"check   numpy.histogram: {'equal' if values['passed'] else 'DIFFERENT'}",
            f"times   {seconds['call'] * 1e3:.2f} ms per call, numpy.histogram {seconds['numpy'] * 1e3:.0f} ms: "
            f"{seconds['numpy'] / seconds['call']:.1f} times as long (first call {seconds['first']:.2f} s)",
        ]
    )
