"""Operators whose results depend on the number of values of a bin: means, and results that are a number if it has none.

Only the kernels that gather rows know that number besides the values: update="gather" on a GPU. Means count it.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from clhist.operators.c_types import c_name, literal
from clhist.operators.halves import number_of
from clhist.operators.names import operator_on_bins
from clhist.operators.operator import Operator
from clhist.operators.statistics import mean


@lru_cache(maxsize=256)
def finished_by_count(reduce: str, dtype: np.dtype, empty: float | None) -> Operator:
    """Return the operator of a reduction with `empty` in bins without values.

    Parameters
    ----------
    reduce : {"sum", "mean", "min", "max", "prod"}
        Means have sums of float64, as those of `clhist.operators.mean`.
    dtype : numpy.dtype
        Of values and results.
    empty : float or None
        None leaves the identity element; of means NaN.
    """
    number = number_of(dtype)
    nothing = "" if empty is None else literal(number.type(empty), number)
    if reduce == "mean":
        # The accumulator needs no count, which is the length of a row.
        sums, lift = np.dtype(np.float64), "v"
        operator = Operator(dtype, "a + b", 0.0, "mean", accumulator=sums, lift=lift, finish="a")
        result = f"({c_name(number)})(a / ({c_name(sums)})n)"
    else:
        operator, result = operator_on_bins(reduce, dtype), "a"
    # Equivalent forms have a `finish` of their own, without the count.
    return operator.changed(by_count=f"n ? {result} : {nothing}" if nothing else result, equivalents=())


@lru_cache(maxsize=256)
def mean_or(dtype: np.dtype, empty: float) -> Operator:
    """Return `clhist.operators.mean` with `empty` in bins without values, for arrays of devices."""
    operator, number = mean(dtype), number_of(dtype)
    finish = f"a.number ? {operator.finish} : {literal(number.type(empty), number)}"
    # The implementation on the host has NaN in bins without values.
    return operator.changed(finish=finish, host=None)
