"""The command: parts of the work on targets, each in a process of its own, to which a device is presented."""

from __future__ import annotations

import argparse
import faulthandler
import os
import re
import shlex
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from zlib import crc32

import pyopencl as cl

from emulated import alu, device
from emulated.cases import Case, listed
from emulated.launch import settings, totals
from emulated.outcomes import BAD, Outcome, outcome, outcome_of
from emulated.places import HERE, VARIABLE, NotPreparedError, places
from emulated.targets import EVERY_RUN, SHARING, TARGETS

PARTS = ("cases", "faults", "counts", "selftest")
UNITS = 4  # compute units that a device claims: each work-group takes time
_WORKERS, _LONGEST = 2, 1500
_BUDGET = 100_000_000  # wave instructions of a launch, which hangs if it takes more


def main(words: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; return the exit status."""
    given = _arguments(words)
    try:
        places()
    except NotPreparedError as error:
        print(f"emulated: {error}", file=sys.stderr)
        return 2
    if given.pytest is not None:
        return _pytest(given.targets[0] if given.targets else EVERY_RUN[0], given.pytest)
    if given.here:
        return _run_here(given.targets[0], given)
    given.share = not (given.targets or given.full or given.case)
    targets = given.targets or (list(TARGETS) if given.full else list(EVERY_RUN))
    parts = given.part or (PARTS if given.full else PARTS[:-1])
    begin = time.monotonic()
    with ThreadPoolExecutor(_WORKERS) as pool:
        jobs = [(target, part) for part in parts for target in targets]
        results = list(pool.map(lambda job: _elsewhere(*job, given), jobs))
    failed = {job: text for job, text in zip(jobs, results, strict=True) if text}
    print("".join(failed.values()), end="")  # once more, where the end of a long output is all that is read
    said = f"FAILED: {'; '.join(map(', '.join, failed))}" if failed else "all as meant"
    print(f"{said}: {time.monotonic() - begin:.0f} s")
    return min(1, len(failed))


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python .ci/emulated", description="Execute clhist's kernels on AMD GPUs.")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}")
    parser.add_argument("--part", action="append", choices=PARTS, help="cases, planted faults, counts, the self-test")
    parser.add_argument("--case", default="", metavar="REGEX", help="names of cases, faults, counts or checks")
    parser.add_argument("--seed", type=int, default=1, help="of all that is random")
    parser.add_argument("--full", action="store_true", help="all targets, and the whole self-test")
    parser.add_argument("--update", action="store_true", help="store the counts instead of comparing them")
    parser.add_argument("--pytest", metavar="WORDS", help="run pytest with these words, on the first target")
    parser.add_argument("--list", action="store_true", help="only the names of cases")
    parser.add_argument("--verbose", action="store_true", help="a line for what is right, too")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--share", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(words)
    if unknown := [name for name in given.targets if name not in TARGETS]:
        parser.error(f"{unknown[0]}: expected one of {', '.join(TARGETS)}")
    if given.list:
        print("\n".join(case.name for case in listed()))
        parser.exit()
    return given


def _pytest(target: str, words: str) -> int:
    """Run clhist's own tests on a target."""
    import pytest

    class Presented:
        @pytest.hookimpl(trylast=True)
        def pytest_configure(self) -> None:  # after tests/conftest.py has chosen the host's runtime
            device.present(target, UNITS)

    try:
        return int(pytest.main(["-p", "no:cacheprovider", *shlex.split(words)], plugins=[Presented()]))
    finally:
        alu.save()


def _elsewhere(target: str, part: str, given: argparse.Namespace) -> str:
    """Run a part on a target in another process, show what it says, and return that if it fails."""
    line = [sys.executable, str(HERE), target, "--here", "--part", part, "--case", given.case]
    flags = {"--share": given.share, "--update": given.update, "--verbose": given.verbose}
    line += ["--seed", str(given.seed), *(flag for flag, chosen in flags.items() if chosen)]
    environment = os.environ | {VARIABLE: str(places().root)}
    try:
        run = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=_LONGEST, check=False)
    except subprocess.TimeoutExpired:
        code, text = 1, f"{target}, {part}: no end after {_LONGEST} s\n"
    else:
        code = run.returncode
        text = f"{run.stdout}{run.stderr}{target}, {part}: exit status {code}\n" if code else run.stdout
    print(text, end="", flush=True)
    return text if code else ""


def _run_here(target: str, given: argparse.Namespace) -> int:
    faulthandler.enable()
    settings.restart(given.seed)
    if given.part[0] != "selftest":  # in which one check has 2^31 elements
        settings.budget = _BUDGET
    device.present(target, None if given.part[0] == "counts" else UNITS)
    from clhist._core.opencl.device import default_queue, device_profile

    begin, queue = time.monotonic(), default_queue()
    profile = device_profile(queue.device)
    part = given.part[0]
    if part == "cases":
        proven = sorted(feature.partition(":")[2] for feature in profile.features or () if ":" in feature)
        print(f"{target}: {profile.name}; proven: {', '.join(proven) or 'nothing'}")
    rows = _rows(part, target, queue, given)
    counted, lines = Counter[str](), 0
    for name, found in rows:
        counted[found.word] += 1
        lines += 1
        if found.word in BAD or given.verbose:
            text = f"\n    {found.text}" if found.text else ""
            print(f"{found.word:8} {name}{text}", flush=True)
        if found.word in BAD:
            print(f"    repeat: python .ci/emulated {target} --part {part} --seed {given.seed} --case {_pattern(name)}")
        if lines % 20 == 0:
            alu.save()
    alu.save()
    if not lines:
        print(f"{target}, {part}: nothing is called {given.case}")
        return 1
    said = ", ".join(f"{count} {word}" for word, count in sorted(counted.items()))
    print(
        f"{target}, {part}: {said}; {totals['launches']} launches, {totals['steps'] / 1e6:.1f} M wave instructions, "
        f"{time.monotonic() - begin:.0f} s",
        flush=True,
    )
    return int(any(word in BAD for word in counted))


def _pattern(name: str) -> str:
    return f"'^{re.escape(name)}$'".replace("\\ ", " ")


def _rows(part: str, target: str, queue: cl.CommandQueue, given: argparse.Namespace) -> Iterator[tuple[str, Outcome]]:
    """Yield each thing's name, and what came of it."""
    if part == "cases":
        for case in _chosen(listed(), given.case):
            # A checksum of the name, since neighbours in the list differ in the same things again and again.
            if given.share and target in SHARING and SHARING[crc32(case.name.encode()) % len(SHARING)] != target:
                continue
            yield case.name, outcome_of(case, queue)
    elif part == "faults":
        from emulated.faults import PLANTED, noticed

        for planted in PLANTED:
            if re.search(given.case, planted.name):
                as_meant, found = noticed(planted, queue.device)
                word = "seen" if as_meant and found.word in BAD else "passes" if as_meant else "ERROR"
                said = found.text.partition("\n")[0]
                yield planted.name, Outcome(word, f"{found.word}: {said}; expected {' or '.join(planted.outcomes)}")
    elif part == "counts":
        from emulated.counting import compared

        for name, action in compared(TARGETS[target], queue, update=given.update):
            if re.search(given.case, name):
                yield name, outcome(action)
    else:
        yield from _selftest(queue, given.case)


def _chosen(cases: Iterable[Case], pattern: str) -> list[Case]:
    return [case for case in cases if re.search(pattern, case.name)]


def _selftest(queue: cl.CommandQueue, pattern: str) -> Iterator[tuple[str, Outcome]]:
    from clhist._core.opencl.device import device_profile
    from clhist.selftest.forms import form_checks
    from clhist.selftest.updates import update_checks

    profile = device_profile(queue.device)
    checks = [
        *update_checks(queue, profile, size="full"),
        *form_checks(queue, {"as planned": None}, size="full"),
    ]
    for check in checks:
        if re.search(pattern, check.label):
            settings.restart(settings.seed)
            yield check.label, outcome(check.action)
