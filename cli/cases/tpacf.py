"""`clhist tpacf`: the two-point angular correlation function of a catalogue, checked and timed."""

from __future__ import annotations

import time
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import numpy as np

from clhist import default_queue
from clhist.cases import tpacf as case
from clhist.cases import tpacf_data as sky
from clhist.cases.files import read_table
from clhist.cases.tpacf_pairs import CataloguePairs
from clhist.cli.cases.options import (
    DATA,
    figure,
    messages,
    only_generated,
    output_option,
    plan_text,
    plan_values,
    plot_option,
    save,
    times_text,
)
from clhist.cli.console import Console, shared_options
from clhist.cli.tables import grid

_CHECKED = 2000  # points of the data whose pairs NumPy counts as well


@click.command()
@click.argument("data", required=False, type=DATA)
@click.argument("random", nargs=-1, type=DATA)
@click.option(
    "--points", type=click.IntRange(2), default=10391, show_default=True, help="Points per generated catalogue."
)
@click.option(
    "--random-sets",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    help="Number of generated random catalogues.",
)
@click.option("--quick", is_flag=True, help="Generate 2,000 points and 20 random sets.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Seed of generated catalogues.")
@click.option("--smallest", default=1.0, show_default=True, help="Lower edge of the first bin, in arcmin.")
@click.option("--largest", default=10000.0, show_default=True, help="Upper edge of the last bin, in arcmin.")
@click.option(
    "--bins-per-decade",
    type=click.IntRange(1, 1000),
    default=5,
    show_default=True,
    help="Bins per factor of 10 in angle.",
)
@click.option(
    "--estimator",
    type=click.Choice(list(case.ESTIMATORS)),
    default="landy-szalay",
    show_default=True,
    help="Estimator of w(θ).",
)
@click.option(
    "--precision",
    type=click.Choice(["float32", "float64"]),
    help="Precision of the angle computation.  [default: the best the device has]",
)
@plot_option("w(theta) and the catalogue")
@output_option("edges, dd, dr, rr, w and error")
@shared_options()
def tpacf(  # noqa: PLR0913  # an option each
    console: Console,
    data: Path | None,
    random: tuple[Path, ...],
    points: int,
    random_sets: int,
    quick: bool,
    seed: int,
    smallest: float,
    largest: float,
    bins_per_decade: int,
    estimator: str,
    precision: str | None,
    plot: Path | None,
    output: Path | None,
) -> None:
    """Compute the two-point angular correlation function w(θ) of a sky catalogue.

    DATA and RANDOM are catalogues: .csv, text, .npy or .npz with right ascension and declination in degrees. RANDOM
    catalogues hold uncorrelated points over the same part of the sky. Without files, both are generated at the size of
    Parboil's large data set, 16 billion pairs. The counts are checked against NumPy.

    \b
    Example:
        clhist tpacf --quick --plot correlation.png
        clhist tpacf galaxies.csv random-*.csv --output correlation.npz
    """
    if data and not random:
        raise click.UsageError("RANDOM: expected catalogues that cover the same part of the sky as DATA, got none")
    only_generated(quick, data)
    edges = sky.angular_edges(bins_per_decade, smallest, largest)
    if data:
        with messages():
            catalogues = [_catalogue(path) for path in (data, *random)]
    else:
        points, random_sets = (2000, 20) if quick else (points, random_sets)
        rng = np.random.default_rng(seed)
        catalogues = [sky.clustered_catalogue(points, rng)]
        catalogues += [sky.random_catalogue(points, rng) for _ in range(random_sets)]
    with console.compiling():
        wrong = misplaced(catalogues[0][:_CHECKED], edges, precision)
    pairs = case.correlation_pairs(catalogues[0], catalogues[1:], edges, dtype=precision)
    total = int(pairs.num_pairs.sum())
    with console.progress("pairs", total) as bar:
        start = time.perf_counter()
        counts, kernels = pairs.timed(progress=bar.update)
        seconds = time.perf_counter() - start
    # Every pair must be in one bin: lost or repeated ones count as misplaced.
    wrong += int(np.abs(counts.sum(1) - pairs.num_pairs).sum())
    correlation = case.AngularCorrelation.of_counts(edges, counts, estimator)
    values: dict[str, Any] = {
        "device": default_queue().device.name.strip(),
        "data": str(data) if data else "generated",
        "num_points": [len(catalogue) for catalogue in catalogues],
        "num_pairs": total,
        "precision": pairs.dtype.name,
        "estimator": estimator,
        "edges": edges.tolist(),
        "dd": correlation.dd.tolist(),
        "dr": correlation.dr.sum(0).tolist(),
        "rr": correlation.rr.sum(0).tolist(),
        # JSON has no NaN: bins without an estimate have null.
        "w": [w if np.isfinite(w) else None for w in correlation.w.tolist()],
        "error": [error if np.isfinite(error) else None for error in correlation.error.tolist()],
        "plan": plan_values(pairs.plan()),
        "seconds": {"call": seconds, "kernels": sum(kernels.values()), **kernels},
        "misplaced": wrong,
        "passed": wrong == 0,
    }
    if output:
        save(output, **{field.name: getattr(correlation, field.name) for field in fields(correlation)})
    if plot:
        draw(correlation, catalogues[0], values["data"], plot)
    console.report(values, _text(values))


def _catalogue(path: Path) -> np.ndarray:
    points = read_table(path, columns=2)
    sky.unit_vectors(points, str(path))  # which refuses what is none, by the name of the file
    if len(points) < 2:
        raise ValueError(f"{path}: expected at least 2 points, got {len(points)}")
    return points


def misplaced(points: np.ndarray, edges: np.ndarray, precision: str | None) -> int:
    """Return by how many pairs the counts of `points` with each other differ from NumPy's, beyond rounding.

    Where rounding (relative to 1 u, the half of eps) puts a chord c wrong by: coordinates of two points 2 u; their
    difference, its square and the edge's 3 c u. That is less than (1 + 2 c) eps.
    """
    vectors = sky.unit_vectors(points)
    pairs = CataloguePairs({"data": vectors}, [("data", "data")], edges, dtype=precision)
    counts = pairs.counts()[0]
    chords = np.sort(np.concatenate([np.linalg.norm(vectors[k + 1 :] - v, axis=1) for k, v in enumerate(vectors)]))
    limits = np.sqrt(sky.squared_chords(edges))
    slack = (1 + 2 * np.minimum(limits, 2)) * np.finfo(pairs.dtype).eps
    nearer = np.cumsum(counts)[:-1]  # than each edge
    least, most = (np.searchsorted(chords, limits + sign * slack) for sign in (-1, 1))
    off = np.maximum(0, np.maximum(least - nearer, nearer - most)).sum()
    return int(off) + abs(int(counts.sum()) - chords.size)


def draw(correlation: case.AngularCorrelation, points: np.ndarray, title: str, path: Path) -> None:
    """Draw w(theta), filled where it is positive, and the points on the sky."""
    # The first bin may begin at 0, whose geometric mean is 0: take a tenth of its end there.
    centre = np.sqrt(np.maximum(correlation.edges[:-1], correlation.edges[1] / 10) * correlation.edges[1:])
    with figure(path, figsize=(12, 4.8)) as drawing:
        ax = drawing.add_subplot(1, 2, 1)
        for sign, fill, label in ((1, "C0", "positive"), (-1, "white", "negative, |w|")):
            shown = (sign * correlation.w > 0) & np.isfinite(correlation.error)
            error = correlation.error[shown]
            w = np.abs(correlation.w[shown])
            # What reaches below 0 would reach below every axis of logarithms.
            bars = np.stack([np.minimum(error, 0.9 * w), error])
            ax.errorbar(centre[shown], w, bars, fmt="o", color="C0", mfc=fill, capsize=2, label=label)
        ax.set(xscale="log", yscale="log", xlabel="angle θ / arcmin", ylabel="w(θ)")
        ax.set_title("Two-point angular correlation, Poisson errors")
        ax.grid(alpha=0.3)
        ax.legend()
        globe = drawing.add_subplot(1, 2, 2, projection="mollweide")
        longitude = np.radians((points[:, 0] + 180) % 360 - 180)
        globe.scatter(longitude, np.radians(points[:, 1]), s=min(4, 3e4 / len(points)), linewidths=0, color="C0")
        globe.grid(alpha=0.3)
        globe.tick_params(labelsize="x-small")
        globe.set_title(f"{len(points):,} points: {title}", pad=14)


def _text(values: dict[str, Any]) -> str:
    edges, sizes = values["edges"], values["num_points"]
    rate = values["num_pairs"] / values["seconds"]["call"] / 1e9
    rows: list[tuple[str, ...]] = [("arcmin", "DD", "DR", "RR", "w", "")]
    for k, (w, error) in enumerate(zip(values["w"], values["error"], strict=True)):
        counts = (f"{values[name][k + 1]:,}" for name in ("dd", "dr", "rr"))
        result = ("-" if w is None else f"{w:.4f}", "" if error is None else f"+- {error:.4f}")
        rows.append((f"{edges[k]:.5g} to {edges[k + 1]:.5g}", *counts, *result))
    lines = [
        f"{values['data']}: {sizes[0]:,} points, {len(sizes) - 1} random sets of {sum(sizes[1:]):,} points, "
        f"{values['num_pairs']:,} pairs in {values['precision']}",
        grid(rows),
        f"on {values['device']}",
        f"{plan_text(values['plan'])}, {values['plan']['num_histograms']:,} histograms at a time",
        f"{times_text(values['seconds'])}; {rate:.2f} billion pairs a second",
        f"check   {values['misplaced']:,} pairs misplaced: " + ("ok" if values["passed"] else "WRONG"),
    ]
    return "\n".join(lines)
