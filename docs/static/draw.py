"""Draw the card that sites show where a page is linked to: ``python docs/static/draw.py``."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np

import clhist

matplotlib.use("Agg")
from matplotlib import pyplot as plt

INK, BLUE, RED = "#1f2933", "#4477aa", "#ee6677"


def main() -> None:
    """Count two peaks, and write the words beside them."""
    rng = np.random.default_rng(7)
    x = np.concatenate([rng.normal(-1.2, 0.5, 600_000), rng.normal(1.0, 0.9, 900_000)]).astype(np.float32)
    counts, edges = clhist.histogram(x, bins=120, range=(-4, 4), queue=clhist.default_queue())
    figure = plt.figure(figsize=(12, 6.3), dpi=100, facecolor="white")
    axes = figure.add_axes((0.0, 0.0, 1.0, 0.42))
    axes.bar(edges[:-1], counts, width=np.diff(edges), align="edge", color=np.where(edges[:-1] < -0.2, RED, BLUE))
    axes.set_axis_off()
    axes.margins(0)
    figure.text(0.06, 0.80, "clhist", fontsize=64, weight="bold", color=INK)
    figure.text(0.06, 0.67, "histograms, group-by and scatter-add on any OpenCL device", fontsize=24, color=INK)
    figure.text(0.06, 0.55, "dest[i] = dest[i] ⊕ value", fontsize=24, family="monospace", color=BLUE)
    figure.savefig(Path(__file__).with_name("card.png"), metadata={"Software": None})


if __name__ == "__main__":
    main()
