"""`clhist kmeans`: Lloyd's algorithm on the points of a file or on generated ones, checked and timed."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from clhist import default_queue
from clhist.cases.files import read_table
from clhist.cases.kmeans import KMeansResult, blobs, kmeans
from clhist.cases.kmeans_lloyd import Lloyd, LloydStep
from clhist.cli.cases.options import (
    DATA,
    digest,
    figure,
    messages,
    only_generated,
    output_option,
    places_off,
    plan_text,
    plan_values,
    plot_option,
    save,
    timed_calls,
)
from clhist.cli.console import Console, shared_options

_PAPER = (100_000, 256, 1024)  # n, d, k of SC'20, section V-D
_QUICK = (20_000, 64, 100)
_TOLERANCE = 1e-4  # relative, of the inertia and of each distance, against float64
_CHOOSING, _ITERATING = "choosing the first centers", "iterations"
_WHOLE = ("call", "first_centers", "iteration", "kernels")  # times that are no kernel's
_CHECKED = 100  # exact sums that are compared with Python's
_SHOWN = 20_000  # points in the plot


@click.command("kmeans")
@click.argument("data", type=DATA, required=False)
@click.option("-k", type=click.IntRange(1), help="Number of clusters.  [default: 8, or the generated number]")
@click.option("--iterations", type=click.IntRange(1), default=300, show_default=True, help="Maximum iterations.")
@click.option(
    "--tolerance",
    type=click.FloatRange(0),
    default=1e-4,
    show_default=True,
    help="Stop when the summed squared shifts of the centers, relative to the mean variance of the features, fall "
    "below this.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the initial centers.")
@click.option(
    "--init",
    type=click.Choice(["k-means++", "random"]),
    default="k-means++",
    show_default=True,
    help="How the initial centers are chosen.",
)
@click.option("--quick", is_flag=True, help="Generate {:,} points of {} features around {} centers.".format(*_QUICK))
@plot_option("the clusters in the two leading principal components, and the inertia of each iteration")
@output_option("labels, centers, inertia, n_iter and history")
@shared_options()
def kmeans_command(
    console: Console,
    data: Path | None,
    k: int | None,
    iterations: int,
    tolerance: float,
    seed: int,
    init: str,
    output: Path | None,
    quick: bool,
    plot: Path | None,
) -> None:
    """Cluster the rows of DATA (.npy, .npz or .csv) by k-means.

    Assignment and update run on the device; the update, counts and sums of the clusters, is one histogram. Without
    DATA, 100,000 points of 256 features are generated around 1,024 centers, as in SC'20. The result is checked in
    float64. The last iteration is also timed with exact sums: the same labels have the same means on every device.

    \b
    Example:
        clhist kmeans --quick --plot clusters.png
        clhist kmeans points.csv -k 5 --output clusters.npz
    """
    only_generated(quick, data)
    console.stage("reading" if data else "generating points")
    if data is not None:
        with messages():
            points = read_table(data)
    else:
        points = blobs(*(_QUICK if quick else _PAPER))
    k = k or (8 if data is not None else _QUICK[2] if quick else _PAPER[2])
    start = time.perf_counter()
    first_centers: float | None = None
    # k-means++ chooses the centers one by one, so its progress can be shown.
    is_spread = init == "k-means++"
    with messages(data), console.progress(_CHOOSING if is_spread else _ITERATING, k if is_spread else None) as bar:

        def chosen(number: int) -> None:
            nonlocal first_centers
            bar.update(number - bar.done)
            first_centers = time.perf_counter() - start
            if number == k:
                bar.stage(_ITERATING)

        result = kmeans(
            points,
            k,
            init=init,
            max_iter=iterations,
            tol=tolerance,
            seed=seed,
            progress=lambda _, inertia: bar.update(1, f"inertia {inertia:.6g}"),
            chosen=chosen,
        )
    seconds = time.perf_counter() - start
    console.stage("checking against float64")
    errors = compare(points, result)
    console.stage("timing an iteration")
    plan, times, _, _ = _timed(points, result)
    exact = _exact(points, result) if default_queue().device.double_fp_config else None
    results = {
        "device": default_queue().device.name.strip(),
        "data": str(data) if data else "generated",
        "n": points.shape[0],
        "d": points.shape[1],
        "k": k,
        "inertia": result.inertia,
        "n_iter": result.n_iter,
        "plan": plan,
        "seconds": {"call": seconds, "first_centers": first_centers, **times},
        "errors": errors,
        "exact": exact,
        "passed": all(error <= _TOLERANCE for error in errors.values()) and (exact is None or exact["error"] <= 0.5),
    }
    if output is not None:
        save(output, **asdict(result))
    if plot is not None:
        _draw(points, result, plot)
    console.report(results, _text(results))


def compare(points: np.ndarray, result: KMeansResult) -> dict[str, float]:
    """Return the relative errors of the inertia, and of the distance to the nearest center for a thousand points."""
    inertia, mean = 0.0, points.mean(0, dtype=np.float64)
    # Centring keeps the digits that the expansion of squared distances below would cancel.
    centers = result.centers - mean
    # About 2**20 numbers at a time limit the memory of the differences.
    for part in np.array_split(np.arange(len(points)), max(1, points.size >> 20)):
        inertia += float(np.square(points[part] - mean - centers[result.labels[part]]).sum())
    some = np.linspace(0, len(points) - 1, min(len(points), 1000)).astype(int)
    near = points[some] - mean
    squares = np.square(near).sum(1)[:, None] - 2 * near @ centers.T + np.square(centers).sum(1)
    beyond = squares[np.arange(len(some)), result.labels[some]] - squares.min(1)
    scale = max(float(np.square(near).mean(0).sum()), np.finfo(float).tiny)
    return {
        # The floor avoids a division by 0 for a perfect clustering.
        "inertia": abs(result.inertia - inertia) / max(inertia, 1e-9 * scale * len(points)),
        "nearest": float(beyond.max()) / scale,
    }


def _timed(
    points: np.ndarray, result: KMeansResult, **options: Any
) -> tuple[list[dict[str, Any]], dict[str, float], Lloyd, LloydStep]:
    """Time an iteration from the centers that were found; `options` are those of `Lloyd`.

    Return the plans of the update, the seconds of the iteration (whole, in a loop, and of each kernel), and what it
    was made with.
    """
    device = default_queue()
    queue = cl.CommandQueue(device.context, device.device, cl.command_queue_properties.PROFILING_ENABLE)
    dtype = points.dtype if points.dtype == np.float32 else np.float64
    lloyd = Lloyd(cl_array.to_device(queue, np.ascontiguousarray(points, dtype)), len(result.centers), queue, **options)
    before, step = lloyd.start(result.centers), lloyd.new_step()
    # The first call of a new queue also creates its resources.
    lloyd.timed(before, step)
    times = timed_calls(lambda: lloyd.timed(before, step))
    return [plan_values(plan) for plan in lloyd.plan()], {"iteration": times.pop("call"), **times}, lloyd, step


def _exact(points: np.ndarray, result: KMeansResult) -> dict[str, Any]:
    """Return plans and seconds of an iteration with exact sums, the worst error of some, and digests of what it left.

    The error is in units in the last place, against Python's exact sums.
    """
    plan, times, lloyd, step = _timed(points, result, exact=True)
    labels, k = step.label.get()[: lloyd.n], lloyd.k
    sums = step.histograms["sum"].get().swapaxes(0, 1).reshape(k, -1)
    some = np.linspace(0, k * lloyd.d - 1, min(k * lloyd.d, _CHECKED)).astype(int)
    error = max(
        places_off(sums[c, j], points[labels == c, j].astype(sums.dtype) - lloyd.mean[j])
        for c, j in zip(*np.divmod(some, lloyd.d), strict=True)
    )
    digests = {"labels": digest(labels.astype(np.int32)), "means": digest(step.centers.get() + lloyd.mean)}
    return {"plan": plan, "seconds": times, "error": error, **digests}


def _text(results: dict[str, Any]) -> str:
    seconds, exact = results["seconds"], results["exact"]
    first = seconds["first_centers"]
    chosen = "" if first is None else f": {first:.3f} s until the first centers were chosen"
    lines = [
        f"{results['data']}: {results['n']:,} points, {results['d']} features, k = {results['k']}",
        f"on {results['device']}",
        f"inertia {results['inertia']:.6g} after {results['n_iter']} iterations",
        *map(plan_text, results["plan"]),
        f"times   {seconds['call']:.3f} s in all, with compiling{chosen}",
        *_iteration("        ", seconds),
    ]
    if exact is not None:
        lines += _iteration("exact   ", exact["seconds"])
        lines[-2] += f" with exact sums, {exact['seconds']['kernels'] / seconds['kernels']:.1f} x the kernels' time"
        lines.append(f"        SHA-256: labels {exact['labels']}, means {exact['means']}, the same for the same labels")
        verdict = "ok" if exact["error"] <= 0.5 else "TOO LARGE"
        lines.append(f"error   {exact['error']:.2f} units in the last place of exact sums (tolerance 0.5): {verdict}")
    for name, error in results["errors"].items():
        verdict = "ok" if error <= _TOLERANCE else "TOO LARGE"
        lines.append(f"error   {error:.1e} of {name}, against float64 (tolerance {_TOLERANCE:.0e}): {verdict}")
    return "\n".join(lines)


def _iteration(label: str, seconds: dict[str, float]) -> list[str]:
    kernels = ", ".join(f"{name} {value * 1e3:.3f}" for name, value in seconds.items() if name not in _WHOLE)
    return [
        f"{label}{seconds['iteration'] * 1e3:.3f} ms per iteration",
        f"        {seconds['kernels'] * 1e3:.3f} ms of it in kernels: {kernels}",
    ]


def _draw(points: np.ndarray, result: KMeansResult, path: Path) -> None:
    shown = np.linspace(0, len(points) - 1, min(len(points), _SHOWN)).astype(int)
    mean = points[shown].mean(0, dtype=np.float64)
    centred = points[shown] - mean
    components = np.linalg.eigh(centred.T @ centred)[1][:, :-3:-1]  # of the largest variances; one, if d = 1
    flat, centers = (
        np.pad(a @ components, ((0, 0), (0, 2 - components.shape[1]))) for a in (centred, result.centers - mean)
    )
    k = len(centers)
    with figure(path, figsize=(11, 5)) as drawing:
        left, right = drawing.subplots(1, 2, width_ratios=(3, 2))
        left.scatter(*flat.T, c=result.labels[shown] % 20, cmap="tab20", s=4, linewidths=0, rasterized=True)
        left.plot(*centers.T, "kx", markersize=8 if k <= 50 else 3, label="centers")
        left.set(xlabel="first principal component", ylabel="second principal component")
        left.set_title(f"{len(points):,} points, {points.shape[1]} features, k = {k}")
        left.legend(loc="best")
        right.plot(range(len(result.history)), result.history, "o-", markersize=3)
        right.set(
            xlabel="iterations",
            ylabel="inertia",
            title=f"inertia {result.inertia:.6g} after {result.n_iter} iterations",
        )
        right.grid(alpha=0.3)
        right.yaxis.set_major_formatter(lambda value, _: f"{value:.4g}")
        right.xaxis.get_major_locator().set_params(integer=True)
