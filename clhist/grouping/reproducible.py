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
from clhist.engine.call import Call
from clhist.engine.engine import Engine
from clhist.engine.reproducible import reproducibly
from clhist.opencl.arrays import Array, is_device_array, to_device
from clhist.opencl.memory import OutOfMemoryError
from clhist.opencl.program import kept_by_context
from clhist.operators.c_types import c_name
from clhist.operators.operator import Operator
from clhist.statistics.outputs import Column, Numbers
from clhist.statistics.table import TABLE
from clhist.statistics.variance import deviation_terms, variance


def names_of(column: Column) -> tuple[str, ...]:
    """Return the statistics of a column that sum floats; of integers the sums themselves are exact.

    Raises
    ------
    TypeError
        If one of them has no such form.
    """
    others = [name for name in column.statistics if name in ("skew", "kurt")]
    if column.dtype.kind == "c" or others or (column.dtype.kind == "f" and "prod" in column.statistics):
        what = "a product" if "prod" in column.statistics else repr(others[0]) if others else "complex numbers"
        raise TypeError(f"reproducible: expected sums, means and variances of real numbers, got {what}")
    return tuple(name for name in column.statistics if TABLE[name].rounds and not (name == "sum" and column.is_exact))


def reproducible_statistics(
    keys: Array, array: Array, column: Column, num_groups: int, numbers: Numbers, queue: cl.CommandQueue
) -> dict[str, np.ndarray]:
    """Return sums, means, variances and standard deviations of one column by their names, on the host."""
    names, real = names_of(column), numbers.real.type
    values = _of_values(column.dtype, column.skipna)
    sums = _sums(queue.context, keys.dtype, values, numbers)
    total, size = (_on_host(each, queue) for each in _results(sums, (keys, array), num_groups, queue))
    count = size.astype(real)
    found: dict[str, np.ndarray] = {}
    with np.errstate(all="ignore"):
        mean = total / count
        found |= {"sum": total.astype(column.total), "mean": mean.astype(column.result)}
        if column.spreads:
            given = to_device(queue, mean) if is_device_array(keys) else mean
            squares = _squares(queue.context, keys.dtype, values, numbers)
            results = _results(squares, (keys, array, given, num_groups), num_groups, queue)
            shift, squared = (_on_host(each, queue) for each in results)
            var = variance(count, shift, squared, column.ddof)
            spreads = {"var": var, "std": np.sqrt(var), "sem": np.sqrt(var / count)}
            found |= {name: each.astype(column.result) for name, each in spreads.items()}
    return {name: found[name] for name in names}


def reproducible_mean(
    keys: Array, x: Array, weights: Array, num_groups: int, skipna: bool, numbers: Numbers, queue: cl.CommandQueue
) -> np.ndarray:
    """Return the means of `x` by their weights, on the host."""
    kernel = _weighted(queue.context, keys.dtype, _of_values(x.dtype, skipna), weights.dtype, numbers)
    total, weight = (_on_host(each, queue) for each in _results(kernel, (keys, x, weights), num_groups, queue))
    with np.errstate(all="ignore"):
        return total / weight


def _results(engine: Engine, args: Sequence[Any], num_groups: int, queue: cl.CommandQueue) -> list[Any]:
    try:
        return reproducibly(engine, args, Call(num_groups, queue=queue)).results
    except OutOfMemoryError:  # which says what for
        raise
    except MemoryError as error:  # of the plan, which names a budget that no caller of ours gives
        device = queue.device.name.strip()
        raise MemoryError(
            f"num_groups: expected fewer, for whose exact sums {device} has memory, got {num_groups}"
        ) from error


def _on_host(array: Array, queue: cl.CommandQueue) -> np.ndarray:
    return array.get(queue) if is_device_array(array) else array


def _kernel(
    context: cl.Context,
    values: dict[str, np.dtype],
    arguments: str,
    condition: str,
    emits: Sequence[str],
    *of: Operator,
) -> Engine:
    """Return the kernel that emits these values to operators `of` for each element that counts."""
    columns = {"g": "keys", "v": "values", "w": "weights"}
    arrays = ", ".join(f"const {c_name(dtype)} *{columns[name]}" for name, dtype in values.items())
    elements = " ".join(f"const {c_name(dtype)} {name} = {columns[name]}[i];" for name, dtype in values.items())
    calls = " ".join(f"EMIT{k}(g, {value});" for k, value in enumerate(emits))
    code = f"{elements} {condition}{{ {calls} }}"
    return Engine.of(context, of, arguments=arrays + arguments, map=code, emits=1)


@kept_by_context
def _sums(context: cl.Context, keys: np.dtype, column: Column, numbers: Numbers) -> Engine:
    sums = operators.add(numbers.real), operators.add(numbers.count)
    given = {"g": keys, "v": column.dtype}
    return _kernel(context, given, "", column.condition, (f"({c_name(numbers.real)})v", "1"), *sums)


@kept_by_context
def _squares(context: cl.Context, keys: np.dtype, column: Column, numbers: Numbers) -> Engine:
    real = c_name(numbers.real)
    arguments, condition = f", const {real} *means, const long groups", f"if (g >= 0 && g < groups) {column.condition}"
    terms = deviation_terms(f"({real})v", "means[g]")
    return _kernel(
        context, {"g": keys, "v": column.dtype}, arguments, condition, terms, *[operators.add(numbers.real)] * 2
    )


@kept_by_context
def _weighted(context: cl.Context, keys: np.dtype, column: Column, weights: np.dtype, numbers: Numbers) -> Engine:
    condition, real = column.condition, c_name(numbers.real)
    condition += "if (w == w) " if column.skipna and weights.kind == "f" else ""
    emits, given = (f"({real})v * ({real})w", f"({real})w"), {"g": keys, "v": column.dtype, "w": weights}
    return _kernel(context, given, "", condition, emits, *[operators.add(numbers.real)] * 2)


def _of_values(dtype: np.dtype, skipna: bool) -> Column:
    """Return a column of which only the values and those that count matter."""
    return Column(dtype, (), skipna, 0, dtype, dtype)
