"""Results of calls on tensors of the CPU, which functions read as NumPy's arrays: tensors as well."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from clhist._core.cuda.imported import imported


def any_host_tensor(values: Iterable[Any]) -> bool:
    """Whether one of some arguments, or an entry of one that is a list or tuple, is a PyTorch tensor of the CPU."""
    tensor = imported("torch", "Tensor")
    if tensor is None:
        return False
    for value in values:
        if isinstance(value, tensor):
            if value.is_cpu:
                return True
        elif isinstance(value, list | tuple) and value and isinstance(value[0], tensor) and any_host_tensor(value):
            return True
    return False


def as_tensors(result: Any) -> Any:
    """Return arrays of NumPy in a result as tensors of the same memory; structured ones as dicts of their fields.

    Arrays of dtypes that PyTorch lacks stay as they are, as do all other values.
    """
    if isinstance(result, tuple):
        parts = [as_tensors(entry) for entry in result]
        return type(result)(*parts) if hasattr(result, "_fields") else tuple(parts)
    if not isinstance(result, np.ndarray) or result.dtype.hasobject:
        return result
    if result.dtype.names is not None:
        return {name: as_tensors(np.ascontiguousarray(result[name])) for name in result.dtype.names}
    from clhist._core.cuda.libraries import library  # only calls on tensors need it

    torch: Any = library("torch")
    if not torch.has(result.dtype):
        return result
    # PyTorch warns of read-only arrays and refuses negative strides.
    is_usable = result.flags.writeable and all(step >= 0 for step in result.strides)
    return torch.from_numpy(result if is_usable else result.copy())
