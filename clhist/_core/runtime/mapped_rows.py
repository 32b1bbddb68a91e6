"""Reductions by index of rows that are computed from several arrays: no array of the rows themselves is written."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import NamedTuple

import numpy as np
import pyopencl as cl

from clhist._core.kernels.maps import RowText
from clhist._core.model.problem import Rows
from clhist._core.opencl.arrays import Array, is_device_array
from clhist._core.opencl.device import planning_profile
from clhist._core.opencl.program import kept_by_context
from clhist._core.runtime.call import Call, queue_for, queue_of
from clhist._core.runtime.engine import Engine
from clhist.operators.c_types import c_name
from clhist.operators.operator import Operator


class MappedRows(NamedTuple):
    """The parameters of an engine of computed rows.

    Attributes
    ----------
    operator : Operator
        How rows are combined.
    index_dtype : numpy.dtype
        Of the indices.
    arrays : tuple of (str, numpy.dtype)
        Names and dtypes of the arrays that the value is computed from.
    value : str
        C of one component of a row: ``{row}`` is the number of the row, ``{component}`` that of the component, and
        ``{element}`` that of the component among those of all rows.
    vector : int
        Components of a row.
    by_rows : bool
        Whether an element of the map is a row, as on CPUs.
    numbers : tuple of str
        Names of scalars, which are of type long.
    """

    operator: Operator
    index_dtype: np.dtype
    arrays: tuple[tuple[str, np.dtype], ...]
    value: str
    vector: int
    by_rows: bool
    numbers: tuple[str, ...]


def reduce_mapped(
    shape: tuple[int, ...],
    operator: Operator,
    indices: Array,
    value: str,
    arrays: Mapping[str, Array],
    numbers: Mapping[str, int] | None = None,
) -> Array:
    """Combine computed rows by index.

    Parameters
    ----------
    shape : tuple of int
        Of the result: bins, and the components of a row.
    operator : Operator
        How rows are combined.
    indices : array of shape (N,) of integers
        The bin of each row; those outside are ignored.
    value : str
        As of `MappedRows`.
    arrays : mapping of str to array
        Contiguous; all are NumPy's, PyOpenCL's or CUDA's, as `indices`.
    numbers : mapping of str to int, optional
        Scalars.

    Returns
    -------
    array
        Of the kind of `indices` and the dtype of `operator`.
    """
    numbers = numbers or {}
    on_device = is_device_array(indices)
    queue = queue_for(None, indices.context if on_device else None, queue_of(indices, *arrays.values()))
    vector = prod(shape[1:])
    by_rows = vector > 1 and planning_profile(queue.device).kind == "cpu"
    dtypes = tuple((name, array.dtype) for name, array in arrays.items())
    spec = MappedRows(operator, indices.dtype, dtypes, value, vector, by_rows, tuple(numbers))
    call = Call(shape, size=indices.size * (1 if by_rows else vector), queue=queue)
    rows = (shape[0],) if vector > 1 else ()
    outcome = _engine(queue.context, spec).run((indices, *arrays.values(), *numbers.values(), *rows), call)
    return outcome.results[0]


@kept_by_context
def _engine(context: cl.Context, spec: MappedRows) -> Engine:
    d = spec.vector
    arguments = [f"const {c_name(spec.index_dtype)} *indices"]
    arguments += [f"const {c_name(dtype)} *{name}" for name, dtype in spec.arrays]
    arguments += [f"const long {name}" for name in spec.numbers]
    if d == 1:
        code = f"EMIT(indices[i], {_value(spec, 'i', '0', 'i')})"
        return Engine.of(context, spec.operator, ", ".join(arguments), code)
    arguments.append("const long rows")
    of_element = _value(spec, f"((element) / {d})", f"((element) % {d})", "(element)")
    if spec.by_rows:
        value = _value(spec, "i", "j", f"((size_t)i * {d} + j)")
        code = (
            "const long row = (long)indices[i]; if (row >= 0 && row < rows) "
            f"for (int j = 0; j < {d}; ++j) EMIT(row * {d} + j, {value})"
        )
    else:
        code = (
            f"const long row = (long)indices[i / {d}]; "
            f"EMIT(row >= 0 && row < rows ? row * {d} + i % {d} : -1, {_value(spec, f'(i / {d})', f'(i % {d})', 'i')})"
        )
    of_row = _value(spec, "(row)", "(component)", f"((row) * {d} + (component))")
    text = RowText(Rows(d, spec.by_rows), "indices[i]", of_element, of_row=of_row)
    emits = d if spec.by_rows else 1
    return Engine.of(context, spec.operator, ", ".join(arguments), code, emits=emits, rows=text)


def _value(spec: MappedRows, row: str, component: str, element: str) -> str:
    return spec.value.format(row=row, component=component, element=element)
