"""Operators by name: ``"sum"``, ``"mean"``, ``"argmax"`` and so on, wherever an operator is expected."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from clhist import operators
from clhist.operators.c_types import shown_dtype, supported_dtype
from clhist.operators.halves import half_name
from clhist.operators.operator import Operator
from clhist.operators.recognition import recognise
from clhist.operators.ufuncs import factory_hint, ufunc_hint

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

_PER_FIELD: dict[str, Callable[[DTypeLike], Operator]] = {
    "sum": operators.add,
    "add": operators.add,
    "prod": operators.multiply,
    "min": operators.minimum,
    "max": operators.maximum,
    "any": operators.logical_or,
    "all": operators.logical_and,
}
_REAL: dict[str, Callable[[DTypeLike], Operator]] = {
    "mean": operators.mean,
    "var": operators.variance,
    "std": operators.standard_deviation,
}
PAIRS: dict[str, Callable[..., Operator]] = {
    "argmin": operators.argmin,
    "argmax": operators.argmax,
    "first": operators.first,
    "last": operators.last,
}
COUNT = "count"

NAMES = (*_PER_FIELD, *_REAL, *PAIRS, COUNT)

# Functions of NumPy and Python that a statistic is named after.
_REDUCTIONS = ("sum", "prod", "min", "max", "any", "all", "mean", "var", "std", "median", "argmin", "argmax")
FUNCTIONS: dict[Any, str] = {
    **{getattr(np, name): name for name in _REDUCTIONS},
    **{getattr(np, f"nan{name}"): name for name in _REDUCTIONS if hasattr(np, f"nan{name}")},
    **{getattr(builtins, name): name for name in ("sum", "min", "max", "any", "all")},
    np.size: "count",
    len: "count",
}
# What SQL and other libraries call these statistics: only for hints in errors.
_OTHERWISE = {
    "average": "mean",
    "avg": "mean",
    "len": "count",
    "maximum": "max",
    "minimum": "min",
    "product": "prod",
    "sd": "std",
    "size": "count",
    "stddev": "std",
    "variance": "var",
}


def name_hint(value: object, names: Sequence[str] = NAMES) -> str:
    """Return a hint for a function, or for a name that is none of `names`; empty if there is none."""
    if callable(value):
        try:
            name = FUNCTIONS.get(value, "")
        except TypeError:  # without a hash
            name = ""
    elif isinstance(value, str) and value not in FUNCTIONS.values():
        name = _OTHERWISE.get(value.lower().removeprefix("nan"), "")
        from difflib import get_close_matches  # for errors alone

        name = name or next(iter(get_close_matches(value.lower(), names, 1)), "")
    else:
        name = ""
    return f"; write {name!r}" if name in names else ""


def operator_on_bins(op: object, dtype: DTypeLike, argument: str = "op") -> Operator:
    """Return the operator that `op` stands for where bins of `dtype` are given.

    Parameters
    ----------
    op : Operator, numpy.ufunc or str
        As `clhist.operators.as_operator` takes it, or one of `NAMES`.
    dtype : dtype-like
        Type of the bins. ``"argmin"``, ``"argmax"``, ``"first"`` and ``"last"`` need a structured one with the fields
        ``value`` and ``index``.
    argument : str
        Name of `op` in errors.

    Raises
    ------
    TypeError
        If there is no such operator on `dtype`; the message lists the names.
    """
    if not isinstance(op, str) or op not in NAMES:
        return _unnamed(op, dtype, argument)
    bin_dtype = supported_dtype(dtype)
    try:
        if op in PAIRS:
            if bin_dtype.names != ("value", "index"):
                raise TypeError(
                    f"expected bins with the fields value and index for {op!r}, got {shown_dtype(bin_dtype)}"
                )
            return operators.as_operator(PAIRS[op](bin_dtype["value"], bin_dtype["index"]), bin_dtype)
        if bin_dtype.names is not None and op in _PER_FIELD:
            return operators.product({field: _PER_FIELD[op](bin_dtype[field]) for field in bin_dtype.names}, bin_dtype)
        # Bins may have contents, which may exceed the 32 bits of `operators.count`.
        return operators.add(bin_dtype) if op == COUNT else (_PER_FIELD | _REAL)[op](bin_dtype)
    except TypeError as error:
        raise TypeError(f"{argument}: {error}") from error


def operator_on_values(op: object, dtype: DTypeLike, argument: str = "op", index: DTypeLike = np.int32) -> Operator:
    """Return the operator that `op` stands for where values of `dtype` are given, and no bins.

    Integers have their ``"mean"``, ``"var"`` and ``"std"`` in float64; ``"count"`` is an int64; ``"argmax"`` and the
    like are on pairs of a value and an index of type `index`. All else is as in `operator_on_bins`.
    """
    if not isinstance(op, str) or op not in NAMES:
        return _unnamed(op, dtype, argument)
    if op == COUNT:
        return operators.count(np.int64)
    value_dtype = supported_dtype(dtype)
    if op in PAIRS:
        try:
            return PAIRS[op](value_dtype, index)
        except TypeError as error:
            raise TypeError(f"{argument}: {error}") from error
    return operator_on_bins(op, np.float64 if op in _REAL and value_dtype.kind in "biu" else value_dtype, argument)


def operator_of_call(op: object, values: DTypeLike, dtype: DTypeLike | None, index: DTypeLike = np.int32) -> Operator:
    """Return the operator of a call whose bins have no contents yet, and so no dtype of their own.

    Parameters
    ----------
    op : Operator, numpy.ufunc or str
        As of `operator_on_values`.
    values : dtype-like
        Of the values. Sums and products of narrow ones are as wide as NumPy's: 64 bits of booleans and integers, and
        float32 of half precision.
    dtype : dtype-like, optional
        Instead of that.
    index : dtype-like
        As of `operator_on_values`.

    Raises
    ------
    TypeError
        If there is no such operator on the dtype, or `op` is an operator and there is a `dtype` besides.
    """
    if isinstance(op, Operator):
        if dtype is not None:
            raise TypeError(f"dtype: expected none, since op is on {shown_dtype(op.dtype)}, got {dtype!r}")
        return op
    if dtype is None:
        return operator_on_values(op, _wide(op, supported_dtype(values, "values")), index=index)
    bin_dtype = supported_dtype(dtype, "dtype")
    # An explicit dtype is that of the counts; `operator_on_values` would count in int64.
    is_count = isinstance(op, str) and op == COUNT
    return operator_on_bins(op, bin_dtype) if is_count else operator_on_values(op, bin_dtype, index=index)


def _wide(op: object, dtype: np.dtype) -> np.dtype:
    """Return in what values are combined: of sums and products the dtype of NumPy's, or float32 of half precision."""
    if isinstance(op, str):
        # Extremes and logical operators need no more bits than their values.
        is_sum = op in ("sum", "add", "prod") or recognise(op, dtype) in ("add", "multiply")
    else:
        is_sum = isinstance(op, np.ufunc) and op in (np.add, np.multiply)
    if not is_sum:
        return dtype
    if half_name(dtype):
        return np.dtype(np.float32)
    return np.dtype(np.uint64 if dtype.kind == "u" else np.int64) if dtype.kind in "biu" else dtype


def with_names(operator: Any, dtype: Any) -> Any:
    """Return `operator` as `clhist.HistogramKernel` takes it, with operators in the place of names and ufuncs.

    Parameters
    ----------
    operator : Operator, numpy.ufunc, str, or sequence or mapping of them
        What the caller gave; anything else comes back as it is.
    dtype : dtype-like, or mapping of str to it, or None
        Type of the emitted values: one for all operators, or by their names.

    Raises
    ------
    TypeError
        If `dtype` is missing where it is needed; the operator is named.
    """
    if isinstance(operator, Mapping):
        by_name = isinstance(dtype, Mapping)
        return {
            name: _resolved(op, dtype.get(name) if by_name else dtype, f"operator[{name!r}]")
            for name, op in operator.items()
        }
    if isinstance(operator, Sequence) and not isinstance(operator, str):
        return [_resolved(op, dtype, f"operator[{k}]") for k, op in enumerate(operator)]
    return _resolved(operator, dtype, "operator")


def _resolved(operator: Any, dtype: Any, argument: str) -> Any:
    if not isinstance(operator, str | np.ufunc):
        return operator
    # A count needs no type of values.
    if dtype is None and operator != COUNT:
        raise TypeError(
            f"{argument}: expected a clhist.Operator, got {operator!r}; names and ufuncs need dtype=, the type of the "
            "emitted values"
        )
    return operator_on_values(operator, np.int64 if dtype is None else dtype, argument)


def _unnamed(op: object, dtype: DTypeLike, argument: str) -> Operator:
    # A factory of `clhist.operators` is callable as well, and has a hint of its own in `as_operator`.
    is_function = callable(op) and not isinstance(op, np.ufunc) and not factory_hint(op)
    if is_function or (isinstance(op, str) and recognise(op, supported_dtype(dtype)) is None):
        shown = getattr(op, "__name__", repr(op)) if is_function else repr(op)
        otherwise = ". Others are written as clhist.Operator(dtype, combine, neutral)" if is_function else ""
        raise TypeError(
            f"{argument}: expected a clhist.Operator, a NumPy ufunc, a C expression of a and b that is known, or one "
            f"of {', '.join(map(repr, NAMES))}; got {shown}{ufunc_hint(op) or name_hint(op) or otherwise}"
        )
    return operators.as_operator(op, dtype, argument)
