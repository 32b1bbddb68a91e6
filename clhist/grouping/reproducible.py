"""Sums, means and variances of groups that are bitwise the same in any order of the elements and on any device.

The sums are those of `clhist.operators.reproducible_add`, each an output of its own; what is made of them is computed
on the host.
"""

from __future__ import annotations

import numpy as np
import pyopencl as cl

from clhist import operators
from clhist.engine.engine import Engine
from clhist.engine.given import Call
from clhist.engine.reproducible import reproducibly
from clhist.grouping.statistics import Column, Numbers
from clhist.opencl.arrays import Array, is_device_array, to_device
from clhist.opencl.program import kept_by_context
from clhist.operators.c_types import c_name

_SUMMED = ("sum", "mean", "var", "std")


def names_of(column: Column) -> tuple[str, ...]:
    """Return the statistics of a column that sum floats; of integers the sums themselves are exact.

    Raises
    ------
    TypeError
        If one of them has no such form.
    """
    if column.dtype.kind == "c" or (column.dtype.kind == "f" and "prod" in column.statistics):
        what = "a product" if "prod" in column.statistics else "complex numbers"
        raise TypeError(f"reproducible: expected sums, means and variances of real numbers, got {what}")
    return tuple(name for name in _SUMMED if name in column.statistics and not (name == "sum" and column.is_exact))


def reproducible_statistics(
    keys: Array, array: Array, column: Column, num_groups: int, numbers: Numbers, queue: cl.CommandQueue
) -> dict[str, np.ndarray]:
    """Return sums, means, variances and standard deviations of one column by their names, on the host."""
    names, real = names_of(column), numbers.real.type
    call = Call(num_groups, queue=queue)
    sums = _sums(queue.context, keys.dtype, column.dtype, column.skipna, numbers)
    total, size = (_on_host(each, queue) for each in reproducibly(sums, (keys, array), call).results)
    count = size.astype(real)
    found: dict[str, np.ndarray] = {}
    with np.errstate(all="ignore"):
        mean = total / count
        found |= {"sum": total.astype(column.total), "mean": mean.astype(column.result)}
        if column.spreads:
            given = to_device(queue, mean) if is_device_array(keys) else mean
            squares = _squares(queue.context, keys.dtype, column.dtype, column.skipna, numbers)
            results = reproducibly(squares, (keys, array, given, num_groups), call).results
            shift, square = (_on_host(each, queue) for each in results)
            deviations = np.maximum(square - shift * shift / count, real(0))
            variance = np.where(count > column.ddof, deviations / (count - real(column.ddof)), real(np.nan))
            found |= {"var": variance.astype(column.result), "std": np.sqrt(variance).astype(column.result)}
    return {name: found[name] for name in names}


def reproducible_mean(
    keys: Array, x: Array, weights: Array, num_groups: int, skipna: bool, numbers: Numbers, queue: cl.CommandQueue
) -> np.ndarray:
    """Return the means of `x` by their weights, on the host."""
    kernel = _weighted(queue.context, keys.dtype, x.dtype, weights.dtype, skipna, numbers)
    results = reproducibly(kernel, (keys, x, weights), Call(num_groups, queue=queue)).results
    total, weight = (_on_host(each, queue) for each in results)
    with np.errstate(all="ignore"):
        return total / weight


def _on_host(array: Array, queue: cl.CommandQueue) -> np.ndarray:
    return array.get(queue) if is_device_array(array) else array


@kept_by_context
def _sums(context: cl.Context, keys: np.dtype, values: np.dtype, skipna: bool, numbers: Numbers) -> Engine:
    condition = Column(values, (), skipna, 0, values, values).condition
    return Engine.of(
        context,
        [operators.add(numbers.real), operators.add(numbers.count)],
        arguments=f"const {c_name(keys)} *keys, const {c_name(values)} *values",
        map=f"const {c_name(values)} v = values[i]; "
        f"{condition}{{ EMIT0(keys[i], ({c_name(numbers.real)})v); EMIT1(keys[i], 1); }}",
        emits=1,
    )


@kept_by_context
def _squares(context: cl.Context, keys: np.dtype, values: np.dtype, skipna: bool, numbers: Numbers) -> Engine:
    condition, real = Column(values, (), skipna, 0, values, values).condition, c_name(numbers.real)
    return Engine.of(
        context,
        [operators.add(numbers.real)] * 2,
        arguments=f"const {c_name(keys)} *keys, const {c_name(values)} *values, const {real} *means, const long groups",
        map=f"const {c_name(values)} v = values[i]; const long g = keys[i]; if (g >= 0 && g < groups) {condition}{{ "
        f"const {real} d = ({real})v - means[g]; EMIT0(g, d); EMIT1(g, d * d); }}",
        emits=1,
    )


@kept_by_context
def _weighted(
    context: cl.Context, keys: np.dtype, values: np.dtype, weights: np.dtype, skipna: bool, numbers: Numbers
) -> Engine:
    condition, real = Column(values, (), skipna, 0, values, values).condition, c_name(numbers.real)
    condition += "if (w == w) " if skipna and weights.kind == "f" else ""
    return Engine.of(
        context,
        [operators.add(numbers.real)] * 2,
        arguments=f"const {c_name(keys)} *keys, const {c_name(values)} *values, const {c_name(weights)} *weights",
        map=f"const {c_name(values)} v = values[i]; const {c_name(weights)} w = weights[i]; "
        f"{condition}{{ EMIT0(keys[i], ({real})v * ({real})w); EMIT1(keys[i], ({real})w); }}",
        emits=1,
    )
