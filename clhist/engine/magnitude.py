"""What `reproducible=True` does: operators whose results no order of values changes, and the largest |value|."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl as cl

from clhist import operators
from clhist.opencl.arrays import Array, is_device_array
from clhist.opencl.lost import fetched
from clhist.operators.c_types import c_name
from clhist.operators.fixed_point import FORMATS, MOST_VALUES, magnitude
from clhist.operators.operator import Operator
from clhist.planning.problem import Histogram
from clhist.race_factor import counting

if TYPE_CHECKING:
    from clhist.kernel import HistogramKernel

_ORDERED = ("minimum", "maximum", "fmin", "fmax")


def is_float_sum(operator: Operator) -> bool:
    """Whether it adds floats, and `clhist.operators.reproducible_add` can take its place."""
    return operator.operation == "add" and operator.accumulator == operator.dtype and operator.dtype in FORMATS


def reproducible_form(operator: Operator, max_abs: float | None, count: int) -> Operator:
    """Return the form of `operator` whose results depend on nothing but the values, `dest` among them.

    Parameters
    ----------
    operator : Operator
        Any.
    max_abs : float or None
        The largest |value|, for sums of floats.
    count : int
        How many values a bin gets at most.

    Raises
    ------
    TypeError
        If there is none.
    """
    if is_float_sum(operator):
        assert max_abs is not None
        return operators.reproducible_add(operator.dtype, max_abs, count=min(count, MOST_VALUES))
    # Minima of floats are those of ordered integers then: it is defined which zero and which NaN they are.
    form = operator.fixed(shared=True)
    if form.positional or all(part.operation in _ORDERED or not _has_floats(part.dtype) for part in form.parts):
        return form
    raise TypeError(
        "reproducible: expected sums of float32 or float64, or an operator whose results do not depend on the order "
        f"of values, got {operator!r}"
    )


def _has_floats(dtype: np.dtype) -> bool:
    if dtype.subdtype is not None:
        return _has_floats(dtype.subdtype[0])
    if dtype.fields is not None:
        return any(_has_floats(field[0]) for field in dtype.fields.values())
    return dtype.kind in "fc"


def largest_magnitude(
    arrays: Sequence[Any], dtype: np.dtype, queue: cl.CommandQueue, wait_for: Sequence[cl.Event] = ()
) -> float:
    """Return the largest finite |value| of arrays and scalars, converted to `dtype`; 0 if there is none.

    It is looked for on the device, which is waited for.
    """
    found = 0.0
    for array in arrays:
        if np.ndim(array) == 0 and not is_device_array(array):
            with np.errstate(over="ignore"):
                number = abs(float(dtype.type(array)))
            found = max(found, number if np.isfinite(number) else 0.0)
        elif array.size:
            kernel = _largest(queue.context, dtype, np.dtype(array.dtype).newbyteorder("="))
            flat = array.reshape(-1) if not is_device_array(array) or array.ndim > 1 else array
            result = kernel(flat, num_bins=1, queue=queue, wait_for=wait_for)
            found = max(found, float((fetched(result, queue) if is_device_array(result) else result)[0]))
    return found


@lru_cache(maxsize=64)
def _largest(context: cl.Context, dtype: np.dtype, given: np.dtype) -> HistogramKernel:
    from clhist.kernel import HistogramKernel  # which uses this module

    value = magnitude(operators.add(dtype))
    return HistogramKernel(
        context, value, arguments=f"const {c_name(given)} *values", map=f"EMIT(0, ({c_name(dtype)})values[i])"
    )


def magnitudes(given: Sequence[Operator]) -> tuple[Operator, ...]:
    """Return for each operator one on the same values: the largest |value| of sums of floats, counts of others."""
    return tuple(magnitude(each) if is_float_sum(each) else counting(each) for each in given)


def largest_values(
    given: Sequence[Operator],
    results: Sequence[Array],
    dests: Sequence[Sequence[Array]],
    queue: cl.CommandQueue,
    wait_for: Sequence[cl.Event],
) -> list[float | None]:
    """Return the largest |value| of each sum of floats, of `results` of the `magnitudes` and of `dests`."""
    return [
        largest_magnitude([result, *dest], operator.dtype, queue, wait_for) if is_float_sum(operator) else None
        for operator, result, dest in zip(given, results, dests, strict=True)
    ]


def check_emits(histograms: Sequence[Histogram]) -> None:
    """Raise ValueError if it is not known how many values a bin may get of a sum of floats."""
    for histogram in histograms:
        if is_float_sum(histogram.operator) and histogram.max_pairs is None:
            raise ValueError(
                "reproducible: expected a kernel that says by emits= how many values an element has at most, since "
                "that is not plain from its map"
            )
