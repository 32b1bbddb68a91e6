"""What `reproducible=True` does: the largest |value|, and the engine whose results no order of values changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyopencl as cl

from clhist import operators
from clhist.engine.engine import Engine
from clhist.engine.given import Call, Given, Outcome, fresh_targets
from clhist.opencl.arrays import is_device_array
from clhist.opencl.lost import fetched
from clhist.opencl.program import kept_by_context
from clhist.operators.c_types import c_name
from clhist.operators.reproducible import counting, is_float_sum, magnitude, reproducible_form
from clhist.planning.problem import FREE


def reproducible(engine: Engine, given: Given, call: Call, max_abs: float | None) -> tuple[Engine, Given]:
    """Return the engine whose results depend on nothing but the values, and what a call of it is given.

    Parameters
    ----------
    engine, given, call
        The call; its arguments have been checked.
    max_abs : float or None
        The largest |value| of sums of floats; None looks for it, with one sweep over the input that is waited for.

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
    largest = [max_abs] * len(known)
    if max_abs is None and any(is_float_sum(operator) for operator in known):
        largest = _largest_values(engine, given, call)
    count = given.longest * engine.emits + 1
    forms = [reproducible_form(o, most, count) for o, most in zip(known, largest, strict=True)]
    form = engine.with_operators(forms)
    form.check_counts(given.longest)
    targets = [target.with_operator(o) for target, o in zip(given.targets, forms, strict=True)]
    return form, replace(given, targets=targets)


def reproducibly(engine: Engine, args: Sequence[Any], call: Call, max_abs: float | None = None) -> Outcome:
    """Run a call whose results depend on nothing but the values; the parameters are those of `reproducible`."""
    engine, given = reproducible(engine, engine.check(args, call), call, max_abs)
    return engine.run_given(given, call)


def _largest_values(engine: Engine, given: Given, call: Call) -> list[float | None]:
    """Return the largest |value| of each sum of floats, `dest` among them; None of other outputs."""
    known = engine.outputs.operators
    looking = engine.with_operators([magnitude(each) if is_float_sum(each) else counting(each) for each in known])
    # Accumulators are read, since a number of values is no result of an operator on structs.
    targets = fresh_targets(looking.outputs.operators, [target.shape for target in given.targets], partial=True)
    found = looking.run_given(replace(given, targets=targets), replace(call, choices=FREE, race_factor=1.0)).results
    return [
        largest_magnitude(
            [result.view(operator.dtype), *(target.dest or ())], operator.dtype, given.queue, given.wait_for
        )
        if is_float_sum(operator)
        else None
        for operator, result, target in zip(known, found, given.targets, strict=True)
    ]


def largest_magnitude(
    arrays: Sequence[Any], dtype: np.dtype, queue: cl.CommandQueue, wait_for: Sequence[cl.Event] = ()
) -> float:
    """Return the largest finite |value| of arrays and scalars, converted to `dtype`; 0 if there is none.

    The device looks for it, and is waited for.
    """
    found = 0.0
    for array in arrays:
        if np.ndim(array) == 0 and not is_device_array(array):
            with np.errstate(over="ignore"):
                number = abs(float(dtype.type(array)))
            found = max(found, number if np.isfinite(number) else 0.0)
        elif array.size:
            engine = _largest(queue.context, dtype, np.dtype(array.dtype).newbyteorder("="))
            flat = array.reshape(-1) if not is_device_array(array) or array.ndim > 1 else array
            (result,) = engine.run([flat], Call(1, queue=queue, wait_for=wait_for)).results
            found = max(found, float((fetched(result, queue) if is_device_array(result) else result)[0]))
    return found


@kept_by_context
def _largest(context: cl.Context, dtype: np.dtype, given: np.dtype) -> Engine:
    value = magnitude(operators.add(dtype))
    return Engine.of(context, value, f"const {c_name(given)} *values", f"EMIT(0, ({c_name(dtype)})values[i])")
