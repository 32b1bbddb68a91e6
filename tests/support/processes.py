"""Python code in a process of its own: for what happens once in a process, or may end it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.synchronize import Barrier
from textwrap import dedent

import numpy as np

import clhist
from clhist._core.runtime.outputs import Outputs
from clhist.selftest.checks import Check
from soak.processes import Calls

LONGEST = 250  # seconds


def run_python(code: str, *, before: str = "", through: Sequence[str] = (), **environment: str) -> str:
    """Run `code` with the clhist under test and return what it printed; fail if it did not end well.

    `before` runs before clhist is imported; `through` is a command that runs another.
    """
    paths = f"import sys; sys.path[:] = {sys.path!r}; {before}\n"
    paths += f"import clhist; clhist.__path__[:] = {list(clhist.__path__)!r}\n"
    run = subprocess.run(
        [*through, sys.executable, "-c", paths + dedent(code)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=LONGEST,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def begin_together(barrier: Barrier) -> None:
    """Let the first counts of processes of `multiprocessing`, as many as meet there, begin at the same time."""
    global _all_there
    _all_there = barrier


def count_in_a_process(seed: int) -> tuple[int, bool]:
    """Return the number of this process, and whether what it counts is right; for `multiprocessing`."""
    _all_there.wait(LONGEST)
    x = np.random.default_rng(seed).integers(0, 99, 5000)
    return os.getpid(), np.array_equal(clhist.bincount(x), np.bincount(x))


def three_checks(second: Callable[[], None]) -> list[Check]:
    """Return checks of which the first and the last hold."""
    actions = {"first": lambda: None, "second": second, "third": lambda: None}
    return [Check("row", "column", name, action) for name, action in actions.items()]


def crash() -> None:
    """End the process as a driver would."""
    os.kill(os.getpid(), signal.SIGSEGV)


def hang() -> None:
    """Say so, and do not come back."""
    print("hangs", flush=True)
    time.sleep(1000)


def no_checks() -> list[Check]:
    """End the process before it has any."""
    os._exit(3)


def plant_defect() -> None:
    """Let the last bin of NumPy's results be the first."""
    original = Outputs.collect

    def collect(self, results):
        for result in results:
            if isinstance(result, np.ndarray) and result.size:
                result.flat[-1] = result.flat[0]
        return original(self, results)

    Outputs.collect = collect


def calls_with_a_defect(make: Callable[[], Calls]) -> Calls:
    """Return random calls for which the defect is planted."""
    plant_defect()
    return make()


class Ending(Calls):
    """Random calls whose number 1 ends the process and whose number 2 never returns."""

    def run(self, number: int) -> tuple[str, str]:
        """Make the call."""
        if number == 1:
            os.abort()  # some runtimes take a SIGSEGV
        if number == 2:
            time.sleep(1000)
        return "holds", ""


def ending_calls(make: Callable[[], Calls]) -> Ending:
    """Return random calls of which some end a process."""
    return Ending(make().queue, 0)


class OnlyAfterOthers(Calls):
    """Random calls of which number 3 is wrong if number 2 was made before."""

    def run(self, number: int) -> tuple[str, str]:
        """Make the call."""
        found = ("wrong bins", "all") if number == 3 and os.environ.get("MADE_BEFORE") else ("holds", "")
        os.environ["MADE_BEFORE"] = "yes" * (number == 2)
        return found


def calls_after_others(make: Callable[[], Calls]) -> OnlyAfterOthers:
    """Return random calls of which one is wrong after another."""
    return OnlyAfterOthers(make().queue, 0)
