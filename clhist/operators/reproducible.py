"""Which operators have results that no order of values changes."""

from __future__ import annotations

import numpy as np

from clhist.operators.arithmetic import add, reproducible_add
from clhist.operators.c_types import scalars_of
from clhist.operators.fixed_point import MOST_VALUES, has_format
from clhist.operators.halves import number_of
from clhist.operators.operator import Operator

_ORDERED = ("minimum", "maximum", "fmin", "fmax")


def is_float_sum(operator: Operator) -> bool:
    """Whether it adds floats, and `clhist.operators.reproducible_add` can take its place."""
    number = number_of(operator.dtype)
    return operator.operation == "add" and operator.accumulator == number and has_format(number)


def is_complex_sum(operator: Operator) -> bool:
    """Whether it adds complex numbers, part by part."""
    return operator.dtype.kind == "c" and operator == add(operator.dtype)


def reproducible_form(operator: Operator, max_abs: float | None, count: int) -> Operator:
    """Return the form of `operator` whose results depend on nothing but the values, `dest` among them.

    Parameters
    ----------
    operator : Operator
        Any.
    max_abs : float or None
        For sums of floats: the largest |value|, or None, with which they are exact.
    count : int
        How many values a bin gets at most.

    Raises
    ------
    TypeError
        If there is none.
    """
    if is_float_sum(operator):
        # A window has room for so many values at most.
        most = None if max_abs is None else min(count, MOST_VALUES)
        return reproducible_add(operator.dtype, max_abs, count=most)
    # Minima of floats are those of ordered integers then: it is defined which zero and which NaN they are.
    form = operator.fixed(shared=True)
    if form.positional or all(part.operation in _ORDERED or not _has_floats(part.dtype) for part in form.parts):
        return form
    raise TypeError(
        "reproducible: expected sums of float32 or float64, or an operator whose results do not depend on the order "
        f"of values, got {operator!r}"
    )


def _has_floats(dtype: np.dtype) -> bool:
    return any(scalar.kind in "fc" for scalar in scalars_of(dtype))
