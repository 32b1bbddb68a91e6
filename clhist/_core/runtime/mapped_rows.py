"""Rows that are computed from several arrays, reduced by index or to dot products: no array of such rows is written."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import NamedTuple

import numpy as np
import pyopencl as cl

from clhist._core.kernels.maps import RowText
from clhist._core.model.problem import FREE, Choices, Rows
from clhist._core.model.updates import GATHER
from clhist._core.opencl.arrays import Array, is_device_array
from clhist._core.opencl.device import planning_profile
from clhist._core.opencl.program import kept_by_context
from clhist._core.runtime.call import Call, queue_for, queue_of
from clhist._core.runtime.elementwise_kernel import Elementwise
from clhist._core.runtime.engine import Engine
from clhist._core.runtime.launcher import chain_on
from clhist.operators.c_types import c_name, element_name
from clhist.operators.halves import declared, loaded, number_of, stored
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
    is_sorted : bool
        Whether the indices do not decrease, by the caller's word.
    """

    operator: Operator
    index_dtype: np.dtype
    arrays: tuple[tuple[str, np.dtype], ...]
    value: str
    vector: int
    by_rows: bool
    numbers: tuple[str, ...]
    is_sorted: bool = False

    @property
    def elements_of_row(self) -> int:
        """Elements of the map for one row."""
        return 1 if self.by_rows else self.vector


_SORTED = Choices(update=GATHER)


def reduce_mapped(
    shape: tuple[int, ...],
    operator: Operator,
    indices: Array,
    value: str,
    arrays: Mapping[str, Array],
    numbers: Mapping[str, int] | None = None,
    *,
    is_sorted: bool = False,
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
    is_sorted : bool
        Whether the indices do not decrease. It is not checked: if they do, values may go to wrong bins or to none.

    Returns
    -------
    array
        Of the kind of `indices` and the dtype of `operator`.
    """
    # Sorted rows are gathered where that is possible and predicted to be faster, or else combined as any others.
    if is_sorted and (result := reduce_sorted(shape, operator, indices, value, arrays, numbers)) is not None:
        return result
    return _reduced(shape, operator, indices, value, arrays, numbers or {}, is_sorted=False)


def reduce_sorted(
    shape: tuple[int, ...],
    operator: Operator,
    indices: Array,
    value: str,
    arrays: Mapping[str, Array],
    numbers: Mapping[str, int] | None = None,
) -> Array | None:
    """Combine computed rows in the order of their bins; return None where that is impossible or slower.

    Parameters are those of `reduce_mapped`. The operator may depend on the number of values of a bin.
    """
    return _reduced(shape, operator, indices, value, arrays, numbers or {}, is_sorted=True) if indices.size else None


def _reduced(
    shape: tuple[int, ...],
    operator: Operator,
    indices: Array,
    value: str,
    arrays: Mapping[str, Array],
    numbers: Mapping[str, int],
    *,
    is_sorted: bool,
) -> Array | None:
    """Combine computed rows; sorted ones are gathered, or None is returned where they should not be."""
    on_device = is_device_array(indices)
    queue = queue_for(None, indices.context if on_device else None, queue_of(indices, *arrays.values()))
    vector = prod(shape[1:])
    by_rows = vector > 1 and planning_profile(queue.device).kind == "cpu"
    dtypes = tuple((name, array.dtype) for name, array in arrays.items())
    spec = MappedRows(operator, indices.dtype, dtypes, value, vector, by_rows, tuple(numbers), is_sorted)
    size = indices.size * spec.elements_of_row
    if is_sorted and not _gathers(queue.context, queue.device, spec, size, shape):
        return None
    call = Call(shape, size=size, queue=queue, choices=_SORTED if is_sorted else FREE)
    rows = (shape[0],) if vector > 1 else ()
    outcome = _engine(queue.context, spec).run((indices, *arrays.values(), *numbers.values(), *rows), call)
    return outcome.results[0]


@kept_by_context
def _gathers(context: cl.Context, device: cl.Device, spec: MappedRows, size: int, shape: tuple[int, ...]) -> bool:
    """Whether sorted rows of this number of elements can be gathered, and are not predicted to take longer then."""
    # A plan that is forced to gather raises where it is impossible.
    try:
        (plan,) = _engine(context, spec).plan(device, size, (shape,), choices=_SORTED)
    except (ValueError, MemoryError):
        return False
    # An operator by count has no other plan to compare with.
    if spec.operator.by_count or planning_profile(device).kind == "cpu":
        return True
    # Few launches are worth more than the order of few rows, or of scalars in few bins.
    others = _engine(context, spec._replace(is_sorted=False)).plan(device, size, (shape,))
    seconds = [other.seconds for other in others]
    return plan.seconds is None or None in seconds or plan.seconds < sum(duration or 0.0 for duration in seconds)


@kept_by_context
def _engine(context: cl.Context, spec: MappedRows) -> Engine:
    d = spec.vector
    arguments = [f"const {c_name(spec.index_dtype)} *indices"]
    arguments += [f"const {c_name(dtype)} *{name}" for name, dtype in spec.arrays]
    arguments += [f"const long {name}" for name in spec.numbers]
    # Scalars need no number of rows: an index outside the bins is dropped as any other bin.
    if d == 1:
        code = f"EMIT(indices[i], {_value(spec, 'i', '0', 'i')})"
        rows = _text(spec) if spec.is_sorted else None
        return Engine.of(context, spec.operator, ", ".join(arguments), code, rows=rows)
    arguments.append("const long rows")
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
    # An element emits its whole row on a CPU, and one component elsewhere.
    emits = d if spec.by_rows else 1
    return Engine.of(context, spec.operator, ", ".join(arguments), code, emits=emits, rows=_text(spec))


def _text(spec: MappedRows) -> RowText:
    """Return the C of the rows."""
    d, rows = spec.vector, Rows(spec.vector, spec.by_rows, spec.is_sorted)
    of_element = _value(spec, f"((element) / {d})", f"((element) % {d})", "(element)")
    of_row = _value(spec, "(row)", "(component)", f"((row) * {d} + (component))")
    name, dtype = spec.arrays[0]
    # If the value is a plain element of an array, kernels load vectors of it instead of computing components.
    are_loaded = spec.is_sorted and spec.value == f"{name}[{{element}}]" and dtype == spec.operator.dtype
    loads = name if are_loaded and number_of(dtype).kind in "iuf" else ""
    return RowText(rows, "indices[i]", of_element, loads, of_row)


def _value(spec: MappedRows, row: str, component: str, element: str) -> str:
    return spec.value.format(row=row, component=component, element=element)


_SUMS = 8  # partial sums of a product, which a CPU adds as a vector


def row_dots(first: Array, second: Array, first_rows: Array, second_rows: Array) -> Array:
    """Return the dot product of a row of `first` and a row of `second` for each pair of row numbers.

    Parameters
    ----------
    first, second : arrays of shapes (H, ...) and (K, ...) of one dtype of floats
        Contiguous, with rows of one shape.
    first_rows, second_rows : arrays of shape (N,) of integers
        Numbers of rows. A pair with one outside the tables has the product 0.

    Returns
    -------
    array of shape (N,)
        Of the dtype and kind of `first`.
    """
    on_device = is_device_array(first)
    arrays = first, second, first_rows, second_rows
    queue = queue_for(None, first.context if on_device else None, queue_of(*arrays))
    chain = chain_on(queue, "for products of rows")
    kernel = _kernel(queue.context, first.dtype, first_rows.dtype, second_rows.dtype, prod(first.shape[1:]))
    result, memory = chain.result(first_rows.size, first.dtype, on_device)
    kernel(chain, first_rows.size, [*arrays, memory, np.int64(first.shape[0]), np.int64(second.shape[0])])
    chain.finish()
    return result


@kept_by_context
def _kernel(
    context: cl.Context, dtype: np.dtype, first_rows: np.dtype, second_rows: np.dtype, components: int
) -> Elementwise:
    element, number = element_name(dtype), c_name(number_of(dtype))
    product = f"{loaded('x[c + k]', dtype)} * {loaded('y[c + k]', dtype)}"
    # Several partial sums: a CPU adds them as a vector, and no addition waits for the one before it.
    code = f"""
        const long a = (long)first_rows[i], b = (long)second_rows[i];
        {number} total = 0;
        if (a >= 0 && a < num_first && b >= 0 && b < num_second) {{
            __global const {element} *x = first + a * {components}, *y = second + b * {components};
            {number} sums[{_SUMS}] = {{0}};
            int c = 0;
            for (; c + {_SUMS} <= {components}; c += {_SUMS})
                for (int k = 0; k < {_SUMS}; ++k) sums[k] += {product};
            for (int k = 0; k < {components} - c; ++k) sums[k] += {product};
            for (int k = 0; k < {_SUMS}; ++k) total += sums[k];
        }}
        products[i] = {stored("total", dtype)}"""
    arguments = (
        f"const {element} *first, const {element} *second, const {element_name(first_rows)} *first_rows, "
        f"const {element_name(second_rows)} *second_rows, {element} *products, "
        "const long num_first, const long num_second"
    )
    return Elementwise(context, arguments, code, "clhist_row_dots", declared(dtype))
