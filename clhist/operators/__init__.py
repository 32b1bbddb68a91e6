"""Ready-made operators, and the ones that NumPy's ufuncs and written expressions stand for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_ALIASES = {"any": "logical_or", "all": "logical_and"}
# Modules of those that are not in `arithmetic`.
_HOMES = {
    **dict.fromkeys(("argmax", "argmin", "first", "last"), "positional"),
    **dict.fromkeys(("mean", "standard_deviation", "variance"), "statistics"),
    "as_operator": "ufuncs",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Imported by the first use of an operator: what NumPy counts needs none.
    home = import_module(f"clhist.operators.{_HOMES.get(name, 'arithmetic')}")
    value = globals()[name] = getattr(home, _ALIASES.get(name, name))
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
