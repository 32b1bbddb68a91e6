"""What `reproducible=True` does: the engine whose results no order of values changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from clhist.engine.call import Call, CheckedCall, Outcome
from clhist.engine.engine import Engine
from clhist.operators.reproducible import is_float_sum, reproducible_form


def reproducible(engine: Engine, checked: CheckedCall, max_abs: float | None) -> tuple[Engine, CheckedCall]:
    """Return the engine whose results depend on nothing but the values, and what a call of it is given.

    Parameters
    ----------
    engine, checked
        Of the call; its arguments have been checked.
    max_abs : float or None
        The largest |value| of sums of floats; None for exact ones.

    Raises
    ------
    TypeError, ValueError
        If an operator has no such form, or it is not known how many values a bin may get.
    """
    known = engine.outputs.operators
    for operator, emits in zip(known, engine.output_emits, strict=True):
        if is_float_sum(operator) and emits is None:
            raise ValueError(
                "reproducible: expected a kernel that says by emits= how many values an element has at most, since "
                "that is not plain from its map"
            )
    count = checked.longest * engine.emits + 1
    forms = [reproducible_form(operator, max_abs, count) for operator in known]
    form = engine.with_operators(forms)
    form.check_counts(checked.longest)
    targets = [replace(target, operator=o) for target, o in zip(checked.targets, forms, strict=True)]
    return form, replace(checked, targets=targets)


def reproducibly(engine: Engine, args: Sequence[Any], call: Call) -> Outcome:
    """Run a call whose results depend on nothing but the values."""
    form, checked = reproducible(engine, engine.check(args, call), None)
    return form.run_checked(checked, call)
