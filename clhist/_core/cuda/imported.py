"""Libraries that a program may have imported, or that another thread is just importing."""

from __future__ import annotations

import sys
from typing import Any


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
