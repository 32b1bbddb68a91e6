"""Where the compiler, the device library and the emulator of instructions are: what `.ci/emulated/prepare` makes."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
VARIABLE = "CLHIST_EMULATED"
NEWEST = "19"  # of clang, in Debian's backports to itself


class NotPreparedError(Exception):
    """The files that emulate a GPU are missing."""


class Places:
    """The directories and programs in the directory that was prepared.

    Attributes
    ----------
    root : Path
        The directory.
    libraries : Path
        Debian's shared libraries, unpacked.
    cache : Path
        What was compiled: kept between runs.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.libraries = root / "usr/lib/x86_64-linux-gnu"
        self.tinygrad = root / "tinygrad"
        self.bitcode = self.libraries / "amdgcn/bitcode"
        self.cache = root / "cache"

    def program(self, name: str, version: str = NEWEST) -> Path:
        """Return one of LLVM's programs."""
        return self.root / f"usr/lib/llvm-{version}/bin/{name}"

    @property
    def environment(self) -> dict[str, str]:
        """The environment in which those programs find their libraries."""
        return os.environ | {"LD_LIBRARY_PATH": f"{self.libraries}:{self.root}/usr/lib/llvm-{NEWEST}/lib"}


@cache
def places() -> Places:
    """Return the prepared directory: `CLHIST_EMULATED`, or `.emulated` in the root of the clone.

    Raises
    ------
    NotPreparedError
        If it is not there or not complete; the message says how to make it.
    """
    root = Path(os.environ.get(VARIABLE) or ROOT / ".emulated").resolve()
    if not (root / "ready").exists():
        raise NotPreparedError(
            f"{root}: no tools to emulate a GPU with. `{HERE.relative_to(ROOT)}/prepare .emulated` in the root of the "
            f"clone fetches them (half a minute, 330 MB, needs apt and cc); {VARIABLE} names another directory"
        )
    found = Places(root)
    found.cache.mkdir(parents=True, exist_ok=True)
    return found


def replace(file: Path, content: bytes, mode: int = 0o644) -> None:
    """Write a file that other processes may write, too."""
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f"{file.name}.{os.getpid()}")
    temporary.write_bytes(content)
    temporary.chmod(mode)
    temporary.replace(file)
