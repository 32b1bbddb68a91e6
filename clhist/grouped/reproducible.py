"""Sums, means and variances of groups that are bitwise the same in any order of the elements and on any device.

The sums are those of `clhist.operators.reproducible_add`, each an output of its own; what is made of them is computed
on the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyopencl as cl

from clhist import operators
from clhist._core.opencl.arrays import Array, is_device_array, on_host
from clhist._core.opencl.memory import OutOfMemoryError
from clhist._core.opencl.new_arrays import to_device
from clhist._core.opencl.program import kept_by_context
from clhist._core.runtime.call import Call
from clhist._core.runtime.engine import Engine
from clhist._core.runtime.reproducible import reproducible
from clhist.operators.c_types import c_name
from clhist.operators.operator import Operator
from clhist.statistics.outputs import Column, Numbers
from clhist.statistics.table import TABLE
from clhist.statistics.variance import deviation_terms, variance

_OF_SUMS = ("sum", "mean", "var", "std", "sem")


def names_of(column: Column) -> tuple[str, ...]:
    """Return the statistics of a column whose rounding depends on the order; sums of integers are exact.

    Raises
    ------
    TypeError
        If one of them has no reproducible form.
    """
    others = [name for name in column.statistics if TABLE[name].rounds and name not in _OF_SUMS]
    if column.dtype.kind == "c" or others or (column.dtype.kind == "f" and "prod" in column.statistics):
        what = "a product" if "prod" in column.statistics else repr(others[0]) if others else "complex numbers"
        raise TypeError(f"reproducible: expected sums, means and variances of real numbers, got {what}")
    return tuple(name for name in column.statistics if TABLE[name].rounds and not (name == "sum" and column.is_exact))


def reproducible_statistics(
    keys: Array, array: Array, column: Column, num_groups: int, numbers: Numbers, queue: cl.CommandQueue
) -> dict[str, np.ndarray]:
    """Return sums, means, variances and standard deviations of one column by their names, on the host."""
    values, terms = column.dtype, (f"({c_name(numbers.real)})v", "1")
    counted = operators.add(numbers.real), operators.add(numbers.count)
    # First sweep: exact sums and counts, which the host divides.
    total, size = _sums((keys, array), values, column.skipna, terms, counted, num_groups, queue)
    count = size.astype(numbers.real.type)
    results: dict[str, np.ndarray] = {}
    with np.errstate(all="ignore"):
        mean = total / count
        results |= {"sum": total.astype(column.total), "mean": mean.astype(column.result)}
        if column.spreads:
            # Second sweep: exact sums of the deviations from these means.
            means = to_device(queue, mean) if is_device_array(keys) else mean
            terms, summed = deviation_terms(terms[0], "means[g]"), (counted[0],) * 2
            arrays = keys, array, means, num_groups
            shift, squared = _sums(arrays, values, column.skipna, terms, summed, num_groups, queue)
            var = variance(count, shift, squared, column.ddof)
            spreads = {"var": var, "std": np.sqrt(var), "sem": np.sqrt(var / count)}
            results |= {name: spread.astype(column.result) for name, spread in spreads.items()}
    return {name: results[name] for name in names_of(column)}


def reproducible_mean(
    keys: Array, x: Array, weights: Array, num_groups: int, skipna: bool, numbers: Numbers, queue: cl.CommandQueue
) -> np.ndarray:
    """Return the means of `x` by their weights, on the host."""
    real = c_name(numbers.real)
    terms, summed = (f"({real})v * ({real})w", f"({real})w"), (operators.add(numbers.real),) * 2
    total, weight = _sums((keys, x, weights), x.dtype, skipna, terms, summed, num_groups, queue)
    with np.errstate(all="ignore"):
        return total / weight


def _sums(
    args: tuple[Any, ...],
    values: np.dtype,
    skipna: bool,
    terms: Sequence[str],
    of: tuple[Operator, ...],
    num_groups: int,
    queue: cl.CommandQueue,
) -> list[np.ndarray]:
    """Return exact sums of `terms` of the values that count, on the host.

    `args` are keys, values of this dtype, and weights, or means of the groups and how many of these there are.
    """
    dtypes = tuple(array.dtype for array in args[:3])
    engine = _engine(queue.context, dtypes, Column(values, (), skipna, 0, values, values), tuple(terms), of)
    try:
        return [on_host(result, queue) for result in engine.run(args, Call(num_groups, queue=queue)).results]
    except OutOfMemoryError:  # its message names the purpose
        raise
    except MemoryError as error:  # from the planner, whose message names a budget that callers cannot set
        device = queue.device.name.strip()
        fewer = f"fewer, for whose exact sums {device} has memory, got {num_groups}"
        raise MemoryError(f"num_groups: expected {fewer}") from error


@kept_by_context
def _engine(
    context: cl.Context, dtypes: tuple[np.dtype, ...], column: Column, terms: tuple[str, ...], of: tuple[Operator, ...]
) -> Engine:
    are_around = any("means[g]" in term for term in terms)
    names, condition = ("keys", "values", "means" if are_around else "weights"), column.condition
    arguments = ", ".join(f"const {c_name(dtype)} *{name}" for name, dtype in zip(names, dtypes, strict=False))
    elements = f"const {c_name(dtypes[0])} g = keys[i]; const {c_name(dtypes[1])} v = values[i];"
    if are_around:
        # The map reads the mean of a group before the engine checks its number.
        arguments, condition = f"{arguments}, const long groups", f"if (g >= 0 && g < groups) {condition}"
    elif len(dtypes) > 2:
        elements += f" const {c_name(dtypes[2])} w = weights[i];"
        condition += "if (w == w) " if column.skipna and dtypes[2].kind == "f" else ""
    calls = " ".join(f"EMIT{k}(g, {term});" for k, term in enumerate(terms))
    code = f"{elements} {condition}{{ {calls} }}"
    return reproducible(Engine.of(context, of, arguments=arguments, map=code, emits=1))
