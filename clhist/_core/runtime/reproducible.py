"""The engine of `reproducible=True`, whose results do not depend on the order of values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clhist._core.runtime.call import Call
from clhist._core.runtime.engine import Engine
from clhist.operators.fixed_point import MOST_VALUES
from clhist.operators.reproducible import is_float_sum, reproducible_form


def reproducible(engine: Engine, args: Sequence[Any] = (), call: Call | None = None, max_abs: Any = None) -> Engine:
    """Return the engine whose results depend on nothing but the values.

    Parameters
    ----------
    engine : Engine
        Of the same map.
    args, call
        Those of the call, needed with `max_abs`: the form depends on the number of values that a bin may get.
    max_abs : float or None
        The largest |value| of sums of floats; None for exact ones.

    Raises
    ------
    TypeError, ValueError
        If an operator has no such form, or it is not known how many values a bin may get.
    """
    count = 0
    if max_abs is not None and call is not None:
        # An element may emit more than the caller states, so that sums need room for more.
        has_bound = not any(engine.source.may_exceed)
        count = engine.check(args, call).longest * engine.emits + 1 if has_bound else MOST_VALUES
    operators = engine.outputs.operators
    for operator, emits in zip(operators, engine.output_emits, strict=True):
        if is_float_sum(operator) and emits is None:
            raise ValueError(
                "reproducible: expected a kernel that says by emits= how many values an element has at most, since "
                "that is not plain from its map"
            )
    return engine.with_operators([reproducible_form(operator, max_abs, count) for operator in operators])
