"""Cache files with a checksum: what is damaged is never used, and one warning names it.

Note [Sealed cache files], docs/decisions/0027.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
import warnings
from hashlib import sha256
from pathlib import Path
from typing import Any

import platformdirs

from clhist.files.regular import open_regular, replaced

_DIGEST_BYTES = 32
_named: set[str] = set()
_lock = threading.Lock()


def read_sealed(path: Path, key: str) -> bytes | None:
    """Return the content that `write_sealed` wrote for this key; None if there is no such file, or a damaged one.

    A file that is damaged, or that cannot be read, is named by one warning of the process.
    """
    try:
        with open_regular(path) as file:
            digest, content = file.read(_DIGEST_BYTES), file.read()
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        warn_of_damage(path, str(error))
        return None
    if digest != _digest(key, content):
        warn_of_damage(path, "its checksum is wrong")
        return None
    return content


def write_sealed(path: Path, key: str, content: bytes) -> None:
    """Write a file that `read_sealed` reads; without a word if that is impossible, since it is only a cache."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # A directory cannot be replaced by a rename.
        if path.is_dir():
            shutil.rmtree(path)
        # Not durable: the checksum reveals a file that a loss of power has cut off.
        with replaced(path, durable=False) as file:
            file.write(_digest(key, content) + content)
    except (OSError, ValueError):
        return


def warn_of_damage(path: Path | str, reason: str, instead: str = "it is made again") -> None:
    """Warn of a cache file that cannot be used, once in a process."""
    with _lock:
        if os.fspath(path) in _named:
            return
        _named.add(os.fspath(path))
    # Outside of the lock: handlers of warnings are foreign code, which may warn of another file.
    warnings.warn(f"{path}: a damaged file of a cache ({reason}); {instead}", RuntimeWarning, stacklevel=3)


def _digest(key: str, content: bytes) -> bytes:
    return sha256(f"{key}\0".encode() + content).digest()


def read_measurement(kind: str, facts: object) -> Any:
    """Return the value that `write_measurement` stored for these facts; None if there is none, or a damaged file."""
    path, key = _measurement(kind, facts)
    # In a directory that may not be searched there is none, either; `is_writable` warns of it.
    content = read_sealed(path, key) if os.path.lexists(path) else None
    return None if content is None else json.loads(content)


def write_measurement(kind: str, facts: object, value: object) -> None:
    """Store what was measured on a device in the cache directory, as JSON; not if that cannot be written.

    Parameters
    ----------
    kind : str
        The name of its folder.
    facts : object
        What the value depends on, such as versions of drivers, for JSON.
    value : object
        For JSON, and not None.
    """
    path, key = _measurement(kind, facts)
    write_sealed(path, key, json.dumps(value).encode())


def _measurement(kind: str, facts: object) -> tuple[Path, str]:
    key = sha256(json.dumps(facts).encode()).hexdigest()
    return platformdirs.user_cache_path("clhist") / kind / key, key
