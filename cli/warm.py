"""`clhist warm`: compile what common calls need, before they need it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from time import perf_counter
from typing import Any

import click

from clhist.cli.console import Console, shared_options
from clhist.cli.tables import table, wrapped

_LIMIT = 600.0  # seconds of a call; compilers take a few, and more on busy machines


@click.command()
@click.option("--quick", is_flag=True, help="Compile counts, histograms and sums of one dtype only.")
@click.option(
    "--jobs",
    metavar="N",
    type=click.IntRange(1, 64),
    help="Worker processes; 1: run in-process. [default: one per processor core, at most 8]",
)
@shared_options()
def warm(console: Console, quick: bool, jobs: int | None) -> None:
    """Compile what common calls need.

    Calls the common functions with common dtypes, so that the first calls of later programs load kernels from disk.
    Takes 40 s of processor time on an EPYC (Zen 2), and some seconds when all is compiled. Where several CPU runtimes
    are installed, their kernels are measured first, and the fastest is the default device from then on.

    \b
    Example: for the default device; for another
      clhist warm
      clhist warm --platform Intel --quick
    """
    from clhist._core.opencl.cpu_runtimes import comparison, measure_kernels
    from clhist._core.opencl.device import cpu_runtimes, default_queue
    from clhist.cli.common_calls import calls_elsewhere, common_calls
    from clhist.selftest.checks import HOLDS, UNAVAILABLE
    from clhist.selftest.workers import default_jobs, run_in_processes

    start = perf_counter()
    # With a device named there is no choice of runtimes.
    runtimes = cpu_runtimes() if console.device is None and console.platform is None else []
    with console.progress("CPU runtimes"):
        if runtimes:
            measure_kernels(runtimes)
    # After the measurement, the default device is the fastest runtime's.
    queue = default_queue()
    device = queue.device
    calls = list(common_calls(queue, quick=quick))
    jobs = min(jobs or default_jobs(), len(calls))
    outcomes = []
    with console.progress(f"compiling for {device.name.strip()}", len(calls)) as bar:
        make = calls_elsewhere(device, quick=quick)
        running = run_in_processes(calls, make, jobs, _LIMIT) if jobs > 1 else enumerate(map(_run, calls))
        for _, outcome in running:
            outcomes.append(outcome)
            bar.update(1)
    failed = [outcome for outcome in outcomes if outcome.status not in (HOLDS, UNAVAILABLE)]
    places = caches(device)
    values = {
        "device": device.name.strip(),
        "platform": device.platform.name.strip(),
        "driver": device.driver_version.strip(),
        "fastest_runtime": comparison(runtimes) if runtimes else None,
        "seconds": perf_counter() - start,
        "jobs": jobs,
        "calls": [{"label": o.check.label, "seconds": o.seconds, "status": o.status} for o in outcomes],
        "caches": places,
        "passed": not failed,
    }
    console.report(values, lambda: _text(values, {outcome.check.label: outcome.words for outcome in failed}))


def caches(device: Any) -> dict[str, str]:
    """Return the directories that hold compiled kernels of a device, by who writes them."""
    import platformdirs

    from clhist._core.opencl.caches import pocl_cache

    places = {}
    if not os.environ.get("PYOPENCL_NO_CACHE"):
        places["clhist"] = platformdirs.user_cache_dir("clhist")
    if device.platform.name.strip() == "Portable Computing Language":
        places["PoCL"] = str(pocl_cache())
    if device.platform.name.strip() == "NVIDIA CUDA":
        places["NVIDIA"] = os.environ.get("CUDA_CACHE_PATH") or os.path.expanduser("~/.nv/ComputeCache")
    return places


def _run(call: Any) -> Any:
    return call.run()


def _text(values: Mapping[str, Any], failed: Mapping[str, str]) -> str:
    """Return the text of what was compiled, how long it took, and where it is stored."""
    lines = [wrapped(values["fastest_runtime"])] if values["fastest_runtime"] else []
    number = len(values["calls"])
    lines.append(
        wrapped(
            f"{number} calls for {values['device']} ({values['platform']}, driver {values['driver']}) in "
            f"{values['seconds']:.1f} s, {values['jobs']} process{'es' * (values['jobs'] > 1)}"
        )
    )
    if values["caches"]:
        lines.append("compiled kernels are stored in\n" + table(list(values["caches"].items())))
    else:
        lines.append("nothing is stored: PYOPENCL_NO_CACHE is set, or a cache directory cannot be written")
    if failed:
        lines.append("failed:\n" + table(list(failed.items())))
    return "\n".join(lines)
