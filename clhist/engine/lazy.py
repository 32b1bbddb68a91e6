"""Calls with Dask collections go to `clhist.dask`, which is imported then: Dask need not be installed."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def is_lazy(value: object) -> bool:
    """Whether `value` is a Dask collection."""
    return hasattr(type(value), "__dask_graph__")


def lazily(function: str, *args: Any, **refused: Any) -> Any:
    """Return what a function of `clhist.dask` returns; raise TypeError if an argument is given that it cannot have."""
    for name, value in refused.items():
        if value is not None and value is not False:
            raise TypeError(f"{name}: expected none for Dask collections, got {value!r}")
    return getattr(import_module("clhist.dask"), function)(*args)
