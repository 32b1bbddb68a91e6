"""`clhist selftest`: whether a device computes right, by the checks that the tests use, or by random calls."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from time import perf_counter
from typing import Any

import click

from clhist.cli.clone import from_clone
from clhist.cli.console import Console, shared_options
from clhist.cli.tables import grid, table, wrapped

_SHORT = {"float32": "f32", "float64": "f64", "complex64": "c64", "complex128": "c128"}
_LEGEND = (
    "A number: checks that hold; FAILS: at least one does not; -: the device lacks it; blank: not checked. "
    "On CPUs, updates are checked as on a simulated small GPU, whose copies are shared, and forms in both ways."
)

# Of a GPU that nobody has measured.
_NEW_DEVICE = (
    "\nNobody has sent results of this GPU yet. Please do, right or wrong: paste this output into the form\n"
    '"New device" at https://github.com/OWNER/clhist/issues/new/choose'
)


@click.command()
@click.option("--cuda", is_flag=True, help="Check launches by CUDA, on arrays in its memory. Needs PyTorch or CuPy.")
@click.option("--quick", is_flag=True, help="Check some types and forms only: half a minute at first, on two cores.")
@click.option(
    "--limit",
    type=click.FloatRange(min=0, min_open=True),
    default=120.0,
    show_default=True,
    help="Timeout per check or random call in seconds, including compilation.",
)
@click.option(
    "--jobs",
    metavar="N",
    type=click.IntRange(1, 64),
    help="Worker processes; 1: run in-process. [default: one per processor core, at most 8]",
)
@click.option(
    "--soak",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    help="Make random calls for SECONDS instead. Needs a clone.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the random calls.")
@click.option("--only", metavar="K", type=click.IntRange(min=0), help="Make only random call K of the seed.")
@click.option(
    "--threads",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Threads that make each random call at once.",
)
@shared_options()
def selftest(
    console: Console,
    cuda: bool,
    quick: bool,
    limit: float,
    jobs: int | None,
    soak: float | None,
    seed: int,
    only: int | None,
    threads: int,
) -> None:
    """Check that a device computes right.

    Compares every update, memory, type and form with the host. Nearly all of the first run is kernel compilation. The
    exit status is 1 if anything is wrong; please report the output then. If the device hangs, the command names the
    check and ends.

    With --soak, random calls run in worker processes; failing ones are printed as programs.

    \b
    Example: a new device; its launches by CUDA; half an hour of random calls in four processes; one failed call again
      clhist selftest --device H200
      clhist selftest --device H200 --cuda
      clhist selftest --soak 1800 --seed 1 --jobs 4
      clhist selftest --seed 1 --only 4711
    """
    from clhist._core.opencl.device import default_queue
    from clhist.selftest.watchdog import Watchdog
    from clhist.selftest.workers import default_jobs

    if cuda and (soak is not None or only is not None):
        raise click.UsageError("--cuda: expected without --soak and --only, whose calls are of OpenCL")
    is_random = soak is not None or only is not None
    calls = from_clone("soak.command", "--soak" if only is None else "--only") if is_random else None
    queue = default_queue()
    watchdog = Watchdog(limit, lambda name: _hangs(name, limit, queue.device))
    if calls is None:
        wrong = _checks(console, queue, watchdog, quick=quick, jobs=jobs or default_jobs(), cuda=cuda)
    else:
        many = {"jobs": jobs or default_jobs(), "threads": threads, "limit": limit}
        wrong = calls.soak_calls(console, queue, soak, seed=seed, only=only, **many)
    if wrong:
        raise click.exceptions.Exit(1)


def _hangs(name: str, limit: float, device: Any) -> None:
    sys.stderr.write(f"\n{device.name.strip()} hangs: {name} has taken {limit:g} s\n")
    sys.stderr.flush()


def _checks(console: Console, queue: Any, watchdog: Any, *, quick: bool, jobs: int, cuda: bool) -> bool:
    """Run the checks, print what came of them, and return whether something is wrong."""
    from clhist._core.model.times import BANDWIDTH
    from clhist._core.opencl.device import device_kind, device_profile
    from clhist.selftest.checks import HOLDS, UNAVAILABLE, WRONG, advice
    from clhist.selftest.suite import checks, checks_elsewhere, cuda_checks

    start = perf_counter()
    every = list(cuda_checks(queue.device, quick=quick) if cuda else checks(queue, quick=quick))
    if jobs == 1:
        # Here a watchdog ends what hangs; worker processes have a limit of their own.
        running = _here(every, watchdog)
    else:
        running = _in_processes(every, checks_elsewhere(queue.device, quick=quick, cuda=cuda), jobs, watchdog)
    outcome_of = {}
    # Closing the generator ends the worker processes, after an exception as well.
    with console.progress(queue.device.name.strip(), len(every)) as bar, closing(running):
        for number, outcome in running:
            outcome_of[number] = outcome
            bar.update(1)
    # Checks end in any order: report them in the order of the suite.
    outcomes = [outcome_of[number] for number in range(len(every))]
    seconds = perf_counter() - start
    count = Counter(outcome.status for outcome in outcomes)
    wrong = [outcome for outcome in outcomes if outcome.status == WRONG]
    features = sorted(device_profile(queue.device).features or ())
    better = advice(outcomes, features)
    values = {
        "device": queue.device.name.strip(),
        "platform": queue.device.platform.version.strip(),
        "driver": queue.device.driver_version.strip(),
        "kind": device_kind(queue.device),
        "seconds": seconds,
        "counts": {status: count[status] for status in (HOLDS, WRONG, UNAVAILABLE)},
        "checks": [
            {
                "row": o.check.row,
                "column": o.check.column,
                "name": o.check.name,
                "status": o.status,
                "words": o.words,
                "seconds": o.seconds,
            }
            for o in outcomes
        ],
        "features": features,
        "features_that_hold": better,
    }
    lines = [
        f"{values['device']} ({values['platform']}, driver {values['driver']}){', by CUDA' * cuda}\n",
        _tables(outcomes),
        "",
        wrapped(_LEGEND),
    ]
    if wrong:
        lines.append("\nwrong:\n" + table([(o.check.label, o.words) for o in wrong]))
        lines.append(_advice(better))
    lines.append(
        f"\n{count[HOLDS]} hold, {count[WRONG]} wrong, {count[UNAVAILABLE]} not available; {seconds:.1f} s in all"
    )
    if not count[HOLDS]:
        lines.append(f"nothing could be checked: {outcomes[0].words}")
    # Profiles have a bandwidth if the device was measured.
    if values["kind"] == "gpu" and BANDWIDTH not in device_profile(queue.device).rates:
        lines.append(_NEW_DEVICE)
    console.report(values, "\n".join(lines))
    # A device on which nothing could be checked does not pass.
    return bool(wrong) or not count[HOLDS]


def _here(checks: Sequence[Any], watchdog: Any) -> Generator[tuple[int, Any], None, None]:
    with watchdog:
        for number, check in enumerate(checks):
            with watchdog.watch(check.label):
                outcome = check.run()
            yield number, outcome


def _in_processes(
    checks: Sequence[Any], make: Callable[[], Any], jobs: int, watchdog: Any
) -> Generator[tuple[int, Any], None, None]:
    from clhist.selftest.workers import HangError, run_in_processes

    try:
        yield from run_in_processes(checks, make, jobs, watchdog.seconds)
    except HangError as error:
        watchdog.report(str(error))
        sys.exit(1)


def _advice(better: list[str] | None) -> str:
    if better is None:
        return "\nNo entry of a profile avoids this; please report it with this table."
    listed = ", ".join(f'"{feature}"' for feature in better)
    return (
        "\nThe device's profile should say (docs/devices.md; then run this again, which must hold):\n"
        f"  features = [{listed}]"
    )


def _tables(outcomes: Sequence[Any]) -> str:
    """Return a table of updates by types, and one of forms by profiles."""
    from clhist.selftest.updates import COLUMNS

    texts = []
    forms = [o for o in outcomes if o.check.column not in COLUMNS]
    for part in ([o for o in outcomes if o.check.column in COLUMNS], forms):
        rows = list(dict.fromkeys(o.check.row for o in part))
        columns = list(dict.fromkeys(o.check.column for o in part))
        # Types have an order of their own, forms that of their names.
        columns.sort(key=list(COLUMNS).index if part is not forms else str)
        cells = [[_cell([o for o in part if (o.check.row, o.check.column) == (r, c)]) for c in columns] for r in rows]
        head = ["", *(_SHORT.get(c, c) for c in columns)]
        texts.append(grid([head, *([row, *row_cells] for row, row_cells in zip(rows, cells, strict=True))], indent=2))
    return "\n\n".join(texts)


def _cell(outcomes: Sequence[Any]) -> str:
    from clhist.selftest.checks import HOLDS, WRONG

    statuses = Counter(outcome.status for outcome in outcomes)
    if statuses[WRONG]:
        return "FAILS"
    return str(statuses[HOLDS]) if statuses[HOLDS] else "-" if outcomes else ""
