"""What streams need of operators and maps: the form that is held, and where positions go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyopencl as cl

from clhist.codegen.maps import Argument
from clhist.engine.engine import Engine
from clhist.engine.outputs import Outputs
from clhist.engine.results import check_dest
from clhist.opencl.arrays import Array, check_array, check_context
from clhist.operators.names import COUNT, operator_on_bins, operator_on_values
from clhist.operators.operator import Operator


def stream_operator(op: Operator | np.ufunc | str, dtype: Any, dest: Any) -> Operator:
    """Return the operator that the first argument, on the dtype of the others, stands for."""
    if dtype is None:
        dtype = op.dtype if isinstance(op, Operator) else getattr(dest, "dtype", None)
    if op == COUNT and dtype is None:
        dtype = np.int64
    if dtype is None and isinstance(op, np.ufunc | str):
        raise TypeError(f"dtype: expected that of the bins for {op!r}, since there is no dest; got none")
    return (operator_on_bins if dest is not None else operator_on_values)(op, dtype, "operator")


def held_form(operator: Operator, *, cpu: bool) -> Operator:
    """Return the form that is held from chunk to chunk, of which portable accumulators can be made."""
    plain = operator.fixed(shared=False)
    return plain if cpu and plain.holds_values else operator.fixed(shared=True)


def first_argument(engine: Engine, name: str | None) -> Argument | None:
    if name is None:
        return None
    found = next((argument for argument in engine.arguments if argument.name == name), None)
    if found is None or found.is_array or found.dtype.kind not in "iu":
        raise ValueError(f"first_index: expected the name of a scalar argument of an integer type, got {name!r}")
    return found


def checked_dests(
    outputs: Outputs, forms: Sequence[Operator], shapes: Sequence[tuple[int, ...]], given: Any, context: cl.Context
) -> list[Array | None]:
    """Return the initial contents of each output, checked; None where there are none."""
    if given is None:
        return [None] * len(forms)
    names = [f"dest{label}" for label in outputs.labels]
    arrays = [given] if outputs.is_single else outputs.each("dest", given)
    found = []
    for name, form, array, shape in zip(names, forms, arrays, shapes, strict=True):
        if array is not None:  # of several, some may have no dest
            array = check_array(name, array, form.dtype, written=False, shape=shape)
            check_dest(name, form)
        found.append(array)
    check_context(zip(names, found, strict=True), context)
    return found
