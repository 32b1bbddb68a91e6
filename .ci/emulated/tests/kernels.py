"""Small kernels, compiled and executed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from emulated.launch import Local, launch
from emulated.objects import CodeObject, load
from emulated.targets import Target


def run(
    target: Target, source: str, size: Sequence[int] | int, group: Sequence[int] | int, *arguments: Any, **more: Any
) -> CodeObject:
    """Run the kernel ``k``; arrays are its buffers, which it changes."""
    code = load(target, source)
    given, memory = [], []
    for each in arguments:
        if isinstance(each, np.ndarray):
            given.append(each.ctypes.data)
            memory.append((each.ctypes.data, each.nbytes))
        else:
            given.append(each if isinstance(each, Local) else np.asarray(each).tobytes())
    sizes = ((each,) if isinstance(each, int) else each for each in (size, group))
    launch(code, "k", given, *sizes, memory, **more)
    return code
