"""Calls that go elsewhere: with Dask collections to `clhist.dask`, with ``devices=`` to `clhist.parts`.

Both are above the functions, and imported only then; Dask need not be installed.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from clhist.engine.labelled import unlabelled


def over_devices(function: str, devices: Any, *args: Any, refused: Mapping[str, Any]) -> Any:
    """Return what several devices compute together; the parameters are those of `lazily`."""
    check_refused(refused, "with devices=")
    return getattr(import_module("clhist.parts"), f"{function}_over")(devices, *args)


def check_refused(refused: Mapping[str, Any], where: str) -> None:
    """Raise TypeError if an argument is given that a call cannot have."""
    for name, value in refused.items():
        if value is not None and value is not False:
            raise TypeError(f"{name}: expected none {where}, got {value!r}")


def is_lazy(value: object) -> bool:
    """Whether `value` is a Dask collection, or a list of them.

    A class may have Dask's methods and an instance no graph: an array of xarray is a collection only if it is chunked.
    Dask itself knows, and is imported already if there is a collection.
    """
    if isinstance(value, list | tuple) and value:
        value = value[0]
    if not hasattr(type(value), "__dask_graph__"):
        return False
    dask: Any = sys.modules.get("dask.base")
    return dask is not None and bool(dask.is_dask_collection(value))


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
    check_refused(refused, "for Dask collections")
    return getattr(import_module("clhist.dask"), function)(*map(unlabelled, args))
