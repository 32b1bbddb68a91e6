"""Ready-made operators, and the ones that NumPy's ufuncs and written expressions stand for."""

from clhist.operators.arithmetic import (
    add,
    bitwise_and,
    bitwise_or,
    bitwise_xor,
    count,
    fmax,
    fmin,
    logical_and,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    multiply,
    product,
    reproducible_add,
    saturating_add,
)
from clhist.operators.positional import argmax, argmin, first, last
from clhist.operators.statistics import mean, standard_deviation, variance
from clhist.operators.ufuncs import as_operator

any = logical_or
all = logical_and

__all__ = [
    "add",
    "all",
    "any",
    "argmax",
    "argmin",
    "as_operator",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "count",
    "first",
    "fmax",
    "fmin",
    "last",
    "logical_and",
    "logical_or",
    "logical_xor",
    "maximum",
    "mean",
    "minimum",
    "multiply",
    "product",
    "reproducible_add",
    "saturating_add",
    "standard_deviation",
    "variance",
]
