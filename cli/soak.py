"""The random calls of `clhist selftest --soak`."""

from __future__ import annotations

import itertools
import os
import sys
import threading
from collections import Counter
from pathlib import Path
from time import monotonic
from typing import Any

import click

from clhist.cli.cases.options import report

# Of the time: for the rest of it the last of these calls are made again and again. Nothing new is to be built then, so
# that memory must be flat but for what allocators waste.
_WARM_UP, _CALLS_AGAIN = 0.5, 1000
_MOST_GROWTH = 64 * 2**20


def soak_calls(
    queue: Any, watchdog: Any, minutes: float | None, *, seed: int, only: int | None, threads: int, as_json: bool
) -> bool:
    """Make random calls for some minutes, or only one, print what came of them; return whether anything is wrong."""
    from clhist.selftest.soak import Soak

    soak = Soak(queue, seed)
    run = _Run(soak, watchdog, queue.device)
    if only is not None:
        with watchdog:
            run.make(only)
        values = {"seed": seed, "call": soak.call(only)[0], "counts": dict(run.count), "wrong": run.wrong}
        report(values, f"call {only}: {values['call']}\n{run.words or 'holds'}", as_json=as_json)
        return bool(run.wrong)
    assert minutes is not None
    start = monotonic()
    seconds, marks = 60 * minutes, [_memory()]
    numbers = itertools.count()
    begun = 0

    def work() -> None:
        nonlocal begun
        while monotonic() - start < _WARM_UP * seconds and not run.error:
            begun = max(begun, number := next(numbers))
            run.make(number)
        half_way.wait()
        first, many = max(0, begun + 1 - _CALLS_AGAIN), min(begun + 1, _CALLS_AGAIN)
        while monotonic() - start < seconds and not run.error:
            run.make(first + next(numbers) % many)

    half_way = threading.Barrier(threads, action=lambda: marks.append(_memory()))

    with (
        watchdog,
        click.progressbar(length=100, label=f"{queue.device.name.strip()}, seed {seed}", file=sys.stderr) as bar,
    ):
        workers = [threading.Thread(target=work, daemon=True) for _ in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            while worker.is_alive():
                worker.join(0.5)
                part = (monotonic() - start) / seconds
                bar.update(min(100, int(100 * part)) - bar.pos)
    marks.append(_memory())
    before, end = marks[1], marks[2]
    rss_bound = before["rss"] + _MOST_GROWTH + max(0, end["scratch"] - before["scratch"])
    pool_bound = 2 * before["scratch"] + _MOST_GROWTH
    problems = [f"call {number}: {words}" for number, words in run.wrong]
    if end["rss"] > rss_bound:
        problems.append(f"memory of the host grew to {_mib(end['rss'])}, more than {_mib(rss_bound)}")
    if end["scratch"] > pool_bound:
        problems.append(f"scratch memory grew to {_mib(end['scratch'])}, more than {_mib(pool_bound)}")
    values = {
        "device": queue.device.name.strip(),
        "platform": queue.device.platform.version.strip(),
        "seed": seed,
        "threads": threads,
        "seconds": monotonic() - start,
        "calls": run.count.total(),
        "counts": dict(run.count),
        "wrong": run.wrong,
        "memory": dict(zip(("start", "warm", "end"), marks, strict=True)),
        "bounds": {"rss": rss_bound, "scratch": pool_bound},
        "problems": problems,
    }
    lines = [f"{run.count.total()} calls by {threads} threads in {values['seconds']:.0f} s, seed {seed}: "
             f"{run.count['holds']} right, {run.count['refused']} refused, {len(run.wrong)} wrong"]  # fmt: skip
    for name, key, bound in (("host", "rss", rss_bound), ("scratch", "scratch", pool_bound)):
        first, warm, last = (_mib(mark[key]) for mark in marks)
        lines.append(f"memory, {name}: {first} at the start, {warm} half-way, {last} at the end; at most {_mib(bound)}")
    lines.append(f"programs built: {marks[1]['programs']} half-way, {marks[2]['programs']} at the end")
    lines += [f"WRONG: {problem}" for problem in problems]
    if run.wrong:
        lines.append(f"again: clhist selftest --seed {seed} --only {run.wrong[0][0]}")
    report(values, "\n".join(lines), as_json=as_json)
    return bool(problems)


class _Run:
    """What has come of the calls so far."""

    def __init__(self, soak: Any, watchdog: Any, device: Any) -> None:
        self.soak, self.watchdog, self.device = soak, watchdog, device
        self.count: Counter[str] = Counter()
        self.wrong: list[tuple[int, str]] = []
        self.words = ""
        self.error = False

    def make(self, number: int) -> None:
        """Make one call and count what came of it."""
        from clhist.selftest.checks import NotAvailableError

        words, call = self.soak.call(number)
        with self.watchdog.watch(f"call {number} of seed {self.soak.seed} ({words})"):
            try:
                call()
            except NotAvailableError as error:
                self.count["refused"] += 1
                self.words = f"refused: {error}"
                return
            except Exception as error:  # of a driver, anything may come
                kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
                self.count["wrong"] += 1
                self.words = f"{words}: {kind}{str(error)[:500]}"
                self.wrong.append((number, self.words))
                sys.stderr.write(f"\ncall {number}: {self.words}\n")
                self.error = len(self.wrong) >= 10
                return
        self.count["holds"] += 1


def _memory() -> dict[str, int]:
    """Return the bytes that this process has in memory and in pools on the device, and how many programs it built."""
    from clhist.opencl.memory import scratch_bytes
    from clhist.opencl.program import programs_built

    return {"rss": _resident(), "scratch": scratch_bytes(), "programs": programs_built()}


def _resident() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # what macOS has: bytes, and the most ever
        return peak if sys.platform == "darwin" else 1024 * peak


def _mib(number: int) -> str:
    return f"{number / 2**20:,.0f} MiB"
