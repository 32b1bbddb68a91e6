"""Dot products of rows of two tables, for pairs of row numbers: no rows are copied."""

from __future__ import annotations

from math import prod

import numpy as np
import pyopencl as cl

from clhist._core.opencl.arrays import Array, is_device_array
from clhist._core.opencl.program import kept_by_context
from clhist._core.runtime.call import queue_for, queue_of
from clhist._core.runtime.elementwise_kernel import Elementwise
from clhist._core.runtime.launcher import chain_on
from clhist.operators.c_types import c_name, element_name
from clhist.operators.halves import declared, loaded, number_of, stored

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
