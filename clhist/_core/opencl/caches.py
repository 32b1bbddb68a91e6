"""Work where the caches of PyOpenCL and PoCL cannot be written or read: a read-only home, a full disk, a cut file.

PyOpenCL raises what the file system does, at its import or at the first kernel; PoCL has no device without its cache.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

import platformdirs

_ROOM = 64 << 20  # bytes: less would be full after some dozens of programs
_TRIED = 64 << 10  # bytes that are written: a quota or a read-only mount shows only then

_temporary: str | None = None


def survive_broken_caches() -> None:
    """Have PyOpenCL compile where an entry of its cache cannot be read; it raises KeyError unless this is set."""
    # An empty value is false; a value of the caller's stays.
    os.environ.setdefault("PYOPENCL_CACHE_FAILURE_FATAL", "")


def unwritable_caches() -> list[str]:
    """Return the environment variables that would help: those that the caller has not set, or to no avail."""
    places = {
        "PYOPENCL_NO_CACHE": [platformdirs.user_cache_path(name, name) for name in ("pyopencl", "pytools")],
        "POCL_CACHE_DIR": [pocl_cache()] if os.name == "posix" else [],
    }
    # A variable that the caller has set stays, but for PoCL's: without a cache it has no device.
    names = [name for name, own in places.items() if name not in os.environ and not all(map(is_writable, own))]
    if "POCL_CACHE_DIR" in os.environ and not all(map(is_writable, places["POCL_CACHE_DIR"])):
        warnings.warn(
            f"POCL_CACHE_DIR: {os.environ['POCL_CACHE_DIR']!r} cannot be written; PoCL compiles into "
            "a temporary directory",
            RuntimeWarning,
            stacklevel=3,
        )
        names.append("POCL_CACHE_DIR")
    return names


def replace_caches(variables: Collection[str]) -> None:
    """Turn PyOpenCL's caches off, and move PoCL's to a temporary directory, as far as these `variables` say."""
    if "PYOPENCL_NO_CACHE" in variables:
        os.environ["PYOPENCL_NO_CACHE"] = "1"
        imported = sys.modules.get("pyopencl")
        if imported is not None:  # by the caller; PyOpenCL's modules that have caches are imported later
            imported._PYOPENCL_NO_CACHE = True  # type: ignore[attr-defined]
    if "POCL_CACHE_DIR" in variables:
        with suppress(OSError):  # nothing can be written anywhere: NoDeviceError says what would help
            os.environ["POCL_CACHE_DIR"] = str(temporary_directory() / "pocl")


def pocl_cache() -> Path:
    """Return where PoCL keeps compiled kernels, if there is a PoCL."""
    if "POCL_CACHE_DIR" in os.environ:
        return Path(os.environ["POCL_CACHE_DIR"])
    if "XDG_CACHE_HOME" in os.environ:
        return Path(os.environ["XDG_CACHE_HOME"]) / "pocl"
    return Path(os.environ["HOME"]) / ".cache" / "pocl" if "HOME" in os.environ else Path("/tmp/pocl")


def is_writable(directory: Path) -> bool:
    """Whether files of some size can be made in `directory`, or in the one that it would be made in."""
    if not directory.is_absolute():  # "~", where a user has no home
        return False
    try:
        # The cache directory need not exist yet: what counts is the file system where it would be made.
        existing = next(folder for folder in (directory, *directory.parents) if folder.exists())
        if shutil.disk_usage(existing).free < _ROOM:
            return False
        with tempfile.TemporaryFile(dir=existing) as file:
            file.write(bytes(_TRIED))
    except (OSError, StopIteration):
        return False
    return True


def temporary_directory() -> Path:
    """Return a directory that lasts as long as this process, and that nobody else can write.

    Raises
    ------
    OSError
        If there is no room for it anywhere.
    """
    global _temporary
    if _temporary is None:
        _temporary = tempfile.mkdtemp(prefix="clhist-")
        atexit.register(_remove, _temporary, os.getpid())
    return Path(_temporary)


def _remove(directory: str, process: int) -> None:
    if os.getpid() == process:  # and not of one that was forked
        shutil.rmtree(directory, ignore_errors=True)
