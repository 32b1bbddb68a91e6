"""Recognition of CUDA arrays: PyTorch's, CuPy's, and those of libraries that these can read."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from clhist._core.cuda.driver import CaptureError, driver
from clhist._core.cuda.libraries import Library, library
from clhist._core.kinds import REFUSALS, recognised_kind


class Recognised(NamedTuple):
    """An array of CUDA's memory.

    Attributes
    ----------
    library : Library
        The library that reads it.
    array : object
        The array as one of that library.
    back : callable or None
        Converts arrays of the library to those of the caller's library, if that is another.
    is_read_only : bool
        Whether it must not be written.
    """

    library: Library
    array: Any
    back: Callable[[Any], Any] | None = None
    is_read_only: bool = False


def recognised(name: str, value: Any) -> Recognised | None:
    """Return an array of CUDA's memory as an array of CuPy or PyTorch; None for any other value.

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
    for reader_name in ("cupy", "torch"):
        try:
            reader = library(reader_name)
        except ImportError:
            continue
        try:
            # A CaptureError is a RuntimeError, but no reason to try the other library.
            seen, is_read_only = _seen_by(reader, value)
        except CaptureError:
            raise
        except REFUSALS as error:
            reason = error
            continue
        # JAX's arrays are immutable.
        return Recognised(reader, seen, back := _way_back(value), is_read_only or back is _to_jax)
    raise TypeError(
        f"{name}: expected an array that CuPy or PyTorch can take without a copy, got {type(value).__name__}: {reason}"
    ) from (reason if isinstance(reason, Exception) else None)


def _seen_by(reader: Library, value: Any) -> tuple[Any, bool]:
    """Return a view of an array in another library, and whether it is read-only; raise BufferError for a copy."""
    if hasattr(value, "__dlpack__"):
        # A copy is refused: what kernels write to it would not reach the caller's array.
        seen, device = reader.module.from_dlpack(value), value.__dlpack_device__()[1]
        if (got := reader.device(seen)) != device:
            raise BufferError(f"it was copied from device {device} to {got}")
        return seen, False
    interface = value.__cuda_array_interface__
    address, is_read_only = interface["data"]
    if 0 in interface["shape"]:  # at an address that means nothing
        return reader.empty(interface["shape"], np.dtype(interface["typestr"]), 0), is_read_only
    seen = reader.seen(value, driver().device_of(address))
    if reader.address(seen) != address:
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
