"""Recognition of CUDA arrays: PyTorch's, CuPy's, and those of libraries that these can read."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from clhist._core.cuda.driver import CaptureError, driver
from clhist._core.cuda.imported import is_instance
from clhist._core.cuda.libraries import Library, library

_CUDA_DEVICES = (2, 13)  # of DLPack: memory of CUDA, and managed memory


def library_of(kind: type) -> Library | None:
    """Return the library whose arrays have this type, if one was recognised before."""
    name = _of_libraries.get(kind)
    return None if name is None else library(name)


class Recognised(NamedTuple):
    """An array of CUDA's memory.

    Attributes
    ----------
    library : Library
        What knows it.
    array : object
        It, as an array of that library.
    back : callable or None
        What makes of the library's arrays those of the caller's, where that is another.
    is_read_only : bool
        Whether it must not be written.
    """

    library: Library
    array: Any
    back: Callable[[Any], Any] | None = None
    is_read_only: bool = False


# Types whose objects are no arrays of CUDA; most arguments are of these.
PLAIN: set[type] = {type(None), bool, int, float, complex, str, bytes, np.ndarray, np.ufunc, np.dtype, range, slice}
_of_libraries: dict[type, str] = {}  # types whose objects are arrays of CuPy or PyTorch


def may_be_cuda(value: Any) -> bool:
    """Whether an argument may be, or hold, arrays of CUDA's memory; soon told of those that cannot."""
    if type(value) in PLAIN:
        return False
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, tuple | list):
        kinds = {*map(type, value)} - PLAIN  # of most there are none, however long they are
        return bool(kinds) and any(may_be_cuda(each) for each in value if type(each) in kinds)
    return recognised_kind(value) is not None


# What arrays of other libraries and the libraries that see them raise of what they cannot share.
_REFUSALS = AssertionError, AttributeError, BufferError, NotImplementedError, RuntimeError, TypeError, ValueError


def recognised_kind(value: Any) -> str | None:
    """Return "torch", "cupy" or "other" for an array of CUDA's memory."""
    kind = type(value)
    if kind in PLAIN:
        return None
    known = _of_libraries.get(kind)
    if known is None:
        if is_instance(value, "torch", "Tensor"):
            known = _of_libraries[kind] = "torch"
        elif is_instance(value, "cupy", "ndarray"):
            known = _of_libraries[kind] = "cupy"
    if known is not None:
        return known if known == "cupy" or value.is_cuda else None
    if isinstance(value, np.generic):
        return None
    if hasattr(kind, "__cuda_array_interface__") or hasattr(kind, "__dlpack_device__"):
        with suppress(*_REFUSALS):
            if hasattr(value, "__dlpack_device__") and value.__dlpack_device__()[0] in _CUDA_DEVICES:
                return "other"
        with suppress(*_REFUSALS):
            return "other" if hasattr(value, "__cuda_array_interface__") else None
        return None
    PLAIN.add(kind)  # classes get no such attributes later on
    return None


def recognised(name: str, value: Any) -> Recognised | None:
    """Return an array of CUDA's memory as a library knows it; None of another value.

    Raises
    ------
    TypeError
        If no library is there that can take it; it has the `name` of the argument.
    """
    kind = recognised_kind(value)
    if kind is None:
        return None
    if kind != "other":
        return Recognised(library(kind), value)
    reason: Any = "neither of them is installed"
    for each in ("cupy", "torch"):
        try:
            found = library(each)
        except ImportError:
            continue
        try:
            seen, is_read_only = _seen_by(found, value)
        except CaptureError:
            raise
        except _REFUSALS as error:
            reason = error
            continue
        return Recognised(found, seen, back := _way_back(value), is_read_only or back is _to_jax)
    raise TypeError(
        f"{name}: expected an array that CuPy or PyTorch can take without a copy, got {type(value).__name__}: {reason}"
    ) from (reason if isinstance(reason, Exception) else None)


def _seen_by(found: Library, value: Any) -> tuple[Any, bool]:
    """Return an array as another library sees it, on the same device at the same address, and if it is read-only."""
    if hasattr(value, "__dlpack__"):
        seen, device = found.module.from_dlpack(value), value.__dlpack_device__()[1]
        if (got := found.device(seen)) != device:
            raise BufferError(f"it was copied from device {device} to {got}")
        return seen, False
    interface = value.__cuda_array_interface__
    address, is_read_only = interface["data"]
    if 0 in interface["shape"]:  # at an address that means nothing
        return found.empty(interface["shape"], np.dtype(interface["typestr"]), 0), is_read_only
    seen = found.seen(value, driver().device_of(address))
    if found.address(seen) != address:
        raise BufferError("it was copied")
    return seen, is_read_only


def _way_back(value: Any) -> Callable[[Any], Any] | None:
    root = type(value).__module__.partition(".")[0]
    if root in ("jax", "jaxlib"):
        return _to_jax
    if root == "numba":
        return _to_numba
    return None


def _to_jax(array: Any) -> Any:
    return importlib.import_module("jax.dlpack").from_dlpack(array)


def _to_numba(array: Any) -> Any:
    return importlib.import_module("numba.cuda").as_cuda_array(array)
