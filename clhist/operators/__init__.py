"""Ready-made operators, and the ones that NumPy's ufuncs and written expressions stand for."""

from __future__ import annotations

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


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Imported by the first use of an operator: what NumPy counts needs none.
    if name in ("argmax", "argmin", "first", "last"):
        from clhist.operators import positional

        home: Any = positional
    elif name in ("mean", "standard_deviation", "variance"):
        from clhist.operators import statistics

        home = statistics
    elif name == "as_operator":
        from clhist.operators import ufuncs

        home = ufuncs
    else:
        from clhist.operators import arithmetic

        home = arithmetic
    value = globals()[name] = getattr(home, _ALIASES.get(name, name))
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
