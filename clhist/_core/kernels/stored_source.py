"""OpenCL C that earlier processes rendered, in the cache directory: Mako and its templates take 40 ms of a first call.

Note [Sealed cache files], docs/decisions/0027.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import lru_cache, wraps
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import ParamSpec

import numpy as np
import platformdirs

from clhist._version import __version__
from clhist.files.sealed import read_sealed, write_sealed

_FALSE = ("n", "no", "f", "false", "off", "0")  # as PyOpenCL reads its variable

P = ParamSpec("P")


def stored_source(render: Callable[P, str]) -> Callable[P, str]:
    """Decorate a function that renders OpenCL C from specs, so that a text rendered by an earlier process is read.

    Equal specs must have equal text. Specs with fields of other types than `_described` knows are always rendered.
    """

    @wraps(render)
    def source(*args: P.args, **kwargs: P.kwargs) -> str:
        folder = _folder() if os.environ.get("PYOPENCL_NO_CACHE", "false").lower() in _FALSE else None
        try:
            described = _described((render.__name__, args, tuple(sorted(kwargs.items()))))
        except _NotDescribedError:
            folder = None
        if folder is None:
            return render(*args, **kwargs)
        key = sha256(described.encode()).hexdigest()
        path = folder / key
        stored = read_sealed(path, key) if os.path.lexists(path) else None
        if stored is not None:
            return stored.decode()
        text = render(*args, **kwargs)
        write_sealed(path, key, text.encode())
        return text

    return source


class _NotDescribedError(Exception):
    """Raised for a value of a type whose text need not be the same in all processes."""


def _described(value: object) -> str:
    """Return a text that equal values have in all processes, and no others: their fields that are compared."""
    if value is None or isinstance(value, str | bytes | bool | int | float | np.dtype):
        return repr(value)
    if is_dataclass(value):
        parts = [_described(getattr(value, field.name)) for field in fields(value) if field.compare]
    elif isinstance(value, tuple | list):
        parts = [*map(_described, value)]
    elif isinstance(value, frozenset):
        parts = sorted(map(_described, value))  # whose order differs between processes
    else:
        raise _NotDescribedError
    return f"{type(value).__module__}.{type(value).__qualname__}({', '.join(parts)})"


@lru_cache(maxsize=1)
def _folder() -> Path | None:
    """Return the directory of texts that this code renders; None if the package is in an archive."""
    package = resources.files("clhist")
    if not isinstance(package, Path):
        return None
    # As for Python's own bytecode, files are the same if size and time are: to read all of them takes 20 ms.
    states = [__version__]
    for root in (package, resources.files("clhist.kernels_cl")):
        for folder, _, names in sorted(os.walk(str(root))):
            for name in sorted(names):
                if name.endswith((".py", ".mako")):
                    status = os.stat(path := f"{folder}/{name}")
                    states.append(f"{path} {status.st_size} {status.st_mtime_ns}")
    content = sha256("\n".join(states).encode()).hexdigest()[:16]
    return platformdirs.user_cache_path("clhist") / "sources" / content
