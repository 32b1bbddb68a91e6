"""The sweeps that compute statistics of groups: their kernels and their results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyopencl as cl

from clhist import operators
from clhist._core.opencl.arrays import Array
from clhist._core.opencl.new_arrays import empty
from clhist._core.opencl.program import kept_by_context
from clhist._core.runtime.engine import Engine
from clhist.grouped.hints import check_room
from clhist.operators.c_types import c_name
from clhist.statistics.outputs import Column, Numbers, Output, spread_of, weighted_mean
from clhist.statistics.table import outputs_of


@dataclass(frozen=True)
class Sweep:
    """A kernel with several histograms; `outputs` are those of each column."""

    kernel: Engine
    outputs: tuple[tuple[Output, ...], ...]

    def __call__(self, *args: Any, num_groups: int, queue: cl.CommandQueue, on_device: bool) -> list[dict[str, Array]]:
        """Return the statistics of each column by their names."""
        results: list[dict[str, Array]] = [{} for _ in self.outputs]
        out: dict[str, Any] = {}

        def new(dtype: np.dtype) -> Array:
            return empty(queue, (num_groups,), dtype, on_device)

        for c, outputs in enumerate(self.outputs):
            for k, output in enumerate(outputs):
                dtype = output.operator.dtype
                # An array for each field of a structured result, which is a statistic or unused.
                arrays = tuple(new(dtype[name]) for name in dtype.names or ()) or (new(dtype),)
                out[_suffix(c, k)] = arrays if dtype.names else arrays[0]
                results[c] |= {name: array for name, array in zip(output.statistics, arrays, strict=True) if name}
        self.kernel(*args, num_bins=num_groups, out=out, queue=queue)
        return results


def statistics_of(
    keys: Array,
    arrays: Sequence[Array],
    columns: Sequence[Column],
    num_groups: int,
    numbers: Numbers,
    queue: cl.CommandQueue,
    *,
    on_device: bool,
) -> list[dict[str, Array]]:
    """Return the statistics of each column by name, with those that others depend on; without order statistics."""
    firsts = tuple(column.first for column in columns)
    where: dict[str, Any] = {"num_groups": num_groups, "queue": queue, "on_device": on_device}
    dtypes = tuple(array.dtype for array in arrays)
    first, second = _first_sweep(queue.context, keys.dtype, firsts, dtypes, numbers), None
    # Variances need the means of the first sweep.
    if spread := [c for c, column in enumerate(columns) if column.spreads]:
        again = tuple(columns[c] for c in spread), tuple(dtypes[c] for c in spread)
        second = _second_sweep(queue.context, keys.dtype, *again, numbers)
    # Check the memory of both sweeps before the first one is enqueued.
    outputs = [output for of in (*first.outputs, *(second.outputs if second else ())) for output in of]
    check_room(num_groups, queue, *(output.operator.dtype.itemsize for output in outputs))
    results = first(keys, *arrays, **where)
    if second:
        means = [results[c]["mean"] for c in spread]
        more = second(keys, *(arrays[c] for c in spread), *means, num_groups, **where)
        for c, spreads in zip(spread, more, strict=True):
            results[c] |= spreads
    return results


@kept_by_context
def _first_sweep(
    context: cl.Context, keys: np.dtype, columns: tuple[Column, ...], dtypes: tuple[np.dtype, ...], numbers: Numbers
) -> Sweep:
    outputs = tuple(outputs_of(column, numbers) for column in columns)
    parts = [_emitted(c, column, outputs[c]) for c, column in enumerate(columns)]
    code = f"const {c_name(keys)} g = keys[i]; {' '.join(parts)}"
    return Sweep(_kernel(context, outputs, [_array(keys, "keys"), *_values(dtypes)], code), outputs)


@kept_by_context
def _second_sweep(
    context: cl.Context, keys: np.dtype, columns: tuple[Column, ...], dtypes: tuple[np.dtype, ...], numbers: Numbers
) -> Sweep:
    outputs = tuple((spread_of(column, numbers),) for column in columns)
    means = [_array(column.result, f"m{c}") for c, column in enumerate(columns)]
    parts = [
        f"{{ const {c_name(column.result)} m = m{c}[g]; {_emitted(c, column, outputs[c])} }}"
        for c, column in enumerate(columns)
    ]
    # The map reads the mean of a group before the engine checks its number.
    code = f"const {c_name(keys)} g = keys[i]; if (g >= 0 && g < groups) {{ {' '.join(parts)} }}"
    arguments = [_array(keys, "keys"), *_values(dtypes), *means, "const long groups"]
    return Sweep(_kernel(context, outputs, arguments, code), outputs)


@kept_by_context
def weighted_kernel(
    context: cl.Context,
    keys: np.dtype,
    values: np.dtype,
    weights: np.dtype,
    result: np.dtype,
    skipna: bool,
    numbers: Numbers,
) -> Engine:
    """Return the kernel of weighted means, which are the first field of its results."""
    column = Column(values, (), skipna, 0, result, result)
    output = weighted_mean(values, weights, result, numbers.real)
    condition = f"{column.condition}{'if (w == w) ' if skipna and weights.kind == 'f' else ''}"
    return Engine.of(
        context,
        output.operator,
        arguments=", ".join([_array(keys, "keys"), _array(values, "values"), _array(weights, "weights")]),
        map=f"const {c_name(values)} v = values[i]; const {c_name(weights)} w = weights[i]; "
        f"{condition}EMIT(keys[i], {output.value})",
        emits=1,
    )


@kept_by_context
def size_kernel(context: cl.Context, keys: np.dtype) -> Engine:
    """Return the kernel that counts elements."""
    return Engine.of(
        context, operators.count(np.int64), arguments=_array(keys, "keys"), map="EMIT(keys[i], 1)", emits=1
    )


def _kernel(context: cl.Context, outputs: Sequence[Sequence[Output]], arguments: Sequence[str], code: str) -> Engine:
    by_name = {
        _suffix(c, k): output.operator
        for c, column_outputs in enumerate(outputs)
        for k, output in enumerate(column_outputs)
    }
    return Engine.of(context, by_name, arguments=", ".join(arguments), map=code, emits=1)


def _emitted(c: int, column: Column, outputs: Sequence[Output]) -> str:
    """Return the C that emits the element of a column to all of its histograms."""
    calls = " ".join(
        f"EMIT_{_suffix(c, k)}(g, {output.value.replace('value_t', f'value_{_suffix(c, k)}_t')});"
        for k, output in enumerate(outputs)
    )
    return f"{{ const {c_name(column.dtype)} v = x{c}[i]; {column.condition}{{ {calls} }} }}"


def _suffix(c: int, k: int) -> str:
    return f"{c}s{k}"


def _values(dtypes: Sequence[np.dtype]) -> list[str]:
    return [_array(dtype, f"x{c}") for c, dtype in enumerate(dtypes)]


def _array(dtype: np.dtype, name: str) -> str:
    return f"const {c_name(dtype)} *{name}"
