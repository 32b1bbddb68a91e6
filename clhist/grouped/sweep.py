"""The sweeps that compute statistics of groups: their kernels and their results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl

from clhist import operators
from clhist._core.opencl.arrays import Array
from clhist._core.opencl.program import kept_by_context
from clhist._core.runtime.call import Call
from clhist._core.runtime.engine import Engine
from clhist.grouped.hints import check_room
from clhist.operators.c_types import c_name
from clhist.statistics.outputs import Column, Numbers, Output, spread_of, weighted_mean
from clhist.statistics.table import outputs_of


class Sweep(NamedTuple):
    """A kernel with several histograms; `outputs` are those of each column."""

    kernel: Engine
    outputs: tuple[tuple[Output, ...], ...]

    def run(self, args: Sequence[Any], num_groups: int, queue: cl.CommandQueue) -> list[dict[str, Array]]:
        """Return the statistics of each column by their names."""
        arrays = iter(self.kernel.run(args, Call(num_groups, queue=queue)).results)
        results: list[dict[str, Array]] = []
        for outputs in self.outputs:
            by_name: dict[str, Array] = {}
            for output in outputs:
                # A structured result is an array for each field, which is a statistic or unused.
                fields = next(arrays)
                for name, array in zip(output.statistics, fields if type(fields) is tuple else (fields,), strict=True):
                    by_name[name] = array
            by_name.pop("", None)
            results.append(by_name)
        return results


class _Sweeps(NamedTuple):
    """The sweeps of several columns.

    Attributes
    ----------
    first : Sweep
        Of all columns.
    second : Sweep or None
        Around the means of the first sweep, of the columns that need it.
    spread : tuple of int
        These columns.
    sizes : tuple of int
        Bytes of the results of a group.
    """

    first: Sweep
    second: Sweep | None
    spread: tuple[int, ...]
    sizes: tuple[int, ...]


def statistics_of(
    keys: Array,
    arrays: Sequence[Array],
    columns: tuple[Column, ...],
    num_groups: int,
    numbers: Numbers,
    queue: cl.CommandQueue,
) -> list[dict[str, Array]]:
    """Return the statistics of each column by name, with those that others depend on; without order statistics."""
    dtypes = tuple([array.dtype for array in arrays])
    first, second, spread, sizes = _sweeps(queue.context, keys.dtype, columns, dtypes, numbers)
    # Check the memory of both sweeps before the first one is enqueued.
    check_room(num_groups, queue, *sizes)
    results = first.run((keys, *arrays), num_groups, queue)
    if second is not None:
        values, means = [], []
        for c in spread:
            values.append(arrays[c])
            means.append(results[c]["mean"])
        more = second.run((keys, *values, *means, num_groups), num_groups, queue)
        for c, spreads in zip(spread, more, strict=True):
            results[c] |= spreads
    return results


@kept_by_context
def _sweeps(
    context: cl.Context, keys: np.dtype, columns: tuple[Column, ...], dtypes: tuple[np.dtype, ...], numbers: Numbers
) -> _Sweeps:
    first = _first_sweep(context, keys, tuple(column.first for column in columns), dtypes, numbers)
    spread = tuple(c for c, column in enumerate(columns) if column.spreads)
    second = None
    if spread:
        of_spread = tuple(columns[c] for c in spread), tuple(dtypes[c] for c in spread)
        second = _second_sweep(context, keys, *of_spread, numbers)
    outputs = [output for of in (*first.outputs, *(second.outputs if second else ())) for output in of]
    return _Sweeps(first, second, spread, tuple(output.operator.dtype.itemsize for output in outputs))


def _first_sweep(
    context: cl.Context, keys: np.dtype, columns: tuple[Column, ...], dtypes: tuple[np.dtype, ...], numbers: Numbers
) -> Sweep:
    outputs = tuple(outputs_of(column, numbers) for column in columns)
    parts = [_emitted(c, column, outputs[c]) for c, column in enumerate(columns)]
    code = f"const {c_name(keys)} g = keys[i]; {' '.join(parts)}"
    return Sweep(_kernel(context, outputs, [_array(keys, "keys"), *_values(dtypes)], code), outputs)


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
        by_fields=True,
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
    return Engine.of(context, by_name, arguments=", ".join(arguments), map=code, emits=1, by_fields=True)


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
