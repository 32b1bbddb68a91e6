"""A case for each published strategy that the library has for comparison."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyopencl as cl

from clhist.selftest.inputs import drawn
from clhist.strategies import STRATEGIES, Runner, datasets
from emulated.cases.case import Action, Case

_OURS = "clhist"


def published_cases() -> Iterator[Case]:
    """Yield a case for each; one that a GPU cannot have is refused there, and said to be."""
    for name in STRATEGIES:
        if name != _OURS:
            yield Case(f"published: {name}", _counted(name), covers=frozenset([f"published {name}"]))


class RefusedError(Exception):
    """A strategy is not for this device, and says so."""


def _counted(name: str) -> Action:
    def action(queue: cl.CommandQueue, rng: np.random.Generator) -> None:
        runner = Runner(queue.context)
        runner.limits = replace(runner.limits, compute_units=2)
        data = datasets.indices("half in one", drawn("half in one", rng, 3001, 31), 31)
        few = {"work_groups": 3} if name.startswith("blog") else {}
        outcome = runner.outcome(STRATEGIES[name], data, timed=False, **few)
        if outcome.state == "not applicable":
            raise RefusedError(outcome.note)
        assert outcome.state == "right", f"{outcome.state}: {outcome.note}"

    return action
