"""The operators that NumPy's ufuncs and known C expressions stand for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from clhist.operators.arithmetic import (
    add,
    bitwise_and,
    bitwise_or,
    bitwise_xor,
    fmax,
    fmin,
    logical_and,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    multiply,
    product,
)
from clhist.operators.c_types import shown_dtype, supported_dtype
from clhist.operators.operator import Operator
from clhist.operators.recognition import recognise

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

_UFUNCS: dict[np.ufunc, Callable[[DTypeLike], Operator]] = {
    np.add: add,
    np.multiply: multiply,
    np.minimum: minimum,
    np.maximum: maximum,
    np.fmin: fmin,
    np.fmax: fmax,
    np.bitwise_and: bitwise_and,
    np.bitwise_or: bitwise_or,
    np.bitwise_xor: bitwise_xor,
    np.logical_and: logical_and,
    np.logical_or: logical_or,
    np.logical_xor: logical_xor,
}
_BY_NAME = {ufunc.__name__: ready for ufunc, ready in _UFUNCS.items()}


def _shown(op: object) -> str:
    # An array here is mostly an argument in the wrong place: its shape says more than its elements.
    dtype, shape = getattr(op, "dtype", None), getattr(op, "shape", None)
    return f"an array of {dtype} of shape {shape} (are the arguments in order?)" if shape else repr(op)


def factory_hint(op: object) -> str:
    """Return a hint if `op` is a function of `clhist.operators` whose operator is expected; empty for others."""
    if not getattr(op, "__module__", "").startswith("clhist.operators") or isinstance(op, type) or not callable(op):
        return ""
    return f"; call it with a dtype: clhist.operators.{getattr(op, '__name__', '')}(np.float32)"


def ufunc_hint(op: object) -> str:
    """Return what to write instead of the name of a ufunc; nothing for others. "min" is not NumPy's fmin."""
    return f"; write numpy.{op}" if isinstance(op, str) and op in _BY_NAME else ""


def as_operator(op: object, dtype: DTypeLike, argument: str = "op") -> Operator:
    """Return the operator on `dtype` that `op` stands for.

    Parameters
    ----------
    op : Operator, numpy.ufunc or str
        An operator on `dtype`; one of NumPy's associative and commutative ufuncs, which on a structured dtype acts on
        each field separately; or a C expression of `a` and `b` that is known, such as ``"max(a, b)"``.
    dtype : dtype-like
        Type of the bins.
    argument : str
        What to call `op` in an error.

    Raises
    ------
    TypeError
        If `op` stands for no operator on `dtype`.

    Examples
    --------
    >>> clhist.operators.as_operator(np.maximum, np.float32).name
    'maximum'
    """
    value_dtype = supported_dtype(dtype)
    if isinstance(op, Operator):
        if op.dtype != value_dtype:
            shown = f"{shown_dtype(op.dtype)} ({op.name})"
            raise TypeError(f"{argument}: expected an operator on {shown_dtype(value_dtype)}, got one on {shown}")
        return op
    ready = _UFUNCS.get(op) if isinstance(op, np.ufunc) else None
    if isinstance(op, str):
        # Recognised expressions have the names of ufuncs, so that one table serves both.
        ready = _BY_NAME.get(recognise(op, value_dtype) or "")
    if ready is None and factory_hint(op):
        raise TypeError(f"{argument}: expected a clhist.Operator, got {op!r}{factory_hint(op)}")
    if ready is None:
        names = ", ".join(f"np.{name}" for name in _BY_NAME)
        raise TypeError(
            f"{argument}: expected a clhist.Operator, a C expression of a and b that is known, or one of "
            f"{names}; got {_shown(op)}. Others are written as clhist.Operator(dtype, combine, neutral)"
        )
    try:
        if value_dtype.names is not None and isinstance(op, np.ufunc):  # field by field
            return product({field: as_operator(op, value_dtype[field]) for field in value_dtype.names}, value_dtype)
        return ready(value_dtype)
    except TypeError as error:
        raise TypeError(f"{argument}: {error}") from error
