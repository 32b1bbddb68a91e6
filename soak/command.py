"""The random calls of `clhist selftest --soak`."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from time import monotonic
from typing import Any

from clhist.cli.console import Console


def soak_calls(
    console: Console, queue: Any, seconds: float | None, *, seed: int, only: int | None, jobs: int, threads: int,
    limit: float,
) -> bool:  # fmt: skip
    """Make random calls for some seconds, or only one, print what came of them; return whether anything is wrong."""
    from soak.processes import HOLDS, REFUSED, Calls, Soak, calls_elsewhere, report_text

    calls = Calls(queue, seed, threads)
    soak = Soak(calls_elsewhere(queue, seed, threads), calls.setting, jobs, limit)

    def text_of(number: int, status: str, words: str) -> str:
        return report_text(number, seed, calls.setting(number), status, words, threads)

    if only is not None:
        status, words = soak.one(only)
        program = text_of(only, status, words)
        values = {"seed": seed, "number": only, "call": str(calls.setting(only)), "status": status, "words": words}
        console.report({**values, "program": program}, program)
        return status not in (HOLDS, REFUSED)
    assert seconds is not None
    start, shown = monotonic(), 0
    name = queue.device.name.strip()
    with console.progress(f"{name}, seed {seed}", seconds) as bar:
        for failure in soak.run(seconds):
            bar.update(min(seconds, monotonic() - start) - bar.done, f"{shown} failures" if shown else None)
            if failure is not None and failure.alone is not None:
                shown += 1
                words = f"\n\n# after {failure.seconds:.0f} s, {_alone(failure)}\n"
                sys.stderr.write(words + text_of(failure.number, failure.status, failure.words) + "\n")
    totals, took = soak.totals, monotonic() - start
    covered: dict[str, Counter[str]] = defaultdict(Counter)
    for (what, which), times in sorted(totals.covered.items()):
        covered[what][which] += times
    made = totals.counts.total()
    failed = Counter(failure.status for failure in totals.failures)
    values = {
        "device": name,
        "platform": queue.device.platform.version.strip(),
        "seed": seed,
        "jobs": jobs,
        "threads": threads,
        "seconds": took,
        "calls": made,
        "counts": dict(totals.counts),
        "covered": {what: dict(which) for what, which in covered.items()},
        "failures": [
            {
                "number": each.number,
                "call": str(calls.setting(each.number)),
                "status": each.status,
                "words": each.words,
                "seconds": each.seconds,
                "alone": each.alone,
                "before": each.before,
                "program": text_of(each.number, each.status, each.words),
            }
            for each in totals.failures
        ],
        "memory": totals.memory,
        "problems": totals.problems,
    }
    wrong = ", ".join(f"{number} {status}" for status, number in failed.items()) or "0 wrong"
    lines = [
        f"{made} calls by {jobs} process{'es' * (jobs > 1)} in {took:.0f} s, seed {seed}: "
        f"{totals.counts[HOLDS]} right, {totals.counts[REFUSED]} refused, {wrong}"
    ]
    for what, counts in covered.items():
        if what != "index":
            lines.append(f"{what}: " + ", ".join(f"{times} {each}" for each, times in counts.most_common()))
    for marks in totals.memory:
        first, last = (f"{marks[when]['rss'] / 2**20:,.0f} MiB" for when in ("warm", "end"))
        lines.append(f"memory of a process: {first} before its calls were made again, {last} at the end")
    lines += [f"WRONG: {problem}" for problem in totals.problems]
    for each in totals.failures:
        line = f"WRONG: call {each.number}, after {each.seconds:.0f} s, {_alone(each)}: {calls.setting(each.number)}: "
        lines.append(line + f"{each.status}: {each.words}")
    first_ones = [each for each in totals.failures if each.alone is not None]
    lines += ["", *(text_of(each.number, each.status, each.words) for each in first_ones[:3])]
    if first_ones:
        lines.append(f"again: clhist selftest --seed {seed} --only {first_ones[0].number}")
    console.report(values, "\n".join(lines).rstrip())
    return bool(totals.failures or totals.problems)


def _alone(failure: Any) -> str:
    if failure.alone is None:
        return "like one before"
    if failure.alone:
        return "alone too"
    return f"but not alone in a new process (after calls {', '.join(map(str, failure.before))})"
