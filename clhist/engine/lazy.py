"""Calls with Dask collections go to `clhist.dask`, which is imported then: Dask need not be installed."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any


def is_lazy(value: object) -> bool:
    """Whether `value` is a Dask collection."""
    return hasattr(type(value), "__dask_graph__")


def lazily(function: str, *args: Any, refused: Mapping[str, Any]) -> Any:
    """Return what a function of `clhist.dask` returns.

    Parameters
    ----------
    function : str
        Its name.
    *args
        Its arguments.
    refused : mapping of str to object
        Arguments of the caller that it does not have.

    Raises
    ------
    TypeError
        If one of those is given.
    """
    for name, value in refused.items():
        if value is not None and value is not False:
            raise TypeError(f"{name}: expected none for Dask collections, got {value!r}")
    return getattr(import_module("clhist.dask"), function)(*args)
