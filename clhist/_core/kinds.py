"""Types of other libraries: which are imported, and which arguments may be arrays of CUDA's memory.

CUDA's driver and the libraries of its arrays are not imported here: most programs have no such arrays.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from contextlib import suppress
from typing import Any

import numpy as np

_CUDA_DEVICES = (2, 13)  # of DLPack: memory of CUDA, and managed memory

# Types whose objects are no arrays of CUDA; most arguments are of these.
PLAIN: set[type] = {type(None), bool, int, float, complex, str, bytes, np.ndarray, np.ufunc, np.dtype, range, slice}
of_libraries: dict[type, str] = {}  # types whose objects are arrays of CuPy or PyTorch


def may_be_cuda(value: Any) -> bool:
    """Whether an argument may be, or contain, arrays of CUDA's memory; quick for those that cannot."""
    if type(value) in PLAIN:
        return False
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, tuple | list):
        kinds = {*map(type, value)} - PLAIN  # empty for most sequences: one check per type, not per entry
        return bool(kinds) and any(may_be_cuda(entry) for entry in value if type(entry) in kinds)
    return recognised_kind(value) is not None


def are_plain(values: Collection[Any]) -> bool:
    """Whether all arguments are `PLAIN`, or lists and tuples of such objects."""
    if PLAIN.issuperset(map(type, values)):
        return True
    for value in values:
        kind = type(value)
        if kind not in PLAIN and not ((kind is tuple or kind is list) and PLAIN.issuperset(map(type, value))):
            return False
    return True


# What arrays of other libraries and the libraries that see them raise of what they cannot share.
REFUSALS = AssertionError, AttributeError, BufferError, NotImplementedError, RuntimeError, TypeError, ValueError


def recognised_kind(value: Any) -> str | None:
    """Return "torch", "cupy" or "other" for an array of CUDA's memory."""
    kind = type(value)
    if kind in PLAIN:
        return None
    library = of_libraries.get(kind)
    if library is None:
        if is_instance(value, "torch", "Tensor"):
            library = of_libraries[kind] = "torch"
        elif is_instance(value, "cupy", "ndarray"):
            library = of_libraries[kind] = "cupy"
    if library is not None:
        # PyTorch has one class for tensors of all devices.
        return library if library == "cupy" or value.is_cuda else None
    if isinstance(value, np.generic):
        return None
    if hasattr(kind, "__cuda_array_interface__") or hasattr(kind, "__dlpack_device__"):
        # The attributes may be properties that raise for memory of the host.
        with suppress(*REFUSALS):
            if hasattr(value, "__dlpack_device__") and value.__dlpack_device__()[0] in _CUDA_DEVICES:
                return "other"
        with suppress(*REFUSALS):
            return "other" if hasattr(value, "__cuda_array_interface__") else None
        return None
    PLAIN.add(kind)  # classes get no such attributes later on
    return None


def imported(module: str, name: str) -> Any:
    """Return an attribute of a module, or None if the module is not imported, or not as far as that.

    While a thread imports a library, `sys.modules` already has it for all others.
    """
    return getattr(sys.modules.get(module), name, None)


def is_instance(value: object, module: str, *names: str) -> bool:
    """Whether `value` is of one of these classes of a module, which is not imported for that."""
    library = sys.modules.get(module)
    if library is not None:
        for name in names:
            kind = getattr(library, name, None)
            if kind is not None and isinstance(value, kind):
                return True
    return False


def is_complete(module: str) -> bool:
    """Whether a module is imported to its end."""
    spec = imported(module, "__spec__")
    return spec is not None and not getattr(spec, "_initializing", False)
